"""What programs say to `script`: decorators and functions of torch.jit's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["annotate", "export", "ignore", "is_scripting", "unchecked_unwrap_optional", "unused"]

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "_graphwright_script"


def ignore(function: F | None = None, **options: Any) -> Any:
    """Have `script` leave a function or method as a call of Python: one node, which runs it as it is.

    >>> @ignore
    ... def look(x):
    ...     print(x)
    """
    if function is None:
        return functools.partial(ignore, **options)
    return _marked(function, "ignore")


def unused(function: F) -> F:
    """Have `script` replace a method that is never called by one that raises.

    >>> @unused
    ... def only_in_python(self, x):
    ...     yield x
    """
    return _marked(function, "unused")


def export(function: F) -> F:
    """Have `script` compile a method of a module, besides `forward`: an entry point of the result.

    >>> @export
    ... def encode(self, x):
    ...     return x * 2
    """
    return _marked(function, "export")


def _marked(function: F, mark: str) -> F:
    setattr(function.fget if isinstance(function, property) else function, _MARK, mark)
    return function


def is_scripting() -> bool:
    """Tell whether the code is being compiled by `script`: False when Python runs it.

    >>> is_scripting()
    False
    """
    return False


def annotate(kind: Any, value: Any) -> Any:
    """Give an expression of a scripted program a type; in Python, the value itself.

    >>> annotate(list[int], [])
    []
    """
    return value


def unchecked_unwrap_optional(value: Any) -> Any:
    """Say that an optional value of a scripted program is not None; in Python, the value itself."""
    return value

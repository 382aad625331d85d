"""What programs say to `script`: decorators and functions of torch.jit's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from graphwright.script.annotations import type_from_annotation, type_of_constant
from graphwright.script.types import ANY, DictType, ListType, OptionalType, TupleType, Type

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


def is_instance(value: Any, kind: Any) -> bool:
    """Tell whether a value is of a type, the items of containers included: what `isinstance` cannot be asked.

    >>> is_instance([1, 2], list[int]), is_instance([1, "a"], list[int])
    (True, False)
    """
    wanted = type_from_annotation(kind)
    return wanted is not None and _is_of(value, wanted)


def _is_of(value: Any, wanted: Type) -> bool:
    if isinstance(wanted, ListType):
        return isinstance(value, list) and all(_is_of(item, wanted.item) for item in value)
    if isinstance(wanted, DictType):
        return isinstance(value, dict) and all(
            _is_of(key, wanted.key) and _is_of(item, wanted.item) for key, item in value.items()
        )
    if isinstance(wanted, OptionalType):
        return value is None or _is_of(value, wanted.item)
    if isinstance(wanted, TupleType):
        is_tuple = isinstance(value, tuple) and len(value) == len(wanted.items)
        return is_tuple and all(map(_is_of, value, wanted.items))
    return type_of_constant(value) == wanted or wanted is ANY


def fork(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function; `wait` gives its result. Programs are captured in the order in which Python runs them.

    >>> wait(fork(max, 1, 2))
    2
    """
    return function(*args, **kwargs)


def wait(value: Any) -> Any:
    """The result of a `fork`."""
    return value

"""Operators of captured programs that Python has statements for: `with` blocks, generators, unpacking and functions.

A region of ambient state (grad mode, ...) is a pair of nodes, `enter_context(manager, ...)` and
`exit_context(entered)`, printed as one `with`; `unpack(value, 2)` followed by its items is printed as `a, b = value`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from graphwright.errors import GuardError


def enter_context(manager: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a context manager, enter it and return it.

    >>> import torch
    >>> entered = enter_context(torch.set_grad_enabled, False)
    >>> torch.is_grad_enabled()
    False
    >>> exit_context(entered)
    >>> torch.is_grad_enabled()
    True
    """
    context = manager(*args, **kwargs)
    context.__enter__()
    return context


def exit_context(entered: Any) -> None:
    """Leave a context that `enter_context` entered."""
    entered.__exit__(None, None, None)


class Entering:
    """A context manager that is there already, for `enter_context`; what entering it gives is put into a list.

    >>> import contextlib
    >>> given = []
    >>> with Entering(contextlib.nullcontext(2), given):
    ...     given
    [2]
    """

    def __init__(self, context: Any, given: list[Any]) -> None:
        self._context, self._given = context, given

    def __enter__(self) -> None:
        self._given.append(type(self._context).__enter__(self._context))

    def __exit__(self, *error: Any) -> Any:
        return type(self._context).__exit__(self._context, *error)


def unpack(value: Any, count: int) -> tuple[Any, ...]:
    """Return the items of a value as a tuple, checking that there are as many as when the program was captured.

    >>> unpack([1, 2], 2)
    (1, 2)
    """
    items = tuple(value)
    if len(items) != count:
        raise GuardError(
            f"the program was captured where this gave {count} items; now it gives {len(items)}",
            fix="capture again with these inputs as the example",
        )
    return items


def generated(items: Iterable[Any]) -> Iterator[Any]:
    """Give items one by one, as a generator of the program's does.

    >>> list(generated([1, 2]))
    [1, 2]
    """
    yield from items


def close_over(function: types.FunctionType, held: dict[str, Any]) -> types.FunctionType:
    """A function with these in the variables that it closes over, and as defaults of its parameters.

    >>> adding = lambda step: lambda x: x + step
    >>> close_over(adding(2), {"step": 5})(1), close_over(lambda x, y=1: x + y, {"y": 3})(1)
    (6, 4)
    """
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple([types.CellType(held[name]) if name in held else cell for name, cell in cells])
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    names, defaults = code.co_varnames[: code.co_argcount], function.__defaults__ or ()
    named = zip(names[len(names) - len(defaults) :], defaults, strict=True)
    made.__defaults__ = tuple([held.get(name, default) for name, default in named]) or None
    words = function.__kwdefaults__
    made.__kwdefaults__ = {name: held.get(name, default) for name, default in words.items()} if words else None
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


def raise_error(kind: type[BaseException] | BaseException, *args: Any, cause: BaseException | None = None) -> None:
    """Raise an exception: `raise kind(*args)`; without arguments `kind` may be one that there is already.

    With a cause it is `raise kind(*args) from cause`.

    >>> raise_error(ValueError, "n must be even")
    Traceback (most recent call last):
    ValueError: n must be even
    """
    error = kind(*args) if isinstance(kind, type) else kind
    if cause is not None:
        raise error from cause
    raise error


def expect_bound(value: Any, name: str) -> None:
    """Raise UnboundLocalError where a variable has no value because a loop ran no iteration: its value is None then.

    >>> expect_bound(None, "row")
    Traceback (most recent call last):
    UnboundLocalError: ...'row'...
    """
    if value is None:
        raise UnboundLocalError(_unbound_text().replace("'name'", repr(name)))


@functools.cache
def _unbound_text() -> str:
    """What this Python says of a variable `name` that has no value."""
    try:
        for name in list[str]():  # noqa: B007 - it has no value
            pass
        return name
    except UnboundLocalError as error:
        return str(error)


def evaluated(value: Any) -> None:
    """Say that a value counts though nobody reads it: computing it may raise what the program catches.

    >>> evaluated(3)
    """

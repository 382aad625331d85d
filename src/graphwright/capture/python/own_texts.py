"""What classes of the program say of their objects, by `__str__`, `__repr__` and `__format__`: called as functions are.

Python itself wants a text of them; what a call of the runtime gives may be a text of the run.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.source import is_foreign

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["own_format", "own_text", "with_own_texts"]

Call = Callable[..., Any]
_CONVERSIONS = {None: "__str__", "s": "__str__", "r": "__repr__"}


def own_text(
    call: Call, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`str(x)` and `repr(x)` of an object whose class says it."""
    method = _said_by(args[0], f"__{function.__name__}__") if len(args) == 1 and not kwargs else None
    return NotImplemented if method is None else call(method, *args)


def own_format(
    call: Call, recorder: Capture, function: BuiltinFunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`"{} {}".format(x, y)`, where classes say the texts of their objects."""
    template: Any = function.__self__
    if kwargs or any(field for _, field, *_ in string.Formatter().parse(template)):
        return NotImplemented
    told, values = with_own_texts(call, template, args)
    return NotImplemented if values is args else call(told.format, *values)


def with_own_texts(call: Call, template: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The template of an f-string and its values, those whose classes say their texts as these."""
    if not any(_said_by(value, "__str__") or _said_by(value, "__format__") for value in values):
        return template, values
    left, found, made = iter(values), [], []
    for literal, field, spec, conversion in string.Formatter().parse(template):
        made.append(literal.replace("{", "{{").replace("}", "}}"))
        if field is None:
            continue
        value = next(left)
        inner = [next(left) for _ in range((spec or "").count("{"))]
        method = _said_by(value, _CONVERSIONS.get(conversion, ""))
        if conversion is None and _said_by(value, "__format__") is not None:
            value, spec, inner = call(type(value).__format__, value, (spec or "").format(*inner)), "", []
        elif method is not None and (conversion is not None or not spec):
            value, conversion = call(method, value), None
        made.append("{" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}")
        found += [value, *inner]
    return "".join(made), tuple(found)


def _said_by(value: Any, asked: str) -> FunctionType | None:
    """The method of the program's that says the text of a value."""
    method = getattr(type(value), asked, None)
    if method is object.__str__:
        method = type(value).__repr__
    return method if type(method) is FunctionType and not is_foreign(method.__code__) else None

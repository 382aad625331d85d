"""What classes of the program say of their objects, by `__str__`, `__repr__` and `__format__`: called as functions are.

Python itself wants a text of them; what a call of the runtime gives may be a text of the run.
"""

from __future__ import annotations

import dataclasses
import re
import reprlib
import string
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.capture.python.message_texts import Text
from graphwright.source import is_foreign

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Call = Callable[..., Any]
_MAKERS = (dataclasses.__file__, reprlib.__file__)
_FORMAT = object.__format__
_CONVERSIONS = {None: "__str__", "s": "__str__", "r": "__repr__"}


def own_text(
    call: Call, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`str(x)` and `repr(x)` of an object whose class says it."""
    method = _said_by(args[0], f"__{function.__name__}__") if len(args) == 1 and not kwargs else None
    if method is None:
        return NotImplemented
    with recorder.questions.messages.telling():
        return call(method, *args)


def own_format(
    call: Call, recorder: Capture, function: BuiltinFunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`"{} {}".format(x, y)`, where classes say the texts of their objects."""
    template: Any = function.__self__
    if kwargs or any(field for _, field, *_ in string.Formatter().parse(template)):
        return NotImplemented
    with recorder.questions.messages.telling():
        told, values = with_own_texts(call, template, args)
    return NotImplemented if values is args else call(told.format, *values)


def with_own_percents(show: Call, template: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The same of a template for `%`; `show` makes the text of a value by the template of an f-string."""
    parts = _PERCENT.findall(template)
    if len(parts) != len(values) or not any(map(_says, values)):
        return template, values
    told = [part[-1] in "rs" and len(part) == 2 and _says(value) for part, value in zip(parts, values, strict=True)]
    made = iter(["%s" if each else part for each, part in zip(told, parts, strict=True)])
    found = [
        show(f"{{!{part[-1]}}}", value) if each else value
        for each, part, value in zip(told, parts, values, strict=True)
    ]
    return _PERCENT.sub(lambda part: next(made), template), tuple(found)


_PERCENT = re.compile(r"%[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]")  # without names


def with_own_texts(call: Call, template: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The template of an f-string and its values, those whose classes say their texts as these."""
    if not any(type(value) is Text or _says(value) for value in values):
        return template, values
    left, made = iter(values), []
    found: list[Any] = []
    for literal, field, spec, conversion in string.Formatter().parse(template):
        made.append(literal.replace("{", "{{").replace("}", "}}"))
        if field is None:
            continue
        value = next(left)
        inner = [next(left) for _ in range((spec or "").count("{"))]
        method = _said_by(value, _CONVERSIONS.get(conversion, ""))
        if type(value) is Text and conversion in (None, "s") and not spec:
            made.append(value.template)
            found += value.values
            continue
        if conversion is None and _said_by(value, "__format__") is not None:
            value, spec, inner = call(type(value).__format__, value, (spec or "").format(*inner)), "", []
        elif method is not None and (conversion is not None or not spec):
            value, conversion = call(method, value), None
        elif conversion in _CONVERSIONS and not spec and _is_record(value, _CONVERSIONS[conversion]):
            shown = [each.name for each in dataclasses.fields(value) if each.repr]
            texts = [with_own_texts(call, "{!r}", (getattr(value, name),)) for name in shown]
            inside = ", ".join(f"{name}={inner}" for name, (inner, _) in zip(shown, texts, strict=True))
            made.append(f"{type(value).__qualname__}({inside})")
            found += [each for _, given in texts for each in given]
            continue
        made.append("{" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}")
        found += [value, *inner]
    return "".join(made), tuple(found)


def _says(value: Any) -> bool:
    """Tell whether a class of the program says a text of a value, or the fields of a dataclass do."""
    return _said_by(value, "__str__") is not None or _said_by(value, "__format__") is not None or _is_record(value)


def _is_record(value: Any, asked: str = "__repr__") -> bool:
    """Tell whether a value is of a dataclass whose text is that of its fields, as Python makes it."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind) or (asked == "__str__" and kind.__str__ is not object.__str__):
        return False
    code = getattr(kind.__repr__, "__code__", None)
    return code is not None and code.co_filename in _MAKERS and kind.__format__ is _FORMAT


def _said_by(value: Any, asked: str) -> FunctionType | None:
    """The method of the program's that says the text of a value."""
    method = getattr(type(value), asked, None)
    if method is object.__str__:
        method = type(value).__repr__
    return method if type(method) is FunctionType and not is_foreign(method.__code__) else None

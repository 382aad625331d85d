"""What a program says: `print`, and `torch._assert` and its like, of values that only a run has."""

from __future__ import annotations

import functools
import itertools
import re
import string
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.flow.caught_errors import shown
from graphwright.capture.flow.deciding import branch, recorder_of
from graphwright.capture.outside.said import CHECKS, print_elsewhere
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import text_of_error
from graphwright.capture.proxies.run_text import RunText, is_of_run, percent
from graphwright.capture.python.message_texts import Text
from graphwright.capture.python.own_texts import with_own_texts
from graphwright.capture.python.statements import raising
from graphwright.capture.state.interception import original_of
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import symbol_of

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Call = Callable[..., Any]


def text(call: Call, template: str, *values: Any) -> str:
    """An f-string in a message; of an error that it shows, and of what classes say, the text is that of the run."""
    recorder = running()
    if recorder is not None:
        with recorder.questions.messages.telling():
            template, values = with_own_texts(call, template, values)
    values = tuple([value if (of_run := text_of_error(value)) is None else of_run for value in values])
    if not any(map(_is_shown, values)):
        return template.format(*values)
    text = Text(template.format(*[_Shown(value) if _is_shown(value) else value for value in values]))
    text.template, text.values = template, values
    return text


def told_format(
    call: Call, recorder: Capture, function: BuiltinFunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`"{} is not {n}".format(x, n=n)` in a message."""
    if not recorder.questions.messages.is_in_message():
        return NotImplemented
    template: Any = function.__self__
    made, values = _in_order(template, args, kwargs)
    return text(call, made, *values) if any(map(_holds_of_run, values)) else NotImplemented


def _holds_of_run(value: Any) -> bool:
    """Tell whether a value is one of the run, or holds one; so is a tensor, also one that a module holds."""
    if type(value) in (list, tuple, dict):
        return any(map(_holds_of_run, value.values() if type(value) is dict else value))
    return isinstance(value, torch.Tensor) or is_of_run(value)


def _in_order(template: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, list[Any]]:
    """A template and its values in the order in which it shows them; no values where one tells how another is shown."""
    made, values, places = "", [], itertools.count()
    formatter = string.Formatter()
    for literal, field, spec, conversion in formatter.parse(template):
        made += literal.replace("{", "{{").replace("}", "}}")
        if field is None:
            continue
        if "{" in (spec or ""):
            return template, []
        name = field if field and field[0] not in ".[" else f"{next(places)}{field}"
        values.append(formatter.get_field(name, args, kwargs)[0])
        made += "{" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
    return made, values


def told_percent(call: Call, recorder: Capture, template: str, values: Any, is_message: bool) -> Any:
    """`"%d rows" % n` in a message; where it `is_message` that is sure."""
    if not _holds_of_run(values) or not (is_message or recorder.questions.messages.is_in_message()):
        return NotImplemented
    given = values if type(values) is tuple else (values,)
    told = _as_fields(template, given)
    return text(call, "{}", percent(recorder, template, values)) if told is None else text(call, told, *given)


def _as_fields(template: str, values: tuple[Any, ...]) -> str | None:
    """The template of an f-string that shows the same as one for `%`; None where there is none.

    >>> _as_fields("%d of %5s, %.1f%%", (3, "a", 0.5))
    '{:d} of {!s:>5}, {:.1f}%'
    """
    parts = _PERCENT.split(template)
    found = [*_PERCENT.finditer(template)]
    if "%" in "".join(parts).replace("%%", "") or len(found) != len(values):
        return None
    made = parts[0::5][0].replace("%%", "%").replace("{", "{{").replace("}", "}}")
    for part, value, literal in zip(found, values, parts[5::5], strict=True):
        flag, width, precision, kind = part.groups()
        if (kind in "di" and not isinstance(value, int)) or (kind in "sr" and (precision or flag == "0")):
            return None
        side = "" if not width else "<" if flag == "-" else "0" if flag else ">"
        spec = f"{side}{width}{precision}{'' if kind in 'sr' else 'd' if kind in 'di' else kind}"
        conversion = f"!{kind}" if kind in "sr" else ""
        made += "{" + conversion + (f":{spec}" if spec else "") + "}"
        made += literal.replace("%%", "%").replace("{", "{{").replace("}", "}}")
    return made


_PERCENT = re.compile(r"(?<!%)%([-0]?)(\d*)((?:\.\d+)?)([sdrifgexX])")


def _is_shown(value: Any) -> bool:
    """Tell whether a run shows a value: one of the run, and a tensor that a module holds."""
    is_of_run = isinstance(value, RunText | torch.Tensor) or recorder_of(value) is not None
    return is_of_run or is_growing(value) or holds_values((value,))


class _Shown:
    """A value of the run in a message of the example: whatever its format asks for."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, spec: str) -> str:
        return str(self)

    def __repr__(self) -> str:
        symbol = None if isinstance(self._value, torch.Tensor) or shown(self._value) else symbol_of(self._value)
        return "?" if symbol is None else str(symbol)


# ---- calls


def is_known(values: tuple[Any, ...]) -> bool:
    """Tell whether a builtin can be called with values: no numbers of the run are among them, and no messages."""
    for value in values:  # noqa: SIM110 - asked in most calls of builtins
        if type(value) is Text or recorder_of(value) is not None:
            return False
    return True


def printed(
    call: Call, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`print(...)` is part of the graph; without examples only where it shows values of the run."""
    has_examples = recorder.examples.are_there
    args = tuple([value if type(value) is Text else with_own_texts(call, "{!s}", (value,))[1][0] for value in args])
    if not has_examples and is_known(args):
        return NotImplemented
    file = kwargs.get("file") or sys.stdout
    out, errors = (sys.stdout, sys.stderr) if recorder.log is None else (recorder.log.out, recorder.log.errors)
    if has_examples and file is not out:
        return print_elsewhere(recorder, args, kwargs) if file is errors else NotImplemented
    message = recorder.questions.messages.message
    named = {name: message(value) for name, value in kwargs.items() if name != "file"}
    recorder.make("call_function", original_of(print), tuple(map(message, args)), "print", named)
    return None


def written(recorder: Capture, function: Callable[[str], int], text: str) -> Any:
    """`sys.stdout.write(...)` is printed, too, and so is each item of `sys.stdout.writelines(...)`."""
    file = function.__self__  # type: ignore[attr-defined]
    if function.__name__ == "writelines":
        for each in text:
            written(recorder, file.write, each)
        return None
    if type(text) is str and not recorder.examples.are_there:
        return function(text)
    if file is sys.stdout:
        message = recorder.questions.messages.message(text)
        recorder.make("call_function", original_of(print), (message,), "print", {"end": ""})
    else:
        print_elsewhere(recorder, (text,), {"end": "", "file": file})
    return len(text) if type(text) is str else None


def asserted(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch._assert(condition, message)` stays what it is."""
    if is_known(args):
        return NotImplemented
    message = recorder.questions.messages.message(kwargs.get("message", args[1] if len(args) > 1 else ""))
    condition = recorder.numbers.predicate(args[0])
    recorder.make("call_function", function, (condition, message), "assert_")
    return None


def checked(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch._check(condition, message)`: an exception of its class where the condition does not hold."""
    if is_known(args):
        return NotImplemented
    kind, given = CHECKS[function], list(args)
    if kind is None:
        kind = given.pop(0)
    if "tensor_all" in function.__name__:
        given[0] = torch.all(given[0])

    def fail() -> None:
        message = given[1]() if len(given) > 1 and given[1] is not None else _message_of_torch()
        raise raising(kind(message))

    branch(given[0], lambda: None, fail)
    return None


@functools.cache
def _message_of_torch() -> str:
    """What torch's checks say where the program gives no message. To ask it loads sympy."""
    try:
        torch._check(False)
    except RuntimeError as error:
        return str(error)
    return ""

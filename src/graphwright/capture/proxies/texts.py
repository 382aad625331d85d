"""Texts that only a run knows: `f"row{i}"` in a loop of the graph.

Such a text is no `str`, so that nothing written in C can take the example's for it: it can be a key, an item of a list,
a part of another text, compared, and returned.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.state.running import refusal
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.errors import CaptureError
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["RunText", "formatted", "is_of_run", "joined_texts", "percent", "text_of"]

_TEXTS = frozenset(
    [
        "upper",
        "lower",
        "strip",
        "lstrip",
        "rstrip",
        "replace",
        "format",
        "zfill",
        "rjust",
        "ljust",
        "center",
        "title",
        "capitalize",
        "swapcase",
        "removeprefix",
        "removesuffix",
    ]
)
_TRUTHS = frozenset({"startswith", "endswith", "isdigit", "isalpha", "isidentifier", "isupper", "islower"})


class RunText:
    """A text of the run: the node that gives it, and what it is for the example, UNKNOWN where that cannot tell."""

    __slots__ = ("hint", "node", "recorder")

    def __init__(self, recorder: Capture, node: Node, hint: Any = UNKNOWN) -> None:
        self.recorder, self.node, self.hint = recorder, node, hint

    def __copy__(self) -> RunText:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> RunText:
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def _computed(self, function: Callable[..., Any], *args: Any) -> Node:
        name = self.recorder.target_name() or "text"
        return self.recorder.node("call_function", function, tuple(map(self.recorder.argument, args)), {}, "", name)

    def __add__(self, other: Any) -> Any:
        return NotImplemented if not isinstance(other, str) else self._joined(self, other)

    def __radd__(self, other: Any) -> Any:
        return NotImplemented if not isinstance(other, str) else self._joined(other, self)

    def _joined(self, one: Any, other: Any) -> Any:
        hints = [part.hint if type(part) is RunText else part for part in (one, other)]
        hint = UNKNOWN if UNKNOWN in hints else hints[0] + hints[1]
        return RunText(self.recorder, self._computed(operator.add, one, other), hint)

    def _compared(self, function: Callable[..., Any], other: Any) -> Any:
        if not isinstance(other, str):
            return function is operator.ne
        hints = [part.hint if type(part) is RunText else part for part in (self, other)]
        hint = UNKNOWN if UNKNOWN in hints else function(*hints)
        return self.recorder.numbers.of_node(self._computed(function, self, other), hint, bool)

    def __eq__(self, other: object) -> Any:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compared(operator.ne, other)

    def __getattr__(self, name: str) -> Any:
        if name not in _TEXTS and name not in _TRUTHS:
            if name.startswith("__") or not hasattr(str, name):
                raise AttributeError(f"'str' object has no attribute {name!r}")
            self._refuse()

        def call(*args: Any) -> Any:
            arguments = tuple(map(self.recorder.argument, (self, *args)))
            node = self.recorder.node("call_method", name, arguments, {}, "", self.recorder.target_name() or name)
            hint = UNKNOWN
            if self.hint is not UNKNOWN and all(type(arg) in (str, int, tuple) for arg in args):
                hint = getattr(self.hint, name)(*args)
            if name in _TRUTHS:
                return self.recorder.numbers.of_node(node, hint, bool)
            return RunText(self.recorder, node, hint)

        return call

    def length(self) -> Any:
        """`len(text)`."""
        hint = UNKNOWN if self.hint is UNKNOWN else len(self.hint)
        return self.recorder.numbers.of_node(self._computed(len, self), hint, int)

    def _refuse(self, *args: Any) -> Any:
        raise refusal(
            CaptureError(
                "the program takes apart, or passes on, a text that is made of a number which only a run knows",
                at=self.recorder.where(),
                fix="use it as a key or an item, return it, or make it outside of the loop",
            )
        )

    __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __mod__ = __contains__ = __getitem__ = __iter__ = _refuse
    __bool__ = __len__ = __str__ = __format__ = __hash__ = _refuse

    def __repr__(self) -> str:
        return "RunText(?)" if self.hint is UNKNOWN else f"RunText({self.hint!r})"


def is_of_run(value: Any) -> bool:
    """Tell whether a number or text, or one in a tuple, is one that only a run knows."""
    if type(value) is tuple:
        return any(map(is_of_run, value))
    return type(value) is RunText or is_symbolic(value) or isinstance(value, Proxy)


def formatted(recorder: Capture, template: str, values: tuple[Any, ...]) -> Any:
    """`template.format(*values)`, where a loop of the graph makes the values."""
    arguments = (template, *map(recorder.argument, values))
    node = recorder.node("call_method", "format", arguments, {}, "", recorder.target_name() or "text")
    hints = [_hint(value) for value in values]
    return _made(recorder, node, UNKNOWN if UNKNOWN in hints else template.format(*hints))


def percent(recorder: Capture, template: str, values: Any) -> Any:
    """`template % values`, where a loop of the graph makes the values."""
    name = recorder.target_name() or "text"
    node = recorder.node("call_function", operator.mod, (template, recorder.argument(values)), {}, "", name)
    given = values if type(values) is tuple else (values,)
    hints = [_hint(value) for value in given]
    return _made(recorder, node, UNKNOWN if UNKNOWN in hints else template % tuple(hints))


def text_of(recorder: Capture, value: Any, function: Callable[[Any], str] = str) -> Any:
    """`str(value)`, or `repr(value)`, of what only a run knows."""
    if type(value) is RunText and function is str:
        return value
    node = recorder.node(
        "call_function", function, (recorder.argument(value),), {}, "", recorder.target_name() or "text"
    )
    hint = _hint(value)
    return _made(recorder, node, hint if hint is UNKNOWN else function(hint))


def joined_texts(recorder: Capture, between: str, texts: Iterable[Any]) -> Any:
    """`between.join(texts)` of a list of the run."""
    arguments = (between, recorder.argument(texts))
    node = recorder.node("call_method", "join", arguments, {}, "", recorder.target_name() or "text")
    return _made(recorder, node, UNKNOWN)


def _made(recorder: Capture, node: Node, hint: Any) -> Any:
    """The text that a node gives; under symbolic tracing it is a value like any other."""
    return RunText(recorder, node, hint) if recorder.examples.are_there else recorder.numbers.of_node(node, hint, str)


def _hint(value: Any) -> Any:
    """What a value is for the example."""
    if is_growing(value) or isinstance(value, Proxy):
        return UNKNOWN
    if type(value) is RunText:
        return value.hint
    symbol = symbol_of(value)
    return value if symbol is None else symbol._hint

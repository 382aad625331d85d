"""Texts that only a run knows: `f"row{i}"` in a loop of the graph, `f"{x.shape[0]}"` anywhere.

Such a text is no `str`, so that nothing written in C can take the example's for it: it can be a key of a table of the
run, an item of a list, a part of another text, compared, raised and returned. What else is done with it needs the text
itself: the capture then starts again with the numbers in it guarded, where it was made outside of loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.running import refused
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.ir import Argument, Node
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

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
    """A text of the run: the node that gives it, and what it is for the example, UNKNOWN where that cannot tell.

    `places` are where its numbers were put into it, if those may be guarded; `is_data`: data of tensors decides it.
    """

    __slots__ = ("hint", "is_data", "node", "places", "recorder")

    def __init__(
        self,
        recorder: Capture,
        node: Node,
        hint: Any = UNKNOWN,
        places: frozenset[Any] = frozenset(),
        is_data: bool = False,
    ) -> None:
        self.recorder, self.node, self.hint, self.places, self.is_data = recorder, node, hint, places, is_data

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

    def __add__(self, other: str) -> Any:
        return NotImplemented if not isinstance(other, str) else self._joined(self, other)

    def __radd__(self, other: str) -> Any:
        return NotImplemented if not isinstance(other, str) else self._joined(other, self)

    def _joined(self, one: Any, other: Any) -> Any:
        hints = [part.hint if type(part) is RunText else part for part in (one, other)]
        hint = UNKNOWN if UNKNOWN in hints else hints[0] + hints[1]
        node = self._computed(operator.add, one, other)
        return RunText(self.recorder, node, hint, places_of(one, other), _is_data((one, other)))

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
            return RunText(self.recorder, node, hint, places_of(self, *args), _is_data((self, *args)))

        return call

    def has(self, part: Any) -> Any:
        """`part in text`."""
        if not isinstance(part, str):
            return self._refuse()
        hint = UNKNOWN if type(part) is not str or self.hint is UNKNOWN else part in self.hint
        return self.recorder.numbers.of_node(self._computed(operator.contains, self, part), hint, bool)

    def length(self) -> Any:
        """`len(text)`."""
        hint = UNKNOWN if self.hint is UNKNOWN else len(self.hint)
        return self.recorder.numbers.of_node(self._computed(len, self), hint, int)

    def _text(self, *args: Any) -> str:
        if self.recorder.questions.messages.is_in_message():
            return "?" if self.hint is UNKNOWN else str(self.hint)
        return str(self._refuse())

    def _refuse(self, *args: Any) -> Any:
        ask_for_texts(self.recorder, self.places)
        raise refused(
            self.recorder,
            "the program takes apart, or passes on, a text that is made of a number which only a run knows",
            "use it as a key or an item, return it, or make it outside of the loop",
        )

    __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __mod__ = __contains__ = __getitem__ = __iter__ = _refuse
    __bool__ = __len__ = __hash__ = _refuse
    __str__ = __format__ = _text

    def __repr__(self) -> str:
        if self.recorder.is_running:
            return repr(self._text())
        return "RunText(?)" if self.hint is UNKNOWN else f"RunText({self.hint!r})"


def is_of_run(value: Any) -> bool:
    """Tell whether a number or text, or one in a tuple, is one that only a run knows."""
    if type(value) in (tuple, torch.Size):
        return any(map(is_of_run, value))
    return type(value) is RunText or is_symbolic(value) or isinstance(value, Proxy)


def makes_text(recorder: Capture, values: Iterable[Any]) -> bool:
    """Tell whether a text of these values, outside of loops, is one of the run: numbers or tensors are in it.

    Not where the program has asked for the text itself, nor in a message, which decides nothing.
    """
    parts = [leaf for value in values for leaf in leaves(value)]
    if not any(map(_is_open, parts)) or not all(type(part) in _PLAIN or _is_open(part) for part in parts):
        return False
    if recorder.typed is None:
        return not recorder.questions.messages.is_in_message()
    if not all(map(_is_plain, values)):
        return False
    return (
        recorder.questions.place() not in recorder.plan.asked_texts and not recorder.questions.messages.is_in_message()
    )


_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype})


def _is_open(value: Any) -> bool:
    return is_symbolic(value) or isinstance(value, torch.Tensor | Proxy) or _stands_for_numpy(value)


def _stands_for_numpy(value: Any) -> bool:
    return isinstance(value, numpy.number) and not issubclass(type(value), numpy.number)


def _is_plain(value: Any) -> bool:
    """Tell whether what shows a value is what shows one that a call makes again."""
    kind = type(value)
    if kind is tuple or kind is list or kind is torch.Size:
        return all(map(_is_plain, value))
    return all(map(_is_plain, value.values())) if kind is dict else not isinstance(value, tuple | list | dict | slice)


def places_of(*values: Any) -> frozenset[Any]:
    """Where the numbers in texts were put into them."""
    return frozenset().union(*[value.places for value in values if type(value) is RunText])


def ask_for_texts(recorder: Capture, places: Iterable[Any]) -> None:
    """Start again with the numbers in texts guarded that are made at these places, as far as they are not."""
    places = set(places) - recorder.plan.asked_texts
    if places:
        recorder.plan.asked_texts |= places
        raise recorder.questions.restart(Restart("a text of numbers is looked into: they are guarded"))


def refused_texts(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[Any]:
    """Where the texts are made which a function written in C refused, because it wants a `str`."""
    text = str(error)
    if "RunText" not in text and not (isinstance(error, TypeError) and "must be str" in text):  # as Python 3.10 says it
        return frozenset()
    return places_of(*leaves((args, kwargs)))


def formatted(recorder: Capture, template: str, values: tuple[Any, ...]) -> Any:
    """`template.format(*values)`, where a loop of the graph makes the values."""
    arguments = (template, *[_argument(recorder, value) for value in values])
    node = recorder.node("call_method", "format", arguments, {}, "", recorder.target_name() or "text")
    hints = [_hint(value) for value in values]
    return _made(recorder, node, UNKNOWN if UNKNOWN in hints else template.format(*hints), values)


def percent(recorder: Capture, template: str, values: Any) -> Any:
    """`template % values`, where a loop of the graph makes the values."""
    name = recorder.target_name() or "text"
    node = recorder.node("call_function", operator.mod, (template, _argument(recorder, values)), {}, "", name)
    hint = _hint(values)
    return _made(recorder, node, UNKNOWN if hint is UNKNOWN else template % hint, [values])


def text_of(recorder: Capture, value: Any, function: Callable[[Any], str] = str) -> Any:
    """`str(value)`, or `repr(value)`, of what only a run knows."""
    if function.__name__ == "str" and type(value) is RunText:
        return value
    argument = _argument(recorder, value)
    node = recorder.node("call_function", function, (argument,), {}, "", recorder.target_name() or "text")
    hint = _hint(value)
    return _made(recorder, node, hint if hint is UNKNOWN else function(hint), [value])


def joined_texts(recorder: Capture, between: str, texts: Iterable[Any]) -> Any:
    """`between.join(texts)` of texts of the run."""
    arguments = (between, recorder.argument(texts))
    node = recorder.node("call_method", "join", arguments, {}, "", recorder.target_name() or "text")
    hint = UNKNOWN if is_growing(texts) else _hint(texts)
    return _made(recorder, node, UNKNOWN if hint is UNKNOWN else between.join(hint), () if is_growing(texts) else texts)


def _argument(recorder: Capture, value: Any) -> Argument:
    """A value that is shown: a `torch.Size` is shown as one."""
    if type(value) is torch.Size and recorder.examples.are_there:
        return recorder.node("call_function", torch.Size, (recorder.argument(value),), {}, "shape")
    if type(value) in (tuple, list):
        return type(value)([_argument(recorder, item) for item in value])
    if type(value) is dict:
        return {key: _argument(recorder, item) for key, item in value.items()}
    return recorder.argument(value)


def _made(recorder: Capture, node: Node, hint: Any, values: Iterable[Any]) -> Any:
    """The text that a node gives; under symbolic tracing it is a value like any other."""
    if not recorder.examples.are_there:
        return recorder.numbers.of_node(node, hint, str)
    if recorder.region.is_in_loop():
        return RunText(recorder, node, hint)
    return RunText(recorder, node, hint, places_of(*values) | {recorder.questions.place()}, _is_data(values))


def _is_data(values: Iterable[Any]) -> bool:
    """Tell whether the data of a tensor decides what a text of these values is."""
    for leaf in leaves([*values]):
        symbol = symbol_of(leaf)
        if (
            leaf.is_data
            if type(leaf) is RunText
            else isinstance(leaf, torch.Tensor) or (symbol is not None and symbol.is_data)
        ):
            return True
    return False


def _hint(value: Any) -> Any:
    """What a value is for the example."""
    if is_growing(value) or isinstance(value, torch.Tensor | Proxy) or _stands_for_numpy(value):
        return UNKNOWN
    if type(value) is RunText:
        return value.hint
    if type(value) in (tuple, list, torch.Size):
        hints = [_hint(item) for item in value]
        return UNKNOWN if UNKNOWN in hints else type(value)(hints)
    if type(value) is dict:
        known = {key: _hint(item) for key, item in value.items()}
        return UNKNOWN if UNKNOWN in known.values() else known
    symbol = symbol_of(value)
    return value if symbol is None else symbol._hint

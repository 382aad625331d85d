"""What converted functions do with dicts, sets and deques whose keys or number of items only a run knows.

A dict of the program's cannot hold a number of the run as a key. Where a loop puts one there, the capture starts that
loop again with a dict of the run instead: `Grows` says so.
"""

from __future__ import annotations

import collections
import copy
import operator
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.item_kinds import DICTS
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopList, LoopTuple, OfRun
from graphwright.capture.containers.loop_queues import LoopQueue
from graphwright.capture.containers.loop_sets import LoopSet, table_of
from graphwright.capture.containers.rows import repeated
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.texts import RunText, formatted, is_of_run, joined_texts, percent, text_of
from graphwright.capture.source.syntax import CHANGES
from graphwright.capture.state.running import refusal, running
from graphwright.capture.state.samples import Grows
from graphwright.capture.state.symbols import is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["Tables", "container_of", "method_call"]

_KEYED_BY_FIRST = frozenset({"get", "pop", "setdefault", "add", "remove", "discard", "move_to_end"})
_DESCRIPTORS: tuple[type, ...] = (type(list.append), type(list.__len__))
_ALGEBRA: dict[str, Callable[[Any, Any], Any]] = {
    "union": operator.or_, "intersection": operator.and_, "difference": operator.sub,
    "symmetric_difference": operator.xor, "issubset": operator.le, "issuperset": operator.ge,
}  # fmt: skip
_BUILTINS = (type, type(len), *_DESCRIPTORS)
_SPREAD: Any = object()  # in place of the key of `**others`


class Tables:
    """Subscripts, displays and f-strings of converted functions."""

    SPREAD = _SPREAD

    def item(self, values: Any, key: Any) -> Any:
        """`values[key]`."""
        _open(values, key)
        return values[key]

    def store(self, value: Any, values: Any, key: Any) -> None:
        """`values[key] = value`."""
        _open(values, key)
        values[key] = self.held(value)

    def held(self, value: Any) -> Any:
        """A value that is put into an object or container."""
        recorder = running()
        if recorder is not None:
            recorder.questions.optionals.hold(value)
        return value

    def delete(self, values: Any, key: Any) -> None:
        """`del values[key]`."""
        _open(values, key)
        del values[key]

    def changed(self, values: Any, key: Any, change: str, value: Callable[[], Any]) -> None:
        """`values[key] += value`, or another such statement."""
        _open(values, key)
        before = values[key]
        function, more = CHANGES[change], self.held(value())
        if type(before) is TensorProxy:
            values[key] = before.recorder.record("call_function", function, function, (before, more), {})
        else:
            values[key] = function(before, more)

    def look(self, values: Any, key: Any) -> None:
        """A dict or set is asked whether it has a key."""
        if (type(values) in DICTS or type(values) is set) and is_of_run(key):
            recorder = running()
            if recorder is not None:
                _grow(recorder, values)

    def dict_of(self, *pairs: Any) -> Any:
        """`{key: value, **others}`."""
        recorder = running()
        keys, values = pairs[::2], pairs[1::2]
        is_plain = not any(map(is_of_run, keys)) and not any(
            key is _SPREAD and isinstance(value, LoopDict) for key, value in zip(keys, values, strict=True)
        )
        made: dict[Any, Any] = {}
        if recorder is not None and not is_plain:
            node = recorder.node("call_function", dict, (), {}, "", recorder.target_name() or "table")
            made = LoopDict.empty(recorder, node)
        for key, value in zip(keys, values, strict=True):
            if key is _SPREAD:
                made.update(value)
            else:
                made[key] = value
        return made

    def set_of(self, *items: Any) -> Any:
        """`{item, ...}`."""
        recorder = running()
        if recorder is None or not recorder.region.is_in_loop() or not any(map(is_of_run, items)):
            return set(items)
        made = LoopSet.empty(recorder, recorder.node("call_function", set, (), {}, "", recorder.target_name() or "set"))
        made.update(items)
        return made

    def merged(self, values: Any, more: Any) -> Any:
        """`values |= more`."""
        recorder = running()
        if recorder is not None and is_growing(more) and (type(values) in DICTS or type(values) is set):
            _grow(recorder, values)
            raise refusal(
                CaptureError(
                    f"the program adds what only a run knows to a {type(values).__name__} that it has made itself",
                    at=recorder.where(),
                    fix="make another one of both: values = values | more",
                )
            )
        values |= more
        return values

    def repeated(self, values: list[Any], count: Any) -> Any:
        """`[value] * count`."""
        recorder = running()
        typed = None if recorder is None else recorder.typed
        made = None if typed is None else repeated(typed, values, count)
        return values * count if made is None else made

    def percent(self, template: Any, values: Any) -> Any:
        """`"..." % values`."""
        recorder = running()
        given = values if type(values) is tuple else (values,)
        if recorder is not None and _are_of_loop(recorder, given):
            return percent(recorder, template, values)
        return template % values

    def formatted(self, template: str, *values: Any) -> Any:
        """An f-string that is no message."""
        recorder = running()
        if recorder is not None and _are_of_loop(recorder, values):
            return formatted(recorder, template, values)
        return template.format(*values)


def _open(values: Any, key: Any) -> None:
    """Have a dict be one of the run, where a loop uses a key in it that only a run knows."""
    if (type(values) in DICTS and is_of_run(key)) or (type(values) is list and is_symbolic(key)):
        recorder = running()
        if recorder is not None:
            _grow(recorder, values)


def _grow(recorder: Capture, values: Any) -> None:
    if recorder.region.is_in_loop() and any(state.watches(values) for state in recorder.states):
        raise Grows(values)


def _are_of_loop(recorder: Capture, values: Any) -> bool:
    """Tell whether a text is made of values of which one is a text of the run, or a number inside a loop."""
    return any(type(value) is RunText or isinstance(value, Holder) for value in values) or (
        recorder.region.is_in_loop() and any(map(is_of_run, values))
    )


def method_call(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a builtin, or of a method of a container or text, that meets values of the run.

    NotImplemented where it meets none.
    """
    if function is copy.copy and len(args) == 1 and isinstance(args[0], Holder):
        return args[0].copy()
    owner: Any = getattr(function, "__self__", None)
    if type(function) not in _BUILTINS and not (type(function) is MethodType and type(owner) is collections.Counter):
        return NotImplemented
    kind, name = type(owner), function.__name__
    if type(function) in _DESCRIPTORS and args and is_growing(args[0]):  # list.append(found, value)
        return getattr(args[0], name)(*args[1:], **kwargs)
    if name in _ALGEBRA and len(args) == 1 and isinstance(args[0], LoopSet) and kind in (set, frozenset):
        return _ALGEBRA[name](set(owner), args[0])
    if args and (kind in DICTS or kind is set):
        if (name in _KEYED_BY_FIRST and is_of_run(args[0])) or (name == "update" and _holds_of_run(args[0])):
            _grow(recorder, owner)
    elif (kind is list and args and name in ("remove", "insert", "pop") and is_symbolic(args[0])) or (
        args and isinstance(args[0], OfRun) and (kind is collections.deque or (kind is list and name == "extend"))
    ):
        _grow(recorder, owner)
    elif kind is str and name == "format" and not kwargs and _are_of_loop(recorder, args):
        return formatted(recorder, owner, args)
    elif kind is str and name == "join" and len(args) == 1:
        if isinstance(args[0], OfRun):
            return joined_texts(recorder, owner, args[0])
        if type(args[0]) in (list, tuple) and any(type(part) is RunText for part in args[0]):
            return joined_texts(recorder, owner, args[0])
    elif function in (str, repr) and len(args) == 1 and _are_of_loop(recorder, args):
        return text_of(recorder, args[0], function)
    elif function is len and args and type(args[0]) is RunText:
        return args[0].length()
    return NotImplemented


def _holds_of_run(values: Any) -> bool:
    """Tell whether what a dict or set is updated with is of the run, or holds keys that are."""
    if is_growing(values):
        return True
    return type(values) in (list, tuple, set) and any(map(is_of_run, values))


def container_of(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dict(pairs)`, `set(items)`, `Counter(items)`, `deque(items)` of values of the run; else NotImplemented."""
    if type(function) is not type or not args:
        return NotImplemented
    values = args[-1]
    if function is collections.defaultdict and len(args) == 2 and isinstance(values, LoopDict | LoopList):
        return table_of(values, function, args[0])
    if function is collections.deque and args and isinstance(args[0], OfRun):
        return _queue_of(recorder, args[0], *args[1:], **kwargs)
    if kwargs or len(args) != 1 or not (function in DICTS or function is set):
        return NotImplemented
    if isinstance(values, LoopSet):
        values = values.copy() if function is set else values.listed()
        if function is set:
            return values
    if isinstance(values, LoopTuple):
        values = values.listed(list)
    if isinstance(values, LoopQueue):
        values = values.listed(list)
    if isinstance(values, LoopList) or (isinstance(values, LoopDict) and function is not set):
        return table_of(values, function)
    if isinstance(values, LoopDict):
        return table_of(values.listed(), function)
    return NotImplemented


def _queue_of(recorder: Capture, values: OfRun, maxlen: Any = None) -> LoopQueue:
    """`deque(values, maxlen)`."""
    arguments = (values.node_of(), *(() if maxlen is None else (recorder.argument(maxlen),)))
    name = recorder.target_name() or "queue"
    node = recorder.node("call_function", collections.deque, arguments, {}, "", name)
    made = LoopQueue(values.content(), recorder, node, name, values.place, values._give_up, maxlen)
    made.is_certain, made.kind = values.is_certain, values.kind
    return made

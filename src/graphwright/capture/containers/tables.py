"""Calls of the methods and classes of containers and texts, in converted functions, that meet values of the run.

A list, dict or set of the program's cannot hold what only a run knows as a key or an index. Where a loop puts one
there, the capture starts that loop again with a container of the run instead: `Grows` says so. The functions here
answer NotImplemented where Python itself is to make the call.
"""

from __future__ import annotations

import collections
import heapq
import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopList, LoopQueue, LoopTuple, OfRun
from graphwright.capture.containers.loop_sets import LoopSet, table_of
from graphwright.capture.containers.methods import DEQUE, DICT, HEAP, INDEX, ITEM, ITEMS, KEY, LIST, SET, Part
from graphwright.capture.proxies.contents import DICTS
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.run_text import RunText, formatted, is_of_run, joined_texts, makes_text
from graphwright.capture.state.running import refused
from graphwright.capture.state.samples import Growable, Grows
from graphwright.capture.state.symbols import is_symbolic, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ops import insert_at, pop_at

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Method = BuiltinFunctionType | MethodType
Unbound = MethodDescriptorType | WrapperDescriptorType


def grow(recorder: Capture, values: Growable) -> None:
    """Have a container of the program's be one of the run: inside a loop, or where it is a dict that is kept.

    Raises Grows or Restart.
    """
    if recorder.region.is_in_loop() and any(state.watches(values) for state in recorder.states):
        raise Grows(values)
    if isinstance(values, dict) and type(values) in DICTS and recorder.keeping is not None:
        recorder.keeping.has_run_keys(values)


MOST = 16  # items of a list, and keys of a table, that are asked for one by one


def index_of(key: TensorProxy) -> Any:
    """The number that a tensor is as an index: `operator.index(key)`."""
    if key.example.is_floating_point() or key.example.is_complex():
        return key  # an error
    key.recorder.ledger.tensor(key, "dtype", key.recorder.where() or "")
    return key.recorder.numbers.computed(int, (key,), {})


def is_by_data(index: Any) -> bool:
    """Tell whether a number depends on the data of tensors."""
    symbol = symbol_of(index)
    return symbol is not None and symbol.is_data


def is_chosen(values: Any, index: Any) -> bool:
    """Tell whether a place of a list of the program's is one of some, of which only a run knows which."""
    return type(values) is list and len(values) <= MOST and is_by_data(index)


def make_text(recorder: Capture, values: Sequence[Any]) -> bool:
    """Tell whether a text that is made of values is one of the run: a text of the run, or a number, is among them."""
    if any(type(value) is RunText or isinstance(value, Holder) for value in values):
        return True
    if recorder.region.is_in_loop():
        return any(map(is_of_run, values))
    return makes_text(recorder, values)


# ---- methods


def unbound_method(recorder: Capture, function: Unbound, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`list.append(found, value)` of a list of the run."""
    return getattr(args[0], function.__name__)(*args[1:], **kwargs) if args and is_growing(args[0]) else NotImplemented


def _combined(recorder: Capture, function: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`found.union(others)`, of a set of the program's with one of the run."""
    if len(args) != 1 or not isinstance(args[0], LoopSet):
        return NotImplemented
    owner: Any = function.__self__
    return _ALGEBRA[function.__name__](set(owner), args[0])


def _changed(recorder: Capture, function: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`found.add(n)`, `values.pop(i)`, `queue.extend(found)`: what goes in, or is looked for, only a run knows."""
    owner: Any = function.__self__
    row = _TABLES[type(owner)][function.__name__]
    helper = _AT_A_PLACE.get(function.__name__) if type(owner) is list and args and not kwargs else None
    if helper is not None and type(args[0]) is TensorProxy:
        args = index_of(args[0]), *args[1:]
    if any(_is_for_run(owner, part, arg) for part, arg in zip(row.takes, args, strict=False)):
        grow(recorder, owner)
    if helper is not None and len(args) == len(row.takes) and is_chosen(owner, args[0]):
        return recorder.questions.staging.converted(helper)(owner, *args)
    return NotImplemented


def _is_for_run(owner: Growable, part: Part, value: Any) -> bool:
    """Tell whether a container of the program's cannot take what a method is given: only one of the run can."""
    is_counted = isinstance(owner, list | collections.deque)
    if part is INDEX or (part is KEY and is_counted):
        return is_symbolic(value)
    if part is KEY or (part is ITEM and type(owner) is set):
        return is_of_run(value)
    if is_counted:
        return isinstance(value, OfRun)
    holds = type(value) in (list, tuple, set) and any(map(is_of_run, value))
    return part is ITEMS and (holds or is_growing(value))


def _filled(recorder: Capture, function: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`"...".format(value)` that makes a text of the run."""
    template: Any = function.__self__
    return NotImplemented if kwargs or not make_text(recorder, args) else formatted(recorder, template, args)


def _joined(recorder: Capture, function: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`", ".join(parts)` of texts of the run."""
    if len(args) != 1:
        return NotImplemented
    separator: Any = function.__self__
    if isinstance(args[0], OfRun):
        return joined_texts(recorder, separator, args[0])
    parts = args[0] if type(args[0]) in (list, tuple) else list(args[0])
    if any(type(part) is RunText or isinstance(part, Proxy) for part in parts):
        return joined_texts(recorder, separator, parts)
    return separator.join(parts)


_ALGEBRA: dict[str, Callable[[Any, Any], Any]] = {
    "union": operator.or_, "intersection": operator.and_, "difference": operator.sub,
    "symmetric_difference": operator.xor, "issubset": operator.le, "issuperset": operator.ge,
}  # fmt: skip
_AT_A_PLACE: dict[str, Callable[..., Any]] = {"pop": pop_at, "insert": insert_at}
_TABLES = {list: LIST, collections.deque: DEQUE, set: SET, **dict.fromkeys(DICTS, DICT)}
_LOOKED_AT = {
    list: ("remove", "insert", "pop", "extend"), set: SET,
    collections.deque: ("append", "appendleft", "extend", "extendleft"),
    **dict.fromkeys(DICTS, ("get", "pop", "setdefault", "move_to_end", "update")),
}  # fmt: skip
# The methods of the program's own containers and texts that are looked at, by the class and their names.
METHODS: dict[type, dict[str, tuple[Callable[..., Any], ...]]] = {
    **{kind: dict.fromkeys(names, (_changed,)) for kind, names in _LOOKED_AT.items()},
    frozenset: dict.fromkeys(_ALGEBRA, (_combined,)),
    str: {"format": (_filled,), "join": (_joined,)},
}
METHODS[set] |= METHODS[frozenset]


# ---- classes


def container_of(recorder: Capture, function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dict(pairs)`, `set(items)`, `Counter(items)`, `deque(items)` of values of the run; else NotImplemented."""
    if type(function) is not type or not args:
        return NotImplemented
    args = (*args[:-1], of_run(args[-1]))
    if function is collections.deque:
        return _queue_of(recorder, *args, **kwargs) if isinstance(args[0], OfRun) else NotImplemented
    *factory, values = args
    if len(factory) != (function is collections.defaultdict) or not isinstance(values, Holder):
        return NotImplemented
    if kwargs and function in DICTS:  # `dict(values, key=value)`
        made = container_of(recorder, function, args, {})
        made.update(kwargs)
        return made
    if isinstance(values, LoopSet) and function is set:
        return values.copy()
    if isinstance(values, LoopSet) or (isinstance(values, LoopDict) and function is set):
        values = values.listed()
    elif isinstance(values, LoopTuple | LoopQueue):
        values = values.listed(list)
    return table_of(values, function, *factory)


def of_run(values: Any) -> Any:
    """A container in an attribute as one whose content only a run knows; anything else as it is."""
    return values.as_of_run() if is_growing(values) and hasattr(values, "as_of_run") else values


def _queue_of(recorder: Capture, values: OfRun, maxlen: int | None = None) -> LoopQueue:
    """`deque(values, maxlen)`."""
    arguments = (values.node_of(), *(() if maxlen is None else (recorder.argument(maxlen),)))
    name = recorder.target_name() or "queue"
    node = recorder.node("call_function", collections.deque, arguments, {}, "", name)
    content = collections.deque(values.content(), maxlen)
    made = LoopQueue(content, recorder, node, name, values.place, values._give_up)
    made.is_certain, made.kind = values.is_certain, values.kind
    return made


# ---- heapq


def heap(
    call: Callable[..., Any],
    recorder: Capture,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`heapq.heappush(values, item)` and the other functions of `heapq`, which go past the methods of a list.

    `call` calls a function of the program. NotImplemented where the program itself knows the heap.
    """
    if function in _CHOOSING and len(args) == 2 and isinstance(args[1], LoopList):
        return call(sorted, args[1], reverse=_CHOOSING[function], **kwargs)[: args[0]]
    if args and isinstance(args[0], LoopList) and function in HEAP:
        return args[0]._do(function.__name__, HEAP[function], args[1:])
    if function is heapq.merge and any(isinstance(arg, LoopList) for arg in args):
        what, fix = "the program merges lists to which a loop adds", "use sorted(first + second)"
        raise refused(recorder, what, fix)
    if args and function in HEAP:
        if is_growing(args[0]):
            args[0]._refuse()
        if type(args[0]) is list:
            grow(recorder, args[0])
    return NotImplemented


_CHOOSING: dict[Any, bool] = {heapq.nlargest: True, heapq.nsmallest: False}

"""`heapq` on lists of which only a run knows how long they are: its functions go past the methods of a list.

Each call is a node. What a heap gives depends on what is in it, which the example tells where its values are real.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.item_kinds import joined_kinds
from graphwright.capture.containers.loop_lists import LoopList
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.running import refusal
from graphwright.capture.state.samples import Grows
from graphwright.errors import CaptureError

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["heap_call"]

_CHANGING: tuple[Any, ...] = (heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop, heapq.heapreplace)
_GIVING: tuple[Any, ...] = (heapq.heappop, heapq.heappushpop, heapq.heapreplace)
_CHOOSING: dict[Any, bool] = {heapq.nlargest: True, heapq.nsmallest: False}


def heap_call(
    recorder: Capture,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any],
) -> Any:
    """Record a call of one of `heapq`'s functions; NotImplemented for others, and where the program knows the heap.

    `call` calls a function of the program.
    """
    if getattr(function, "__module__", "") not in ("heapq", "_heapq"):
        return NotImplemented
    if function in _CHOOSING and len(args) == 2 and isinstance(args[1], LoopList):
        return call(sorted, args[1], reverse=_CHOOSING[function], **kwargs)[: args[0]]
    if function is heapq.merge and any(isinstance(arg, LoopList) for arg in args):
        raise refusal(
            CaptureError(
                "the program merges lists to which a loop adds",
                at=recorder.where(),
                fix="use sorted(first + second)",
            )
        )
    if not args or not any(function is known for known in _CHANGING):
        return NotImplemented
    heap = args[0]
    if is_growing(heap) and not isinstance(heap, LoopList):
        heap._refuse()  # `heapq` looks past the methods of a list
    if type(heap) is list and recorder.region.is_in_loop() and any(state.watches(heap) for state in recorder.states):
        raise Grows(heap)
    if not isinstance(heap, LoopList):
        return NotImplemented
    return _changed(recorder, function, heap, *args[1:])


def _changed(recorder: Capture, function: Callable[..., Any], heap: LoopList, *values: Any) -> Any:
    for value in values:
        heap._admit(value)
    arguments = (heap.node_of(), *map(heap._written, values))
    name = recorder.target_name() or function.__name__
    gives = any(function is known for known in _GIVING)
    node = recorder.node("call_function", function, arguments, {}, "", name if gives else function.__name__)
    kind = heap.kind
    found: list[Any] = []
    heap._keep(lambda: found.extend(_of_example(recorder, function, heap, values)))
    if not gives:
        return None
    for item in found:
        kind = joined_kinds(recorder.joining, kind, heap._kind_of(item), heap.name)
    return heap._made(kind, node, heap.name)


def _of_example(recorder: Capture, function: Callable[..., Any], heap: LoopList, values: tuple[Any, ...]) -> list[Any]:
    """Do the same to what the heap holds for the example; return what that gives, as far as that is known."""
    held, is_known = [_Entry(recorder, item) for item in heap.content()], recorder.examples.is_real and heap.is_certain
    given: Any = None
    if is_known:
        try:
            with torch._C.DisableTorchFunction():
                given = function(held, *[_Entry(recorder, value) for value in values])
        except (LookupError, TypeError, ValueError, RuntimeError):
            is_known = False
    if not is_known:  # how many there are, if not which
        held += [_Entry(recorder, value) for value in values]
        if any(function is known for known in _GIVING):
            del held[-1:]
        heap.is_certain = False
    heap.set_content([entry.item for entry in held])
    return [] if given is None else [given.item]


class _Entry:
    """An item of a heap of the example, which is compared as what it is there."""

    def __init__(self, recorder: Capture, item: Any) -> None:
        self.item, self._example = item, recorder.to_examples(item)

    def __lt__(self, other: _Entry) -> bool:
        return bool(self._example < other._example)

"""`heapq` on lists of which only a run knows how long they are: its functions go past the methods of a list.

Each call is a node. What a heap gives depends on what is in it, which the example tells where its values are real.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.loop_lists import LoopList
from graphwright.capture.containers.methods import HEAP
from graphwright.capture.containers.tables import grow
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.running import refusal
from graphwright.errors import CaptureError

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["heap_call"]

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
    if not args or function not in HEAP:
        return NotImplemented
    heap = args[0]
    if isinstance(heap, LoopList):
        return heap._do(function.__name__, HEAP[function], args[1:])
    if is_growing(heap):
        heap._refuse()  # `heapq` looks past the methods of a list
    if type(heap) is list:
        grow(recorder, heap)
    return NotImplemented

"""What the program writes in place, as far as numbers that it has read from tensors are concerned.

The node of a number is made when something uses it; a number that was read from a tensor before the program writes to
that tensor is what it was, so that its node is made before the write, and read anew after it.
"""

from __future__ import annotations

from collections.abc import KeysView
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.calls_as_written import is_setitem, written_argument
from graphwright.capture.state.symbols import Symbol
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Target
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.regions import Region

__all__ = ["Writes", "memory_of"]


class Writes:
    """How often each memory was written to, and the numbers that were read from it and have no node yet."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._counts: dict[Any, int] = {}
        self._reads: list[tuple[Symbol, Any, Region]] = []
        self._round = 0  # of loops: what was known before one may be otherwise in its next iteration

    @property
    def count(self) -> int:
        """How many writes there were."""
        return sum(self._counts.values())

    @property
    def memories(self) -> KeysView[Any]:
        """The memories that were written to."""
        return self._counts.keys()

    def read(self, symbol: Symbol, tensor: torch.Tensor) -> Symbol:
        """Note that a number is read from a tensor: as of now."""
        if isinstance(tensor, TensorProxy):
            symbol.key = (symbol.function, id(tensor), *self.stamp(tensor))
            self._reads.append((symbol, memory_of(tensor), self._recorder.region))
        return symbol

    def before(self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is about to be written: make the nodes of numbers that it would change."""
        written = args[0] if is_setitem(target) else written_argument(op, target, args, kwargs)
        for tensor in leaves(written):
            if isinstance(tensor, TensorProxy):
                self._write(memory_of(tensor))

    def _write(self, memory: int) -> None:
        recorder = self._recorder
        self._counts[memory] = self._counts.get(memory, 0) + 1
        around = list(recorder.region.all())
        for symbol, read_from, region in self._reads:
            if read_from == memory and region in around:
                with recorder.writing(region):
                    recorder.numbers.node_of_symbol(symbol)
        self._reads = [read for read in self._reads if read[1] != memory]

    def attribute(self, tensor: TensorProxy, name: str, value: Any) -> None:
        """The program gives a tensor an attribute: it does so in the graph, too."""
        recorder = self._recorder
        if recorder.region.outer is not None:  # what is read there afterwards is no value of the branch
            error = CaptureError(
                f"the program sets {name!r} of a tensor on a side of a branch or in a loop",
                at=recorder.where(),
                fix=f"keep {name!r} in a variable",
            )
            recorder.questions.refusals.refuse(error, "value")
        recorder.node("call_function", setattr, (recorder.argument(tensor), name, recorder.argument(value)), {})

    def start_loop(self) -> None:
        """An iteration starts, in which tensors may hold what an earlier one has written."""
        self._round += 1

    def stamp(self, tensor: TensorProxy) -> Any:
        """What tells the data of a tensor from that at other times."""
        return self._round, self._counts.get(memory_of(tensor), 0)


def memory_of(tensor: TensorProxy) -> Any:
    """What tensors that share their memory have in common."""
    with torch._C.DisableTorchFunction():
        example = tensor.example
        return example.untyped_storage()._cdata if example.layout is torch.strided else id(example)

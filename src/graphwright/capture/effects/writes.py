"""What the program writes in place, as far as numbers that it has read from tensors are concerned.

The node of a number is made when something uses it; a number that was read from a tensor before the program writes to
that tensor is what it was, so that its node is made before the write, and read anew after it. So are the sizes of a
tensor before what may give it another shape.
"""

from __future__ import annotations

from collections.abc import KeysView
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.calls_as_written import reshaped_argument
from graphwright.capture.proxies.made_parameters import erase_steps, made_in
from graphwright.capture.state.regions import Writing
from graphwright.capture.state.symbols import Symbol
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Target
from graphwright.source import is_installed, is_internal, is_ours
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.regions import Region


class Writes:
    """How often each memory was written to, and the numbers that were read from it and have no node yet."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self.counts: dict[Any, int] = {}  # by memory
        self._reads: list[tuple[Symbol, Any, Region]] = []
        self._shapes: dict[int, int] = {}  # how often tensors may have been given other shapes, by id
        self._sizes: dict[Symbol, tuple[int, Region]] = {}  # that were read: of which tensor, by id
        self._round = 0  # of loops: what was known before one may be otherwise in its next iteration

    @property
    def count(self) -> int:
        """How many writes there were."""
        return sum(self.counts.values())

    @property
    def memories(self) -> KeysView[Any]:
        """The memories that were written to."""
        return self.counts.keys()

    def read(self, symbol: Symbol, tensor: torch.Tensor) -> Symbol:
        """Note that a number is read from a tensor: as of now."""
        if isinstance(tensor, TensorProxy):
            symbol.key = (symbol.function, id(tensor), *self.stamp(tensor))
            self._reads.append((symbol, memory_of(tensor), self._recorder.region))
        return symbol

    def before(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], written: Any) -> None:
        """An operation is about to be made that writes to something: make the nodes of numbers that it would change."""
        reshaped = reshaped_argument(target, args, kwargs)
        for tensor in leaves(written if reshaped is None else reshaped):
            if isinstance(tensor, TensorProxy):
                self._recorder.keep.append(tensor)  # its memory is known by where it is
                self._write(memory_of(tensor))
            if reshaped is not None and isinstance(tensor, torch.Tensor):
                self._reshape(tensor)

    def measured(self, symbol: Symbol, tensor: TensorProxy) -> None:
        """Note that a number is a size of a tensor: as of now."""
        self._sizes[symbol] = id(tensor), self._recorder.region

    def shape_stamp(self, tensor: torch.Tensor) -> int:
        """What tells the shape of a tensor from that at other times."""
        return self._shapes.get(id(tensor), 0)

    def held_shape(self, tensor: torch.Tensor) -> None:
        """The program asks a tensor that it has for its shape: refuse where that may be another one by now."""
        if id(tensor) in self._shapes:
            recorder = self._recorder
            where = recorder.tensors.path(tensor) or "a tensor"
            recorder.questions.refusals.refuse_here(
                f"the program asks for the shape of {where} after it was given to an operation that may change it",
                "compute a new tensor, and assign that to the attribute",
            )

    def _reshape(self, tensor: torch.Tensor) -> None:
        recorder = self._recorder
        recorder.keep.append(tensor)
        if isinstance(tensor, TensorProxy):
            recorder.told_apart.add(id(tensor))
            tensor.sizes = {}
        self._shapes[id(tensor)] = self.shape_stamp(tensor) + 1
        self._make_nodes([(symbol, region) for symbol, (of, region) in self._sizes.items() if of == id(tensor)])

    def _write(self, memory: int) -> None:
        self.counts[memory] = self.counts.get(memory, 0) + 1
        self._make_nodes([(symbol, region) for symbol, read_from, region in self._reads if read_from == memory])
        self._reads = [read for read in self._reads if read[1] != memory]

    def _make_nodes(self, numbers: list[tuple[Symbol, Region]]) -> None:
        around = list(self._recorder.region.all())
        for symbol, region in numbers:
            if region in around:
                with Writing(self._recorder, region):
                    self._recorder.numbers.node_of_symbol(symbol)

    def attribute(self, tensor: TensorProxy, name: str, value: Any) -> None:
        """The program gives a tensor an attribute: it does so in the graph, too."""
        recorder = self._recorder
        if recorder.region.outer is not None:  # what is read there afterwards is no value of the branch
            recorder.questions.refusals.refuse_here(
                f"the program sets {name!r} of a tensor on a side of a branch or in a loop",
                f"keep {name!r} in a variable",
            )
        recorder.node("call_function", setattr, (recorder.argument(tensor), name, recorder.argument(value)), {})

    def made(self, tensor: TensorProxy, mark: str, frame: FrameType) -> None:
        """torch marks a tensor, while it makes a parameter or buffer of it: that is one operation of the program."""
        recorder, steps = self._recorder, tensor.node_of()
        try:
            found = made_in(frame, mark, recorder.where())
        except CaptureError as error:
            recorder.questions.refusals.refuse(error, "value")
            return
        if found is None:
            return
        options = {name: recorder.argument(value) for name, value in found.options.items()}
        made = recorder.node("call_function", found.kind, (recorder.argument(found.data),), options)
        last = recorder.region.written.pop(steps, steps)
        vars(tensor)["_node"] = made
        if issubclass(found.kind, torch.nn.Parameter):
            vars(tensor)["_stands_for"] = found.kind
        name = erase_steps(last)
        if name is not None and name == recorder.target_name():
            made.name = name

    def read_of_input(self, tensor: TensorProxy, name: str, frame: FrameType | None) -> None:
        """The program asks an input for an attribute that tensors do not have: there is none, which is checked.

        An installed package, which asks for what arrays of others have, has that said in the report.
        """
        while frame is not None and is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or is_internal(frame.f_code.co_filename):
            return
        recorder = self._recorder
        if name in tensor.given:
            recorder.questions.refusals.refuse_here(
                f"the program reads {name!r} of an input, which tensors do not have", "pass it as an argument"
            )
        if is_installed(frame.f_code.co_filename):
            recorder.ledger.say(f"an input has no attribute {name!r}", recorder.where() or "", frame)
            return
        node = recorder.node("call_function", hasattr, (recorder.argument(tensor), name), {}, "is_there")
        recorder.questions.guards.guard(recorder.numbers.input_symbol(node, False))

    def start_loop(self) -> None:
        """An iteration starts, in which tensors may hold what an earlier one has written."""
        self._round += 1

    def stamp(self, tensor: TensorProxy) -> Any:
        """What tells the data of a tensor from that at other times."""
        return self._round, self.counts.get(memory_of(tensor), 0) if self.counts else 0


def memory_of(tensor: TensorProxy) -> Any:
    """What tensors that share their memory have in common."""
    with torch._C.DisableTorchFunction():
        example = tensor.example
        return example.untyped_storage()._cdata if example.layout is torch.strided else id(example)

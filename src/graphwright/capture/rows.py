"""`list(tensor)`: a list of the program whose length is a size, and which only a run knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.loop_lists import LoopList
from graphwright.capture.tensor_proxy import TensorProxy
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["rows"]


def rows(recorder: Recorder, tensor: TensorProxy) -> LoopList | None:
    """The rows of a tensor as a list that is passed whole, or gone over; None where the example has to say how many."""
    place = ("rows", recorder.questions.place())
    if recorder.plan.control_flow != "stage" or tensor.example.dim() == 0 or place in recorder.plan.ways:
        return None
    if recorder.numbers.size_symbol(tensor, 0).function == "constant" or not tensor.example.shape[0]:
        return None
    name = recorder.target_name() or "rows"
    node = recorder.node("call_function", list, (tensor.node_of(),), {}, name=name)
    examples = recorder.examples.run(torch.unbind, (tensor.example,), {})
    made = LoopList([_row(recorder, example, node) for example in examples], recorder, node, node.name, place)

    def give_up() -> None:
        recorder.plan.ways[place] = "guard"

    made._give_up = give_up
    return made


def _row(recorder: Recorder, example: torch.Tensor, node: Node) -> Any:
    return TensorProxy.make(recorder, example, node)

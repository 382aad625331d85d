"""The body of a region run on stand-ins: what it gives for the examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException

from graphwright.ir import Graph, Target
from graphwright.ops import cond, raise_error
from graphwright.runtime import Interpreter

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.rungs import HasTruth


class Replay(Interpreter):
    """Runs a graph that is being captured node by node, with stand-ins for the modules and tensors that it names."""

    def __init__(self, recorder: TypedCapture, graph: Graph) -> None:
        super().__init__(nn.Module(), graph=graph)
        self._recorder = recorder

    def __call__(self, *values: Any) -> Any:
        """Run the graph on one value per input."""
        return self.run(*values, enable_io_processing=False)

    def fetch_attr(self, target: str) -> Any:
        """Give the stand-in of a module or tensor of the program."""
        examples = self._recorder.examples
        value: Any = self._recorder.root.graph.constants.get(target)
        if value is None:
            assert self._recorder.shells is not None
            value = self._recorder.shells.root_module
            for atom in target.split("."):
                value = getattr(value, atom)
        if isinstance(value, nn.Module):
            return examples.module(value)
        return examples.of(value) if isinstance(value, torch.Tensor) else value

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; of a branch whose condition the examples cannot tell, run the first side."""
        if target is cond:
            args = (_chosen(*args[:3]), *args[1:])
        bodies = [Replay(self._recorder, arg) if type(arg) is Graph else arg for arg in args]
        return super().call_function(target, tuple(bodies), kwargs)


def _chosen(pred: HasTruth, true: Graph, false: Graph) -> bool:
    try:
        return bool(pred)
    except DataDependentOutputException:
        return not any(node.target is raise_error for node in true.nodes)

"""Run a module on fake tensors and keep what every node gave."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from graphwright.analysis import run_on_fake
from graphwright.ir import Node, map_aggregate
from graphwright.runtime import GraphModule, Interpreter

__all__ = ["FakeTensorProp"]

_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


class FakeTensorProp(Interpreter):
    """Runs a module node by node without computing anything, and keeps the fake tensors in `node.meta["val"]`.

    Nested values keep their containers, with None in place of what is neither a tensor nor a number. Parameters of the
    module are to be fake tensors of `mode`, or `mode` one that takes others (`allow_non_fake_inputs=True`).

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x @ x.t())
    >>> _ = FakeTensorProp(gm).propagate(torch.ones(2, 3))
    >>> [tuple(node.meta["val"].shape) for node in gm.graph.nodes]
    [(2, 3), (3, 2), (2, 2), (2, 2)]
    """

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode() if mode is None else mode
        self._mode.epoch += 1  # sizes that come from data get new names in each run
        self._mode.reset_nt_tensor_id_counter()

    def run_node(self, n: Node) -> Any:
        """Run one node, keep its value in the node's meta, and return it."""
        result = super().run_node(n)
        found = False

        def keep(leaf: Any) -> Any:
            nonlocal found
            if isinstance(leaf, Tensor):
                found = True
                return _unbound(self._fake(leaf))
            if isinstance(leaf, _NUMBERS):
                found = True
                return leaf
            return None

        kept = map_aggregate(result, keep)
        if found:
            n.meta["val"] = kept
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; a branch or loop that data decides goes one way through each of its bodies."""
        return run_on_fake(super().call_function, target, args, kwargs)

    def propagate(self, *args: Any) -> Any:
        """Run on these arguments, tensors made fake, and return the result."""
        return self.propagate_dont_convert_inputs(*[self._fake(arg) for arg in args])

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run on these arguments as they are: fake tensors of the mode."""
        with self._mode:
            return super().run(*args)

    def _fake(self, arg: Any) -> Any:
        return self._mode.from_tensor(arg) if isinstance(arg, Tensor) and not isinstance(arg, FakeTensor) else arg


def _unbound(tensor: FakeTensor) -> FakeTensor:
    """A fake tensor of its own to keep: later in-place changes of shape must not reach it, nor autograd hold it."""
    with tensor.fake_mode:
        return tensor.detach()  # type: ignore[return-value]

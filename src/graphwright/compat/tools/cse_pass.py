"""Common subexpressions under torch.fx's name: a pass that leaves the module it is given as it is."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch

from graphwright.passes import MergeSubexpressions, PassBase, PassResult
from graphwright.runtime import GraphModule, graph_of

__all__ = ["CSEPass", "get_CSE_banned_ops", "inplace_ops", "rand_ops"]

_aten = torch.ops.aten
rand_ops: set[Any] = {
    _aten.dropout, _aten._fused_dropout, _aten._standard_gamma, _aten.bernoulli, _aten.multinomial,
    _aten.native_dropout, _aten.normal, _aten.poisson, _aten.binomial, _aten.rrelu, _aten.rand_like, _aten.rand,
    _aten.randint, _aten.randn, _aten.randperm,
}  # fmt: skip
inplace_ops: set[Any] = {
    _aten.add_, _aten.sub_, _aten.mul_, _aten.div_, _aten.pow_, _aten.lerp_, _aten.relu_, _aten.sigmoid_, _aten.tanh_,
}  # fmt: skip


def get_CSE_banned_ops() -> set[Any]:
    """The operators that torch.fx never merges: `rand_ops` and `inplace_ops`.

    >>> torch.ops.aten.rand in get_CSE_banned_ops()
    True
    """
    return rand_ops | inplace_ops


class CSEPass(PassBase):
    """Compute common subexpressions once, in a copy that shares the parameters; the module itself where there are none.

    Calls of `banned_ops` are left alone. Whatever these are, so is all that draws random numbers or has another effect,
    and every program that writes in place; see `MergeSubexpressions`.

    >>> from graphwright import symbolic_trace
    >>> result = CSEPass()(symbolic_trace(lambda x: (x + 1) * (x + 1)))
    >>> print(result.modified, result.graph_module.code.strip())
    True def forward(self, x):
        add = x + 1;  x = None
        mul = add * add;  add = None
        return mul
    """

    def __init__(self, banned_ops: Collection[Any] | None = None) -> None:
        self.banned_ops = get_CSE_banned_ops() if banned_ops is None else banned_ops

    def call(self, graph_module: GraphModule) -> PassResult:
        """Return a module with merged operations, and whether there were any."""
        copied = GraphModule(graph_module, copy.deepcopy(graph_of(graph_module)))
        if not MergeSubexpressions(frozenset(self.banned_ops)).run(copied):
            return PassResult(graph_module, False)
        return PassResult(copied, True)

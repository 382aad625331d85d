"""`self.conv(input=x)` is `self.conv(x)` to every pass, and what can be undone comes back as it was written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.checks import Program, noted, settled
from torch import Tensor, nn

from graphwright import GraphModule, Tracer, mod, rewrite, rule, symbolic_trace, verify
from graphwright.passes import (
    FuseActivations,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    FuseConvBatchNorm,
    FuseConvReLU,
    MergeLinears,
    MergeParallelLinears,
    PropagateChannelsLast,
    RemoveInPlace,
    RemoveNoOps,
    UseFunctions,
    UseInPlace,
)

IMAGE = torch.randn(2, 4, 6, 6)


def network(by_name: bool) -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        def call(module: nn.Module, value: Tensor) -> Tensor:
            return module(input=value) if by_name else module(value)  # type: ignore[no-any-return]

        x = call(m.relu, call(m.norm, call(m.conv, x)))
        x = call(m.written, call(m.inner, call(m.identity, x)))
        x = call(m.relu, call(m.outer, x))
        rows = call(m.behind, call(m.layer, call(m.before, x[:, :, 0, 0])))
        return call(m.query, rows).sum() + call(m.key, rows).sum()

    torch.manual_seed(0)
    return settled(
        Program(
            run, conv=nn.Conv2d(4, 4, 3, padding=1), norm=nn.BatchNorm2d(4), relu=nn.ReLU(), identity=nn.Identity(),
            inner=nn.Conv2d(4, 4, 1), written=nn.ReLU(inplace=True), outer=nn.Conv2d(4, 4, 1),
            before=nn.BatchNorm1d(4), layer=nn.Linear(4, 4), behind=nn.BatchNorm1d(4),
            query=nn.Linear(4, 3), key=nn.Linear(4, 5),
        )
    )  # fmt: skip


PASSES = [
    FuseConvBatchNorm(), FuseConvBatchNorm(relu=False, into_next=False), FuseConvReLU(), FuseActivations(),
    FuseActivations(training=True), MergeParallelLinears(), PropagateChannelsLast(), RemoveInPlace(), RemoveNoOps(),
    UseFunctions(), UseInPlace(),
]  # fmt: skip


@pytest.mark.parametrize("each", PASSES, ids=repr)
def test_a_name_makes_no_difference(each: Any) -> None:
    counts, targets = [], []
    for by_name in (False, True):
        model = network(by_name)
        gm: Any = noted(symbolic_trace(model), IMAGE)
        assert all(bool(node.kwargs) is by_name for node in gm.graph.find_nodes(op="call_module"))
        counts.append(each.run(gm))
        targets.append([(node.op, node.target) for node in gm.graph.nodes])
        gm.graph.lint()
        assert verify(model, gm, [IMAGE, IMAGE[:1]], modes=("eval",), rtol=1e-4, atol=1e-4)
    assert counts[0] == counts[1] > 0
    assert targets[0] == targets[1]


@pytest.mark.parametrize(
    "each",
    [MergeLinears(), FuseBiasInLinear(), FuseBatchNorm1dInLinear(), FuseBatchNorm2dInConv2d()],
    ids=lambda each: type(each).__name__,
)
def test_undone_they_have_their_names_again(each: Any) -> None:
    model = network(by_name=True)
    gm = symbolic_trace(model)
    code = gm.code
    assert each(gm).code != code
    assert verify(model, gm, [IMAGE], modes=("eval",), rtol=1e-4, atol=1e-4)
    assert each(gm, reverse=True).code == code
    assert verify(model, gm, [IMAGE], modes=("eval",))


def test_patterns_find_both() -> None:
    drop = rule(lambda x: mod(nn.Linear)(x), lambda x: x)
    named = rule(lambda x: mod(nn.Linear)(input=x), lambda x: x)
    for each in (drop, named):
        for by_name in (False, True):
            assert rewrite(symbolic_trace(network(by_name)), each).count == 3


def test_names_that_are_no_parameters_are_other_calls() -> None:
    class Scaled(nn.Linear):
        def forward(self, input: Tensor, scale: float = 1.0) -> Tensor:
            return super().forward(input) * scale

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = Scaled(4, 4), Scaled(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.q(input=x, scale=2.0) + self.k(x, scale=2.0)

    class Leaves(Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, Scaled)

    model = Net()
    gm = GraphModule(model, Leaves().trace(model))
    both = rule(lambda x, scale: mod(Scaled)(x, scale), lambda x, scale: x * scale)
    assert rewrite(gm, both).count == 2

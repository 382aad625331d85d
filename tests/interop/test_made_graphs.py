"""Graphs of make_fx go through passes, shapes, matchers and splitters as graphs of this library do, by from_fx."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.dialect.common.cse_pass import CSEPass as TorchCSEPass
from torch.utils import _pytree as pytree

import graphwright
from graphwright import from_fx, replace_pattern, rewrite, rule, to_fx
from graphwright.compat.partitioning.split_utils import split_by_tags
from graphwright.compat.tools.cse_pass import CSEPass
from graphwright.errors import GraphError
from graphwright.passes import FoldConstants, MergeSubexpressions, RemoveDeadCode, RemoveNoOps, ShapeProp

aten = torch.ops.aten


def made(program: Callable[..., Any], *args: Tensor, mode: str = "real") -> torch.fx.GraphModule:
    return make_fx(program, tracing_mode=mode)(*args)


def same(one: Any, other: Any) -> None:
    leaves, others = pytree.tree_leaves(one), pytree.tree_leaves(other)
    assert len(leaves) == len(others)
    for a, b in zip(leaves, others, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


def twice(x: Tensor) -> Tensor:
    return x.cos() + x.cos()


def chained(x: Tensor) -> Tensor:
    a, b = x.sum(dim=1), x.sum(dim=1)
    return a.sin() + b.sin() + x.sum()


def other_keywords(x: Tensor) -> Tensor:
    return x.sum(dim=1, keepdim=False) + x.sum(dim=1, keepdim=True).squeeze(1) + x.sum(dim=1, keepdim=False)


def in_lists(x: Tensor) -> Tensor:
    return torch.ones(3, 3) + torch.ones(3, 3) + x.new_zeros((3, 3)) + x


def drawn(x: Tensor) -> Tensor:
    return torch.rand_like(x) - torch.rand_like(x)


def written(x: Tensor) -> Tensor:
    y = x.clone()
    a = y.sin()
    y.add_(1)
    return a + y.sin()


def of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = x.max(dim=0)
    other, _ = x.max(dim=0)
    return values + other, indices


def nothing(x: Tensor) -> Tensor:
    return x.sin() + x.cos()


PROGRAMS = [twice, chained, other_keywords, in_lists, nothing]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["real", "symbolic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_common_subexpressions_go_as_in_torch_fx(program: Any, mode: str) -> None:
    x = torch.randn(3, 3)
    fx = made(program, x, mode=mode)
    gm = from_fx(made(program, x, mode=mode))
    merged = MergeSubexpressions().run(gm)
    theirs = TorchCSEPass()(fx)
    assert bool(merged) == theirs.modified
    assert len(gm.graph.nodes) == len(theirs.graph_module.graph.nodes)
    same(gm(x), program(x))
    result = CSEPass()(from_fx(made(program, x, mode=mode)))
    assert result.modified == theirs.modified


@pytest.mark.parametrize("program", [drawn, written], ids=lambda program: program.__name__)
def test_what_only_looks_alike_stays(program: Any) -> None:
    x = torch.randn(3, 3)
    gm = from_fx(made(program, x))
    nodes = len(gm.graph.nodes)
    assert MergeSubexpressions().run(gm) == 0 and len(gm.graph.nodes) == nodes
    results = []
    for one in (gm, program):
        torch.manual_seed(0)
        results.append(one(x))
    same(*results)


@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_shapes_are_noted_in_the_given_module(mode: str) -> None:
    def program(x: Tensor) -> Tensor:
        return (x @ x.t()).relu().sum(0)

    fx, x = made(program, torch.randn(4, 3), mode=mode), torch.randn(5, 3)
    same(ShapeProp(fx).propagate(x), fx(x))
    shapes = [tuple(node.meta["tensor_meta"].shape) for node in fx.graph.nodes if "tensor_meta" in node.meta]
    assert shapes[0] == (5, 3) and shapes[-1] == (5,) and (5, 5) in shapes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x).relu() + self.linear(x).relu())


@pytest.mark.parametrize("run", [MergeSubexpressions(), RemoveDeadCode(), RemoveNoOps(), FoldConstants()])
def test_passes_keep_what_graphs_of_modules_and_gradients_do(run: Any) -> None:
    net, x = Net(), torch.randn(4, 3)

    def gradients(x: Tensor) -> Any:
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(net(x).sum(), [x])

    for fx in (made(net, x), made(gradients, x), made(torch.func.vmap(net), x)):
        gm = from_fx(fx)
        run.run(gm)
        gm.graph.lint()
        for one, other in zip(pytree.tree_leaves(gm(x)), pytree.tree_leaves(fx(x)), strict=True):
            torch.testing.assert_close(one, other)
        again = to_fx(gm)
        assert isinstance(again, torch.fx.GraphModule)
        for one, other in zip(pytree.tree_leaves(again(x)), pytree.tree_leaves(fx(x)), strict=True):
            torch.testing.assert_close(one, other)


# ---- patterns


def product(x: Tensor, y: Tensor) -> Tensor:
    return aten.relu.default(aten.mm.default(x, y))  # type: ignore[no-any-return]


def plain(x: Tensor, y: Tensor) -> Tensor:
    return aten.mm.default(x, y)  # type: ignore[no-any-return]


def with_products(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y).relu() + (y @ x).relu()


def test_patterns_of_operators_are_rewritten() -> None:
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    gm = from_fx(made(with_products, x, y))
    assert rewrite(gm, [rule(product, plain)]).count == 2
    same(gm(x, y), x @ y + y @ x)
    gm = from_fx(made(with_products, x, y))
    assert len(replace_pattern(gm, product, plain)) == 2
    same(gm(x, y), x @ y + y @ x)


def test_a_pattern_may_be_made_as_well() -> None:
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    pattern = from_fx(made(lambda x, y: (x @ y).relu(), x, y))
    gm = from_fx(made(with_products, x, y))
    assert len(replace_pattern(gm, pattern, plain)) == 2


def test_matchers_find_what_was_made() -> None:
    from graphwright.passes.utils.matcher_utils import SubgraphMatcher

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    pattern = from_fx(made(lambda x, y: (x @ y).relu(), x, y))
    fx = made(with_products, x, y)
    matches = SubgraphMatcher(pattern.graph).match(from_fx(fx).graph)
    assert [match.returning_nodes[0].target for match in matches] == [aten.relu.default] * 2
    with pytest.raises(GraphError, match="from_fx"):
        SubgraphMatcher(pattern.graph).match(fx.graph)
    with pytest.raises(GraphError, match="from_fx"):
        SubgraphMatcher(fx.graph)


EDITS: dict[str, Callable[[Any], Any]] = {
    "rewrite": lambda fx: rewrite(fx, [rule(product, plain)]),
    "replace_pattern": lambda fx: replace_pattern(fx, product, plain),
    "a pass": lambda fx: MergeSubexpressions().run(fx),
    "a pass of torch.fx's kind": lambda fx: CSEPass()(fx),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_would_edit_a_module_of_torch_fx_names_from_fx(edit: Any) -> None:
    fx = made(with_products, torch.randn(3, 3), torch.randn(3, 3))
    code = fx.code
    with pytest.raises(GraphError, match=r"fix: gm = graphwright\.from_fx\(module\)"):
        edit(fx)
    assert fx.code == code


# ---- parts


def test_a_made_graph_is_split() -> None:
    net, x = Net().eval(), torch.randn(4, 3)
    fx = made(net, x)
    for parts in (graphwright.split(fx, parts=2), graphwright.split(from_fx(fx), parts=3)):
        torch.testing.assert_close(parts.module(x), net(x))
    gm = from_fx(fx)
    for i, node in enumerate(node for node in gm.graph.nodes if node.op == "call_function"):
        node.tag = "first" if i < 3 else "second"  # type: ignore[attr-defined]
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "placeholder"):
            node.tag = "first"  # type: ignore[attr-defined]
    torch.testing.assert_close(split_by_tags(gm, ["first", "second"])(x), net(x))


def test_items_of_results_are_read_by_calls() -> None:
    gm = from_fx(made(of_two, torch.randn(3, 3)))
    assert any(node.target is operator.getitem for node in gm.graph.nodes)

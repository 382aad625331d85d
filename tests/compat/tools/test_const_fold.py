"""Constant folding: what is folded, and what must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from graphwright.experimental import const_fold
from graphwright.passes.shape_prop import ShapeProp, extract_tensor_metadata
from graphwright.passes.utils import common
from torch import nn
from torch.fx.experimental import const_fold as torch_fx_fold
from torch.fx.passes.utils import common as torch_fx_common

import graphwright

pytestmark = pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch.fx

SIDES = [(torch.fx, torch_fx_fold), (graphwright, const_fold)]


class Net(nn.Module):
    """Parameters, a buffer and submodules, and a program over them and the inputs x and y."""

    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(2, 3))
        self.b = nn.Parameter(torch.randn(2, 3), requires_grad=False)
        self.register_buffer("c", torch.ones(2, 3))
        self.linear = nn.Linear(3, 3)
        self.nested = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.ReLU())
        self.program = program

    def forward(self, x: Any, y: Any) -> Any:
        return self.program(self, x, y)


FOLDED: list[Any] = [
    pytest.param(lambda m, x, y: x + (m.a + m.b), id="one value"),
    pytest.param(lambda m, x, y: (x - (m.a + m.b) * m.c) / m.linear(y) + (m.a + m.b).sigmoid(), id="several values"),
    pytest.param(lambda m, x, y: m.a + 1, id="everything"),
    pytest.param(lambda m, x, y: (x + 1, m.a + 1, m.b * 2), id="outputs"),
    pytest.param(lambda m, x, y: {"r": x + m.linear(m.a), "s": [m.nested(m.b), m.a]}, id="modules"),
    pytest.param(lambda m, x, y: y - x * m.a.permute(1, 0).sum(0)[0], id="methods"),
]
KEPT: list[Any] = [
    pytest.param(lambda m, x, y: x + m.a, id="only an attribute"),
    pytest.param(lambda m, x, y: x + y, id="no attribute"),
    pytest.param(lambda m, x, y: x + m.b.add_(1), id="written in place"),
    pytest.param(lambda m, x, y: x + nn.functional.dropout(m.a), id="random"),
]


@pytest.mark.parametrize("program", FOLDED)
def test_what_is_folded(program: Any) -> None:
    net = Net(program)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    sizes = []
    for _, fold in SIDES:
        folded = fold.split_const_subgraphs(net)
        assert folded.const_subgraph_module is not None
        assert folded.fx_const_folded_attrs_name == "_FX_CONST_FOLDED_ATTRS"
        assert not folded.has_folding_been_run
        for _ in range(2):
            torch.testing.assert_close(folded(x, y), net(x, y))
        assert folded.has_folding_been_run
        with pytest.raises(AssertionError, match="Folding has already been run"):
            folded.run_folding()
        attribute = folded._FX_CONST_FOLDED_ATTRS
        values = [attribute] if isinstance(attribute, nn.Parameter) else list(attribute)
        assert all(isinstance(value, nn.Parameter) for value in values)
        sizes.append(
            (
                [value.requires_grad for value in values],
                len(folded.graph.nodes),
                len(folded.const_subgraph_module.graph.nodes),
            )
        )
    assert sizes[0] == sizes[1]
    folded.graph.lint()
    assert not hasattr(net, "_FX_CONST_FOLDED_ATTRS")


@pytest.mark.parametrize("program", KEPT)
def test_what_is_kept(program: Any) -> None:
    net = Net(program)
    before = net.b.clone()
    folded = const_fold.split_const_subgraphs(net)
    assert folded.const_subgraph_module is None
    folded.run_folding()
    torch.manual_seed(0)
    found = [folded(torch.ones(2, 3), torch.ones(2, 3)) for _ in range(2)]
    net.b.copy_(before)
    torch.manual_seed(0)
    torch.testing.assert_close(found, [net(torch.ones(2, 3), torch.ones(2, 3)) for _ in range(2)])


def test_skipped_nodes_stay() -> None:
    for _, fold in SIDES:
        net = Net(lambda m, x, y: x + (m.a + m.b) * 2)
        kept = fold.split_const_subgraphs(net, skip_folding_node_fn=lambda node: node.op == "call_function")
        assert kept.const_subgraph_module is None
        half = fold.split_const_subgraphs(net, skip_folding_node_fn=lambda node: node.name == "mul")
        assert [node.name for node in half.const_subgraph_module.graph.nodes][-2:] == ["add", "output"]
        torch.testing.assert_close(half(torch.ones(2, 3), 0), net(torch.ones(2, 3), 0))


def test_tensor_meta_of_the_folded_value() -> None:
    net = Net(lambda m, x, y: x + (m.a + m.b))
    gm = graphwright.symbolic_trace(net)
    ShapeProp(gm).propagate(torch.ones(2, 3), torch.ones(2, 3))
    folded = const_fold.split_const_subgraphs(gm)
    folded.run_folding()
    (node,) = folded.graph.find_nodes(op="get_attr")
    assert extract_tensor_metadata(folded._FX_CONST_FOLDED_ATTRS) == node.meta["tensor_meta"]
    assert not hasattr(gm, "_FX_CONST_FOLDED_ATTRS")


def test_unique_names() -> None:
    module = nn.Module()
    module._FX_CONST_FOLDED_ATTRS = nn.Parameter(torch.ones(1))
    module.x_1, module.x = 1, 2
    for _, fold in SIDES:
        found = [fold.get_unique_attr_name_in_module(module, n) for n in ("_FX_CONST_FOLDED_ATTRS", "x", "a.b", "1a")]
        assert found == ["_FX_CONST_FOLDED_ATTRS_1", "x_2", "a_b", "_1a"]


def test_inline_module() -> None:
    inner = graphwright.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    root = nn.Module()
    root.inner = inner
    graph = graphwright.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    gm = graphwright.GraphModule(root, graph)
    expected = gm(torch.ones(2, 3))
    const_fold._inline_module(gm, "inner")
    assert [node.target for node in gm.graph.nodes] == ["x", "inner.0", "inner.1", "output"]
    torch.testing.assert_close(gm(torch.ones(2, 3)), expected)


def test_subgraphs_as_modules() -> None:
    net = Net(lambda m, x, y: m.nested(x) + m.a)
    found = []
    for package, tools in ((torch.fx, torch_fx_common), (graphwright, common)):
        gm = package.symbolic_trace(net)
        lifted, names = tools.lift_subgraph_as_module(gm, gm.graph, "part", "Lifted")
        same = [package.symbolic_trace(f).graph for f in (lambda x: x + 1, lambda z: z + 1, lambda x: x + 2)]
        found.append(
            [
                lifted._get_name(),
                names,
                tools.compare_graphs(same[0], same[1]),
                tools.compare_graphs(same[0], same[2]),
                tools.compare_graphs(same[0], gm.graph),
                str(tools.HolderModule({"a": nn.ReLU(), "b": None})),
            ]
        )
    assert found[0] == found[1]


class Scaled(nn.Module):
    def __init__(self, draws: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.inner = graphwright.symbolic_trace(lambda x: torch.rand_like(x) if draws else -x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.weight)


class Around(graphwright.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, graphwright.GraphModule)


@pytest.mark.parametrize("draws", [False, True])
def test_a_captured_module_that_only_computes_is_folded(draws: bool) -> None:
    model = Scaled(draws)
    gm = graphwright.GraphModule(model, Around().trace(model))
    folded = const_fold.split_const_subgraphs(gm)
    assert (folded.const_subgraph_module is None) == draws
    assert folded(torch.ones(2)).shape == (2,)

# ruff: noqa: E501, UP006 - the spellings of annotations are what is tested
"""torch.fx's experimental passes and graph manipulation, beside torch.fx's own."""

from __future__ import annotations

import operator
import typing
from typing import Any

import graphwright.experimental.merge_matmul as merge
import graphwright.experimental.normalize as normalize
import graphwright.experimental.optimization as optimization
import graphwright.experimental.schema_type_annotation as annotation
import graphwright.passes.annotate_getitem_nodes as getitem
import graphwright.passes.graph_manipulation as manipulation
import pytest
import torch
import torch.fx
import torch.fx.experimental.merge_matmul as reference_merge
import torch.fx.experimental.normalize as reference_normalize
import torch.fx.experimental.optimization as reference_optimization
import torch.fx.experimental.schema_type_annotation as reference_annotation
import torch.fx.passes.annotate_getitem_nodes as reference_getitem
import torch.fx.passes.graph_manipulation as reference_manipulation
import torch.nn.functional as F
from torch import Tensor, nn

import graphwright as fx

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch.fx's, about types
BOTH = ((torch.fx, reference_normalize, reference_annotation), (fx, normalize, annotation))


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.weight = nn.Parameter(torch.ones(2))
        self.pool = nn.MaxPool2d(2)
        self.steps = nn.Sequential(nn.ReLU())

    def forward(self, x):
        a = torch.relu(torch.add(self.linear(x), self.weight))
        b = torch.div(torch.mul(F.relu(a), a).neg(), 2)
        c = F.max_pool2d(self.pool(torch.sub(b, 1)), 2)
        d = torch.max(c, 1)[0]
        e = torch.floor_divide(d, 2)
        return (torch.eq(d, e), torch.split(d, 1), F.conv2d(d, d), torch.stack([d, e]), F.softmax(d, dim=1),
                self.steps(d), torch.sum(d), torch.flatten(d, 1), torch.cat((d, e), 1))  # fmt: skip


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [("NormalizeArgs", {}), ("NormalizeArgs", {"normalize_to_only_use_kwargs": False}), ("NormalizeOperators", {}),
     ("AnnotateTypesWithSchema", {}),
     ("AnnotateTypesWithSchema", {"annotate_functionals": False, "annotate_modules": False, "annotate_get_attrs": False})],
)  # fmt: skip
def test_calls_are_rewritten_alike(name: str, options: Any, typed: bool) -> None:
    model, texts = Calls(), []
    for library, normalizing, annotating in BOTH:
        module = library.symbolic_trace(model)
        if typed:
            for node in module.graph.nodes:
                node.meta["type"] = Tensor
        transformer = getattr(annotating if name.startswith("Annotate") else normalizing, name)
        texts.append(str(transformer(module, **options).transform().graph))
    assert texts[1] == texts[0]


@pytest.mark.parametrize(
    "function", [lambda x: torch.sub(x, x, alpha=3), lambda x: torch.div(x, 3, rounding_mode="floor")]
)
def test_calls_with_keywords_are_no_python_operators(function: Any) -> None:
    module = fx.symbolic_trace(function)
    x = torch.arange(5.0)
    torch.testing.assert_close(normalize.NormalizeOperators(module).transform()(x), function(x))


Pair = typing.NamedTuple("Pair", [("first", int), ("second", str)])  # noqa: UP014 - real types, not their names


@pytest.mark.parametrize(
    "kind", [typing.Tuple[int, str], typing.List[int], tuple[int, str], list[int], tuple[int, ...], dict[str, int],
             list, tuple, Pair, Tensor, None, str],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("index", [0, 1, -1])
def test_items_get_types_alike(kind: Any, index: int) -> None:
    told = []
    for library, passes in ((torch.fx, reference_getitem), (fx, getitem)):
        graph = library.Graph()
        x = graph.placeholder("x")
        x.type = kind
        item = graph.call_function(operator.getitem, (x, index))
        graph.output(graph.call_function(operator.getitem, (item, 0)))
        passes.annotate_getitem_nodes(graph)
        told.append(item.type)
    assert told[1] == told[0]


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3)
        self.drop, self.linear = nn.Dropout(), nn.Linear(2, 2)

    def forward(self, x):
        y = torch.relu(self.second(self.norm(self.first(x))))
        return self.linear(self.drop(F.avg_pool2d(y, 2)).flatten(1)[:, :2]) * 2


@pytest.mark.parametrize("tool", ["fuse", "remove_dropout"])
def test_fuse_and_remove_dropout(tool: str) -> None:
    model, x = Convolutions().eval(), torch.rand(2, 1, 12, 12)
    want, got = (getattr(library, tool)(model) for library in (reference_optimization, optimization))
    assert str(got.graph) == str(want.graph)
    torch.testing.assert_close(got(x), want(x))
    torch.testing.assert_close(got(x), model(x))
    assert len(list(model.modules())) == 6


CONFIGS = [
    None, {"mkldnn_layout_optimize": False}, {"conv_bn_fuse": False}, {"remove_dropout": False},
    {"mkldnn_layout_optimize": {"heuristic": lambda part: False}},
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_optimize_for_inference(config: Any) -> None:
    model, x = Convolutions().eval(), torch.rand(2, 1, 12, 12)
    want, got = (library.optimize_for_inference(model, config) for library in (reference_optimization, optimization))
    assert str(got.graph) == str(want.graph)
    torch.testing.assert_close(got(x), model(x))


@pytest.mark.parametrize("heuristic", ["all", "tuned"])
def test_parts_that_change_their_layout_compute_the_same(heuristic: str) -> None:
    model, x = Convolutions().eval(), torch.rand(2, 1, 12, 12)
    choose = optimization.gen_mkl_autotuner(x) if heuristic == "tuned" else lambda part: True
    got = optimization.optimize_for_inference(model, {"mkldnn_layout_optimize": {"heuristic": choose}})
    torch.testing.assert_close(got(x), model(x))


def test_a_layout_without_heuristic() -> None:
    with pytest.raises(RuntimeError, match="Heuristic not found in mkldnn_layout_optimize config"):
        optimization.optimize_for_inference(Convolutions().eval(), {"mkldnn_layout_optimize": {}})


def test_the_modules_of_a_graph() -> None:
    module = fx.symbolic_trace(Convolutions().eval())
    nodes, modules = list(module.graph.nodes), dict(module.named_modules())
    pattern = (nn.Conv2d, nn.BatchNorm2d)
    assert [optimization.matches_module_pattern(pattern, node, modules) for node in nodes[1:3]] == [False, True]
    optimization.replace_node_module(nodes[2], modules, nn.Identity())
    assert isinstance(module.norm, nn.Identity)
    assert optimization._parent_name("a.b.c") == ("a.b", "c") == reference_optimization._parent_name("a.b.c")
    part = optimization.extract_subgraph(module, nodes[1:3], nodes[:1], nodes[2:3])
    assert [node.op for node in part.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = nn.Parameter(torch.rand(2, 3)), nn.Parameter(torch.rand(2, 4))

    def forward(self, x, y):
        return torch.matmul(x, self.w) + 1, torch.matmul(y, self.w) * 2, torch.matmul(x, self.v)


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(3, 3))

    def forward(self, x):
        return torch.matmul(torch.matmul(x, self.w), self.w)


def test_products_by_one_matrix_become_one() -> None:
    model, inputs = Products(), (torch.rand(4, 2), torch.rand(5, 2))
    merged = merge.merge_matmul(model)
    counts = [
        len([n for n in module.graph.nodes if n.target is torch.matmul])
        for module in (reference_merge.merge_matmul(model), merged)
    ]
    assert counts == [2, 2]
    torch.testing.assert_close(merged(*inputs), model(*inputs))
    chain = merge.merge_matmul(Chain())
    assert str(chain.graph) == str(reference_merge.merge_matmul(Chain()).graph)


def test_which_values_may_depend() -> None:
    told = []
    for library, passes in ((torch.fx, reference_merge), (fx, merge)):
        graph = library.Graph()
        x, w = graph.placeholder("x"), graph.placeholder("w")
        chain = [x]
        for _ in range(9):
            chain.append(graph.call_function(torch.relu, (chain[-1],)))
        told.append([passes.may_depend_on(a, b) for a in chain for b in (*chain, w)])
        told[-1] += [passes.may_depend_on(a, w, 2) for a in chain] + [passes.are_nodes_independent([x, w])]
    assert told[1] == told[0]


def test_sizes_of_nodes() -> None:
    told = []
    for library, passes in ((torch.fx, reference_manipulation), (fx, manipulation)):
        module = library.symbolic_trace(Convolutions().eval())
        with pytest.raises(RuntimeError, match="has no tensor metadata associated with it"):
            passes.get_size_of_node(module, next(iter(module.graph.nodes)))
        passes.get_size_of_all_nodes(module, [torch.rand(2, 1, 12, 12)])
        told.append([tuple(getattr(node, "size_bytes", ())) for node in module.graph.nodes])
    assert told[1] == told[0]


def test_other_targets() -> None:
    texts = []
    for library, passes in ((torch.fx, reference_manipulation), (fx, manipulation)):
        module = library.symbolic_trace(lambda x: torch.relu(x) + x.neg())
        passes.replace_target_nodes_with(module, "call_function", torch.relu, "call_method", "neg")
        texts.append(str(module.graph))
    assert texts[1] == texts[0]

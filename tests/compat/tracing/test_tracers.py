"""Tracers that know more: rewritten asserts, example shapes; types of values, and meta that nodes inherit."""

import importlib
import pickle
from typing import Any

import graphwright.experimental.meta_tracer
import graphwright.experimental.rewriter
import graphwright.tensor_type
import graphwright.traceback
import pytest
import torch
import torch.fx
import torch.fx.traceback
from graphwright.annotate import annotate
from graphwright.experimental.merge_matmul import merge_matmul
from torch import nn
from torch.fx.experimental import meta_tracer as their_meta_tracer

import graphwright
from graphwright import ProxyableClassMeta, symbolic_trace


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(42, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.embedding(x)
        found = found + torch.arange(found.shape[-1], dtype=torch.float, device=found.device)
        norm = self.norm(found)
        return torch.relu(norm) if norm.shape[0] < 30 else torch.sigmoid(norm)


@pytest.mark.parametrize("rows", [15, 35])
def test_shapes_decide_branches(rows: int) -> None:
    model, x = Sized(), torch.arange(rows)
    ours = graphwright.experimental.meta_tracer.symbolic_trace(model, {"x": x.to("meta")})
    theirs = their_meta_tracer.symbolic_trace(model, {"x": x.to("meta")})
    assert str(ours.graph) == str(theirs.graph).replace("_operator.", "operator.")
    torch.testing.assert_close(pickle.loads(pickle.dumps(ours))(x), model(x))


def test_asserts_are_calls_in_a_rewritten_program() -> None:
    tracer = graphwright.experimental.rewriter.RewritingTracer()
    graph = tracer.trace(Checks())
    gm = graphwright.GraphModule(tracer.root, graph)
    assert gm(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="not positive"):
        gm(-torch.ones(2))


class Checks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.sum() > 0, "not positive"
        return x * 2


def test_types_of_tensors() -> None:
    ours, theirs = graphwright.tensor_type, torch.fx.tensor_type
    pairs = [((1, "?"), (1, 2)), ((1, 2), (1, "?")), ((1,), (1, 2)), ("?", 3), (3, "?"), ((1, 2), (1, 2)), (3, 4)]
    for left, right in pairs:
        answers = []
        for module in (ours, theirs):
            dyn, kind = module.Dyn, module.TensorType
            one, two = (
                kind(tuple(dyn if size == "?" else size for size in value))
                if isinstance(value, tuple)
                else (dyn if value == "?" else value)
                for value in (left, right)
            )
            answers.append((str(one), module.is_consistent(one, two), module.is_more_precise(one, two), one == two))
        assert answers[0] == answers[1]


def test_values_may_be_annotated_once() -> None:
    gm = symbolic_trace(lambda x: annotate(x + 1, int))
    assert [node.type for node in gm.graph.nodes] == [None, int, None]
    assert annotate(3, int) == 3
    with pytest.raises(RuntimeError, match="Tried to annotate a value that already had a type on it"):
        symbolic_trace(lambda x: annotate(annotate(x, int), float))


def test_generated_code_may_stop_in_the_debugger() -> None:
    for fx in (torch.fx, graphwright):
        gm = importlib.import_module(f"{fx.__name__}.experimental.debug").set_trace(fx.symbolic_trace(lambda x: x + 1))
        assert gm.code.strip().splitlines()[1].strip() == "import pdb; pdb.set_trace()"


class Pair(metaclass=ProxyableClassMeta):
    def __init__(self, left: Any, right: Any = 1) -> None:
        self.left, self.right = left, right

    def total(self) -> Any:
        return self.left + self.right


def test_constructions_are_recorded() -> None:
    gm = symbolic_trace(lambda x: Pair(x, right=2).total() + Pair(3).total())
    assert [node.name for node in gm.graph.nodes] == ["x", "pair", "total", "add", "output"]
    assert gm(5) == 11


def test_recorded_nodes_inherit_the_current_meta() -> None:
    gathered = []
    for fx in (torch.fx, graphwright):
        meta = fx.traceback
        with meta.preserve_node_meta():
            meta.set_stack_trace(["a", "b"])
            with meta.annotate({"p": 1}), meta.annotate({"q": 2, "p": 3}):
                metas = [dict(node.meta) for node in fx.symbolic_trace(lambda x: torch.relu(x)).graph.nodes]
            meta.set_grad_fn_seq_nr(4)
            gathered.append((metas, dict(meta.get_current_meta()), meta.format_stack(), meta.has_preserved_node_meta()))
            meta.reset_grad_fn_seq_nr()
        assert not meta.has_preserved_node_meta() and not meta.get_current_meta()
        assert [node.meta for node in fx.symbolic_trace(lambda x: x).graph.nodes] == [{}, {}]
    assert gathered[0] == gathered[1]


def test_a_source_is_told_as_in_torch_fx() -> None:
    told = []
    for fx in (torch.fx, graphwright):
        node = list(fx.symbolic_trace(lambda x: x + 1).graph.nodes)[1]
        source = fx.traceback.NodeSource(node, "pass", fx.traceback.NodeSourceAction.CREATE)
        told.append({key: value for key, value in source.to_dict().items() if key != "graph_id"})
    assert told[0] == told[1]


def test_what_an_interpreter_runs_gives_its_meta() -> None:
    kept = []
    for fx in (torch.fx, graphwright):
        gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        for node in gm.graph.nodes:
            node.meta = {"stack_trace": node.name, "custom": {"z": node.name}, "val": 3}
        with fx.traceback.preserve_node_meta():
            graph = fx.Tracer().trace(lambda x: fx.Interpreter(gm).run(x))  # noqa: B023
        metas = [dict(node.meta) for node in graph.nodes if node.op == "call_function"]
        kept.append([(*meta.pop("from_node")[0].to_dict().values(), meta) for meta in metas])
    drop = 2  # the id of the graph
    assert [[*row[:drop], *row[drop + 1 :]] for row in kept[0]] == [[*row[:drop], *row[drop + 1 :]] for row in kept[1]]


class Declared(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        text = """
of lines
"""
        assert x.sum() > 0, text
        y: int = x * 2
        return y


def test_types_of_variables_and_texts_at_the_margin_of_a_rewritten_program() -> None:
    nodes = graphwright.experimental.rewriter.RewritingTracer().trace(Declared()).nodes
    assert [(node.name, node.type) for node in nodes if node.name in ("_assert", "mul")] == [
        ("_assert", None),
        ("mul", int),
    ]


def test_merged_products_are_traced_again_without_branches() -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.matmul(x, self.w).sum() + torch.matmul(y, self.w).sum()

    merged = merge_matmul(Products())
    again = symbolic_trace(merged, control_flow="error")
    inputs = torch.ones(2, 2), torch.ones(3, 2)
    assert torch.equal(again(*inputs), merged(*inputs))

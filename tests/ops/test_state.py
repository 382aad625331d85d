"""Writes of attributes as operators: in code, node by node, checked by lint, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import Graph, GraphError, GraphModule, GraphwrightError, Interpreter
from graphwright.compat.tools import const_fold
from graphwright.ir import graph_to_text, text_to_graph
from graphwright.ops import TorchSpelling, is_impure, write_attribute, written_attributes


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 2)
        self.count = 0
        self.register_buffer("seen", torch.zeros(2))


def graph_writing(path: str, value: Any = None) -> Graph:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_function(write_attribute, (path, x if value is None else value))
    graph.output(x)
    return graph


@pytest.mark.parametrize("path", ["seen", "new", "part.kept"])
def test_code_and_interpreter_write_alike(path: str) -> None:
    for run in (lambda gm: gm, lambda gm: Interpreter(gm).run):
        gm = GraphModule(Holder(), graph_writing(path))
        gm.graph.lint()
        run(gm)(torch.ones(2))
        owner, _, name = path.rpartition(".")
        assert torch.equal(getattr(gm.get_submodule(owner), name), torch.ones(2))


def test_an_attribute_with_an_odd_name_is_written() -> None:
    gm = GraphModule(Holder(), graph_writing("odd name", 3))
    gm(torch.ones(2))
    assert getattr(gm, "odd name") == 3


def test_what_is_known_of_a_write() -> None:
    graph = graph_writing("count", 1)
    (write,) = graph.find_nodes(op="call_function", target=write_attribute)
    assert is_impure(write) and written_attributes(graph) == {"count"}
    assert str(text_to_graph(graph_to_text(graph, TorchSpelling()), TorchSpelling())) == str(graph)
    graph.eliminate_dead_code()
    assert len(graph.nodes) == 3
    with pytest.raises(GraphError, match="is written by the module that runs the graph"):
        write_attribute("count", 1)


WRONG = [
    pytest.param("nowhere.count", "nonexistent attribute nowhere", id="no such module"),
    pytest.param("part..count", "takes the dotted path", id="an empty step"),
    pytest.param(3, "takes the dotted path", id="no path"),
]


@pytest.mark.parametrize(("path", "message"), WRONG)
def test_lint_checks_where_a_write_goes(path: Any, message: str) -> None:
    gm = GraphModule(Holder(), graph_writing("count", 1))
    (write,) = gm.graph.find_nodes(op="call_function", target=write_attribute)
    write.args = (path, 1)
    with pytest.raises(GraphError, match=rf"\[GW8\].*{message}"):
        gm.graph.lint()


CLOSED = ["forward", "_forward_hooks", "_parameters", "__class__", "part.register_buffer", "_graphwright_state",
          "part.weight.data"]  # fmt: skip


@pytest.mark.parametrize("path", CLOSED)
def test_a_file_writes_plain_attributes_only(path: str, tmp_path: Path) -> None:
    gm = GraphModule(Holder(), graph_writing("count", 1))
    (write,) = gm.graph.find_nodes(op="call_function", target=write_attribute)
    write.args = (path, 1)
    graphwright.save(gm, tmp_path / "bad.gw")
    with pytest.raises(GraphwrightError):
        graphwright.load(tmp_path / "bad.gw", allow=[__name__])


def test_constant_folding_leaves_what_is_written() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    seen = graph.get_attr("seen")
    twice = graph.call_function(torch.add, (seen, seen))
    graph.call_function(write_attribute, ("seen", graph.call_function(torch.add, (twice, x))))
    graph.output(twice)
    gm = const_fold.split_const_subgraphs(GraphModule(Holder(), graph))
    if hasattr(gm, "run_folding"):
        gm.run_folding()
    first, second = gm(torch.ones(2)), gm(torch.ones(2))
    assert first.tolist() == [0.0, 0.0] and second.tolist() == [2.0, 2.0]


def test_removing_unused_modules_keeps_what_is_written_to() -> None:
    gm = GraphModule(Holder(), graph_writing("part.kept"))
    gm.delete_all_unused_submodules()
    gm(torch.ones(2))
    assert torch.equal(gm.part.kept, torch.ones(2))

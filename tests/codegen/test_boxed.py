"""Code that takes one list of arguments and empties it, and what tools make modules from: as torch.fx's."""

from __future__ import annotations

import importlib
import linecache
from types import ModuleType

import pytest
import torch
import torch.fx
from torch import nn

import graphwright

BOTH = pytest.mark.parametrize("fx", [torch.fx, graphwright], ids=["torch.fx", "graphwright"])


def below(fx: ModuleType, path: str) -> ModuleType:
    return importlib.import_module(f"{fx.__name__}.{path}")


def boxed_module(fx: ModuleType, names: list[str]) -> graphwright.GraphModule:
    graph = fx.Graph()
    graph.set_codegen(below(fx, "graph")._BoxedCodeGen())
    graph.output([graph.placeholder(name) for name in names])
    module: graphwright.GraphModule = fx.GraphModule(nn.Module(), graph)
    return module


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"], ["A"]])
def test_code_of_one_list_is_torch_fx_s(names: list[str]) -> None:
    want, got = (boxed_module(fx, names) for fx in (torch.fx, graphwright))
    assert got.code == want.code
    for options in ({}, {"expanded_def": True}):
        assert got.graph.python_code("self", **options).src == want.graph.python_code("self", **options).src
    values = list(range(len(names)))
    for module in (want, got):
        given = list(values)
        assert module(given) == values
        assert given == []
        assert module._boxed_call


@BOTH
def test_an_ordinary_module_is_not_boxed(fx: ModuleType) -> None:
    assert fx.symbolic_trace(nn.ReLU())._boxed_call is False


@BOTH
def test_forward_from_source(fx: ModuleType) -> None:
    from_source = below(fx, "graph_module")._forward_from_src
    names = {"y": 2}
    forward = from_source("def forward(self, x):\n    return x + y\n", names)
    assert forward(None, 1) == 3 and list(names) == ["y"]
    assert linecache.getline(forward.__code__.co_filename, 2) == "    return x + y\n"
    origin = {"co_name": "helper", "co_filename": "program.py", "co_firstlineno": 100}
    told = from_source("def forward(self):\n    pass\n", {}, origin).__code__.co_filename
    assert "from program.py:100 in helper" in told
    with pytest.raises(KeyError, match="forward"):
        from_source("def other(self):\n    pass\n", {})


@BOTH
def test_a_module_of_attributes_alone(fx: ModuleType) -> None:
    body = nn.Linear(2, 3).__dict__
    bare = below(fx, "graph_module")._CodeOnlyModule(body)
    assert bare.__dict__ is body and bare.weight is body["_parameters"]["weight"]


@BOTH
def test_captured_modules_inside_are_compiled(fx: ModuleType) -> None:
    root = nn.Module()
    root.inner = fx.symbolic_trace(nn.ReLU())
    root.plain = nn.Sequential(fx.symbolic_trace(nn.ReLU()))
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("plain", (graph.call_module("inner", (x,)),)))
    codes = fx.GraphModule(root, graph)._recompile_submodules()
    assert [(name, code.src) for name, code in codes] == [("inner", root.inner.code)]

"""torch.fx's import paths."""

from __future__ import annotations

import importlib

import pytest
import torch

import graphwright
from graphwright.compat import PATHS


@pytest.mark.parametrize("path", PATHS)
def test_a_path_has_the_names_of_its_row(path: str) -> None:
    module = importlib.import_module(f"graphwright.{path}")
    for room, names in PATHS[path].items():
        source = importlib.import_module(f"graphwright.{room}")
        for entry in names.split():
            name, _, old = entry.partition("=")
            assert getattr(module, old or name) is getattr(source, name)


def test_a_path_is_an_attribute_of_the_package() -> None:
    assert graphwright.proxy.Proxy is graphwright.Proxy
    assert graphwright.passes.__name__ == "graphwright.passes"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = graphwright.nonsense
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("graphwright.nonsense")


def test_graph_is_a_module_and_a_function() -> None:
    gm = graphwright.symbolic_trace(lambda x: torch.relu(x))
    assert graphwright.graph(gm) is gm.graph
    assert graphwright.graph.Graph is graphwright.Graph


def test_names_can_be_marked_as_stable() -> None:
    module = importlib.import_module("graphwright._compatibility")

    @module.compatibility(is_backward_compatible=True)
    def stays() -> int:
        return 3

    assert stays() == 3 and stays in module._BACK_COMPAT_OBJECTS and stays in module._MARKED_WITH_COMPATIBILITY
    assert graphwright.Graph in module._BACK_COMPAT_OBJECTS

"""torch.fx's import paths."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys

import pytest
import torch

import graphwright
from graphwright.compat import FILES, FOLDERS, PATHS, PICKLED


@pytest.mark.parametrize("path", PATHS)
def test_a_path_has_the_names_of_its_row(path: str) -> None:
    module = importlib.import_module(f"graphwright.{path}")
    for room, names in PATHS[path].items():
        source = importlib.import_module(f"graphwright.{room}")
        for entry in names.split():
            name, _, old = entry.partition("=")
            assert getattr(module, old or name) is getattr(source, name)


@pytest.mark.parametrize("path", FOLDERS)
def test_a_path_that_is_a_folder_has_the_names_of_its_row(path: str) -> None:
    module = importlib.import_module(f"graphwright.{path}")
    for name, file in FOLDERS[path].items():
        assert getattr(module, name) is getattr(importlib.import_module(f"{module.__name__}.{file}"), name)


@pytest.mark.parametrize("path", [*FILES, *PICKLED])
def test_a_path_of_a_file_is_that_file(path: str) -> None:
    file = importlib.import_module(f"graphwright.{ {**FILES, **PICKLED}[path] }")
    assert importlib.import_module(f"graphwright.{path}") is file
    assert sys.modules[f"graphwright.{path}"] is file


@pytest.mark.parametrize("path", FILES)
def test_a_file_has_torch_fx_s_path(path: str) -> None:
    assert importlib.util.find_spec(f"torch.fx.{path}") is not None


@pytest.mark.slow
def test_public_names_are_not_hidden_by_files() -> None:
    program = """
import importlib, types, graphwright
for path in graphwright.compat.PICKLED:
    importlib.import_module(f"graphwright.{path}")
rooms = graphwright.analysis, graphwright.capture, graphwright.passes, graphwright.runtime
print([name for room in rooms for name in room.__all__ if isinstance(getattr(room, name), types.ModuleType)])
print(graphwright.passes.shape_prop.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\ngraphwright.passes.support.shape_prop\n", done.stderr


def test_a_pickle_written_before_finds_its_classes() -> None:
    for name in (
        *("passes.fuse_conv_relu\nConvReLU", "passes.stages\nSplit", "analysis.costs\nCostReport"),
        *("capture.tracer\nTracer", "capture.origins\nScope", "capture.obstacles\nDiagnosis"),
        *("capture.root_inputs\nPHWithMeta", "capture.proxy\nProxy", "capture.tracer_warnings\nTracerWarning"),
        *("capture.trace\ntrace", "capture.doctor\ndoctor", "capture.symbolic\nsymbolic_trace"),
        *("capture.wrap\nwrap", "capture.entries\nSubject", "capture.conversion\nconverted_source"),
    ):
        found = pickle.loads(f"cgraphwright.{name}\n.".encode())
        rooms = [importlib.import_module(f"graphwright.{room}") for room in (name.partition(".")[0], "source")]
        assert any(found is getattr(room, name.partition("\n")[2], None) for room in rooms)


def test_a_captured_module_pickled_before_is_read() -> None:
    def gate(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x if mask is None else x * mask

    gm = graphwright.symbolic_trace(gate, {"mask": None})
    data = pickle.dumps(gm, protocol=2)
    for path in (b"tracer", b"root_inputs"):
        assert b"cgraphwright.capture.symbolic.%s\n" % path in data
        data = data.replace(b"cgraphwright.capture.symbolic.%s\n" % path, b"cgraphwright.capture.%s\n" % path)
    assert pickle.loads(data).code == gm.code


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

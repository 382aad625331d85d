"""What `import graphwright` leaves for later, and that it is there when it is asked for."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import graphwright
from graphwright.loading import METHODS, PUBLIC

LATER = (
    *("analysis", "capture", "codegen", "conveniences", "engines", "interop", "onnx", "passes", "rewrite", "runtime"),
    *("script", "source", "values", "viz", "cli"),
)


def printed(program: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


LOADED = "print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('graphwright.')}))"


def test_the_package_alone_loads_no_room_that_runs_programs() -> None:
    program = f"""
import sys, torch
before = {{*sys.modules}}
import graphwright
{LOADED}
print(*sorted({{name.partition('.')[0] for name in {{*sys.modules}} - before}} - {{*sys.stdlib_module_names}}))
dir(graphwright), graphwright.Graph, graphwright.CaptureError, graphwright.has_side_effect
graphwright.Graph().placeholder("x")
{LOADED}
"""
    rooms = "compat errors garbage ir lazy_imports loading ops version"
    assert printed(program).splitlines() == [rooms, "graphwright", rooms]
    assert not {*rooms.split()} & {*LATER}


@pytest.mark.slow
def test_a_capture_loads_nothing_that_changes_or_converts_programs() -> None:
    program = f"""
import sys, torch, graphwright
graphwright.trace(torch.nn.ReLU(), (torch.ones(1),))(torch.ones(1))
{LOADED}
"""
    assert not {*printed(program).split()} & {"engines", "interop", "passes", "rewrite", "script", "viz"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            "class Own(Graph):\n"
            "    def python_code(self, root_module): return super().python_code(root_module).src\n"
            "graph = Own()\n"
            "graph.output(1)\n"
            "text(graph.python_code('self'), Graph._codegen.__doc__, inspect.signature(Graph.eliminate_dead_code))",
            id="methods of graphs",
        ),
        pytest.param(
            "text(copy.copy(pickle.loads(pickle.dumps(Graph()))), Node._pretty_print_target(abs))", id="pickle"
        ),
        pytest.param(
            "import graphwright.rewrite, graphwright.capture.symbolic as at\n"
            "from graphwright import rewrite, script\n"
            "text(rewrite, script, at.symbolic_trace, graphwright.graph, graphwright.passes.shape_prop)",
            id="names that are rooms too",
        ),
        pytest.param(
            "import torch.fx\n"
            "from graphwright.runtime import as_captured\n"
            "text(as_captured(torch.fx.symbolic_trace(torch.nn.ReLU())).code)",
            id="modules of torch.fx",
        ),
        pytest.param("from graphwright import *\ntext(trace, Any)", id="all names"),
    ],
)
def test_what_comes_later_is_as_if_it_had_been_there(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    for room in LATER:
        importlib.import_module(f"graphwright.{room}")
    program = f"""
import copy, inspect, pickle
from graphwright.ir import Graph, Node
text = lambda *values: print(*(str(value).partition(" at 0x")[0] for value in values))
{program}
"""
    exec(program, {})
    assert printed(program) == capsys.readouterr().out != ""


def test_the_tables_say_where_the_names_are() -> None:
    file = Path(inspect.getfile(graphwright))
    checked = next(node for node in ast.parse(file.read_text()).body if isinstance(node, ast.If))
    written = {
        f"{node.module}.{alias.asname or alias.name}"
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    pairs = [(room, *each.partition("=")[::2]) for room, names in PUBLIC.items() for each in names.split()]
    rows = {f"graphwright.{room}.{public or name}" for room, name, public in pairs}
    assert written == {*rows, "graphwright.runtime.graph"}
    assert sorted(graphwright.__all__) == sorted(["graph", *(public or name for _, name, public in pairs)])
    for room, name, public in pairs:
        module = importlib.import_module(f"graphwright.{room}")
        assert getattr(graphwright, public or name) is getattr(module, name)


def test_rooms_are_attributes_and_public_names_are_no_modules() -> None:
    assert isinstance(graphwright.passes, ModuleType) and isinstance(graphwright.viz, ModuleType)
    assert [name for name in graphwright.__all__ if isinstance(getattr(graphwright, name), ModuleType)] == ["graph"]
    assert {*graphwright.__all__} <= {*dir(graphwright)}


def test_every_method_that_comes_later_is_found() -> None:
    for kind, methods in METHODS.items():
        for name in methods:
            getattr(kind, name)
            assert inspect.getdoc(inspect.getattr_static(kind, name))

"""A tool's source in which `torch.fx` is replaced by `graphwright`, however it imports it, runs as before."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
import torch.fx

from graphwright.compat import PATHS

SPELLINGS = {
    "import as": """
import torch.fx as fx
gm = fx.symbolic_trace(f)
""",
    "import from": """
from torch.fx import symbolic_trace as trace, GraphModule
gm = trace(f)
assert isinstance(gm, GraphModule)
""",
    "both": """
import torch.fx
from torch.fx import Graph, Node
gm = torch.fx.symbolic_trace(f)
assert isinstance(gm.graph, Graph) and isinstance(gm.graph.output_node(), Node)
""",
    "attributes": """
import torch.fx
gm = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Tracer().trace(f))
""",
    "submodules": """
import torch.fx
assert torch.fx.graph.Graph is torch.fx.Graph and torch.fx.node.Node is torch.fx.Node
import torch.fx.graph_module
gm = torch.fx.graph_module.GraphModule({}, torch.fx._symbolic_trace.Tracer().trace(f))
""",
    "passes": """
import torch.fx as fx
from torch.fx.passes import shape_prop
from torch.fx.passes.shape_prop import ShapeProp
gm = fx.symbolic_trace(f)
assert ShapeProp is shape_prop.ShapeProp
""",
    "wrap": """
import torch.fx

@torch.fx.wrap
def leaf(x):
    return x

torch.fx.wrap('other')

def other(x):
    return x

gm = torch.fx.symbolic_trace(lambda x: other(leaf(f(x))))
assert [node.name for node in gm.graph.nodes] == ['x', 'add', 'leaf', 'other', 'output']
""",
    "star": """
from torch.fx import *
gm = symbolic_trace(f)
""",
    "subclass": """
import torch.fx
from torch.fx.node import Argument, Target, map_aggregate, map_arg
from torch.fx.proxy import TraceError

class Own(torch.fx.Interpreter):
    pass

gm = torch.fx.symbolic_trace(f)
assert Own(gm).run(1) == 2
""",
}


@pytest.mark.parametrize("package", ["torch.fx", "graphwright"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_script_runs_whatever_it_imports_from(spelling: str, package: str) -> None:
    source = SPELLINGS[spelling].replace("torch.fx", package)
    names: dict[str, Any] = {"__name__": f"script_{package}", "f": lambda x: x + 1}
    exec(compile("import torch\n" + source, f"<{spelling}>", "exec"), names)
    assert names["gm"](torch.ones(1)) == 2
    assert type(names["gm"]).__mro__[1].__module__.startswith(package.partition(".")[0])


@pytest.mark.parametrize("path", PATHS)
def test_the_names_of_a_path_are_torch_fx_s(path: str) -> None:
    package = "torch" if path.partition(".")[0] in ("jit", "ao") else "torch.fx"
    theirs = importlib.import_module(f"{package}.{path}")
    listed = [entry.rpartition("=")[2] for names in PATHS[path].values() for entry in names.split()]
    assert [name for name in listed if not hasattr(theirs, name)] == []

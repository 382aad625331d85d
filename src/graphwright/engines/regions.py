"""Straight pieces of a program that another engine runs: what is between its branches, loops, checks and effects.

An engine is a module of the library or of the user that says how a program of tensors is opened:

    open_program(gm, args, threads) -> Opened

A region of the graph becomes one call of what was opened. It is opened at the first call, in each process, and again
for other weights.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.analysis import Shapes
from graphwright.engines.choosing import Writing
from graphwright.errors import PassError
from graphwright.ir import Graph, Node
from graphwright.ops import is_impure, is_inplace, is_random, is_region, unpack
from graphwright.passes import substitute
from graphwright.runtime import GraphModule, is_guard

_DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8, torch.int8)
_NODES_AT_LEAST = 3


class Opened(Protocol):
    """A program that an engine runs: tensors in, a list of tensors out."""

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Run the program."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine by name: the module that opens programs for it, what that imports, and what to install for it."""

    module: str
    needs: tuple[str, ...]
    install: str

    @property
    def is_installed(self) -> bool:
        """Whether what it needs is there."""
        return all(importlib.util.find_spec(name) is not None for name in self.needs)

    def open(self, gm: GraphModule, args: Sequence[Tensor], threads: int) -> Opened:
        """Open a program of tensors of these sizes."""
        opened: Opened = importlib.import_module(self.module).open_program(gm, tuple(args), threads)
        return opened


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "onnxruntime": Engine(
            "graphwright.onnx.onnxruntime_engine",
            ("onnx", "onnxscript", "onnxruntime"),
            "pip install graphwright[onnx]",
        ),
        "openvino": Engine(
            "graphwright.onnx.openvino_engine",
            ("onnx", "onnxscript", "onnxruntime", "openvino"),
            "pip install graphwright[openvino]",
        ),
        "inductor": Engine("graphwright.engines.inductor", (), "pip install torch"),
    }
)


def installed(names: Collection[str]) -> list[str]:
    """Check names of engines. Raises PassError for one that is not known, or not installed."""
    for name in names:
        if name != "torch" and name not in ENGINES:
            known = ", ".join(map(repr, ("torch", *ENGINES)))
            raise PassError(f"there is no engine {name!r}", fix=f"engines are {known}")
        if name != "torch" and not ENGINES[name].is_installed:
            raise PassError(f"the engine {name!r} is not installed", fix=ENGINES[name].install)
    return [name for name in names if name != "torch"]


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A piece of a program: its graph, the paths of the tensors that it reads, and what its inputs are like."""

    graph: Graph
    paths: tuple[str, ...]
    inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    engine: str
    nodes: int
    opened: list[int] = field(default_factory=lambda: [0])  # how often

    def open(self, *tensors: Tensor) -> Opened:
        """Open the region with these weights, and more tensors that only tell when they were written to."""
        self.opened[0] += 1
        gm = GraphModule(dict(zip(self.paths, tensors, strict=False)), self.graph)
        args = [torch.zeros(shape, dtype=dtype) for shape, dtype in self.inputs]
        return ENGINES[self.engine].open(gm.eval(), args, torch.get_num_threads())


def open_region(*args: Any) -> Opened:
    """Open a region, the last argument, with the weights before it."""
    *tensors, region = args
    opened: Opened = region.open(*tensors)
    return opened


def run_region(opened: Opened, *tensors: Tensor) -> Any:
    """Run what an engine opened: one tensor, or several in a list."""
    given = opened(*tensors)
    return given[0] if len(given) == 1 else given


# ---- where they are


def find_regions(
    gm: GraphModule, shapes: Shapes, tensors: Mapping[str, Tensor], counters: Mapping[str, str]
) -> list[list[Node]]:
    """Pieces of a specialized program that only compute tensors of tensors, the longest first; see `Searched`."""
    graph = gm.graph
    pieces: list[list[Node]] = [[]]
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if _is_plain(node, shapes, tensors) and _is_counted(node, counters):
            pieces[-1].append(node)
        elif not is_guard(node) or node.users:
            pieces.append([])
    pieces = [_closed(piece, shapes) for piece in pieces]
    writers = [node for node in graph.all_nodes() if node.op.startswith("call") and is_inplace(node)]
    pieces = [piece for piece in pieces if len(piece) >= _NODES_AT_LEAST and _writes_inside(piece, writers)]
    return sorted(pieces, key=len, reverse=True)


def _is_plain(node: Node, shapes: Shapes, tensors: Mapping[str, Tensor]) -> bool:
    """Tell whether an engine may run a node."""
    if node.op not in ("call_function", "call_method") or is_region(node) or is_guard(node) or is_random(node):
        return False
    if is_impure(node) and not is_inplace(node) and node.target is not unpack:
        return False
    if any(used.op == "get_attr" and str(used.target) not in tensors for used in node.all_input_nodes):
        return False
    return _is_computed(shapes.known_value(node)) and all(
        _is_computed(shapes.known_value(used)) for used in node.all_input_nodes if used.op != "get_attr"
    )


def _is_counted(node: Node, counters: Mapping[str, str]) -> bool:
    """Tell whether it is known when the running statistics that a node reads are written to."""
    if node.target not in (F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm):
        return True
    return all(used.target in counters for used in (*node.args[1:3], *_statistics(node)) if type(used) is Node)


def _statistics(node: Node) -> list[Any]:
    return [node.kwargs.get(name) for name in ("running_mean", "running_var")]


def _is_computed(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dtype in _DTYPES and value.device.type == "cpu"
    return isinstance(value, tuple | list) and bool(value) and all(map(_is_computed, value))


def _closed(piece: list[Node], shapes: Shapes) -> list[Node]:
    """The longest beginning of a piece that takes and gives tensors alone."""
    inside = set(piece)
    while piece:
        ends = [
            node
            for node in piece
            if not isinstance(shapes.known_value(node), Tensor) and any(user not in inside for user in node.users)
        ]
        starts = [
            node
            for node in piece
            if any(
                used not in inside and used.op != "get_attr" and not isinstance(shapes.known_value(used), Tensor)
                for used in node.all_input_nodes
            )
        ]
        if not ends and not starts:
            return piece
        cut = min([piece.index(node) for node in (*ends, *starts)])
        piece = piece[:cut]
        inside = set(piece)
    return piece


def _writes_inside(piece: list[Node], writers: list[Node]) -> bool:
    """Tell whether all that is written to in place in the program is made and written to inside of a piece."""
    inside = set(piece)
    return all(
        writer in inside and type(writer.args[0]) is Node and writer.args[0] in inside and not writer.kwargs.get("out")
        for writer in writers
    )


# ---- put into a graph


def put_regions(
    pieces: Sequence[tuple[list[Node], str]], shapes: Shapes, counters: Mapping[str, str], writing: Writing
) -> None:
    """Put one call of an engine in the place of each of these pieces of a graph."""
    facts = {
        used: shapes.known_value(used)
        for piece, _ in pieces
        for node in piece
        for used in (node, *node.all_input_nodes)
    }
    for piece, engine in pieces:
        inputs, outputs = ends_of(piece)
        graph, paths = _graph_of(piece, inputs, outputs)
        kinds = tuple([(tuple(facts[used].shape), facts[used].dtype) for used in inputs])
        writing.before(piece[-1])
        watched = dict.fromkeys(counters[path] for path in paths if path in counters)
        opened = writing.packed(open_region, (*paths, *watched), Region(graph, paths, kinds, engine, len(piece)))
        value = writing.call(run_region, opened, *inputs)
        items = (
            [value] if len(outputs) == 1 else [writing.call(operator.getitem, value, i) for i in range(len(outputs))]
        )
        for node, item in zip(outputs, items, strict=True):
            writing.stands_for[node] = item
            facts[item] = facts[node]
            substitute(node, item)
        names = [node.name for node in outputs]
        for node in reversed(piece):
            node.graph.erase_node(node)
        for name, node in zip(names, outputs, strict=True):
            writing.stands_for[node].name = name


def ends_of(piece: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """What a piece of a graph reads besides weights, and which of its values are read outside of it."""
    inside = set(piece)
    read = (used for node in piece for used in node.all_input_nodes if used not in inside and used.op != "get_attr")
    return list(dict.fromkeys(read)), [node for node in piece if any(user not in inside for user in node.users)]


def _graph_of(piece: list[Node], inputs: list[Node], outputs: list[Node]) -> tuple[Graph, tuple[str, ...]]:
    """A graph of its own for a piece, and the paths of the tensors that it reads."""
    graph = Graph()
    copies = {used: graph.placeholder(f"input_{i}") for i, used in enumerate(inputs)}
    paths: dict[str, Node] = {}
    for node in piece:
        for used in node.all_input_nodes:
            if used.op == "get_attr":
                path = str(used.target)
                if path not in paths:
                    paths[path] = graph.create_node("get_attr", path, (), {})
                copies[used] = paths[path]
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in outputs]))
    return graph, tuple(paths)

"""What is known of nodes once the program has run: values, costs and seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from graphwright.analysis import Cost, copied_inputs, costs, seconds_of_nodes, undisturbed
from graphwright.errors import GraphError
from graphwright.ir import EXAMPLES, Graph, Node
from graphwright.runtime import Interpreter, graphs_of


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of nodes: their values as text, what they cost, and the seconds that they took."""

    values: dict[Node, str] = field(default_factory=dict)
    costs: dict[Node, Cost] = field(default_factory=dict)
    seconds: dict[Node, float] = field(default_factory=dict)


def measure(
    gm: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], times: Mapping[str, float] | None
) -> Measured:
    """Run a captured module on copies of these inputs: once for values and costs, more often for seconds.

    With `times`, which has the seconds by the names of nodes, nothing is timed. Raises GraphError where it names a node
    that the module does not have, or gives what is no length of time.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(2, 3)))
    >>> found = measure(gm, (torch.ones(4, 2),), {}, {"_0": 0.5})
    >>> linear = gm.graph.find_nodes(op="call_module")[0]
    >>> found.values[linear], found.costs[linear].flops, found.seconds[linear]
    ('4×3 float32', 48, 0.5)
    """
    graph = graphs_of(gm)[0]
    report = costs(gm, args, kwargs)
    counted = [node for node in graph.all_nodes() if node.op not in ("placeholder", "output", "get_attr")]
    run = _Values(gm)
    with undisturbed(gm):
        run.run(*copied_inputs(args), **copied_inputs(kwargs))
    seconds = seconds_of_nodes(gm, args, kwargs) if times is None else noted(graph, times)
    return Measured(run.values, dict(zip(counted, report.nodes, strict=True)), seconds)


def noted(graph: Graph, times: Mapping[str, float]) -> dict[Node, float]:
    """Give nodes the seconds that somebody measured, by name; of nodes in bodies, all of that name.

    Raises GraphError where there is no such node, or a number is no length of time.
    """
    by_name: dict[str, list[Node]] = {}
    for node in graph.all_nodes():
        by_name.setdefault(node.name, []).append(node)
    for name, seconds in times.items():
        if name not in by_name:
            raise GraphError(f"times has {name!r}, which is no node", fix="give seconds by the names of nodes")
        if not math.isfinite(seconds) or seconds < 0:
            raise GraphError(f"times says that {name!r} took {seconds} seconds", fix="give finite numbers of seconds")
    return {node: float(seconds) for name, seconds in times.items() for node in by_name[name]}


def value_text(value: Any) -> str:
    """Say what a value is like: shape and dtype of tensors and of what describes one, plain values as they are.

    >>> value_text(torch.ones(2, 3)), value_text([torch.tensor(1), 5]), value_text({"a": None})
    ('2×3 float32', '[scalar int64, 5]', '{a: None}')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and isinstance(dtype, torch.dtype):
        sizes = "×".join(map(str, shape)) or "scalar"
        return f"{sizes} {str(dtype).removeprefix('torch.')}"
    if isinstance(value, dict):
        return "{" + _listed([f"{key}: {value_text(item)}" for key, item in list(value.items())[: _MOST + 1]]) + "}"
    if isinstance(value, tuple | list):
        left, right = "[]" if isinstance(value, list) else "()"
        return left + _listed([value_text(item) for item in value[: _MOST + 1]]) + right
    if isinstance(value, str | int | float | complex | torch.dtype | torch.device | type(None)):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return type(value).__name__


_MOST = 4  # items of a container that are told


def _listed(items: list[str]) -> str:
    return ", ".join(items[:_MOST]) + (", ..." if len(items) > _MOST else "")


def noted_value(node: Node) -> str:
    """What passes have noted of a node's value, "" where none has."""
    for key in EXAMPLES:
        if node.meta.get(key) is not None:
            return value_text(node.meta[key])
    return ""


class _Values(Interpreter):
    """Runs a graph, and notes of each node what its value is like."""

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.values: dict[Node, str] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node and note its value."""
        value = super().run_node(n)
        self.values[n] = value_text(value)
        return value

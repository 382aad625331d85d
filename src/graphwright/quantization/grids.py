"""Which values share a grid, and what it is: what only moves values, and what joins them, keeps them on one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from graphwright.ir import Node
from graphwright.quantization.affine import dequantize, grid_of_range, quantize
from graphwright.quantization.backends import Backend
from graphwright.quantization.decide import Decision
from graphwright.quantization.schemes import QConfig, Scheme
from graphwright.quantization.sites import Program

_LEAST_SQNR = 20.0  # dB, of each part of values that are joined


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """What was seen of a value: its bounds, and the mean of its squares."""

    low: float
    high: float
    mean_square: float

    def joined(self, other: Range) -> Range:
        """The range of both."""
        return Range(min(self.low, other.low), max(self.high, other.high), max(self.mean_square, other.mean_square))


@dataclasses.dataclass(frozen=True, slots=True)
class ValueGrid:
    """The grid of a value, as the literals that programs have."""

    scale: float
    zero_point: int
    dtype: torch.dtype

    def rounded(self, x: Tensor) -> Tensor:
        """The values of the grid next to those of a tensor."""
        return dequantize(quantize(x, self.scale, self.zero_point, self.dtype), self.scale, self.zero_point)

    def sqnr(self, mean_square: float) -> float:
        """The signal to noise ratio in dB that rounding alone leaves of values of a mean square."""
        return 10 * math.log10(max(mean_square, 1e-30) * 12 / self.scale**2)


def grid_for(found: Range, scheme: Scheme) -> ValueGrid:
    """The grid of a scheme for a range, its scale a decimal number of few digits."""
    grid = grid_of_range(torch.tensor(found.low), torch.tensor(found.high), scheme)
    return ValueGrid(float(f"{grid.scale.item():.5g}"), int(grid.zero_point.item()), scheme.dtype)


def root_of(value: Node, program: Program) -> Node:
    """The value that a value is a moved one of, or itself."""
    while (before := program.moved(value)) is not None:
        value = before
    return value


def activation_scheme(config: QConfig, backend: Backend) -> Scheme:
    """How a backend writes the inputs of layers."""
    assert config.activation is not None
    is_symmetric = backend.is_symmetric or config.activation.is_symmetric
    return dataclasses.replace(config.activation, dtype=backend.activation, is_symmetric=is_symmetric)


def value_grids(
    program: Program,
    decisions: Mapping[Node, Decision],
    ranges: Mapping[Node, Range],
    backend: Backend,
    are_joined: bool = True,
) -> dict[Node, ValueGrid]:
    """The grid of each value that is quantized, moved ones with those that they come of.

    Values that are joined have one grid; where they do not go together, the decisions on what reads them are changed.
    Without `are_joined` each has its own, as it had in training.
    """
    if are_joined:
        _leave_unlike(program, decisions, ranges, backend)
    groups = _Groups()
    found: dict[Node, Range] = {}
    schemes: dict[Node, Scheme] = {}
    edges: dict[Node, Node] = {}
    for node, decision in decisions.items():
        if decision.mode != "static" or decision.config is None:
            continue
        roots = [root_of(edge, program) for edge in decision.edges]
        for edge, root in zip(decision.edges, roots, strict=True):
            edges[edge] = root
            schemes.setdefault(root, activation_scheme(decision.config, backend))
            if edge in ranges:
                found[root] = ranges[edge].joined(found[root]) if root in found else ranges[edge]
        if decision.site.kind == "cat" and are_joined:
            groups.join([node, *roots])
    joined: dict[Node, Range] = {}
    for root, each in found.items():
        first = groups.first(root)
        joined[first] = joined[first].joined(each) if first in joined else each
    grids: dict[Node, ValueGrid] = {}
    for edge, root in edges.items():
        first = groups.first(root)
        if first in joined:
            grid = grid_for(joined[first], schemes[root])
            grids[edge] = grid
            if root is not edge and decisions.get(_made_by(root, program)) is not None:
                grids[root] = grid
    return grids


def _made_by(value: Node, program: Program) -> Node:
    """The site that computes a value, before it is rectified; or the value itself."""
    return program.rectified(value) or value


class _Groups:
    """Values that share a grid."""

    def __init__(self) -> None:
        self._before: dict[Node, Node] = {}

    def first(self, node: Node) -> Node:
        """What stands for the group of a value."""
        while node in self._before:
            node = self._before[node]
        return node

    def join(self, nodes: list[Node]) -> None:
        """Make the groups of some values one."""
        first = self.first(nodes[0])
        for node in nodes[1:]:
            other = self.first(node)
            if other is not first:
                self._before[other] = first


def _leave_unlike(
    program: Program, decisions: Mapping[Node, Decision], ranges: Mapping[Node, Range], backend: Backend
) -> None:
    """Leave in float what joins values of unlike ranges, and the layers that read them joined."""
    for node, decision in decisions.items():
        if decision.site.kind != "cat":
            continue
        worst = _worst_part(decision, ranges, backend)
        if worst is None or worst[1] >= _LEAST_SQNR:
            continue
        text = f"{worst[0].name} would have {worst[1]:.1f} dB on the grid of all parts"
        if decision.mode == "static":
            decision.mode, decision.config, decision.edges = "float", None, ()
            decision.reason = f"its parts have unlike ranges: {text}"
        for other in decisions.values():
            if other.mode == "static" and any(_is_made_of(edge, node, program) for edge in other.edges):
                other.mode, other.config, other.edges = "float", None, ()
                other.reason = f"it reads {node.name}, whose parts have unlike ranges: {text}"


def _worst_part(decision: Decision, ranges: Mapping[Node, Range], backend: Backend) -> tuple[Node, float] | None:
    """The part of a joined value that the grid of all suits least, and its signal to noise ratio."""
    parts = {value: ranges[value] for value in decision.site.inputs if value in ranges}
    if len(parts) < 2:
        return None
    whole = None
    for each in parts.values():
        whole = each if whole is None else whole.joined(each)
    assert whole is not None
    grid = grid_for(whole, Scheme(backend.activation, is_symmetric=backend.is_symmetric))
    worst = min(parts, key=lambda value: grid.sqnr(parts[value].mean_square))
    return worst, grid.sqnr(parts[worst].mean_square)


def _is_made_of(value: Node, node: Node, program: Program) -> bool:
    """Tell whether a value is another one, moved or rectified."""
    while value is not node:
        before = program.moved(value) or program.rectified(value)
        if before is None:
            return False
        value = before
    return True


def grid_of_input(decision: Decision, grids: Mapping[Node, ValueGrid]) -> ValueGrid | None:
    """The grid of what a layer reads; None for one that reads floats."""
    return grids.get(decision.edges[0]) if decision.edges else None


def range_of(low: Tensor, high: Tensor, mean_square: float) -> Range:
    """A range of the tensors that an observer has."""
    return Range(min(low.item(), 0.0), max(high.item(), 0.0), mean_square)

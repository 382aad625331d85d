"""Shapes of a captured module for several calls, which take different ways through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.analysis.shapes.shapes import Shapes
from graphwright.analysis.shapes.value_facts import gap_in
from graphwright.ir import Node


class ShapesOfCalls(Shapes):
    """What the nodes of a captured module give for several calls: each what the first call gives that comes to it.

    A module that was captured for several examples has a side of a branch for each.

    >>> import torch
    >>> from graphwright import trace
    >>> def pick(x, y=None):
    ...     return x.relu() if y is None else y.exp()
    >>> gm = trace(pick, examples=[((torch.ones(2),), {}), ((torch.ones(2), torch.ones(3)), {})])
    >>> shapes = ShapesOfCalls(gm, [((torch.ones(4),), {}), ((torch.ones(4), torch.ones(5)), {})])
    >>> [shapes[node].shape for node in gm.graph.all_nodes() if node.target in ("relu", "exp")]
    [torch.Size([4]), torch.Size([5])]
    """

    def __init__(self, gm: nn.Module, calls: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> None:
        self._calls = [Shapes(gm, args, kwargs) for args, kwargs in calls]
        self.graph = self._calls[0].graph

    def value(self, node: Node) -> Any:
        """What a node gives on fake tensors: a fake tensor, a number, a container of such; None if unknown.

        Raises as asking for its shape does.
        """
        return self._of(node).value(node)

    def may_run(self, node: Node) -> bool:
        """Tell whether a node may run with one of these calls."""
        return any(shapes.may_run(node) for shapes in self._calls)

    def why(self, node: Node) -> str:
        return self._of(node).why(node)

    def invalidate(self, node: Node) -> None:
        for shapes in self._calls:
            shapes.invalidate(node)

    @property
    def count(self) -> int:
        return sum(shapes.count for shapes in self._calls)

    def _found(self, node: Node) -> Any:
        return self._of(node)._found(node)

    def _of(self, node: Node) -> Shapes:
        """The shapes of the first call that comes to a node and tells what it gives; of the first, where none does."""
        if len(self._calls) > 1 and isinstance(node, Node) and not node._erased:
            for shapes in self._calls:
                if gap_in(shapes._found(node)) is None and shapes.may_run(node):
                    return shapes
        return self._calls[0]

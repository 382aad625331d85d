"""Activation checkpoints, as many as it takes to stay within a budget of memory in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from graphwright.analysis import Shapes, memory, peak_memory, tensors_in
from graphwright.errors import GraphError, PassError
from graphwright.ir import Node, bodies_of
from graphwright.passes.memory.checkpoint_segments import Segments, put_in_checkpoint
from graphwright.runtime import GraphModule, Snapshot, graph_of

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True)
class InsertCheckpoints:
    """Run parts of a program again in backward, so that training takes at most `budget` bytes besides what it holds.

    args, kwargs: example inputs; the peak is the one that `analysis.memory` predicts for them, of forward and backward.

    What lies inside of a checkpoint (`torch.utils.checkpoint`) keeps only its inputs for backward. The program is cut
    where little goes across, into segments that keep about as much each; the number of segments, and how many of them,
    from the first on, become checkpoints, are chosen so that the least has to be run again. Random numbers are drawn
    the same again. Values, gradients and the state_dict stay what they are.

    What must not run twice stays outside: what writes to inputs, buffers or attributes, batch norms that keep
    statistics, functions and modules that are not known, checks; and what reads something that is written to later.
    What is in `with` blocks, or in a checkpoint already, stays as it is. Of a branch that data decides, the side for
    true is taken to run. Returns the number of checkpoints; 0 where
    the program is within the budget. Raises PassError with the smallest peak that was reached where none is.

    Source: Chen et al., arXiv:1604.06174.

    >>> from torch import nn
    >>> from graphwright import trace
    >>> model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.GELU())])
    >>> x = torch.ones(512, 32)
    >>> gm = trace(model, (x,))
    >>> before = peak_memory(gm, x, backward=True)
    >>> InsertCheckpoints(budget=int(before * 0.7), args=(x,)).run(gm) > 0
    True
    >>> peak_memory(gm, x, backward=True) <= before * 0.7
    True
    """

    budget: int
    args: Any = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of checkpoints."""
        if self.budget <= 0:
            raise PassError(f"a budget of {self.budget} bytes leaves no memory", fix="give a positive number of bytes")
        peak = self._peak(gm)
        if peak <= self.budget:
            return 0
        segments = self._segments(gm)
        best: list[list[Node]] | None = None
        best_cost, smallest, tried = 0, peak, []
        for count in _COUNTS:
            plan = segments.split(count)
            if not plan or plan in tried:
                continue
            tried.append(plan)
            reached = self._try(gm, plan)
            smallest = min(smallest, reached)
            if reached > self.budget:
                continue
            chosen = self._fewest(gm, plan)
            cost = sum(map(len, chosen))
            if best is None or cost < best_cost:
                best, best_cost = chosen, cost
        if best is None:
            raise PassError(
                f"training cannot stay within {self.budget:,} bytes: it takes {peak:,}, and {smallest:,} with the best "
                "checkpoints that were found",
                fix=f"give a budget of at least {smallest} bytes, or smaller inputs",
            )
        for segment in best:
            put_in_checkpoint(segment, gm)
        return len(best)

    def _segments(self, gm: GraphModule) -> Segments:
        report = memory(gm, self.args, self.kwargs, backward=True)
        weights = {use.node: max(0, use.kept) for use in report.nodes if use.node and not bodies_of(use.node)}
        args = self.args if isinstance(self.args, tuple) else (self.args,)
        shapes = Shapes(gm, args, self.kwargs)
        nodes = [node for node in graph_of(gm).all_nodes() if node.op.startswith("call")]
        return Segments(gm, weights, {node: _bytes(shapes, node) for node in nodes})

    def _fewest(self, gm: GraphModule, plan: Sequence[list[Node]]) -> list[list[Node]]:
        """The fewest segments, from the first on, that stay within the budget; all of them do."""
        low, high = 1, len(plan)
        while low < high:
            middle = (low + high) // 2
            if self._try(gm, plan[:middle]) <= self.budget:
                high = middle
            else:
                low = middle + 1
        return list(plan[:high])

    def _try(self, gm: GraphModule, plan: Sequence[list[Node]]) -> int:
        """The peak with these checkpoints; the module is left as it was."""
        before = Snapshot(gm)
        try:
            for segment in plan:
                put_in_checkpoint(segment, gm)
            return self._peak(gm)
        finally:
            before.restore()

    def _peak(self, gm: GraphModule) -> int:
        return peak_memory(gm, self.args, self.kwargs, backward=True)


def _bytes(shapes: Shapes, node: Node) -> int:
    """How much memory a value takes that goes across a cut."""
    try:
        value = shapes.value(node)
    except GraphError:
        return 0
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value) if tensor.layout is torch.strided)

"""At which node a captured module begins to compute something else, inside branches and loops too.

The graph runs node by node, and the original under a mode that sees each of torch's calls. A node whose tensors are
none that the original computes is where the two part - unless something behind it agrees again, as behind the steps of
a layer that was rewritten.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphwright.analysis.values import Tolerance, compare_facts, facts_of, tensors_in
from graphwright.ir import Node
from graphwright.runtime import Interpreter

_NOT_COMPUTED = ("placeholder", "get_attr", "output")


class TensorsSeen(TorchFunctionMode):
    """Keeps a copy of every tensor that a call of torch gives while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.tensors += _copies(result)
        return result


class NodeValues(Interpreter):
    """Runs a graph and keeps the tensors of each node, those in the bodies of branches and loops included."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self.kept: list[tuple[Node, list[Tensor]]] = []

    def run_node(self, n: Node) -> Any:
        """Run one node, and keep what it gives."""
        value = super().run_node(n)
        if n.op not in _NOT_COMPUTED:
            self.kept.append((n, _copies(value)))
        return value


def first_other_node(kept: list[tuple[Node, list[Tensor]]], seen: list[Tensor], tolerance: Tolerance) -> Node | None:
    """The first node, as they ran, that gives what the original never computed, nor anything behind it."""
    known: dict[Any, list[Tensor]] = defaultdict(list)
    for tensor in seen:
        known[tensor.shape, tensor.dtype].append(tensor)
    agreeing: set[Node] = set()
    others: list[Node] = []
    for node, tensors in kept:
        if not tensors:
            continue
        if all(_is_among(tensor, known[tensor.shape, tensor.dtype], tolerance) for tensor in tensors):
            agreeing.add(node)
        else:
            others.append(node)
    return next((node for node in others if not _leads_to(node, agreeing)), None)


def _is_among(tensor: Tensor, known: list[Tensor], tolerance: Tolerance) -> bool:
    if any(torch.equal(other, tensor) for other in known if not (other.is_sparse or other.is_nested)):
        return True
    facts = facts_of(tensor, "value")
    return any(not compare_facts(facts_of(other, "value"), facts, tolerance)[0] for other in known)


def _leads_to(node: Node, agreeing: set[Node]) -> bool:
    """Tell whether something that is computed from a node agrees."""
    waiting, met = list(node.users), set(node.users)
    while waiting:
        user = waiting.pop()
        if user in agreeing:
            return True
        fresh = [other for other in user.users if other not in met]
        met.update(fresh)
        waiting += fresh
    return False


def _copies(value: Any) -> list[Tensor]:
    with torch._C.DisableTorchFunction():
        return [tensor.detach().clone() for tensor in tensors_in(value)]

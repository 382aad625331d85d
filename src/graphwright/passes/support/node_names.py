"""Names of the values of a captured program, by the modules that they are computed in: `layer4.1.add`.

They are those of torchvision's feature extraction (its documentation, "About Node Names"): the path of the module, then
for an operation what it calls; one that is there already gets a number, `_1` for the second. There numbers at the end
of a module's own name do not count, so that `ln_2` is called `ln_1` behind an `ln_1` that is called `ln`; that is so
here only where it is asked for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable

from torch import nn

from graphwright.capture import noted
from graphwright.ir import Graph, Namespace, Node, bodies_of, candidate_for
from graphwright.ops import cond, enter_context, exit_context
from graphwright.runtime import as_captured, graph_of, is_guard

_NUMBERED = re.compile(r"(.+)_[0-9]+")
# `x += y` is called as `x + y` is.
_PLAIN = {
    getattr(operator, f"i{name}"): name
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
}


def node_names(graph: Graph | nn.Module, drops_numbers: bool = False) -> dict[Node, str]:
    """Name the nodes of a graph, or of a captured module, outside of the bodies of branches and loops.

    No two have one name.

    With `drops_numbers`, modules whose own names end in a number are numbered anew, as torchvision does.

    >>> from torch import nn
    >>> from graphwright import symbolic_trace
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.relu, self.linear = nn.ReLU(), nn.Linear(2, 2)
    ...     def forward(self, x):
    ...         return self.relu(self.linear(self.relu(x)) + x)
    >>> list(node_names(symbolic_trace(nn.Sequential(Block()))).values())
    ['input', '0.relu', '0.linear', '0.add', '0.relu_1']
    """
    return _names(graph if isinstance(graph, Graph) else graph_of(as_captured(graph)), Counts(drops_numbers))


def _names(graph: Graph, counts: Counts) -> dict[Node, str]:
    names = {}
    for node in graph.nodes:
        if node.op != "output" and not is_unnamed(node):
            names[node] = counts.name(node)
        if node.target is cond:  # what its sides hold counts for what comes behind it
            copies = [counts.copy() for _ in bodies_of(node)]
            for body, copied in zip(bodies_of(node), copies, strict=True):
                _names(body, copied)
            counts.join(copies)
    return names


def is_unnamed(node: Node) -> bool:
    """Tell whether a node is no operation of the program, but something that the capture put there."""
    if node.op == "get_attr":
        return str(node.target).rpartition(".")[2] == "training"
    return is_guard(node) or node.target in (enter_context, exit_context, noted)


class Counts:
    """The names that are taken, on the way through a graph; sides of a branch go on from copies."""

    def __init__(self, drops_numbers: bool = False) -> None:
        self._drops_numbers = drops_numbers
        self._last: dict[str, int] = {}
        self._taken: set[str] = set()

    def name(self, node: Node) -> str:
        """Name the next node."""
        base = _base(node)
        numbered = _NUMBERED.fullmatch(base)
        if numbered is not None and (self._drops_numbers or node.op != "call_module"):
            base = numbered.group(1)
        number = self._last.get(base, -1) + 1
        while (name := f"{base}_{number}" if number else base) in self._taken:
            number += 1
        self._last[base] = number
        self._taken.add(name)
        return name

    def copy(self) -> Counts:
        """The counts at the beginning of a side of a branch."""
        copied = Counts(self._drops_numbers)
        copied._last, copied._taken = dict(self._last), set(self._taken)
        return copied

    def join(self, sides: Iterable[Counts]) -> None:
        """Go on behind a branch."""
        for side in sides:
            self._taken |= side._taken
            for base, number in side._last.items():
                self._last[base] = max(number, self._last.get(base, -1))


def _base(node: Node) -> str:
    """The name of a node before it is numbered."""
    if node.op == "call_module":
        return str(node.target)
    called = candidate_for(_PLAIN.get(node.target, node.target) if callable(node.target) else node.target)
    name = Namespace().create(called.lstrip("*"))
    origin = node.origin
    path = origin.module if origin is not None and node.op != "placeholder" else ""
    return f"{path}.{name}" if path else name


def module_paths(node: Node) -> list[str]:
    """The paths of the modules that a node is inside of, from the inside out; the one that it calls is the first."""
    origin = node.origin
    path = str(node.target) if node.op == "call_module" else origin.module if origin is not None else ""
    found = []
    while path:
        found.append(path)
        path = path.rpartition(".")[0]
    return found

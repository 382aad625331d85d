"""Whose a value is, and where one may stand in the place of another."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import operator_of, sources_of
from graphwright.passes.support.layouts import ASKING_FOR_LAYOUT, is_dense, is_layout_hidden, is_spread
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import is_guard

# What tells a value from another one with the same elements.
_IDENTITY = frozenset({"grad", "grad_fn", "is_leaf", "requires_grad", "retains_grad", "output_nr", "_version", "data"})


class Ownership:
    """Who may see or write to the values of a captured module. Made once for a run of a pass, while it edits the graph.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x, y: (x.neg().add_(1), y.contiguous()))
    >>> values = {node.name: node for node in gm.graph.nodes}
    >>> ownership = Ownership(gm)
    >>> ownership.is_written(values["neg"]), ownership.is_written(values["y"])
    (True, False)
    >>> ownership.may_stand_for(values["y"], values["contiguous"])
    'contiguous is given back, and y has another owner'
    """

    def __init__(self, gm: nn.Module) -> None:
        self.calls = Calls(gm)
        self._effects: dict[Graph, GraphEffects] = {}

    def effects(self, graph: Graph) -> GraphEffects:
        """What the operations of a graph do besides computing values."""
        if graph not in self._effects:
            self._effects[graph] = GraphEffects(graph, self.calls)
        return self._effects[graph]

    def is_written(self, *values: Node) -> bool:
        """Tell whether one of some values of a graph may be written to in place."""
        return any(self.effects(value.graph).writer_of(value) is not None for value in values)

    def is_untouched_between(self, first: Node, last: Node, *values: Any) -> bool:
        """Tell whether what the first node has read may as well be read by the last one.

        Both are inside the same `with` blocks, and none of the values is written to between the two.
        """
        effects = self.effects(last.graph)
        nodes = [value for value in values if isinstance(value, Node)]
        is_written = any(effects.writer_of(value, between=(first, last)) is not None for value in nodes)
        return not is_written and effects.are_together(first, last)

    def may_stand_for(
        self, value: Any, root: Node, *, is_copy: bool | None = None, same_layout: bool = True
    ) -> bool | str:
        """Tell whether a value may stand in the place of another with equal elements, a copy of it or a view on it.

        Not where the program or its caller could tell: one of them is written to or asked who it is; the copy is given
        back and the value is an input, an attribute or given back, too; or the value may lie in memory in another way
        than the copy, and somebody may look: without `same_layout`, the copy has an order of its own even where the
        value has no gaps. `is_copy` says whether it is a copy where its operator may also give a view. What is written
        to, the engine sees to. Returns True or the reason.
        """
        if not isinstance(value, Node):
            return True
        if self._is_asked(root, _IDENTITY):
            return f"somebody asks which tensor {root.name} is"
        if is_copy is None:
            is_copy = root in self._sources(root)
        if self._is_given_back_twice(value, root, is_copy):
            return f"{root.name} is given back, and {value.name} has another owner"
        is_alike = not is_copy or (same_layout and is_dense(value))
        if not (is_alike or is_layout_hidden(root, at_once=same_layout and not is_spread(value))):
            return f"{value.name} may lie in memory in another way than {root.name}"
        return True

    def may_be_kept(self, value: Node) -> bool:
        """Tell whether every call may read one tensor in the place of a value that it made for itself so far.

        Not where it is written to, given back, or asked who it is or where it lies.
        """
        is_asked = self._is_asked(value, _IDENTITY | ASKING_FOR_LAYOUT)
        return not (is_asked or self.is_written(value) or self._is_given_back(value))

    def _is_asked(self, value: Node, questions: frozenset[str]) -> bool:
        operators = [operator_of(user, self.calls.module(user)) for user in value.users]
        return any(each is not None and (each.acts or each.key in questions) for each in operators)

    def _is_given_back_twice(self, value: Node, root: Node, is_copy: bool) -> bool:
        if not is_copy:
            given = [node for output in root.graph.find_nodes(op="output") for node in nodes_in(output.args)]
            return root in given and (value in given or value.op in ("placeholder", "get_attr"))
        if not self._is_given_back(root):
            return False
        sources = self._sources(value)
        return any(source is None or self._is_given_back(source, but=root) for source in sources)

    def _is_given_back(self, node: Node, but: Node | None = None) -> bool:
        """Tell whether a value, or what may share its memory, is given back by its graph; `but` by way of one node."""
        seen = {node, but}
        waiting = [node]
        while waiting:
            for user in waiting.pop().users:
                if user.op == "output":
                    return True
                if user not in seen and not is_guard(user) and self._sources(user) != {user}:
                    seen.add(user)
                    waiting.append(user)
        return False

    def _sources(self, node: Node) -> set[Node | None]:
        return sources_of(node, self.calls.module)

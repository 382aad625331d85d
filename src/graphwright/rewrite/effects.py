"""Whether a match may be replaced: nothing that happens between its operations may change what they compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphwright.analysis import written_values
from graphwright.ir import Graph, Node
from graphwright.ops import (
    enter_context,
    exit_context,
    is_impure,
    is_inplace,
    is_random,
    may_share_memory,
    operator_of,
    raise_error,
    sources_of,
)
from graphwright.rewrite.calls import Calls
from graphwright.rewrite.match import Match

WITHOUT_WRITES = "run graphwright.passes.RemoveInPlace() before it: operations then give new values"


class GraphEffects:
    """What the operations of one graph do besides computing values, kept up to date while it is rewritten."""

    def __init__(self, graph: Graph, calls: Calls) -> None:
        self._graph, self.calls = graph, calls
        self._regions: dict[Node, int] = {}  # the `with` blocks that a node is inside of, where there are any
        self._writers: dict[Node, None] = {}
        has_regions = False
        never_writes = calls.never_writes
        for node in graph.nodes:
            if not never_writes(node) or (node._kwargs and "out" in node._kwargs):
                has_regions = has_regions or node.target is enter_context or _is_switch(node)
                if self._writes(node):
                    self._writers[node] = None
        if has_regions:
            self._number_regions()

    def obstacle(self, match: Match, before: Node, late: Sequence[Node] = ()) -> tuple[str, str] | None:
        """Say why a match cannot be replaced by something that is computed before a node, and what would help.

        None if it can be.

        `late` are further nodes, which would be moved to before that node.
        """
        nodes, calls = match.nodes, self.calls
        if not (self._regions or self._writers or late) and all(map(calls.never_acts, nodes)):
            return None
        if not self.are_together(*nodes, *late, before):
            return "some of its operations are inside a `with` block and others are not", ""
        first, last = nodes[0], nodes[-1]
        inside = match.inside
        for node in nodes:
            if self.calls.never_acts(node) or node in match.roots or inside.issuperset(node.users):
                continue
            if self._draws(node):
                return f"{node.name} draws random numbers, and others read its value, too", ""
            if is_inplace(node):
                return f"{node.name} writes in place, and others read its value, too", WITHOUT_WRITES
        for node in late:
            if is_impure(node, self.calls.module(node), in_any_mode=True):
                return f"{node.name}, which it reads, comes after {before.name} and cannot be moved there", ""
        draws = any(map(self._draws, nodes))
        between = list(self._between(first, max(last, before.prev), inside)) if draws or self._writers else []
        if draws and any(map(self._draws, between)):
            return f"random numbers are drawn between {first.name} and {last.name}", ""
        if self._writers:
            moved = (*nodes, *late)
            touched = [*moved, *{used for node in moved for used in node.all_input_nodes}]
            for node in between:
                for written in self._writes(node):
                    if any(may_share_memory(written, other, self.calls.module) for other in touched):
                        why = f"{node.name} writes to {written.name} between {first.name} and {last.name}"
                        return why, WITHOUT_WRITES
        return None

    def obstacle_of_alias(self, root: Node, value: Node) -> tuple[str, str] | None:
        """Say why a value that is there already cannot stand in the place of a root, and what would help.

        One of them is written to; or the root comes out of a `with` block in which the value was not computed, and
        perhaps had no gradients there.
        """
        if not (self.are_together(root, value) or self.are_together(root, *root.users)):
            return f"{root.name} comes out of a `with` block, and {value.name} is computed outside of it", ""
        for other in (root, value):
            found = self.writer_of(other, but=value)
            if found is not None:
                node, written = found
                why = f"{node.name} writes to {written.name}: {root.name} and {value.name} have to stay two values"
                return why, WITHOUT_WRITES
        return None

    @property
    def has_writers(self) -> bool:
        """Whether anything in the graph may write in place."""
        return bool(self._writers)

    def region_of(self, node: Node) -> int:
        """A number for the `with` blocks that a node is inside of; 0 outside of all."""
        return self._regions.get(node, 0)

    def are_together(self, *nodes: Node) -> bool:
        """Tell whether nodes are inside the same `with` blocks."""
        return not self._regions or len({self.region_of(node) for node in nodes}) == 1

    def writer_of(
        self, value: Node, but: Node | None = None, between: tuple[Node, Node] | None = None
    ) -> tuple[Node, Node] | None:
        """The first node that may write to a value in place, with what it writes to.

        `but` is one that does not count; with `between`, only what comes after the one and before the other counts.

        >>> from graphwright import symbolic_trace
        >>> gm = symbolic_trace(lambda x: (x.view(-1).add_(1), x.neg()))
        >>> effects = GraphEffects(gm.graph, Calls(gm))
        >>> [effects.writer_of(node) is not None for node in gm.graph.nodes]
        [True, True, True, False, True]
        """
        candidates: Iterable[Node] = self._writers
        if between is not None and self._writers:
            candidates = [node for node in self._between(*between, set()) if node in self._writers]
        if not candidates:
            return None
        module_of = self.calls.module
        sources = sources_of(value, module_of)
        if None not in sources and between is None:
            candidates = self._writers_near(sources)
        for node in candidates:
            if node is but or node._erased or (between is not None and node is between[1]):
                continue
            for written in self._writes(node):
                if written is value or not sources.isdisjoint(sources_of(written, module_of)):
                    return node, written
        return None

    def _writers_near(self, sources: set[Node | None]) -> list[Node]:
        """The writers that are given a value with one of these sources, all made in this graph."""
        found, seen, waiting = set(), set(sources), list(sources)
        while waiting:
            value = waiting.pop()
            for user in value.users if value is not None else ():
                if user in self._writers:
                    found.add(user)
                if user not in seen and not sources.isdisjoint(sources_of(user, self.calls.module)):
                    seen.add(user)
                    waiting.append(user)
        return sorted(found)

    def made(self, nodes: Iterable[Node], like: Node) -> None:
        """New nodes are there, in the `with` blocks of another one."""
        region = self.region_of(like)
        never_writes = self.calls.never_writes
        for node in nodes:
            if region:
                self._regions[node] = region
            if (not never_writes(node) or (node._kwargs and "out" in node._kwargs)) and self._writes(node):
                self._writers[node] = None

    def _between(self, first: Node, last: Node, inside: set[Node]) -> Iterable[Node]:
        node = first
        while node is not last and node.op != "root":
            node = node.next
            if node not in inside:
                yield node

    def _draws(self, node: Node) -> bool:
        return not self.calls.never_draws(node) and is_random(node, self.calls.module(node))

    def _writes(self, node: Node) -> list[Node]:
        """The values that an operation may write to."""
        return written_values(node, self.calls.module, self.calls.of)

    def _number_regions(self) -> None:
        open_ones: list[Node] = []
        numbers: dict[tuple[Node, ...], int] = {}
        for node in self._graph.nodes:
            if node.target is exit_context and node.args[0] in open_ones:
                open_ones.remove(node.args[0])
            if open_ones:
                self._regions[node] = numbers.setdefault(tuple(open_ones), len(numbers) + 1)
            if node.target is enter_context or _is_switch(node):
                open_ones.append(node)


def _is_switch(node: Node) -> bool:
    """Tell whether a node, an unknown call of nothing, may switch gradients or the like for all that follows."""
    is_call = node.op == "call_function" and not node.all_input_nodes
    return is_call and node.target is not raise_error and operator_of(node) is None and is_impure(node)

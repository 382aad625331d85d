"""torch.fx's SubgraphMatcher on this engine: all places of a graph that look like another graph.

Operations are found in every spelling, modules by their class; what torch.fx finds is among it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from graphwright.errors import GraphError, PatternError
from graphwright.ir import Graph, Node
from graphwright.rewrite.calls import Calls
from graphwright.rewrite.match import Match
from graphwright.rewrite.pattern import Pattern
from graphwright.rewrite.rule import find
from graphwright.rewrite.steps import Attempt
from graphwright.runtime import graph_of


@dataclass
class InternalMatch:
    """A place where a pattern was found: torch.fx's type of it.

    anchors: the last operations of the pattern, or its output node.
    nodes_map: for each node of the pattern the node, or the literal, that it is.
    placeholder_nodes: what the inputs of the pattern are; returning_nodes: the values that it gives.
    name_node_map: nodes by the names that the pattern gives them, for SubgraphMatcherWithNameNodeMap.
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


def internal_match(pattern: Pattern, match: Match, output: Node | None = None) -> InternalMatch:
    """Write a match as torch.fx does; with `output`, the output node belongs to it."""
    nodes = nodes_map(pattern, match)
    inputs = [match.values[name] for name in pattern.variables]
    if output is not None:
        nodes[pattern.graph.output_node()] = output
    anchors = [pattern.graph.output_node()] if output is not None else pattern.anchors
    return InternalMatch(list(anchors), nodes, inputs, list(match.roots))


def nodes_map(pattern: Pattern, match: Match) -> dict[Node, Any]:
    """For each node of a pattern that was found the node, or the literal, that it is."""
    found: dict[Node, Any] = {}
    steps, values = match.steps, match.values
    for node, step in pattern.steps.items():
        if step in steps:
            found[node] = steps[step]
        elif step.name in values:
            found[node] = values[step.name]
    return found


def places_of(pattern: Pattern, graph: Graph, calls: Calls, gm: nn.Module) -> Iterator[Match]:
    """Each place of a graph where a pattern is and nothing else reads what is inside, in the order of the graph."""
    keys = pattern.keys()
    is_wanted: dict[Any, bool] = {}  # by opcode and target
    for node in graph.nodes:
        try:
            wanted = is_wanted[node._op, node._target]
        except KeyError:
            wanted = keys is None or not keys.isdisjoint(calls.keys(node))
            is_wanted[node._op, node._target] = wanted
        except TypeError:  # without a hash
            wanted = keys is None
        if wanted:
            attempt = Attempt(calls)
            found: list[Match] = []

            def is_closed(attempt: Attempt = attempt, found: list[Match] = found) -> bool:
                match = Match(attempt, [attempt.nodes[root] for root in pattern.roots], gm)
                roots, inside = match.roots, match.inside
                for node in match.nodes:
                    if node not in roots and not inside.issuperset(node.users):
                        return False
                if len(roots) > 1 and _comes_back(match):
                    return False
                found.append(match)
                return True

            find(pattern, node, attempt, is_closed)
            yield from found


def _comes_back(match: Match) -> bool:
    """Tell whether what a match gives reaches its inputs: as one operation it would need its own result."""
    inside = set(match.nodes)
    first = min(inside)
    waiting = [used for node in inside for used in node.all_input_nodes if used not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return True
        if node not in seen and first < node:
            seen.add(node)
            waiting += node.all_input_nodes
    return False


def _refuse_others(graph: Any) -> None:
    if not isinstance(graph, Graph):
        raise GraphError(
            f"a {type(graph).__module__}.{type(graph).__qualname__} is no graph of this library",
            fix="graphwright.from_fx(module).graph",
        )


class SubgraphMatcher:
    """Finds a graph in others, with torch.fx's arguments.

    pattern: the graph to find. Its inputs stand for any value.
    match_output: only where what the pattern gives is what the graph gives.
    match_placeholder: only where the inputs of the pattern are inputs of the graph.
    remove_overlapping_matches: of places that share an operation, the first counts.
    ignore_literals: a literal in the pattern stands for any.

    >>> from graphwright import symbolic_trace
    >>> pattern = symbolic_trace(lambda x: x.neg() + 1).graph
    >>> [match] = SubgraphMatcher(pattern).match(symbolic_trace(lambda x: 1 + -(x * 2)).graph)
    >>> match.returning_nodes, match.placeholder_nodes
    ([add], [mul])
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        _refuse_others(pattern)
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        self._pattern = Pattern(pattern, pattern.owning_module, any_literal=ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """List the places of a graph where the pattern is; with `node_name_match`, where a node is called so."""
        _refuse_others(graph)
        gm = graph.owning_module if graph.owning_module is not None else nn.Module()
        taken: set[Node] = set()
        found = []
        for match in places_of(self._pattern, graph, Calls(gm), gm):
            inputs = [match.values[name] for name in self._pattern.variables]
            if self.match_placeholder and not all(isinstance(x, Node) and x.op == "placeholder" for x in inputs):
                continue
            output = self._output(graph, match) if self.match_output else None
            if self.match_output and output is None:
                continue
            if node_name_match and not any(node.name == node_name_match for node in match.nodes):
                continue
            if self.remove_overlapping_matches and not taken.isdisjoint(match.nodes):
                continue
            taken.update(match.nodes)
            found.append(internal_match(self._pattern, match, output))
        return found

    def _output(self, graph: Graph, match: Match) -> Node | None:
        """The output of a graph, if it gives what the pattern gives."""
        output = graph.output_node()
        wanted = self.pattern.output_node().args[0]
        return output if _gives(wanted, output.args[0], self._pattern, match) else None


def _gives(wanted: Any, value: Any, pattern: Pattern, match: Match) -> bool:
    if isinstance(wanted, Node):
        return match.steps.get(pattern.steps[wanted]) is value
    if isinstance(wanted, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same_length and all(_gives(w, v, pattern, match) for w, v in zip(wanted, value, strict=True))
    if isinstance(wanted, dict):
        same_keys = isinstance(value, dict) and value.keys() == wanted.keys()
        return same_keys and all(_gives(w, value[key], pattern, match) for key, w in wanted.items())
    return bool(wanted == value)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A SubgraphMatcher whose pattern names nodes: it gives its values and, last, a dict of nodes by name.

    >>> import torch
    >>> from graphwright import symbolic_trace
    >>> def pattern(x):
    ...     neg = x.neg()
    ...     return neg + 1, {"inner": neg}
    >>> matcher = SubgraphMatcherWithNameNodeMap(symbolic_trace(pattern))
    >>> matcher.match(symbolic_trace(lambda x: torch.neg(x) + 1).graph)[0].name_node_map
    {'inner': neg}
    """

    def __init__(
        self,
        pattern_gm: nn.Module,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        graph = Graph(owning_module=pattern_gm)
        values: dict[Node, Any] = {}
        result = graph.graph_copy(graph_of(pattern_gm), values)
        if not (isinstance(result, list | tuple) and result and isinstance(result[-1], dict)):
            raise PatternError(
                "the pattern names no nodes", fix="return a dict of nodes by name after its values: y, {'inner': x}"
            )
        *plain, self._names = result
        graph.output(plain[0] if len(plain) == 1 else tuple(plain))
        super().__init__(graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """List the places of a graph where the pattern is, each with the nodes that the pattern names."""
        found = super().match(graph, node_name_match)
        for match in found:
            match.name_node_map = {name: match.nodes_map[node] for name, node in self._names.items()}
        return found

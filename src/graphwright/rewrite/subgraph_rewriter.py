"""torch.fx's `replace_pattern` on this engine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from graphwright.errors import PatternError
from graphwright.ir import Graph, Node
from graphwright.rewrite.calls import Calls
from graphwright.rewrite.editing import Refused, apply
from graphwright.rewrite.effects import GraphEffects
from graphwright.rewrite.pattern import Pattern, captured
from graphwright.rewrite.replacement import Template
from graphwright.rewrite.subgraph_matcher import InternalMatch, internal_match, nodes_map, places_of
from graphwright.runtime import delete_attribute, graphs_of, transaction

Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A place that was replaced: the node where the pattern ends, and what each of its nodes was."""

    anchor: Node
    nodes_map: dict[Node, Any]


@dataclass
class ReplacedPatterns:
    """A place that was replaced, with the nodes that stand there now."""

    anchor: Node
    nodes_map: dict[Node, Any]
    replacements: list[Node]


def replace_pattern(gm: nn.Module, pattern: Any, replacement: Any) -> list[Match]:
    """Put `replacement` wherever `pattern` is, in a captured module and in place; return the places.

    Both are functions, modules, graphs or captured modules, and correspond in the order of their inputs. A place
    counts where nothing else reads what is inside; what a replacement brings is not looked at again. `rewrite` does
    more: it leaves such values where they are, goes on until nothing is found, and says what it refused and why.

    >>> import torch
    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x, y: torch.cat([torch.neg(x), y]).sum() + torch.cat([torch.neg(y), x]).sum())
    >>> found = replace_pattern(
    ...     gm, lambda a, b: torch.cat([torch.neg(a), b]).sum(), lambda c, d: torch.stack([c, d]))
    >>> [match.anchor for match in found]
    [sum_1, sum_1]
    >>> print(gm.code.strip())
    def forward(self, x, y):
        stack = torch.stack([x, y])
        stack_1 = torch.stack([y, x]);  y = x = None
        add = stack + stack_1;  stack = stack_1 = None
        return add
    """
    return [Match(anchor, nodes) for anchor, nodes, _ in _replace(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: nn.Module,
    pattern: Any,
    replacement: Any = None,
    match_filters: Sequence[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """`replace_pattern` where all filters agree, with a replacement that a callback may make for each place.

    Filters and callback are given the place, the graph and the pattern's graph. With `ignore_literals`, a literal in
    the pattern stands for any; with `node_name_match`, a place has to have a node of that name.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x.neg().sin() + x.sin())
    >>> of_input = lambda match, graph, pattern: match.placeholder_nodes[0].op == "placeholder"
    >>> [place] = replace_pattern_with_filters(gm, lambda x: x.sin(), lambda x: x.cos(), [of_input])
    >>> place.replacements
    [cos]
    """
    places = _replace(
        gm, pattern, replacement, match_filters or (), ignore_literals, replacement_callback, node_name_match
    )
    return [ReplacedPatterns(anchor, nodes, list(made)) for anchor, nodes, made in places]


def _replace(
    gm: nn.Module,
    pattern: Any,
    replacement: Any,
    filters: Sequence[Filter] = (),
    ignore_literals: bool = False,
    callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    name: str = "",
) -> list[tuple[Node, dict[Node, Any], tuple[Node, ...]]]:
    """Replace; give for each place the anchor, what the nodes of the pattern are, and the new nodes."""
    wanted = Pattern(*captured(pattern, "a pattern"), any_literal=ignore_literals)
    if replacement is None and callback is None:
        raise PatternError(
            "there is nothing to put in the place of the pattern", fix="give a replacement or a callback"
        )
    put = None if replacement is None else Template(*captured(replacement, "a replacement"), wanted, by_position=True)
    anchor = wanted.anchors[0]
    calls = Calls(gm)
    made: set[Node] = set()
    places = []
    may_fail = bool(filters) or callback is not None or len(wanted.roots) > 1
    called: set[str] = set()
    with transaction(gm) if may_fail else contextlib.nullcontext():
        for graph in [inner for outer in graphs_of(gm) for inner in outer.all_graphs()]:
            effects = GraphEffects(graph, calls)
            for match in places_of(wanted, graph, calls, gm):
                is_new = not made.isdisjoint(match.nodes)
                if is_new or (name and all(node.name != name for node in match.nodes)):
                    continue
                there, nodes = put, None
                if filters or callback is not None:
                    place = internal_match(wanted, match)
                    nodes = place.nodes_map
                    if not all(agrees(place, graph, wanted.graph) for agrees in filters):
                        continue
                if callback is not None:
                    there = Template(
                        *captured(callback(place, graph, wanted.graph), "a replacement"), wanted, by_position=True
                    )
                assert there is not None
                nodes = nodes_map(wanted, match) if nodes is None else nodes
                called |= {str(node.target) for node in match.nodes if node.op == "call_module"}
                try:
                    edit = apply(there, wanted, match, effects, tidy=False)
                except Refused:
                    continue
                made.update(edit.made)
                places.append((anchor, nodes, edit.made))
        if isinstance(replacement, nn.Module):  # as in torch.fx: it brings modules, and takes away those it replaces
            for path in called - _read_paths(gm):
                delete_attribute(gm, path)
    return places


def _read_paths(gm: nn.Module) -> set[str]:
    """The paths that the graphs of a module read or call, and those of what is around them."""
    nodes = [node for graph in graphs_of(gm) for node in graph.all_nodes() if node.op in ("get_attr", "call_module")]
    return {path for node in nodes for path in itertools.accumulate(str(node.target).split("."), "{}.{}".format)}

"""What does an edit of a graph cost?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from implementations import BASELINE, Implementation
from programs import chain_graph
from results import record
from timing import Case, interleave, rounds_for


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time each edit, done once at every node of a graph that is new in every round."""
    for nodes in node_counts:
        for name, (prepare, edit) in EDITS.items():
            cases = [
                Case(side.name, edit, lambda side=side, prepare=prepare, n=nodes: prepare(side, n), collector=False)
                for side in implementations
            ]
            record(f"edit/{name}/{nodes}", interleave(cases, BASELINE, min(rounds_for(nodes), 7)), nodes)


# ---- graphs to edit


def _chain(side: Implementation, nodes: int) -> tuple[Any, Any, list[Any]]:
    return chain_graph(side, nodes)


def _with_replacements(side: Implementation, nodes: int) -> tuple[Any, list[Any], list[Any]]:
    """A chain, its calls, and for each call an unused one that could take its place."""
    graph, placeholder, calls = chain_graph(side, nodes)
    replacements = []
    for call in calls:
        with graph.inserting_before(call):
            replacements.append(graph.call_function(torch.abs, (placeholder,)))
    return graph, calls, replacements


def _fan(side: Implementation, nodes: int) -> tuple[Any, Any]:
    """A value that every node uses, and one to put in its place."""
    graph, placeholder, _ = chain_graph(side, nodes, fan_out=True)
    with graph.inserting_after(placeholder):
        return placeholder, graph.call_function(torch.abs, ())


# ---- edits


def _insert_after(graph: Any, placeholder: Any, calls: list[Any]) -> None:
    for call in calls:
        with graph.inserting_after(call):
            graph.call_function(torch.abs, (call,))


def _insert_before(graph: Any, placeholder: Any, calls: list[Any]) -> None:
    for call in calls:
        with graph.inserting_before(call):
            graph.call_function(torch.abs, ())


def _replace_uses(graph: Any, calls: list[Any], replacements: list[Any]) -> None:
    for call, replacement in zip(calls, replacements, strict=True):
        call.replace_all_uses_with(replacement)


def _erase(graph: Any, calls: list[Any], unused: list[Any]) -> None:
    for node in unused:
        graph.erase_node(node)


def _replace_input(graph: Any, placeholder: Any, calls: list[Any]) -> None:
    for producer, consumer in pairwise(calls):
        consumer.replace_input_with(producer, placeholder)


def _set_args(graph: Any, placeholder: Any, calls: list[Any]) -> None:
    for call in calls:
        call.args = (placeholder,)


def _replace_uses_everywhere(before: Any, after: Any) -> None:
    before.replace_all_uses_with(after)


EDITS: dict[str, tuple[Callable[[Implementation, int], tuple[Any, ...]], Callable[..., None]]] = {
    "insert_after": (_chain, _insert_after),
    "insert_before": (_chain, _insert_before),
    "replace_all_uses_with": (_with_replacements, _replace_uses),
    "replace_all_uses_with, used by all": (_fan, _replace_uses_everywhere),
    "replace_input_with": (_chain, _replace_input),
    "erase_node": (_with_replacements, _erase),
    "set args": (_chain, _set_args),
}

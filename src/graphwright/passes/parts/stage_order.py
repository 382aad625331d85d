"""Stages by label: which stage each node is in, in an order in which each has what it needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from graphwright.analysis import Effects
from graphwright.errors import PassError, UnknownNameError
from graphwright.ir import Node
from graphwright.ops import enter_context, exit_context, is_impure
from graphwright.passes.parts.wanted_values import close_names
from graphwright.passes.support.bodies import module_of
from graphwright.runtime import is_guard


def labelled_stages(
    gm: nn.Module, nodes: list[Node], by: Mapping[str, Any] | Callable[[Node], Any]
) -> tuple[dict[Node, int], int]:
    """Give each node the number of its stage, and say how many there are.

    What is not labelled goes with the last stage that it reads from, or with the first that reads it. Effects keep
    their order. Raises PassError where stages need each other, and where a `with` block would be cut.
    """
    label_of = _by_path(gm, nodes, by) if isinstance(by, Mapping) else by
    labels = {node: label for node in nodes if (label := label_of(node)) is not None}
    if not labels:
        raise PassError("no node has a stage", fix="name modules that the program runs, or label nodes")
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels.values()))}
    order = _ordered(_needs(gm, nodes, labels, numbers), list(numbers))
    rank = {label: i for i, label in enumerate(order)}
    stage_of: dict[Node, int] = {}
    for node in nodes:
        if node in labels:
            stage_of[node] = rank[labels[node]]
        else:
            read = [stage_of[used] for used in node.all_input_nodes if used in stage_of]
            if read:
                stage_of[node] = max(read)
    for node in reversed(nodes):
        if node not in stage_of:
            stage_of[node] = min((stage_of[user] for user in node.users if user in stage_of), default=0)
    for node in nodes:
        for used in node.all_input_nodes:
            if stage_of.get(used, -1) > stage_of[node]:
                raise _cycle(node, used, order[stage_of[node]], order[stage_of[used]])
    _check_blocks(nodes, stage_of)
    _check_effects(gm, nodes, stage_of)
    return stage_of, len(order)


def _by_path(gm: nn.Module, nodes: list[Node], by: Mapping[str, Any]) -> Callable[[Node], Any]:
    known = {path for path, _ in gm.named_modules(remove_duplicate=False)}
    for path in by:
        if path not in known:
            raise UnknownNameError(f"no module is called {path!r}", fix=close_names(path, known - {""}))

    def label_of(node: Node) -> Any:
        origin = node.origin
        path = str(node.target) if node.op == "call_module" else origin.module if origin is not None else ""
        while path and path not in by:
            path = path.rpartition(".")[0]
        return by.get(path)

    return label_of


def _needs(
    gm: nn.Module, nodes: list[Node], labels: Mapping[Node, Any], numbers: Mapping[Any, int]
) -> dict[Any, dict[Any, tuple[Node, Node]]]:
    """For each label the others that it needs something of, with a node that does and what it needs."""
    needs: dict[Any, dict[Any, tuple[Node, Node]]] = {label: {} for label in numbers}
    reach: dict[Node, dict[Any, Node]] = {}  # the labelled values that an unlabelled one is made of
    for node in nodes:
        found: dict[Any, Node] = {}
        for used in node.all_input_nodes:
            if used in labels:
                found.setdefault(labels[used], used)
            else:
                for label, value in reach.get(used, {}).items():
                    found.setdefault(label, value)
        if node not in labels:
            reach[node] = found
            continue
        for label, value in found.items():
            if label != labels[node]:
                needs[labels[node]].setdefault(label, (node, value))
    for before, after in _effects(gm, nodes):
        if before in labels and after in labels and labels[before] != labels[after]:
            needs[labels[after]].setdefault(labels[before], (after, before))
    return needs


def _effects(gm: nn.Module, nodes: list[Node]) -> list[tuple[Node, Node]]:
    """Pairs of nodes that have to stay in order, though the later one does not read the earlier one."""
    find = module_of(gm)
    acting = [node for node in nodes if not is_guard(node) and is_impure(node, find(node), in_any_mode=True)]
    acting = [node for node in acting if node.target not in (enter_context, exit_context)]
    pairs = list(itertools.pairwise(acting))
    effects = Effects(gm)
    written = {node: [place for place in effects.writes(node) if place.name] for node in acting}
    writers = {node: places for node, places in written.items() if places}
    if writers:
        used = {node: effects.reads(node).union(written.get(node, ())) for node in nodes}
        for writer, places in writers.items():
            for each in nodes:
                pairs_of_places = itertools.product(places, used[each])
                if each is not writer and any(effects.may_be_same(one, other) for one, other in pairs_of_places):
                    pairs.append((writer, each) if writer < each else (each, writer))
    return pairs


def _ordered(needs: Mapping[Any, Mapping[Any, tuple[Node, Node]]], labels: list[Any]) -> list[Any]:
    """The labels, each after those that it needs, else by their first nodes."""
    order: list[Any] = []
    state: dict[Any, int] = {}

    def visit(label: Any) -> None:
        state[label] = 1
        for other, (node, value) in needs[label].items():
            if state.get(other) == 1:
                raise _cycle(node, value, label, other)
            if other not in state:
                visit(other)
        state[label] = 2
        order.append(label)

    for label in labels:
        if label not in state:
            visit(label)
    return order


def _cycle(node: Node, value: Node, label: Any, other: Any) -> PassError:
    return PassError(
        f"stages {label!r} and {other!r} would need each other: {node.name} of {label!r} comes after {value.name} of"
        f" {other!r}, and something of {other!r} after {label!r}",
        at=node.origin,
        fix="put what lies between into one of them, or into a third",
    )


def _check_blocks(nodes: list[Node], stage_of: Mapping[Node, int]) -> None:
    entered: list[Node] = []
    for node in nodes:
        if entered and stage_of[node] != stage_of[entered[-1]]:
            raise PassError("a `with` block would be in two stages", at=entered[-1].origin)
        if node.target is enter_context:
            entered.append(node)
        elif node.target is exit_context and entered:
            entered.remove(node.args[0])


def _check_effects(gm: nn.Module, nodes: list[Node], stage_of: Mapping[Node, int]) -> None:
    """Refuse that the order of effects changes by way of what was not labelled."""
    for before, after in _effects(gm, nodes):
        if stage_of[before] > stage_of[after]:
            raise PassError(
                f"{before.name} has to come before {after.name}, whose stage would run first",
                at=after.origin,
                fix="label both, or put them into one stage",
            )

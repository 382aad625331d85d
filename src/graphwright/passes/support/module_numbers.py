"""Numbers of modules that a pass needs as plain ones: taken for granted, and checked at each call from then on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from graphwright.ir import Node, map_arg
from graphwright.ops import is_region, written_attributes
from graphwright.runtime import facts_of_modules, graphs_of, has_attribute, keep_modules, read_attribute, spelled


def take_numbers(gm: nn.Module) -> int:
    """Put the numbers of modules that a program reads in the places where it reads them; return how many reads went.

    An `eps` or a scale so is the number that a pattern asks for. `expect_modules` sees it change.
    """
    taken = 0
    for graph in graphs_of(gm):
        written = written_attributes(graph)
        facts: dict[str, Any] = {path: dict(of_one) for path, of_one in facts_of_modules(graph).items()}
        for node in list(graph.all_nodes()):
            path = str(node.target)
            if node.op != "get_attr" or path in written or not has_attribute(gm, path):
                continue
            value = read_attribute(gm, path)
            if type(value) not in (int, float) or any(is_region(user) for user in node.users):
                continue
            _put(node, value)
            node.graph.erase_node(node)
            owner, _, name = path.rpartition(".")
            of_owner = facts.setdefault(owner, {})
            of_owner["values"] = {**of_owner.get("values", {}), name: value}
            taken += 1
        keep_modules(graph, facts)
    return taken


def renew_values(gm: nn.Module, path: str, values: Mapping[str, Any]) -> None:
    """Have graphs that take attributes of one module for granted take the values for granted that a pass gave them."""
    for graph in graphs_of(gm):
        facts = facts_of_modules(graph)
        known = facts.get(path, {}).get("values", {})
        renewed = {name: spelled(value) for name, value in values.items() if name in known}
        if renewed:
            keep_modules(graph, {**facts, path: {**facts[path], "values": {**known, **renewed}}})


def _put(node: Node, value: Any) -> None:
    """Put a number in the place of a node that reads it."""

    def put(used: Node) -> Any:
        return value if used is node else used

    for user in list(node.users):
        user.args, user.kwargs = map_arg(user.args, put), map_arg(user.kwargs, put)

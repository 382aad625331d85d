"""What the files about the form of torch's operators have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphwright.errors import ExportError
from graphwright.ir import Graph, Node

CONTAINERS = (enumerate, zip, reversed, list, tuple, dict, set, map, filter, sorted)


def no_operator(node: Node, what: str) -> ExportError:
    """What is raised for a branch or loop that torch's operators cannot say."""
    return ExportError(
        f"torch's operators for branches and loops cannot say {what}: node {node.name}",
        at=node.origin or node.name,
        fix="keep that in a leaf module or function, or capture the way of the example: "
        "trace(model, args, control_flow='follow', static=[...])",
    )


def call(graph: Graph, function: Callable[..., Any], *args: Any) -> Node:
    return graph.call_function(function, args)


def names_of(body: Graph, skipped: int) -> list[str]:
    return [node.name for node in body.placeholders()][skipped:]

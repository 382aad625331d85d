"""What the compiler wrote and nothing came to use is removed, in the bodies of loops and branches first."""

from __future__ import annotations

from graphwright.capture import erase_unused
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import is_loop, loop_parts


def tidy(graph: Graph) -> None:
    """Erase flags that nobody asks, attributes that are not read, and inputs of bodies that are not used."""
    for node in reversed(list(graph.nodes)):
        for body in bodies_of(node):
            tidy(body)
        if is_loop(node):
            _drop_operands(node)
    erase_unused(graph)


def _drop_operands(node: Node) -> None:
    """Remove the operands of a loop that none of its bodies uses."""
    operands = loop_parts(node).operands
    inputs = [[each for each in body.nodes if each.op == "placeholder"] for body in bodies_of(node)]
    columns = list(zip(*[placeholders[len(placeholders) - len(operands) :] for placeholders in inputs], strict=True))
    used = [any(placeholder.users for placeholder in column) for column in columns]
    if all(used):
        return
    for column, is_used in zip(columns, used, strict=True):
        for placeholder in column if not is_used else ():
            placeholder.graph.erase_node(placeholder)
    kept = tuple([operand for operand, is_used in zip(operands, used, strict=True) if is_used])
    node.args = (*node.args[:3], kept, *node.args[4:])

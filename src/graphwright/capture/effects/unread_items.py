"""Lists of the run that a capture made and of which some items are never read: what is written there is removed."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond, for_loop, transformed, while_loop


@dataclasses.dataclass(eq=False)
class _Uses:
    """The nodes that read and write items of one list, and those that only hand it on, with the operand's number."""

    reads: list[Node] = dataclasses.field(default_factory=list)
    writes: list[Node] = dataclasses.field(default_factory=list)
    hands_on: list[tuple[Node, int]] = dataclasses.field(default_factory=list)


def drop_unread_items(graph: Graph) -> bool:
    """Remove the items of lists that are written and never read; return whether there were any."""
    changed = False
    for node in [node for node in graph.all_nodes_now() if node._op == "call_function" and node._target is list]:
        uses = _Uses()
        is_there = node._position is not None and len(node.args) == 1 and isinstance(node.args[0], list)
        if is_there and _collect(node, uses):
            changed |= _drop(node, uses)
    return changed


def _collect(value: Node, uses: _Uses) -> bool:
    """Collect the uses of a list; False where it may be read as a whole."""
    for user in value.users:
        if user.target is operator.getitem and user.args[0] is value and type(user.args[1]) is int:
            uses.reads.append(user)
        elif user.target is operator.setitem and user.args[0] is value and _is_number(user) and not user.users:
            uses.writes.append(user)
        elif (place := _OPERANDS.get(user.target)) is not None:
            operands = user.args[place]
            if sum(used is value for used in user.all_input_nodes) != 1 or operands.count(value) != 1:
                return False
            number = list(operands).index(value)
            uses.hands_on.append((user, number))
            for body in bodies_of(user):
                inputs = [inner for inner in body.nodes if inner.op == "placeholder"]
                if not _collect(inputs[number - len(operands)], uses):
                    return False
        else:
            return False
    return True


def _is_number(node: Node) -> bool:
    return type(node.args[1]) is int and node.args[2] is not node.args[0]


def _drop(node: Node, uses: _Uses) -> bool:
    read = sorted({user.args[1] for user in uses.reads})
    items: Any = node.args[0]
    if read and len(read) == len(items):
        return False
    for write in uses.writes:
        if write.args[1] not in read:
            write.graph.erase_node(write)
        else:
            write.args = (write.args[0], read.index(write.args[1]), write.args[2])
    for user in uses.reads:
        user.args = (user.args[0], read.index(user.args[1]))
    node.args = ([items[i] for i in read],)
    if not read:
        for user, number in reversed(uses.hands_on):  # those inside others first
            _drop_operand(user, number)
        node.graph.erase_node(node)
    return True


def _drop_operand(user: Node, number: int) -> None:
    place = _OPERANDS[user.target]
    operands = list(user.args[place])
    for body in bodies_of(user):
        inputs = [inner for inner in body.nodes if inner.op == "placeholder"]
        body.erase_node(inputs[number - len(operands)])
    del operands[number]
    args = list(user.args)
    args[place] = tuple(operands)
    user.args = tuple(args)


_OPERANDS = {cond: 3, for_loop: 3, while_loop: 3, transformed: 3}

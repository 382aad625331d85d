"""What a capture made and nothing reads: items of lists of the run, and values that loops carry."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond, drop_operands, for_loop, keep_carried, loop_parts, transformed, while_loop

_LOOPS = (for_loop, while_loop)
_WITH_OPERANDS = (cond, *_LOOPS, transformed)


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


def drop_unread_carried(graph: Graph) -> bool:
    """Remove the values that loops carry though nothing reads them; return whether there were any.

    The last loop comes first. Such is the variable of `for i in ...` where there are two of these loops.
    """
    changed = False
    for node in [node for node in graph.all_nodes_now() if node._target in _LOOPS][::-1] if graph.has_bodies else ():
        items = [user for user in node.users if user.target is operator.getitem and user.args[0] is node]
        if node._position is None or len(items) != len(node.users):
            continue
        read, numbers = {item.args[1] for item in items if item.users}, range(len(loop_parts(node).carried))
        kept = [number for number in numbers if number in read or not _is_only_carried(node, number)]
        if len(kept) < len(numbers):
            keep_carried(node, kept)
            changed = True
    return changed


def _carried_input(node: Node, body: Graph, number: int) -> Node:
    parts, inputs = loop_parts(node), body.placeholders()
    return inputs[len(inputs) - len(parts.operands) - len(parts.carried) + number]


def _is_only_carried(node: Node, number: int) -> bool:
    """Tell whether no iteration reads a carried value, but to hand it on as it is."""
    parts = loop_parts(node)
    for body in bodies_of(node):
        value = _carried_input(node, body, number)
        given = parts.given if body is parts.body else ()
        is_handed_on = bool(given) and given[number] is value and [each is value for each in given].count(True) == 1
        rest = [user for user in value.users if user.op != "output" or parts.stop is value]
        if rest or (value.users and not is_handed_on):
            return False
    return True


def _collect(value: Node, uses: _Uses) -> bool:
    """Collect the uses of a list; False where it may be read as a whole."""
    for user in value.users:
        if user.target is operator.getitem and user.args[0] is value and type(user.args[1]) is int:
            uses.reads.append(user)
        elif user.target is operator.setitem and user.args[0] is value and _is_number(user) and not user.users:
            uses.writes.append(user)
        elif user.target in _WITH_OPERANDS:
            operands = user.args[3]
            if sum(used is value for used in user.all_input_nodes) != 1 or operands.count(value) != 1:
                return False
            number = list(operands).index(value)
            uses.hands_on.append((user, number))
            for body in bodies_of(user):
                inputs = body.placeholders()
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
            drop_operands(user, {number})
        node.graph.erase_node(node)
    return True

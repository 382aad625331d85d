"""What a capture made and nothing reads: items of lists of the run, and values that loops carry."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond, for_loop, loop_parts, transformed, while_loop

_LOOPS = (for_loop, while_loop)


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
        read = {item.args[1] for item in items if item.users}
        unread = [number for number in range(len(loop_parts(node).carried)) if number not in read]
        for number in [number for number in unread if _is_only_carried(node, number)][::-1]:
            _drop_carried(node, items, number)
            changed = True
    return changed


def _carried_input(node: Node, body: Graph, number: int) -> Node:
    parts, inputs = loop_parts(node), [inner for inner in body.nodes if inner.op == "placeholder"]
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


def _drop_carried(node: Node, items: list[Node], number: int) -> None:
    parts = loop_parts(node)
    output = parts.body.output_node()
    given: Any = list(output.args[0])
    del given[number + parts.breaks]
    output.args = (tuple(given),)
    for body in bodies_of(node):
        body.erase_node(_carried_input(node, body, number))
    args = list(node.args)
    args[2] = parts.carried[:number] + parts.carried[number + 1 :]
    node.args = tuple(args)
    for item in [item for item in items if item._position is not None]:
        place: Any = item.args[1]
        if place == number:
            item.graph.erase_node(item)
        elif place > number:
            item.args = (node, place - 1)


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

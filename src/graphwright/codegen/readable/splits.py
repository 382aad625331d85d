"""Where a body ends: the values that it ends with, and the branch at its end whose sides end it, if there is one.

A branch at the end of a body is written so that each of its sides ends the body: a side that breaks has its `break`,
and what comes after such a side needs no `else`. `split_at_end` finds such a branch.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from graphwright.codegen.readable.expressions import Expression
from graphwright.codegen.readable.unpacking import unpacked_items
from graphwright.codegen.readable.user_statements import is_from_for, is_from_if, is_from_return
from graphwright.codegen.regions import region_exits
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import cond, ends_by_raising, exit_context, is_loop


@dataclasses.dataclass(frozen=True, slots=True)
class Outside:
    """A value that a body ends with and does not give itself."""

    value: Any


# Where a value of an ending comes from: an item of what the body gives, all of it (None), or from outside.
Slot = int | Outside | None


def values_of(output: Node, slots: Sequence[Slot]) -> list[Any]:
    """The values that a body ends with."""
    given: Any = output._args[0] if output._args else None
    return [slot.value if isinstance(slot, Outside) else given if slot is None else given[slot] for slot in slots]


def bare_conditions(values: Sequence[Any], conditions: frozenset[int]) -> list[Any]:
    """The values that a body ends with, without `bool()` around those of which nothing but their truth counts."""
    return [
        value._args[0] if i in conditions and type(value) is Node and _is_truth(value) else value
        for i, value in enumerate(values)
    ]


def _is_truth(value: Node) -> bool:
    return value._target is bool and len(value._args) == 1 and type(value._args[0]) is Node


def last_inside(output: Node) -> Node:
    """The last node before the output, but for those that leave the `with` blocks in which the body ends."""
    node = output._prev
    if node._target is exit_context:
        exits = {*region_exits(output.graph.nodes).values()}
        while node in exits:
            node = node._prev
    return node


def is_returned(value: Node) -> bool:
    """Tell whether a value comes from a `return` statement, or is that of a branch whose sides end with one.

    So does a branch of a loop that is written turn by turn: on one side it is left.
    """
    if is_from_return(value):
        return True
    if value._target is operator.getitem and type(value._args[0]) is Node:
        value = value._args[0]
    if value._target is not cond or not all(isinstance(body, Graph) for body in value._args[1:3]):
        return False
    ends = [body.output_node() for body in value._args[1:3] if not ends_by_raising(body)]
    return is_from_for(value) or any(is_returned(node) for end in ends for node in nodes_in(end._args))


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """A branch whose sides end the body, and where each side gets the values from that the body ends with.

    What is `unread` is known on each side.
    """

    branch: Node
    items: tuple[Node, ...]
    unread: tuple[Node, ...]
    slots: dict[bool, list[Slot]]

    def side(self, is_true: bool) -> Graph:
        """One of the two bodies."""
        return self.branch._args[1 if is_true else 2]  # type: ignore[no-any-return]


def branch_at_end(output: Node) -> tuple[Node, tuple[Node, ...]] | None:
    """The branch that a body ends with, and the items of its value, where nothing but the output reads them."""
    items = []
    node = last_inside(output)
    while node._op == "call_function" and (not node.users or list(node.users) == [output]):
        if node._target is operator.getitem:
            items.append(node)
        elif node._target not in _TRUTHS:
            break
        node = node._prev
    if node._target is not cond or not all(isinstance(body, Graph) for body in node._args[1:3]):
        return None
    if any(item._args[0] is not node or type(item._args[1]) is not int for item in items):
        return None
    if set(node.users) != set(items) if items else list(node.users) not in ([output], []):
        return None
    for body in node._args[1:3]:
        last = body._root._prev
        if not ends_by_raising(body) and (last._op != "output" or not _has_items(last._args, items)):
            return None
    return node, tuple(items[::-1])


_TRUTHS = (bool, operator.truth, operator.not_)


def truth_of(value: Any, pred: Any) -> bool | None:
    """What a value is where a condition holds, if it is the condition as True or False, or its opposite; else None."""
    is_call = type(value) is Node and value._op == "call_function" and value._target in _TRUTHS
    return value._target is not operator.not_ if is_call and value._args == (pred,) else None


def _has_items(args: Sequence[Any], items: Sequence[Node]) -> bool:
    """Tell whether the value of an output has all of these items, as far as it is seen."""
    value = args[0] if args else None
    return not items or (isinstance(value, tuple) and all(0 <= item._args[1] < len(value) for item in items))


def split_at_end(output: Node, values: Sequence[Any], conditions: frozenset[int]) -> Split | None:
    """Split a body at the branch that it ends with, if that decides the first value: whether the loop ends."""
    found = branch_at_end(output)
    if found is None:
        return None
    split = split_by(*found, values, conditions)
    is_known = not isinstance(values[0], Node | Expression) if values else True
    return split if split is not None and (is_known or _decides(split)) else None


def split_by(branch: Node, items: tuple[Node, ...], values: Sequence[Any], conditions: frozenset[int]) -> Split | None:
    """Split a body at a branch; None where a value holds an item inside a container."""
    slots: dict[bool, list[Slot]] = {True: [], False: []}
    pred = branch._args[0]
    unread = []
    for i, value in enumerate(values):
        truth = True if i in conditions and type(value) is Node and value is pred else truth_of(value, pred)
        if truth is not None and value is not pred and all(user._op == "output" for user in value.users):
            unread.append(value)
        for is_true in (True, False):
            if truth is not None:
                slots[is_true].append(Outside(is_true is truth))
            elif value is branch:
                slots[is_true].append(None)
            elif type(value) is Node and value in items:
                slots[is_true].append(value._args[1])
            elif any(used is branch or used in items for used in nodes_in(value)):
                return None
            else:
                slots[is_true].append(Outside(value))
    return Split(branch, items, tuple(unread), slots)


def split_where_returned(output: Node, values: Sequence[Any] | None = None) -> Split | None:
    """Split a program at the branch that it ends with, where the sides return several values in the source.

    So it is split where the branch asks whether a loop before it was left by a `return`. `values` are what the body
    gives; without them it is the program's own, which returns them in a container.
    """
    found = branch_at_end(output)
    if found is None or not found[1]:
        return None
    branch, items = found
    if values is None and {*nodes_in(output._args)} != {*items}:
        return None
    is_split = is_returned(branch) or (_asks_of_loop(branch) if values is None else is_from_if(branch))
    if not is_split:
        return None
    return split_by(branch, items, items if values is None else values, frozenset())


def _asks_of_loop(branch: Node) -> bool:
    """Tell whether a branch asks for the last value that a loop right before it gives."""
    flag = branch._args[0]
    loop = flag._args[0] if type(flag) is Node and flag._args else None
    taken = unpacked_items(loop) if type(loop) is Node and is_loop(loop) else None
    last = next((item for item in reversed(taken) if item is not None), None) if taken else None
    return last is not None and last._next is branch


def _decides(split: Split) -> bool:
    """Tell whether on one of the sides, or inside it, it is known whether the loop ends."""
    for is_true, slots in split.slots.items():
        if isinstance(slots[0], Outside):
            return isinstance(slots[0].value, bool)
        body = split.side(is_true)
        if ends_by_raising(body):
            continue
        output = body.output_node()
        values = values_of(output, slots)
        if isinstance(values[0], bool) or split_at_end(output, values, frozenset([0])):
            return True
    return False


def outcomes(body: Graph, values: Sequence[Any], conditions: frozenset[int]) -> Iterator[list[Any]]:
    """The values at each end of a body and of the branches that it ends with, as far as they are written there."""
    if ends_by_raising(body):
        return
    values = bare_conditions(values, conditions)
    split = split_at_end(body.output_node(), values, conditions)
    if split is None:
        yield values
        return
    for is_true, slots in split.slots.items():
        side = split.side(is_true)
        if ends_by_raising(side):
            continue
        inputs = side.placeholders()
        around = dict(zip(inputs, split.branch._args[3], strict=True))
        given = values_of(side.output_node(), slots)
        resolved = [around.get(value, value) if type(value) is Node else value for value in given]
        yield from outcomes(side, resolved, conditions)

"""Values that are taken apart right after they are made: `a, b = value`."""

from __future__ import annotations

import operator
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphwright.ir import Graph, Node
from graphwright.ops import cond, is_attempt, is_region, unpack

if TYPE_CHECKING:
    from graphwright.codegen.readable.writer import ReadableWriter


def unpacked_items(node: Node) -> list[Node | None] | None:
    """The items of a node with several values, None for unused ones, where taking them is all that is done with it.

    That is so of `unpack`, written as `a, b = value`, and of branches and loops.
    """
    count = _count_of_values(node)
    if count is None or not node.users:
        return None
    items: list[Node | None] = [None] * count
    following = node
    for user in node.users:
        following = following._next
        index = user._args[1] if user._target is operator.getitem else None
        if user is not following or type(index) is not int or not 0 <= index < len(items) or items[index] is not None:
            return None
        items[index] = user
    return items if len(items) > 1 or node._target is unpack or is_region(node) or is_attempt(node) else None


def unpacked_inside(node: Node) -> dict[Node, Node]:
    """The items of a node, and theirs, that are taken apart right behind it, each with what does: `a, (b, c) = x`."""
    found: dict[Node, Node] = {}
    items = [item for item in unpacked_items(node) or () if item is not None]
    following = node
    for _ in items:
        following = following._next
    while following._next._target is unpack:
        following = following._next
        item, inner = following._args[0], [part for part in unpacked_items(following) or () if part is not None]
        if item not in items or len(item.users) != 1 or not inner:
            break
        found[item] = following
        items += inner
        for _ in inner:
            following = following._next
    return found


def unpacking_targets(
    writer: ReadableWriter, items: Sequence[Node | None], inside: Mapping[Node, Node] = types.MappingProxyType({})
) -> str:
    """Write the variables that the items of a value get, as they stand before `=`; `inside` take items apart."""
    unused, targets = writer.names.new("_") if None in items else "", []
    for item in items:
        if item is not None and item in inside:
            targets.append(f"({unpacking_targets(writer, unpacked_items(inside[item]) or (), inside)})")
        else:
            targets.append(unused if item is None else writer.name(item))
    return ", ".join(targets) + ("," if len(items) == 1 else "")


def takes_rows(node: Node) -> bool:
    """Tell whether a node takes the rows of a tensor for `a, b = x`, in a line that does not say `x.unbind()`."""
    if node._op != "call_method" or node._target != "unbind" or len(node._args) != 1 or node._kwargs:
        return False
    is_alone = len(node.users) == 1 and next(iter(node.users))._target is unpack
    return is_alone and node.origin is not None and "unbind" not in node.origin.source


def unpacking_of(node: Node) -> Node | None:
    """The node after this one that only takes its value apart, where that is all that is done with it."""
    if is_attempt(node):
        return node if unpacked_items(node) is not None else None
    following = node._next
    is_alone = list(node.users) == [following] and following._target is unpack
    return following if is_alone and unpacked_items(following) else None


def _count_of_values(node: Node) -> int | None:
    if is_attempt(node):
        return 1 + int(node._args[4]["count"])
    if node._target is unpack and len(node._args) == 2 and type(node._args[1]) is int:
        return node._args[1]
    if node._target is cond and all(isinstance(body, Graph) for body in node._args[1:3]):
        values = [body.output_node()._args[0] for body in node._args[1:3]]
        if all(type(value) is tuple for value in values) and len(values[0]) == len(values[1]):
            return len(values[0])
    if is_region(node) and node._target is not cond:
        return len(node._args[2])
    return None

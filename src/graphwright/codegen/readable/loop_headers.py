"""What a loop names for each item: `for i, (a, b) in enumerate(zip(x, y)):`."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from graphwright.codegen.readable.unpacking import takes_rows, unpacked_items
from graphwright.codegen.readable.variables import base_of
from graphwright.codegen.readable.writer import ReadableWriter
from graphwright.ir import Node
from graphwright.ops import unpack

_Shape = list[Any] | None  # of an item: the shapes of its items, None where nothing is known


def header_of(
    writer: ReadableWriter, item: Node, iterable: Any, held: Mapping[Node, str]
) -> tuple[str, dict[Node, str]]:
    """Write what stands between `for` and `in`, with the names of the nodes of the body that it makes.

    What is `held` has its variable after the loop, too.
    """
    names: dict[Node, str] = {}
    pattern = _pattern(writer, item, _shape_of_items(iterable), names, item.name, held)
    return pattern if isinstance(pattern, str) else _listed(pattern), names


def _pattern(
    writer: ReadableWriter, value: Node, shape: _Shape, names: dict[Node, str], wish: str, held: Mapping[Node, str]
) -> str | list[str]:
    """The name of a value, or what is written for its items where it is taken apart."""
    if not value.users:
        if value._op != "placeholder":
            names[value] = "_"
        return _unused(writer)
    taken = _items(value, shape)
    if taken is None:
        name = held.get(value) or writer.fresh(wish)
        if value._op != "placeholder":
            names[value] = name
        return name
    nodes, items = taken
    names.update(dict.fromkeys([*nodes, value] if value._op != "placeholder" else nodes, "_"))
    texts = []
    for i, item in enumerate(items):
        if item is None:
            texts.append(_unused(writer))
            continue
        wish = item.name if base_of(item.name) != "getitem" else f"{value.name}_{i}"
        inner = _pattern(writer, item, None if shape is None else shape[i], names, wish, held)
        texts.append(inner if isinstance(inner, str) else f"({_listed(inner)})")
    return texts


def _unused(writer: ReadableWriter) -> str:
    return "_" if "_" not in writer.names else writer.fresh("_")


def _listed(texts: list[str]) -> str:
    return f"{', '.join(texts)}{',' * (len(texts) == 1)}"


def _items(value: Node, shape: _Shape) -> tuple[list[Node], list[Node | None]] | None:
    """The nodes that take a value apart, where that is all that is done with it, and its items."""
    users = list(value.users)
    if len(users) == 1 and takes_rows(users[0]):
        users += users[0].users
    if len(value.users) == 1 and users[-1]._target is unpack:
        items = unpacked_items(users[-1])
        return None if items is None else (users, items)
    if shape is None:
        return None
    items = [None] * len(shape)
    for user in users:
        index = user._args[1] if user._target is operator.getitem else None
        if type(index) is not int or not 0 <= index < len(items) or items[index] is not None:
            return None
        items[index] = user
    return [], items


def _shape_of_items(iterable: Any) -> _Shape:
    if type(iterable) is not Node or iterable._op != "call_function":
        return None
    if iterable._target is enumerate and iterable._args:
        return [None, _shape_of_items(iterable._args[0])]
    if iterable._target is zip and not iterable._kwargs:
        return [_shape_of_items(arg) for arg in iterable._args]
    return None

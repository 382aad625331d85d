"""What a loop carries: values of the program with places in them for what changes from one iteration to the next."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from graphwright.values import Kind, made, parts

__all__ = ["Born", "BornIf", "BornInRun", "Slot", "Tree", "filled", "is_same", "note"]


@dataclasses.dataclass(eq=False)
class Slot:
    """A value that a loop carries: what it is before the loop, an example of it, and what an iteration leaves."""

    initial: Any
    sample: Kind
    name: str
    after: Any = None
    last: Any = None  # what the last iteration of the example leaves
    result: Any = None  # after the loop
    of: tuple[Any, ...] = ()  # the list that a list of the run is a copy of


@dataclasses.dataclass(eq=False)
class Tree:
    """A container with slots in it; `of` are those that it may be: before the loop, and after an iteration."""

    kind: type
    items: dict[Any, Any]
    of: tuple[Any, ...] = ()


@dataclasses.dataclass(eq=False)
class Born:
    """A variable that has its first value in the loop: what it is before, and what an iteration leaves."""

    entry: Any
    after: Any
    name: str
    last: Any = None  # what the last iteration of the example leaves


@dataclasses.dataclass(eq=False)
class BornIf:
    """A variable that has a value where the loop was left: the template of that value."""

    tree: Any
    name: str


@dataclasses.dataclass(eq=False)
class BornInRun:
    """A variable that has a value where the loop ran: its template, and a slot that is None where it did not."""

    tree: Any
    name: str
    witness: Slot


def filled(tree: Any, values: dict[Any, Any]) -> Any:
    """A value with what each slot in it has; what is made for a tree is one of the values from then on."""
    if isinstance(tree, Slot):
        return values[tree]
    if isinstance(tree, Born):
        return tree.entry
    if not isinstance(tree, Tree):
        return tree
    if tree not in values:
        values[tree] = made(tree.kind, {key: filled(item, values) for key, item in tree.items.items()})
    return values[tree]


def note(tree: ast.AST, value: Any) -> None:
    """Note what an iteration of the example leaves for each slot."""
    if isinstance(tree, Slot):
        tree.last = value
    elif isinstance(tree, Tree):
        held = parts(value) or {}
        for key, item in tree.items.items():
            note(item, held.get(key))
    elif isinstance(tree, Born):
        tree.last = value


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two states of a value are the same, containers by what they hold."""
    if one is other:
        return True
    mine, its = parts(one), parts(other)
    if type(one) is set and type(other) is set:
        return one == other
    if mine is None or its is None or type(one) is not type(other) or list(mine) != list(its):
        return False
    return all(is_same(mine[key], its[key]) for key in mine)

"""Containers of the standard library, and heaps: `deque`, `defaultdict`, `OrderedDict`, `Counter`, `heapq`."""

from __future__ import annotations

import ast
import collections
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.script.program.values import Reference, Value, is_outside
from graphwright.script.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    NONE,
    STR,
    DictType,
    Hole,
    ListType,
    SetType,
    TupleType,
    Type,
    item_type,
    join,
    resolved,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

Args = list[Value]
Words = dict[str, Value]
_MADE: dict[Any, Callable[[], Type]] = {  # what a `defaultdict` puts where nothing is, by what makes it
    int: lambda: INT, float: lambda: FLOAT, bool: lambda: BOOL, str: lambda: STR,
    list: lambda: ListType(Hole()), set: lambda: SetType(Hole()), dict: lambda: DictType(Hole(), Hole()),
    collections.deque: lambda: ListType(Hole(), collections.deque),
    collections.Counter: lambda: DictType(Hole(), INT, collections.Counter),
}  # fmt: skip


def item_of(c: Context, value: Value, node: ast.AST) -> Type:
    """The type of what a value gives one by one; of what cannot be gone over, that is said, and nothing is known."""
    kind = item_type(value.type)
    if kind is None:
        c.problem(f"cannot go over a value of type {value.type}", node, "go over range(n), a list or a tensor")
    return kind or ANY


def _deque(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kind = item_of(c, args[0], node) if args else Hole()
    return c.make(
        "call_function", collections.deque, args, ListType(kind, collections.deque), node, kwargs, named=named
    )


def _defaultdict(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    factory = args[0].value if args and isinstance(args[0], Reference) else None
    if factory not in _MADE:
        return c.problem(
            "a defaultdict makes its values with a class of Python's here", node,
            "defaultdict(list), defaultdict(int), ...; or values.setdefault(key, value)",
        )  # fmt: skip
    kind = DictType(Hole(), _MADE[factory](), collections.defaultdict)
    if len(args) > 1 and join(DictType(kind.key, kind.item), _of_pairs(args[1])) is None:
        return c.problem(f"this defaultdict holds {kind.item}, and is given {args[1].type}", node, "make them alike")
    return c.make("call_function", collections.defaultdict, args, kind, node, kwargs, named=named)


def _ordered(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    held = _of_pairs(args[0]) if args else DictType(Hole(), Hole())
    kind = DictType(held.key, held.item, collections.OrderedDict)
    return c.make("call_function", collections.OrderedDict, args, kind, node, kwargs, named=named)


def _counter(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    key = item_of(c, args[0], node) if args else STR if kwargs else Hole()
    kind = DictType(key, INT, collections.Counter)
    return c.make("call_function", collections.Counter, args, kind, node, kwargs, named=named)


def _of_pairs(value: Value) -> DictType:
    """The type of a dict that is made of a value: of another dict, or of pairs."""
    kind = resolved(value.type)
    if isinstance(kind, DictType):
        return DictType(kind.key, kind.item)
    item = item_type(kind)
    pair = item.items if isinstance(item, TupleType) and len(item.items) == 2 else (ANY, ANY)
    return DictType(*pair)


def _on_heap(function: Any, added: bool, gives: bool) -> Callable[..., Value]:
    def on_heap(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
        if args and is_outside(args[0]):
            return c.changes_outside(args[0], node)
        heap = resolved(args[0].type) if args else ANY
        if not isinstance(heap, ListType) or heap.kind is not list:
            return c.problem(f"{function.__name__} takes a list, and is given {heap}", node, "heap: List[float] = []")
        if added and len(args) > 1 and join(heap.item, args[1].type) is None:
            return c.problem(f"a list of {heap.item} items is given {args[1].type}", node, "put in what is alike")
        return c.make("call_function", function, args, resolved(heap.item) if gives else NONE, node, named=named)

    return on_heap


def _best(function: Any) -> Callable[..., Value]:
    def best(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
        if "key" in kwargs or len(args) != 2:
            return c.problem(f"{function.__name__} with a key cannot be scripted", node, "sorted(values, key=...)[:n]")
        return c.make("call_function", function, args, ListType(item_of(c, args[1], node)), node, named=named)

    return best


CONTAINERS: dict[Any, Callable[[Context, Args, Words, ast.AST, str], Value]] = {
    collections.deque: _deque, collections.defaultdict: _defaultdict, collections.OrderedDict: _ordered,
    collections.Counter: _counter, heapq.heappush: _on_heap(heapq.heappush, True, False),
    heapq.heappop: _on_heap(heapq.heappop, False, True), heapq.heapify: _on_heap(heapq.heapify, False, False),
    heapq.heappushpop: _on_heap(heapq.heappushpop, True, True),
    heapq.heapreplace: _on_heap(heapq.heapreplace, True, True),
    heapq.nlargest: _best(heapq.nlargest), heapq.nsmallest: _best(heapq.nsmallest),
}  # fmt: skip

"""Comprehensions: a list that a loop fills, or, over what is known one by one, the items written out."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from graphwright.ir import Node, bodies_of
from graphwright.ops import is_impure, is_region
from graphwright.script.program.values import BAD, Bad, Display, Runtime, Value
from graphwright.script.statements.loops import for_statement, static_items
from graphwright.script.types import TENSOR, DictType, Hole, ListType, SetType, Type
from graphwright.source import TAKES_ALL, holds, loop_of

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def comprehension(c: Context, node: _Comprehension, named: str = "") -> Value:
    """Compile a comprehension."""
    before = dict(c.frame.names)
    statement = c.frame.statement
    try:
        written = _written_out(c, node) if len(node.generators) == 1 and not node.generators[0].ifs else None
        return _loop(c, node, named) if written is None else written
    finally:
        hidden = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        walrus = {part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)}
        c.frame.statement = statement
        for name in hidden - walrus:
            c.frame.names.pop(name, None)
            if name in before:
                c.frame.names[name] = before[name]


def generator(c: Context, node: ast.GeneratorExp, named: str = "", taker: str = "") -> Value:
    """Compile a generator, as the list of its items; `taker` is the function that it is given to.

    Notes a problem where it does more than to give items: what takes them may not take all, or act in between.
    """
    last = next(reversed(c.body.graph.nodes), None)
    made = comprehension(c, node, named)
    if isinstance(made, Bad) or taker in _TAKES_ALL:
        return made
    written = itertools.takewhile(lambda each: each is not last, reversed(c.body.graph.nodes))
    acting = sum(_acts(c, each) for each in _inside(written))
    if acting > isinstance(made, Runtime):  # which a loop fills by `append`
        return c.problem(
            "this generator does more than to give items, of which not all may be taken", node, "write a loop"
        )
    return made


_TAKES_ALL = TAKES_ALL | {"tuple", "set", "frozenset", "dict", "deque", "join", "prod", "fsum"}


def _acts(c: Context, node: Node) -> bool:
    is_module = node.op == "call_module" and c.root is not None
    return is_impure(node, c.root.get_submodule(str(node.target)) if is_module else None)  # type: ignore[union-attr]


def _inside(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes among these that are no branches or loops, and those in the bodies of these."""
    for node in nodes:
        if is_region(node):
            for body in bodies_of(node):
                yield from _inside(body.nodes)
        elif node.op not in ("placeholder", "output"):
            yield node


def _written_out(c: Context, node: _Comprehension) -> Value | None:
    """The items one by one, where what is gone over is known so."""
    generator = node.generators[0]
    c.before_list = next(reversed(c.body.graph.nodes), None)
    subject = c.expression(generator.iter)
    if isinstance(subject, Bad):
        return BAD
    items = None if isinstance(subject, Display) else static_items(c, subject)
    if items is None:
        c.evaluated = (generator.iter, subject)
        return None
    pairs: list[tuple[Value | None, Value]] = []
    for item in items:
        c.parts.assign(c, generator.target, item, node)
        key = c.expression(node.key) if isinstance(node, ast.DictComp) else None
        value = c.expression(node.value if isinstance(node, ast.DictComp) else node.elt)
        if isinstance(value, Bad) or isinstance(key, Bad):
            return BAD
        pairs.append((key, value))
    made = Display(tuple(pairs), isinstance(node, ast.DictComp))
    if isinstance(node, ast.SetComp):
        kind = made.type
        assert isinstance(kind, ListType)
        return c.function(set, (made,), SetType(kind.item), node)
    return made


def _loop(c: Context, node: _Comprehension, named: str) -> Value:
    """Make an empty list, set or dict, and fill it in a loop."""
    kind: Type
    before, c.before_list = c.before_list, None
    if isinstance(node, ast.DictComp):
        kind, empty = DictType(Hole(), Hole()), dict
    elif isinstance(node, ast.SetComp):
        kind, empty = SetType(Hole()), set  # type: ignore[assignment]
    else:
        kind, empty = ListType(Hole()), list  # type: ignore[assignment]
    made = c.make("call_function", empty, (), kind, node, named=named, name=None if named else _WISHES[type(node)])
    name = f"${made.node.name}_{sum(known.startswith('$') for known in c.frame.names)}"
    if c.evaluated is not None:  # the list first, then what the loop goes over
        following = iter(c.body.graph.nodes) if before is None else _after(before)
        first = next(node for node in following if node.op != "placeholder")
        if first is not made.node:
            first.prepend(made.node)
    c.frame.names[name] = made
    holder = ast.Name(name, ast.Load())
    each: list[ast.stmt]
    if isinstance(node, ast.DictComp):  # the key is evaluated before the value
        key = ast.Name(f"{name}_key", ast.Store())
        each = [ast.Assign([key], node.key)] if holds([node.key], ast.Call) else []
        place = ast.Subscript(holder, ast.Name(key.id, ast.Load()) if each else node.key, ast.Store())
        each.append(ast.Assign([place], node.value))
    else:
        method = "add" if isinstance(node, ast.SetComp) else "append"
        each = [ast.Expr(ast.Call(ast.Attribute(holder, method, ast.Load()), [node.elt], []))]
    if any(generator.is_async for generator in node.generators):
        return c.problem("`async for` cannot be scripted", node)
    loop = loop_of(node.generators, each, node)
    c.frame.code.liveness.add_comprehension(loop)
    for_statement(c, loop)
    for made_here in (name, f"{name}_key"):
        c.frame.names.pop(made_here, None)
    if isinstance(kind, ListType) and isinstance(kind.item, Hole) and kind.item.known is None:
        kind.item.known = TENSOR
    return Runtime(made.node, kind)


def _after(node: Node) -> Iterator[Node]:
    """The nodes after one, in order."""
    while True:
        node = node.next
        yield node


_WISHES = {ast.ListComp: "items", ast.GeneratorExp: "items", ast.SetComp: "items", ast.DictComp: "items"}

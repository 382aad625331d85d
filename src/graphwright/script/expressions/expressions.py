"""Expressions, one function each."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.script.expressions.arithmetic import augmented, binary, compared, unary
from graphwright.script.expressions.choices import attribute_of_choice
from graphwright.script.expressions.comprehensions import comprehension, generator
from graphwright.script.expressions.conditions import boolean, condition
from graphwright.script.expressions.held_values import wrap
from graphwright.script.expressions.named_values import attribute
from graphwright.script.expressions.subscripts import key_of, subscript
from graphwright.script.program.frames import MISSING, Frame
from graphwright.script.program.values import (
    BAD,
    Bad,
    Bound,
    Choice,
    Const,
    Display,
    Group,
    Runtime,
    Unbound,
    Value,
    constant,
)
from graphwright.script.statements.branches import choose
from graphwright.script.types import ANY, NONE, STR, DictType, Hole, ListType, item_type, join, resolved

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

__all__ = ["augmented", "expression", "key_of"]


def expression(c: Context, node: ast.expr) -> Value:
    """Compile an expression."""
    if c.evaluated is not None and c.evaluated[0] is node:
        value, c.evaluated = c.evaluated[1], None
        return value
    compile_it = _EXPRESSIONS.get(type(node))
    if compile_it is None:
        what = _UNKNOWN.get(type(node), f"`{type(node).__name__}`")
        return c.problem(f"{what} cannot be scripted", node, _FIXES.get(type(node), ""))
    named = c.take_name(node)
    return compile_it(c, node, named)


_UNKNOWN: dict[type[ast.expr], str] = {
    ast.Yield: "`yield`", ast.YieldFrom: "`yield from`", ast.Await: "`await`", ast.Starred: "`*` here",
}  # fmt: skip
_FIXES: dict[type[ast.expr], str] = {
    ast.Yield: "append to a list and return it",
    ast.YieldFrom: "extend a list and return it",
    ast.Await: "call an ordinary function",
    ast.Starred: "write the items out",
}


def _constant(c: Context, node: ast.Constant, named: str) -> Value:
    return constant(node.value)


def _name(c: Context, node: ast.Name, named: str) -> Value:
    frame: Frame | None = c.frame
    while frame is not None:
        known = frame.names.get(node.id)
        if isinstance(known, Unbound):
            return c.problem(f"{node.id!r} has no value {known.why}", node, known.fix)
        if known is not None:
            return known
        if node.id in frame.code.locals:
            return c.problem(f"{node.id!r} has no value here", node, "give it a value first")
        value = frame.code.outside.closure.get(node.id, MISSING)
        if value is not MISSING:
            c.surroundings.take_name(frame.code, node.id)
            return wrap(c, value, node, node.id)
        if frame.defined_in is None:
            break
        frame = frame.defined_in
    value = c.frame.code.outside.get(node.id)
    if value is MISSING:
        message = f"the name {node.id!r} is not defined"
        return c.problem(message, node, "define or import it before scripting", NameError)
    c.surroundings.take_name(c.frame.code, node.id)
    return wrap(c, value, node, node.id)


def _attribute(c: Context, node: ast.Attribute, named: str) -> Value:
    found = _callee(c, node, named)
    if isinstance(found, Bound) and isinstance(found.owner, Runtime) and resolved(found.owner.kind) is ANY:
        return c.make("call_function", getattr, (found.owner, node.attr), ANY, node, name=node.attr, named=named)
    return found


def _callee(c: Context, node: ast.expr, named: str = "") -> Value:
    """What is called: an attribute of a value of which nothing is known may be a method."""
    if not isinstance(node, ast.Attribute) or (c.evaluated is not None and c.evaluated[0] is node):
        return expression(c, node)
    owner = expression(c, node.value)
    if isinstance(owner, Choice):
        return attribute_of_choice(c, owner, node.attr, node, named)
    return owner if isinstance(owner, Bad) else attribute(c, owner, node.attr, node, named)


def _subscript(c: Context, node: ast.Subscript, named: str) -> Value:
    owner = expression(c, node.value)
    return subscript(c, owner, key_of(c, node.slice), node, named)


def _tuple(c: Context, node: ast.Tuple, named: str) -> Value:
    items = _items(c, node.elts)
    return BAD if items is None else Group(tuple([c.held(item, node) for item in items]))


def _list(c: Context, node: ast.List | ast.Set, named: str) -> Value:
    if isinstance(node, ast.List) and any(isinstance(part, ast.Starred) for part in node.elts):
        return _spread_list(c, node)
    items = _items(c, node.elts)
    if items is None:
        return BAD
    made = Display(tuple([(None, item) for item in items]), False)
    if isinstance(node, ast.Set):
        from graphwright.script.types import ListType, SetType

        kind = made.type
        assert isinstance(kind, ListType)
        return c.function(set, (made,), SetType(kind.item), node, named)
    return made


def _spread_list(c: Context, node: ast.List) -> Value:
    """`[a, *values, b]`: lists that are added up, where the graph tells what is in one."""
    parts: list[Value] = []
    for element in node.elts:
        value = expression(c, element.value if isinstance(element, ast.Starred) else element)
        known = None
        if isinstance(element, ast.Starred):
            known = list(value.items) if isinstance(value, Group) else c.parts.module_items(c, value)
            if isinstance(value, Display) and not value.is_dict:
                known = [item for _, item in value.items]
        if isinstance(element, ast.Starred) and known is None:
            item = item_type(value.type)
            if item is None:
                return c.problem(f"cannot go over a value of type {value.type}", element, "give it a list")
            parts.append(c.function(list, (value,), ListType(item), element))
            continue
        made = [(None, item) for item in (known if known is not None else [value])]
        if parts and isinstance(parts[-1], Display):
            made = [*parts.pop().items, *made]  # type: ignore[attr-defined]
        parts.append(Display(tuple(made), False))
    total = parts[0]
    for part in parts[1:]:
        item = join(item_type(total.type) or ANY, item_type(part.type) or ANY)
        total = c.function(operator.add, (total, part), ListType(item or ANY), node)
    return total


def _items(c: Context, nodes: list[ast.expr]) -> list[Value] | None:
    """The items of a tuple or list as it is written, `*` included where what it gives is known one by one."""
    found: list[Value] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            found.append(expression(c, node))
            continue
        value = expression(c, node.value)
        items = list(value.items) if isinstance(value, Group) else c.parts.module_items(c, value)
        if items is None:
            if not isinstance(value, Bad):
                c.problem("`*` needs a tuple whose length is known", node, "add lists up: a + [b]")
            return None
        found += items
    return None if any(isinstance(item, Bad) for item in found) else found


def _dict(c: Context, node: ast.Dict, named: str) -> Value:
    pairs: list[tuple[Value | None, Value]] = []
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            return _spread_dict(c, node, named)
        pairs.append((expression(c, key), expression(c, value)))
    return Display(tuple(pairs), True)


def _spread_dict(c: Context, node: ast.Dict, named: str) -> Value:
    """`{**values, key: value}`: a dict that is made, and brought up to date with each part in turn."""
    kind = DictType(Hole(), Hole())
    made: Value | None = None
    for key, value in zip(node.keys, node.values, strict=True):
        held = expression(c, value)
        name = None if key is None else expression(c, key)
        if isinstance(held, Bad) or isinstance(name, Bad):
            return BAD
        part = held if name is None else Display(((name, held),), True)
        given = resolved(part.type)
        if not isinstance(given, DictType):
            return c.problem(f"`**` needs a dict, and is given {part.type}", value, "give it a dict")
        if join(kind.key, given.key) is None or join(kind.item, given.item) is None:
            kind = DictType(join(kind.key, given.key) or ANY, join(kind.item, given.item) or ANY)
        if made is None:
            made = Runtime(c.make("call_function", dict, (part,), kind, node, named=named).node, kind)
        else:
            c.make("call_method", "update", (made, part), NONE, node)
    assert isinstance(made, Runtime)
    return Runtime(made.node, kind)


def _ternary(c: Context, node: ast.IfExp, named: str) -> Value:
    test, refined = condition(c, node.test)
    if isinstance(test, Bad):
        return BAD
    if isinstance(test, Const) and test.fixed:
        return expression(c, node.body if test.value else node.orelse)
    works = (lambda: expression(c, node.body), lambda: expression(c, node.orelse))
    return choose(c, test, works, refined, node, ast.unparse(node.test), named=named)


def _boolean(c: Context, node: ast.BoolOp, named: str) -> Value:
    return boolean(c, node, is_test=False, named=named)[0]


def _walrus(c: Context, node: ast.NamedExpr, named: str) -> Value:
    c.named = (node.value, node.target.id)
    value = c.held(expression(c, node.value), node.value, named=node.target.id)
    c.named = None
    c.parts.assign(c, node.target, value, node)
    return c.frame.names[node.target.id]


def _text(c: Context, node: ast.JoinedStr, named: str) -> Value:
    """Compile an f-string as `'{} is {:.2f}'.format(a, b)`."""
    text = ""
    args: list[Value] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value).replace("{", "{{").replace("}", "}}")
            continue
        assert isinstance(part, ast.FormattedValue)
        spec = ""
        if part.format_spec is not None:
            inner = part.format_spec
            assert isinstance(inner, ast.JoinedStr)
            if not all(isinstance(item, ast.Constant) for item in inner.values):
                return c.problem("a computed format cannot be scripted", part, "write the format out")
            spec = ":" + "".join(str(item.value) for item in inner.values if isinstance(item, ast.Constant))
        value = expression(c, part.value)
        conversion = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
        if isinstance(value, Const) and not conversion and not spec and isinstance(value.value, str | int):
            text += str(value.value).replace("{", "{{").replace("}", "}}")
            continue
        text += f"{{{conversion}{spec}}}"
        args.append(value)
    if not args:
        return constant(text.replace("{{", "{").replace("}}", "}"), fixed=True)
    return c.make("call_method", "format", (constant(text), *args), STR, node, named=named)


def _lambda(c: Context, node: ast.Lambda, named: str) -> Value:
    return c.closure(node)


def _call(c: Context, node: ast.Call, named: str) -> Value:
    special = c.parts.special_call(c, node)
    if special is not None:
        return special
    callee = _callee(c, node.func)
    args: list[Value] = []
    sizes = c.parts.sizes(c, callee, node.args)
    for arg in node.args if sizes is None else ():
        if isinstance(arg, ast.Starred):
            given = expression(c, arg.value)
            spread = c.parts.spread(c, given, callee, len(node.args) == 1, arg)
            args += [BAD] if spread is None else spread
        elif isinstance(arg, ast.GeneratorExp):
            args.append(generator(c, arg, taker=ast.unparse(node.func).rpartition(".")[2]))
        else:
            args.append(expression(c, arg))
    args += [] if sizes is None else [sizes]
    kwargs: dict[str, Value] = {}
    for word in node.keywords:
        value = expression(c, word.value)
        if word.arg is not None:
            kwargs[word.arg] = value
        elif isinstance(value, Display) and value.is_dict and all(isinstance(key, Const) for key, _ in value.items):
            kwargs.update({str(key.value): item for key, item in value.items})  # type: ignore[union-attr]
        elif isinstance(value, Const) and isinstance(value.value, dict):
            kwargs.update({key: wrap(c, item, word.value) for key, item in value.value.items()})
        elif not isinstance(value, Bad):
            value = c.problem("`**` needs a dict whose keys are known", word.value, "write the keywords out")
        if isinstance(value, Bad):
            kwargs["**"] = BAD
    return c.parts.call(c, callee, args, kwargs, node, named)


_EXPRESSIONS: dict[type[ast.expr], Callable[[Context, Any, str], Value]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript,
    ast.Tuple: _tuple, ast.List: _list, ast.Set: _list, ast.Dict: _dict, ast.IfExp: _ternary, ast.BoolOp: _boolean,
    ast.NamedExpr: _walrus, ast.JoinedStr: _text, ast.Lambda: _lambda, ast.Call: _call, ast.BinOp: binary,
    ast.UnaryOp: unary, ast.Compare: compared, ast.ListComp: comprehension, ast.DictComp: comprehension,
    ast.SetComp: comprehension, ast.GeneratorExp: generator,
}  # fmt: skip

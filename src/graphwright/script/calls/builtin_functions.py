"""Python's own functions: len, range, zip, min, print and their like."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.ir import NestedGraph, shared_operands
from graphwright.ops import transformed
from graphwright.script.calls.containers import CONTAINERS, item_of
from graphwright.script.expressions.objects import own_method
from graphwright.script.program.frames import Closure
from graphwright.script.program.values import (
    Bound,
    Const,
    Display,
    Group,
    ModuleRef,
    Runtime,
    Value,
    constant,
)
from graphwright.script.statements.loops import static_items
from graphwright.script.statements.statements import assign_attribute
from graphwright.script.types import (
    ANY,
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    RANGE,
    STR,
    TENSOR,
    DictType,
    Hole,
    IteratorType,
    ListType,
    ObjectType,
    OptionalType,
    SetType,
    TupleType,
    Type,
    is_number,
    item_type,
    join,
    resolved,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

Args = list[Value]
Words = dict[str, Value]


def _len(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    (value,) = args
    if isinstance(value, ModuleRef):
        method = own_method(type(value.module), "__len__")
        if method is not None:
            c.surroundings.take_method(type(value.module), "__len__")
            return c.parts.call(c, Bound(value, method), [], {}, node)
        c.take_length(value.module)
        return constant(len(value.module), True)  # type: ignore[arg-type]
    if isinstance(value, Group):
        return constant(len(value.items), True)
    if isinstance(value, Const) and hasattr(value.value, "__len__"):
        return constant(len(value.value), value.fixed)
    kind = resolved(value.type)
    if isinstance(kind, ObjectType) and hasattr(kind.kind, "__len__"):
        c.attributes.run([kind.kind.__len__])
    elif item_type(kind) is None or isinstance(kind, OptionalType):
        return c.problem(f"a value of type {kind} has no length", node, "use a list, a dict, a str or a tensor")
    return c.function(len, (value,), INT, node, named)


def _range(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    for arg in args:
        if resolved(arg.type) not in (INT, BOOL, NUMBER, ANY, TENSOR):
            return c.problem(f"range takes ints, and is given {arg.type}", node, "convert it: int(...)")
    return c.function(range, args, RANGE, node, named)


def _enumerate(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start")
    items = None if isinstance(args[0], Display) else static_items(c, args[0])
    if items is not None and (start is None or isinstance(start, Const)):
        first = 0 if start is None else start.value
        return Group(tuple([Group((constant(first + i, True), item)) for i, item in enumerate(items)]))
    item = item_of(c, args[0], node)
    return c.make("call_function", enumerate, args, IteratorType(TupleType((INT, item))), node, kwargs, named=named)


def _zip(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    known = [None if isinstance(arg, Display) else static_items(c, arg) for arg in args]
    lengths = [len(items) for items in known if items is not None]
    if lengths:
        count = min(lengths)
        for i, (arg, items) in enumerate(zip(args, known, strict=True)):
            if items is None:
                kind = item_of(c, arg, node)
                known[i] = [c.function(operator.getitem, (arg, number), kind, node) for number in range(count)]
        return Group(tuple([Group(items) for items in zip(*[items or [] for items in known], strict=False)]))
    item = TupleType(tuple([item_of(c, arg, node) for arg in args]))
    return c.make("call_function", zip, args, IteratorType(item), node, kwargs, named=named)


def _reversed(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    items = None if isinstance(args[0], Display) else static_items(c, args[0])
    if items is not None:
        return Group(tuple(reversed(items)))
    return c.function(reversed, args, IteratorType(item_of(c, args[0], node)), node, named)


def _list(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    if not args:
        return c.function(list, (), ListType(Hole()), node, named)
    items = static_items(c, args[0])
    if items is not None:
        return Display(tuple([(None, item) for item in items]), False)
    return c.function(list, args, ListType(item_of(c, args[0], node)), node, named)


def _tuple(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    items = static_items(c, args[0]) if args else []
    if items is not None:
        return Group(tuple(items))
    return c.function(tuple, args, ListType(item_of(c, args[0], node)), node, named)


def _set(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kind = item_of(c, args[0], node) if args else Hole()
    return c.function(set, args, SetType(kind), node, named)


def _dict(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    if not args:
        pairs: list[tuple[Value | None, Value]] = [(constant(name), value) for name, value in kwargs.items()]
        return Display(tuple(pairs), True)
    kind = resolved(args[0].type)
    item = item_type(kind)
    made: Type = DictType(ANY, ANY)
    if isinstance(kind, DictType):
        made = kind
    elif isinstance(item, TupleType) and len(item.items) == 2:
        made = DictType(*item.items)
    return c.make("call_function", dict, args, made, node, kwargs, named=named)


def _converted(function: Any, kind: Type) -> Callable[..., Value]:
    def convert(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
        if args and isinstance(args[0], Const) and args[0].fixed:
            try:
                return constant(function(args[0].value), True)
            except (TypeError, ValueError) as error:
                return c.problem(str(error), node)
        if args and isinstance(resolved(args[0].type), OptionalType) and kind not in (STR, BOOL):
            return c.problem(f"a value of type {args[0].type} may be None here", node, "check `is not None` first")
        return c.make("call_function", function, args, kind, node, kwargs, named=named)

    return convert


def _abs(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kind = resolved(args[0].type)
    if isinstance(kind, ObjectType):
        c.attributes.run([getattr(kind.kind, "__abs__", None)])
        kind = ANY
    return c.function(abs, args, INT if kind is BOOL else FLOAT if kind is COMPLEX else kind, node, named)


def _round(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kind = resolved(args[0].type)
    result = TENSOR if kind is TENSOR else FLOAT if len(args) > 1 else INT
    return c.make("call_function", round, args, result, node, kwargs, named=named)


def _extreme(function: Any) -> Callable[..., Value]:
    def extreme(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
        if "key" in kwargs:
            return _extreme_by(c, function, args, kwargs, node, named)
        if all(isinstance(arg, Const) for arg in args) and any(arg.fixed for arg in args) and len(args) > 1:  # type: ignore[attr-defined]
            return constant(function(*[arg.value for arg in args]), True)  # type: ignore[attr-defined]
        kinds = [item_type(args[0].type)] if len(args) == 1 else [arg.type for arg in args]
        kinds += [value.type for name, value in kwargs.items() if name == "default"]
        kind = kinds[0]
        for other in kinds[1:]:
            kind = None if kind is None or other is None else join(kind, other)
        if kind is None:
            if len(args) > 1 and all(is_number(arg.type) or resolved(arg.type) is TENSOR for arg in args):
                kind = ANY
            else:
                return c.problem(
                    f"{function.__name__} takes values that have an order", node, "convert them to one type"
                )
        return c.make("call_function", function, args, kind, node, kwargs, named=named)

    return extreme


def _sum(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    items = static_items(c, args[0])
    if items is not None and not isinstance(args[0], Display):
        args = [Display(tuple([(None, item) for item in items]), False), *args[1:]]
    kind = item_of(c, args[0], node)
    return c.make("call_function", sum, args, INT if kind is BOOL else kind, node, kwargs, named=named)


def _truth_of_all(function: Any) -> Callable[..., Value]:
    def every(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
        items = static_items(c, args[0])
        if items is not None and all(isinstance(item, Const) and item.fixed for item in items):
            return constant(function([item.value for item in items]), True)  # type: ignore[attr-defined]
        given = (
            args[0] if not isinstance(args[0], Group) else Display(tuple([(None, item) for item in items or ()]), False)
        )
        item_of(c, given, node)
        return c.function(function, (given,), BOOL, node, named)

    return every


def _extreme_by(c: Context, function: Any, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    """`max(values, key=...)`, or `max(a, b, key=...)`."""
    kind: Type | None = item_of(c, args[0], node) if len(args) == 1 else args[0].type
    for other in [*(args[1:] if len(args) > 1 else ()), *[kwargs[name] for name in kwargs if name == "default"]]:
        kind = None if kind is None else join(kind, other.type)
    if kind is None:
        return c.problem(f"{function.__name__} takes values of one type", node, "convert them to one type")
    return _ordered_by(c, function.__name__, args, kind, kind, kwargs, node, named)


def _ordered_by(
    c: Context, name: str, args: Args, kind: Type, result: Type, kwargs: Words, node: ast.AST, named: str
) -> Value:
    """`sorted(values, key=...)` and its like: the key is a body of the node, compiled for an item."""
    body = NestedGraph(c.body)
    with c.writing(body):
        key = c.parts.call(c, kwargs["key"], [Runtime(body.add_input("item"), kind)], {}, node)
        given = c.argument(key)
    options = {option: value for option, value in kwargs.items() if option != "key"}
    body.close(given, body.graph._root.prev._origin)
    operands = shared_operands([body])
    used = tuple([Runtime(operand, ANY) for operand in operands])
    given_options = {option: c.argument(value) for option, value in options.items()}
    taken = (name, body.graph, tuple(args), used, given_options)
    return c.make("call_function", transformed, taken, result, node, named=named)


def _sorted(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kind = item_of(c, args[0], node)
    if "key" in kwargs:
        return _ordered_by(c, "sorted", args, kind, ListType(kind), kwargs, node, named)
    return c.make("call_function", sorted, args, ListType(kind), node, kwargs, named=named)


def _print(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    c.make("call_function", print, args, NONE, node, kwargs)
    return constant(None, True)


def _divmod(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kind = FLOAT if FLOAT in (resolved(args[0].type), resolved(args[1].type)) else INT
    return Group((c.function(operator.floordiv, args, kind, node), c.function(operator.mod, args, kind, node)))


def _pow(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    kinds = [resolved(arg.type) for arg in args]
    kind = TENSOR if TENSOR in kinds else FLOAT if FLOAT in kinds else NUMBER
    return c.make("call_function", pow, args, kind, node, kwargs, named=named)


def _callable(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    (value,) = args
    if isinstance(value, Runtime):
        return c.function(callable, args, BOOL, node, named)
    known = value.module if isinstance(value, ModuleRef) else getattr(value, "value", None)
    return constant(isinstance(value, Bound | Closure) or callable(known), True)


def _slice(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    if kwargs or not 1 <= len(args) <= 3:
        return c.problem("slice takes one to three bounds", node)
    if all(isinstance(arg, Const) for arg in args):
        return constant(slice(*[arg.value for arg in args]))  # type: ignore[attr-defined]
    return c.function(slice, args, ObjectType(slice), node, named)


def _set_attribute(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    if len(args) != 3 or not isinstance(args[1], Const) or type(args[1].value) is not str:
        return c.problem("setattr needs the name of an attribute", node, "write the name out")
    assign_attribute(c, args[0], args[1].value, args[2], node)
    return constant(None, True)


def _next(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    """`next(self.parameters())`: the first of what a module lists; other iterators may have given some of theirs."""
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    lists = isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr in _LISTING
    if lists and args and isinstance(args[0], Group) and (args[0].items or len(args) == 2):
        return args[0].items[0] if args[0].items else args[1]
    return _iterator(c, args, kwargs, node, named)


def _iterator(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    return c.problem("iterators cannot be scripted", node, "go over the values in a `for` loop")


_LISTING = frozenset({"parameters", "buffers", "modules", "children"})
_LISTING |= {f"named_{name}" for name in _LISTING}


def _repeat(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
    """`itertools.repeat(x, 2)`: as many items as are known."""
    times = args[1] if len(args) == 2 else kwargs.get("times")
    if len(args) not in (1, 2) or not isinstance(times, Const) or not isinstance(times.value, int):
        return c.problem("repeat needs a number of times that is known", node, "[value] * times")
    value = c.held(args[0], node)
    return Group((value,) * times.value)


def _refused(what: str, fix: str = "write it out") -> Callable[..., Value]:
    def refuse(c: Context, args: Args, kwargs: Words, node: ast.AST, named: str) -> Value:
        return c.problem(f"{what} cannot be scripted", node, fix)

    return refuse


BUILTINS: dict[Any, Callable[[Context, Args, Words, ast.AST, str], Value]] = {
    len: _len, range: _range, enumerate: _enumerate, zip: _zip, reversed: _reversed, list: _list, tuple: _tuple,
    set: _set, dict: _dict, int: _converted(int, INT), float: _converted(float, FLOAT), bool: _converted(bool, BOOL),
    str: _converted(str, STR), complex: _converted(complex, COMPLEX), repr: _converted(repr, STR),
    ord: _converted(ord, INT), chr: _converted(chr, STR), hex: _converted(hex, STR), bin: _converted(bin, STR),
    oct: _converted(oct, STR),    itertools.repeat: _repeat,
    abs: _abs, round: _round, min: _extreme(min), max: _extreme(max), sum: _sum, any: _truth_of_all(any),
    all: _truth_of_all(all), sorted: _sorted, print: _print, divmod: _divmod, pow: _pow, next: _next, iter: _iterator,
    id: _converted(id, INT), hash: _converted(hash, INT), map: _refused("map", "[f(value) for value in values]"),
    filter: _refused("filter", "[value for value in values if f(value)]"),
    dataclasses.replace: _refused("dataclasses.replace", "make another one: Point(point.x, y=1)"), **CONTAINERS,
    setattr: _set_attribute, slice: _slice, eval: _refused("eval"), exec: _refused("exec"), open: _refused("open"),
    input: _refused("input"), globals: _refused("globals"), locals: _refused("locals"), vars: _refused("vars"),
    callable: _callable,
}  # fmt: skip

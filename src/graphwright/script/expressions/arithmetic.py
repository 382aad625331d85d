"""Operators: what they give for operands of which types."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.script.expressions.conditions import condition, is_none
from graphwright.script.expressions.objects import contains, own_method
from graphwright.script.program.values import (
    BAD,
    Bad,
    Bound,
    Choice,
    Const,
    Display,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Runtime,
    Value,
    constant,
    is_outside,
)
from graphwright.script.statements.branches import choose, chosen
from graphwright.script.tensors import annotated_method_result
from graphwright.script.types import (
    ANY,
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NUMBER,
    STR,
    TENSOR,
    DictType,
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

_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "+"), ast.Sub: ("sub", "-"), ast.Mult: ("mul", "*"), ast.Div: ("truediv", "/"),
    ast.FloorDiv: ("floordiv", "//"), ast.Mod: ("mod", "%"), ast.Pow: ("pow", "**"), ast.MatMult: ("matmul", "@"),
    ast.LShift: ("lshift", "<<"), ast.RShift: ("rshift", ">>"), ast.BitAnd: ("and_", "&"), ast.BitOr: ("or_", "|"),
    ast.BitXor: ("xor", "^"),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Any] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip


def binary(c: Context, node: ast.BinOp, named: str = "") -> Value:
    """Compile `a + b` and its like."""
    left, right = c.expression(node.left), c.expression(node.right)
    if isinstance(left, Bad) or isinstance(right, Bad):
        return BAD
    name, symbol = _OPERATORS[type(node.op)]
    return _operated(c, getattr(operator, name), symbol, left, right, node, named)


def augmented(c: Context, node: ast.AugAssign, left: Value) -> Value:
    """Compile `a += b` as far as its value goes: tensors, lists, sets and dicts change, numbers are made anew."""
    right = c.expression(node.value)
    if isinstance(left, Bad) or isinstance(right, Bad):
        return BAD
    name, symbol = _OPERATORS[type(node.op)]
    kind = resolved(left.type)
    changes = kind in (TENSOR, ANY) or isinstance(kind, ListType | SetType | DictType | ObjectType)
    function = getattr(operator, "i" + name.removesuffix("_")) if changes else getattr(operator, name)
    named = node.target.id if isinstance(node.target, ast.Name) else ""
    return _operated(c, function, symbol, left, right, node, named)


def _operated(c: Context, function: Any, symbol: str, left: Value, right: Value, node: ast.AST, named: str) -> Value:
    if isinstance(left, Const) and isinstance(right, Const) and (left.fixed or right.fixed):
        try:
            return constant(function(left.value, right.value), fixed=True)
        except Exception as error:
            return c.problem(f"this raises {type(error).__name__}: {error}", node)
    if isinstance(left, Group) and isinstance(right, Group) and symbol == "+":
        return Group((*left.items, *right.items))
    if isinstance(left, Group) and isinstance(right, Const) and symbol == "*" and type(right.value) is int:
        return Group(left.items * right.value)
    if isinstance(left, Display) and isinstance(right, Display) and symbol == "+" and not left.is_dict:
        return Display((*left.items, *right.items), False)
    if symbol == "|" and all(isinstance(value, Reference) and isinstance(value.value, type) for value in (left, right)):
        return Reference(left.value | right.value)  # type: ignore[attr-defined]  # for isinstance
    kind = result_of(symbol, left, right)
    objects = [each for value in (left, right) if isinstance(each := resolved(value.type), ObjectType)]
    if objects:  # their methods run
        kind = _by_methods(c, function.__name__, objects)
    if kind is None:
        may_be_none = any(isinstance(resolved(value.type), OptionalType) for value in (left, right))
        fix = "check `is not None` first, or assert it" if may_be_none else "convert one of them"
        return c.problem(f"`{symbol}` is not defined for {_of(left)} and {_of(right)}", node, fix)
    return c.function(function, (left, right), kind, node, named)


def _by_methods(c: Context, name: str, objects: list[ObjectType]) -> Type:
    """What an operator gives for objects whose classes define it: what its method is annotated to return."""
    of_python = f"__{name.strip('_')}__"
    c.attributes.run([getattr(each.kind, of_python, None) for each in objects])
    return annotated_method_result(objects[0].kind, of_python) or ANY


def _of(value: Value) -> str:
    if isinstance(value, ModuleRef):
        return f"the module {value.path or type(value.module).__name__}"
    return getattr(value.value, "__name__", "an object") if isinstance(value, Reference) else str(value.type)


def result_of(symbol: str, left: Value, right: Value) -> Type | None:
    """The type that a binary operator gives; None where it is not defined."""
    a, b = resolved(left.type), resolved(right.type)
    if isinstance(left, ModuleRef | Reference) or isinstance(right, ModuleRef | Reference):
        return None
    if ANY in (a, b) or (isinstance(a, ObjectType) or isinstance(b, ObjectType)):
        return TENSOR if TENSOR in (a, b) else ANY
    if TENSOR in (a, b):
        other = b if a is TENSOR else a
        return TENSOR if other is TENSOR or (is_number(other) and symbol != "@") else None
    if is_number(a) and is_number(b):
        return _number(symbol, a, b, right)
    if a is STR:
        known = {"+": STR if b is STR else None, "*": STR if b is INT else None, "%": STR}
        return known.get(symbol)
    return _containers(symbol, a, b)


def _number(symbol: str, a: Type, b: Type, right: Value) -> Type | None:
    if symbol == "@":
        return None
    if symbol in ("&", "|", "^", "<<", ">>"):
        if {a, b} <= {INT, BOOL, NUMBER}:
            return BOOL if a is b is BOOL and symbol in ("&", "|", "^") else INT
        return None
    if COMPLEX in (a, b):
        return COMPLEX
    if symbol == "/":
        return FLOAT
    if FLOAT in (a, b):
        return FLOAT
    if NUMBER in (a, b):
        return NUMBER
    if symbol == "**":
        return INT if isinstance(right, Const) and type(right.value) is int and right.value >= 0 else NUMBER
    return INT


def _containers(symbol: str, a: Type, b: Type) -> Type | None:
    if symbol == "+" and isinstance(a, ListType):
        if isinstance(b, ListType):
            item = join(a.item, b.item) if a.kind is b.kind else None
            return None if item is None else ListType(item, a.kind)
        if isinstance(b, TupleType):  # sizes are tuples, which Python alone tells from lists
            return a
    if symbol == "+" and isinstance(a, TupleType) and isinstance(b, ListType):
        return b
    if symbol == "+" and isinstance(a, TupleType) and isinstance(b, TupleType):
        return TupleType((*a.items, *b.items))
    if symbol == "*" and isinstance(a, ListType) and b is INT:
        return a
    if symbol == "*" and isinstance(a, TupleType) and b is INT:
        return ListType(item_type(a) or ANY)
    if symbol == "*" and a is INT and isinstance(b, ListType):
        return b
    if isinstance(a, SetType) and isinstance(b, SetType) and symbol in ("&", "|", "-", "^"):
        return a
    return join(a, b) if isinstance(a, DictType) and isinstance(b, DictType) and symbol == "|" else None


def unary(c: Context, node: ast.UnaryOp, named: str = "") -> Value:
    """Compile `-a`, `not a` and their like."""
    if isinstance(node.op, ast.Not):
        return condition(c, node)[0]
    value = c.expression(node.operand)
    if isinstance(value, Bad):
        return BAD
    function = _UNARY[type(node.op)]
    if isinstance(value, Const):
        try:
            return constant(function(value.value), value.fixed)
        except TypeError:
            return c.problem(f"this is not defined for {value.type}", node)
    kind = resolved(value.type)
    if isinstance(kind, ObjectType) and isinstance(value, Runtime):
        kind = _by_methods(c, function.__name__, [kind])
    if kind is not TENSOR and kind is not ANY and not is_number(kind) and not isinstance(kind, ObjectType):
        return c.problem(f"this is not defined for {_of(value)}", node, "use it on a tensor or a number")
    return c.function(function, (value,), INT if kind is BOOL else kind, node, named)


def compared(c: Context, node: ast.Compare, named: str = "") -> Value:
    """Compile a comparison, chained ones too."""
    return comparison(c, node, named)[0]


def comparison(c: Context, node: ast.Compare, named: str = "") -> tuple[Value, tuple[dict[str, Type], dict[str, Type]]]:
    """Compile a comparison; say what is known of variables where it holds, and where it does not."""
    left = c.expression(node.left)
    if len(node.ops) == 1:
        op, right_node = node.ops[0], node.comparators[0]
        right = c.expression(right_node)
        if isinstance(op, ast.Is | ast.IsNot) and not (isinstance(left, Bad) or isinstance(right, Bad)):
            for value, its, other in ((left, node.left, right), (right, right_node, left)):
                if isinstance(other, Const) and other.value is None:
                    return is_none(c, value, its, node, isinstance(op, ast.IsNot))
        return _compare(c, op, left, right, node, named), ({}, {})
    return _chained(c, node, left, 0), ({}, {})


def _chained(c: Context, node: ast.Compare, left: Value, i: int) -> Value:
    """`a < b < c`: b is computed once, c where the first holds."""
    right = c.expression(node.comparators[i])
    first = _compare(c, node.ops[i], left, right, node, "")
    if i + 1 == len(node.ops) or isinstance(first, Bad):
        return first
    if isinstance(first, Const) and first.fixed:
        return _chained(c, node, right, i + 1) if first.value else first
    works = (lambda: _chained(c, node, right, i + 1), lambda: first)
    return choose(c, first, works, ({}, {}), node, ast.unparse(node), is_test=True)


def _compare(c: Context, op: ast.cmpop, left: Value, right: Value, node: ast.AST, named: str) -> Value:
    if isinstance(left, Bad) or isinstance(right, Bad):
        return BAD
    if isinstance(left, Choice):
        return chosen(c, left, lambda item: _compare(c, op, item, right, node, ""), node, named)
    if isinstance(right, Choice):
        return chosen(c, right, lambda item: _compare(c, op, left, item, node, ""), node, named)
    if isinstance(op, ast.In | ast.NotIn):
        return _contained(c, left, right, isinstance(op, ast.NotIn), node, named)
    function = _COMPARISONS[type(op)]
    objects = [value for value in (left, right) if isinstance(value, ModuleRef | Reference | Instance)]
    if any(isinstance(each, Instance) and each.place is not None for each in objects) and not any(
        isinstance(each, ModuleRef) for each in objects
    ):
        return c.function(function, (left, right), BOOL, node, named)
    if objects:
        for each in objects:
            if isinstance(each, ModuleRef):
                c.take_there(each)
        if len(objects) == 2:
            a, b = [value.module if isinstance(value, ModuleRef) else value.value for value in objects]
            return constant(bool(function(a, b)), True)
        if isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) and not any(
            isinstance(v, Runtime) for v in (left, right)
        ):
            return constant(isinstance(op, ast.NotEq | ast.IsNot), True)
    if isinstance(op, ast.Is | ast.IsNot):
        problem = _asks_identity(c, left, right, node)
        if problem is not None:
            return problem
    if isinstance(left, Const) and isinstance(right, Const) and (left.fixed or right.fixed):
        try:
            return constant(bool(function(left.value, right.value)), fixed=True)
        except TypeError as error:
            return c.problem(str(error), node)
    a, b = resolved(left.type), resolved(right.type)
    identity = isinstance(op, ast.Is | ast.IsNot)
    kind: Type = TENSOR if TENSOR in (a, b) and not identity and (is_number(a) or is_number(b) or a is b) else BOOL
    if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and not _have_order(a, b):
        return c.problem(f"{_of(left)} and {_of(right)} have no order", node, "compare values of one type")
    typed = [each for each in (a, b) if isinstance(each, ObjectType)]
    if typed and not identity:
        kind = _by_methods(c, function.__name__, typed)
    return c.function(function, (left, right), kind, node, named)


def _asks_identity(c: Context, left: Value, right: Value, node: ast.AST) -> Bad | None:
    """Take for granted that two lists from outside are one, or two; a problem where only Python knows."""
    outside = [each for each in (left, right) if is_outside(each) or (isinstance(each, Group) and each.held)]
    if len(outside) == 1 and not any(isinstance(each, Const) and each.value is None for each in (left, right)):
        what = "whether this is the very list, dict or set that lies outside of the program, only Python knows"
        return c.problem(what, node, "compare what they hold: a == b")
    for each in outside:
        held = each.held if isinstance(each, Group) else each
        c.surroundings.take_identity(getattr(held, "value", None))
    return None


def _have_order(a: Type, b: Type) -> bool:
    if ANY in (a, b) or isinstance(a, ObjectType) or isinstance(b, ObjectType):
        return True
    if is_number(a) or a is TENSOR:
        return is_number(b) or b is TENSOR
    return (
        a is b is STR
        or (isinstance(a, ListType | TupleType) and isinstance(b, ListType | TupleType))
        or (isinstance(a, SetType) and isinstance(b, SetType))
    )


def _contained(c: Context, item: Value, container: Value, negated: bool, node: ast.AST, named: str) -> Value:
    if isinstance(container, ModuleRef):
        method = own_method(type(container.module), "__contains__")
        if method is not None:
            c.surroundings.take_method(type(container.module), "__contains__")
            found = c.parts.call(c, Bound(container, method), [item], {}, node)
            return _negated(c, found, node, named) if negated else found
        c.take_length(container.module)
    if isinstance(item, Const) and isinstance(container, Instance):
        known = contains(c, container, item.value, node)
        if known is not None:
            return _negated(c, known, node) if negated else known
    if isinstance(item, Const) and isinstance(container, Const | Group | Display | ModuleRef):
        known = _known_items(container)
        if known is not None and (item.fixed or isinstance(container, ModuleRef)):
            return constant((item.value in known) is not negated, True)
    if isinstance(container, ModuleRef):
        names = _known_items(container)
        if not isinstance(container.module, nn.ModuleDict | nn.ParameterDict) or names is None:
            return c.problem("only a constant can be looked for among modules", node, "write the name out")
        c.take_items(container.module)
        container = constant(names)
    found = c.function(operator.contains, (container, item), BOOL, node, "" if negated else named)
    return _negated(c, found, node, named) if negated else found


def _negated(c: Context, value: Value, node: ast.AST, named: str = "") -> Value:
    if isinstance(value, Bad):
        return BAD
    return (
        constant(not value.value, True)
        if isinstance(value, Const)
        else c.function(operator.not_, (value,), BOOL, node, named)
    )


def _known_items(container: Value) -> Any:
    if isinstance(container, Const):
        return container.value if isinstance(container.value, list | dict | set | str | tuple) else None
    if isinstance(container, ModuleRef):
        module = container.module
        return list(module.keys()) if isinstance(module, nn.ParameterDict | nn.ModuleDict) else None
    items = container.items  # type: ignore[attr-defined]
    parts = [part for pair in items for part in pair if part] if isinstance(container, Display) else list(items)
    return [part.value for part in parts] if all(isinstance(part, Const) for part in parts) else None

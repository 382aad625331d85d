"""Conditions: `and`, `or`, `not`, `is None`, isinstance, and what they tell of the variables in them."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING

from graphwright.script.expressions.objects import own_method, truth_of
from graphwright.script.program.frames import Closure
from graphwright.script.program.values import (
    BAD,
    Bad,
    Bound,
    Const,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Runtime,
    Value,
    constant,
)
from graphwright.script.statements.branches import choose
from graphwright.script.types import ANY, BOOL, NONE, OptionalType, Type, resolved, without_none

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

Known = dict[str, Type]


def condition(c: Context, node: ast.expr) -> tuple[Value, tuple[Known, Known]]:
    """Compile a condition; say what is known of variables where it holds, and where it does not.

    What types and constants of modules decide is a fixed constant.
    """
    if isinstance(node, ast.BoolOp):
        value, refined = boolean(c, node, is_test=True)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner, (where_true, where_false) = condition(c, node.operand)
        if isinstance(inner, Bad):
            return BAD, ({}, {})
        if isinstance(inner, Const):
            return constant(not inner.value, inner.fixed), (where_false, where_true)
        return c.function(operator.not_, (inner,), BOOL, node), (where_false, where_true)
    else:
        value, refined = c.parts.refining(c, node)
    truth = _truth(c, value, node)
    if isinstance(node, ast.Constant) and isinstance(truth, Const):  # `if False:`, which no run decides otherwise
        return constant(truth.value, fixed=True), refined
    return truth, refined


def _truth(c: Context, value: Value, node: ast.expr) -> Value:
    """A value as a condition, decided where it is known."""
    if isinstance(value, Const):
        return constant(bool(value.value), value.fixed)
    if isinstance(value, Group):
        return constant(bool(value.items), True)
    if isinstance(value, ModuleRef):
        c.take_there(value)
        for name in ("__bool__", "__len__"):
            method = own_method(type(value.module), name)
            if method is not None:
                c.surroundings.take_method(type(value.module), name)
                return c.parts.call(c, Bound(value, method), [], {}, node)
        c.take_length(value.module)
        sized = getattr(type(value.module), "__len__", None)
        return constant(sized is None or len(value.module) > 0, True)  # type: ignore[arg-type]
    if isinstance(value, Instance):
        return truth_of(c, value, node)
    if isinstance(value, Reference | Closure | Bound):
        return constant(True, True)
    if isinstance(value, Runtime) and resolved(value.kind) is NONE:
        c.take_for_granted(value, operator.is_, (value, None), True, node)
        return constant(False, True)
    return value


def boolean(c: Context, node: ast.BoolOp, is_test: bool, named: str = "") -> tuple[Value, tuple[Known, Known]]:
    """Compile `a and b`, `a or b`: what stands on the right is compiled knowing what the left says."""
    return _chain(c, node, node.values, isinstance(node.op, ast.And), is_test, named)


def _chain(
    c: Context, node: ast.BoolOp, values: list[ast.expr], is_and: bool, is_test: bool, named: str
) -> tuple[Value, tuple[Known, Known]]:
    left, (where_true, where_false) = _operand(c, values[0], is_test)
    if isinstance(left, Bad) or len(values) == 1:
        return left, (where_true, where_false)
    going_on = where_true if is_and else where_false
    test = _truth(c, left, values[0])
    if isinstance(test, Const) and test.fixed:
        if bool(test.value) is not is_and:
            return left, (where_true, where_false)
        c.refine(going_on)
        return _chain(c, node, values[1:], is_and, is_test, named)
    refined: list[tuple[Known, Known]] = [({}, {})]

    def right() -> Value:
        value, refined[0] = _chain(c, node, values[1:], is_and, is_test, "")
        return value

    works = (right, lambda: left) if is_and else (lambda: left, right)
    more = (where_true, {}) if is_and else ({}, where_false)
    value = choose(c, test, works, more, node, ast.unparse(values[0]), is_test, named)
    if is_and:
        return value, ({**where_true, **refined[0][0]}, {})
    return value, ({}, {**where_false, **refined[0][1]})


def _operand(c: Context, node: ast.expr, is_test: bool) -> tuple[Value, tuple[Known, Known]]:
    if (
        is_test
        or isinstance(node, ast.BoolOp | ast.Compare)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
    ):
        if isinstance(node, ast.BoolOp):
            return boolean(c, node, is_test)
        return condition(c, node)
    return c.parts.refining(c, node)


def is_none(c: Context, value: Value, node: ast.expr, at: ast.AST, negated: bool) -> tuple[Value, tuple[Known, Known]]:
    """Compile `value is None`: types decide it unless the value is optional."""
    kind = resolved(value.type)
    if isinstance(value, Const) and value.value is None:
        return constant(not negated, True), ({}, {})
    if isinstance(value, Runtime) and kind is NONE:
        c.take_for_granted(value, operator.is_, (value, None), True, at)
        return constant(not negated, True), ({}, {})
    if isinstance(value, Runtime) and kind is ANY:
        return c.function(operator.is_not if negated else operator.is_, (value, None), BOOL, at), ({}, {})
    if not isinstance(value, Runtime) or not isinstance(kind, OptionalType):
        c.take_for_granted(value, operator.is_, (value, None), False, at)
        return constant(negated, True), ({}, {})
    made = c.function(operator.is_not if negated else operator.is_, (value, None), BOOL, at)
    name = node.id if isinstance(node, ast.Name) else node.target.id if isinstance(node, ast.NamedExpr) else ""
    if not name:
        return made, ({}, {})
    known: Known = {name: without_none(kind)}
    return made, (known, {}) if negated else ({}, known)

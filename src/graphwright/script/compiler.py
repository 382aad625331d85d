"""The compiler: its parts, which know each other only through here."""

from __future__ import annotations

import ast
from types import FunctionType

from graphwright.script.annotations import type_from_annotation
from graphwright.script.calls.calls import call, sizes, spread
from graphwright.script.calls.modules import module_items
from graphwright.script.calls.special import classes_of
from graphwright.script.expressions.arithmetic import augmented, comparison
from graphwright.script.expressions.conditions import Known, condition
from graphwright.script.expressions.expressions import expression, key_of
from graphwright.script.expressions.held_values import wrap
from graphwright.script.expressions.objects import keys_of
from graphwright.script.expressions.subscripts import subscript
from graphwright.script.program.context import Context
from graphwright.script.program.values import Bad, Bound, Const, Group, Instance, ModuleRef, Reference, Runtime, Value
from graphwright.script.statements.statements import assign, block, declared, with_type
from graphwright.script.types import ANY, ObjectType, OptionalType, Type, resolved, without_none


class Compiler:
    """The parts of the compiler, under the names by which they call each other: see `context.Parts`."""

    expression = staticmethod(expression)
    condition = staticmethod(condition)
    block = staticmethod(block)
    assign = staticmethod(assign)
    augmented = staticmethod(augmented)
    key = staticmethod(key_of)
    item = staticmethod(subscript)
    wrap = staticmethod(wrap)
    module_items = staticmethod(module_items)
    object_keys = staticmethod(keys_of)
    sizes = staticmethod(sizes)
    spread = staticmethod(spread)
    call = staticmethod(call)

    def refining(self, c: Context, node: ast.expr) -> tuple[Value, tuple[Known, Known]]:
        """Compile an expression that may tell something of a variable."""
        if isinstance(node, ast.Compare):
            return comparison(c, node)
        if isinstance(node, ast.Call):
            return self._checked(c, node)
        value = expression(c, node)
        name = node.id if isinstance(node, ast.Name) else node.target.id if isinstance(node, ast.NamedExpr) else ""
        kind = resolved(value.type)
        if name and isinstance(value, Runtime) and isinstance(kind, OptionalType):
            return value, ({name: without_none(kind)}, {})
        return value, ({}, {})

    def _checked(self, c: Context, node: ast.Call) -> tuple[Value, tuple[Known, Known]]:
        """isinstance tells the type of a variable, where it holds."""
        value = expression(c, node)
        is_check = isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2
        if not is_check or isinstance(value, Const | Bad) or not isinstance(node.args[0], ast.Name):
            return value, ({}, {})
        name = node.args[0].id
        known = c.frame.names.get(name)
        kind = None if known is None else resolved(known.type)
        if isinstance(kind, OptionalType):
            return value, ({name: without_none(kind)}, {})
        problems = len(c.problems)
        classes = classes_of(expression(c, node.args[1]))
        del c.problems[problems:]
        wanted: Type | None = type_from_annotation(classes[0]) if classes and len(classes) == 1 else None
        if kind is ANY and wanted is not None:
            return value, ({name: wanted}, {})
        return value, ({}, {})

    def special_call(self, c: Context, node: ast.Call) -> Value | None:
        """Calls that are read from the source: `super().f(x)`, `bool(a and b)`, `annotate(List[int], [])`."""
        function = node.func
        if isinstance(function, ast.Attribute) and _is_super(function.value):
            return self._of_base(c, function, node)
        name = getattr(function, "attr", getattr(function, "id", ""))
        is_test = name == "bool" and len(node.args) == 1 and isinstance(node.args[0], ast.BoolOp | ast.UnaryOp)
        if is_test and isinstance(function, ast.Name):
            value, _ = condition(c, node.args[0])
            callee = expression(c, function)
            return value if isinstance(value, Bad) else call(c, callee, [value], {}, node)
        if name != "annotate" or len(node.args) != 2 or node.keywords:
            return None
        callee = expression(c, function)
        if not isinstance(callee, Reference) or getattr(callee.value, "__name__", "") != "annotate":
            return None
        wanted = declared(c, node.args[0])
        value = expression(c, node.args[1])
        return value if wanted is None else with_type(c, value, wanted, node.args[1])

    def _of_base(self, c: Context, function: ast.Attribute, node: ast.Call) -> Value:
        """`super().f(x)`: the method of the next class."""
        frame = c.frame
        owner: Value | None
        named = function.value.args  # type: ignore[attr-defined]
        if len(named) == 2:
            start = expression(c, named[0])
            own, owner = (start.value if isinstance(start, Reference) else None), expression(c, named[1])
        else:
            own = frame.code.outside.closure.get("__class__")
            first = frame.code.definition.args.args[:1]
            owner = frame.names.get(first[0].arg) if first else None
        kind = None if owner is None else resolved(owner.type)
        if own is None or not isinstance(owner, Instance | ModuleRef | Runtime) or not isinstance(kind, ObjectType):
            return c.problem("super() cannot be scripted here", node, "call the method of the class: Base.f(self, x)")
        classes = kind.kind.__mro__
        if own not in classes:
            return c.problem(f"super() of an object that is no {getattr(own, '__name__', own)}", node)
        for base in classes[classes.index(own) + 1 :]:
            found = vars(base).get(function.attr)
            if isinstance(found, FunctionType):
                c.surroundings.take_method(base, function.attr)
                args = [expression(c, arg) for arg in node.args]
                kwargs = {word.arg: expression(c, word.value) for word in node.keywords if word.arg is not None}
                if any(isinstance(arg, ast.Starred) for arg in node.args):
                    spread_items = [value.items for value in args if isinstance(value, Group)]
                    args = [item for items in spread_items for item in items]
                return call(c, Bound(owner, found), args, kwargs, node)
        return c.problem(f"no base class has {function.attr!r}", node)


def _is_super(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "super"
        and len(node.args) in (0, 2)
    )

"""`with`: contexts of torch, functions that `contextlib` made contexts, and objects of the program's."""

from __future__ import annotations

import ast
import contextlib
import inspect
import operator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.ops import Entering, enter_context, exit_context
from graphwright.script.program.frames import code_of
from graphwright.script.program.values import Bad, Reference, Runtime, Value
from graphwright.script.tensors import annotated_method_result
from graphwright.script.types import ANY, NONE, ListType, ObjectType, resolved
from graphwright.source import walk_all

if TYPE_CHECKING:
    from graphwright.script.program.context import Context, Kinds


def with_statement(c: Context, node: ast.With) -> Kinds:
    """Compile `with`."""
    entered: list[Runtime] = []
    for item in node.items:
        made = _enter(c, item)
        if made is not None:
            entered.append(made)
    kinds = c.parts.block(c, node.body)
    c.frame.statement = node
    for context in reversed(entered):
        c.function(exit_context, (context,), NONE, node)
    return kinds


def _enter(c: Context, item: ast.withitem) -> Runtime | None:
    """Enter a context: grad modes of torch, a function that `contextlib` made one of, or an object of the program's."""
    call = item.context_expr
    manager = c.expression(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(manager, Reference) or not _makes_context(manager.value):
        if isinstance(call, ast.Call):
            c.evaluated = None if manager is None else (call.func, manager)
        return None if isinstance(manager, Bad) else _enter_object(c, c.expression(call), item)
    args = [c.expression(arg) for arg in call.args]
    kwargs = {word.arg: c.expression(word.value) for word in call.keywords if word.arg is not None}
    if any(isinstance(value, Bad) for value in (*args, *kwargs.values())):
        return None
    wrapped = getattr(manager.value, "__wrapped__", None)
    if wrapped is not None:
        c.attributes.run([wrapped])
    if item.optional_vars is None:
        return enter_known(c, manager.value, tuple(args), kwargs, call)
    return _enter_object(c, c.make("call_function", manager.value, args, ANY, call, kwargs), item)


def _makes_context(manager: Any) -> bool:
    """Tell whether calling this gives a context of torch's, or one that `contextlib` makes of a function."""
    home = str(getattr(manager, "__module__", "")).partition(".")[0]
    code = getattr(manager, "__code__", None)
    is_made = hasattr(manager, "__wrapped__") and code is not None and code.co_filename == contextlib.__file__
    return home == "torch" or is_made or manager is contextlib.nullcontext


def _enter_object(c: Context, context: Value, item: ast.withitem) -> Runtime | None:
    """Enter an object; what that gives is bound to the variable after `as`."""
    at = item.context_expr
    kind = resolved(context.type) if isinstance(context, Runtime) else None
    if isinstance(kind, ObjectType) and hasattr(kind.kind, "__enter__"):
        leaves = inspect.getattr_static(kind.kind, "__exit__", None)
        code = code_of(leaves) if isinstance(leaves, FunctionType) else None
        for part in walk_all([] if code is None else code.body):
            if isinstance(part, ast.Return) and not (part.value is None or _is_none(part.value)):
                c.problem(f"{kind} may end an error, which cannot be scripted", at, "return nothing from __exit__")
                return None
        c.attributes.run([kind.kind.__enter__, leaves])
    elif kind is not ANY:
        if not isinstance(context, Bad):
            fix = "with torch.no_grad():, or an object that the program makes"
            c.problem("this cannot be entered in a scripted program", at, fix)
        return None
    given = c.make("call_function", list, (), ListType(ANY), at, name="given")
    entered = enter_known(c, Entering, (context, given), {}, at)
    if item.optional_vars is not None:
        result = annotated_method_result(kind.kind, "__enter__") if isinstance(kind, ObjectType) else None
        c.parts.assign(c, item.optional_vars, c.function(operator.getitem, (given, 0), result or ANY, at), at)
    return entered


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def enter_known(c: Context, manager: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: ast.AST) -> Runtime:
    """Enter a context whose class is known."""
    name = getattr(manager, "__name__", "context")
    return c.make("call_function", enter_context, (manager, *args), ANY, at, kwargs, name=name)

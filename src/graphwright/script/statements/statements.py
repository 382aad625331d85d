"""Statements, one function each. Each says how it may end."""

from __future__ import annotations

import ast
import copy
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.ops import raise_error, set_attribute, unpack, write_attribute
from graphwright.runtime import MODULE_TABLES
from graphwright.script.annotations import type_from_annotation
from graphwright.script.program.fields import type_of_field
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
from graphwright.script.statements.attempts import try_statement
from graphwright.script.statements.branches import branch, chosen, continue_unless_left
from graphwright.script.statements.loops import for_statement, while_statement
from graphwright.script.statements.merging import NEXT
from graphwright.script.statements.with_statements import with_statement
from graphwright.script.types import (
    ANY,
    FLOAT,
    INT,
    NONE,
    STR,
    TENSOR,
    DictType,
    ListType,
    ObjectType,
    TupleType,
    Type,
    accepts,
    item_type,
    resolved,
)
from graphwright.source import UnknownPattern, assigned, lower_match

if TYPE_CHECKING:
    from graphwright.script.program.context import Context, Kinds


def block(c: Context, statements: Sequence[ast.stmt]) -> Kinds:
    """Compile statements, and say how they may end."""
    for i, statement in enumerate(statements):
        c.frame.statement = statement
        rest = statements[i + 1 :]
        if isinstance(statement, ast.If):
            kinds, is_over = _if(c, statement, rest)
            if is_over:
                return kinds
        else:
            kinds = _statement(c, statement)
        if c.has_raised:
            c.has_raised = False
            return frozenset({"raise"})
        if kinds == NEXT:
            continue
        if "next" not in kinds or not rest:
            return kinds
        c.frame.statement = statement
        return continue_unless_left(c, kinds, lambda rest=rest: block(c, rest), c.frame.code.liveness.after(rest[-1]))  # type: ignore[misc]
    return NEXT


def _statement(c: Context, node: ast.stmt) -> Kinds:
    compile_it = _STATEMENTS.get(type(node))
    if compile_it is None:
        what, fix = _UNKNOWN.get(type(node), (f"`{type(node).__name__.lower()}`", ""))
        c.problem(f"{what} cannot be scripted", node, fix)
        return NEXT
    return compile_it(c, node) or NEXT


_UNKNOWN: dict[type[ast.stmt], tuple[str, str]] = {
    ast.Nonlocal: ("`nonlocal`", "return the value from the function inside"),
    ast.ClassDef: ("a class inside a function", "define it outside"),
    ast.AsyncFunctionDef: ("`async def`", "write an ordinary function"),
    ast.AsyncFor: ("`async for`", "write an ordinary loop"),
    ast.AsyncWith: ("`async with`", "write an ordinary block"),
}


# ---- branches


def _if(c: Context, node: ast.If, rest: Sequence[ast.stmt]) -> tuple[Kinds, bool]:
    test, (where_true, where_false) = c.parts.condition(c, node.test)
    if isinstance(test, Const) and test.fixed:
        chosen, refined = (node.body, where_true) if test.value else (node.orelse, where_false)
        c.refine(refined)
        return block(c, chosen), False
    live = c.frame.code.liveness
    works: tuple[Callable[[], Kinds], Callable[[], Kinds]] = (
        lambda: block(c, node.body),
        lambda: block(c, node.orelse),
    )
    after_rest = live.after(rest[-1]) if rest else frozenset()
    go_on = (lambda: block(c, rest)) if rest else None
    if isinstance(test, Bad):
        test = constant(True)
    kinds, took_rest = branch(
        c, test, works, (where_true, where_false), go_on, live.after(node), node, _text(node.test), after_rest
    )
    return kinds, took_rest


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) < 60 else f"{text[:57]}..."


def _match(c: Context, node: ast.Match) -> Kinds:
    """Compile a `match` as the `if`s that it is."""
    subject = ast.copy_location(ast.Name("$subject", ast.Load()), node.subject)
    c.frame.names["$subject"] = c.held(c.expression(node.subject), node.subject)
    try:
        made = lower_match(node, subject)
    except UnknownPattern as unknown:
        fix = "match values, `|`, names and `_`, or write `if`"
        c.problem("this pattern cannot be scripted", unknown.pattern, fix)
        return NEXT
    for statement in made:
        c.frame.code.liveness.add(statement, node)
    return block(c, made)


# ---- leaving


def _return(c: Context, node: ast.Return) -> Kinds:
    value = constant(None) if node.value is None else c.expression(node.value)
    wanted = c.frame.returns
    if wanted is not None and not isinstance(value, Bad) and not accepts(wanted, value.type):
        message = f"{c.frame.code.qualname} is declared to return {wanted}, and returns {value.type}"
        c.problem(message, node.value or node, "change the annotation, or what is returned")
    if wanted is not None and isinstance(value, Runtime) and resolved(value.kind) is ANY:
        value = Runtime(value.node, wanted)
    c.frame.names["$result"] = value
    c.frame.names["$at"] = Instance(c.frame.origin(node.value or node))
    return frozenset({"return"})


def _break(c: Context, node: ast.Break) -> Kinds:
    return frozenset({"break"})


def _continue(c: Context, node: ast.Continue) -> Kinds:
    return frozenset({"continue"})


def _raise(c: Context, node: ast.Raise) -> Kinds:
    if node.exc is None:
        caught = c.frame.names.get("$error")
        if caught is None:
            c.problem("a bare `raise` stands in no handler", node, "name the exception")
        else:
            c.function(raise_error, (caught,), NONE, node)
        return frozenset({"raise"})
    call = node.exc if isinstance(node.exc, ast.Call) else None
    kind = c.expression(call.func if call is not None else node.exc)
    args = [c.expression(arg) for arg in call.args] if call is not None else []
    cause = c.expression(node.cause or ast.copy_location(ast.Constant(None), node))
    named = {"cause": cause} if isinstance(cause, Runtime) and _may_be_error(cause.kind) else {}
    if not named and not isinstance(cause, Bad) and not (isinstance(cause, Const) and cause.value is None):
        assert node.cause is not None
        c.problem("only an error that was caught can be a cause", node.cause, "raise SomeError(...) from error")
    if call is None and isinstance(kind, Runtime) and _may_be_error(kind.kind):
        c.make("call_function", raise_error, (kind,), NONE, node, named)
        return frozenset({"raise"})
    is_error = (
        isinstance(kind, Reference) and issubclass(type(kind.value), type) and issubclass(kind.value, BaseException)
    )
    if not is_error or (call is not None and call.keywords):
        if not isinstance(kind, Bad):
            c.problem(
                "only `raise SomeError(...)` can be scripted", node, "raise an exception class with its arguments"
            )
    elif not any(isinstance(arg, Bad) for arg in args):
        if isinstance(kind, Reference):
            c.made.setdefault(kind.value, node)
        c.make("call_function", raise_error, (kind, *args), NONE, node, named)
    return frozenset({"raise"})


def _may_be_error(kind: Type) -> bool:
    kind = resolved(kind)
    return kind is ANY or (isinstance(kind, ObjectType) and issubclass(kind.kind, BaseException))


def _assert(c: Context, node: ast.Assert) -> None:
    test, (where_true, _) = c.parts.condition(c, node.test)
    if isinstance(test, Const) and test.fixed and test.value:
        return
    if isinstance(test, Bad):
        return

    def fail() -> Kinds:
        args = [] if node.msg is None else [c.expression(node.msg)]
        c.function(raise_error, (AssertionError, *args), NONE, node)
        return frozenset({"raise"})

    branch(c, test, (lambda: NEXT, fail), ({}, {}), None, frozenset(c.frame.names), node, _text(node.test))
    c.refine(where_true)


# ---- values


def _expression(c: Context, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        c.expression(node.value)


def _pass(c: Context, node: ast.stmt) -> None:
    pass


def _assign(c: Context, node: ast.Assign) -> None:
    comment, target = c.frame.code.comments.of_lines.get(node.lineno), node.targets[0]
    if comment is not None and isinstance(target, ast.Name) and len(node.targets) == 1:
        made = ast.AnnAssign(target, ast.copy_location(comment, node), node.value, 1)
        _annotated(c, ast.copy_location(made, node))
        return
    value = _value_for(c, node.value, node.targets[0] if len(node.targets) == 1 else None)
    value = value if len(node.targets) == 1 else c.held(value, node.value)  # which all of them hold
    for target in node.targets:
        assign(c, target, value, node)


def _value_for(c: Context, node: ast.expr, target: ast.expr | None) -> Value:
    """Compile the right side of an assignment, its value named as its target."""
    c.named = (node, target.id) if isinstance(target, ast.Name) else None
    value = c.expression(node)
    c.named = None
    return value


def _annotated(c: Context, node: ast.AnnAssign) -> None:
    wanted = declared(c, node.annotation)
    if wanted is not None and isinstance(node.target, ast.Name):
        c.frame.declared[node.target.id] = wanted
    if node.value is None:
        return
    value = _value_for(c, node.value, node.target)
    if wanted is not None:
        value = with_type(c, value, wanted, node.value)
    assign(c, node.target, value, node)


def declared(c: Context, annotation: ast.expr) -> Type | None:
    """The type that an annotation in the source means."""
    try:
        found = type_from_annotation(c.frame.code.outside.evaluate(annotation))
    except Exception as error:
        c.problem(
            f"this annotation cannot be resolved: {error}", annotation, "import its names at the top of the module"
        )
        return None
    if found is None:
        c.problem(
            "this annotation is no type of scripted programs", annotation, "use Tensor, int, List[...], Optional[...]"
        )
    return found


def with_type(c: Context, value: Value, wanted: Type, at: ast.AST) -> Value:
    """A value where a type is declared for it."""
    if isinstance(value, Bad):
        return value
    if not accepts(wanted, value.type):
        return c.problem(
            f"a value of type {value.type} is given where {wanted} is declared", at, "change one of the two"
        )
    if isinstance(value, Display) and isinstance(resolved(wanted), ListType | DictType):
        return Display(value.items, value.is_dict, wanted)
    if isinstance(value, Runtime):
        return Runtime(value.node, value.kind if resolved(value.kind) is not ANY else wanted)
    return value


def _augmented(c: Context, node: ast.AugAssign) -> None:
    """`f().x += y` and `f()[g()] += y` call `f` and `g` once, for what is read and for what is written."""
    target = node.target
    reading = copy.copy(target)
    reading.ctx = ast.Load()
    owner: Value = BAD
    key: Any = None
    if isinstance(target, ast.Name):
        left = c.expression(reading)
    else:
        owner = c.expression(target.value)
        if isinstance(target, ast.Subscript):
            key = c.parts.key(c, target.slice)
            left = c.parts.item(c, owner, key, reading)
        else:
            c.evaluated = (target.value, owner)
            left = c.expression(reading)
    if is_outside(left):
        c.changes_outside(left, node)
        return
    value = c.parts.augmented(c, node, left)
    if isinstance(target, ast.Name):
        assign(c, target, value, node)
    elif isinstance(target, ast.Subscript):
        _assign_item(c, owner, key, value, target)
    elif not _is_in_place(left, value):  # else the tensor itself was changed
        assign_attribute(c, owner, target.attr, value, target)


def _is_in_place(left: Value, value: Value) -> bool:
    """Tell whether a tensor of a module was changed; what an object has may be a number, which is made anew."""
    if not isinstance(value, Runtime) or not isinstance(left, Runtime) or left.node.op != "get_attr":
        return False
    return value.kind is TENSOR and str(getattr(value.node.target, "__name__", "")).startswith("i")


def assign(c: Context, target: ast.expr, value: Value, at: ast.AST) -> None:
    """Give a target of an assignment a value."""
    if isinstance(target, ast.Name):
        wanted = c.frame.declared.get(target.id)
        if wanted is not None and not isinstance(at, ast.AnnAssign):
            value = with_type(c, value, wanted, getattr(at, "value", None) or at)
        named = target.id if isinstance(at, ast.Assign | ast.AnnAssign) else ""
        held = c.frame.names[target.id] = c.held(value, getattr(at, "value", None) or at, named=named)
        for kept in c.frame.kept:
            if target.id in kept.types and not isinstance(held, Bad):
                kept.types[target.id].append(held.type)
                c.function(operator.setitem, (kept.values, list(kept.types).index(target.id), held), NONE, at)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(c, target, value, at)
    elif isinstance(target, ast.Starred):
        assign(c, target.value, value, at)
    elif isinstance(target, ast.Attribute):
        assign_attribute(c, c.expression(target.value), target.attr, value, target)
    elif isinstance(target, ast.Subscript):
        owner = c.expression(target.value)
        _assign_item(c, owner, c.parts.key(c, target.slice), value, target)


def _unpack(c: Context, target: ast.Tuple | ast.List, value: Value, at: ast.AST) -> None:
    if isinstance(value, Bad):
        for item in target.elts:
            assign(c, item, BAD, at)
        return
    starred = [i for i, item in enumerate(target.elts) if isinstance(item, ast.Starred)]
    if isinstance(value, Display) and not value.is_dict:
        value = Group(tuple([item for _, item in value.items]))
    items = list(value.items) if isinstance(value, Group) else c.parts.module_items(c, value)
    if items is None:
        if starred:
            items = _starred_items(c, target, value, starred[0])
        else:
            items = _taken_apart(c, target, value)
    elif starred:
        end = len(items) - (len(target.elts) - starred[0] - 1)
        items = [
            *items[: starred[0]],
            Display(tuple([(None, item) for item in items[starred[0] : end]]), False),
            *items[end:],
        ]
    if items is None:
        return
    if len(items) != len(target.elts):
        c.problem(f"{len(items)} values are given to {len(target.elts)} variables", target, "name each of them")
        items = [BAD] * len(target.elts)
    for item, its in zip(target.elts, items, strict=True):
        assign(c, item, its, at)


def _taken_apart(c: Context, target: ast.Tuple | ast.List, value: Value) -> list[Value] | None:
    kind = resolved(value.type)
    count = len(target.elts)
    if isinstance(kind, TupleType):
        if len(kind.items) != count:
            c.problem(f"{len(kind.items)} values are given to {count} variables", target, "name each of them")
            return [BAD] * count
        kinds: Sequence[Type] = kind.items
    else:
        one = item_type(kind)
        if one is None:
            c.problem(f"a value of type {kind} cannot be taken apart", target, "take apart a tuple, a list or a tensor")
            return [BAD] * count
        kinds = [one] * count
    at = c.frame.statement
    taken = c.function(unpack, (value, count), ANY, at)
    names = [item.id if isinstance(item, ast.Name) and item.id != "_" else None for item in target.elts]
    return [
        c.make("call_function", operator.getitem, (taken, i), each, at, name=names[i]) for i, each in enumerate(kinds)
    ]


def _starred_items(c: Context, target: ast.Tuple | ast.List, value: Value, star: int) -> list[Value] | None:
    """Take apart what the graph computes, `a, *rest = values`."""
    one = item_type(value.type)
    if one is None:
        c.problem(f"a value of type {value.type} cannot be taken apart", target, "take apart a list or a tensor")
        return None
    at = c.frame.statement
    after = len(target.elts) - star - 1
    if star + after:
        c.take_answer(operator.ge, (c.function(len, (value,), INT, at), star + after), True, at)
    items: list[Value] = [c.function(operator.getitem, (value, i), one, at) for i in range(star)]
    middle = c.function(operator.getitem, (value, slice(star, -after if after else None, None)), ANY, at)
    items.append(c.function(list, (middle,), ListType(one), at))
    return items + [c.function(operator.getitem, (value, i), one, at) for i in range(-after, 0)]


def assign_attribute(c: Context, owner: Value, name: str, value: Value, at: ast.AST) -> None:
    """Give an attribute of a module, an object or a tensor a value."""
    if isinstance(owner, Bad) or isinstance(value, Bad):
        return
    if isinstance(owner, Choice):
        held = c.held(value, at)

        def write(item: Value) -> Value:
            assign_attribute(c, item, name, held, at)
            return constant(None)

        chosen(c, owner, write, at)
        return
    if isinstance(owner, ModuleRef):
        static = inspect.getattr_static(type(owner.module), name, None)
        if isinstance(static, property) and static.fset is not None:
            c.parts.call(c, Bound(owner, static.fset), [value], {}, at)
            return
        if hasattr(type(static), "__set__"):
            c.problem(f"{name!r} is a descriptor, whose setter cannot be scripted", at, "set the attribute")
            return
        if type(owner.module).__setattr__ is not nn.Module.__setattr__:
            c.attributes.run([type(owner.module).__setattr__])
        c.attributes.write(owner.module, name, value.type)
        c.function(write_attribute, (c.path_of(owner, name), value), NONE, at)
        return
    kind = resolved(owner.type) if isinstance(owner, Runtime) else None
    if (kind is TENSOR and name in ("data", "grad", "requires_grad")) or kind is ANY or isinstance(kind, ObjectType):
        wanted = type_of_field(kind.kind, name) if isinstance(kind, ObjectType) else ANY
        if not accepts(wanted, value.type) or (wanted is FLOAT and value.type is INT):
            c.problem(
                f"{name!r} of {kind} is declared as {wanted}, and given {value.type}", at, "change one of the two"
            )
            return
        if isinstance(kind, ObjectType) and _only_holds(kind.kind, name):
            c.function(set_attribute, (owner, name, value), NONE, at)
            return
        if kind is not TENSOR:  # it may be a module, or run a setter
            c.attributes.store(name)
            c.attributes.run([_setter(kind.kind, name)] if isinstance(kind, ObjectType) else [])
        c.function(setattr, (owner, name, value), NONE, at)
    else:
        if isinstance(owner, Instance) and owner.place is not None:  # another round reads the object when it runs
            c.attributes.change(owner.place.path, str(owner.place.steps[0][1]))
        c.problem("only attributes of modules can be assigned", at, "return the new value instead")


def _only_holds(kind: type, name: str) -> bool:
    """Tell whether objects of a class do nothing more with an attribute than to hold it."""
    static = inspect.getattr_static(kind, name, None)
    is_plain = not hasattr(type(static), "__set__") or inspect.ismemberdescriptor(static)
    is_module = issubclass(kind, nn.Module | type | torch.Tensor)
    setter: Any = kind.__setattr__
    return is_plain and not is_module and setter is object.__setattr__ and not type.__subclasses__(kind)


def _setter(kind: type, name: str) -> Any:
    static = inspect.getattr_static(kind, name, None)
    return static.fset if isinstance(static, property) else None


def _assign_item(c: Context, owner: Value, key: Any, value: Value, target: ast.Subscript) -> None:
    if any(isinstance(part, Bad) for part in (owner, key, value)):
        return
    kind = resolved(owner.type)
    if is_outside(owner):
        c.changes_outside(owner, target)
        return
    if isinstance(target.value, ast.Attribute) and target.value.attr in _TABLES:
        what = f"the program writes to {target.value.attr!r}, past the attributes of what has it"
        c.problem(what, target, "assign the attribute: self.name = value")
        return
    if isinstance(owner, Group) or kind is STR:
        c.problem(
            f"the items of a {'tuple' if isinstance(owner, Group) else 'str'} cannot be assigned", target, "use a list"
        )
        return
    wanted = kind.item if isinstance(kind, ListType | DictType) else ANY
    given = value.type if not isinstance(key, slice) or wanted is ANY else item_type(value.type) or ANY
    if not accepts(wanted, given):
        c.problem(f"an item of {kind} cannot be {given}", target, "use another container, or annotate this one")
        return
    c.function(operator.setitem, (owner, key, value), NONE, target)


_TABLES = MODULE_TABLES | {"__dict__"}


def _delete(c: Context, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            c.frame.names.pop(target.id, None)
        elif isinstance(target, ast.Subscript):
            owner = c.expression(target.value)
            if is_outside(owner):
                c.changes_outside(owner, target)
                continue
            c.function(operator.delitem, (owner, c.parts.key(c, target.slice)), NONE, target)
        else:
            c.problem("an attribute cannot be deleted", target, "set it to None")


# ---- blocks


def _function(c: Context, node: ast.FunctionDef) -> None:
    if node.decorator_list:
        c.problem(
            "a decorated function inside a function cannot be scripted", node.decorator_list[0], "define it outside"
        )
    c.frame.names[node.name] = c.closure(node)


def _global(c: Context, node: ast.Global) -> None:
    if set(node.names) & set(assigned(c.frame.code.body)):
        c.problem(
            "a global variable that is assigned cannot be scripted", node, "keep it in a module: self.count = ..."
        )


def _import(c: Context, node: ast.Import | ast.ImportFrom) -> None:
    names: dict[str, Any] = {}
    try:
        exec(compile(ast.Module([node], []), "<import>", "exec"), dict(c.frame.code.outside.globals), names)
    except ImportError as error:
        c.problem(f"this import fails: {error}", node, "install the package, or import it at the top", type(error))
    for name, value in names.items():
        c.frame.names[name] = c.parts.wrap(c, value, node)


_STATEMENTS: dict[type[ast.stmt], Callable[[Context, Any], Kinds | None]] = {
    ast.Return: _return, ast.Break: _break, ast.Continue: _continue, ast.Raise: _raise, ast.Assert: _assert,
    ast.Expr: _expression, ast.Pass: _pass, ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented,
    ast.Delete: _delete, ast.With: with_statement, ast.FunctionDef: _function, ast.Import: _import,
    ast.ImportFrom: _import,
    ast.For: for_statement, ast.While: while_statement, ast.Match: _match,
    ast.Try: try_statement, ast.Global: _global,
}  # fmt: skip

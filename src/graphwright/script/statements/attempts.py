"""`try`: what it runs is a body of its own, which gives the error that it raised, or None, and its values.

A branch on the error follows: where there is none, `else` and what comes after; where there is one, the handlers, in
which a variable that the body assigns has no value that is known, unless that was the last thing the body did. The
statements of `finally` stand on both ways.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from graphwright.ir import NestedGraph, Node
from graphwright.ops import raise_error, write_attempt
from graphwright.script.program.frames import Kept
from graphwright.script.program.values import BAD, Bad, Const, Display, Group, Reference, Runtime, Unbound, Value
from graphwright.script.statements.branches import branch, continue_unless_left
from graphwright.script.statements.merging import NEXT, Merger, Side
from graphwright.script.types import ANY, BOOL, NONE, ObjectType, Type, join
from graphwright.source import assigned, names_read
from graphwright.values import Given, filled

if TYPE_CHECKING:
    from graphwright.script.program.context import Context, Kinds

_Errors = tuple[type[BaseException], ...]


def try_statement(c: Context, node: ast.Try) -> Kinds:
    """Compile a `try` statement."""
    if not node.finalbody:
        return _handled(c, node, frozenset())
    reads = frozenset().union(*[names_read(statement) for statement in node.finalbody])

    def work() -> Kinds:
        return _handled(c, node, reads) if node.handlers else c.parts.block(c, node.body)

    def failed(error: Runtime) -> Kinds:
        _end(c, node)
        c.function(raise_error, (error,), NONE, node)
        return frozenset({"raise"})

    kinds = _attempt(c, node, work, (BaseException,), failed, reads)
    if "next" not in kinds and kinds == {"raise"}:
        return kinds
    left = {name: value for name, value in c.frame.names.items() if name.startswith("$")}
    _end(c, node)
    c.frame.names.update(left)
    return kinds


def _end(c: Context, node: ast.Try) -> None:
    """Compile the statements of `finally`."""
    if c.parts.block(c, node.finalbody) != NEXT:
        c.problem("`finally` is left by another way than its end", node.finalbody[-1], "leave after the `try`")


def _handled(c: Context, node: ast.Try, reads: frozenset[str]) -> Kinds:
    """Compile the body, the handlers and the `else` of a `try` statement."""
    handlers = [(handler, _errors(c, handler)) for handler in node.handlers]
    if any(errors is None for _, errors in handlers):
        return NEXT
    known = [(handler, errors) for handler, errors in handlers if errors is not None]
    every = tuple(dict.fromkeys([error for _, errors in known for error in errors]))
    after = reads.union(*[names_read(statement) for statement in node.orelse])

    def chosen(error: Runtime, rest: Sequence[tuple[ast.ExceptHandler, _Errors]]) -> Kinds:
        (handler, errors), *others = rest
        if not others:
            return _handle(c, handler, errors, error)
        c.frame.statement = node
        test = c.function(isinstance, (error, errors), BOOL, handler)
        works = (lambda: _handle(c, handler, errors, error), lambda: chosen(error, others))
        live = c.frame.code.liveness.after(node) | reads
        return branch(c, test, works, ({}, {}), None, live, node, ast.unparse(handler.type or handler))[0]

    return _attempt(
        c, node, lambda: c.parts.block(c, node.body), every, lambda error: chosen(error, known), after, node.orelse
    )


def _errors(c: Context, handler: ast.ExceptHandler) -> _Errors | None:
    """The classes that a handler catches; None, with a problem noted, where they are not known."""
    if handler.type is None:
        return (BaseException,)
    value = c.expression(handler.type)
    items = value.items if isinstance(value, Group) else (value,)
    found = [item.value for item in items if isinstance(item, Reference)]
    if len(found) == len(items) and all(
        issubclass(type(kind), type) and issubclass(kind, BaseException) for kind in found
    ):
        return tuple(found)
    if not any(isinstance(item, Bad) for item in items):
        c.problem("`except` needs exception classes", handler.type, "except (ValueError, KeyError):")
    return None


def _handle(c: Context, handler: ast.ExceptHandler, errors: _Errors, error: Runtime) -> Kinds:
    error = Runtime(error.node, ObjectType(errors[0] if len(errors) == 1 else BaseException))
    c.frame.names["$error"] = error
    if handler.name is not None:
        c.frame.names[handler.name] = error
    kinds = c.parts.block(c, handler.body)
    c.frame.names.pop("$error", None)
    if handler.name is not None:
        c.frame.names.pop(handler.name, None)
    return kinds


# ---- the body


def _attempt(
    c: Context,
    node: ast.Try,
    work: Callable[[], Kinds],
    errors: _Errors,
    failed: Callable[[Runtime], Kinds],
    reads: frozenset[str],
    orelse: Sequence[ast.stmt] = (),
) -> Kinds:
    """Write a body under `try`, and the branch on what came of it. `reads` is read after it, inside the statement."""
    before = dict(c.frame.names)
    loops = frozenset().union(*[ends.after | ends.head for ends in c.frame.loops])
    asked = c.frame.code.liveness.after(node) | loops | reads.union(*map(names_read, node.handlers))
    kept = _kept(c, node, sorted(_uncertain(node.body) & asked))
    c.frame.kept.append(kept)
    body = _body(c, work, errors)
    c.frame.kept.pop()
    c.frame.statement = node
    error, names = _write(c, node, body, errors, c.frame.code.liveness.after(node) | reads)
    test = c.function(operator.is_, (error, None), BOOL, node)

    def went_well() -> Kinds:
        c.frame.names = {**c.frame.names, **names}
        if body.kinds == NEXT:
            return c.parts.block(c, orelse) if orelse else NEXT
        if "next" in body.kinds and orelse:
            live = c.frame.code.liveness.after(node) | reads
            return continue_unless_left(c, body.kinds, lambda: c.parts.block(c, orelse), live)
        return body.kinds

    def went_wrong() -> Kinds:
        why = f"that is known where the `try` in line {node.lineno} was left by an error"
        fix = "assign it before the `try`, or in the handler"
        names: dict[str, Value] = {name: Unbound(why, fix) for name in _uncertain(node.body)}
        for i, (name, kinds) in enumerate(kept.types.items()):
            kind: Type | None = kinds[0]
            for other in kinds[1:]:
                kind = None if kind is None else join(kind, other)
            if kind is not None:
                names[name] = c.make("call_function", operator.getitem, (kept.values, i), kind, node, name=name)
        c.frame.names = {**before, **names}
        return failed(error)

    live = c.frame.code.liveness.after(node) | (reads if not orelse else frozenset())
    kinds, _ = branch(c, test, (went_well, went_wrong), ({}, {}), None, live, node, "no error is raised")
    return kinds


def _kept(c: Context, node: ast.Try, asked: Sequence[str]) -> Kept:
    """A list of what the variables hold that an error may leave with one value or another."""
    known = [(name, c.frame.names.get(name)) for name in asked]
    values = {name: value for name, value in known if isinstance(value, Runtime | Const | Group)}
    items = Display(tuple([(None, value) for value in values.values()]), False)
    made = c.held(items, node, named="kept") if values else BAD
    return Kept(made, {name: [value.type] for name, value in values.items()})  # type: ignore[arg-type]


def _body(c: Context, work: Callable[[], Kinds], errors: _Errors) -> Side:
    """Compile what runs under `try`."""
    side = Side(NestedGraph(c.body), dict(c.frame.names), NEXT)
    c.catching.append(errors)
    try:
        with c.writing(side.body, side.names):
            side.kinds = work()
            side.names = c.frame.names
    finally:
        c.catching.pop()
    return side


def _write(
    c: Context, node: ast.Try, side: Side, errors: _Errors, live: frozenset[str]
) -> tuple[Runtime, dict[str, Value]]:
    """Write the body; return the error that it raises, and the variables where it raises none."""
    merger = Merger(
        c, (side, Side(NestedGraph(c.body), dict(c.frame.names), frozenset({"raise"}))), node, "no error is raised"
    )
    names = merger.variables(side.kinds - {"raise"}, live)
    with c.writing(side.body):
        results = [None if value is None else c.argument(value) for value, _ in merger.slots]
    origin = c.frame.origin(node)
    error, nodes = write_attempt(c.maker(node), side.body, results, errors, _may_raise, merger.wishes, origin)
    given = Given([Runtime(item, ANY) for item in nodes])
    return Runtime(error, ANY), {name: filled(value, given) for name, value in names.items()}


def _may_raise(node: Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module")


def _uncertain(body: Sequence[ast.stmt]) -> set[str]:
    """The variables that a body assigns before the last thing that may raise."""
    found = set(assigned(body))
    *first, last = [statement for statement in body if not isinstance(statement, _CANNOT_RAISE)] or [body[-1]]
    if not isinstance(last, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return found
    targets = last.targets if isinstance(last, ast.Assign) else [last.target]
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return found
    return found - {targets[0].id} | set(assigned([*first, *([last.value] if last.value is not None else [])]))


_CANNOT_RAISE = (ast.Break, ast.Continue, ast.Pass)

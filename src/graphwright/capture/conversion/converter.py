"""A function's tree, rewritten so that what it asks goes through a runtime: `conversion` compiles it."""

from __future__ import annotations

import ast
import builtins
import collections
import re
from collections.abc import Callable, Iterator
from typing import Any

from graphwright.capture.conversion.calls_left import LOOKS_AT_FRAME, OF_ERRORS, WARNS
from graphwright.capture.conversion.displays import is_star_display, kept_by_what_follows, may_be_key, sum_of_parts
from graphwright.capture.conversion.generators import gathered_call
from graphwright.capture.conversion.unshared import unshared
from graphwright.source import (
    CHANGES,
    HIDDEN,
    ITEM,
    PREFIX,
    RETURNS,
    RUNTIME_MARK,
    SCOPES,
    TAKES_ALL,
    TYPE_PARAMETERS,
    Handler,
    Lowered,
    Tried,
    as_attempt,
    as_ifs,
    as_loop,
    as_told,
    assigned,
    blocks_of,
    bound_in_loops,
    children,
    compares_identity,
    compares_sizes,
    errors_named_outside,
    exit_signal,
    exiting,
    falls_through,
    function_of,
    holds,
    is_convertible,
    is_from_conversion,
    lambda_of,
    leaves_loop,
    lower_attempt,
    lower_loop,
    may_wait,
    name_of,
    names_counted,
    note_unread,
    placed,
    plain_names,
    private_to,
    returns,
    statements_in,
    template_of,
    tested_for_none,
    texts_of,
    unread_after,
    walk,
    walk_all,
    walk_own,
    with_rest,
)

# What takes a condition and a message.
_CHECKS = frozenset({
    "_assert", "_check", "_check_value", "_check_index", "_check_type", "_check_not_implemented", "_check_with",
    "_check_tensor_all", "_check_tensor_all_with",
})  # fmt: skip


class Converter(ast.NodeTransformer):
    """Converts one function and those inside it."""

    def __init__(self, owner: str, first: str, waiting: frozenset[int] = frozenset()) -> None:
        self._owner = owner.lstrip("_")  # the class that `__name` is private to
        self._first = first
        self._waiting = waiting  # lines of branches to be joined where the function ends
        self._unshared: set[str] = set()  # variables whose lists and dicts nobody else holds
        self._count = 0
        self._bound: dict[str, None] = {}  # variables that nested functions assign
        self._global: set[str] = set()
        self._free: set[str] = set()  # declared nonlocal by the function itself
        self._rests: dict[str, list[str]] = {}  # functions of what comes after a branch, and what they assign
        self._captured: set[str] = set()  # variables that may outlive a call of the function
        self._is_message = False
        self._uses: collections.Counter[str] = collections.Counter()  # of each name, in the function
        self._outlived: set[str] = set()  # variables of errors that are named outside of their handlers, too
        self._parameters: set[str] = set()
        self._looped: set[str] = set()  # variables that have no value where a loop ran no iteration
        self._lists: set[str] = set()  # variables that start as lists
        self._bodies = 0  # of loops around what is being converted
        self._errors: list[str] = []  # variables of the errors that the handlers around what is converted caught

    def function(self, definition: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef | ast.Lambda:
        """Convert the body of a definition; its decorators and defaults were evaluated when it was made."""
        for child in children(definition) if self._owner else ():
            self._mangle_all(child)
        arguments = definition.args
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if arg is not None:
                arg.annotation = None
        if isinstance(definition, ast.Lambda):
            definition.body = self.visit(definition.body)
            return definition
        definition.decorator_list, definition.returns = [], None
        vars(definition).update(TYPE_PARAMETERS)
        definition.body = self._body(definition)
        return definition

    def _body(self, definition: ast.FunctionDef) -> list[ast.stmt]:
        for node in walk_own(definition):
            if isinstance(node, ast.Global):
                self._global.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                self._free.update(node.names)
            elif isinstance(node, SCOPES):
                self._captured.update(names_counted(node))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.ListComp):
                self._lists.update(target.id for target in node.targets if isinstance(target, ast.Name))
        self._captured |= self._free
        self._uses = names_counted(definition)
        self._outlived = errors_named_outside(definition, self._uses)
        self._looped = bound_in_loops(definition, self._uses) - self._captured - self._global
        self._unshared = unshared(definition) if self._waiting else set()
        note_unread(definition, self._captured | self._global)
        self._parameters = parameters = {arg.arg for arg in walk(definition.args) if isinstance(arg, ast.arg)}
        start = 1 if ast.get_docstring(definition, clean=False) is not None else 0
        head, body = definition.body[:start], self.block(definition.body[start:], is_tail=True)
        declared = [name for name in self._bound if name not in parameters | self._free]
        if declared:  # never runs; makes them variables of this function
            bind: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in declared]
            head.append(placed(ast.If(ast.Constant(False), bind, []), definition))
        return [*head, *body] or [ast.Pass()]

    # ---- statements

    def block(self, statements: list[ast.stmt], is_tail: bool) -> list[ast.stmt]:
        """Convert statements. `is_tail`: the function ends after them."""
        out: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            rest = statements[i + 1 :]
            spelled_out = as_loop(statement, self._count, self._uses) or as_ifs(statement, self._count)
            if spelled_out is not None:
                self._count += 1
                return out + self.block([*spelled_out, *rest], is_tail)
            statement = as_told(as_attempt(statement))
            if self._global and self._global & assigned([statement]).keys():
                pass  # a branch or loop that stays as it is: what it asks forks, each way with its own globals
            elif isinstance(statement, ast.If):
                if not leaves_loop([statement]):  # only a loop that stays as it is has such a statement
                    waits = is_tail and self._waits(statement)
                    if not waits and not returns([statement]):
                        out += self._branch(statement)
                        continue
                    signal = exit_signal([statement])
                    if rest and signal is not None and all(map(falls_through, (statement.body, statement.orelse))):
                        return out + self._exiting_branch(statement, signal, rest, is_tail)
                    if is_tail:
                        return out + self._returning_branch(statement, rest)
            elif isinstance(statement, ast.For | ast.While):
                lowered = lower_loop(statement, self._count)
                if lowered is not None:
                    out += self._loop(statement, lowered)
                    return out + self.block([*lowered.after, *rest], is_tail)
            elif isinstance(statement, ast.Try):
                statement, rest = with_rest(statement, rest) if is_tail else (statement, rest)
                tried = lower_attempt(statement, self._count, self._outlived)
                if tried is not None:
                    out += self._attempt(statement, tried)
                    return out + self.block([*tried.after(statement), *rest], is_tail)
            converted = self._statement(statement, is_tail and not rest)
            out += converted if isinstance(converted, list) else [converted]
        return out

    def _statement(self, statement: ast.stmt, is_tail: bool) -> Any:
        if isinstance(statement, SCOPES):
            return self.visit(statement)
        blocks: list[tuple[Any, str, list[ast.stmt]]] = []
        for owner, field, inner in blocks_of(statement):
            ends = is_tail and isinstance(statement, ast.With)
            self._errors.append("" if isinstance(owner, ast.ExceptHandler) else (self._errors or [""])[-1])
            blocks.append((owner, field, self.block(inner, ends)))
            self._errors.pop()
            setattr(owner, field, [])
        statement = self.visit(statement)  # what is left: its expressions
        for owner, field, inner in blocks:
            setattr(owner, field, inner)
        return statement

    def _branch(self, statement: ast.If) -> list[ast.stmt]:
        """`if` without return: two functions that assign the variables around them."""
        unread = unread_after(statement)
        then, other = self._part("then", statement.body, statement), self._part("other", statement.orelse, statement)
        names = dict.fromkeys([*then.assigned, *other.assigned])
        tables = [texts_of(names), ast.Constant(None), texts_of(()), texts_of(sorted(unread & names.keys()))]
        call = self._call("branch", statement.test, self._truth(statement.test), name_of(then), name_of(other), *tables)
        return [then, other, placed(ast.Expr(call), statement)]

    def _returning_branch(self, statement: ast.If, rest: list[ast.stmt]) -> list[ast.stmt]:
        """`if` with a return: what comes after it goes into the branches that reach it."""
        out: list[ast.stmt] = []
        reach = [falls_through(statement.body), falls_through(statement.orelse)]
        if all(reach) and rest:
            function = self._part("rest", rest, rest[0], is_tail=True)
            out.append(function)
            self._rests[function.name] = function.assigned
            rest = [placed(ast.Return(ast.Call(name_of(function), [], [])), rest[0])]
        sides = [
            self._part(name, [*body, *(rest if reaches else [])], statement, is_tail=True)
            for name, body, reaches in zip(("then", "other"), (statement.body, statement.orelse), reach, strict=True)
        ]
        names = {name: None for part in (*sides, *out) for name in part.assigned}
        ends = not self._bodies  # with the function; else only with an iteration of a loop
        alive = [name for name in names if not ends or name in self._captured]
        tables = [*map(texts_of, (names, alive, sorted(self._unshared) if ends else ()))]
        call = self._call("branch", statement.test, self._truth(statement.test), *map(name_of, sides), *tables)
        return [*out, *sides, placed(ast.Return(call), statement)]

    def _waits(self, statement: ast.stmt) -> bool:
        """Tell whether a branch, or one on a side of it, is to be joined where the function ends."""
        if isinstance(statement, ast.If):
            sides = statement.test.lineno in self._waiting, *map(self._waits, (*statement.body, *statement.orelse))
            return any(sides)
        return isinstance(statement, ast.With) and any(map(self._waits, statement.body))

    def _exiting_branch(self, statement: ast.If, signal: bool, rest: list[ast.stmt], is_tail: bool) -> list[ast.stmt]:
        """`if` with a `break` or `continue` on sides that may also go on: it says whether the run of the loop ends."""
        self._count += 1
        exits = f"exits{HIDDEN}{self._count}"
        sides = [
            self._part(name, [*exiting(body), placed(ast.Return(ast.Constant(False)), statement)], statement, True)
            for name, body in (("then", statement.body), ("other", statement.orelse))
        ]
        names = dict.fromkeys(name for side in sides for name in side.assigned)
        call = self._call("branch", statement.test, self._truth(statement.test), *map(name_of, sides), texts_of(names))
        leave = ast.If(ast.Name(exits, ast.Load()), [ast.Return(ast.Constant(signal))], [])
        leave.body[0].is_signal = True  # type: ignore[attr-defined]
        after = [placed(leave, statement), *rest]
        assign = placed(ast.Assign([ast.Name(exits, ast.Store())], call), statement)
        return [*sides, assign, *self.block(after, is_tail)]

    def _loop(self, loop: ast.For | ast.While, lowered: Lowered) -> list[ast.stmt]:
        """A loop: a function of one iteration, which assigns the variables around it."""
        self._count += 1
        private = private_to(loop, self._uses) - self._captured - self._global - self._parameters
        parameters = () if isinstance(loop, ast.While) else (ITEM,)
        self._bodies += 1
        body = self._part("body", lowered.body, loop, lowered.signals, parameters)
        self._bodies -= 1
        names = dict.fromkeys(body.assigned)
        tables = texts_of(names), texts_of(name for name in names if name in private)
        if isinstance(loop, ast.While):
            assert lowered.test is not None
            test = lambda_of(self._truth(lowered.test))
            call = self._call("repeat", loop.test, test, name_of(body), *tables)
        else:
            target = ast.Constant(re.sub(rf"{HIDDEN}\d+", "", ast.unparse(loop.target)))
            iterable = ast.List([self.visit(loop.iter)], ast.Load())
            call = self._call("each", loop.iter, iterable, name_of(body), *tables, target)
        before = [self._statement(statement, False) for statement in lowered.before]
        if not lowered.broken:
            return [*before, body, placed(ast.Expr(call), call)]
        call.args.append(ast.Constant(True))
        return [*before, body, placed(ast.Assign([ast.Name(lowered.broken, ast.Store())], call), call)]

    def _attempt(self, statement: ast.Try, tried: Tried) -> list[ast.stmt]:
        """`try`: functions of its parts, which assign the variables around them."""
        self._count += 1
        self._bodies += 1
        body = self._part("tried", tried.body, statement, tried.signals)
        handlers = [self._handler(handler, tried.signals) for handler in tried.handlers]
        ends = [
            self._part(name, block, block[0], tried.signals) if block else None
            for name, block in (("orelse", tried.orelse), ("final", tried.final))
        ]
        self._bodies -= 1
        parts = [body, *[part for part, _ in handlers], *filter(None, ends)]
        names = texts_of(dict.fromkeys(name for part in parts for name in part.assigned))
        pairs: list[ast.expr] = [ast.Tuple([kind, name_of(part)], ast.Load()) for part, kind in handlers]
        others = [ast.Constant(None) if part is None else name_of(part) for part in ends]
        head = ast.copy_location(ast.Pass(), statement)
        head.end_lineno, head.end_col_offset = head.lineno, head.col_offset + len("try")
        call = self._call("attempt", head, name_of(body), ast.Tuple(pairs, ast.Load()), *others, names)
        if tried.raising:
            call.args.append(ast.Constant(tried.raising))
        before = [self._statement(each, False) for each in tried.before]
        if not tried.signals:
            return [*before, *parts, placed(ast.Expr(call), head)]
        return [*before, *parts, placed(ast.Assign([ast.Name(tried.left, ast.Store())], call), head)]

    def _handler(self, handler: Handler, signals: bool) -> tuple[Any, Any]:
        """A handler as a function of the error, and what gives the classes that it catches."""
        self._errors.append(handler.name)
        part = self._part("handler", handler.body, handler.place, signals, (handler.name,))
        self._errors.pop()
        return part, ast.Constant(None) if handler.kind is None else lambda_of(self.visit(handler.kind))

    def _part(
        self,
        name: str,
        statements: list[ast.stmt],
        place: ast.AST,
        is_tail: bool = False,
        parameters: tuple[str, ...] = (),
    ) -> Any:
        """Make a function of statements, which assigns the variables of the one around it."""
        self._count += 1
        title = f"{PREFIX}{name}_{self._count}"
        bound = assigned(statements)
        for node in walk_all(statements) if self._rests else statements_in(statements):
            if isinstance(node, ast.Name) and node.id in self._rests:
                bound |= dict.fromkeys(self._rests[node.id])
            elif getattr(node, "is_inner", False):
                bound |= dict.fromkeys(RETURNS)
        names = [name for name in bound if not name.startswith(PREFIX)]
        ours = [name for name in names if name not in self._global]
        self._bound.update(dict.fromkeys(ours))
        head: list[ast.stmt] = [ast.Nonlocal(ours)] if ours else []
        if len(ours) < len(names):
            head.append(ast.Global([name for name in names if name in self._global]))
        body = self.block(statements, is_tail)
        function = ast.FunctionDef(
            title,
            ast.arguments([], [ast.arg(name) for name in parameters], None, [], [], None, []),
            [*head, *body] if body else [ast.Pass()],
            [],
            **TYPE_PARAMETERS,
        )
        function.assigned = ours  # type: ignore[attr-defined]
        return placed(function, place)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args = self.visit(node.args)
        if is_convertible(node):
            inner = Converter(self._owner, node.args.args[0].arg if node.args.args else "", self._waiting)
            node.body = inner._body(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.args = self.visit(node.args)
        if may_wait(node.body):
            node.body = self.visit(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """A variable that an inner function assigns must not be annotated; the annotation has no effect."""
        if node.value is None:
            return placed(ast.Pass(), node) if isinstance(node.target, ast.Name) else self.generic_visit(node)
        return self.visit_Assign(placed(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """`found += more` of a list, of which only a run may know how long it is then; `found[key] += more`."""
        target, change = node.target, type(node.op).__name__
        is_keyed = change in CHANGES and may_wait(node.value)
        if isinstance(target, ast.Subscript) and is_keyed and may_be_key(target.slice):
            name = ast.Constant(change)
            parts = [self.visit(target.value), self.visit(target.slice), name, lambda_of(self.visit(node.value))]
            return placed(ast.Expr(self._call("changed", node, *parts)), node)
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.BitOr):
            node.value = self._call("held", node.value, node.value)
        if isinstance(node.op, ast.BitOr) and isinstance(target, ast.Name):
            call = self._call("merged", node, ast.Name(target.id, ast.Load()), node.value)
            return placed(ast.Assign([target], call), node)
        if not (isinstance(node.op, ast.Add) and isinstance(target, ast.Name) and target.id in self._lists):
            return node
        call = self._call("extended", node, ast.Name(target.id, ast.Load()), node.value)
        return placed(ast.Assign([target], call), node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        """`found[key] = value`, with a key that only a run may know."""
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript) or not may_be_key(target.slice):
            self.generic_visit(node)
            if holds(node.targets, ast.Attribute, ast.Subscript):
                node.value = self._call("held", node.value, node.value)
            return node
        parts = self.visit(node.value), self.visit(target.value), self.visit(target.slice)
        return placed(ast.Expr(self._call("store", node, *parts)), node)

    def visit_Delete(self, node: ast.Delete) -> Any:
        """`del found[key]`."""
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript) or not may_be_key(target.slice):
            return self.generic_visit(node)
        parts = self.visit(target.value), self.visit(target.slice)
        return placed(ast.Expr(self._call("delete", node, *parts)), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """`found[key]`."""
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not may_be_key(node.slice):
            return node
        return self._call("item", node, node.value, node.slice)

    def visit_Dict(self, node: ast.Dict) -> Any:
        """`{key: value}`, with keys that only a run may know."""
        self.generic_visit(node)
        if not any(key is None or may_be_key(key) for key in node.keys):
            return node
        spread = placed(self._runtime("SPREAD", node), node)
        parts = [part for key, value in zip(node.keys, node.values, strict=True) for part in (key or spread, value)]
        return self._call("dict_of", node, *parts)

    def visit_Set(self, node: ast.Set) -> Any:
        """`{item}`, with items that only a run may know."""
        self.generic_visit(node)
        return self._call("set_of", node, *node.elts) if any(map(may_be_key, node.elts)) else node

    def visit_List(self, node: ast.List | ast.Tuple) -> Any:
        """`[*values, item]`, of values of which only a run knows how many there are."""
        kept = kept_by_what_follows(node)
        self.generic_visit(node)
        return sum_of_parts(node, kept, self._call) if is_star_display(node) else node

    visit_Tuple = visit_List

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = [] if node.msg is None else [lambda_of(self._message(node.msg))]
        return placed(ast.Expr(self._call("check", node, self._truth(node.test), *message)), node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        if node.exc is not None:
            error, cause = self._message(node.exc), [] if node.cause is None else [self.visit(node.cause)]
            node.exc, node.cause = self._call("raising", node.exc, error, *cause), None
        elif self._errors and self._errors[-1]:
            node.exc = self._call("raising", node, ast.Name(self._errors[-1], ast.Load()))
        return node

    # ---- expressions

    def _truth(self, node: ast.expr) -> Any:
        """Convert an expression of which only the truth counts."""
        if isinstance(node, ast.BoolOp) and may_wait(*node.values[1:]):
            return self._folded(node, "both" if isinstance(node.op, ast.And) else "either", self._truth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._call("negation", node, self._truth(node.operand))
        return self.visit(node)

    def _message(self, node: ast.expr) -> Any:
        """Convert an expression whose texts only tell people something: numbers in them stay live."""
        self._is_message = True
        try:
            return self.visit(node)
        finally:
            self._is_message = False

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        method = "text" if self._is_message else "formatted"
        return self._call(method, node, ast.Constant(template_of(node)), *self._shown(node))

    def _shown(self, text: ast.JoinedStr) -> Iterator[Any]:
        """What an f-string shows, in order."""
        for part in text.values:
            if isinstance(part, ast.FormattedValue):
                yield self.visit(part.value)
                if isinstance(part.format_spec, ast.JoinedStr):
                    yield from self._shown(part.format_spec)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if not may_wait(*node.values[1:]):
            return self.generic_visit(node)
        return self._folded(node, "and_then" if isinstance(node.op, ast.And) else "or_else", self.visit)

    def _folded(self, node: ast.BoolOp, name: str, convert: Callable[..., Any]) -> Any:
        *first, last = [convert(value) for value in node.values]
        for value in reversed(first):
            last = self._call(name, node, value, lambda_of(last))
        return last

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """`"row %d" % i`, `[row] * n`."""
        self.generic_visit(node)
        of_list = isinstance(node.left, ast.List) and isinstance(node.op, ast.Mult)
        of_text = isinstance(getattr(node.left, "value", None), str) and isinstance(node.op, ast.Mod)
        if not of_list and not of_text:
            return node
        name = "repeated" if of_list else "percent_told" if self._is_message else "percent"
        return self._call(name, node, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._call("negation", node, self._truth(node.operand))
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if not may_wait(node.body, node.orelse):
            return self.generic_visit(node)
        test, body, other = self._truth(node.test), self.visit(node.body), self.visit(node.orelse)
        return self._call("branch", node, test, lambda_of(body), lambda_of(other))

    def visit_Compare(self, node: ast.Compare) -> Any:
        asked = tested_for_none(node)
        if len(node.ops) == 1 and asked is not None:
            return self._call("is_none" if isinstance(node.ops[0], ast.Is) else "is_given", node, self.visit(asked))
        operator, method = node.ops[0] if len(node.ops) == 1 else None, ""
        if operator is not None and compares_identity(node):
            method = "same"
        elif isinstance(operator, ast.In | ast.NotIn):
            method = "contains"
        elif isinstance(operator, ast.Eq | ast.NotEq) and compares_sizes(node):
            method = "equal"
        if method:
            found = self._call(method, node, self.visit(node.left), self.visit(node.comparators[0]))
            return found if isinstance(operator, ast.Is | ast.In | ast.Eq) else self._call("negation", node, found)
        if len(node.ops) == 1 or not may_wait(*node.comparators):
            return self.generic_visit(node)
        operators = ast.Constant(" ".join(type(op).__name__ for op in node.ops))
        left, *rights = [self.visit(value) for value in (node.left, *node.comparators)]
        return self._call("compare", node, operators, left, *map(lambda_of, rights))

    def visit_Call(self, node: ast.Call) -> Any:
        if is_from_conversion(node.func):
            return node
        if isinstance(node.func, ast.Name) and node.func.id in LOOKS_AT_FRAME:
            if node.func.id == "super" and not node.args and self._first:
                node.args = [ast.Name("__class__", ast.Load()), ast.Name(self._first, ast.Load())]
            elif node.func.id != "super":
                self.generic_visit(node)
            return node
        if ast.unparse(node.func) == "warnings.warn":
            self.generic_visit(node)
            return placed(ast.Call(self._runtime("warn", node), [node.func, *node.args], node.keywords), node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in WARNS:
            return self.generic_visit(node)  # told of the line that calls it, and so of the same line once
        name = ast.unparse(node.func).rpartition(".")[2]
        inner = gathered_call(node)
        if inner is not None and isinstance(inner.func, ast.Name | ast.Attribute) and not _is_builtin(inner.func):
            self.generic_visit(inner)
            arguments = [self.visit(node.func), inner.func, *inner.args]
            return placed(ast.Call(self._runtime("gathered", node), arguments, inner.keywords), node)
        if name in TAKES_ALL and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            generator = node.args[0]
            node.args = [placed(ast.ListComp(generator.elt, generator.generators), generator)]
        if node.args and isinstance(node.func, ast.Name) and name in ("any", "all"):
            decided = self._decided(node)
            if decided is not None:
                return decided
        if self._is_message and name in ("str", "repr") and len(node.args) == 1 and not node.keywords:
            return self._call(
                "text", node, ast.Constant("{!r}" if name == "repr" else "{!s}"), self.visit(node.args[0])
            )
        if name == "print" or name in _CHECKS:
            told = 0 if name == "print" else 2 if name.endswith("_with") else 1
            node.func = self.visit(node.func)
            node.args = [*map(self.visit, node.args[:told]), *map(self._message, node.args[told:])]
            for keyword in node.keywords:
                keyword.value = self._message(keyword.value)
        else:
            self.generic_visit(node)
        return placed(ast.Call(self._runtime("call", node), [node.func, *node.args], node.keywords), node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        """`[f(row) for row in x]`: its parts as functions of an item, so that it may be a loop of the graph."""
        if len(node.generators) > 1 and plain_names(node.generators[0].target):
            first, *others = node.generators
            if holds([node], *SCOPES) or not may_wait(
                node.elt, *[test for loop in node.generators for test in loop.ifs]
            ):
                return self.generic_visit(node)
            inner = placed(ast.ListComp(node.elt, others), node)
            parts = self._parts_of(placed(ast.ListComp(inner, [first]), node), self.visit)
            return self.generic_visit(node) if parts is None else self._call("chained", node, *parts)
        parts = self._parts_of(node, self.visit)
        return self.generic_visit(node) if parts is None else self._call("listed", node, *parts)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        """`{k: v for row in x}`: the list of its pairs, and a dict made of that."""
        pair = ast.Tuple([node.key, node.value], ast.Load())
        return self._call("as_dict", node, self.visit_ListComp(placed(ast.ListComp(pair, node.generators), node)))

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        """`{v for row in x}`: the list of its items, and a set made of that."""
        return self._call("as_set", node, self.visit_ListComp(placed(ast.ListComp(node.elt, node.generators), node)))

    def _decided(self, node: ast.Call) -> Any:
        """`any(f(row) for row in x)`: a loop that ends where that is known."""
        generator = node.args[0]
        if len(node.args) > 1 or node.keywords or not isinstance(generator, ast.GeneratorExp):
            return None
        parts = self._parts_of(generator, self._truth)
        return None if parts is None else self._call("decided", node, self.visit(node.func), *parts)

    def _parts_of(self, node: ast.ListComp | ast.GeneratorExp, convert: Callable[..., Any]) -> list[Any] | None:
        """What a comprehension goes over, its target, and functions of an item; None where it has to stay as it is."""
        loop = node.generators[0]
        parts, is_simple = [node.elt, *loop.ifs], len(node.generators) == 1 and bool(plain_names(loop.target))
        if not is_simple or loop.is_async or not may_wait(*parts) or holds(parts, *SCOPES):
            return None
        is_tuple = ast.Constant(isinstance(loop.target, ast.Tuple))
        functions = [function_of(loop.target, convert(node.elt))]
        if loop.ifs:
            test = loop.ifs[0] if len(loop.ifs) == 1 else placed(ast.BoolOp(ast.And(), loop.ifs), node)
            functions.append(function_of(loop.target, self._truth(test)))
        return [self.visit(loop.iter), ast.Constant(ast.unparse(loop.target)), is_tuple, *functions]

    def visit_withitem(self, node: ast.withitem) -> Any:
        self.generic_visit(node)
        node.context_expr = self._call("context", node.context_expr, node.context_expr)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if node.attr in OF_ERRORS and isinstance(node.value, ast.Name) and node.value.id in self._errors:
            return self._call("of_error", node, node.value, ast.Constant(node.attr))
        if node.attr == "__class__" and isinstance(node.ctx, ast.Load):
            node.value = self._call("class_read", node.value, node.value)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        return self._call("bound", node, node) if node.id in self._looped and isinstance(node.ctx, ast.Load) else node

    def _mangle_all(self, node: ast.AST) -> None:
        """Give private names the name of the class in front, as Python does: not to keywords of calls."""
        for field in ("id", "arg", "attr", "name", "rest"):
            if isinstance(name := getattr(node, field, None), str) and not isinstance(node, ast.keyword):
                setattr(node, field, self._mangled(name))
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._mangled(name) for name in node.names]
        for child in children(node) if not isinstance(node, ast.ClassDef) else node.decorator_list:
            self._mangle_all(child)

    def _mangled(self, name: str) -> str:
        return f"_{self._owner}{name}" if name.startswith("__") and not name.endswith("__") else name

    def _call(self, method: str, place: ast.AST, *args: ast.expr) -> Any:
        return placed(ast.Call(self._runtime(method, place), list(args), []), place)

    def _runtime(self, method: str, place: ast.AST) -> Any:
        """A function of the runtime, which ends where it starts: Python has a call begin where the name called does."""
        function = placed(ast.Attribute(ast.Constant(RUNTIME_MARK), method, ast.Load()), place)
        function.end_lineno, function.end_col_offset = function.lineno, function.col_offset
        return function


def _is_builtin(function: ast.expr) -> bool:
    """Tell whether a function has the name of one of Python's."""
    return isinstance(function, ast.Name) and hasattr(builtins, function.id)

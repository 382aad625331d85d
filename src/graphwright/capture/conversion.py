"""A function made again from its source, so that its questions can be answered with branches.

In the converted function `if`, `and`, `or`, `not`, the ternary, chained comparisons, `assert`, `raise` and calls go
through a runtime that decides by the value: a plain value takes Python's way, a symbolic one becomes a branch of the
graph. Nothing of the user's is changed: the new function has the same globals, closure cells, defaults, file name and
line numbers, and reaches the runtime through a constant of its code.

    if total > 0:                       def then():
        x = x + 1                           nonlocal x
                              ->            x = x + 1
                                        runtime.branch(total > 0, then, other)
"""

from __future__ import annotations

import ast
import copy
import opcode
import os
import re
import weakref
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from graphwright.capture.code_table import CodeTable
from graphwright.capture.sources import source_of

__all__ = ["NESTED", "PREFIX", "can_convert", "convert", "converted_source", "is_converted", "original_code"]

_RUNTIME = "graphwright runtime"  # in the constants of converted code, replaced by the runtime itself
PREFIX = "_gw_"
# What looks at the frame that calls it must be called by the user's code itself.
_LOOKS_AT_FRAME = frozenset({"locals", "globals", "vars", "dir", "eval", "exec", "super", "breakpoint"})
# What takes a condition and a message.
_CHECKS = frozenset({"_assert", "_check", "_check_value", "_check_index", "_check_type", "_check_not_implemented"})
_CHECKS_BY_NAME = re.compile("check(?!point)|assert")  # where nothing is done with what they return
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_codes: CodeTable[CodeType | None] = CodeTable()  # original -> converted; None where that cannot be
_originals: CodeTable[weakref.ref[CodeType]] = CodeTable()  # converted -> original
_made: CodeTable[bool] = CodeTable()
_conditional: CodeTable[bool] = CodeTable()
_CONDITIONAL_JUMPS = frozenset(code for name, code in opcode.opmap.items() if "JUMP" in name and "_IF_" in name)
_LIBRARIES = tuple(os.path.join(os.path.dirname(path), "") for path in (torch.__file__, os.path.dirname(__file__)))
NESTED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # code that is part of the function around it


def convert(function: FunctionType, runtime: Any) -> FunctionType | None:
    """Return a function that does the same with its questions going through `runtime`; None without usable source."""
    code = function.__code__
    if code in _made:
        return function
    if code not in _codes:
        _codes[code] = _convert_code(code, runtime)
    new = _codes.get(code)
    if new is None:
        return None
    _originals[new] = weakref.ref(code)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    made = FunctionType(
        new, function.__globals__, function.__name__, function.__defaults__, tuple([cells[n] for n in new.co_freevars])
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__annotations__ = function.__annotations__
    made.__doc__, made.__module__, made.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    return made


def can_convert(code: CodeType) -> bool:
    """Tell whether a function of this code has source that can be converted."""
    known = _codes.get(code, code)
    if known is not code:
        return known is not None
    definition = _definition(code)
    return definition is not None and _is_convertible(definition)


def may_ask(code: CodeType) -> bool:
    """Tell whether a function of the program has conditions: whether it may ask whether a value is true."""
    known = _conditional.get(code)
    if known is None:
        known = _conditional[code] = not code.co_filename.startswith(_LIBRARIES) and any(
            instruction in _CONDITIONAL_JUMPS for instruction in code.co_code[::2]
        )
    return known


def is_converted(code: CodeType) -> bool:
    """Tell whether a code object is one that `convert` made."""
    return code in _made


def original_code(code: CodeType) -> CodeType | None:
    """The code object that a function was written with; None for the part of a converted one."""
    original = _originals.get(code)
    return original() if original is not None else None if code in _made else code


def converted_source(function: FunctionType) -> str:
    """Show what a function becomes. Raises ValueError where it has no source that can be converted."""
    tree = _converted_tree(function.__code__)
    if tree is None:
        raise ValueError(f"{function.__qualname__} has no source that can be converted")
    return ast.unparse(tree).replace(repr(_RUNTIME), "runtime")


# ---- source


def _definition(code: CodeType) -> ast.FunctionDef | ast.Lambda | None:
    """Find the definition of a code object in its file."""
    found: list[ast.FunctionDef | ast.Lambda] = []
    for node in source_of(code.co_filename).definitions.get((code.co_name, code.co_firstlineno), ()):
        if isinstance(node, ast.Lambda):
            names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if tuple(names) != code.co_varnames[: len(names)] or not _spans(node, code):
                continue
        found.append(node)
    return found[0] if len(found) == 1 else None


def _spans(node: ast.Lambda, code: CodeType) -> bool:
    """Tell whether the instructions of a code object lie inside a lambda: several may stand on one line."""
    if not hasattr(code, "co_positions"):
        return True
    body = node.body
    for line, end_line, column, end_column in code.co_positions():
        if line is None or column is None or (line == end_line == code.co_firstlineno and column == end_column == 0):
            continue
        if (line, column) < (body.lineno, body.col_offset) or (end_line, end_column) > (
            body.end_lineno,
            body.end_col_offset,
        ):
            return False
    return True


def _converted_tree(code: CodeType) -> ast.FunctionDef | ast.Lambda | None:
    definition = _definition(code)
    if definition is None or not _is_convertible(definition):
        return None
    qualname = getattr(code, "co_qualname", code.co_name).split(".")
    owner = qualname[-2] if len(qualname) > 1 and qualname[-2] != "<locals>" else ""
    return _Converter(owner, code.co_varnames[0] if code.co_argcount else "").function(copy.deepcopy(definition))


def _is_convertible(definition: ast.AST) -> bool:
    """Generators, coroutines, and what looks into its own frame, stay as they are."""
    for node in _walk_own(definition):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            return False
        if isinstance(node, ast.Name) and node.id in ("locals", "eval", "exec"):
            return False
    return True


def _convert_code(code: CodeType, runtime: Any) -> CodeType | None:
    tree = _converted_tree(code)
    if tree is None:
        return None
    # An outer function declares the free variables, so that they are free in the new code, too.
    body: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in code.co_freevars]
    name = code.co_name
    if isinstance(tree, ast.FunctionDef):  # under another name: its own means what it means to the user's module
        tree.name = name = f"{PREFIX}function"
    body.append(tree if isinstance(tree, ast.stmt) else ast.Expr(tree))
    outer = ast.FunctionDef(
        f"{PREFIX}outer", ast.arguments([], [], None, [], [], None, []), body, [], **_TYPE_PARAMETERS
    )
    module = ast.fix_missing_locations(ast.Module([outer], []))
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True, flags=code.co_flags & _FUTURE)
    outer_code = next(const for const in compiled.co_consts if isinstance(const, CodeType))
    new = next(const for const in outer_code.co_consts if isinstance(const, CodeType) and const.co_name == name)
    return _finish(new, code, runtime, getattr(code, "co_qualname", code.co_name))


_FUTURE = 0x1000000  # from __future__ import annotations
_TYPE_PARAMETERS: dict[str, Any] = {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}


def _finish(new: CodeType, old: CodeType, runtime: Any, qualname: str) -> CodeType:
    """Put the runtime into the constants; name the functions made of branches after the one they are part of."""
    consts: list[Any] = []
    for const in new.co_consts:
        if isinstance(const, CodeType):
            part = const.co_name.startswith(PREFIX) or PREFIX in const.co_varnames
            inner = const.replace(co_name=old.co_name) if part else const
            const = _finish(inner, inner, runtime, qualname if part else f"{qualname}.<locals>.{const.co_name}")
        elif const == _RUNTIME:
            const = runtime
        consts.append(const)
    changes: dict[str, Any] = {"co_consts": tuple(consts), "co_name": old.co_name}
    if hasattr(new, "co_qualname"):
        changes["co_qualname"] = qualname
    finished = new.replace(**changes)
    _made[finished] = True
    return finished


# ---- trees


def _walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a function's own code: not into functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _walk_own(child)


def _walk_all(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for statement in statements:
        yield statement
        if not isinstance(statement, _SCOPES):
            yield from _walk_own(statement)


def _holds(statements: Iterable[ast.AST], *kinds: type[ast.AST]) -> bool:
    return any(isinstance(node, kinds) for node in _walk_all(statements))


def _leaves_loop(statements: Iterable[ast.AST]) -> bool:
    """Tell whether a `break` or `continue` of a loop around these statements is among them."""
    for statement in statements:
        if isinstance(statement, ast.Break | ast.Continue):
            return True
        if isinstance(statement, ast.For | ast.While):
            if _leaves_loop(statement.orelse):
                return True
        elif not isinstance(statement, _SCOPES) and _leaves_loop(ast.iter_child_nodes(statement)):
            return True
    return False


def _without_continue(statements: list[ast.stmt]) -> list[ast.stmt]:
    """In the body of a loop, put what comes after `if ...: continue` on the branch's other side."""
    for i, statement in enumerate(statements):
        if isinstance(statement, ast.Continue):
            return statements[:i]
        if not isinstance(statement, ast.If) or not _leaves_loop([statement]):
            continue
        sides = []
        rest = statements[i + 1 :]
        for side in (statement.body, statement.orelse):
            sides.append(_without_continue([*side, *rest] if _falls_through(side) else side))
        if _leaves_loop([node for side in sides for node in side]) or all(
            map(_falls_through, (statement.body, statement.orelse))
        ):
            return statements  # a `break`, or what comes after would be there twice
        branch = _at(ast.If(statement.test, sides[0] or [_at(ast.Pass(), statement)], sides[1]), statement)
        return [*statements[:i], branch]
    return statements


def _falls_through(statements: list[ast.stmt]) -> bool:
    if not statements:
        return True
    last = statements[-1]
    if isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return False
    if isinstance(last, ast.If):
        return _falls_through(last.body) or _falls_through(last.orelse)
    if isinstance(last, ast.With):
        return _falls_through(last.body)
    return True


def _assigned(statements: Iterable[ast.AST]) -> dict[str, None]:
    """The variables that statements bind or delete, in order; what comprehensions bind stays inside these."""
    names: dict[str, None] = {}

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names[node.id] = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = None
            return
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = None
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
        ):
            names[node.name] = None
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names[node.rest] = None
        elif isinstance(node, _COMPREHENSIONS):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    names[inner.target.id] = None
            return
        elif isinstance(node, ast.Lambda):
            return
        for child in ast.iter_child_nodes(node):
            walk(child)

    for statement in statements:
        walk(statement)
    return names


def _may_wait(*expressions: ast.expr) -> bool:
    """Tell whether expressions may be put into a lambda, to be evaluated later or not at all."""
    return not _holds(expressions, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


class _Converter(ast.NodeTransformer):
    """Converts one function and those inside it."""

    def __init__(self, owner: str, first: str) -> None:
        self._owner = owner.lstrip("_")  # the class that `__name` is private to
        self._first = first
        self._count = 0
        self._bound: dict[str, None] = {}  # variables that nested functions assign
        self._global: set[str] = set()
        self._free: set[str] = set()  # declared nonlocal by the function itself
        self._rests: dict[str, list[str]] = {}  # functions of what comes after a branch, and what they assign
        self._captured: set[str] = set()  # variables that may outlive a call of the function
        self._is_message = False
        self._alone: ast.expr | None = None  # the expression that is a statement

    def function(self, definition: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef | ast.Lambda:
        """Convert the body of a definition; its decorators and defaults were evaluated when it was made."""
        arguments = definition.args
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if arg is not None:
                arg.annotation = None
                arg.arg = self._mangled(arg.arg)
        if isinstance(definition, ast.Lambda):
            definition.body = self.visit(definition.body)
            return definition
        definition.decorator_list, definition.returns = [], None
        definition.body = self._body(definition)
        return definition

    def _body(self, definition: ast.FunctionDef) -> list[ast.stmt]:
        for node in _walk_own(definition):
            if isinstance(node, ast.Global):
                self._global.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                self._free.update(node.names)
            elif isinstance(node, _SCOPES):
                self._captured.update(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
        self._captured |= self._free
        arguments = definition.args
        parameters = {
            arg.arg
            for arg in (
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            )
            if arg is not None
        }
        start = 1 if ast.get_docstring(definition, clean=False) is not None else 0
        head, body = definition.body[:start], self.block(definition.body[start:], is_tail=True)
        declared = [name for name in self._bound if name not in parameters | self._free]
        if declared:  # never runs; makes them variables of this function
            bind: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in declared]
            head.append(_at(ast.If(ast.Constant(False), bind, []), definition))
        return [*head, *body] or [ast.Pass()]

    # ---- statements

    def block(self, statements: list[ast.stmt], is_tail: bool, in_loop: bool = False) -> list[ast.stmt]:
        """Convert statements. `is_tail`: the function ends after them; `in_loop`: the run of a loop does."""
        out: list[ast.stmt] = []
        if in_loop:
            statements = _without_continue(statements)
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.If) and not _leaves_loop([statement]):
                if not _holds([statement], ast.Return):
                    out += self._branch(statement)
                    continue
                if is_tail:
                    return out + self._returning_branch(statement, statements[i + 1 :])
            converted = self._statement(statement, is_tail and i == len(statements) - 1)
            out += converted if isinstance(converted, list) else [converted]
        return out

    def _statement(self, statement: ast.stmt, is_tail: bool) -> Any:
        if isinstance(statement, _SCOPES):
            return self.visit(statement)
        blocks: list[tuple[Any, str, list[ast.stmt]]] = []
        for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                if getattr(owner, field, None):
                    inner = getattr(owner, field)
                    is_loop = field == "body" and isinstance(statement, ast.For | ast.While)
                    ends = is_tail and isinstance(statement, ast.With)
                    blocks.append((owner, field, self.block(inner, ends, is_loop)))
                    setattr(owner, field, [])
        statement = self.visit(statement)  # what is left: its expressions
        for owner, field, inner in blocks:
            setattr(owner, field, inner)
        return statement

    def _branch(self, statement: ast.If) -> list[ast.stmt]:
        """`if` without return: two functions that assign the variables around them."""
        then, other = self._part("then", statement.body, statement), self._part("other", statement.orelse, statement)
        names = dict.fromkeys([*then.assigned, *other.assigned])
        test = self._truth(statement.test)
        call = self._call("branch", statement.test, test, _name(then), _name(other), _texts(names))
        return [then, other, _at(ast.Expr(call), statement)]

    def _returning_branch(self, statement: ast.If, rest: list[ast.stmt]) -> list[ast.stmt]:
        """`if` with a return: what comes after it goes into the branches that reach it."""
        out: list[ast.stmt] = []
        reach = [_falls_through(statement.body), _falls_through(statement.orelse)]
        if all(reach) and rest:
            function = self._part("rest", rest, rest[0], is_tail=True)
            out.append(function)
            self._rests[function.name] = function.assigned
            rest = [_at(ast.Return(ast.Call(_name(function), [], [])), rest[0])]
        sides = [
            self._part(name, [*body, *(rest if reaches else [])], statement, is_tail=True)
            for name, body, reaches in zip(("then", "other"), (statement.body, statement.orelse), reach, strict=True)
        ]
        names = {name: None for part in (*sides, *out) for name in part.assigned}
        alive = [name for name in names if name in self._captured]  # the others end with the function
        test = self._truth(statement.test)
        call = self._call("branch", statement.test, test, *map(_name, sides), _texts(names), _texts(alive))
        return [*out, *sides, _at(ast.Return(call), statement)]

    def _part(self, name: str, statements: list[ast.stmt], place: ast.AST, is_tail: bool = False) -> Any:
        """Make a function of statements, which assigns the variables of the one around it."""
        self._count += 1
        title = f"{PREFIX}{name}_{self._count}"
        assigned = _assigned(statements)
        for node in _walk_all(statements):
            if isinstance(node, ast.Name) and node.id in self._rests:
                assigned.update(dict.fromkeys(self._rests[node.id]))
        names = [name for name in assigned if not name.startswith(PREFIX)]
        ours = [name for name in names if name not in self._global]
        self._bound.update(dict.fromkeys(ours))
        head: list[ast.stmt] = [ast.Nonlocal(ours)] if ours else []
        if len(ours) < len(names):
            head.append(ast.Global([name for name in names if name in self._global]))
        body = self.block(statements, is_tail)
        function = ast.FunctionDef(
            title, ast.arguments([], [], None, [], [], None, []), [*head, *body] or [ast.Pass()], [], **_TYPE_PARAMETERS
        )
        function.assigned = ours  # type: ignore[attr-defined]
        if not body:
            function.body = [ast.Pass()]
        return _at(function, place)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args = self.visit(node.args)
        node.name = self._mangled(node.name)
        if _is_convertible(node):
            inner = _Converter(self._owner, node.args.args[0].arg if node.args.args else "")
            node.body = inner._body(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.args = self.visit(node.args)
        if _may_wait(node.body):
            node.body = self.visit(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """A variable that an inner function assigns must not be annotated; the annotation has no effect."""
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        if node.value is None:
            return _at(ast.Pass(), node)
        return _at(ast.Assign([self.visit(node.target)], self.visit(node.value)), node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = [] if node.msg is None else [_lambda(self._message(node.msg))]
        return _at(ast.Expr(self._call("check", node, self._truth(node.test), *message)), node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        if node.exc is not None:
            node.exc = self._call("raising", node.exc, self._message(node.exc))
            node.cause = node.cause and self.visit(node.cause)
        return node

    # ---- expressions

    def visit_Expr(self, node: ast.Expr) -> Any:
        self._alone = node.value
        return self.generic_visit(node)

    def _truth(self, node: ast.expr) -> Any:
        """Convert an expression of which only the truth counts."""
        if isinstance(node, ast.BoolOp) and _may_wait(*node.values[1:]):
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
        specs: list[Any] = [part.format_spec for part in node.values if isinstance(part, ast.FormattedValue)]
        is_plain = all(isinstance(piece, ast.Constant) for spec in specs if spec for piece in spec.values)
        if not self._is_message or not is_plain:
            return self.generic_visit(node)
        template, values = "", []
        part: Any
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                conversion = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
                pieces: Any = part.format_spec
                spec = ":" + "".join(piece.value for piece in pieces.values) if pieces else ""
                template += f"{{{conversion}{spec}}}"
                values.append(self.visit(part.value))
            else:
                template += part.value.replace("{", "{{").replace("}", "}}")
        return self._call("text", node, ast.Constant(template), *values)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if not _may_wait(*node.values[1:]):
            return self.generic_visit(node)
        return self._folded(node, "and_then" if isinstance(node.op, ast.And) else "or_else", self.visit)

    def _folded(self, node: ast.BoolOp, name: str, convert: Any) -> Any:
        *first, last = [convert(value) for value in node.values]
        for value in reversed(first):
            last = self._call(name, node, value, _lambda(last))
        return last

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._call("negation", node, self._truth(node.operand))
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if not _may_wait(node.body, node.orelse):
            return self.generic_visit(node)
        test, body, other = self._truth(node.test), self.visit(node.body), self.visit(node.orelse)
        return self._call("branch", node, test, _lambda(body), _lambda(other))

    def visit_Compare(self, node: ast.Compare) -> Any:
        is_none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        if len(node.ops) == 1 and is_none and isinstance(node.ops[0], ast.Is | ast.IsNot):
            method = "is_none" if isinstance(node.ops[0], ast.Is) else "is_given"
            return self._call(method, node, self.visit(node.left))
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            found = self._call("contains", node, self.visit(node.left), self.visit(node.comparators[0]))
            return found if isinstance(node.ops[0], ast.In) else self._call("negation", node, found)
        if len(node.ops) == 1 or not _may_wait(*node.comparators):
            return self.generic_visit(node)
        operators = ast.Constant(" ".join(type(op).__name__ for op in node.ops))
        left, *rights = [self.visit(value) for value in (node.left, *node.comparators)]
        return self._call("compare", node, operators, left, *map(_lambda, rights))

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id.startswith(PREFIX):
            return node  # a function made here
        if isinstance(node.func, ast.Name) and node.func.id in _LOOKS_AT_FRAME:
            if node.func.id == "super" and not node.args and self._first:
                node.args = [ast.Name("__class__", ast.Load()), ast.Name(self._first, ast.Load())]
            elif node.func.id != "super":
                self.generic_visit(node)
            return node
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("warn", "warning"):
            return self.generic_visit(node)  # told of the line that calls it, and so of the same line once
        name = ast.unparse(node.func).rpartition(".")[2]
        if self._is_message and name in ("str", "repr") and len(node.args) == 1 and not node.keywords:
            return self._call(
                "text", node, ast.Constant("{!r}" if name == "repr" else "{!s}"), self.visit(node.args[0])
            )
        if name == "print" or name in _CHECKS or (node is self._alone and _CHECKS_BY_NAME.search(name)):
            told = 0 if name == "print" else 1
            node.func = self.visit(node.func)
            node.args = [*map(self.visit, node.args[:told]), *map(self._message, node.args[told:])]
            for keyword in node.keywords:
                keyword.value = self._message(keyword.value)
        else:
            self.generic_visit(node)
        return _at(ast.Call(self._runtime("call", node), [node.func, *node.args], node.keywords), node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        node.attr = self._mangled(node.attr)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._mangled(node.id)
        return node

    def visit_keyword(self, node: ast.keyword) -> Any:
        self.generic_visit(node)
        node.arg = node.arg and self._mangled(node.arg)
        return node

    def _mangled(self, name: str) -> str:
        is_private = self._owner and name.startswith("__") and not name.endswith("__")
        return f"_{self._owner}{name}" if is_private else name

    def _call(self, method: str, place: ast.AST, *args: ast.expr) -> Any:
        return _at(ast.Call(self._runtime(method, place), list(args), []), place)

    def _runtime(self, method: str, place: ast.AST) -> Any:
        return _at(ast.Attribute(ast.Constant(_RUNTIME), method, ast.Load()), place)


def _at(node: Any, place: ast.AST) -> Any:
    """Give a new node, and the new ones inside it, the place of an old one."""
    ast.copy_location(node, place)
    return ast.fix_missing_locations(node)


def _name(function: ast.FunctionDef) -> ast.Name:
    return ast.Name(function.name, ast.Load())


def _texts(names: Iterable[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _lambda(body: ast.expr) -> Any:
    marker = ast.arguments([], [], None, [ast.arg(PREFIX)], [ast.Constant(None)], None, [])
    made = ast.Lambda(marker, body)
    return _at(made, body)

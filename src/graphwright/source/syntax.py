"""Trees of functions: what statements hold and bind, and how new ones get their place."""

from __future__ import annotations

import ast
import collections
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The statements `x[key] += value` that go through the runtime, and what they call.
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv,
    "BitOr": operator.ior, "BitAnd": operator.iand,
}  # fmt: skip
RUNTIME_MARK = "graphwright runtime"  # in the constants of converted code, replaced by the runtime itself
PREFIX = "_gw_"  # of the names of functions made from statements
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What a generic function, of Python 3.12 and later, has where another has none.
TYPE_PARAMETERS: dict[str, Any] = {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}


# The fields of nodes that hold no parts, or whether a name is read or written; and those of single kinds.
_NO_PARTS = frozenset({
    "ctx", "id", "attr", "asname", "module", "level", "kind", "type_comment", "is_async", "conversion", "simple",
})  # fmt: skip
_TEXTS = {
    ast.Constant: "value", ast.arg: "arg", ast.keyword: "arg", ast.alias: "name", ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name", ast.ClassDef: "name", ast.ExceptHandler: "name", ast.MatchAs: "name",
    ast.MatchStar: "name", ast.MatchMapping: "rest", ast.Global: "names", ast.Nonlocal: "names",
}  # fmt: skip


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    text = _TEXTS.get(kind)
    fields = tuple([name for name in kind._fields if name not in _NO_PARTS and name != text])
    _of_kind[kind] = fields
    return fields


_of_kind: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """The parts of a node in order, but for whether a name is read or written: in a tenth of the time `ast` takes."""
    found: list[ast.AST] = []
    kind = type(node)
    fields = _of_kind.get(kind)
    for name in _fields(kind) if fields is None else fields:
        value = getattr(node, name, None)
        if type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    found.append(item)
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Iterate over a node and all in it, the outer parts first."""
    waiting = collections.deque([node])
    while waiting:
        node = waiting.popleft()
        waiting.extend(children(node))
        yield node


def copied_tree(node: Any) -> Any:
    """A copy of a tree of which nothing is shared but what has no parts and no place."""
    if not node._fields and not node._attributes:
        return node
    made = ast.AST.__new__(type(node))
    state = made.__dict__
    for name, value in node.__dict__.items():
        if type(value) is list:
            state[name] = [copied_tree(item) if isinstance(item, ast.AST) else item for item in value]
        else:
            state[name] = copied_tree(value) if isinstance(value, ast.AST) else value
    return made


def is_convertible(definition: ast.AST) -> bool:
    """Generators, coroutines, and what looks into its own frame, stay as they are. A lone `locals()` does not."""
    looks = 0
    for node in walk_own(definition):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            return False
        if isinstance(node, ast.Name) and node.id in ("eval", "exec"):
            return False
        looks += isinstance(node, ast.Name) and node.id == "locals"
    return not looks or (looks == 1 and call_of_locals(definition) is not None)


def call_of_locals(definition: ast.AST) -> ast.Call | None:
    """Find a call of `locals()` that runs once: up to Python 3.12 a second one changes the dict of the first."""
    for child in children(definition):
        inner = child.generators[0].iter if isinstance(child, COMPREHENSIONS) else child
        if isinstance(inner, (*SCOPES, ast.For, ast.AsyncFor, ast.While)):
            continue
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "locals":
            return None if inner.args or inner.keywords else inner
        found = call_of_locals(inner)
        if found is not None:
            return found
    return None


def walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a function's own code: not into functions and classes inside it."""
    return walk_all(children(node))


def walk_all(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Walk code in order: not into functions and classes inside it."""
    waiting = [*statements][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += children(node)[::-1]


def blocks_of(statement: ast.AST) -> list[tuple[Any, str, list[ast.stmt]]]:
    """The blocks of a statement that is no function or class: what has each, as which field, and its statements."""
    if isinstance(statement, SCOPES) or ("body" not in statement._fields and "cases" not in statement._fields):
        return []
    owners = (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    fields = ("body", "orelse", "finalbody")
    return [(owner, field, getattr(owner, field)) for owner in owners for field in fields if getattr(owner, field, ())]


def holds(statements: Iterable[ast.AST], *kinds: type[ast.AST]) -> bool:
    """Tell whether parts of these kinds are among statements, but for functions and classes inside them."""
    return any(isinstance(node, kinds) for node in walk_all(statements))


def statements_in(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Walk statements and those in their blocks, in order: not into expressions, functions and classes."""
    waiting = [*statements][::-1]
    while waiting:
        statement = waiting.pop()
        yield statement
        waiting += [each for _, _, block in blocks_of(statement)[::-1] for each in block[::-1]]


def returns(statements: Iterable[ast.AST]) -> bool:
    """Tell whether a `return` of the function around statements is among them."""
    return any(isinstance(statement, ast.Return) for statement in statements_in(statements))


def leaves_loop(statements: Iterable[ast.AST]) -> bool:
    """Tell whether a `break` or `continue` of a loop around these statements is among them."""
    for statement in statements:
        if isinstance(statement, ast.Break | ast.Continue):
            return True
        is_loop = isinstance(statement, ast.For | ast.While)
        for _, field, block in blocks_of(statement):
            if not (is_loop and field == "body") and leaves_loop(block):
                return True
    return False


def falls_through(statements: list[ast.stmt]) -> bool:
    """Tell whether what follows these statements may run after them."""
    if not statements:
        return True
    last = statements[-1]
    if isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return False
    if isinstance(last, ast.If):
        return falls_through(last.body) or falls_through(last.orelse)
    if isinstance(last, ast.With):
        return falls_through(last.body)
    return True


def assigned(statements: Iterable[ast.AST]) -> dict[str, None]:
    """The variables that statements bind or delete, in order; what comprehensions bind stays inside these."""
    names: dict[str, None] = {}

    def note(node: ast.AST) -> None:
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
        elif isinstance(node, COMPREHENSIONS):
            for inner in walk(node):
                if isinstance(inner, ast.NamedExpr):
                    names[inner.target.id] = None
            return
        elif isinstance(node, ast.Lambda):
            return
        for child in children(node):
            note(child)

    for statement in statements:
        note(statement)
    return names


def target_names(target: ast.AST) -> list[str]:
    """The variables that a target of an assignment names."""
    return [node.id for node in walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def names_read(node: ast.AST | None) -> set[str]:
    """The variables that code reads, in functions inside it too."""
    if node is None:
        return set()
    return {part.id for part in walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def may_wait(*expressions: ast.expr) -> bool:
    """Tell whether expressions may be put into a lambda, to be evaluated later or not at all."""
    return not holds(expressions, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


def tested_for_none(node: ast.AST) -> ast.expr | None:
    """What `x is None` asks about, or `None is not x`; None for other expressions.

    >>> [ast.unparse(tested_for_none(ast.parse(text, mode="eval").body)) for text in ("a.b is None", "None is not c")]
    ['a.b', 'c']
    """
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.IsNot):
        return None
    left, right = node.left, node.comparators[0]
    is_right = isinstance(right, ast.Constant) and right.value is None
    return left if is_right else right if isinstance(left, ast.Constant) and left.value is None else None


def compares_identity(node: ast.AST) -> bool:
    """Tell whether a node asks whether two values that may be tensors are one: `a is b`, not `a is None`."""
    if not isinstance(node, ast.Compare) or not any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return False
    sides = node.left, *node.comparators
    return not any(_is_no_tensor(side) for side in sides)


def _is_no_tensor(value: ast.expr) -> bool:
    """Tell whether an expression is a literal other than a number or bool, or the class of something."""
    if isinstance(value, ast.Constant):
        return type(value.value) not in (bool, int)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "type"


def placed(node: ast.AST, place: ast.AST) -> Any:
    """Give a new node, and the new ones inside it, the place of an old one."""
    where = [getattr(place, name, None) for name in _PLACE]
    if None in where:
        return all_placed(ast.copy_location(node, place))
    ast.copy_location(node, place)
    _place(node, where)
    return node


_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def _place(node: ast.AST, where: list[Any]) -> None:
    """Give parts without a place one; what has one is complete."""
    for child in children(node):
        state = child.__dict__
        if state.get("end_lineno") is None:
            for name, value in zip(_PLACE, where, strict=True) if child._attributes else ():
                if state.get(name) is None:
                    state[name] = value
            _place(child, where)


def all_placed(tree: ast.AST) -> Any:
    """Give all parts of a tree that have no place that of what they are part of: as `ast.fix_missing_locations`."""
    pending: list[tuple[ast.AST, Any]] = [(tree, (1, 0, 1, 0))]
    for node, where in pending:
        if node._attributes:
            state = node.__dict__
            if state.get("end_lineno") is None:
                for name, value in zip(_PLACE, where, strict=True):
                    if state.get(name) is None:
                        state[name] = value
            where = _where(state)
        pending += [(child, where) for child in children(node)]
    return tree


_where = operator.itemgetter(*_PLACE)


def name_of(function: ast.FunctionDef) -> ast.Name:
    """The name by which a function is called."""
    return ast.Name(function.name, ast.Load())


def texts_of(names: Iterable[str]) -> ast.Tuple:
    """A tuple of constants."""
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def lambda_of(body: ast.expr) -> Any:
    """An expression as a function that takes nothing."""
    marker = ast.arguments([], [], None, [ast.arg(PREFIX)], [ast.Constant(None)], None, [])
    made = ast.Lambda(marker, body)
    return placed(made, body)


def template_of(text: ast.JoinedStr, escapes: bool = True) -> str:
    """An f-string as what `str.format` takes; what a format spec shows comes after what is shown so.

    >>> template_of(ast.parse("f'{a!r} of {b:>{n}} {{}}'", mode="eval").body)
    '{!r} of {:>{}} {{}}'
    """
    template = ""
    part: Any
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            conversion = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
            inner = part.format_spec
            spec = f":{template_of(inner, False)}" if isinstance(inner, ast.JoinedStr) else ""
            template += f"{{{conversion}{spec}}}"
        else:
            template += part.value.replace("{", "{{").replace("}", "}}") if escapes else part.value
    return template


def plain_names(target: ast.expr) -> list[str]:
    """The variables of a target that is one, or a tuple of some and of such tuples; none for any other target."""
    if isinstance(target, ast.Name):
        return [target.id]
    parts = [plain_names(part) for part in target.elts] if isinstance(target, ast.Tuple) else []
    names = [name for part in parts for name in part]
    is_clear = len(parts) == len(names) or len(names) == len(set(names))  # `_, (_, row)`: which is the last?
    return names if all(parts) and is_clear else []


@functools.lru_cache(1024)
def targets_in(target: str) -> tuple[str, ...]:
    """The parts of a target, `a` and `(b, c)` of `a, (b, c)`; none of a variable."""
    tree = ast.parse(target, mode="eval").body if "," in target else None
    return tuple([ast.unparse(part) for part in getattr(tree, "elts", ())])


def function_of(target: ast.expr, body: ast.expr) -> Any:
    """An expression as a function of the parts of a target."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [part.id if isinstance(part, ast.Name) else f"{PREFIX}part_{i}" for i, part in enumerate(parts)]
    for part, name in zip(parts, names, strict=True):
        if not isinstance(part, ast.Name):
            given: list[ast.expr] = [ast.Starred(ast.Name(name, ast.Load()), ast.Load())]
            body = placed(ast.Call(function_of(part, body), given, []), body)
    names = [
        name if name not in names[i + 1 :] else f"{PREFIX}unused_{i}" for i, name in enumerate(names)
    ]  # `_, _, row`
    made = lambda_of(body)
    made.args.args = [*[ast.arg(name) for name in names], *made.args.args]
    return placed(made, body)


def compares_sizes(node: ast.Compare) -> bool:
    """Tell whether a comparison may be one of sizes: with a tuple, `tuple(x)`, `x.shape`, `x.size()[2:]`."""
    for side in (node.left, *node.comparators):
        while isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Slice):
            side = side.value
        if isinstance(side, ast.Call) and isinstance(side.func, ast.Name) and side.func.id in ("tuple", "list"):
            return True
        name = side.func if isinstance(side, ast.Call) and not side.args else side
        is_tuple = isinstance(side, ast.Tuple | ast.List)
        if is_tuple or (isinstance(name, ast.Attribute) and name.attr in ("shape", "size")):
            return True
    return False


def is_from_conversion(function: ast.expr) -> bool:
    """Tell whether a call is one that conversion made: of a function of statements, or of the runtime."""
    if isinstance(function, ast.Name):
        return function.id.startswith(PREFIX)
    return isinstance(function, ast.Attribute) and getattr(function.value, "value", None) == RUNTIME_MARK

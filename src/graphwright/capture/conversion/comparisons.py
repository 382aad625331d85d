"""Which variables a function compares with what is no number: of another class, an input would compare otherwise."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TypeGuard

from graphwright.source import walk

_OF_VALUES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
LOOK_FOR = frozenset({"count", "index", "remove"})  # methods that compare what they are given with what is there
_SIZES = frozenset({"shape", "size", "len", "dim", "ndim", "numel", "dtype", "device"})
_LIBRARIES = frozenset({"torch", "F", "nn", "math", "np"})  # which make values of their own
# An argument, and what of it is compared: "itself", "part", which it holds or gives, or "member", what is in it. What
# a method reads of its own object is its name behind a dot: ".scale" of `self.scale`.
Source = tuple[str, str]
Given = dict[str, list[tuple[ast.expr | None, str]]]


def compared_in(nodes: list[ast.AST], arguments: list[str], owner: str = "") -> frozenset[Source]:
    """The arguments of a function from which what is compared so comes; that of a function inside has no name.

    A method has those of its `owner`, too, that are asked for their class, or handed on to functions that may ask.

    What a call gives, and is compared with a variable, counts as a number.

    >>> nodes = [*ast.walk(ast.parse("def f(k, d, n): m = d.get('m'); return k == 'auto', m is not None, n == 3"))]
    >>> sorted(compared_in(nodes, ["k", "d", "n"]))
    [('d', 'part'), ('k', 'itself')]
    """
    sides = {
        (side, how)
        for side, other, how in _compared(nodes, arguments)
        if _is_no_number(other) or not isinstance(side, ast.Call)
    }
    if not (sides or owner):
        return frozenset()
    given, named = _given_to(nodes, arguments), _names_asked(nodes, owner) if owner else frozenset()
    return _sources(sides, given, arguments, owner) | {(f".{name}", "itself") for name in named}


def _names_asked(nodes: list[ast.AST], owner: str) -> frozenset[str]:
    """The attributes of a method's object that are asked for their class, or that functions get."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name | ast.Lambda):
            name = getattr(node.func, "id", "")
            if name in ("hasattr", "getattr") and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                found.add(str(node.args[1].value))
            if name in _ASKS or not hasattr(builtins, name):
                found.update(part.attr for part in node.args if _is_of(part, owner))
    return frozenset(found)


_ASKS = frozenset({"isinstance", "type", "callable", "hasattr", "map", "filter", "any", "all"})


def _is_of(value: ast.AST, owner: str) -> TypeGuard[ast.Attribute]:
    return isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == owner


def _given_to(nodes: list[ast.AST], arguments: list[str]) -> Given:
    """What each variable gets: itself, a part of it, or as something that it holds; None is what nobody knows.

    A function inside gives what it returns.
    """
    given: Given = {}
    for node in nodes:
        if not isinstance(node, _GIVING):
            continue
        for holder, held in _stored(node):
            given.setdefault(holder, []).append((held, "held"))
        if isinstance(node, ast.FunctionDef):
            inside = nodes if node is nodes[0] else walk(node)
            found = [(part.value, "itself") for part in inside if isinstance(part, ast.Return) and part.value]
            given.setdefault(node.name, []).extend(found)
        targets: list[ast.expr] = []
        value: ast.expr | None = getattr(node, "value", None)
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.NamedExpr | ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets, value = [node.optional_vars], node.context_expr
        elif isinstance(node, ast.arg) and node.arg not in arguments:
            given.setdefault(node.arg, []).append((None, "part"))
        is_whole = isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign)
        for target in targets:
            for part in walk(target):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    given.setdefault(part.id, []).append((value, "itself" if is_whole and part is target else "part"))
    return given


_GIVING = (
    ast.Assign, ast.Call, ast.arg, ast.FunctionDef, ast.NamedExpr, ast.AnnAssign, ast.AugAssign, ast.For,
    ast.comprehension, ast.withitem,
)  # fmt: skip


def _stored(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The variables that hold something from then on, and that: `o.a = m`, `d["k"] = m`, `l.append(m)`."""
    if isinstance(node, ast.Assign):
        holders: list[ast.expr] = [each for each in node.targets if isinstance(each, ast.Attribute | ast.Subscript)]
        values = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        holders, values = [node.func], node.args
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr" and len(node.args) == 3:
        holders, values = node.args[:1], node.args[2:]
    else:
        return
    for holder in holders:
        while isinstance(holder, ast.Attribute | ast.Subscript):
            holder = holder.value
        if isinstance(holder, ast.Name) and holder.id not in _LIBRARIES | {"self", "cls"}:
            yield from ((holder.id, value) for value in values)


def _sources(
    values: set[tuple[ast.expr, str]],
    given: Given,
    arguments: list[str],
    owner: str,
) -> frozenset[Source]:
    """The arguments that some values are, or come from, and the attributes of the owner."""
    waiting: list[tuple[ast.AST | None, str]] = [*values]
    seen: set[Source] = set()
    while waiting:
        value, how = waiting.pop()
        if value is None:
            seen.add(("", "part"))
        elif isinstance(value, ast.Name):
            if (value.id, how) not in seen:
                seen.add((value.id, how))
                hows = {"itself": how, "part": "part", "held": "itself"}
                waiting += [(each, hows[as_what]) for each, as_what in given.get(value.id, ())]
        elif isinstance(value, ast.Call):  # which may give an argument back
            inner = [value.func.value] if isinstance(value.func, ast.Attribute) else []
            if inner and isinstance(inner[0], ast.Name) and inner[0].id in _LIBRARIES:
                continue
            waiting += [(each, "part") for each in inner]
            waiting += [(each, how) for each in (value.func, getattr(value.func, "body", None)) if _is_function(each)]
            held = (*value.args, *(keyword.value for keyword in value.keywords))
            waiting += [(each, "itself" if how == "part" and _makes_holder(value.func) else how) for each in held]
        elif isinstance(value, ast.List | ast.Tuple | ast.Set):  # which are compared item by item
            waiting += [(each, "itself") for each in value.elts]
        elif isinstance(value, ast.IfExp):
            waiting += [(value.body, how), (value.orelse, how)]
        elif isinstance(value, ast.BoolOp | ast.NamedExpr):
            waiting += [(each, how) for each in (value.values if isinstance(value, ast.BoolOp) else [value.value])]
        elif not isinstance(value, ast.Compare):
            if _is_of(value, owner):
                seen.add((f".{value.attr}", how))
            waiting += [(each, "part") for each in ast.iter_child_nodes(value)]
    return frozenset(source for source in seen if source[0] in arguments or source[0][:1] in ("", "."))


def _compared(nodes: list[ast.AST], arguments: list[str]) -> Iterator[tuple[ast.expr, ast.AST, str]]:
    """What is compared with each other, short of arguments with None, of numbers that are written, and of sizes."""
    for node in nodes:
        if isinstance(node, ast.Match):
            cases = [part for case in node.cases for part in walk(case.pattern)]
            yield from ((node.subject, case, "itself") for case in cases if _is_no_number(case))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LOOK_FOR and node.args:
            item, among = node.args[0], node.func.value  # type: ignore[attr-defined]
            if not (_is_number(item) or _is_numbers(among)):
                yield from ((item, among, "itself"), (among, item, "member"))
        elif isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                is_in = isinstance(operator, ast.In | ast.NotIn)
                if isinstance(operator, ast.Is | ast.IsNot):
                    left, right = (right, left) if _is_none(left) else (left, right)
                    is_of_argument = isinstance(left, ast.Name) and left.id in arguments and _is_none(right)
                    is_asked = _is_no_number(right) and not is_of_argument
                else:
                    among = _is_numbers if is_in else _is_number
                    is_asked = isinstance(operator, _OF_VALUES) and not (_is_number(left) or among(right))
                if is_asked:
                    yield from ((left, right, "itself"), (right, left, "member" if is_in else "itself"))


def _is_no_number(value: ast.AST) -> bool:
    """Tell whether something is written there, or holds what is, that is no number: a text, None, True."""
    if isinstance(value, ast.MatchSingleton):
        return True
    parts = walk(value) if isinstance(value, ast.Tuple | ast.List | ast.Set | ast.MatchValue) else [value]
    return any(isinstance(part, ast.Constant) and type(part.value) not in (int, float) for part in parts)


def _is_number(value: ast.AST) -> bool:
    if isinstance(value, ast.Constant):
        return type(value.value) in (int, float)
    if isinstance(value, ast.UnaryOp | ast.BinOp):
        return all(map(_is_number, (each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr))))
    names = {getattr(part, "attr", getattr(part, "id", "")) for part in walk(value)}
    return not _SIZES.isdisjoint(names)


def _is_numbers(value: ast.AST) -> bool:
    return isinstance(value, ast.Tuple | ast.List | ast.Set) and all(map(_is_number, value.elts))


def _makes_holder(function: ast.expr) -> bool:
    """Tell whether what a call gives holds what it is given: a container, or an object of a class by its name."""
    name = getattr(function, "id", getattr(function, "attr", ""))
    return name[:1].isupper() or name in ("dict", "list", "tuple", "set", "deque", "defaultdict")


def _is_function(value: ast.AST | None) -> bool:
    """Tell whether something stands for what a function inside gives: its name, or the body of a lambda."""
    return isinstance(value, ast.expr) and not isinstance(value, ast.Attribute | ast.Lambda)


def _is_none(value: ast.AST) -> bool:
    return isinstance(value, ast.Constant) and value.value is None

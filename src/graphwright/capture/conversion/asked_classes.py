"""Which questions for classes a function holds: those that Python answers with the class of a stand-in, and others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from graphwright.capture.conversion.comparisons import Source, compared_in
from graphwright.source import tested_for_none, walk


class Asked(NamedTuple):
    """`class_of`: `type` is used; `kind`: a value's kind decides; `given`: arguments asked for with `is None`.

    `compared`: arguments that are compared with what is no number, or from which that comes; `of_owner`: such
    questions, or those of kinds, are about what `self` holds, `attributes` the names of that.
    `by_name`: attributes are looked up by names that are computed; `of_globals`: global variables are;
    `of_attributes`: attributes are in tables of them, or all of them are gone over.
    """

    class_of: bool
    kind: bool
    given: frozenset[str]
    compared: frozenset[Source]
    of_owner: bool
    attributes: frozenset[str]
    by_name: bool
    of_globals: bool
    of_attributes: bool


# Functions of torch's that take values apart by their classes.
TREES = frozenset({
    "tree_all", "tree_any", "tree_flatten", "tree_flatten_with_path", "tree_iter", "tree_leaves", "tree_map",
    "tree_map_", "tree_map_only", "tree_structure",
})  # fmt: skip
_KINDS = frozenset({"isinstance", "type", "hasattr", "getattr", "callable", "is_tensor"})


def asked_in(definition: ast.FunctionDef | ast.Lambda | None) -> Asked:
    """Find the questions of a function, nested ones among them; what it asks of `self` is none of them."""
    if definition is None:
        return Asked(False, False, frozenset(), frozenset(), False, frozenset(), False, False, True)
    names = _arguments(definition)
    owner = names[0] if names and names[0] in ("self", "cls") else ""
    nodes = [*walk(definition)]
    given = frozenset(names) & set(_asked_for_none(nodes))
    compared = compared_in(nodes, names, owner)
    kind = any(_kinds_asked(nodes, owner)) or ("", "part") in compared
    of_owner = bool(owner) and (any(_kinds_asked(nodes, "")) or (owner, "part") in compared)
    attributes = frozenset(name[1:] for name, _ in compared if name[:1] == ".")
    compared = frozenset(source for source in compared if source[0] in names and source[0] != owner)
    return Asked(
        any(_uses_type(nodes, owner)),
        kind,
        given,
        compared,
        of_owner,
        attributes,
        any(map(_is_by_name, nodes)),
        *[_searches(nodes, each) for each in _TABLES],
    )


def _arguments(definition: ast.FunctionDef | ast.Lambda) -> list[str]:
    arguments = definition.args
    return [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _asked_for_none(nodes: list[ast.AST]) -> Iterator[str]:
    """The variables of which it is asked whether they are None."""
    for node in nodes:
        asked = tested_for_none(node)
        if isinstance(asked, ast.Name):
            yield asked.id


def _uses_type(nodes: list[ast.AST], owner: str) -> Iterator[bool]:
    """Each use of `type` but to make an object, as in `type(self)(...)`, and as a class of classes; of `__class__`.

    What `self` is, is no question: what it holds may be stood for.
    """
    harmless: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name, of_owner = node.func.id, bool(node.args) and _is_name(node.args[0], owner)
            is_of_classes = name in ("isinstance", "issubclass")
            parts = node.args[1:] if is_of_classes else [node.func] if name == "type" and of_owner else []
            if is_of_classes and any("Parameter" in ast.unparse(part) for part in parts):
                yield True  # which a tensor of a call may be, and its stand-in is not
            harmless.update(id(part) for each in parts for part in walk(each))
    for node in nodes:
        if isinstance(node, ast.Name) and node.id == "type" and id(node) not in harmless:
            yield True
        if isinstance(node, ast.Attribute) and node.attr == "__class__" and not _is_name(node.value, owner):
            yield True


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name != ""


def _kinds_asked(nodes: list[ast.AST], owner: str) -> Iterator[bool]:
    """Each question of what kind a value is, other than what `self` holds."""
    for node in nodes:
        if isinstance(node, ast.MatchClass) or (isinstance(node, ast.Attribute) and node.attr == "__class__"):
            yield not isinstance(node, ast.Attribute) or _root(node.value) != owner or not owner
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            is_question = name in TREES or (name in _KINDS and (name != "getattr" or len(node.args) == 3))
            if is_question and (not owner or _root(node.args[0]) != owner):
                yield True


def _is_by_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or len(node.args) < 2 or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in ("getattr", "hasattr") and not isinstance(node.args[1], ast.Constant)


def _searches(nodes: list[ast.AST], is_table: Callable[[ast.AST], bool]) -> bool:
    """Tell whether some tables are used for more than names that are written there: `table["name"]`."""
    all_of = {id(node) for node in nodes if is_table(node)}
    for node in nodes if all_of else ():
        key: ast.expr | None = None
        table: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            table, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            table, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            table, key = node.comparators[0], node.left
        if isinstance(key, ast.Constant):
            all_of.discard(id(table))
    return bool(all_of)


def _is_globals(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "globals"


def _is_attributes(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("vars", "dir")


_TABLES = (_is_globals, _is_attributes)


def _root(value: ast.expr) -> str:
    """The variable that an attribute, or an item, is read from in the end."""
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""

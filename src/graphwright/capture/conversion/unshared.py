"""Lists and dicts of a function that nobody else can hold: they are gone when it returns."""

from __future__ import annotations

import ast

from graphwright.source import SCOPES, children, walk

_DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
# What these do with the list or dict, or give of it, is no other name for it.
_METHODS = frozenset({"append", "extend", "insert", "update", "get", "pop", "remove", "setdefault", "clear", "copy"})


def unshared(definition: ast.FunctionDef) -> set[str]:
    """Find the variables whose lists and dicts stay in the function: never given on as they are, only item by item.

    >>> tree = ast.parse("def f(x, **options):\\n    kept = {}\\n    return g(x, **options), kept")
    >>> unshared(tree.body[0])
    {'options'}
    """
    arguments = definition.args
    parameters = {arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg)
                  if arg is not None}  # fmt: skip
    found: set[str] = set() if arguments.kwarg is None else {arguments.kwarg.arg}
    shared = set(parameters)

    def note(node: ast.AST, parent: ast.AST, around: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store) and _is_made(node, parent):
                found.add(node.id)
            elif not _is_looked_into(node, parent, around):
                shared.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            shared.update(node.names)
        elif isinstance(node, SCOPES):
            shared.update(name.id for name in walk(node) if isinstance(name, ast.Name))
            return
        for child in children(node):
            note(child, node, parent)

    for statement in definition.body:
        note(statement, definition, definition)
    return found - shared


def _is_made(name: ast.Name, parent: ast.AST) -> bool:
    """Tell whether a variable is given a new list or dict."""
    if isinstance(parent, ast.AnnAssign):
        return isinstance(parent.value, _DISPLAYS)
    return isinstance(parent, ast.Assign) and parent.targets == [name] and isinstance(parent.value, _DISPLAYS)


def _is_looked_into(name: ast.Name, parent: ast.AST, around: ast.AST) -> bool:
    """Tell whether an expression takes items of what a variable holds, or changes these, and nothing more."""
    if isinstance(parent, ast.Subscript):
        return parent.value is name
    if isinstance(parent, ast.keyword):
        return parent.arg is None
    if isinstance(parent, ast.Starred):
        return isinstance(around, ast.Call | ast.List | ast.Tuple | ast.Set)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _METHODS and isinstance(around, ast.Call) and around.func is parent
    if isinstance(parent, ast.Compare):
        return name in parent.comparators and all(isinstance(op, ast.In | ast.NotIn) for op in parent.ops)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "len" and parent.args == [name]
    return False

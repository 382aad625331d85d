"""Which variables code names, how often, and which of them nothing else around it does."""

from __future__ import annotations

import ast
import collections

from graphwright.source.syntax import COMPREHENSIONS, SCOPES, assigned, children, walk

__all__ = ["bound_in_loops", "names_counted", "private_to"]


def private_to(loop: ast.AST, uses: collections.Counter[str]) -> set[str]:
    """The names that a loop uses and nothing around it does, given how often the function uses each."""
    own = names_counted(loop)
    return {name for name, count in own.items() if uses[name] == count}


def bound_in_loops(definition: ast.FunctionDef, uses: collections.Counter[str]) -> set[str]:
    """The variables that loops give their first value, and that the function reads around these, too."""
    parameters = {arg.arg for arg in walk(definition.args) if isinstance(arg, ast.arg)}
    found: set[str] = set()
    known = set(parameters)

    def note(node: ast.AST, is_inside: bool) -> None:
        if isinstance(node, ast.For | ast.While):
            found.update(assigned([node]).keys() - known - private_to(node, uses))
            is_inside = True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not is_inside:
            known.add(node.id)
        if not isinstance(node, SCOPES):
            for child in children(node):
                note(child, is_inside)

    for statement in definition.body:
        note(statement, False)
    return found


def names_counted(tree: ast.AST) -> collections.Counter[str]:
    """How often each variable is named; comprehensions and functions inside have their own."""
    found: collections.Counter[str] = collections.Counter()

    def note(node: ast.AST, hidden: frozenset[str]) -> None:
        if isinstance(node, COMPREHENSIONS):
            targets = [name for loop in node.generators for name in walk(loop.target) if isinstance(name, ast.Name)]
            note(node.generators[0].iter, hidden)  # evaluated outside
            inner = hidden | {name.id for name in targets}
            first, *others = node.generators
            for part in (first.target, *first.ifs, *others, *_results(node)):
                note(part, inner)
            return
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            hidden = hidden | {arg.arg for arg in walk(node.args) if isinstance(arg, ast.arg)}
        if isinstance(node, ast.Name) and node.id not in hidden:
            found[node.id] += 1
        for child in children(node):
            note(child, hidden)

    note(tree, frozenset())
    return found


def _results(node: ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp) -> list[ast.expr]:
    return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]

"""Which variables code names, how often, and which of them nothing else around it does."""

from __future__ import annotations

import ast
import collections

from graphwright.source.syntax import COMPREHENSIONS, SCOPES, assigned, children, walk


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


def errors_named_outside(definition: ast.AST, uses: collections.Counter[str]) -> set[str]:
    """The variables that handlers have for errors, and that a function, which uses each so often, names elsewhere, too.

    >>> tree = ast.parse("try: f()\\nexcept E as e: g(e)\\nexcept F as f: pass")
    >>> errors_named_outside(tree, names_counted(tree))
    {'f'}
    """
    inside: collections.Counter[str] = collections.Counter()

    def note(node: ast.AST, around: frozenset[str]) -> None:
        if isinstance(node, ast.ExceptHandler) and node.name and node.name not in around:
            inside[node.name] += names_counted(node)[node.name]
            around = around | {node.name}
        for child in children(node):
            note(child, around)

    note(definition, frozenset())
    return {name for name, count in inside.items() if uses[name] != count}


def is_bound_once(definition: ast.AST, name: str) -> bool:
    """Tell whether a variable of a function certainly has one value in each call of it.

    >>> definition = ast.parse("def f(x):\\n    y = x\\n    for x in y: pass").body[0]
    >>> is_bound_once(definition, "y"), is_bound_once(definition, "x")
    (True, False)
    """
    count = 0

    def note(node: ast.AST, is_inside: bool) -> None:
        nonlocal count
        if isinstance(node, SCOPES) and node is not definition:  # with variables of its own
            is_written = any(isinstance(each, ast.Nonlocal) and name in each.names for each in walk(node))
            count += 2 * (is_written or getattr(node, "name", None) == name)
            return
        is_inside = is_inside or isinstance(node, ast.For | ast.While)
        if isinstance(node, ast.Name):
            count += (1 + is_inside) * (node.id == name and not isinstance(node.ctx, ast.Load))
        elif isinstance(node, ast.arg):
            count += node.arg == name
        elif node is not definition and name in (getattr(node, field, None) for field in ("name", "asname", "rest")):
            count += 2  # an import, a handler of exceptions, a pattern
        for child in children(node):
            note(child, is_inside)

    note(definition, False)
    return count == 1


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

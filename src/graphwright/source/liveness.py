"""Which variables of a function are read later: after each statement, and where a loop starts an iteration."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import Any

from graphwright.source.syntax import (
    SCOPES,
    assigned,
    call_of_locals,
    children,
    holds,
    names_read,
    statements_in,
    target_names,
    walk_all,
    walk_own,
)


def note_unread(definition: ast.FunctionDef, kept: Collection[str]) -> None:
    """Note at each `if` without exits which variables it assigns that nothing reads after it; those `kept` are read.

    >>> tree: Any = ast.parse("def f(x):\\n    if x: y = z = 1\\n    else: y = 2; print(y)\\n    y = 3; return y")
    >>> note_unread(tree.body[0], ())
    >>> sorted(unread_after(tree.body[0].body[0]))
    ['y', 'z']
    """
    if call_of_locals(definition) is not None:
        return
    nodes = [*walk_own(definition)]
    deleted = {name for node in nodes if isinstance(node, ast.Delete) for name in assigned([node])}
    live = Liveness(definition.body)
    for node in nodes:
        if isinstance(node, ast.If) and live.knows(node) and not holds([node], ast.Break, ast.Continue, ast.Return):
            noted: Any = node
            noted.unread = frozenset(assigned([node])) - live.after(node) - deleted - {*kept}
            noted.size = len([*statements_in([node])])


def unread_after(statement: ast.If) -> frozenset[str]:
    """What `note_unread` has noted at an `if`; nothing where what came after it is inside of it now."""
    noted: Any = statement
    return noted.unread if getattr(noted, "size", None) == len([*statements_in([statement])]) else frozenset()


class Liveness:
    """Which variables of a function are read later: after each statement, and where a loop starts an iteration."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._after: dict[int, frozenset[str]] = {}
        self._head: dict[int, frozenset[str]] = {}
        self._ended: dict[int, frozenset[str]] = {}
        self._made: list[ast.stmt] = []  # kept: they are known by their id
        inner = [node for node in walk_all(body) if isinstance(node, (*SCOPES, ast.GeneratorExp))]  # which run later
        self._captured = frozenset().union(*[names_read(node) for node in inner])
        self._block(body, frozenset(), frozenset(), frozenset())

    def knows(self, statement: ast.stmt) -> bool:
        """Tell whether a statement is one of the function, in a kind of statement that is looked into."""
        return id(statement) in self._after

    def after(self, statement: ast.stmt) -> frozenset[str]:
        """The variables that are read after a statement."""
        return self._after[id(statement)] | self._captured

    def head(self, loop: ast.stmt) -> frozenset[str]:
        """The variables that are read once an iteration of a loop has started, in it or after it."""
        return self._head[id(loop)] | self._captured

    def ended(self, loop: ast.stmt) -> frozenset[str]:
        """The variables that are read once a loop has ended: in its `else`, and after it."""
        return self._ended[id(loop)] | self._captured

    def add(self, made: ast.stmt, like: ast.stmt) -> None:
        """Take a statement that was made of another for that one, whatever it holds being known or its own."""
        self._made.append(made)
        self._after[id(made)] = self._after[id(like)]
        if id(like) in self._head:
            self._head[id(made)], self._ended[id(made)] = self._head[id(like)], self._ended[id(like)]
        for inner in children(made):
            if isinstance(inner, ast.stmt) and id(inner) not in self._after:
                self.add(inner, like)
                if isinstance(made, ast.While):
                    self._after[id(inner)] = self._head[id(made)]

    def add_comprehension(self, loop: ast.For) -> None:
        """Take the loop that a comprehension is."""
        self._made.append(loop)
        self._block([loop], frozenset(), frozenset(), frozenset())

    def _block(
        self, body: Sequence[ast.stmt], out: frozenset[str], after_break: frozenset[str], head: frozenset[str]
    ) -> frozenset[str]:
        for statement in reversed(body):
            self._after[id(statement)] = out
            out = self._before(statement, out, after_break, head)
        return out

    def _before(
        self, node: ast.stmt, out: frozenset[str], after_break: frozenset[str], head: frozenset[str]
    ) -> frozenset[str]:
        if isinstance(node, ast.If):
            sides = [self._block(side, out, after_break, head) for side in (node.body, node.orelse)]
            return sides[0] | sides[1] | names_read(node.test)
        if isinstance(node, ast.For | ast.While):
            return self._loop(node, out, after_break, head)
        if isinstance(node, ast.With):
            inner = self._block(node.body, out, after_break, head)
            self._may_be_left(node.body, out)  # it may end errors
            return inner.union(*[names_read(item) for item in node.items])
        if isinstance(node, ast.Match):
            found = names_read(node.subject)
            for case in node.cases:
                found |= (
                    names_read(case.guard) | names_read(case.pattern) | self._block(case.body, out, after_break, head)
                )
            return out | found
        if isinstance(node, ast.Try):
            self._block(node.finalbody, out, after_break, head)
            ending = frozenset().union(*map(names_read, node.finalbody))
            ends = [each | ending for each in (out, after_break, head)]
            other = self._block(node.orelse, *ends)
            parts = [self._block(handler.body, *ends) for handler in node.handlers]
            parts.append(self._block(node.body, other, *ends[1:]))
            self._may_be_left(node.body, ending.union(*parts[:-1]))
            return ending.union(*parts)
        if isinstance(node, ast.Break):
            return after_break
        if isinstance(node, ast.Continue):
            return head
        if isinstance(node, ast.Return | ast.Raise):
            return frozenset(names_read(node))
        read = names_read(node)
        if isinstance(node, ast.AugAssign):
            read |= {node.target.id} if isinstance(node.target, ast.Name) else set()
        written = set(assigned([node])) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Delete) else set()
        return (out - written) | read

    def _may_be_left(self, body: Sequence[ast.stmt], to: frozenset[str]) -> None:
        """Any statement of a body may be the last of it: an error leaves it `to` where these variables are read."""
        for statement in walk_all(body):
            if id(statement) in self._after:
                self._after[id(statement)] |= to

    def _loop(
        self, node: ast.For | ast.While, out: frozenset[str], after_break: frozenset[str], head: frozenset[str]
    ) -> frozenset[str]:
        ending = self._block(node.orelse, out, after_break, head)
        self._ended[id(node)] = ending | out
        own = frozenset(ending | (names_read(node.test) if isinstance(node, ast.While) else set()))
        targets = set(target_names(node.target)) if isinstance(node, ast.For) else set()
        while True:
            inner = self._block(node.body, own, out, own)
            grown = own | (inner - targets)
            if grown == own:
                break
            own = grown
        self._head[id(node)] = own
        return own | (names_read(node.iter) if isinstance(node, ast.For) else set())

"""The nodes of the call of a module, made again for a module like it."""

from __future__ import annotations

from typing import Any

from graphwright.capture.effects.alike_modules import is_below
from graphwright.ir import ATOMS, Graph, Node, map_arg
from graphwright.source import CallSite, Scope

__all__ = ["Copying"]

Counts = dict[str, int]  # of calls, by the path of the module


class Copying:
    """The nodes of one call, and the calls of modules in it, made for another.

    `copied` has what is passed to the other by what is passed to the one, and gains the nodes; `before` and `now` are
    how often each module had been called before the two.
    """

    def __init__(self, scopes: tuple[Scope, Scope], copied: dict[Node, Node], before: Counts, now: Counts) -> None:
        self._one, other = scopes
        self._own, self._other = self._one.path, other.path
        self._before, self._now = before, now
        self.copied = copied
        self._scopes = {self._one: other}

    def path(self, path: str) -> str:
        """The path of a module or attribute of the first module, in the other."""
        return self._other + path[len(self._own) :] if is_below(path, self._own) else path

    def node(self, graph: Graph, node: Node, wish: str | None) -> Node:
        """Copy a node."""
        copied = self.copied
        args = tuple([self._argument(arg) for arg in node._args])
        kwargs = {key: self._argument(arg) for key, arg in node._kwargs.items()} if node._kwargs else None
        target = self.path(node._target) if node._op in ("get_attr", "call_module") else node._target  # type: ignore[arg-type]
        made = graph.create_node(node._op, target, args, kwargs, wish, node.type)
        if node._meta is not None:
            made._meta = node._meta.copy()
        made._origin = self._site(node._origin)
        copied[node] = made
        return made

    def _argument(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is Node:
            return self.copied.get(argument, argument)
        if kind in ATOMS:
            return argument
        if kind is Graph:
            return self._body(argument)
        return map_arg(argument, lambda node: self.copied.get(node, node))

    def _body(self, body: Graph) -> Graph:
        """Copy the body of a branch or loop."""
        made = Graph()
        names = {old.name: new.name for old, new in self.copied.items()}
        for node in body.nodes:
            name = names.get(node.name, node.name) if node.op == "placeholder" else node.name
            copied = self.node(made, node, name)
            if node.op == "placeholder" and node._target == node.name:
                copied._target = copied.name
        return made

    def _site(self, origin: Any) -> Any:
        if type(origin) is not CallSite:
            return origin
        return CallSite(origin.code, origin.instruction, self._scope(origin.scope), origin.is_whole)

    def _scope(self, scope: Scope) -> Scope:
        """The call of a module inside, or the one around all."""
        known = self._scopes.get(scope)
        if known is None:
            if scope.outer is None or not self._is_inside(scope):
                return scope
            path = self.path(scope.path)
            count = self._now.get(path, 0) + scope.call - self._before.get(scope.path, 0)
            known = self._scopes[scope] = Scope(path, scope.kind, count, self._scope(scope.outer))
        return known

    def _is_inside(self, scope: Scope | None) -> bool:
        while scope is not None and scope is not self._one:
            scope = scope.outer
        return scope is not None

    def finish(self) -> None:
        """Note what each call inside got and gave."""
        for old, new in list(self._scopes.items()):
            if old is not self._one:
                (args, kwargs), copied = old.passed, self.copied
                new.passed = _renamed(args, copied), {name: _renamed(value, copied) for name, value in kwargs.items()}
                new.given = _renamed(old.given, copied)
                new.site = self._site(old.site)


def _renamed(value: Any, copied: dict[Node, Node]) -> Any:
    if type(value) is Node:
        return copied.get(value, value)
    return tuple([_renamed(item, copied) for item in value]) if type(value) is tuple else value

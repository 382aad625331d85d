"""The nodes of the call of a module, made again for a module like it; or one that stands for them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from graphwright.capture.effects.alike_modules import is_below
from graphwright.capture.state.tidy import may_be_erased
from graphwright.capture.typed.module_calls import keep_module_calls, scopes_of
from graphwright.hierarchy import CopiedCall, copied_call, instead_of
from graphwright.ir import ATOMS, Graph, Node, candidate_for, map_arg
from graphwright.source import CallSite, Scope

Counts = dict[str, int]  # of calls, by the path of the module


class Copying:
    """The nodes of one call, and the calls of modules in it, made for another.

    `wishes` are the names that nodes are to have. `copied` has what is passed to the other by what is passed to the
    one, and gains what is made; `further` tells how much more often than a module of the one its like in the other had
    been called before.
    """

    def __init__(
        self,
        nodes: list[Node],
        wishes: Mapping[Node, str | None],
        scopes: tuple[Scope, Scope],
        copied: dict[Node, Node],
        further: Counts,
    ) -> None:
        self._nodes, self._wishes = nodes, wishes
        self._one, self._outermost = scopes
        self._further = further
        self.copied = copied
        self._scopes = {self._one: self._outermost}

    def path(self, path: str) -> str:
        """The path of a module or attribute of the first module, in the other."""
        return moved(path, (self._one, self._outermost))

    def as_one(self, used: Sequence[Node], results: Sequence[Node]) -> Node | None:
        """Make one node that stands for all, of which the results are used.

        None where some of them may be erased from the original, or the copy is called elsewhere.
        """
        graph, outermost = self._nodes[0].graph, self._outermost
        site = next((node._origin for node in self._nodes if node._origin is not None), None)
        if self._one.outer is not outermost.outer or not isinstance(site, CallSite):
            return None
        if not results or any(map(may_be_erased, results)):
            return None
        target = CopiedCall(outermost.key, self._one.key, self._nodes, self._write_out)
        place = CallSite(site.code, site.instruction, outermost, is_whole=False)
        names = [self._wishes.get(result) or candidate_for(result._target) for result in results]
        args = tuple(used), tuple([self.copied.get(node, node) for node in used])
        made = graph.create_node("call_function", target, args, {}, names[0] if len(names) == 1 else "copied")
        made._origin = place
        if len(results) == 1:
            target.results[results[0]] = made
        else:
            for i, (result, name) in enumerate(zip(results, names, strict=True)):
                item = graph.create_node("call_function", operator.getitem, (made, i), {}, name)
                target.results[result], item._origin = item, place.part()
        self.copied |= target.results
        return made

    def _write_out(self, stands: Node) -> dict[Node, Node]:
        """Make all nodes in place of the one that stands for them; answer, for what it gave, what has its name now."""
        copied, graph = copied_call(stands), stands.graph
        assert copied is not None
        self.copied = instead_of(stands)
        with graph.inserting_before(stands):
            self.nodes()
        for old, new in copied.results.items():
            if not new._erased:
                made, name = self.copied[old], new.name
                new.replace_all_uses_with(made)
                new.name, made.name = f"{name}_copied", name
        return {new: self.copied[old] for old, new in copied.results.items() if not new._erased}

    def nodes(self) -> list[Node]:
        """Copy all nodes that are there."""
        graph = self._nodes[0].graph
        made = [self._node(graph, node, self._wishes.get(node, node.name)) for node in self._nodes if not node._erased]
        self._finish()
        return made

    def _node(self, graph: Graph, node: Node, wish: str | None) -> Node:
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
            copied = self._node(made, node, name)
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
            count = scope.call + self._further.get(scope.path, 0)
            known = self._scopes[scope] = Scope(path, scope.kind, count, self._scope(scope.outer))
        return known

    def _is_inside(self, scope: Scope | None) -> bool:
        while scope is not None and scope is not self._one:
            scope = scope.outer
        return scope is not None

    def _finish(self) -> None:
        """Note what each call inside got and gave."""
        for old, new in list(self._scopes.items()):
            if old is not self._one:
                (args, kwargs), copied = old.passed, self.copied
                new.passed = _renamed(args, copied), {name: _renamed(value, copied) for name, value in kwargs.items()}
                new.given = _renamed(old.given, copied)
                new.site = self._site(old.site)


def moved(path: str, scopes: tuple[Scope, Scope]) -> str:
    """The path of a module or attribute of the module of one call, in the module of the other."""
    own = scopes[0].path
    return scopes[1].path + path[len(own) :] if is_below(path, own) else path


def _renamed(value: Any, copied: dict[Node, Node]) -> Any:
    if type(value) is Node:
        return copied.get(value, value)
    return tuple([_renamed(item, copied) for item in value]) if type(value) is tuple else value


def drop_unused_inputs(graph: Graph) -> bool:
    """Have copied calls use nothing in place of what their originals do not use any more; tell whether one did."""
    has_changed = False
    used_in: dict[int, set[Node]] = {}  # by the id of the list of an original's nodes
    for node in graph.nodes:
        copied = copied_call(node)
        if copied is not None:
            used = used_in.get(id(copied.nodes))
            if used is None:
                live = [inner for inner in copied.nodes if not inner._erased]
                used = used_in[id(copied.nodes)] = {each for inner in live for each in inner.all_input_nodes}
            kept = [pair for pair in instead_of(node).items() if pair[0] in used]
            if len(kept) < len(node._args[0]):
                node.args = (tuple([old for old, _ in kept]), tuple([new for _, new in kept]))
                has_changed = True
    return has_changed


def write_out(graph: Graph) -> dict[Node, Node]:
    """Write out all copied calls of a graph; give the node that is now the last of each, for the nodes that go."""
    last: dict[Node, Node] = {}
    made: dict[Node, Node] = {}
    for node in list(graph.nodes):
        copied = copied_call(node)
        if copied is not None:
            made |= copied.write(node)
            gone = [node, *[item for item in copied.results.values() if item is not node and not item._erased]]
            last |= dict.fromkeys(gone, node.prev)
            for each in reversed(gone):
                graph.erase_node(each)
    if last:
        for scope in scopes_of(graph):
            args, kwargs = scope.passed
            scope.passed = _renamed(args, made), {name: _renamed(value, made) for name, value in kwargs.items()}
            scope.given = _renamed(scope.given, made)
        keep_module_calls(graph)
    return last

"""Which calls of modules each node of a graph is inside of, as keys: `layers.0`, `layers.0@1` for its second call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import Any

from torch import nn

from graphwright.hierarchy.facts import Facts, leaves_of
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import enter_context, exit_context, write_attribute
from graphwright.runtime import is_guard
from graphwright.source import CallSite

Chain = tuple[str, ...]  # from the outermost call inwards, the root left out


_ENDS = frozenset({"placeholder", "output"})


def path_of(key: str) -> str:
    """The path of the module that a key names a call of.

    >>> path_of("layers.0@2"), path_of("layers.0~1")
    ('layers.0', 'layers.0')
    """
    return key.partition("~")[0].partition("@")[0]


def call_in(key: str, number: int) -> str:
    """The key of a call in a body: ways on from a fork are captured one by one, and have calls of one key.

    >>> call_in("layers.0", 0), call_in("layers.0", 3)
    ('layers.0', 'layers.0~3')
    """
    return f"{key}~{number}" if number else key


class Chains:
    """The chains of nodes.

    A node is inside of a call only as far as the module has what the node names. A branch, loop or `with` block is
    inside of the calls that all of it is inside of, and a guard where what it looks at comes from.
    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self._there = {path for path, _ in root.named_modules(remove_duplicate=False)}
        self._paths: dict[tuple[str, str], str | None] = {}
        self._known: dict[tuple[Graph, Chain], dict[Node, Chain]] = {}  # with no flat calls
        self._branching: dict[Graph, dict[Node, list[Graph]]] = {}  # the bodies of branches and loops, by their nodes

    def of(self, graph: Graph, base: Chain, facts: Facts, flat: Collection[str] = ()) -> dict[Node, Chain]:
        """The chain of each node of a graph whose own place is `base`; `flat` are calls that count for nothing."""
        if flat:
            return self._of(graph, base, facts, flat)
        if (graph, base) not in self._known:
            self._known[graph, base] = self._of(graph, base, facts, flat)
        return dict(self._known[graph, base])

    def _of(self, graph: Graph, base: Chain, facts: Facts, flat: Collection[str]) -> dict[Node, Chain]:
        found: dict[Node, Chain] = {}
        whole: dict[Any, Chain] = {}
        branching = self._bodies_in(graph)
        for node in graph.nodes:
            if node._op in _ENDS:
                found[node] = base
                continue
            bodies = branching.get(node, ())
            chain = self._raw(node, bodies, base, flat, whole)
            for body in bodies:
                for inner in body.all_nodes():
                    if inner._op not in _ENDS:
                        chain = _common(chain, self._raw(inner, bodies_of(inner), base, flat, whole))
            if node._target is exit_context and isinstance(node.args[0], Node) and node.args[0] in found:
                entered = node.args[0]
                chain = found[entered] = _common(chain, found[entered])
            if node._op == "call_function" and is_guard(node):
                leaves = [leaf for used in node.all_input_nodes for leaf in leaves_of(used, facts)]
                if all(leaf.op == "placeholder" for leaf in leaves):
                    chain = base
            found[node] = chain
        return found

    def _bodies_in(self, graph: Graph) -> dict[Node, list[Graph]]:
        if graph not in self._branching:
            nodes = graph.nodes if graph.has_bodies else ()
            self._branching[graph] = {node: bodies for node in nodes if (bodies := bodies_of(node))}
        return self._branching[graph]

    def split(self, graph: Graph, facts_of: Callable[[Graph], Facts]) -> set[str]:
        """The calls of which a part is before a branch and another part in it, though the branch is not all theirs.

        So it is where a program forks in a call, and where one side of a branch does something that the module does
        not have. `facts_of` gives the facts of each graph.
        """
        found: set[str] = set()
        self._split(graph, (), frozenset(), found, facts_of)
        return found

    def _split(
        self, graph: Graph, base: Chain, above: frozenset[str], found: set[str], facts_of: Callable[[Graph], Facts]
    ) -> None:
        branching = self._bodies_in(graph)
        if not branching:
            return
        chains = self.of(graph, base, facts_of(graph))
        here = above.union(*[chain[len(base) :] for chain in {*chains.values()}])
        for node, bodies in branching.items():
            chain = chains[node]
            for body in bodies:
                inner = {keys_of(each) for each in body.all_nodes() if each.op not in ("placeholder", "output")}
                found |= {key for keys in inner for key in keys[len(chain) :]} & here
                self._split(body, chain, here, found, facts_of)

    def _raw(
        self, node: Node, bodies: Collection[Graph], base: Chain, flat: Collection[str], whole: dict[Any, Chain]
    ) -> Chain:
        """The chain of a node by itself. `whole` has what is known of those that nodes were recorded in."""
        origin = node._origin
        is_noted = type(origin) is CallSite and (node._meta is None or "nn_module_stack" not in node._meta)
        place = origin.scope if is_noted else keys_of(node)  # a scope is found sooner
        chain = whole.get(place)
        if chain is None:
            keys = keys_of(node) if is_noted else place
            chain = whole[place] = self._as_far_as_whole(self._counted(keys, flat), base)
        if len(chain) > len(base):
            paths = _names_in(node, bodies)
            while len(chain) > len(base) and not self._has_all(paths, path_of(chain[-1])):
                chain = chain[:-1]
        return chain

    def _counted(self, keys: Chain, flat: Collection[str]) -> Chain:
        """The calls that count, of modules that are there: other programs' graphs may name theirs otherwise."""
        return tuple([key for key in keys if key not in flat and path_of(key) in self._there])

    def _as_far_as_whole(self, chain: Chain, base: Chain) -> Chain:
        """A chain, as far as each module of it is inside of the one around it."""
        depth = len(base)
        if chain[:depth] != base:
            return base
        paths = ["" if not depth else path_of(base[-1]), *map(path_of, chain[depth:])]
        while len(paths) > 1 and not all(self.relative(inner, outer) for outer, inner in itertools.pairwise(paths)):
            paths.pop()
        return chain[: depth + len(paths) - 1]

    def _has_all(self, paths: Collection[str], owner: str) -> bool:
        return all(self.relative(path, owner) is not None for path in paths)

    def relative(self, path: str, owner: str) -> str | None:
        """The path of a module or tensor as seen from a module, None where that does not have it."""
        if not owner:
            return path
        if path.startswith(f"{owner}."):
            return path[len(owner) + 1 :]
        if (path, owner) not in self._paths:
            self._paths[path, owner] = relative_path(self.root, path, owner)
        return self._paths[path, owner]


def relative_path(root: nn.Module, path: str, owner: str) -> str | None:
    """Where in a module what another path leads to is, too: modules may have several places.

    >>> root = nn.ModuleDict({"shared": nn.Linear(2, 2), "block": nn.Module()})
    >>> root["block"].inner = root["shared"]
    >>> relative_path(root, "shared.weight", "block"), relative_path(root, "shared", "block")
    ('inner.weight', 'inner')
    """
    try:
        outer = root.get_submodule(owner)
    except AttributeError:
        return None
    atoms = path.split(".")
    for count in range(len(atoms), 0, -1):
        try:
            target = root.get_submodule(".".join(atoms[:count]))
        except AttributeError:
            continue
        places = (name for name, each in outer.named_modules(remove_duplicate=False) if each is target and name)
        place = next(places, None)
        if place is not None:
            return ".".join([place, *atoms[count:]])
    return None


def keys_of(node: Node) -> Chain:
    """The calls that a node was recorded in, whether or not their modules have what it names.

    >>> keys_of(Graph().placeholder("x"))
    ()
    """
    stack = (node._meta or {}).get("nn_module_stack")
    if stack is None:
        scope = getattr(node._origin, "scope", None)
        stack = None if scope is None else scope.module_stack()
    if stack is not None:
        return tuple(stack)
    origin = node.origin
    if origin is None or not origin.stack:
        return ()
    *outer, (last, _) = origin.stack
    return (*[path for path, _ in outer], last if not origin.call else f"{last}@{origin.call}")


def _named(node: Node) -> str | None:
    """The path of the module or tensor that a node names."""
    if node._op in ("call_module", "get_attr"):
        return str(node._target)
    return str(node._args[0]) if node._target is write_attribute else None


def _names_in(node: Node, bodies: Collection[Graph]) -> list[str]:
    """The paths of the modules and tensors that a node names, and those in its bodies."""
    named = [node, *[inner for body in bodies for inner in body.all_nodes()]] if bodies else [node]
    return [path for each in named if (path := _named(each)) is not None]


def _common(one: Chain, other: Chain) -> Chain:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return one[:count]


def contexts_are_whole(members: Collection[Node]) -> bool:
    """Tell whether each `with` block that is entered in a part of a program is left there, too."""
    for node in members:
        if node.target is enter_context and not all(user in members for user in node.users):
            return False
        if node.target is exit_context and node.args[0] not in members:
            return False
    return True

"""Sketches: what the call of a module does, as data that compares before anything is written.

Of two calls with equal sketches the same is written: the graph of the first is that of the second, too, with other
values around it. A model of equal layers so has one of them written, and the others compared.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.hierarchy.chains import Chain, keys_of, path_of
from graphwright.hierarchy.parts import Part, Program
from graphwright.hierarchy.rows import plain
from graphwright.hierarchy.signatures import stem_of
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import write_attribute
from graphwright.runtime import own_class
from graphwright.source import CallSite


class Sketch:
    """`rows` compare; `nodes` are the values in them by number: equal sketches have the same ones at each number."""

    __slots__ = ("nodes", "rows")

    def __init__(self, rows: tuple[Hashable, ...], nodes: tuple[Node, ...]) -> None:
        self.rows, self.nodes = rows, nodes


class Sketches:
    """Makes sketches of the parts of one captured module, of which `modules` are all, by path.

    There are none where a module is in several places: what it has in one call may be another's in the next.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._is_tree = len({*map(id, modules.values())}) == len(modules)
        self._classes = {path: own_class(module) for path, module in modules.items()}
        self._counts = collections.Counter(self._classes.values())
        self._kinds: dict[tuple[int, int], Any] = {}  # by scope and depth; the nodes keep the scopes

    def of(
        self, program: Program, part: Part, outputs: Sequence[Node], noted: Mapping[str, Mapping[str, Any]]
    ) -> Sketch | None:
        """The sketch of a part, None where there is nothing to compare it with, or it cannot be told in one."""
        if not self._is_tree or self._counts[self._classes[path_of(part.key)]] < 2:
            return None
        try:
            return self._sketch(program, part, outputs, noted)
        except _Elsewhere:
            return None

    def _sketch(
        self, program: Program, part: Part, outputs: Sequence[Node], noted: Mapping[str, Mapping[str, Any]]
    ) -> Sketch:
        path, depth, chains, classes = path_of(part.key), len(part.chain), program.chains, self._classes
        prefix, numbers = f"{path}.", _Numbers()
        inner: dict[Chain, Hashable] = {}  # the calls inside that nodes are in, and what is known of these
        rows: list[Hashable] = [program.number, classes[path]]
        for node in part.nodes:
            chain = chains[node][depth:]
            if chain not in inner:
                inner[chain] = tuple([(_seen_from(prefix, key), classes[path_of(key)]) for key in chain])
            row = _row(node, prefix, numbers, chains[node])
            rows.append((*row, stem_of(node), inner[chain], self._kinds_around(node, depth)))
        rows.append((tuple([numbers[node] for node in part.inputs]), tuple([numbers[node] for node in outputs])))
        for node in numbers.met:  # gets longer: what a fact is found by
            rows.append((*(_row(node, prefix, numbers, ()) if node in program.facts else ()), stem_of(node)))
        names: dict[str, Hashable] = {node.name: number for node, number in numbers.items()}
        for key in (part.key, *dict.fromkeys(key for chain in inner for key in chain)):
            known = noted.get(key, {})
            passed = [(name, _told(value, names)) for name, value in known.get("passed", {}).items()]
            rows.append((*passed, _told(known.get("given"), names)))
        return Sketch(tuple(rows), tuple(numbers))

    def _kinds_around(self, node: Node, depth: int) -> Hashable:
        """The classes of the calls that a node is inside of, from a depth on, as the capture knew them."""
        stack: Any = (node._meta or {}).get("nn_module_stack")
        origin = node._origin
        if stack is None and type(origin) is CallSite:
            scope = origin.scope
            known = self._kinds.get((id(scope), depth))
            if known is None:
                stack = scope.module_stack()
                known = self._kinds[id(scope), depth] = tuple([kind for _, kind in stack.values()][depth - 1 :])
            return known
        rows: Iterable[Any] = stack.values() if stack is not None else () if node.origin is None else node.origin.stack
        return tuple([kind for _, kind in rows][depth - 1 :])


class _Numbers(dict[Node, int]):
    """A number for each node, in the order in which they are met; `met` are those that are only used."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[Node] = []

    def __missing__(self, node: Node) -> int:
        number = self[node] = len(self)
        self.met.append(node)
        return number


class _Elsewhere(Exception):
    """A call has something that its module does not have, or calls in a body, which are written apart."""


def _seen_from(prefix: str, path: str) -> str:
    if not path.startswith(prefix):
        raise _Elsewhere
    return path[len(prefix) :]


def _row(node: Node, prefix: str, numbers: dict[Node, int], chain: Chain) -> tuple[Hashable, ...]:
    """What a node does in a call with a chain, as seen from the module with a path. Raises _Elsewhere."""
    target: Any = node._target
    args: Any = node._args
    if node._op in ("get_attr", "call_module"):
        target = _seen_from(prefix, target)
    elif target is write_attribute:
        args = (_seen_from(prefix, args[0]), *args[1:])
    if bodies_of(node):
        args = tuple([_body(arg, prefix, chain) if type(arg) is Graph else arg for arg in args])
    used = plain(args, numbers), plain(node._kwargs, numbers) if node._kwargs else None
    if node not in numbers:
        numbers[node] = len(numbers)
    return (node._op, plain(target, numbers), *used, numbers[node])


def _body(graph: Graph, prefix: str, chain: Chain) -> tuple[Hashable, ...]:
    """The rows of a body. Raises _Elsewhere where it has calls of modules inside of it."""
    numbers: dict[Node, int] = {}
    rows: list[Hashable] = []
    for node in graph.nodes:
        if node._op == "placeholder":
            rows.append("input")
            numbers[node] = len(numbers)
        elif node._op == "output" or keys_of(node) == chain:
            rows.append(_row(node, prefix, numbers, chain))
        else:
            raise _Elsewhere
    return tuple(rows)


def _told(noted: Any, names: dict[str, Hashable]) -> Hashable:
    """What was noted of a value, with numbers for names, those that name nothing here in the order of their own."""
    if isinstance(noted, list):
        return tuple([_told(each, names) for each in noted])
    return names.setdefault(noted, ("elsewhere", len(names))) if isinstance(noted, str) else noted is None

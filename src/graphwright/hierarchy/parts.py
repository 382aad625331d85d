"""A graph in parts: for each call of a module the nodes that are inside of it, what it needs and what it gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from graphwright.hierarchy.chains import Chain, Chains, contexts_are_whole, path_of
from graphwright.hierarchy.facts import Facts, leaves_of
from graphwright.ir import Node


@dataclass
class Program:
    """A graph that is taken apart: the chain of each node, and the facts that are asked for in several calls.

    `places` tells of which modules have what. `number` is that of the graph, and `flat`
    are the calls that are no parts.
    """

    chains: dict[Node, Chain]
    facts: Facts
    places: Chains
    number: int = 0
    flat: frozenset[str] = frozenset()
    is_body: bool = False


@dataclass(eq=False)
class Part:
    """The call of a module: a run of nodes without a gap. `inputs` and `outputs` are values of the graph around."""

    key: str
    chain: Chain
    nodes: list[Node]
    members: set[Node]
    inputs: dict[Node, None] = field(default_factory=dict)
    outputs: dict[Node, None] = field(default_factory=dict)


def parts_of(
    program: Program,
    nodes: Sequence[Node],
    chain: Chain,
    given: Iterable[Node],
    wanted: Sequence[Node],
    passed_to: Callable[[Part], set[str]],
) -> list[Node | Part]:
    """Put the nodes of one call together by the calls inside of it.

    The call is `given` some values, and others are `wanted` of it. What is put together is a run of nodes, so that
    nothing changes its place; of a call whose nodes are in several places the longest run is a part, and the others
    are left to the call around it. `passed_to` tells the names of the values that the source passes to a module.
    """
    items = _runs(program, nodes, chain)
    parts = [item for item in items if isinstance(item, Part)]
    if parts:
        _Borders(program, items, parts, set(given), wanted).find(passed_to)
    return items


def _runs(program: Program, nodes: Sequence[Node], chain: Chain) -> list[Node | Part]:
    depth = len(chain)
    chains = program.chains

    def key_of(node: Node) -> str | None:
        return chains[node][depth] if len(chains[node]) > depth else None

    runs = [(key, list(run)) for key, run in itertools.groupby(nodes, key_of)]
    longest: dict[str, int] = {}
    for i, (key, run) in enumerate(runs):
        if key is not None and (key not in longest or len(run) > len(runs[longest[key]][1])):
            longest[key] = i
    items: list[Node | Part] = []
    for i, (key, run) in enumerate(runs):
        members = set(run)
        if key is not None and longest[key] == i and contexts_are_whole(members):
            items.append(Part(key, (*chain, key), run, members))
            continue
        for node in run:
            chains[node] = chain
        items += run
    return items


class _Borders:
    """Finds what the parts of one call need of each other, and of what is around them."""

    def __init__(
        self, program: Program, items: list[Node | Part], parts: list[Part], given: set[Node], wanted: Sequence[Node]
    ) -> None:
        self._items, self._parts, self._wanted = items, parts, wanted
        self._facts = {fact: used for fact, used in program.facts.items() if fact not in given}
        self._places = program.places
        self._part_of = {node: part for part in parts for node in part.members}
        self._asked: dict[Node, None] = {}  # facts that are needed outside of the parts that they are about

    def find(self, passed_to: Callable[[Part], set[str]]) -> None:
        """Fill in the inputs and outputs of all parts."""
        of_part = {part: self._used_by(part.nodes, part.members) for part in self._parts}
        single = [item for item in self._items if isinstance(item, Node)]
        values, facts = self._used_by(single, set())
        values |= {node: None for node in self._wanted if node not in self._facts}
        facts |= {node: None for node in self._wanted if node in self._facts}
        for node in values:
            self._give(node)
        for part in self._parts:
            part.inputs = of_part[part][0]
            for node in part.inputs:
                self._give(node)
        self._asked |= facts
        for part in self._parts:
            passed = passed_to(part)
            for fact in of_part[part][1]:
                leaves = [leaf for leaf in leaves_of(fact, self._facts) if not self._has(part, leaf)]
                if all(leaf in part.inputs or leaf.name in passed for leaf in leaves):
                    for leaf in leaves:
                        part.inputs[leaf] = None
                        self._give(leaf)
                else:
                    part.inputs[fact] = None
                    self._asked[fact] = None
        for fact in self._asked:
            self._require(fact)

    def _has(self, part: Part, leaf: Node) -> bool:
        """Tell whether a part computes a value, or reads an attribute that its module has."""
        if leaf.op == "get_attr" and leaf in self._facts:
            return self._places.relative(str(leaf.target), path_of(part.key)) is not None
        return leaf in part.members

    def _used_by(self, nodes: Iterable[Node], members: set[Node]) -> tuple[dict[Node, None], dict[Node, None]]:
        """The values, and the facts, that nodes use and are not among them."""
        values: dict[Node, None] = {}
        facts: dict[Node, None] = {}
        for node in nodes:
            for used in node.all_input_nodes:
                if used in self._facts:
                    facts[used] = None
                elif used not in members:
                    values[used] = None
        return values, facts

    def _give(self, node: Node) -> None:
        part = self._part_of.get(node)
        if part is not None:
            part.outputs[node] = None

    def _require(self, fact: Node) -> None:
        """See to it that a fact can be found outside of the parts: by what they give, or as something they give."""
        leaves = leaves_of(fact, self._facts)
        hidden = [self._part_of[leaf] for leaf in leaves if leaf in self._part_of and not self._is_given(leaf)]
        if not hidden:
            return
        if all(self._part_of.get(leaf) is hidden[0] for leaf in leaves):
            hidden[0].outputs[fact] = None
            return
        for used in self._facts[fact]:
            if used in self._facts:
                self._require(used)
            else:
                self._give(used)

    def _is_given(self, node: Node) -> bool:
        return node in self._part_of[node].outputs

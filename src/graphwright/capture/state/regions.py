"""The graphs that a capture writes to: the program's own, and those of the branches that it is inside of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from graphwright.capture.state.symbols import Symbol
from graphwright.ir import ATOMS, Graph, NestedGraph, Node, map_arg

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place


def made_once(make: Callable[[], Node]) -> Callable[[], Node]:
    """Give a node that is made when it is first wanted."""
    made: list[Node] = []

    def get() -> Node:
        if not made or made[-1]._erased:  # what came after a fork has gone into the branch
            made.append(make())
        return made[-1]

    return get


UNTOLD = object()  # what only the side of a branch has


class Side(Protocol):
    """A side of a branch that was captured: its graph, and what is known there."""

    region: Region
    facts: dict[Any, bool]


class Region(NestedGraph):
    """One graph that a capture writes, and what holds in it."""

    outer: Region | None

    def __init__(
        self,
        outer: Region | None = None,
        frame: FrameType | None = None,
        place: Place | None = None,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(outer, graph)
        self.frame = frame  # the frame that runs the branch
        self.place = place  # what the plan knows the branch by
        self.is_loop = False
        self.flags: set[Node] = set()  # inputs that tell how a loop is left
        self.reads_early = False  # whether an item of a list is read there before the list is known to have any
        self.plain_way: Any = None  # how a loop can be run plainly, as the plan knows it
        self.is_taken: bool | None = True  # whether the example comes here; None where that is not known
        self.transform = ""  # the function of torch that the body is given to
        self.is_data = True  # whether data decides the branch
        # What holds here, by what it is about: the side of a branch knows more than what is around it.
        self.known: dict[Any, bool] = {} if outer is None else outer.known
        # What branches have given: what must not be known where it is that of a side, and that, for both sides.
        self.given: dict[Node, tuple[Any, ...]] = {} if outer is None else outer.given
        self.decided: dict[Any, None] = {} if outer is None else outer.decided  # what that was known of
        self.attributes: dict[Any, Node] = {}  # by path; by id of a tensor, for the node that reads its device
        self.numbers: dict[Symbol, Node] = {}

    def all(self) -> Iterator[Region]:
        """Iterate over this region and those around it."""
        region: Region | None = self
        while region is not None:
            yield region
            region = region.outer

    def note_given(self, nodes: Sequence[Node], sides: Sequence[Side], results: Sequence[Sequence[Any]]) -> None:
        """Note what a branch gives on its sides, where the graph around has that as well, and what is known on each."""
        found: list[Any] = [nodes]
        for side, values in zip(sides, results, strict=True):
            lifted, told, denied = side.region.lifted, [], set()
            outside = dict(zip(lifted.values(), lifted, strict=True))
            for value in values:
                told.append(outside.get(value, UNTOLD) if type(value) is Node else value)
            for key, truth in side.facts.items():
                denied.add((key, not truth))
                self.decided[key] = None
            found += [frozenset(denied)] * len(values), told
        for node, *given in zip(*found, strict=True):
            self.given[node] = tuple(given)

    def settled(self, node: Node) -> Any:
        """What a value is here: that of the side, where it is known which side of a branch has given it."""
        value: Any = node
        while type(value) is Node and value in self.given:
            denies_one, one, denies_other, other = self.given[value]
            known = self.known.items()
            side = one if not denies_other.isdisjoint(known) else other if not denies_one.isdisjoint(known) else UNTOLD
            if side is UNTOLD:
                break
            value = side
        return value

    def settled_in(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Some arguments with what each value in them is here."""
        found, given = [], self.given
        for item in arguments:
            if type(item) is Node:
                item = self.settled(item) if item in given else item
            elif type(item) not in ATOMS:
                item = map_arg(item, self.settled)
            found.append(item)
        return tuple(found)

    def is_in_loop(self) -> bool:
        """Tell whether this is the body of a loop, or inside one."""
        return any(region.is_loop for region in self.all())

    def note_early_read(self) -> bool:
        """Note that an item of a list is read before that is known to have any; False where no loop can fill it."""
        loop = next((region for region in self.all() if region.is_loop), None)
        if loop is not None:
            loop.reads_early = True
        return loop is not None

    def number(self, symbol: Symbol) -> Node | None:
        """The node that computes a number, here or in a region around."""
        region: Region | None = self
        while region is not None:
            node = region.numbers.get(symbol)
            if node is not None:
                return node
            region = region.outer
        return None


class _Writer(Protocol):
    region: Region


class Writing:
    """While it is entered, a capture writes to a region; then again to the one that it wrote to before."""

    __slots__ = ("_before", "_capture", "_region")

    def __init__(self, capture: _Writer, region: Region) -> None:
        self._capture, self._region = capture, region

    def __enter__(self) -> Region:
        self._before = self._capture.region
        self._capture.region = self._region
        return self._region

    def __exit__(self, *error: object) -> None:
        self._capture.region = self._before
        if self._region.outer is self._before:  # it is written; its frame would keep alive what it has
            self._region.frame = None

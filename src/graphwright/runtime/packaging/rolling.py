"""Equal calls of the modules of a list as a loop over the list, in the copy of a graph that is written to a file."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import for_loop, write_attribute
from graphwright.runtime.guards import expect_outside
from graphwright.runtime.premises.names import own_class

_FEWEST = 3  # calls that are written as a loop
_LISTS = (nn.ModuleList, nn.Sequential)
_INDEX = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")


def copied_graph(graph: Graph) -> Graph:
    """A copy of a graph, to be changed and written to a file: without guards of the process it was captured in.

    >>> graph = Graph()
    >>> _ = graph.output(graph.placeholder("x"))
    >>> str(copied_graph(graph)) == str(graph)
    True
    """
    copied = Graph()
    result = copied.graph_copy(graph, {}, return_output_node=True)
    assert isinstance(result, tuple)
    value, output = result
    copied.output(value, output.type)._origin = output._origin
    copied.constants = graph.constants
    for each in copied.all_graphs():
        for node in each.find_nodes(op="call_function", target=expect_outside):
            each.erase_node(node)
    return copied


def roll(graph: Graph, owner: nn.Module) -> int:
    """Write what a graph does with the modules of a list, one after the other, as loops. Return how many there are.

    A loop has the nodes of the first module: what they take of the nodes before it is carried from one to the next,
    and all else is the same for all.

    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> for i in range(4):
    ...     x = graph.call_module(f"layers.{i}", (x,))
    >>> _ = graph.output(x)
    >>> roll(graph, nn.ModuleDict({"layers": nn.ModuleList(nn.ReLU() for _ in range(4))}))
    1
    >>> [node.name for node in graph.nodes]
    ['x', 'layers', 'for_loop', 'layers_0', 'output']
    """
    count = 0
    for each in list(graph.all_graphs()):
        while (run := next(_runs(each, owner), None)) is not None:
            _write(each, run, owner)
            count += 1
    return count


def loops_over(modules: Node) -> Iterator[tuple[slice, Node]]:
    """The loops over a list that a node reads: of each the part of the list that it goes over, and the item."""
    for user in modules.users:
        if user.target is for_loop and user.args[0] is modules:
            yield slice(None), next(iter(user.args[1].nodes))
        elif user.target is operator.getitem and isinstance(user.args[1], slice):
            yield from ((user.args[1], item) for _, item in loops_over(user))


@dataclass(frozen=True)
class _Run:
    """What is done with the modules number `start` and following of the list at a path, a segment of nodes for each."""

    path: str
    start: int
    segments: list[list[Node]]


def _runs(graph: Graph, owner: nn.Module) -> Iterator[_Run]:
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    firsts: dict[str, dict[int, int]] = {}  # where each module of each list is mentioned first, by its number
    for place, node in enumerate(nodes):
        for path, number in _mentioned(node):
            firsts.setdefault(path, {}).setdefault(number, place)
    for path, places in firsts.items():
        if len(places) >= _FEWEST and _is_list(owner, path):
            yield from _runs_over(path, places, nodes)


def _mentioned(node: Node) -> Iterator[tuple[str, int]]:
    """The lists, and the numbers in them, that the path of a node leads through."""
    if node.op in ("call_module", "get_attr"):
        path = str(node.target)
        for found in _INDEX.finditer(path):
            yield path[: max(found.start() - 1, 0)], int(found.group())


def _is_list(owner: nn.Module, path: str) -> bool:
    module: Any = owner
    for atom in path.split(".") if path else ():
        module = module._modules.get(atom)
        if module is None:
            return False
    return bool(path) and own_class(module) in _LISTS and list(module._modules) == [str(i) for i in range(len(module))]


def _runs_over(path: str, places: Mapping[int, int], nodes: Sequence[Node]) -> Iterator[_Run]:
    start = 0
    while start < max(places):
        run = _longest(path, start, places, nodes)
        if len(run.segments) >= _FEWEST:
            yield run
        start += max(len(run.segments), 1)


def _longest(path: str, start: int, places: Mapping[int, int], nodes: Sequence[Node]) -> _Run:
    """The segments from a module on that do the same."""
    segments: list[list[Node]] = []
    length = places[start + 1] - places[start] if start in places and start + 1 in places else 0  # some are left out
    number = start
    while length > 0 and places.get(number) == places[start] + length * (number - start):
        segment = list(nodes[places[number] : places[number] + length])
        if len(segment) < length or (segments and not _Alike(path, number, segments, segment).holds()):
            break
        segments.append(segment)
        number += 1
    while len(segments) >= _FEWEST and not _is_apart(segments):
        segments.pop()
    return _Run(path, start, segments)


def _is_apart(segments: list[list[Node]]) -> bool:
    """Tell whether values of a segment are used by the next one alone, and of the last what such a one would use."""
    place = {node: (number, i) for number, segment in enumerate(segments) for i, node in enumerate(segment)}
    taken: set[int] = set()
    for node, (number, i) in place.items():
        for user in node.users:
            if user not in place and number < len(segments) - 1:
                return False
            if user in place and place[user][0] > number:
                taken.add(i)
    return all(i in taken or all(user in place for user in node.users) for i, node in enumerate(segments[-1]))


class _Alike:
    """Compares a segment with the one before it."""

    def __init__(self, path: str, number: int, before: list[list[Node]], segment: list[Node]) -> None:
        self._path, self._number = path, number
        self._one, self._other = before[-1], segment
        self._places = [{node: i for i, node in enumerate(each)} for each in (*before[-2:], segment)]
        self._inside = {node for each in before for node in each}

    def holds(self) -> bool:
        """Tell whether it does the same with the next module, for what it takes of the segment before."""
        return all(map(self._is_alike, self._one, self._other))

    def _is_alike(self, one: Node, other: Node) -> bool:
        if one.op != other.op or not self._has_same_target(one, other) or one.target is write_attribute:
            return False
        return self._is_same(one.args, other.args) and self._is_same(one.kwargs, other.kwargs)

    def _has_same_target(self, one: Node, other: Node) -> bool:
        if one.op in ("call_module", "get_attr"):
            inside = _inside(str(one.target), self._path, self._number - 1)
            if inside is not None:
                is_named = all(atom.isidentifier() for atom in inside)
                return is_named and inside == _inside(str(other.target), self._path, self._number)
        return bool(one.target == other.target)

    def _is_same(self, one: Any, other: Any) -> bool:
        if isinstance(other, Node):
            *earlier, before, own = self._places
            if other in own:
                return before.get(one) == own[other] if isinstance(one, Node) else False
            if other in before and earlier:
                return earlier[0].get(one) == before[other] if isinstance(one, Node) else False
            if other in before:  # the first one has instead what comes before the loop
                return one not in before if isinstance(one, Node) else _is_atom(one)
            return one is other and other not in self._inside
        if type(one) is not type(other) or isinstance(one, Graph):
            return False
        if isinstance(one, tuple | list):
            return len(one) == len(other) and all(map(self._is_same, one, other))
        if isinstance(one, dict):
            return list(one) == list(other) and all(self._is_same(one[key], other[key]) for key in one)
        if isinstance(one, slice):
            return self._is_same((one.start, one.stop, one.step), (other.start, other.stop, other.step))
        if isinstance(one, float | complex):
            return repr(one) == repr(other)
        return one is other or bool(_is_atom(one) and one == other)


def _is_atom(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _inside(path: str, of_list: str, number: int) -> list[str] | None:
    """The rest of a path behind the module of that number of a list; None for other paths."""
    *above, inside = path.rpartition(f"{of_list}.{number}")
    if not above[1] or above[0] or inside[:1] not in ("", "."):
        return None
    return inside.split(".")[1:]


# ---- the loop


def _write(graph: Graph, run: _Run, owner: nn.Module) -> None:
    """Put a loop in the place of the nodes of a run."""
    first, last = run.segments[0], run.segments[-1]
    body = _Body(run, owner)
    size = len(owner.get_submodule(run.path)._modules)
    end = run.start + len(run.segments)
    with graph.inserting_before(first[0]):
        modules = graph.create_node("get_attr", run.path, (), {}, run.path.rpartition(".")[2])
        if run.start or end < size:
            bounds = slice(run.start or None, end if end < size else None)
            modules = graph.call_function(operator.getitem, (modules, bounds))
        arguments = (modules, body.graph, tuple(body.initial.values()), tuple(body.operands))
        loop = graph.call_function(for_loop, arguments)
        results = [graph.call_function(operator.getitem, (loop, number)) for number in range(len(body.initial))]
    inside, names = set(last), []
    for (place, _), made in zip(body.initial, results, strict=True):
        names.append(first[place].name)
        for user in list(last[place].users):
            if user not in inside:
                user.replace_input_with(last[place], made)
    for segment in reversed(run.segments):
        for node in reversed(segment):
            graph.erase_node(node)
    for made, name in zip(results, names, strict=True):
        if made.users:
            made.name = name
        else:
            graph.erase_node(made)


class _Body:
    """The body of the loop for a run: the nodes of its first segment.

    `initial` are the values that the loop begins with, by the place in a segment of the node that gives the next ones;
    `operands` what is the same for all.
    """

    def __init__(self, run: _Run, owner: nn.Module) -> None:
        self._run = run
        self._first, self._second, *_ = run.segments
        self._places = {node: i for i, node in enumerate(self._first)}
        self.initial: dict[tuple[int, Any], Any] = {}
        self.operands: dict[Node, None] = {}
        for one, other in zip(self._first, self._second, strict=True):
            self._map(one.args, other.args, self._find)
            self._map(one.kwargs, other.kwargs, self._find)
        self.graph = Graph()
        self._item = self.graph.placeholder(_singular(run.path, owner))
        names = [_stem(self._first[place].name) for place, _ in self.initial]
        self._inputs = {key: self.graph.placeholder(name) for key, name in zip(self.initial, names, strict=True)}
        self._values: dict[Node, Node] = {node: self.graph.placeholder(node.name) for node in self.operands}
        for one, other in zip(self._first, self._second, strict=True):
            self._values[one] = self._copied(one, other)
        self.graph.output(tuple([self._values[self._first[place]] for place, _ in self.initial]))

    def _find(self, one: Any, other: Any) -> Any:
        if isinstance(other, Node) and other in self._places:
            self.initial.setdefault(self._key(one, other), one)
        elif isinstance(one, Node) and one not in self._places:
            self.operands[one] = None

    def _key(self, one: Any, other: Node) -> tuple[int, Any]:
        return self._places[other], one if isinstance(one, Node) else repr(one)

    def _value(self, one: Any, other: Any) -> Any:
        """What a node of the body takes, by what the nodes of the first and of the second segment take."""
        if isinstance(other, Node) and other in self._places:
            return self._inputs[self._key(one, other)]
        return self._values[one] if isinstance(one, Node) else one

    def _map(self, one: Any, other: Any, leaf: Callable[[Any, Any], Any]) -> Any:
        if isinstance(one, tuple) and hasattr(one, "_fields"):
            return type(one)(*[self._map(*pair, leaf) for pair in zip(one, other, strict=True)])
        if isinstance(one, tuple | list):
            return type(one)([self._map(*pair, leaf) for pair in zip(one, other, strict=True)])
        if isinstance(one, dict):
            return {key: self._map(one[key], other[key], leaf) for key in one}
        if isinstance(one, slice):
            parts = ((one.start, other.start), (one.stop, other.stop), (one.step, other.step))
            return slice(*[self._map(*pair, leaf) for pair in parts])
        return leaf(one, other)

    def _copied(self, one: Node, other: Node) -> Node:
        args = self._map(one.args, other.args, self._value)
        kwargs = self._map(one.kwargs, other.kwargs, self._value)
        path = None
        if one.op in ("call_module", "get_attr"):
            path = _inside(str(one.target), self._run.path, self._run.start)
        if path is None:
            made = self.graph.create_node(one.op, one.target, args, kwargs, one.name, one.type)
        else:
            made = self._item
            *path, name = [*path, ""] if one.op == "get_attr" else path or ["__call__"]
            for atom in path:
                made = self.graph.call_function(getattr, (made, atom))
                made._origin = one._origin
            if one.op == "call_module":
                made = self.graph.create_node("call_method", name, (made, *args), kwargs, one.name, one.type)
        if made is not self._item:
            made._origin = one._origin
        return made


def _singular(path: str, owner: nn.Module) -> str:
    """A name for one of the modules of a list: `layer` of `layers`, else the last word of their class."""
    name = path.rpartition(".")[2]
    if name.endswith("s") and len(name) > 2 and not name.endswith("ss"):
        return name[:-1]
    words = re.findall(r"[A-Z][a-z]+", own_class(owner.get_submodule(f"{path}.0")).__name__)
    return words[-1].lower() if words else "module"


def _stem(name: str) -> str:
    """A name without its number."""
    return re.sub(r"(?<=[^_0-9])_\d+$", "", name)

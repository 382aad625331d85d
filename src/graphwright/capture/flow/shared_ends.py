"""What both sides of a fork do, once: after it, or between branches on what they do apart.

Where the sides of a branch cannot be joined, what follows is captured for each of them: the rest of the function, or of
the program. Most of it is the same again as soon as the values that the sides gave have become alike, two tensors of
one dtype and rank. It is taken out of both ways, and the branch gives those values:

    if flat: y = x.reshape(-1)          if flat: y = x.reshape(-1)
             z = y.view(2, 8)                    z = y.view(2, 8)
             return layer(z)            else:    z = x.view(2, 8)
    else:    z = x.view(2, 8)           return layer(z)
             return layer(z)

Where they do something apart once more, there is one more branch. Each way does what it did, in its order. What is the
same is so by the place in the user's program, too: sides that the user wrote alike stay as they are.
"""

from __future__ import annotations

import collections
import difflib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from graphwright.capture.state.tensor_proxy import Noted
from graphwright.ir import ATOMS, Argument, Graph, NestedGraph, Node, bodies_of, map_arg, nodes_in
from graphwright.ops import cond, exit_context, write_branch
from graphwright.runtime import is_fork, mark_fork
from graphwright.source import is_returned

_HAS_REST = "has rest"  # in the meta of a branch: each side has what follows it
_COMPARED = frozenset({*ATOMS, torch.dtype, torch.device, torch.layout, torch.memory_format, range})
_FLAGS = frozenset({
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.is_, operator.is_not,
    operator.not_, bool,
})  # fmt: skip
_LEAST, _LONG = 5, 20  # what is the same between two differences comes once if it is so long, a layer if all is long
_MOST_COMPARED = 1_000_000  # pairs of operations of one form that are looked at, for what is the same between others


def mark_rest(branch: Node) -> None:
    """Note that each side of a branch has what follows it: the rest of the function, or of the program."""
    branch._meta = {**(branch._meta or {}), _HAS_REST: True}


def share_ends(graph: Graph) -> None:
    """Have what both sides of such branches do come after them, or between branches, in a graph and all inside."""
    for node in graph._nodes_now():
        for body in bodies_of(node):
            if node.target is cond:
                for inside, operand in zip(body.placeholders(), node.args[3], strict=True):
                    inside.type = operand.type if type(operand.type) is Noted else inside.type
            share_ends(body)
        if node._meta is not None and node._meta.pop(_HAS_REST, False):
            node._meta = node._meta or None
            _share(node)


def forget_tensors(graph: Graph) -> None:
    """Have the nodes of a graph, and of all inside, have their types again."""
    for node in graph.all_nodes():
        if type(node.type) is Noted:
            node.type = node.type.annotation if node.graph is graph else None


class _Same(NamedTuple):
    """What both sides do: an operation of each, and what the one reads where the other reads something."""

    one: Node
    other: Node
    read: list[tuple[Node, Node]]


class _Apart(NamedTuple):
    """What the sides do in between, each in its way."""

    one: list[Node]
    other: list[Node]


Parts: TypeAlias = list[list[_Same] | _Apart]
Pair: TypeAlias = tuple[Node | None, Node | None]  # of values of the sides; None where the other side alone has one


def _share(branch: Node) -> None:
    """Write a branch whose sides have all that follows anew, if they do anything that can come once."""
    pred, one, other, _ = branch.args
    alike = _alike(_operations(one), _operations(other))
    same = [_Same(a, b, [*zip(_read(a), _read(b), strict=True)]) for a, b in alike]
    may_be_none = isinstance(pred, Node) and pred.target is operator.is_  # what a call finds set, whatever its inputs
    inputs = dict(zip(*[body.placeholders() for body in (one, other)], strict=True))
    while any(step.one.op != "output" for step in same):
        parts = _parts(same, one, other)
        wrong = _not_to_share(parts, inputs, may_be_none)
        if not wrong:
            return _Writing(branch, parts, inputs).write()
        same = [step for step in same if step.one not in wrong]
    return None


# ---- what is the same


def _alike(one: list[Node], other: list[Node]) -> list[tuple[Node, Node]]:
    """Pairs of operations that are written alike, at the same places of the program, in the order of both sides."""
    mine, its = [[_form(node) for node in nodes] for nodes in (one, other)]
    most = min(len(mine), len(its))
    start = next((i for i in range(most) if mine[i] != its[i]), most)
    most -= start
    end = next((i for i in range(most) if mine[-1 - i] != its[-1 - i]), most)
    pairs = [*zip(one[:start], other[:start], strict=True)]
    mine, its = mine[start : len(mine) - end], its[start : len(its) - end]
    counts = collections.Counter(mine)
    if sum(counts[form] for form in its) < _MOST_COMPARED:
        for i, j, size in difflib.SequenceMatcher(None, mine, its, autojunk=False).get_matching_blocks():
            pairs += zip(one[start + i :][:size], other[start + j :][:size], strict=True)
    return [*pairs, *zip(one[len(one) - end :], other[len(other) - end :], strict=True)]


def _form(node: Node, numbers: Mapping[Node, int] | None = None) -> Any:
    """What a node does, and at which place of the program, whatever values it does it with; inside, with which."""
    if node.op == "placeholder":
        return node.op

    def form(value: Argument) -> Any:
        kind: Any = type(value)
        if isinstance(value, Node):
            return kind if numbers is None else (kind, numbers[value])
        if isinstance(value, tuple | list):
            return kind, *map(form, value)
        if isinstance(value, dict):
            return kind, *value, *map(form, value.values())
        if isinstance(value, slice):
            return kind, *map(form, (value.start, value.stop, value.step))
        if isinstance(value, Graph):
            inside = {each: number for number, each in enumerate(value.nodes)}
            return kind, *[_form(each, inside) for each in inside]
        if isinstance(value, float | complex):  # of zeros, the sign tells
            return kind, repr(value)
        return kind, value if kind in _COMPARED else id(value)

    target = node.target if isinstance(node.target, str) else id(node.target)
    origin = node.origin
    place = origin and (origin.file, origin.line, origin.column, origin.module)
    return node.op, target, place, form(node.args), form(node.kwargs)


def _parts(same: list[_Same], one: Graph, other: Graph) -> Parts:
    """Both sides as one: apart at first, then the same and apart by turns."""
    parts: Parts = []
    mine, its = collections.deque(_operations(one)), collections.deque(_operations(other))
    for step in (*same, None):
        apart = _Apart([], [])
        for nodes, found, end in ((mine, apart.one, step and step.one), (its, apart.other, step and step.other)):
            while nodes and nodes[0] is not end:
                found.append(nodes.popleft())
            if nodes:
                nodes.popleft()
        if apart.one or apart.other or not parts:
            parts.append(apart)
        if step is not None:
            last = parts[-1]
            if isinstance(last, _Apart):
                parts.append([step])
            else:
                last.append(step)
    return parts


def _not_to_share(parts: Parts, inputs: Mapping[Node, Node], may_be_none: bool) -> set[Node]:
    """Of what both sides do, that which has to be done apart: its operations of the one side.

    A branch that comes before them gives None for what the other side does not have, if that is an attribute, or any
    value if it `may_be_none`.
    """
    place: dict[Node, float] = {**_places(parts)}
    apart: set[float] = {number for number, part in enumerate(parts) if isinstance(part, _Apart)}
    partner = _partners(parts, inputs)
    wrong: set[Node] = set()
    opened = [0] * (len(parts) + 1)  # by part: how many spans that stay together begin there, less those that end

    def stay_together(first: int, last: int) -> None:
        opened[first] += 1
        opened[last + 1] -= 1

    for node, number in _places(parts).items():
        entered = int(place.get(node.args[0], number)) if node.target is exit_context else number
        if entered != number and not apart.isdisjoint((entered, number)):  # one `with` encloses what is done in it
            stay_together(entered, number)
    is_long = sum(len(part) for part in parts if not isinstance(part, _Apart)) >= _LONG
    for number, part in enumerate(parts):
        if isinstance(part, _Apart):
            for read in _all_read((*part.one, *part.other)):
                made = place.get(read, number)
                if made < number and made in apart and not may_be_none and not _is_attribute(read):
                    stay_together(int(made), number)
            continue
        for i, step in enumerate(part, 1):
            if any(partner.get(a) is not b and not _can_join(a, b, place, apart) for a, b in step.read):
                wrong.add(step.one)
                del partner[step.one]
                place[step.one] = place[step.other] = where = number + i / (len(part) + 1)
                apart.add(where)
        is_between = number < len(parts) - 1 and (number > 1 or any(parts[0]))
        if is_between and len(part) < _LEAST and not (is_long and any(step.one.op == "call_module" for step in part)):
            wrong.update(step.one for step in part)
    for part, around in zip(parts, itertools.accumulate(opened), strict=False):
        if around and not isinstance(part, _Apart):
            wrong.update(step.one for step in part)
    return wrong


def _can_join(a: Node, b: Node, place: Mapping[Node, float], apart: set[float]) -> bool:
    """Whether a branch may give either of two values: tensors of one kind, or what one operation gives."""
    made = place.get(a, -1), place.get(b, -1)
    last = max(0, *made)
    if last not in apart or any(each in apart and each != last for each in made):
        return False  # there is no branch that has both
    kinds = [node.type.kind if type(node.type) is Noted else () for node in (a, b)]
    return kinds[0] == kinds[1] is not None and (kinds[0] != () or (a.op, a.target) == (b.op, b.target))


def _is_attribute(node: Node) -> bool:
    return node.op == "get_attr" or node.target is getattr


def _places(parts: Parts) -> dict[Node, int]:
    """In which part each operation is."""
    place = {}
    for number, part in enumerate(parts):
        nodes = [*part.one, *part.other] if isinstance(part, _Apart) else [node for step in part for node in step[:2]]
        place.update(dict.fromkeys(nodes, number))
    return place


def _partners(parts: Parts, inputs: Mapping[Node, Node]) -> dict[Node, Node]:
    """For the values of the one side that the other side has, too: what they are there."""
    return {**inputs, **{step.one: step.other for part in parts if not isinstance(part, _Apart) for step in part}}


# ---- writing it


class _Writing:
    """Writes, in the place of a branch whose sides have all that follows, what they share and branches in between."""

    def __init__(self, branch: Node, parts: Parts, inputs: Mapping[Node, Node]) -> None:
        self._branch, self._graph, self._parts, self._inputs = branch, branch.graph, parts, inputs
        self._pred, operands = branch.args[0], branch.args[3]
        self._readers = list(branch.users)
        gives_tuples = all(type(body.output_node().args[0]) is tuple for body in branch.args[1:3])
        self._gives_items = gives_tuples and all(user.target is operator.getitem for user in self._readers)
        mine, its = zip(inputs, operands, strict=True), zip(inputs.values(), operands, strict=True)
        self._known: tuple[dict[Node, Node], ...] = dict(mine), dict(its)  # by side: what its values are outside
        self._joined: dict[Pair, Node] = {}  # what a branch gives for a value of each side

    def write(self) -> None:
        """Write all; what reads the branch reads what comes of it."""
        result: Any = None
        end: Node | None = None
        with self._graph.inserting_before(self._branch):
            if sum(bool(part.one or part.other) for part in self._parts if isinstance(part, _Apart)) > 1:
                self._pred = self._lasting()
            for part, wanted in zip(self._parts, self._wanted(), strict=True):
                if isinstance(part, _Apart):
                    result = self._branch_on(part, [*wanted])
                    continue
                for step in part:
                    if step.one.op == "output":
                        end, result = step.one, map_arg(step.one.args[0], self._reading(step))
                    else:
                        made = self._graph.node_copy(step.one, self._reading(step))
                        self._known[0][step.one] = self._known[1][step.other] = made
        self._hand_out(result)
        last = self._branch.prev
        returned = last if result is last and is_returned(last) else end if is_fork(self._branch) else None
        for reader in self._readers if returned is not None else ():
            if reader.op == "output":
                reader._origin = returned._origin  # type: ignore[union-attr]
        self._graph.erase_node(self._branch)

    def _wanted(self) -> list[dict[Pair, None]]:
        """By part: the values that the branch there has to give."""
        place, partner = _places(self._parts), _partners(self._parts, self._inputs)
        wanted: list[dict[Pair, None]] = [{} for _ in self._parts]
        for number, part in enumerate(self._parts):
            if not isinstance(part, _Apart):
                for a, b in [pair for step in part for pair in step.read if partner.get(pair[0]) is not pair[1]]:
                    wanted[max(place.get(a, 0), place.get(b, 0))][a, b] = None
                continue
            for side, nodes in enumerate(part):
                for read in _all_read(nodes):
                    made = place.get(read, number)
                    if made < number and isinstance(self._parts[made], _Apart):
                        wanted[made][(None, read) if side else (read, None)] = None
        for pairs in wanted:  # what is joined is there for its own side
            joined = {node for pair in pairs if None not in pair for node in pair}
            for pair in [pair for pair in pairs if None in pair and not joined.isdisjoint(pair)]:
                del pairs[pair]
        return wanted

    def _lasting(self) -> Argument:
        """What decides, as it is now: a tensor or container may be written to before it is asked again."""
        pred = self._branch.args[0]
        if not isinstance(pred, Node):
            return pred
        if pred.target in _FLAGS and (type(pred.type) is not Noted or len(pred.users) == 1):
            return pred
        return self._make(bool, (pred,), "")

    def _reading(self, step: _Same) -> Callable[[Node], Node]:
        """The values that an operation of both sides reads, one after the other."""
        read = iter(step.read)

        def value(node: Node) -> Node:
            pair = next(read)
            return self._joined[pair] if pair in self._joined else self._known[0][node]

        return value

    def _branch_on(self, part: _Apart, wanted: list[Pair]) -> Any:
        """Write a branch on what the sides do apart; return what the program gives where this is its end."""
        outer, origin = NestedGraph(None, self._graph), self._branch._origin
        sides = [_Side(NestedGraph(outer), known, nodes) for known, nodes in zip(self._known, part, strict=True)]
        results = [[side.value(pair[number]) for pair in wanted] for number, side in enumerate(sides)]
        for side, result in zip(sides, results, strict=True):
            if side.end is not None:
                given = map_arg(side.end.args[0], side.value)
                result += given if self._gives_items else [given]
        names = [node.name for pair in wanted for node in [pair[0] or pair[1]] if node is not None]
        names += [self._branch.name] * (len(results[0]) - len(wanted))
        nested = [side.nested for side in sides]
        origins = [origin if side.end is None else side.end._origin for side in sides]
        made = write_branch(self._make, self._pred, nested, results, names, origins, "cond")
        for pair, node in zip(wanted, made, strict=False):
            for known, value in zip(self._known, pair, strict=True):
                if value is not None and (value in part.one or value in part.other):
                    known[value] = node
            if pair[0] is not None and pair[1] is not None:
                self._joined[pair], node.type = node, pair[0].type
        last = made[len(wanted) :]
        if last and is_fork(self._branch):
            mark_fork(last[0] if last[0].target is cond else last[0].all_input_nodes[0])
        return tuple(last) if self._gives_items else last[0] if last else None

    def _make(self, function: Callable[..., Any], args: tuple[Any, ...], name: str) -> Node:
        made = self._graph.call_function(function, args, name=name or None)
        made._origin = self._branch._origin
        return made

    def _hand_out(self, result: Any) -> None:
        """Give those who read the branch what it gave."""

        def replaced(node: Node, value: Any) -> Callable[[Node], Any]:
            return lambda read: value if read is node else read

        for reader in self._readers:
            node, value = (reader, result[reader.args[1]]) if self._gives_items else (self._branch, result)
            for user in list(reader.users) if self._gives_items else [reader]:
                found = replaced(node, value)
                user.args, user.kwargs = map_arg(user.args, found), map_arg(user.kwargs, found)
            if self._gives_items:
                self._graph.erase_node(reader)


class _Side:
    """What one side does apart, in a graph of its own; `end` is the output, where it goes so far."""

    def __init__(self, nested: NestedGraph, known: Mapping[Node, Node], nodes: Sequence[Node]) -> None:
        self.nested, self._known = nested, known
        self._inside: dict[Node, Node] = {}
        self.end: Node | None = None
        for node in nodes:
            if node.op == "output":
                self.end = node
            else:
                self._inside[node] = nested.graph.node_copy(node, self.value)

    def value(self, node: Node | None) -> Node | None:
        """A value of this side, in its graph; None for one that it does not have."""
        if node is None:
            return None
        return self._inside[node] if node in self._inside else self.nested.lift(self._known[node])


def _operations(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op != "placeholder"]


def _read(node: Node) -> list[Node]:
    return [*nodes_in(node.args), *nodes_in(node.kwargs)]


def _all_read(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield from node.all_input_nodes

"""What both ways of a fork do in the end, once, after it.

Where the sides of a branch cannot be joined, what follows is captured for each of them: the rest of the function, or of
the program. Most of it is the same again as soon as the values that the sides gave have become alike, two tensors of
one dtype and rank. From there on, it is taken out of both ways and comes after the branch, which gives those values:

    if flat: y = x.reshape(-1)          if flat: y = x.reshape(-1)
             z = y.view(2, 8)                    z = y.view(2, 8)
             return layer(z)            else:    z = x.view(2, 8)
    else:    z = x.view(2, 8)           return layer(z)
             return layer(z)

Each way does what it did, in its order. What is the same is so by the place in the user's program, too: sides that the
user wrote alike stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from graphwright.capture.state.tensor_proxy import Noted
from graphwright.ir import ATOMS, Graph, Node, bodies_of, map_arg, nodes_in
from graphwright.ops import cond
from graphwright.runtime import is_fork, mark_fork
from graphwright.source import is_returned

_COMPARED = frozenset({*ATOMS, torch.dtype, torch.device, torch.layout, torch.memory_format, range})
_HAS_REST = "has rest"  # in the meta of a branch: each side has what follows it


def mark_rest(branch: Node) -> None:
    """Note that each side of a branch has what follows it: the rest of the function, or of the program."""
    branch._meta = {**(branch._meta or {}), _HAS_REST: True}


def share_ends(graph: Graph) -> None:
    """Have what both sides of such branches do in the end come after them, in a graph and all inside."""
    for node in graph._nodes_now():
        for body in bodies_of(node):
            if node.target is cond:
                for inside, operand in zip(_inputs(body), node.args[3], strict=True):
                    inside.type = operand.type if type(operand.type) is Noted else inside.type
            share_ends(body)
        if node._meta is not None and node._meta.pop(_HAS_REST, False):
            if _share_end(node):
                mark_fork(node, False)
            node._meta = node._meta or None


def forget_tensors(graph: Graph) -> None:
    """Have the nodes of a graph, and of all inside, have their types again."""
    for node in graph.all_nodes():
        if type(node.type) is Noted:
            node.type = node.type.annotation if node.graph is graph else None


class _Step(NamedTuple):
    """What both sides do alike: a node of each, and what the one reads where the other reads something."""

    one: Node
    other: Node
    read: list[tuple[Node, Node]]


def _share_end(branch: Node) -> bool:
    """Take out of both sides of a branch what they do alike in the end; tell whether there is anything."""
    one, other = branch.args[1:3]
    inputs = dict(zip(_inputs(one), _inputs(other), strict=True))
    steps = _alike_in_the_end(one, other)
    del steps[: _first_to_share(steps, inputs)]
    readers = list(branch.users)
    if len(steps) < 2 or not _can_give(readers, steps[-1].one.args[0]):  # the last step is the output
        return False
    *steps, end = steps
    alike = inputs | {step.one: step.other for step in steps}
    pairs = [*dict.fromkeys(pair for step in (*steps, end) for pair in step.read if alike.get(pair[0]) is not pair[1])]
    given = dict(zip(pairs, _items(branch, [one for one, _ in pairs]), strict=True))
    values: dict[Node, Node] = dict(zip(inputs, branch.args[3], strict=True))

    def reading(step: _Step) -> Callable[[Node], Node]:
        read = iter(step.read)

        def value_of(node: Node) -> Node:
            pair = next(read)
            return given[pair] if pair in given else values[node]

        return value_of

    last = next(reversed(given.values()), branch)
    for step in steps:
        with branch.graph.inserting_after(last):
            last = values[step.one] = branch.graph.node_copy(step.one, reading(step))
    result = map_arg(end.one.args[0], reading(end))
    _hand_out(branch, readers, result)
    returned = last if result is last and is_returned(last) else end.one if is_fork(branch) else None
    for reader in readers:
        if reader.op == "output" and returned is not None:
            reader._origin = returned._origin
    for number, body in enumerate((one, other)):
        left = tuple(pair[number] for pair in pairs)
        output, *own = (step[:2][number] for step in (end, *reversed(steps)))
        output.args = (None if not left else left[0] if len(left) == 1 else left,)
        for node in own:
            body.erase_node(node)
    return True


def _alike_in_the_end(one: Graph, other: Graph) -> list[_Step]:
    """The longest end that two graphs have in common, if the values are the same with which it begins."""
    steps = []
    for a, b in zip(reversed(_operations(one)), reversed(_operations(other)), strict=False):
        if not _is_alike(a, b):
            break
        steps.append(_Step(a, b, [*zip(_read(a), _read(b), strict=True)]))
    return steps[::-1]


def _first_to_share(steps: list[_Step], inputs: dict[Node, Node]) -> int:
    """The first step of a common end that can come after the branch: from there on, values are the same or joined."""
    place = {node: number for number, step in enumerate(steps) for node in step[:2]}
    first = 0
    for number, step in enumerate(steps):
        for a, b in step.read:
            of_a, of_b = place.get(a, -1), place.get(b, -1)
            is_same = inputs.get(a) is b or (of_a == of_b >= first)
            if not is_same and (max(of_a, of_b) >= first or not _can_join(a, b)):
                first = number + 1
                break
    return first


def _can_join(a: Node, b: Node) -> bool:
    """Whether a branch may give either of two values: tensors of one kind, or what one operation gives."""
    kinds = [node.type.kind if type(node.type) is Noted else () for node in (a, b)]
    return kinds[0] == kinds[1] is not None and (kinds[0] != () or (a.op, a.target) == (b.op, b.target))


def _can_give(readers: list[Node], result: Any) -> bool:
    """Whether those who read a branch can be handed what it gave, value by value."""
    return isinstance(result, Node) or all(
        reader.op == "output" or (type(result) is tuple and reader.target is operator.getitem) for reader in readers
    )


def _items(branch: Node, values: list[Node]) -> list[Node]:
    """What a branch gives, a node for each of the values of its one side; it is named as they are."""
    if len(values) == 1:
        made = [branch]
        branch.graph._call_again(branch, values[0].name)
    else:
        made, last = [], branch
        for number, value in enumerate(values):
            with branch.graph.inserting_after(last):
                last = branch.graph.call_function(operator.getitem, (branch, number), name=value.name)
            last._origin = branch._origin
            made.append(last)
    for node, value in zip(made, values, strict=True):
        node.type = value.type
    return made


def _hand_out(branch: Node, readers: list[Node], result: Any) -> None:
    """Give those who read a branch what it gave, which is now computed after it."""

    def replaced(node: Node, value: Any) -> Callable[[Node], Any]:
        return lambda read: value if read is node else read

    for reader in readers:
        if reader.target is operator.getitem and type(result) is tuple:
            found = replaced(reader, result[reader.args[1]])
            for user in list(reader.users):
                user.args, user.kwargs = map_arg(user.args, found), map_arg(user.kwargs, found)
            reader.graph.erase_node(reader)
        else:
            reader.args = map_arg(reader.args, replaced(branch, result))


def _inputs(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _operations(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op != "placeholder"]


def _read(node: Node) -> list[Node]:
    return [*nodes_in(node.args), *nodes_in(node.kwargs)]


def _is_alike(a: Node, b: Node) -> bool:
    """Whether two nodes do the same at the same place of the program, whatever values they do it with."""
    return (a.op == b.op == "placeholder") or (
        a.op == b.op
        and (a.target is b.target or (type(a.target) is str and a.target == b.target))
        and _place(a) == _place(b)
        and _is_written_alike(a.args, b.args)
        and _is_written_alike(a.kwargs, b.kwargs)
    )


def _place(node: Node) -> Any:
    origin = node.origin
    return origin and (origin.file, origin.line, origin.column, origin.module)


def _is_written_alike(a: Any, b: Any) -> bool:
    """Whether two arguments are the same but for the nodes in them."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_is_written_alike, a, b))
    if isinstance(a, dict):
        return [*a] == [*b] and all(map(_is_written_alike, a.values(), b.values()))
    if isinstance(a, slice):
        return _is_written_alike((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, Graph):
        return _do_the_same(a, b)
    if isinstance(a, float | complex):  # of zeros, the sign tells
        return repr(a) == repr(b)
    return isinstance(a, Node) or a is b or (type(a) in _COMPARED and bool(a == b))


def _do_the_same(one: Graph, other: Graph) -> bool:
    """Whether two bodies are the same, node by node."""
    nodes, others = one._nodes_now(), other._nodes_now()
    alike = dict(zip(nodes, others, strict=False))
    return len(nodes) == len(others) and all(
        _is_alike(a, b) and all(alike[read] is its for read, its in zip(_read(a), _read(b), strict=True))
        for a, b in alike.items()
    )

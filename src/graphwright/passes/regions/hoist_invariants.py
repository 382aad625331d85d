"""What a loop computes anew in each round though it is the same every time, computed once before it."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from torch import nn

from graphwright.ir import Argument, Graph, Node, map_arg
from graphwright.ops import add_operand, cond, gives_fresh_value, is_impure, is_loop, loop_parts, while_loop
from graphwright.passes.support.bodies import (
    items_of,
    may_write,
    module_of,
    nodes_between,
    regions_in,
    substitute,
)
from graphwright.runtime import graph_of


@dataclass(frozen=True, slots=True)
class HoistInvariants:
    """Move pure operations that depend on nothing a loop changes out of it, to before the loop.

    An operation moves where nothing changes but how often it runs: the program writes nothing in place; the
    operation is pure, and what reads it makes values of its own, so that no two rounds share one that the program
    gives back; and it may raise only where the loop surely runs and everything before it in the round is pure. A loop
    over a range, tuple or list of constants and `while True` surely run; a loop over `range(n)` is put behind
    `if n > 0:`, where it does. Of other loops, which may run zero times, only reads of parameters and buffers move.
    Returns the number of operations moved.

    >>> import operator
    >>> from graphwright import Graph, GraphModule
    >>> from graphwright.ops import for_loop
    >>> graph, body = Graph(), Graph()
    >>> _, total, w = (body.placeholder(name) for name in ("i", "total", "w"))
    >>> _ = body.output((body.call_function(operator.add, (total, body.call_method("exp", (w,)))),))
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(for_loop, (range(3), body, (0,), (x,))))
    >>> gm = GraphModule(nn.Module(), graph)
    >>> HoistInvariants().run(gm)
    1
    >>> [node.target for node in gm.graph.nodes][:2]
    ['x', 'exp']
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        if may_write(graph_of(gm).nodes, gm):
            return 0
        return sum(_hoist(node, gm) for node in regions_in(gm) if is_loop(node))


def _hoist(loop: Node, gm: nn.Module) -> int:
    runs = _surely_runs(loop)
    if not runs and _is_over_range(loop) and any(n.op != "get_attr" for n in _invariants(loop, gm, surely_runs=True)):
        loop, runs = _behind_a_test(loop), True
    found = _invariants(loop, gm, runs)
    _move(found, loop)
    if found and _is_over_range(loop):
        loop.prepend(loop_parts(loop).subject)  # as near as the program had it
    return len(found)


def _surely_runs(loop: Node) -> bool:
    subject = loop_parts(loop).subject
    if loop.target is while_loop:
        return bool(subject.output_node().args[0] is True)
    if isinstance(subject, Node) and subject.target is range and not subject.kwargs:
        return all(type(arg) is int for arg in subject.args) and len(range(*subject.args)) > 0
    return isinstance(subject, range | tuple | list) and len(subject) > 0


def _is_over_range(loop: Node) -> bool:
    subject = loop_parts(loop).subject
    is_range = isinstance(subject, Node) and subject.target is range and not subject.kwargs
    return is_range and len(subject.users) == 1 and items_of(loop) is not None


def _invariants(loop: Node, gm: nn.Module, surely_runs: bool) -> list[Node]:
    """The nodes of a loop's body that may be computed before it, in their order."""
    parts, find = loop_parts(loop), module_of(gm)
    outside = set(parts.body.placeholders()[-len(parts.operands) :] if parts.operands else ())
    found = []
    for node in parts.body.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if is_impure(node, find(node), in_any_mode=True):
            surely_runs = False  # what comes after it must not raise before it acts
            continue
        moves = node.op == "get_attr" or (surely_runs and _may_be_shared(node, gm))
        if moves and outside.issuperset(node.all_input_nodes):
            outside.add(node)
            found.append(node)
    return found


def _move(found: list[Node], loop: Node) -> None:
    """Have a loop take values of its body that are the same in each round as operands."""
    parts = loop_parts(loop)
    body = parts.body
    known: dict[Node, Argument] = {}
    if parts.operands:
        known.update(zip(body.placeholders()[-len(parts.operands) :], parts.operands, strict=True))
    for node in found:
        with loop.graph.inserting_before(loop):
            copied = loop.graph.node_copy(node, known.__getitem__)
        placeholder = add_operand(loop, copied)[body]
        known[placeholder] = copied
        substitute(node, placeholder)
        body.erase_node(node)


def _behind_a_test(loop: Node) -> Node:
    """Have a loop over a range run behind the test of whether it runs at all; return it, inside of the branch."""
    graph, subject, carried = loop.graph, loop_parts(loop).subject, loop_parts(loop).carried
    used = tuple(dict.fromkeys([*subject.all_input_nodes, *[n for n in loop.all_input_nodes if n is not subject]]))
    true, false = Graph(), Graph()
    inner = {body: dict(zip(used, [body.placeholder(n.name) for n in used], strict=True)) for body in (true, false)}
    inner[true][subject] = true.node_copy(subject, inner[true].__getitem__)
    moved = true.node_copy(loop, inner[true].__getitem__)
    names = {i: takers[0].name for i, takers in (items_of(loop) or {}).items()}
    width = range(len(carried))
    true.output(tuple([true.call_function(operator.getitem, (moved, i), name=names.get(i)) for i in width]))
    false.output(map_arg(carried, inner[false].__getitem__))
    first = loop.prev
    with graph.inserting_before(loop):
        count = subject.args[0] if len(subject.args) == 1 else graph.call_function(len, (subject,))
        runs = graph.call_function(operator.gt, (count, 0))
        branch = graph.call_function(cond, (runs, true, false, used), name=loop.name)
    for node in nodes_between(first, loop):
        node._origin = loop._origin
    loop.replace_all_uses_with(branch)
    graph.erase_node(loop)
    if not subject.users:
        graph.erase_node(subject)
    return moved


def _may_be_shared(node: Node, gm: nn.Module) -> bool:
    """Tell whether every reader of a value makes one of its own from it."""
    find = module_of(gm)
    return all(user.op != "output" and gives_fresh_value(user, find) for user in node.users)

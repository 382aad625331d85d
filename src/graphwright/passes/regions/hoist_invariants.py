"""What a loop computes anew in each round though it is the same every time, computed once before it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from graphwright.ir import Argument, Node
from graphwright.ops import gives_fresh_value, is_impure, is_loop, loop_parts, while_loop
from graphwright.passes.support.bodies import add_operand, inputs_of, may_write, module_of, regions_in, substitute
from graphwright.runtime import graph_of

__all__ = ["HoistInvariants"]


@dataclass(frozen=True, slots=True)
class HoistInvariants:
    """Move pure operations that depend on nothing a loop changes out of it, to before the loop.

    An operation moves where nothing changes but how often it runs: the program writes nothing in place; the
    operation is pure, and what reads it makes values of its own, so that no two rounds share one that the program
    gives back; and it may raise only where the loop surely runs (over a range, tuple or list of constants, or
    `while True`) and everything before it in the round is pure. In a loop that may run zero times only reads of
    parameters and buffers move. Returns the number of operations moved.

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


def _surely_runs(loop: Node) -> bool:
    subject = loop_parts(loop).subject
    if loop.target is while_loop:
        return bool(subject.output_node().args[0] is True)
    if isinstance(subject, Node) and subject.target is range and not subject.kwargs:
        return all(type(arg) is int for arg in subject.args) and len(range(*subject.args)) > 0
    return isinstance(subject, range | tuple | list) and len(subject) > 0


def _hoist(loop: Node, gm: nn.Module) -> int:
    parts = loop_parts(loop)
    body, find = parts.body, module_of(gm)
    inputs = inputs_of(body)
    outside: dict[Node, Argument] = {}  # what is known before the loop, with what it is there
    if parts.operands:
        outside.update(zip(inputs[-len(parts.operands) :], parts.operands, strict=True))
    runs, moved = _surely_runs(loop), 0
    for node in list(body.nodes):
        if node.op in ("placeholder", "output"):
            continue
        if is_impure(node, find(node), in_any_mode=True):
            runs = False  # what comes after it must not raise before it acts
            continue
        is_fixed = all(used in outside for used in node.all_input_nodes)
        if not is_fixed or not (node.op == "get_attr" or (runs and _may_be_shared(node, gm))):
            continue
        with loop.graph.inserting_before(loop):
            copied = loop.graph.node_copy(node, outside.__getitem__)
        moved += 1
        placeholder = add_operand(loop, copied)[body]
        outside[placeholder] = copied
        substitute(node, placeholder)
        body.erase_node(node)
    return moved


def _may_be_shared(node: Node, gm: nn.Module) -> bool:
    """Tell whether every reader of a value makes one of its own from it."""
    find = module_of(gm)
    return all(user.op != "output" and gives_fresh_value(user, find) for user in node.users)

"""Two runs of a program that part at one question, made into one graph with a branch at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from graphwright.errors import CaptureError
from graphwright.ir import Graph, Node
from graphwright.ops import cond
from graphwright.runtime import mark_fork

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["merge"]


def merge(run: Recorder, other: Recorder, number: int) -> None:
    """Make the end of `run` after its fork of this number one side of a branch, the end of `other` the other."""
    fork, its = run.questions.forks[number], other.questions.forks[number]
    heads = [_upto(fork.after), _upto(its.after)]
    if [(node.op, node.target) for node in heads[0]] != [(node.op, node.target) for node in heads[1]]:
        raise CaptureError("the program does not do the same when it is run again", at=fork.site and str(fork.site))
    same = dict(zip(heads[1], heads[0], strict=True))
    _share_constants(run, other)
    graph = run.root.graph
    operands: dict[Node, None] = {}
    tails = [_tail(graph, fork.after), _tail(other.root.graph, its.after)]
    for nodes, known in ((tails[0], None), (tails[1], same)):
        for node in nodes:
            for used in node.all_input_nodes:
                if used not in nodes:
                    operands[used if known is None else known[used]] = None
    bodies = [_body(list(operands), tails[0], {}), _body(list(operands), tails[1], {b: a for a, b in same.items()})]
    for node in reversed(tails[0]):
        graph.erase_node(node)
    if not fork.answer:
        bodies.reverse()
    node = graph.create_node("call_function", cond, (fork.pred, *bodies, tuple(operands)), {}, "result")
    node._origin = fork.site
    mark_fork(node)
    run.calls.add(other.calls, its.calls)
    graph.output(node)


def _upto(last: Node) -> list[Node]:
    nodes = []
    for node in last.graph.nodes:
        nodes.append(node)
        if node is last:
            break
    return nodes


def _tail(graph: Graph, after: Node) -> list[Node]:
    nodes = list(graph.nodes)
    return nodes[nodes.index(after) + 1 :]


def _body(operands: list[Node], nodes: list[Node], renamed: dict[Node, Node]) -> Graph:
    """Copy the end of a program to a graph of its own, whose inputs are what it uses from before."""
    body = Graph()
    values: dict[Node, Node] = {}
    for operand in operands:
        placeholder = body.create_node("placeholder", operand.name, (), {}, operand.name)
        placeholder._target = placeholder.name
        values[renamed.get(operand, operand)] = placeholder
    for node in nodes:
        values[node] = body.node_copy(node, values.__getitem__)
    return body


def _share_constants(run: Recorder, other: Recorder) -> None:
    """Take over the constants of the other run, under other names where these mean something else here."""
    mine, renamed = run.root.graph.constants, {}
    for name, value in other.root.graph.constants.items():
        known = mine.get(name)
        if known is not None and (
            known.shape != value.shape or known.dtype != value.dtype or not torch.equal(known, value)
        ):
            renamed[name] = f"_tensor_constant{len(mine)}"
        mine.setdefault(renamed.get(name, name), value)
    for graph in other.root.graph.all_graphs() if renamed else ():
        for node in graph.nodes:
            if node.op == "get_attr" and node.target in renamed:
                node.target = renamed[node.target]

"""Two runs of a program that part at one question, made into one graph with a branch at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch

from graphwright.capture.state.calls import Calls
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Graph, Node
from graphwright.ops import cond
from graphwright.runtime import expect, mark_fork

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

    Run: TypeAlias = Capture
    AnyRun = TypeVar("AnyRun", bound=Capture)

__all__ = ["Fork", "all_paths", "merge"]


@dataclasses.dataclass
class Fork:
    """A question whose two answers lead to two ends of the program."""

    after: Node  # the last node before it
    pred: Argument
    answer: bool
    site: Any
    place: Any
    is_data: bool
    hint: bool | None  # the example's answer
    calls: Calls  # how many there were before it
    decider: Any = None  # the place of a branch on a size or flag that has given what is asked, besides data

    @property
    def is_start(self) -> bool:
        """Whether it asks if an attribute is None as the program starts."""
        return isinstance(self.place, tuple) and self.place[:1] == ("attribute",)

    @property
    def starts_with_none(self) -> bool:
        """Whether it is the way of a call for which such an attribute is None."""
        return self.is_start and self.answer


def merge(run: Run, other: Run, number: int) -> None:
    """Make the end of `run` after its fork of this number one side of a branch, the end of `other` the other."""
    fork, its = run.questions.forking.forks[number], other.questions.forking.forks[number]
    same = _matched(_upto(fork.after), _upto(its.after))
    if same is None:
        raise CaptureError("the program does not do the same when it is run again", at=fork.site and str(fork.site))
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


def _matched(mine: list[Node], others: list[Node]) -> dict[Node, Node] | None:
    """What another run has done up to a fork, each with what this one has; None where the two have done other things.

    A value is checked where it is made if the program asks for what follows from it later on, which one of the two may
    do alone: the graph of this run gets the checks of both.
    """
    same: dict[Node, Node] = {}
    i = j = 0
    while i < len(mine) or j < len(others):
        one, other = mine[i : i + 2], others[j : j + 2]
        if one and other and (one[0].op, one[0].target) == (other[0].op, other[0].target):
            same[other[0]] = one[0]
            i, j = i + 1, j + 1
        elif _is_check(other):
            graph = mine[i - 1].graph
            with graph.inserting_after(mine[i - 1]):
                asked = same[other[0]] = graph.node_copy(other[0], same.__getitem__)
            with graph.inserting_after(asked):
                graph.node_copy(other[1], same.__getitem__)
            j += 2
        elif _is_check(one):
            i += 2
        else:
            return None
    return same


def _is_check(nodes: list[Node]) -> bool:
    return len(nodes) == 2 and nodes[1].target is expect and nodes[1].args[0] is nodes[0]


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


def all_paths(run: Callable[[tuple[bool, ...]], AnyRun], answers: tuple[bool, ...] = ()) -> AnyRun:
    """Run a program as far as these answers to its forks lead, and every way on from there; merge the runs."""
    recorder = run(answers)
    forks: list[Fork] = recorder.questions.forking.forks
    number: int
    for number in reversed(range(len(answers), len(forks))):
        fork = forks[number]
        merge(recorder, all_paths(run, (*[fork.answer for fork in forks[:number]], not fork.answer)), number)
    return recorder


def _share_constants(run: Run, other: Run) -> None:
    """Take over the constants of the other run, under other names where these mean something else here."""
    mine, renamed = run.root.graph.constants, {}
    for name, value in other.root.graph.constants.items():
        known = mine.get(name)
        if known is not None and not _is_same(known, value):
            renamed[name] = f"_tensor_constant{len(mine)}"
        mine.setdefault(renamed.get(name, name), value)
    for graph in other.root.graph.all_graphs() if renamed else ():
        for node in graph.nodes:
            if node.op == "get_attr" and node.target in renamed:
                node.target = renamed[node.target]


def _is_same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is b
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b))

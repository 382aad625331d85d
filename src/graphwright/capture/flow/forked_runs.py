"""Two runs of a program that part at one question, made into one graph with a branch at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch.utils.hooks import RemovableHandle

from graphwright.capture.flow.shared_ends import mark_rest
from graphwright.capture.state.calls import Calls
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Graph, Node
from graphwright.ops import cond, enter_context, exit_context
from graphwright.runtime import expect, expect_class, mark_fork

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

    Run: TypeAlias = Capture
    AnyRun = TypeVar("AnyRun", bound=Capture)


# Contexts that hold nothing: left and entered again, they are as they were.
_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode)


@dataclasses.dataclass(eq=False)
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
    next_hook: int = dataclasses.field(default_factory=lambda: RemovableHandle.next_id)  # of those registered after it

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
    tails = [_tail(graph, fork.after), _tail(other.root.graph, its.after)]
    its_of = {mine: its_own for its_own, mine in same.items()}
    modes = _modes(_upto(fork.after), tails, its_of)
    operands: dict[Node, None] = {}
    for nodes, known in ((tails[0], None), (tails[1], same)):
        inside = set(nodes)
        for node in nodes:
            for used in node.all_input_nodes:
                mine = used if known is None else known.get(used, used)
                for each in mine.all_input_nodes if mine in modes else (mine,):
                    if used not in inside:
                        operands[each] = None
    bodies = [_body([*operands], modes, tails[0], {}), _body([*operands], modes, tails[1], its_of)]
    for node in reversed(tails[0]):
        graph.erase_node(node)
        graph._namespace.release(node.name)  # both ways may come to do it once, under that name
    for node in reversed(modes):
        _leave(node)
    if not fork.answer:
        bodies.reverse()
    node = graph.create_node("call_function", cond, (fork.pred, *bodies, tuple(operands)), {}, "result")
    node._origin = fork.site
    mark_fork(node)
    mark_rest(node)
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
        if i < len(mine) and j < len(others) and _what(mine[i]) == _what(others[j]):
            same[others[j]] = mine[i]
            i, j = i + 1, j + 1
        elif check := _check_at(others, j):
            graph, last = mine[i - 1].graph, mine[i - 1]
            for node in check:
                with graph.inserting_after(last):
                    last = same[node] = graph.node_copy(node, same.__getitem__)
            j += len(check)
        elif check := _check_at(mine, i):
            i += len(check)
        else:
            return None
    return same


def _what(node: Node) -> tuple[Any, ...]:
    """What a node does, whatever it does it with: of the read of an attribute, which one."""
    return node.op, node.target, node.args[1:2] if node.target is getattr else ()


def _check_at(nodes: list[Node], place: int) -> list[Node]:
    """The nodes of a check that starts somewhere: of the class of a number, or of what the node before it tells."""
    first, *others = nodes[place : place + 2] or (None,)
    if first is not None and first.target is expect_class:
        return [first]
    return [first, *others] if others and others[0].target is expect and others[0].args[0] is first else []


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


def _modes(before: list[Node], tails: list[list[Node]], its_of: dict[Node, Node]) -> list[Node]:
    """The innermost contexts that a program is in at a fork: modes of gradients that it leaves on both ways."""
    left = {node.args[0] for node in before if node.target is exit_context}
    found: list[Node] = []
    for node in reversed(before):
        if node.target is enter_context and node not in left:
            if not (_is_left(node, tails[0]) and _is_left(its_of.get(node), tails[1])):
                break
            found.insert(0, node)
    return found


def _is_left(node: Node | None, tail: list[Node]) -> bool:
    """Tell whether a node enters a mode of gradients that the end of a program leaves."""
    if node is None or node.target is not enter_context or node.args[0] not in _MODES:
        return False
    return any(each.target is exit_context and each.args[0] is node for each in tail)


def _leave(entered: Node) -> None:
    """Leave a mode before a branch, whose sides enter it again: what an error leaves is left by each of them."""
    graph = entered.graph
    if entered.next is graph._root:
        graph.erase_node(entered)
    else:
        graph.create_node("call_function", exit_context, (entered,), {})


def _body(operands: list[Node], modes: list[Node], nodes: list[Node], renamed: dict[Node, Node]) -> Graph:
    """Copy the end of a program to a graph of its own, whose inputs are what it uses from before.

    It enters the modes anew that it is in, and leaves them where the end of the program does.
    """
    body = Graph()
    values: dict[Node, Node] = {}
    for operand in operands:
        placeholder = body.create_node("placeholder", operand.name, (), {}, operand.name)
        placeholder._target = placeholder.name
        values[renamed.get(operand, operand)] = placeholder
    for mode in modes:
        mine = renamed.get(mode, mode)
        values[mine] = body.node_copy(mine, values.__getitem__)
    for node in nodes:
        values[node] = body.node_copy(node, values.__getitem__)
    for mode in reversed(modes):
        entered = values[renamed.get(mode, mode)]
        if entered.next.target is exit_context and [*entered.users] == [entered.next]:  # nothing is done in it
            body.erase_node(entered.next)
            body.erase_node(entered)
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
    if run.typed is not None and other.typed is not None:
        for name, owner in other.typed.tensors.owners.items():
            run.typed.tensors.owners.setdefault(renamed.get(name, name), owner)
    for graph in other.root.graph.all_graphs() if renamed else ():
        for node in graph.nodes:
            if node.op == "get_attr" and node.target in renamed:
                node.target = renamed[node.target]


def _is_same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is b
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b))

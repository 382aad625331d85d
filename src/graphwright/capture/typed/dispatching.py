"""Several captures of one entry point made into one graph, which chooses among them by their guards.

The guards that need nothing but the inputs move out of each capture into a question asked before anything runs:

    misfit = unlike_inputs(mask=(mask, None))
    misfit_1 = misfit and unlike_inputs(mask=(mask, torch.Tensor))
    capture = choose("gate", (misfit, misfit_1), (x,), mask=(mask, None))
    if capture == 1: ...

They are asked level by level, a container before what it holds, each only if those before it hold.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from graphwright.capture.proxies.calls_as_written import reshaped_argument
from graphwright.capture.state.tidy import erase_unused
from graphwright.capture.typed.entries import Subject
from graphwright.ir import EMPTY_KWARGS, Graph, Node, Origin, bodies_of, map_arg, nodes_in
from graphwright.ops import cond
from graphwright.runtime import (
    CAPTURE,
    attribute_names,
    choose,
    expect,
    expect_kinds,
    expect_tensors,
    expect_values,
    join_facts,
    unlike,
    unlike_inputs,
)

_GUARDS = (expect_kinds, expect_values, expect_tensors)
_STEPS = (operator.getitem, getattr)  # from a container to what it holds
_MEASURES = ("size", "dim", "numel", len, list, attribute_names)
_ARITHMETIC = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.neg, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.not_, abs,
    bool, int, float, round, min, max, math.sqrt, math.ceil, math.floor, math.log, math.log2, math.gcd, math.trunc,
})  # fmt: skip
_KNOWN_HOMES = ("torch", "_operator", "math", "builtins", "collections", "graphwright")


def chosen_by_guards(subject: Subject, entry: str, graphs: Sequence[Graph]) -> Graph:
    """Make one graph of several captures of an entry point: a call goes to the first whose guards hold.

    The captures become bodies of the graph. Guards that depend on more than the inputs stay inside them.
    """
    graph = Graph()
    inputs = [graph.node_copy(node) for node in graphs[0].placeholders()]
    join_facts(graph, graphs)
    misfits: list[Node] = []
    for i, capture in enumerate(graphs, start=1):
        asking = _Asking(f"{entry}_{i}", subject.origin(entry, i))
        from_inputs = _from_inputs(subject.root_module, capture)
        questions, guards = _questions(capture, from_inputs)
        known = dict(zip(capture.placeholders(), inputs, strict=True))
        if misfits:
            misfits.append(asking.if_unlike(graph, misfits[-1], questions, known))
        else:
            misfits.append(asking.all(graph, questions, known))
        for guard in guards:
            _erase(guard, from_inputs)
        _make_body(capture)
        graph.constants.update(capture.constants)
    args, kwargs = _call(subject.name(entry), misfits, inputs, subject.signature(entry))
    number = graph.create_node("call_function", choose, args, kwargs, "capture")
    number._origin = _named(subject.origin(entry, len(graphs) + 1), "capture")
    _choose(graph, number, 1, list(graphs), inputs, [subject.origin(entry, -i) for i in range(len(graphs))])
    return graph


def _call(where: str, misfits: list[Node], inputs: list[Node], signature: inspect.Signature) -> tuple[Any, Any]:
    """The arguments of `choose`: those of the call come along, to be shown where no capture fits."""
    given: list[Node] = []
    more: Any = ()
    named: Any = None
    optional: dict[str, tuple[Any, ...]] = {}
    has_stars = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())
    for parameter, node in zip(signature.parameters.values(), inputs, strict=True):
        if parameter.kind is parameter.VAR_POSITIONAL:
            more = node
        elif parameter.kind is parameter.VAR_KEYWORD:
            named = node
        elif parameter.kind is parameter.POSITIONAL_ONLY or (
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD and (has_stars or parameter.default is parameter.empty)
        ):
            given.append(node)
        else:
            optional[parameter.name] = (node, *node.args)
    args: list[Any] = [where, tuple(misfits), tuple(given), more, named]
    while args[-1] is None or args[-1] == ():
        args.pop()
    return tuple(args), optional


def _choose(
    graph: Graph, number: Node, first: int, captures: list[Graph], inputs: list[Node], origins: list[Origin | None]
) -> None:
    """Write, at the end of a graph, the branch to each of some captures."""
    capture, *others = captures
    is_it = graph.call_function(operator.eq, (number, first))
    operands = inputs
    rest = others[0]
    if len(others) > 1:
        rest = Graph()
        ours = _inputs_of(rest, [*inputs, number])
        _choose(rest, ours[-1], first + 1, others, ours[:-1], origins[1:])
        with capture.inserting_after(capture.placeholders()[-1] if inputs else None):
            capture.placeholder("capture")  # a branch gives the same values to both its sides
        operands = [*inputs, number]
    branch = graph.call_function(cond, (is_it, capture, rest, tuple(operands)))
    is_it._origin = branch._origin = origins[0]
    branch.meta[CAPTURE] = ""
    graph.output(branch)


def _named(origin: Origin | None, target: str) -> Origin | None:
    """The origin of a value that has a name."""
    return None if origin is None else dataclasses.replace(origin, target=target)


def _inputs_of(body: Graph, values: Sequence[Node]) -> list[Node]:
    """Make an input of a body for each of some values."""
    made = []
    for value in values:
        node = body.create_node("placeholder", value.name, (), {}, value.name)
        node._target = node.name
        made.append(node)
    return made


def _make_body(capture: Graph) -> None:
    """Turn the graph of a program into the body of a branch: its inputs are plain ones."""
    erase_unused(capture)
    for node in capture.placeholders():
        node.args = ()
        node._target = node.name
        node.meta.pop("parameter_kind", None)


# ---- the questions


@dataclasses.dataclass(eq=False)
class _Question:
    """A call of one of the questions of guards.py: what it asks, about which values of a capture."""

    function: Callable[..., str]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def uses(self) -> list[Node]:
        return list(dict.fromkeys([*nodes_in(self.args), *nodes_in(self.kwargs)]))


def _from_inputs(root: nn.Module | None, capture: Graph) -> dict[Node, bool]:
    """Tell which nodes are computed from the inputs alone, by what is cheap and has no effect.

    A size that a capture asks for after it may have changed the shape of a tensor in place is not that of the input.
    """
    known: dict[Node, bool] = {}
    is_reshaped = False
    for node in capture.nodes:
        known[node] = _is_from_inputs(node, known, is_reshaped)
        is_reshaped = is_reshaped or _may_reshape(root, node)
    return known


def _questions(capture: Graph, from_inputs: dict[Node, bool]) -> tuple[list[_Question], list[Node]]:
    """Make questions of those guards of a capture that need only the inputs; return them in order, and the guards."""
    of_inputs: dict[tuple[int, int], dict[str, tuple[Any, ...]]] = {}
    computed: list[_Question] = []
    guards: list[Node] = []
    for node in capture.nodes:
        if node._op != "call_function":
            continue
        if node._target is expect:
            value, _, _ = node.args
            if type(value) is Node and from_inputs[value]:
                computed.append(_Question(unlike, node.args, {}))
                guards.append(node)
        elif node._target in _GUARDS:
            for name, pair in node.kwargs.items():
                if node._target is expect_values and isinstance(pair[1], type):  # not one of its instances
                    computed.append(_Question(unlike, (*pair, f"{node.args[0]}: {name}"), {}))
                else:
                    of_inputs.setdefault(_level(pair[0]), {})[name] = pair
            guards.append(node)
    return [*[_Question(unlike_inputs, (), pairs) for _, pairs in sorted(of_inputs.items())], *computed], guards


def _erase(node: Node, from_inputs: dict[Node, bool]) -> None:
    """Erase a guard, and what was computed for it alone."""
    used = node.all_input_nodes
    node.graph.erase_node(node)
    for other in used:
        if not other.users and other._op != "placeholder" and from_inputs[other] and other._position is not None:
            _erase(other, from_inputs)


def _may_reshape(root: nn.Module | None, node: Node) -> bool:
    """Tell whether an operation may give a tensor that exists already another shape."""
    if reshaped_argument(node._target, node._args, node._kwargs) is not None:
        return True
    if node._op == "call_module":
        assert root is not None
        return not type(root.get_submodule(str(node._target))).__module__.startswith(("torch.nn.", "torch.ao.nn."))
    if any(_may_reshape(root, inner) for body in bodies_of(node) for inner in body.all_nodes()):
        return True
    home = getattr(node._target, "__module__", None) or ""
    return node._op == "call_function" and bool(home) and home.partition(".")[0] not in _KNOWN_HOMES


def _is_from_inputs(node: Node, known: dict[Node, bool], is_reshaped: bool) -> bool:
    if node._op == "placeholder":
        return True
    if node._op == "get_attr":
        return str(node._target).rpartition(".")[2] == "training"
    is_measure = node._target in _MEASURES and node._args and not node._kwargs  # `list()` measures nothing
    if is_measure:
        return not is_reshaped and type(node._args[0]) is Node and _is_path(node._args[0])
    if node._op == "call_function" and (node._target in _ARITHMETIC or _is_path(node)):
        return all(known[used] for used in node.all_input_nodes)
    return False


def _is_path(node: Node) -> bool:
    """Tell whether a value is an input, or something inside an input."""
    while node._op == "call_function" and node._target in _STEPS and type(node._args[0]) is Node:
        node = node._args[0]
    return node._op == "placeholder"


def _level(node: Node) -> tuple[int, int]:
    """How deep inside the inputs a value is; before those at one depth come the length or keys of what holds them."""
    depth, is_held = 0, int(node._target not in _MEASURES)
    while node._op != "placeholder":
        depth += 1
        node = node._args[0]
    return depth, is_held


@dataclasses.dataclass(eq=False)
class _Asking:
    """Writes the questions of one capture."""

    capture: str
    origin: Origin | None

    def all(self, graph: Graph, questions: list[_Question], known: dict[Node, Node]) -> Node:
        """Write questions, each asked only if nothing is unlike so far.

        `known` maps nodes of the capture to nodes here.
        """
        if not questions:
            return self._make(graph, str)
        first, *more = questions
        misfit = self._ask(graph, first, known)
        for question in more:
            misfit = self._branch(graph, misfit, [question], known, is_asked_if=False)
        return misfit

    def if_unlike(self, graph: Graph, before: Node, questions: list[_Question], known: dict[Node, Node]) -> Node:
        """Write questions that are asked only where something is unlike before."""
        return self._branch(graph, before, questions, known, is_asked_if=True)

    def _ask(self, graph: Graph, question: _Question, known: dict[Node, Node], target: str = "misfit") -> Node:
        def here(node: Node) -> Node:
            if node not in known:
                known[node] = graph.node_copy(node, here)
                known[node]._origin = self.origin
            return known[node]

        args, kwargs = map_arg(question.args, here), map_arg(question.kwargs, here)
        return self._make(graph, question.function, args, kwargs, target)

    def _branch(
        self, graph: Graph, before: Node, questions: list[_Question], known: dict[Node, Node], is_asked_if: bool
    ) -> Node:
        """Write `before and questions`, or `before or questions`."""
        needed = dict.fromkeys(root for question in questions for used in question.uses() for root in _roots(used))
        operands = [before, *[known[node] for node in needed]]
        plain, asking = Graph(), Graph()
        plain.output(_inputs_of(plain, operands)[0])
        inside = dict(zip(needed, _inputs_of(asking, operands)[1:], strict=True))
        if len(questions) == 1:
            asking.output(self._ask(asking, questions[0], inside, ""))._origin = self.origin
        else:
            asking.output(self.all(asking, questions, inside))
        bodies = (asking, plain) if is_asked_if else (plain, asking)
        return self._make(graph, cond, (before, *bodies, tuple(operands)))

    def _make(
        self,
        graph: Graph,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] = EMPTY_KWARGS,
        target: str = "misfit",
    ) -> Node:
        node = graph.create_node("call_function", function, args, dict(kwargs), "misfit")
        node._origin = _named(self.origin, target)
        node.meta[CAPTURE] = self.capture
        return node


def _roots(node: Node) -> list[Node]:
    """The inputs that a value is computed from."""
    if node._op == "placeholder":
        return [node]
    return [root for used in node.all_input_nodes for root in _roots(used)]

"""Interpreter: a graph run node by node does what its generated code does, and lets every step be changed."""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.programs import Pair, calls, doubled_graph, graph_of, scaled
from torch import Tensor, nn

from graphwright import Graph, GraphModule, Interpreter, Node, symbolic_trace, trace
from graphwright.errors import GraphError
from graphwright.ir import Origin
from graphwright.ops import enter_context, exit_context, raise_error, transformed

# ---- the same as the generated code


def many_inputs(x: Tensor, *rest: Tensor, scale: float = 2.0, **named: Tensor) -> Any:
    return x * scale, rest, named


def nested_values(x: Tensor) -> Any:
    parts = torch.split(x, [1, 2], dim=1)
    return {"pair": Pair(parts[0], parts[1]), "list": [x[:, 1:], (x[..., None],)]}


def in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 0.0
    y += x
    return y.relu_()


PROGRAMS: list[Any] = [
    pytest.param(lambda x: torch.relu(x) + 1, id="arithmetic"),
    pytest.param(lambda x: scaled(x, factor=3.0).sum(dim=(0, 1)), id="functions and methods"),
    pytest.param(lambda x: torch.cat([x, x.t().reshape(2, 3)], dim=-1), id="list argument"),
    pytest.param(lambda x: x.view(size=(3, 2)), id="keyword"),
    pytest.param(nested_values, id="nested values"),
    pytest.param(in_place, id="in place"),
    pytest.param(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3)), id="modules"),
    pytest.param(lambda x: 3, id="constant"),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_runs_as_the_generated_code_does(program: Callable[..., Any]) -> None:
    gm = symbolic_trace(program)
    x = torch.randn(2, 3)
    result, expected = Interpreter(gm).run(x), gm(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        pytest.param((1, 2), {}, id="by position"),
        pytest.param((1,), {"y": 2}, id="by name"),
        pytest.param((), {"y": 2, "x": 1}, id="all by name"),
        pytest.param((1,), {}, id="default"),
    ],
)
def test_takes_arguments_as_a_function_does(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", default_value=5)
    graph.output((x, y))
    gm = GraphModule(nn.Module(), graph)
    assert Interpreter(gm).run(*args, **kwargs) == gm(*args, **kwargs)


def test_takes_what_is_left_into_starred_inputs() -> None:
    graph = Graph()
    inputs = [graph.placeholder(name) for name in ("x", "*rest", "**named")]
    graph.output(tuple(inputs))
    gm = GraphModule(nn.Module(), graph)
    assert gm(1, 2, 3, k=4) == (1, (2, 3), {"k": 4})
    assert Interpreter(gm).run(1, 2, 3, k=4) == (1, (2, 3), {"k": 4})
    assert Interpreter(gm).run(1) == (1, (), {})


def test_names_the_argument_that_is_missing() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: (x, graph.placeholder("y"))))
    with pytest.raises(GraphError) as caught:
        Interpreter(gm).run(1)
    assert str(caught.value) == "Expected positional argument for parameter y, but one was not passed in!"


def test_refuses_keywords_that_are_no_input() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: x))
    with pytest.raises(TypeError, match="the graph has no input 'y'"):
        Interpreter(gm).run(1, y=2)


def test_runs_a_traced_module_as_its_code_does() -> None:
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor, *rest: Tensor, mask: Tensor | None = None, **named: Tensor) -> dict[str, Any]:
            with torch.no_grad():
                total = x + sum(rest)
            if mask is not None:
                total = total * mask
            return {"total": total, "sizes": x.shape, "linear": self.linear(x) * named["gain"]}

    x = torch.randn(2, 3)
    args, kwargs = (x, x * 2, x * 3), {"mask": x > 0, "gain": torch.ones(3)}
    gm = trace(Program(), args, kwargs)
    result, expected = Interpreter(gm).run(*args, **kwargs), gm(*args, **kwargs)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert not result["total"].requires_grad
    assert result["linear"].requires_grad


def test_the_operations_called_own_their_lists() -> None:
    def collect(values: list[Any], also: dict[str, list[Any]]) -> Any:
        values.append(3)
        also["more"].append(4)
        return values, also

    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: graph.call_function(collect, ([x, 2], {"more": [x]}))))
    assert Interpreter(gm).run(1) == gm(1) == ([1, 2, 3], {"more": [1, 4]})
    assert Interpreter(gm).run(1) == ([1, 2, 3], {"more": [1, 4]})


# ---- values and how long they live


def chain() -> GraphModule:
    """((x + 1) * 2) - 3, and a value that nothing reads."""

    def build(graph: Graph, x: Node) -> Node:
        added = graph.call_function(operator.add, (x, 1))
        graph.call_function(operator.neg, (added,), name="unread")
        doubled = graph.call_function(operator.mul, (added, 2))
        return graph.call_function(operator.sub, (doubled, 3))

    return GraphModule(nn.Module(), graph_of(build))


class Watching(Interpreter):
    """Notes, before each node, the names of the values that are kept."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.kept: dict[str, list[str]] = {}
        return super().run(*args, **kwargs)

    def run_node(self, n: Node) -> Any:
        self.kept[n.name] = [node.name for node in self.env]
        return super().run_node(n)


def test_frees_each_value_after_its_last_use() -> None:
    watching = Watching(chain())
    assert watching.run(5) == 9
    assert watching.kept == {
        "x": [],
        "add": ["x"],
        "unread": ["add"],
        "mul": ["add"],
        "sub": ["mul"],
        "output": ["sub"],
    }


def test_keeps_all_values_on_request() -> None:
    interpreter = Interpreter(chain(), garbage_collect_values=False)
    assert interpreter.run(5) == 9
    values = {node.name: value for node, value in interpreter.env.items()}
    assert values == {"x": 5, "add": 6, "unread": -6, "mul": 12, "sub": 9, "output": 9}


def test_a_freed_tensor_is_gone() -> None:
    seen: list[weakref.ref[Tensor]] = []

    def noted(x: Tensor) -> Tensor:
        y = x + 1
        seen.append(weakref.ref(y))
        return y

    def checked(x: Tensor) -> Tensor:
        assert seen[0]() is None
        return x

    def build(graph: Graph, x: Node) -> Node:
        doubled = graph.call_function(operator.mul, (graph.call_function(noted, (x,)), 2))
        return graph.call_function(checked, (doubled,))

    gm = GraphModule(nn.Module(), graph_of(build))
    assert torch.equal(Interpreter(gm).run(torch.ones(2)), torch.full((2,), 4.0))


def test_boxed_run_empties_the_list() -> None:
    arguments: list[Any] = [5]
    assert Interpreter(chain()).boxed_run(arguments) == 9
    assert arguments == []


def test_initial_values_are_not_computed_again() -> None:
    gm = chain()
    nodes = {node.name: node for node in gm.graph.nodes}
    watching = Watching(gm)
    assert watching.run(initial_env={nodes["x"]: 0, nodes["unread"]: None, nodes["add"]: 100}) == 197
    assert list(watching.kept) == ["mul", "sub", "output"]


def test_runs_a_graph_other_than_the_module_s_own() -> None:
    gm = GraphModule(nn.Module(), graph_of(lambda graph, x: x))
    gm.linear = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    assert torch.equal(Interpreter(gm, graph=calls("linear")).run(x), gm.linear(x))
    plain = nn.Sequential(nn.Tanh())
    assert torch.equal(Interpreter(plain, graph=calls("0")).run(x), x.tanh())


def test_a_module_without_a_graph_cannot_be_run() -> None:
    with pytest.raises(GraphError, match="this Linear has no graph"):
        Interpreter(nn.Linear(1, 1))


# ---- overriding


class Counting(Interpreter):
    """Counts nodes by opcode, and turns `add` into `sub`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.counts: dict[str, int] = {}

    def run_node(self, n: Node) -> Any:
        self.counts[n.op] = self.counts.get(n.op, 0) + 1
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(operator.sub if target is operator.add else target, args, kwargs)


def test_run_node_sees_every_node() -> None:
    counting = Counting(chain())
    assert counting.run(5) == (5 - 1) * 2 - 3
    assert counting.counts == {"placeholder": 1, "call_function": 4, "output": 1}


def test_each_opcode_has_a_method_of_its_name() -> None:
    class Noting(Interpreter):
        def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
            noted.append(("placeholder", target))
            return super().placeholder(target, args, kwargs)

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            noted.append(("get_attr", target))
            return super().get_attr(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            noted.append(("call_module", target))
            return super().call_module(target, args, kwargs)

        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            noted.append(("call_method", target))
            return super().call_method(target, args, kwargs)

        def output(self, target: Any, args: Any, kwargs: Any) -> Any:
            noted.append(("output", target))
            return super().output(target, args, kwargs)

    def build(graph: Graph, x: Node) -> Node:
        y = graph.call_module("linear", (x,))
        return graph.call_method("mul", (y, graph.get_attr("weight")))

    noted: list[tuple[str, Any]] = []
    gm = GraphModule({"linear": nn.Linear(3, 3), "weight": torch.ones(3)}, graph_of(build))
    x = torch.randn(2, 3)
    assert torch.equal(Noting(gm).run(x), gm(x))
    assert noted == [
        ("placeholder", "x"), ("call_module", "linear"), ("get_attr", "weight"), ("call_method", "mul"),
        ("output", "output"),
    ]  # fmt: skip


# ---- errors


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_an_error_names_the_node_and_its_line() -> None:
    gm = chain()
    node = next(iter(gm.graph.find_nodes(op="call_function", target=operator.mul)))
    node.target = operator.truediv
    node.args = (node.args[0], 0)
    node.origin = Origin("model.py", 14, "Gate.forward", "y = x / 0")
    with pytest.raises(ZeroDivisionError) as caught:
        Interpreter(gm).run(5)
    first, *where = str(caught.value).split("\n\n")
    assert first == "division by zero"
    (said,) = where
    assert said.startswith("While executing %mul : [num_users=1] = call_function[target=operator.truediv](args = (%")
    assert said.endswith("\nOriginal traceback:\n  model.py:14 in Gate.forward: y = x / 0")
    quiet = Interpreter(gm)
    quiet.extra_traceback = False
    with pytest.raises(ZeroDivisionError) as caught:
        quiet.run(5)
    assert str(caught.value) == "division by zero"


def test_a_missing_target_says_which_step_is_missing() -> None:
    gm = GraphModule({"norm": nn.LayerNorm(3), "linear": nn.Linear(3, 3)}, doubled_graph())
    next(iter(gm.graph.find_nodes(op="call_module", target="norm"))).target = "norm.inner.deep"
    with pytest.raises(GraphError, match=r"Node referenced nonexistent target norm\.inner"):
        Interpreter(gm).run(torch.ones(2, 3))


def test_a_value_that_was_never_computed_is_named() -> None:
    def build(graph: Graph, x: Node) -> Node:
        return graph.call_function(torch.stack, ([x, x],))

    gm = GraphModule(nn.Module(), graph_of(build))
    interpreter = Interpreter(gm)
    stack = next(node for node in gm.graph.nodes if node.op == "call_function")
    with pytest.raises(GraphError, match="Node stack referenced nonexistent value x"):
        interpreter.map_nodes_to_values(stack.args[0], stack)


# ---- contexts


class Recorder:
    """A context manager that writes down what happens to it."""

    def __init__(self, events: list[Any], name: str) -> None:
        self.events, self.name = events, name

    def __enter__(self) -> None:
        self.events.append(("enter", self.name))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.events.append(("exit", self.name, None if kind is None else kind.__name__))


def in_contexts(events: list[Any], divisor: int) -> GraphModule:
    """One context entered and left, then two, one inside the other, around a division."""

    def build(graph: Graph, x: Node) -> Node:
        recorder = functools.partial(Recorder, events)  # a list among the arguments would be copied
        first = graph.call_function(enter_context, (recorder, "first"))
        graph.call_function(exit_context, (first,))
        outer = graph.call_function(enter_context, (recorder, "outer"))
        inner = graph.call_function(enter_context, (recorder, "inner"))
        result = graph.call_function(operator.truediv, (x, divisor))
        graph.call_function(exit_context, (inner,))
        graph.call_function(exit_context, (outer,))
        return result

    return GraphModule(nn.Module(), graph_of(build))


@pytest.mark.parametrize("garbage_collect_values", [True, False])
def test_an_error_leaves_the_contexts_that_were_entered(garbage_collect_values: bool) -> None:
    events: list[Any] = []
    gm = in_contexts(events, 0)
    with pytest.raises(ZeroDivisionError):
        Interpreter(gm, garbage_collect_values).run(1)
    failed = "ZeroDivisionError"
    assert events == [
        ("enter", "first"), ("exit", "first", None), ("enter", "outer"), ("enter", "inner"),
        ("exit", "inner", failed), ("exit", "outer", failed),
    ]  # fmt: skip


def test_contexts_are_left_once_where_nothing_fails() -> None:
    events: list[Any] = []
    assert Interpreter(in_contexts(events, 2)).run(1) == 0.5
    assert [event[:2] for event in events[2:]] == [
        ("enter", "outer"), ("enter", "inner"), ("exit", "inner"), ("exit", "outer"),
    ]  # fmt: skip


@pytest.mark.parametrize("garbage_collect_values", [True, False])
def test_a_context_is_left_that_no_node_leaves(garbage_collect_values: bool) -> None:
    events: list[Any] = []

    def build(graph: Graph, x: Node) -> Node:
        graph.call_function(enter_context, (functools.partial(Recorder, events), "only"))
        graph.call_function(enter_context, (torch.no_grad,))
        graph.call_function(enter_context, (torch.autocast, "cpu"), {"dtype": torch.bfloat16})
        graph.call_function(raise_error, (ValueError, "no"))
        return x

    with pytest.raises(ValueError, match="no"):
        Interpreter(GraphModule(nn.Module(), graph_of(build)), garbage_collect_values).run(1)
    assert events == [("enter", "only"), ("exit", "only", "ValueError")]
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


CONTEXTS = [
    pytest.param((torch.no_grad,), {}, id="grad mode"),
    pytest.param((torch.autocast, "cpu"), {"dtype": torch.bfloat16}, id="autocast"),
    pytest.param((torch.inference_mode,), {}, id="inference mode"),
]


@pytest.mark.parametrize(("manager", "options"), CONTEXTS)
def test_a_context_is_left_by_an_error_that_the_program_catches(manager: Any, options: Any) -> None:
    events: list[Any] = []
    body = Graph()
    body.placeholder("x")
    outer = body.call_function(enter_context, (functools.partial(Recorder, events), "inside"))
    inner = body.call_function(enter_context, manager, options)
    body.call_function(raise_error, (KeyError, "it's"))
    for context in (inner, outer):
        body.call_function(exit_context, (context,))
    body.output(())

    def build(graph: Graph, x: Node) -> Any:
        options = {"errors": (KeyError,), "count": 0}
        made = graph.call_function(transformed, ("attempt", body, (), (x,), options))
        error = graph.call_function(operator.getitem, (made, 0))
        return graph.call_function(str, (error,)), graph.call_method("matmul", (x, x))

    gm = GraphModule(nn.Module(), graph_of(build))
    for run in (gm, Interpreter(gm).run):
        events.clear()
        text, value = run(torch.ones(2, 2, requires_grad=True))
        assert text == '"it\'s"'  # the message of the program's own error
        assert value.requires_grad and value.dtype is torch.float32 and not value.is_inference()
        assert events == [("enter", "inside"), ("exit", "inside", "KeyError")]

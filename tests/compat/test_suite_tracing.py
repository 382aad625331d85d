"""Symbolic tracing, as PyTorch's own tests of torch.fx expect it to behave."""

from __future__ import annotations

import builtins
import collections
import enum
import math
import operator
import warnings
from math import sqrt
from typing import Any, NamedTuple

import pytest
import torch
import torch.fx
from torch import nn

import graphwright


def ops(gm: Any) -> list[str]:
    return [node.name for node in gm.graph.nodes]


def a_lifted_leaf(a: Any, b: Any) -> Any:
    return a[0] + a[1] + b


def a_lifted_leaf2(a: Any, b: Any) -> Any:
    return a[0] + a[1] + b


@torch.fx.wrap
@graphwright.wrap
def decorated(a: Any) -> Any:
    return a + 1


for _package in (torch.fx, graphwright):
    _package.wrap("a_lifted_leaf")
    _package.wrap(a_lifted_leaf2)
    _package.wrap("len")
    _package.wrap("sqrt")
    _package.wrap("getattr")


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Color(enum.Enum):
    RED = 1


def test_functions_wrapped_by_name_and_by_decorator(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x, y: a_lifted_leaf((4, y), 3) + a_lifted_leaf((3, 4), 5) + a_lifted_leaf((y, y), y))
    assert ops(gm) == ["x", "y", "a_lifted_leaf", "add", "a_lifted_leaf_1", "add_1", "output"]
    assert gm(0, 7) == 14 + 12 + 21
    gm = fx.symbolic_trace(lambda x: decorated(x))
    assert ops(gm) == ["x", "decorated", "output"] and gm(1) == 2 and decorated(1) == 2


def test_builtins_and_imported_functions_can_be_wrapped(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: x + len(x))
    assert ops(gm) == ["x", "len_1", "add", "output"] and gm(torch.ones(3)).tolist() == [4, 4, 4]
    assert ops(fx.symbolic_trace(lambda x: sqrt(x))) == ["x", "sqrt", "output"]
    assert ops(fx.symbolic_trace(lambda x: getattr(x, "T"))) == ["x", "getattr_1", "output"]  # noqa: B009
    assert builtins.len([1]) == 1


def test_math_is_recorded(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: math.sqrt(x.size(0)) + math.floor(x.sum()))
    assert [node.target for node in gm.graph.nodes if node.op == "call_function"] == [
        math.sqrt,
        math.floor,
        operator.add,
    ]
    assert gm(torch.ones(4)) == 6 and math.sqrt(4) == 2


def test_wrap_takes_functions_and_names_at_module_scope(fx: Any) -> None:
    with pytest.raises(RuntimeError):
        fx.wrap(3)
    with pytest.raises(NotImplementedError):
        fx.wrap("later")


def test_tracers_can_wrap_more_modules_and_functions(fx: Any) -> None:
    graph = fx.Tracer(autowrap_functions=(plain,)).trace(lambda x: plain(x))
    assert [node.name for node in graph.nodes] == ["x", "plain", "output"]
    graph = fx.Tracer(autowrap_modules=(math, operator)).trace(lambda x: operator.add(math.exp(x), 1))
    assert [node.name for node in graph.nodes] == ["x", "exp", "add", "output"]


def plain(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (lambda x: set(x), "TraceError", "Proxy object cannot be iterated"),
        (lambda x: f(*x), "TraceError", "Proxy object cannot be iterated"),
        (lambda x: x.f({x: 1}), "RuntimeError", "Keys for dictionaries used as an argument cannot contain a Node"),
        (lambda x: x.__len__(), "RuntimeError", "'len' is not supported in symbolic tracing by default"),
        (lambda x: torch.relu(object()) + x, "TypeError", "must be Tensor, not object"),
        (lambda x: x + object(), "NotImplementedError", "argument of type"),
        (lambda x: list(range(x)), "TypeError", "Proxy"),
    ],
)
def test_refusals(fx: Any, program: Any, error: str, message: str) -> None:
    kind = fx.proxy.TraceError if error == "TraceError" else getattr(builtins, error)
    with pytest.raises(kind, match=message):
        fx.symbolic_trace(program)


def f(*args: Any) -> Any:
    return args


def test_unpacking(fx: Any) -> None:
    def program(x: Any) -> Any:
        a, (b, c) = x
        return a + b + c

    assert fx.symbolic_trace(program)((1, (2, 3))) == 6


class Classic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.stages = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 3)))
        self.param = nn.Parameter(torch.ones(3))
        self.register_buffer("buffer", torch.ones(3))
        self.plain = torch.ones(3)
        self.by = 2

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.stages(self.linear(x)) * self.param + self.buffer + self.plain + torch.ones(3) * self.by * scale


def test_parameters_buffers_and_constants_are_attributes(fx: Any) -> None:
    gm = fx.symbolic_trace(Classic())
    found = {node.target for node in gm.graph.nodes if node.op == "get_attr"}
    assert found == {"param", "buffer", "plain", "_tensor_constant0"}
    assert torch.equal(gm._tensor_constant0, torch.full((3,), 2.0))
    gm.graph.lint()


def test_leaf_modules_can_be_chosen(fx: Any) -> None:
    class All(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, qualname: str) -> bool:
            return True

    class None_(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, qualname: str) -> bool:
            return False

    assert [node.target for node in All().trace(Classic()).nodes if node.op == "call_module"] == ["linear", "stages"]
    assert not [node for node in None_().trace(Classic()).nodes if node.op == "call_module"]


def test_modules_outside_the_root_are_refused(fx: Any) -> None:
    outside = nn.Linear(2, 2)
    with pytest.raises(NameError, match="module is not installed as a submodule"):
        fx.symbolic_trace(Outside(outside))


class Outside(nn.Module):
    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.others = [other]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.others[0](x)


def test_parameters_outside_the_root_are_refused(fx: Any) -> None:
    outside = nn.Parameter(torch.ones(1))
    with pytest.raises(NameError, match="parameter is not a member of this module"):
        fx.symbolic_trace(lambda x: x + outside)


def test_objects_can_say_how_they_are_passed(fx: Any) -> None:
    class Own:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

        def __fx_create_arg__(self, tracer: Any) -> Any:
            return tracer.create_node("call_function", tuple, args=(tracer.create_arg([self.inside]),), kwargs={})

    graph = fx.Tracer().trace(lambda x: x.cat(Own(x)))
    assert [node.name for node in graph.nodes] == ["x", "tuple_1", "cat", "output"]


def test_tracers_can_take_other_arguments(fx: Any) -> None:
    class Custom(fx.Tracer):
        def create_arg(self, a: Any) -> Any:
            return "custom" if isinstance(a, collections.UserDict) else super().create_arg(a)

    graph = Custom().trace(lambda x: x.f(collections.UserDict()))
    assert list(graph.nodes)[1].args[1] == "custom"


def test_enums_and_named_tuples_are_arguments(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: (x.f(Color.RED), Pair(x, x)))
    assert list(gm.graph.nodes)[1].args[1] is Color.RED
    assert Pair in [node.target for node in gm.graph.nodes]
    gm = fx.symbolic_trace(lambda x: Pair(torch.relu(x), x))
    out = gm(torch.tensor(-1.0))
    assert isinstance(out, Pair) and out.x == 0


def test_proxies_can_be_of_another_class(fx: Any) -> None:
    class Point(fx.Proxy):
        def double(self) -> Any:
            return self * 2

    class Points(fx.Tracer):
        def proxy(self, node: Any) -> Any:
            return Point(node, self)

    graph = Points().trace(lambda x: x.double().double())
    assert [node.name for node in graph.nodes] == ["x", "mul", "mul_1", "output"]


def test_a_tracer_may_answer_control_flow(fx: Any) -> None:
    class Yes(fx.Tracer):
        def to_bool(self, obj: Any) -> bool:
            return True

        def iter(self, obj: Any) -> Any:
            return iter([obj[0], obj[1]])

        def keys(self, obj: Any) -> Any:
            return ["a"]

    graph = Yes().trace(lambda x: sum(x) if x else dict(**x))
    assert [node.target for node in graph.nodes][:3] == ["x", operator.getitem, operator.getitem]


def test_every_step_of_recording_can_be_overridden(fx: Any) -> None:
    seen: list[str] = []

    class Watching(fx.Tracer):
        def create_node(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(args[0])
            return super().create_node(*args, **kwargs)

        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            seen.append(self.path_of_module(m))
            return super().call_module(m, forward, args, kwargs)

        def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
            value = super().getattr(attr, attr_val, parameter_proxy_cache)
            if isinstance(value, fx.Proxy):
                seen.append(f"read {attr}")
            return value

    Watching().trace(Classic())
    for expected in ("linear", "stages", "stages.1", "read param", "output", "placeholder", "call_module"):
        assert expected in seen


def test_buffers_can_be_proxies(fx: Any) -> None:
    class Buffers(fx.Tracer):
        proxy_buffer_attributes = True

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.count.sum() + self.count

    nodes = list(Buffers().trace(Model()).nodes)
    assert [node.target for node in nodes if node.op == "get_attr"] == ["count"]


def test_parameter_shapes_can_be_constants(fx: Any) -> None:
    class Shapes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.param = nn.Parameter(torch.ones(4, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if self.param.shape[0] < 10 and self.param.dim() == 2 else x

    graph = fx.Tracer(param_shapes_constant=True).trace(Shapes())
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [operator.add]
    tracer = type("Refusing", (fx.Tracer,), {"control_flow": "error"})()
    with pytest.raises(fx.proxy.TraceError, match="cannot be used as inputs to control flow"):
        tracer.trace(Shapes())


# ---- inputs


def test_every_kind_of_parameter(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x, y=3, *args, **kwargs: x + y + args[0] + kwargs["z"])
    assert gm(1, 2, 3, z=4) == 10
    assert [node.target for node in gm.graph.nodes if node.op == "placeholder"] == ["x", "y", "*args", "**kwargs"]
    assert gm.graph.find_nodes(op="placeholder")[1].args == (3,)
    assert fx.symbolic_trace(Classic())(torch.ones(3), scale=2.0).shape == (3,)


def test_values_given_beforehand_are_checked(fx: Any) -> None:
    gm = fx.symbolic_trace(
        lambda x, flag, other=None: x * 2 if flag else x, concrete_args={"flag": True, "other": None}
    )
    assert gm(3, True, None) == 6
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        gm(3, False, None)
    with pytest.raises(AssertionError, match="other has been specialized to have value None"):
        gm(3, True, torch.ones(1))


def test_structured_inputs(fx: Any) -> None:
    def program(x: Any) -> Any:
        return x["a"] + x["b"][0] * x["b"][1]

    gm = fx.symbolic_trace(program, concrete_args={"x": {"a": fx.PH, "b": (fx.PH, fx.PH)}})
    assert len(gm.graph.find_nodes(op="placeholder")) == 3
    assert gm({"a": 1, "b": (2, 3)}) == 7
    gm.graph.lint()
    again = fx.symbolic_trace(gm, concrete_args={"x": {"a": fx.PH, "b": (fx.PH, fx.PH)}})
    assert again({"a": 1, "b": (2, 3)}) == 7


def test_structured_outputs(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: {"r": [x[0] + 1, x[1]], "n": None}, concrete_args={"x": [fx.PH, fx.PH]})
    assert gm([1, 2]) == {"r": [2, 2], "n": None}


def test_concrete_functions_are_kept(fx: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gm = fx.symbolic_trace(lambda x, function: function(x), concrete_args={"function": torch.relu})
    assert torch.relu in [node.target for node in gm.graph.nodes]


def test_annotations_are_carried(fx: Any) -> None:
    class Typed(nn.Module):
        def forward(self, x: torch.Tensor, sizes: list[int], flag: bool = False) -> tuple[torch.Tensor, int]:
            return x, sizes[0]

    gm = fx.symbolic_trace(Typed())
    types = [node.type for node in gm.graph.find_nodes(op="placeholder")]
    assert types[0] in (torch.Tensor, "torch.Tensor")
    assert "flag" in gm.code and gm(1, [2]) == (1, 2)


# ---- what nodes know


def test_stack_traces(fx: Any) -> None:
    class Recording(fx.Tracer):
        record_stack_traces = True

    for node in Recording().trace(Classic()).nodes:
        if node.op == "placeholder":
            assert node.stack_trace is None
        elif node.op == "call_function":
            assert "test_suite_tracing.py" in node.stack_trace
    for node in fx.Tracer().trace(Classic()).nodes:
        assert node.stack_trace is None


def test_the_stack_of_modules(fx: Any) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(x))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + 1

    gm = fx.symbolic_trace(Outer())
    stacks = {node.name: list((node.meta.get("nn_module_stack") or {}).values()) for node in gm.graph.nodes}
    assert [path for path, _ in stacks["inner_linear"]] == ["inner", "inner.linear"]
    assert [kind for _, kind in stacks["relu"]] == [Inner]
    again = fx.symbolic_trace(gm)
    assert [node.name for node in again.graph.nodes] == [node.name for node in gm.graph.nodes]


def test_a_trace_can_be_traced(fx: Any) -> None:
    gm = fx.symbolic_trace(Classic())
    again = fx.symbolic_trace(gm)
    assert ops(again) == ops(gm)
    x = torch.rand(2, 3)
    torch.testing.assert_close(again(x), gm(x))


def test_graph_modules_can_be_leaves(fx: Any) -> None:
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, qualname: str) -> bool:
            return isinstance(m, fx.GraphModule) or super().is_leaf_module(m, qualname)

    model = nn.Sequential(fx.symbolic_trace(Classic()), nn.ReLU())
    graph = Leaves().trace(model)
    assert [node.target for node in graph.nodes] == ["input", "0", "1", "output"]
    gm = fx.GraphModule(model, graph)
    torch.testing.assert_close(gm(torch.ones(3)), model(torch.ones(3)))


def test_operators_of_torch_ops(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.ops.aten.add.Tensor(torch.ops.aten.relu(x), 1))
    assert [node.target for node in gm.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.relu,
        torch.ops.aten.add.Tensor,
    ]
    assert "torch.ops.aten.add.Tensor" in gm.code and gm(torch.tensor(-1.0)) == 1


def test_asserts_can_be_recorded(fx: Any) -> None:
    def program(x: Any) -> Any:
        assert x > 0
        return x + 1

    tracer = type("Refusing", (fx.Tracer,), {"control_flow": "error"})()
    with pytest.raises(fx.proxy.TraceError, match="cannot be used as inputs to control flow"):
        tracer.trace(program)


def test_reflected_and_logical_operators(fx: Any) -> None:
    def program(x: Any) -> Any:
        return 2**x, 7 // x, 7 % x, 1 - x, x & 3, 3 | x, 1 << x, x >> 1, x ^ 1, ~x, -x, +x, abs(x), x != 2, x <= 3

    assert fx.symbolic_trace(program)(3) == program(3)


def test_mutable_operators_can_be_refused(fx: Any) -> None:
    class Strict(fx.Tracer):
        check_mutable_operations = True

    x = torch.ones(3)
    with pytest.raises(RuntimeError, match="mutable operation"):
        Strict().trace(lambda y: torch.relu_(y))
    with pytest.raises(RuntimeError, match="mutable operation"):
        Strict().trace(lambda y: torch.sigmoid(y, out=x))


def test_tracing_is_noticed(fx: Any) -> None:
    seen: list[bool] = []
    module = fx._symbolic_trace

    def program(x: Any) -> Any:
        seen.append(module.is_fx_tracing())
        return x

    fx.symbolic_trace(program)
    assert seen == [True] and not module.is_fx_tracing()

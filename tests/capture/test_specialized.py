"""`concrete_args`: values, structures and `PH`, beside torch.fx."""

import copy
import functools
import pickle
from collections import namedtuple
from typing import Any

import pytest
import torch
import torch.fx
from graphwright._pytree import register_pytree_flatten_spec, tree_flatten_spec
from graphwright._symbolic_trace import PHBase, PHWithMeta
from torch import nn
from torch.utils import _pytree as pytree

import graphwright
from graphwright import PH, TraceError

Pair = namedtuple("Pair", "a b")


def structured(x: Any, y: Any) -> Any:
    return {"sum": x["a"] + x["b"][0] + y, "pair": (x["b"][1],)}


def defaulted(a: Any, b: Any = 3) -> Any:
    return a + b


def flagged(a: Any, b: Any = None) -> Any:
    return a if b is None else a * 2


class Layer(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return [x["a"] * y, x["b"]]

    def other(self, x: Any, by: int = 2) -> Any:
        return x * by


for function in (structured, Layer.forward):  # torch.fx loses annotations where there is a structure
    function.__annotations__.clear()

CASES = [
    pytest.param(flagged, {"b": False}, (3, False), id="bool"),
    pytest.param(flagged, {"b": None}, (3,), id="None"),
    pytest.param(defaulted, {"b": 5}, (3, 5), id="int"),
    pytest.param(defaulted, {"b": 2.5}, (3, 2.5), id="float"),
    pytest.param(lambda a, b: a if b == "x" else -a, {"b": "x"}, (3, "x"), id="str"),
    pytest.param(lambda a, b: a + b[0], {"b": (1, 2)}, (3, (1, 2)), id="tuple of values"),
    pytest.param(defaulted, {"a": PH, "b": PH}, (1, 2), id="PH"),
    pytest.param(structured, {"x": {"a": PH, "b": (PH, PH)}}, ({"a": 1, "b": (2, 3)}, 4), id="structure"),
    pytest.param(structured, {"x": {"a": PH, "b": [PH, 3]}}, ({"a": 1, "b": [2, 3]}, 4), id="structure with a value"),
    pytest.param(lambda x, y: x.a + y, {"x": Pair(PH, PH)}, (Pair(1, 2), 3), id="named tuple"),
    pytest.param(defaulted, (PH, 2), (1, 2), id="by position"),
    pytest.param(lambda x, y: x + y[0], (PH, [PH]), (1, [2]), id="structure by position"),
    pytest.param(lambda x, *rest, **more: x, {"x": 2}, (2, 5), id="variadic"),
    pytest.param(Layer(), {"x": {"a": PH, "b": PH}, "y": 4}, ({"a": 1, "b": 2}, 4), id="module"),
]


@pytest.mark.parametrize(("program", "concrete", "args"), CASES)
def test_graphs_and_code_are_torch_fx_s(program: Any, concrete: Any, args: Any) -> None:
    leaf = lambda value: torch.fx.PH if value is PH else value  # noqa: E731
    theirs = torch.fx.symbolic_trace(program, concrete_args=pytree.tree_map(leaf, concrete))
    ours = graphwright.symbolic_trace(program, concrete_args=concrete)
    place = "graphwright.capture.symbolic.root_inputs", "torch.fx._symbolic_trace"
    assert str(ours.graph).replace(*place) == str(theirs.graph).replace("_operator.", "operator.")
    assert ours.code.replace("graphwright_capture_symbolic_root_inputs_", "torch.fx._symbolic_trace.") == theirs.code
    assert ours(*args) == theirs(*args) == program(*args)
    inputs = ours.graph.process_inputs(*args)
    assert list(inputs) == list(theirs.graph.process_inputs(*args))
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert other(*args) == program(*args)


def test_another_value_is_refused() -> None:
    gm = graphwright.symbolic_trace(structured, concrete_args={"x": {"a": PH, "b": [PH, 3]}})
    with pytest.raises(AssertionError, match="x has been specialized to have value 3 but got another value"):
        gm({"a": 1, "b": [2, 4]}, 4)
    with pytest.raises(AssertionError, match="b has been specialized to have value None"):
        graphwright.symbolic_trace(flagged, concrete_args={"b": None})(3, 4)


def test_a_value_that_cannot_be_checked_is_warned_about() -> None:
    for fx in (torch.fx, graphwright):
        with pytest.warns(UserWarning, match="Was not able to add assertion to guarantee correct input b"):
            gm = fx.symbolic_trace(defaulted, concrete_args={"b": torch.ones(2)})
        assert gm(1).tolist() == [2, 2]


def test_wrong_names_and_numbers_are_refused() -> None:
    with pytest.raises(TraceError, match="concrete_args names \\['z'\\]"):
        graphwright.symbolic_trace(defaulted, concrete_args={"z": 1})
    for fx in (torch.fx, graphwright):
        with pytest.raises(RuntimeError, match="Tracing expected 2 arguments but got 1 concrete arguments"):
            fx.symbolic_trace(defaulted, concrete_args=(1,))
    with pytest.raises(TraceError, match="not possible for a program that takes"):
        graphwright.symbolic_trace(lambda x, *rest: x, concrete_args={"x": [PH]})


def test_what_a_ph_knows_goes_to_its_placeholder() -> None:
    for fx in (torch.fx, graphwright):
        with_meta = fx._symbolic_trace.PHWithMeta("key")
        with_meta.rank = 2
        graph = fx.symbolic_trace(lambda x: x["a"], concrete_args={"x": {"a": with_meta}}).graph
        known = [(getattr(node, "ph_key", None), getattr(node, "rank", None), node.meta) for node in graph.nodes]
        assert known[0] == ("key", 2, {}) and known[1][:2] == (None, None)
    assert repr(PH) == "PH" and isinstance(PHWithMeta(), PHBase) and isinstance(PH, PHBase)


def test_a_default_before_a_structure() -> None:
    gm = graphwright.symbolic_trace(lambda x=1, y=(2,): x + y[0], concrete_args={"y": (PH,)})
    assert gm(3, (4,)) == 7


@pytest.mark.parametrize("value", [[1, [2, 3]], (1, {"a": 2}), Pair(1, (2,)), {"b": 1, "a": (2,)}, 5])
def test_values_are_taken_apart_as_in_torch_fx(value: Any) -> None:
    leaves, spec = pytree.tree_flatten(value)
    assert tree_flatten_spec(value, spec) == torch.fx._pytree.tree_flatten_spec(value, spec) == leaves


def test_a_class_may_be_taken_apart() -> None:
    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    other = pytree.TreeSpec(Box, None, [pytree.tree_structure(1)])
    with pytest.raises(RuntimeError, match="does not have a flatten_fn_spec"):
        tree_flatten_spec(Box(2), other)
    register_pytree_flatten_spec(Box, lambda box, spec: [box.value])
    assert tree_flatten_spec(Box(2), other) == [2]


def test_methods_and_partials() -> None:
    layer = Layer()
    programs = (layer.other, functools.partial(layer.other, by=3), functools.partial(defaulted, b=1))
    for program in (*programs, functools.partial(functools.partial(defaulted), 4)):
        gm = graphwright.symbolic_trace(program)
        assert gm(5) == program(5)


def test_keyword_only_parameters_stay_so() -> None:
    def program(x: Any, *, by: Any = 2) -> Any:
        return x * by

    gm = graphwright.symbolic_trace(program)
    assert gm(2, by=5) == 10 and gm(2) == 4
    with pytest.raises(TypeError):
        gm(2, 5)


def test_items_of_starred_arguments() -> None:
    def program(a: Any, *rest: Any) -> Any:
        return a + rest[0] * rest[1]

    gm = graphwright.symbolic_trace(program, concrete_args=(PH, PH, PH))
    assert gm(2, 3, 4) == 14
    with pytest.raises(RuntimeError, match="expected 1 arguments but got 2"):
        graphwright.symbolic_trace(lambda x: x, concrete_args=(PH, PH))


@pytest.mark.parametrize("nothing", [[], {}, ([], {})])
def test_structures_without_values(nothing: Any) -> None:
    gm = graphwright.symbolic_trace(lambda x: len(x) + 1, concrete_args={"x": nothing})
    assert gm(nothing) == len(nothing) + 1


def test_what_a_tracer_has_noted_of_an_input_stays() -> None:
    class Noting(graphwright.Tracer):
        def create_node(self, *args: Any, **kwargs: Any) -> Any:
            node = super().create_node(*args, **kwargs)
            node.ph_key = "of the tracer"
            return node

    [node, *_] = Noting().trace(lambda x: x + 1, concrete_args={"x": PHWithMeta("of the input")}).nodes
    assert node.ph_key == "of the tracer"  # type: ignore[attr-defined]


def test_self_among_starred_arguments() -> None:
    class Starred(nn.Module):
        def forward(*args: Any, **kwargs: Any) -> Any:
            return args[1]

    with pytest.raises(TraceError, match="cannot be part of"):
        graphwright.symbolic_trace(Starred())

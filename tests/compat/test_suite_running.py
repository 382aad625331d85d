"""Interpreter, Transformer and code generators, as PyTorch's own tests of torch.fx expect them to behave."""

import operator
from typing import Any

import pytest
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.param = nn.Parameter(torch.rand(3))
        self.stages = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x: torch.Tensor, y: float = 2.0) -> torch.Tensor:
        return self.stages(self.linear(x + self.param)).clamp(min=0.0) * y


X = torch.rand(2, 3)


def test_an_interpreter_does_what_the_module_does(fx: Any) -> None:
    gm = fx.symbolic_trace(Model())
    torch.testing.assert_close(fx.Interpreter(gm).run(X), gm(X))
    torch.testing.assert_close(fx.Interpreter(gm).run(X, 3.0), gm(X, 3.0))
    boxed = [X, 3.0]
    torch.testing.assert_close(fx.Interpreter(gm).boxed_run(boxed), gm(X, 3.0))
    assert boxed == []


def test_every_step_can_be_overridden(fx: Any) -> None:
    seen: list[str] = []

    class Watch(fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            seen.append(n.name)
            return super().run_node(n)

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(operator.sub if target is operator.add else target, args, kwargs)

        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            assert target == "clamp" and kwargs == {"min": 0.0}
            return super().call_method(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            assert isinstance(self.fetch_attr(target), nn.Module)
            return super().call_module(target, args, kwargs)

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().get_attr(target, args, kwargs) * 0

        def output(self, target: Any, args: Any, kwargs: Any) -> Any:
            return ("done", super().output(target, args, kwargs))

    gm = fx.symbolic_trace(Model())
    word, value = Watch(gm).run(X)
    assert word == "done" and seen == [node.name for node in gm.graph.nodes]
    torch.testing.assert_close(value, gm.get_submodule("stages.1")(torch.relu(gm.linear(X))).clamp(min=0.0) * 2)


def test_values_given_beforehand(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    relu = list(gm.graph.nodes)[1]
    assert fx.Interpreter(gm).run(torch.tensor(1.0), initial_env={relu: torch.tensor(41.0)}) == 42


def test_missing_inputs_are_named(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x, y: x + y)
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter y, but one was not passed in"):
        fx.Interpreter(gm).run(torch.ones(1))


def test_values_are_freed_after_their_last_use(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)))
    freeing, keeping = fx.Interpreter(gm), fx.Interpreter(gm, garbage_collect_values=False)
    freeing.run(X)
    keeping.run(X)
    assert len(freeing.env) < len(keeping.env) == len(gm.graph.nodes)


def test_another_graph_of_the_module_can_be_run(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.neg(x))
    other = fx.symbolic_trace(lambda x: torch.abs(x)).graph
    assert fx.Interpreter(gm, graph=other).run(torch.tensor(-3.0)) == 3


def test_variadic_inputs(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x, *rest: x + rest[0] + rest[1])
    assert fx.Interpreter(gm).run(1, 2, 3) == 6


def test_errors_name_the_node(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(x) @ x)
    with pytest.raises(RuntimeError) as error:
        fx.Interpreter(gm).run(X)
    assert "While executing %matmul" in "\n".join([str(error.value), *getattr(error.value, "__notes__", [])])


def test_a_transformer_that_changes_nothing(fx: Any) -> None:
    gm = fx.symbolic_trace(Model())
    new = fx.Transformer(gm).transform()
    assert [(node.op, node.name, node.target) for node in new.graph.nodes] == [
        (node.op, node.name, node.target) for node in gm.graph.nodes
    ]
    torch.testing.assert_close(new(X), gm(X))


def test_a_transformer_swaps_operations(fx: Any) -> None:
    class Swap(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is operator.add:
                return torch.mul(torch.sin(args[0]), args[1])
            return super().call_function(target, args, kwargs)

        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            return self.tracer.create_proxy("call_method", "relu", args[:1], {}) if target == "neg" else args[0]

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_module(target, args, kwargs)

    new = Swap(fx.symbolic_trace(lambda x: (x + 3).neg())).transform()
    assert [node.name for node in new.graph.nodes] == ["x", "sin", "mul", "relu", "output"]
    new.graph.lint()


def test_a_transformer_of_several_outputs_and_parameters(fx: Any) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.rand(3))

        def forward(self, x: torch.Tensor, *, k: int = 1) -> Any:
            return x + self.p, {"twice": self.p * 2}

    gm = fx.symbolic_trace(Two())
    first, second = gm(X), fx.Transformer(gm).transform()(X)
    torch.testing.assert_close(first, second)


def test_meta_is_kept_by_transformers(fx: Any) -> None:
    gm = fx.symbolic_trace(Model())
    for node in gm.graph.nodes:
        node.meta["note"] = node.name
        node.stack_trace = f"at {node.name}"
    new = fx.Transformer(gm).transform()
    assert {node.stack_trace for node in new.graph.nodes if node.op == "call_function"} == {"at add", "at mul"}


# ---- code generators


def make_codegen(fx: Any) -> Any:
    class ListCodeGen(fx.CodeGen if hasattr(fx, "CodeGen") else fx.graph.CodeGen):
        def gen_fn_def(self, free_vars: Any, maybe_return_annotation: Any) -> str:
            lst_unpack = ", ".join(var.split(" ")[0] for var in free_vars)
            return f"def forward(self, args_list: List){maybe_return_annotation}:\n    {lst_unpack}, = args_list"

        def additional_globals(self) -> Any:
            return [("List", list)]

        def process_inputs(self, *inputs: Any) -> Any:
            assert len(inputs) == 1
            return inputs[0]

    return ListCodeGen()


def test_a_code_generator_changes_the_signature(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x, y: x + y)
    gm.graph.set_codegen(make_codegen(fx))
    gm.recompile()
    assert gm([1, 2]) == 3 and "args_list: List" in gm.code
    assert gm.graph.process_inputs([1, 2]) == [1, 2]
    assert fx.Interpreter(gm).run([1, 2]) == 3


def test_a_code_generator_survives_transformers_and_copies(fx: Any) -> None:
    import copy

    gm = fx.symbolic_trace(lambda x, y: x + y)
    gm.graph.set_codegen(make_codegen(fx))
    gm.recompile()
    assert copy.deepcopy(gm)([1, 2]) == 3


def test_code_can_be_transformed(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(x))

    def with_comment(body: list[str]) -> list[str]:
        return ["value = 3\n", *body]

    with gm.graph.on_generate_code(lambda current: with_comment):
        gm.recompile()
        assert "value = 3" in gm.code
    gm.recompile()
    assert "value = 3" not in gm.code


def test_verbose_code_shows_where_nodes_come_from(fx: Any) -> None:
    class Recording(fx.Tracer):
        record_stack_traces = True

    model = Model()
    gm = fx.GraphModule(model, Recording().trace(model))
    assert "# File:" in gm.graph.python_code("self", verbose=True).src


def test_shapes_are_found(fx: Any) -> None:
    import importlib

    shape_prop = importlib.import_module(f"{fx.__name__}.passes.shape_prop")
    gm = fx.symbolic_trace(Model())
    shape_prop.ShapeProp(gm).propagate(X)
    meta = gm.graph.output_node().args[0].meta["tensor_meta"]
    assert meta.shape == (2, 3) and meta.dtype is torch.float32 and meta.stride == (3, 1)

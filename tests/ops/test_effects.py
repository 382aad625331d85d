"""What each operation does beyond computing a value, beside the twin that does no more than that."""

from __future__ import annotations

import functools
import math
import operator
import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphwright import Graph, Node
from graphwright.ops import enter_context, is_impure, is_inplace, is_random


def call(target: Any, *args: Any, **kwargs: Any) -> Callable[[Graph], Node]:
    """Make a node that calls a function, or a method where the target is a name; "x" stands for an input."""

    def make(graph: Graph) -> Node:
        x = graph.placeholder("x")
        values = tuple(x if isinstance(arg, str) and arg == "x" else arg for arg in args)
        keywords = {key: x if isinstance(arg, str) and arg == "x" else arg for key, arg in kwargs.items()}
        if isinstance(target, str):
            return graph.call_method(target, values, keywords)
        return graph.call_function(target, values, keywords)

    return make


def unknown(x: Any) -> Any:
    """A function that the library cannot know."""
    return x


aten = torch.ops.aten
RUNNING = ("x", "x", "x", None, None)  # input, running mean and variance, weight and bias

INPLACE = [
    call("add_", "x", 1),
    call("copy_", "x", "x"),
    call("__iadd__", "x", 1),
    call("__setitem__", "x", 0, 1),
    call("clamp", "x", 0, out="x"),
    call(operator.iadd, "x", 1),
    call(operator.ior, "x", 1),
    call(operator.setitem, "x", 0, 1),
    call(operator.delitem, "x", 0),
    call(setattr, "x", "grad", None),
    call(torch.relu_, "x"),
    call(torch.Tensor.mul_, "x", 2),
    call(torch.add, "x", 1, out="x"),
    call(F.relu, "x", inplace=True),
    call(F.relu, "x", True),
    call(F.relu, "x", "x"),  # whether in place is known only when the graph runs
    call(F.threshold, "x", 0.1, 20, True),
    call(F.dropout, "x", 0.5, False, True),
    call(F.batch_norm, *RUNNING, True),
    call(F.batch_norm, *RUNNING, training="x"),
    call(F.instance_norm, "x", "x", "x"),
    call(F.embedding, "x", "x", None, 1.0),
    call(F.embedding, "x", "x", max_norm=1.0),
    call(aten.add_.Tensor, "x", "x"),
    call(aten.add.out, "x", "x", out="x"),
    call(nn.init.zeros_, "x"),
]
NOT_INPLACE = [
    call("add", "x", 1),
    call("__add__", "x", 1),
    call("__getitem__", "x", 0),
    call("clamp", "x", 0, out=None),
    call(operator.add, "x", 1),
    call(operator.and_, "x", 1),
    call(operator.or_, "x", 1),
    call(operator.getitem, "x", 0),
    call(torch.relu, "x"),
    call(torch.add, "x", 1),
    call(F.relu, "x"),
    call(F.relu, "x", inplace=False),
    call(F.relu, "x", False),
    call(F.threshold, "x", 0.1, 20),
    call(F.batch_norm, *RUNNING, False),
    call(F.batch_norm, *RUNNING),
    call(F.instance_norm, "x", use_input_stats=False),
    call(F.embedding, "x", "x", None),
    call(aten.add.Tensor, "x", "x"),
]
RANDOM = [
    call(torch.rand, 3),
    call(torch.randn, (2, 3)),
    call(torch.randint, 0, 5, (2,)),
    call(torch.rand_like, "x"),
    call(torch.bernoulli, "x"),
    call("bernoulli", "x"),
    call("multinomial", "x", 2),
    call(torch.manual_seed, 0),
    call(F.dropout, "x"),
    call(F.dropout, "x", 0.5, True),
    call(F.dropout, "x", training="x"),
    call(torch.dropout, "x", 0.5, True),
    call(F.dropout2d, "x"),
    call(F.feature_alpha_dropout, "x", 0.5, True),
    call(F.rrelu, "x", training=True),
    call(F.gumbel_softmax, "x"),
    call(F.fractional_max_pool2d, "x", 2, 3),
    call(F.scaled_dot_product_attention, "x", "x", "x", None, 0.1),
    call(F.scaled_dot_product_attention, "x", "x", "x", dropout_p="x"),
    call(aten.rand.default, (2,)),
    call(aten.native_dropout.default, "x", 0.5, True),
    call(aten.bernoulli, "x"),
]
NOT_RANDOM = [
    call(torch.zeros, 3),
    call(torch.arange, 3),
    call(F.dropout, "x", training=False),
    call(F.dropout, "x", 0.5, False),
    call(torch.dropout, "x", 0.5, False),
    call(F.dropout2d, "x", training=False),
    call(F.rrelu, "x"),
    call(F.scaled_dot_product_attention, "x", "x", "x"),
    call(F.scaled_dot_product_attention, "x", "x", "x", None, 0.0),
    call(F.scaled_dot_product_attention, "x", "x", "x", dropout_p=0.0),
    call(F.max_pool2d, "x", 2),
    call(aten.relu.default, "x"),
    call(aten.add, "x", "x"),
]
ACTING = [
    call(print, "x"),
    call(next, "x"),
    call(exec, "x"),
    call(torch._assert, "x", "message"),
    call(torch._assert_async, "x"),
    call(torch._check, "x"),
    call(torch.set_grad_enabled, False),
    call(torch._C._set_grad_enabled, False),
    call(torch.set_num_threads, 1),
    call(torch.save, "x", "file"),
    call(enter_context, torch.no_grad),
    call(nn.Linear, 2, 3),
    call(torch.Tensor.backward, "x"),
    call("backward", "x"),
    call("register_hook", "x", print),
    call("append", "x", 1),
    call("step", "x"),
    call(list.append, "x", 1),
    call(dict.update, "x", "x"),
    call(unknown, "x"),
    call(lambda x: x, "x"),
    call(nn.ReLU(), "x"),
    call(random.random),
    call(time.time),
    call(numpy.add, "x", 1),
]
PURE = [
    call(len, "x"),
    call(getattr, "x", "shape"),
    call(isinstance, "x", torch.Tensor),
    call(math.sqrt, "x"),
    call(operator.neg, "x"),
    call(torch.cat, ["x"], 1),
    call(torch.einsum, "i->", "x"),
    call(torch.tensor, 3),
    call(torch.Size, (1, 2)),
    call(torch.device, "cpu"),
    call(torch.fft.fft, "x"),
    call(torch.linalg.norm, "x"),
    call(torch.special.expit, "x"),
    call(torch.sym_max, "x", 1),
    call(torch.Tensor.add, "x", 1),
    call(torch.Tensor.shape.__get__, "x"),
    call(F.gelu, "x"),
    call(F.interpolate, "x", 2),
    call(F.layer_norm, "x", (2,)),
    call(str.upper, "x"),
    call("size", "x", 0),
    call("view", "x", -1),
    call("items", "x"),
]


def made(make: Callable[[Graph], Node]) -> Node:
    return make(Graph())


def described(case: Callable[[Graph], Node]) -> str:
    node = made(case)
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "object")
    return f"{target}{node.args}{node.kwargs}"


@pytest.mark.parametrize("case", INPLACE, ids=described)
def test_writes_to_an_argument(case: Callable[[Graph], Node]) -> None:
    assert is_inplace(made(case))
    assert is_impure(made(case))


@pytest.mark.parametrize("case", NOT_INPLACE, ids=described)
def test_writes_to_nothing(case: Callable[[Graph], Node]) -> None:
    assert not is_inplace(made(case))
    assert not is_impure(made(case))


@pytest.mark.parametrize("case", RANDOM, ids=described)
def test_draws_random_numbers(case: Callable[[Graph], Node]) -> None:
    assert is_random(made(case))
    assert is_impure(made(case))


@pytest.mark.parametrize("case", NOT_RANDOM, ids=described)
def test_draws_no_random_numbers(case: Callable[[Graph], Node]) -> None:
    assert not is_random(made(case))
    assert not is_impure(made(case))


@pytest.mark.parametrize("case", ACTING, ids=described)
def test_does_something_or_is_unknown(case: Callable[[Graph], Node]) -> None:
    assert is_impure(made(case))
    assert not is_random(made(case))


@pytest.mark.parametrize("case", PURE, ids=described)
def test_only_computes(case: Callable[[Graph], Node]) -> None:
    assert not is_impure(made(case))


# ---- modules


class Own(nn.Module):
    """A module that the library cannot know."""

    def forward(self, x: Any) -> Any:
        return x


def lazy() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Lazy modules are a new feature"
        return nn.LazyLinear(2)


def hooked() -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda *args: None)
    return module


IMPURE_MODULES = [
    nn.Dropout(),
    nn.Dropout(inplace=True),
    nn.BatchNorm1d(2),
    nn.InstanceNorm1d(2, track_running_stats=True),
    nn.ReLU(inplace=True),
    nn.ReLU(inplace=True).eval(),
    nn.LSTM(2, 2, 2, dropout=0.5),
    nn.MultiheadAttention(2, 1, dropout=0.1),
    nn.TransformerEncoderLayer(4, 2),
    nn.RReLU(),
    nn.Embedding(2, 2, max_norm=1.0).eval(),
    nn.FractionalMaxPool2d(2, 3).eval(),
    lazy(),
    nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
    nn.Sequential(nn.ReLU(inplace=True)).eval(),
    nn.Sequential(Own()).eval(),
    nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)),
    hooked().eval(),
    Own(),
    None,
]
PURE_MODULES = [
    nn.Dropout().eval(),
    nn.Dropout(inplace=True).eval(),
    nn.BatchNorm1d(2).eval(),
    nn.BatchNorm1d(2, track_running_stats=False),
    nn.ReLU(),
    nn.LSTM(2, 2, 2),
    nn.LSTM(2, 2, 2, dropout=0.5).eval(),
    nn.MultiheadAttention(2, 1),
    nn.TransformerEncoderLayer(4, 2).eval(),
    nn.RReLU().eval(),
    nn.Embedding(2, 2),
    nn.Linear(2, 2),
    nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval(),
]


BY_MODE = [nn.Dropout(), nn.BatchNorm1d(2), nn.RReLU(), nn.LSTM(2, 2, 2, dropout=0.5), nn.TransformerEncoderLayer(4, 2)]
RANDOM_MODULES = [nn.Dropout().eval(), nn.RReLU(), nn.LSTM(2, 2, 2, dropout=0.5), nn.Sequential(nn.Dropout2d())]


@pytest.mark.parametrize("module", BY_MODE, ids=repr)
def test_modules_that_do_more_in_training(module: nn.Module) -> None:
    module.eval()
    node = Graph().call_module("m")
    assert not is_impure(node, module)
    assert is_impure(node, module, in_any_mode=True)
    assert not is_impure(node, nn.Linear(2, 2), in_any_mode=True)


@pytest.mark.parametrize("module", RANDOM_MODULES, ids=repr)
def test_modules_that_draw_random_numbers(module: nn.Module) -> None:
    assert is_random(Graph().call_module("m"), module)
    assert not any(is_random(Graph().call_module("m"), other) for other in (None, nn.Linear(2, 2), nn.BatchNorm1d(2)))


@pytest.mark.parametrize("module", IMPURE_MODULES, ids=repr)
def test_modules_that_do_more(module: nn.Module | None) -> None:
    assert is_impure(Graph().call_module("m"), module)


@pytest.mark.parametrize("module", PURE_MODULES, ids=repr)
def test_modules_that_only_compute(module: nn.Module) -> None:
    assert not is_impure(Graph().call_module("m"), module)


def test_inputs_and_outputs_stay_and_attributes_go() -> None:
    graph = Graph()
    assert is_impure(graph.placeholder("x"))
    assert not is_impure(graph.get_attr("weight"))
    assert is_impure(graph.output(None))


def test_a_function_without_a_hash_is_unknown() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> None: ...

    assert is_impure(Graph().call_function(Unhashable()))


def test_seeding_is_known_in_the_wrapper_that_torch_compile_puts_around_it() -> None:
    @functools.wraps(torch.random.seed)
    def seed() -> int:
        return torch.random.seed()

    assert is_random(made(lambda graph: graph.call_function(seed)))

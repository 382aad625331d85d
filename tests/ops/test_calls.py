"""Spellings of one operation are one call, and what is no such spelling is another."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphwright import Graph, GraphModule, Node
from graphwright.ops import Call, aliases_of, call_of, key_of, kind_of, operator_of, operator_of_target, parameters_of

aten = torch.ops.aten
graph = Graph()
x, y, w = (graph.placeholder(name) for name in "xyw")


def f(target: Any, *args: Any, **kwargs: Any) -> Node:
    return graph.call_function(target, args, kwargs)


def m(name: str, *args: Any, **kwargs: Any) -> Node:
    return graph.call_method(name, args, kwargs)


SAME = {
    "sum over one": [
        f(torch.sum, x, 1), f(torch.sum, x, dim=1), m("sum", x, dim=[1]), m("sum", x, axis=1), m("sum", x, (1,)),
        f(aten.sum.dim_IntList, x, [1]), f(torch.sum, x, dim=1, keepdims=False),
    ],
    "sum of all": [f(torch.sum, x), m("sum", x), f(aten.sum.default, x), f(torch.sum, x, dim=None)],
    "relu": [
        f(torch.relu, x), m("relu", x), f(F.relu, x), f(F.relu, x, inplace=False), f(aten.relu.default, x),
        f(torch.Tensor.relu, x), f(aten.relu, x), f(F.relu, input=x),
    ],
    "relu in place": [f(torch.relu_, x), m("relu_", x), f(F.relu, x, True), f(F.relu_, x), f(aten.relu_.default, x)],
    "add": [
        f(operator.add, x, y), f(torch.add, x, y), m("add", x, y), m("__add__", x, y), f(aten.add.Tensor, x, y),
        m("__radd__", y, x), f(torch.add, x, other=y, alpha=1),
    ],
    "add in place": [f(operator.iadd, x, y), m("add_", x, y), m("__iadd__", x, y), f(aten.add_.Tensor, x, y)],
    "sub": [f(operator.sub, 1, x), f(torch.rsub, x, 1), m("__rsub__", x, 1), f(torch.subtract, 1, x)],
    "pow": [f(operator.pow, x, 2), f(torch.pow, x, 2), m("pow", x, 2), m("__pow__", x, 2), m("pow", x, exponent=2)],
    "rpow": [f(operator.pow, 2, x), f(torch.pow, 2, x), m("__rpow__", x, 2)],
    "div": [
        f(operator.truediv, x, y), f(torch.div, x, y), f(torch.true_divide, x, y), m("div", x, y, rounding_mode=None),
        f(aten.div.Tensor, x, y), f(torch.divide, x, y),
    ],
    "lt": [f(operator.lt, x, y), f(torch.lt, x, y), m("less", x, y), m("__lt__", x, y)],
    "neg": [f(operator.neg, x), f(torch.neg, x), m("negative", x), m("__neg__", x)],
    "matmul": [f(operator.matmul, x, y), f(torch.matmul, x, y), m("__matmul__", x, y), f(torch.linalg.matmul, x, y)],
    "view": [m("view", x, 2, 3), m("view", x, (2, 3)), m("view", x, [2, 3]), m("view", x, size=(2, 3))],
    "view to one": [m("view", x, -1), m("view", x, (-1,))],
    "permute": [m("permute", x, 0, 2, 1), f(torch.permute, x, (0, 2, 1)), f(torch.permute, x, dims=[0, 2, 1])],
    "transpose": [m("transpose", x, 1, 2), m("swapaxes", x, 1, 2), f(torch.transpose, x, dim0=1, dim1=2)],
    "size": [m("size", x), f(getattr, x, "shape"), f(torch.Tensor.shape.__get__, x)],
    "one size": [m("size", x, 1), m("size", x, dim=1), f(aten.size.int, x, 1)],
    "T": [f(getattr, x, "T"), f(torch.Tensor.T.__get__, x)],
    "to float": [
        m("float", x), m("to", x, torch.float32), m("to", x, dtype=torch.float32), m("to", x, None, torch.float32),
    ],
    "to cpu": [m("to", x, "cpu"), m("to", x, torch.device("cpu")), m("cpu", x), m("to", x, device="cpu")],
    "to another": [m("to", x, y), m("to", x, other=y)],
    "softmax": [
        f(F.softmax, x, 1), m("softmax", x, 1), m("softmax", x, dim=1), f(torch.softmax, x, dim=1),
        f(aten.softmax.int, x, 1), f(torch.special.softmax, x, 1), f(F.softmax, x, 1, 5),
    ],
    "sigmoid": [f(torch.sigmoid, x), f(F.sigmoid, x), m("sigmoid", x), f(torch.special.expit, x)],
    "batch norm": [
        f(F.batch_norm, x, y, w, None, None, False, 0.1, 1e-5),
        f(torch.batch_norm, x, None, None, y, w, False, 0.1, 1e-5, True), f(F.batch_norm, x, y, w),
    ],
    "layer norm": [
        f(F.layer_norm, x, (3,), y, None), f(torch.layer_norm, x, [3], y, None, 1e-5), f(F.layer_norm, x, (3,), y),
    ],
    "embedding": [f(F.embedding, x, w), f(torch.embedding, w, x), f(aten.embedding.default, w, x)],
    "max pool": [
        f(F.max_pool2d, x, 2), f(torch.max_pool2d, x, 2), f(F.max_pool2d, x, (2, 2), 2),
        f(aten.max_pool2d.default, x, [2, 2]), f(F.max_pool2d, x, 2, return_indices=False),
    ],
    "max pool with indices": [f(F.max_pool2d_with_indices, x, 2), f(F.max_pool2d, x, 2, return_indices=True)],
    "conv": [f(F.conv2d, x, w), f(torch.conv2d, x, w, None, 1), f(F.conv2d, x, w, stride=(1, 1), padding=0)],
    "conv of the same size": [f(F.conv2d, x, w, padding="same"), f(torch.conv2d, x, w, None, 1, "same")],
    "max over one": [f(torch.max, x, 1), m("max", x, dim=1), f(torch.max, x, 1, False)],
    "loss": [
        f(F.mse_loss, x, y), f(aten.mse_loss.default, x, y, 1), f(F.mse_loss, x, y, reduction="mean"),
        f(F.mse_loss, x, y, size_average=True),
    ],
    "std": [f(torch.std, x, 1), f(torch.std, x, dim=1, unbiased=True), m("std", x, [1], correction=1)],
    "cat": [f(torch.cat, [x, y], 1), f(torch.cat, (x, y), dim=1), f(torch.concat, [x, y], axis=1)],
    "dropout": [f(F.dropout, x, 0.5, True), f(torch.dropout, x, 0.5, True), f(F.dropout, x)],
    "split": [m("split", x, 2, 1), f(torch.split, x, 2, 1), f(aten.split.Tensor, x, 2, 1), f(torch.split, x, 2, dim=1)],
    "all": [f(torch.all, x, 1), m("all", x, dim=(1,))],
    "squeeze": [f(torch.squeeze, x, 1), m("squeeze", x, (1,))],
    "gelu": [f(F.gelu, x), f(F.gelu, x, approximate="none"), f(aten.gelu.default, x)],
    "einsum": [f(torch.einsum, "ij,jk", x, y), f(torch.einsum, "ij,jk", [x, y])],
    "attention": [f(F.scaled_dot_product_attention, x, y, w), f(aten.scaled_dot_product_attention.default, x, y, w)],
    "flatten": [m("flatten", x, 1), f(torch.flatten, x, 1), f(torch.flatten, x, 1, -1)],
    "zeros": [f(torch.zeros, 2, 3), f(torch.zeros, (2, 3)), f(torch.zeros, size=(2, 3))],
    "clamp": [m("clamp", x, 0), m("clip", x, min=0), f(torch.clamp, x, 0, None)],
    "where": [f(torch.where, x, y, w), m("where", y, x, w), f(aten.where.self, x, y, w)],
    "getitem": [f(operator.getitem, x, (0, slice(None))), m("__getitem__", x, (0, slice(None)))],
}  # fmt: skip
OTHER = {
    "another dimension": (m("sum", x, 1), m("sum", x, 2)),
    "kept dimension": (m("sum", x, 1), m("sum", x, 1, True)),
    "all and one": (m("sum", x), m("sum", x, 1)),
    "in place or not": (m("relu", x), m("relu_", x)),
    "in place by a flag": (f(F.relu, x), f(F.relu, x, True)),
    "written elsewhere": (f(torch.add, x, y), f(torch.add, x, y, out=w)),
    "order of arguments": (f(operator.sub, x, y), f(operator.sub, y, x)),
    "alpha": (f(torch.add, x, y), f(torch.add, x, y, alpha=2)),
    "maximum over a dimension": (f(torch.max, x, 1), f(torch.max, x, y)),
    "rounding": (f(torch.div, x, y), f(torch.div, x, y, rounding_mode="floor")),
    "sections": (m("split", x, 2), m("split", x, [2])),
    "unfolding images": (f(F.unfold, x, 2), m("unfold", x, 2, 2, 2)),
    "biased": (f(torch.std, x, 1), f(torch.std, x, 1, unbiased=False)),
    "shape or type": (m("view", x, 2), m("view", x, torch.int32)),
    "indices": (f(F.adaptive_max_pool2d, x, 2), f(torch.ops.aten.adaptive_max_pool2d.default, x, 2)),
    "training": (f(F.dropout, x, 0.5, True), f(F.dropout, x, 0.5, False)),
    "one or a list of one": (f(operator.getitem, x, 0), f(operator.getitem, x, slice(0, 1))),
}


def bound(node: Node) -> Call:
    call = call_of(node)
    assert call is not None, node.format_node()
    return call


@pytest.mark.parametrize("nodes", SAME.values(), ids=SAME.keys())
def test_spellings_of_one_call(nodes: list[Node]) -> None:
    first, *others = map(bound, nodes)
    assert [call for call in others if call != first] == []
    assert {key_of(node) for node in nodes} == {first.key}


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER.keys())
def test_other_calls(one: Node, other: Node) -> None:
    assert bound(one) != bound(other)


WRITES = [
    (m("add_", x, 1), ("input",)), (f(F.relu, x, inplace=y), ("input",)), (f(torch.add, x, y, out=w), ("out",)),
    (f(operator.setitem, x, 0, y), ("input",)), (f(F.batch_norm, x, y, w), ()), (f(F.embedding, x, w), ()),
    (f(F.batch_norm, x, y, w, training=True), ("running_mean", "running_var")), (m("copy_", x, y), ("input",)),
    (f(F.embedding, x, w, max_norm=1.0), ("weight",)), (f(torch.embedding, w, x, 0, True), ()), (f(F.relu, x), ()),
    (f(torch.max, x, 1, out=(y, w)), ("out",)), (f(aten.add.out, x, y, out=w), ("out",)), (f(F.elu_, x), ("input",)),
    (f(aten._foreach_add_.Scalar, [x, y], 1), ("input",)),
]  # fmt: skip


@pytest.mark.parametrize(("node", "writes"), WRITES, ids=lambda value: str(value))
def test_what_a_call_writes(node: Node, writes: tuple[str, ...]) -> None:
    assert bound(node).writes == writes


ALIASES = [
    (m("view", x, 2), [(0, "input")]), (m("unbind", x), [(None, "input")]), (m("chunk", x, 2), [(None, "input")]),
    (f(torch.split, x, 2), [(None, "input")]), (m("reshape", x, 2), [(0, "input")]),
    (m("contiguous", x), [(0, "input")]),
    (m("float", x), [(0, "input")]), (m("add_", x, 1), [(0, "input")]), (m("add", x, 1), []), (m("sort", x), []),
    (f(F.dropout, x), [(None, "input")]), (f(operator.getitem, x, 0), [(None, "input")]), (f(torch.cat, [x]), []),
    (f(torch.broadcast_tensors, x, y), [(None, "tensors")]), (f(aten.t.default, x), [(0, "input")]),
    (f(F.relu, x, True), [(0, "input")]),
    (f(operator.add, [x], [y]), [(None, "*")]), (f(operator.add, x, y), []), (f(F.relu, x), []),
]  # fmt: skip


@pytest.mark.parametrize(("node", "aliases"), ALIASES, ids=lambda value: str(value))
def test_what_may_share_memory(node: Node, aliases: list[Any]) -> None:
    known = operator_of(node)
    assert known is not None
    assert list(aliases_of(node, known)) == aliases


@pytest.mark.parametrize(
    ("node", "pair"),
    [
        (f(operator.add, x, y), ("input", "other")), (f(torch.add, x, y, alpha=2), None), (m("sub", x, y), None),
        (f(operator.add, x, "text"), None), (f(operator.add, x, (1,)), None), (m("mul", x, 2), ("input", "other")),
        (f(torch.maximum, x, y), ("input", "other")),
    ],
)  # fmt: skip
def test_what_may_change_places(node: Node, pair: Any) -> None:
    assert bound(node).commutative == pair


def test_randomness_of_a_call() -> None:
    drawing = [f(F.dropout, x), f(torch.rand, 2), m("bernoulli", x), f(F.dropout, x, 0.5, y), m("uniform_", x),
               f(aten.rand.default, (2,)), f(F.scaled_dot_product_attention, x, x, x, dropout_p=0.1)]  # fmt: skip
    quiet = [f(F.dropout, x, 0.5, False), f(F.dropout, x, 0.0), f(F.scaled_dot_product_attention, x, x, x), m("exp", x)]
    assert [bound(node).random for node in drawing + quiet] == [True] * len(drawing) + [False] * len(quiet)


def test_what_is_not_known_is_found_by_itself() -> None:
    def own(x: Any) -> Any:
        return x

    node, method = f(own, x), m("step", x)
    assert operator_of(node) is operator_of(method) is call_of(node) is None
    assert (key_of(node), key_of(method), key_of(x)) == (own, "step", None)


class Own(nn.Linear):
    """A module that the library cannot know."""


def test_modules_are_known_by_their_class() -> None:
    root = nn.ModuleDict({"lin": nn.Linear(2, 2), "own": Own(2, 2)})
    inner = Graph()
    value = inner.placeholder("x")
    known, unknown = inner.call_module("lin", (value,)), inner.call_module("own", (value,))
    assert call_of(known, root["lin"]) == Call("nn.Linear", {"input": value}, operator_of(known, root["lin"]))  # type: ignore[arg-type]
    assert (key_of(known), key_of(unknown, root["own"]), operator_of(unknown, root["own"])) == (None, Own, None)
    inner.output(unknown)
    gm = GraphModule(root, inner)
    assert [key_of(node) for node in gm.graph.nodes] == [None, "nn.Linear", Own, None]


def test_calls_that_fit_nothing_have_no_form() -> None:
    assert call_of(f(torch.relu, x, 1, 2, 3)) is None
    assert call_of(f(torch.relu, x, wrong=1)) is None


def test_parameters() -> None:
    shown = [str(parameters_of(operator_of_target("call_function", one))) for one in (F.dropout, torch.add, F.conv2d)]  # type: ignore[arg-type]
    assert shown == [
        "(input, p=0.5, training=True)", "(input, other, *, alpha=1)",
        "(input, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)",
    ]  # fmt: skip


def test_long_sums_are_looked_through_only_so_far_and_once() -> None:
    graph = Graph()
    value = size = graph.call_method("size", (graph.placeholder("x"), 0))
    for _ in range(40):
        value = graph.call_function(operator.add, (value, value))
    assert kind_of(value) == "int"
    for _ in range(2000):
        value = graph.call_function(operator.add, (value, 1))
    assert kind_of(value) == "" and kind_of(size) == "int"

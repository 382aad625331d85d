"""What passes take for certain of values: found where the program says it, and only there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program
from torch import Tensor, nn

from graphwright import Graph, GraphModule, symbolic_trace, trace
from graphwright.ir import Node
from graphwright.passes import ShapeProp
from graphwright.passes.support.layouts import forgets_layout, is_dense, is_spread, memory_format_of
from graphwright.passes.support.tensor_facts import (
    dtype_of,
    gives_tensor,
    is_number,
    is_whole_number,
    last_size,
    rank_of,
    rank_root,
    shape_of,
    sure_rank,
)


def value(program: Callable[..., Any]) -> Any:
    """The node that a program gives back, of modules called m.NAME."""
    return captured(program).graph.output_node().args[0]


def captured(program: Callable[..., Any]) -> Any:
    takes_modules = len(inspect.signature(program).parameters) == 2
    return symbolic_trace(Program(program, **MODULES) if takes_modules else program)


MODULES = {
    "linear": nn.Linear(3, 4), "embedding": nn.Embedding(3, 5), "conv": nn.Conv2d(3, 4, 1), "relu": nn.ReLU(),
    "drop": nn.Dropout(),
}  # fmt: skip


@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        (lambda x: x.half().t().neg() * 2, torch.float16),
        (lambda x: x.float().to("cpu").exp().clamp(0), torch.float32),
        (lambda x: x.double().view(-1)[0], None),  # an item of what may be a list
        (lambda x: x.long() + 1, torch.int64),
        (lambda x: x.long() + 1.5, None),
        (lambda x: x.bool() + 1, None),
        (lambda x: x.long().exp(), None),
        (lambda x: x.half().exp(), None),  # single precision under autocast
        (lambda x: x.float().pow(x.double()), None),
        (lambda x: x.float().to(x), None),
        (lambda x: x.float() + x, None),
        (lambda x: F.softmax(x.float(), -1, dtype=torch.float64), None),
    ],
)
def test_dtypes(program: Any, dtype: torch.dtype | None) -> None:
    assert dtype_of(value(program)) is dtype


@pytest.mark.parametrize(
    ("program", "rank"),
    [
        (lambda x: torch.relu(x.view(2, -1, 3)).mT / 3, (3, True)),
        (lambda m, x: m.linear(x.view(-1, 3)), (2, True)),
        (lambda m, x: m.drop(m.relu(x.view(-1, 3))), (2, True)),
        (lambda x: torch.bmm(x, x)[0], (2, True)),
        (lambda x: x.view(2, 3) + x, (2, False)),
        (lambda x: x.view(2, 3).pow(x), (2, False)),
        (lambda x: x.view(2, 3).clamp(0, None), (2, True)),
        (lambda x: x.transpose(0, 1), (2, False)),
        (lambda x: x.unsqueeze(0)[:, None], (2, False)),
        (lambda x: x.view(2, 3).split(1)[0].unsqueeze(0), (3, True)),
        (lambda x: x.view(2, 3).sum(0), (0, False)),
    ],
)
def test_ranks(program: Any, rank: tuple[int, bool]) -> None:
    found = value(program)
    assert rank_of(found) == rank
    assert sure_rank(found) == (rank[0] if rank[1] else None)


@pytest.mark.parametrize(
    ("program", "size"),
    [
        (lambda m, x: m.linear(x).relu() * x, 4),
        (lambda m, x: m.embedding(x), 5),
        (lambda x: x.view(-1, 8) + x, 8),
        (lambda x: x.view(-1, 1) + x, None),
        (lambda x: x.view(-1, 8).mT, None),
        (lambda x: x.view(8, -1), None),
    ],
)
def test_last_sizes(program: Any, size: int | None) -> None:
    assert last_size(value(program)) == size


@pytest.mark.parametrize(
    ("program", "tensor", "number"),
    [
        (lambda x: x.relu(), True, False),
        (lambda m, x: m.conv(x), True, False),
        (lambda x: x.size(0) * 2, False, True),
        (lambda x: x.shape[1] + 1, False, True),
        (lambda x: x.split(2), False, False),
        (lambda x: x + 1, False, False),  # x may be a number
    ],
)
def test_tensors_and_numbers(program: Any, tensor: bool, number: bool) -> None:
    found = value(program)
    assert (gives_tensor(found), is_number(found), is_whole_number(found)) == (tensor, number, number)


def test_guards_and_notes() -> None:
    x = torch.zeros(2, 3, dtype=torch.float64)
    guarded = trace(lambda x: x.t() + 1 if x.dim() == 2 else x, (x,))  # no question for the dtype
    last: Any = guarded.graph.output_node().args[0]
    assert (dtype_of(last), sure_rank(last), shape_of(last)) == (None, 2, None)
    guarded = trace(lambda x: x.t() + 1 if x.dim() == 2 and x.dtype == torch.float64 else x, (x,))
    last = guarded.graph.output_node().args[0]
    assert (dtype_of(last), sure_rank(last), shape_of(last)) == (torch.float64, 2, None)
    gm = symbolic_trace(lambda x: x.expand(2, 3).neg().t())
    ShapeProp(gm).propagate(torch.zeros(3))
    given, expanded, neg, turned, _ = gm.graph.nodes
    assert [shape_of(node) for node in (given, expanded, turned)] == [(3,), (2, 3), (3, 2)]
    assert [is_dense(node) for node in (given, expanded, neg, turned)] == [True, False, True, True]
    assert [is_spread(node) for node in (given, expanded, neg)] == [False, True, False]
    assert memory_format_of(neg) is torch.contiguous_format and memory_format_of(expanded) is None


def test_as_many_dimensions_as_what() -> None:
    found = value(lambda m, x: m.relu(x.contiguous().t()) * 2)
    assert rank_root(found).op == "placeholder"


def test_a_long_chain_is_looked_through_only_so_far() -> None:
    def many(x: Tensor) -> Tensor:
        x = x.double()
        for _ in range(2000):
            x = x + 1
        return x

    found = value(many)
    assert dtype_of(found) is None and rank_of(found) == (0, False)


@pytest.mark.parametrize(
    ("program", "forgotten"),
    [
        (lambda x: x.neg().transpose(1, 2).reshape(2, -1), True),
        (lambda x: x.neg().reshape(2, -1), False),
        (lambda m, x: m.linear(x.neg()), True),
        (lambda x: x.neg() + 1, False),
        (lambda x: x.neg(), False),
    ],
)
def test_who_forgets_the_layout(program: Any, forgotten: bool) -> None:
    (neg,) = captured(program).graph.find_nodes(op="call_method", target="neg")
    assert forgets_layout(neg) is forgotten


def test_modules_in_graphs_without_an_owner_are_not_known() -> None:
    graph = Graph()
    call: Node = graph.call_module("relu", (graph.call_method("double", (graph.placeholder("x"),)),))
    assert dtype_of(call) is None
    graph.output(call)
    gm = GraphModule({"relu": nn.ReLU()}, graph)
    assert dtype_of(gm.graph.output_node().args[0]) is torch.float64

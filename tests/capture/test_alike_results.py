"""What operations give on stand-ins is told from the kinds of their arguments: as torch does, and where it may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import graphwright
from graphwright.capture.state.alike_results import AlikeResults, asks_no_history
from graphwright.capture.state.examples import Examples


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, tensor.is_leaf,
        tensor.storage_offset(), tensor.untyped_storage().nbytes(), tensor._is_view(),
    )  # fmt: skip


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul": lambda x, w: x @ w.t(),
    "with a number": lambda x, w: x * 2 + 1.5,
    "another dtype": lambda x, w: x.to(torch.float64),
    "integers": lambda x, w: x > 0,
    "a mean": lambda x, w: x.mean(-1, keepdim=True),
    "a transposed one": lambda x, w: x.t() * 2,
    "a broadcast one": lambda x, w: x[:, :1] * x,
    "contiguous": lambda x, w: x.t().contiguous(),
    "a list": lambda x, w: torch.cat([x, x * 2], dim=0),
    "keywords": lambda x, w: torch.softmax(x, dim=1, dtype=torch.float64),
    "silu": lambda x, w: F.silu(x),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "embedding": lambda x, w: F.embedding(torch.tensor([0, 1]), w),
    "pieces": lambda x, w: x.chunk(2)[0] * 1,
}


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_of_the_kind_that_torch_gives(name: str, requires_grad: bool) -> None:
    examples = Examples()
    x, w = torch.randn(4, 6), torch.randn(3, 6, requires_grad=requires_grad)
    told, computed = [], []

    class Ran(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert examples.alike is not None
            result = examples.run(function, args, kwargs or {})
            again = [examples.alike.run(function, args, kwargs or {}, examples.run) for _ in range(2)]
            for each in again:
                if isinstance(each, FakeTensor) and isinstance(result, FakeTensor):
                    computed.append(_kind(result))
                    told.append(_kind(each))
            return result

    stand_ins = examples.of(x), examples.of(w)
    with Ran():
        OPERATIONS[name](*stand_ins)
    assert told == computed
    assert examples.alike is not None
    assert examples.alike.have_given


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.Tensor.view, (-1,)), (torch.Tensor.reshape, (-1,)), (torch.Tensor.detach, ()), (torch.Tensor.add_, (1,)),
        (torch.Tensor.contiguous, ()), (torch.Tensor.to, (torch.float32,)), (F.relu, (True,)),
        (torch.Tensor.expand, (4, 6)),
    ],
)  # fmt: skip
def test_what_shares_memory_is_computed(function: Any, args: tuple[Any, ...]) -> None:
    examples = Examples()
    assert examples.alike is not None
    x = examples.of(torch.randn(4, 6))
    given = [examples.alike.run(function, (x, *args), {}, examples.run) for _ in range(3)]
    assert not examples.alike.have_given
    assert {each.untyped_storage()._cdata for each in given} == {x.untyped_storage()._cdata}


def test_settings_are_part_of_the_kind() -> None:
    examples = Examples()
    assert isinstance(examples.alike, AlikeResults)
    x = examples.of(torch.arange(4))
    assert examples.alike.run(torch.div, (x, 2), {}, examples.run).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert examples.alike.run(torch.div, (x, 2), {}, examples.run).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    y = examples.of(torch.randn(4, requires_grad=True))
    assert examples.alike.run(torch.mul, (y, 2), {}, examples.run).requires_grad
    with torch.no_grad():
        assert not examples.alike.run(torch.mul, (y, 2), {}, examples.run).requires_grad


def test_a_layer_is_told_by_the_kinds_of_its_tensors_now() -> None:
    examples = Examples()
    assert examples.alike is not None
    layers = [examples.module(nn.Linear(4, 4)) for _ in range(2)]
    x = examples.of(torch.randn(2, 4))
    given = [examples.alike.run(layer, (x,), {}, examples.run) for layer in layers]
    assert examples.alike.have_given
    assert [each.requires_grad for each in given] == [True, True]
    for parameter in layers[1].parameters():
        parameter.requires_grad_(False)
    assert not examples.alike.run(layers[1], (x,), {}, examples.run).requires_grad
    assert examples.alike.run(layers[0], (x,), {}, examples.run).requires_grad


class Layers(nn.Module):
    """Equal layers, so that the second one's results are told."""

    def __init__(self, end: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.end = end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        y = x
        for layer in self.layers:
            y = torch.tanh(layer(y))
        return self.end(x, y)


def _forces(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def _penalty(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return torch.autograd.grad(first.pow(2).sum(), x)[0]


@pytest.mark.parametrize("end", [_forces, _penalty])
def test_gradients_are_those_of_what_was_computed(end: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    model, x = Layers(end), torch.randn(2, 4)
    gm = graphwright.trace(model, (x,))
    assert gm.report.facts.attempt == "captured"
    for each in (x, torch.randn(3, 4)):
        torch.testing.assert_close(gm(each), model(each))


def test_functions_that_are_not_known_get_results_with_a_history() -> None:
    def asks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _by_hand(x, y) + y

    model, x = Layers(asks), torch.randn(2, 4)
    gm = graphwright.trace(model, (x,), leaf_functions=[_by_hand])
    assert gm.report.facts.attempt == "captured"
    torch.testing.assert_close(gm(x), model(x))
    assert any(node.target is _by_hand for node in gm.graph.nodes)


def test_declared_operators_run_below_autograd_unless_they_are_composite() -> None:
    library = torch.library.Library("graphwright_told", "DEF")
    library.define("kernel(Tensor x) -> Tensor")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("kernel", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("composite", lambda x: x * 2, "CompositeImplicitAutograd")
    operators = torch.ops.graphwright_told
    assert asks_no_history(operators.kernel)
    assert asks_no_history(operators.kernel.default)
    assert not asks_no_history(operators.composite)
    assert not asks_no_history(torch.autograd.grad)
    assert asks_no_history(torch.cat)
    assert asks_no_history(nn.Linear(2, 2))
    assert not asks_no_history(torch.Tensor.register_hook)


def _by_hand(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(y.sum(), x, retain_graph=True)[0].detach()


def _tangent(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent


def test_tangents_are_of_values_that_are_computed() -> None:
    x = torch.ones(2)
    graphwright.trace(lambda x: x.sin(), x)
    assert torch.equal(graphwright.trace(_tangent, x)(x * 2), _tangent(x * 2))

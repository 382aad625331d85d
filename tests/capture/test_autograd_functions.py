"""`MyFunction.apply(x)` is one node: the backward of the captured program is the one that was written."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import CaptureError, Interpreter, TracerWarning, trace, verify


class StraightThrough(torch.autograd.Function):
    """Signs, whose gradient is that of the identity, 5 times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 1.0) -> Tensor:
        return torch.sign(x) * scale

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 5, None


class Reversed(torch.autograd.Function):
    """The identity with a negative gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return -ctx.alpha * gradient, None


class Halved(torch.autograd.Function):
    """Gives back what it gets, with half of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient / 2


class Pair(torch.autograd.Function):
    """Product and sum, in the form with setup_context, with a gradient of its own; it may be batched."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Any:
        return x * y, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, product: Tensor, total: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return product * y * 2 + total, product * x + total


class WithLayer(torch.autograd.Function):
    """Takes a module, which no graph has as a value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Module) -> Tensor:
        return layer(x) + 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


def quantize(x: Tensor) -> Tensor:
    return StraightThrough.apply(x)


half = Halved.apply


def straight(self: Any, x: Tensor) -> Any:
    return StraightThrough.apply(x * self.weight) + StraightThrough.apply(self.weight, 2.0)


def reversal(self: Any, x: Tensor) -> Any:
    return Reversed.apply(self.layer(x), self.alpha) * self.weight


def halved(self: Any, x: Tensor) -> Any:
    return Halved.apply(x) * Halved.apply(self.weight + 1)


def halved_by_a_helper(self: Any, x: Tensor) -> Any:
    y = x * self.weight
    return torch.relu(half(y)) + half(y)


def pair(self: Any, x: Tensor) -> Any:
    product, total = Pair.apply(x, self.weight.expand_as(x))
    return product * total


def batched(self: Any, x: Tensor) -> Any:
    return torch.vmap(lambda v: Pair.apply(v, self.weight)[0])(x)


def in_a_branch(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        y = StraightThrough.apply(x)
    else:
        y = Reversed.apply(x, 2.0)
    return y * self.weight


def through_a_helper(self: Any, x: Tensor) -> Any:
    return quantize(x) * self.weight


def renamed(self: Any, x: Tensor) -> Any:
    apply = StraightThrough.apply
    return apply(x, x.size(0)) * self.weight


class Net(nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.program = program
        self.alpha = 0.5
        self.layer = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Any:
        return self.program(self, x)


def outcome(model: nn.Module, x: Tensor) -> Any:
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = model(x)
    (y**2).sum().backward()
    return y, x.grad, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "program",
    [straight, reversal, halved, halved_by_a_helper, pair, batched, in_a_branch, through_a_helper, renamed],
    ids=lambda f: f.__name__,
)
def test_values_and_gradients_are_eagers(program: Any, tmp_path: Path) -> None:
    model = Net(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm = trace(model, (torch.randn(3, 8),))
    gm.graph.lint()
    graphwright.save(gm, tmp_path / "model.gw", strict=True)
    loaded = graphwright.load(tmp_path / "model.gw", allow=["tests.capture.test_autograd_functions"])
    for x in (torch.rand(4, 8), -torch.rand(5, 8)):
        expected = outcome(model, x)
        for way in (gm, copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), loaded):
            torch.testing.assert_close(outcome(way, x), expected)
        assert torch.equal(Interpreter(gm).run(x), expected[0])


def test_the_graph_and_the_code_name_the_function() -> None:
    gm = trace(Net(straight), (torch.randn(3, 8),))
    assert "return StraightThrough.apply(x * weight) + StraightThrough.apply(weight, 2.0)" in gm.code
    (first, second) = gm.graph.find_nodes(op="call_function", target=StraightThrough.apply)
    assert "[target=tests.capture.test_autograd_functions.StraightThrough.apply]" in first.format_node()
    assert second.args[1] == 2.0


class Recomputes(torch.autograd.Function):
    """Runs a layer once more in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Module, *parameters: Tensor) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layer(x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.layer(x)
        mine, *others = torch.autograd.grad(y, (x, *ctx.layer.parameters()), gradient)
        return mine, None, *others


def test_what_takes_a_module_of_the_program_gets_it() -> None:
    def program(self: Any, x: Tensor) -> Any:
        return Recomputes.apply(WithLayer.apply(x, self.layer), self.layer, *self.layer.parameters())

    model = Net(program)
    gm = trace(model, (torch.randn(3, 8),))
    assert "Recomputes.apply(WithLayer.apply(x, self.layer), self.layer, " in gm.code
    for each in (gm, copy.deepcopy(gm)):
        assert verify(model, each, [torch.randn(4, 8)], grads=True).ok


class WithOwner(torch.autograd.Function):
    """Takes the module that calls it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, owner: Any) -> Tensor:
        return owner.layer(x) + 1  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


def test_what_takes_the_captured_module_itself_loses_its_backward_with_a_warning() -> None:
    def program(self: Any, x: Tensor) -> Any:
        return WithOwner.apply(x, self)

    model = Net(program)
    with pytest.warns(TracerWarning, match=r"the operations of WithOwner.forward are captured one by one") as warned:
        gm = trace(model, (torch.randn(3, 8),))
    assert [warning.filename for warning in warned] == [__file__]
    x = torch.randn(4, 8)
    assert torch.equal(gm(x), model(x))


class Notes(torch.autograd.Function):
    """Adds to a list, or an object, that it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, found: Any) -> Tensor:
        (found.rows if isinstance(found, Found) else found).append(x * 2)
        return x + 1


class Found:
    def __init__(self) -> None:
        self.rows: list[Tensor] = []


@pytest.mark.parametrize("kind", [list, Found])
def test_what_changes_what_it_is_given_loses_its_backward_with_a_warning(kind: Any) -> None:
    def program(x: Tensor) -> Any:
        found = kind()
        return Notes.apply(x, found), getattr(found, "rows", found)

    with pytest.warns(TracerWarning, match=r"the operations of Notes.forward are captured one by one"):
        gm = trace(program, (torch.randn(3),))
    assert verify(program, gm, [torch.randn(4)]).ok


def test_a_call_by_c_code_loses_its_backward_with_a_warning() -> None:
    def program(x: Tensor) -> Tensor:
        return next(itertools.starmap(StraightThrough.apply, [(x,)]))

    with pytest.warns(TracerWarning, match=r"the operations of StraightThrough.forward"):
        gm = trace(program, (torch.randn(3),))
    x = torch.randn(4)
    assert torch.equal(gm(x), program(x))


def test_without_tensors_it_is_just_called() -> None:
    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, n: int) -> int:
            return n + 1

    def program(x: Tensor) -> Any:
        return x * int(Count.apply(2)) + StraightThrough.apply(x)  # type: ignore[no-untyped-call]

    gm = trace(program, (torch.ones(2),))
    assert torch.equal(gm(torch.ones(3)), torch.full((3,), 4.0))


def test_an_autograd_function_that_closes_over_values_is_refused() -> None:
    def program(x: torch.Tensor, scale: float) -> Any:
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x * scale

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                return gradient * scale

        return Scale.apply(x)

    with pytest.raises(CaptureError, match="the methods of Scale close over values of the program"):
        trace(program, (torch.ones(2), 2.0))


class Applies(torch.autograd.Function):
    """The sum of what a function gives for two inputs."""

    @staticmethod
    def forward(ctx: Any, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return function(x) + function(x * 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, gradient


class Scale:
    def __init__(self, by: Tensor) -> None:
        self.by = by

    def times(self, x: Tensor) -> Tensor:
        return x * self.by


def bound_around(x: Tensor) -> Tensor:
    return Applies.apply(Scale(x.sum()).times, x)  # type: ignore[no-any-return]


def partial_around(x: Tensor) -> Tensor:
    return Applies.apply(functools.partial(torch.mul, x.sum()), x)  # type: ignore[no-any-return]


def closing_around(x: Tensor) -> Tensor:
    scale = Scale(x.sum())
    return Applies.apply(lambda y: scale.times(y), x)  # type: ignore[no-any-return]


def deep_inside(x: Tensor) -> Tensor:
    outer = Scale(x)
    outer.inner = Scale(x.sum())  # type: ignore[attr-defined]
    outer.by = torch.ones(())
    return Applies.apply(functools.partial(lambda given, y: given.inner.times(y), outer), x)  # type: ignore[no-any-return]


def sharing(x: Tensor, **options: float) -> Tensor:
    return Applies.apply(lambda y: torch.add(y, x.sum(), **options), x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("program", [bound_around, partial_around, closing_around, deep_inside, sharing])
def test_what_is_given_a_function_around_values_loses_its_backward_with_a_warning(program: Any) -> None:
    with pytest.warns(TracerWarning, match=r"the operations of Applies.forward are captured one by one"):
        gm = trace(program, (torch.randn(3),))
    x = torch.randn(5)
    assert torch.equal(gm(x), program(x))


class ByStep(nn.Module):
    """Gives a number of NumPy's that each call has another of."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: Tensor) -> Any:
        self.step += 1
        return Reversed.apply(x, 2.0 / (1.0 + numpy.exp(-0.1 * self.step)) - 1)


def test_what_only_a_run_has_is_given_to_the_backward() -> None:
    model = ByStep()
    gm = trace(copy.deepcopy(model), (torch.randn(2, 3),))
    for _ in range(3):
        ours, own = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
        (gm(ours) * 2).sum().backward(), (model(own) * 2).sum().backward()
        assert torch.equal(gm(ours), model(own)) and torch.equal(ours.grad, own.grad)  # type: ignore[arg-type]

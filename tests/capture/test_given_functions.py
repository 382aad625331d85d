"""Functions that a program hands to torch, which calls them when the captured program runs: hooks on gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, trace, verify

x = torch.randn(3, 4)


class Keeps(nn.Module):
    """A module that keeps the gradient of what a layer gave, by a hook that it registers when it runs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.scale, self.gradient = nn.Linear(4, 4), kind, 2.0, None

    def keep(self, gradient: torch.Tensor) -> torch.Tensor:
        self.gradient = gradient.sum()  # type: ignore[assignment]
        return gradient * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if y.requires_grad:
            y.register_hook(self.keep if self.kind == "method" else lambda gradient: self.keep(gradient))
        return y.sin()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["method", "lambda"])
def test_a_hook_acts_on_the_captured_module(kind: str) -> None:
    model = Keeps(kind)
    gm = trace(model, (x,))
    for module in (gm, copy.deepcopy(gm)):
        for scale in (2.0, 5.0):
            model.scale = module.scale = scale
            for each in (model, module):
                each.zero_grad()
                each(x).sum().backward()
            assert torch.equal(module.gradient, model.gradient)
            assert torch.equal(module.layer.weight.grad, model.layer.weight.grad)
            model.gradient = None
        assert model.gradient is None


def around(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y, count = x * 3, x.size(0)
    y.register_hook(lambda gradient: gradient * mask * count)
    return y


def as_default(x: torch.Tensor, scale: float) -> torch.Tensor:
    y = x * 3
    y.register_hook(lambda gradient, scale=scale, *, power=2: gradient * scale**power)
    return y


def inside_another(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    def masked(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * mask

    y = x * 3
    y.register_hook(lambda gradient: masked(gradient) * 2)
    return y


def on_one_side(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x * 3
    if y.requires_grad:
        scale = mask.sum()
        y.register_hook(lambda gradient: gradient * scale)
    return y


@pytest.mark.parametrize("program", [around, inside_another, on_one_side])
def test_a_hook_that_closes_over_values_gets_those_of_the_run(program: Any) -> None:
    gm = trace(program, (x.clone().requires_grad_(), torch.ones(4)))
    assert verify(program, gm, [(torch.randn(5, 4).requires_grad_(), torch.randn(4))], grads=True).ok


def test_a_hook_with_defaults_gets_those_of_the_run() -> None:
    gm = trace(as_default, (x.clone().requires_grad_(), 2.0))
    inputs = [torch.randn(2, 4).requires_grad_() for _ in range(2)]
    as_default(inputs[0], 0.5).sum().backward()
    gm(inputs[1], 0.5).sum().backward()
    assert torch.equal(inputs[1].grad, torch.full((2, 4), 0.75)) and torch.equal(*[each.grad for each in inputs])


def into_a_list(x: torch.Tensor) -> Any:
    found: list[torch.Tensor] = []
    y = x.detach().requires_grad_() * 2
    y.register_hook(lambda gradient: found.append(gradient))
    y.sum().backward()
    return found


def counts(x: torch.Tensor) -> Any:
    count = 0

    def note(gradient: torch.Tensor) -> None:
        nonlocal count
        count += 1

    y = x.detach().requires_grad_() * 2
    y.register_hook(note)
    y.sum().backward()
    return count


def changed_afterwards(x: torch.Tensor) -> torch.Tensor:
    y, scale = x * 2, x.sum()
    y.register_hook(lambda gradient: gradient * scale)
    scale = scale + 1
    return y * scale


def changed_on_one_side(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.requires_grad:
        scale = x.sum()
        y.register_hook(lambda gradient: gradient * scale)
        scale = scale + 1
        y = y * scale
    return y


def changed_in_rounds(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    for row in x:
        scale = row.sum()
        y.register_hook(lambda gradient: gradient * scale)  # noqa: B023
    return y


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (into_a_list, "shares 'found', a list, with the program"),
        (counts, "assigns the program's variable 'count'"),
        (changed_afterwards, "gives a variable another value after torch was given"),
        (changed_on_one_side, "gives a variable another value after torch was given"),
        (changed_in_rounds, "gives a variable another value after torch was given"),
    ],
)
def test_what_a_hook_and_the_program_both_change_is_refused(program: Any, what: str) -> None:
    with pytest.raises(CaptureError, match=what):
        trace(program, (x.clone().requires_grad_(),))


def test_a_hook_may_write_to_what_is_around_the_program() -> None:
    found: list[torch.Tensor] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: found.append(gradient))
        return y

    gm = trace(program, (x.clone().requires_grad_(),))
    assert found == []
    gm(x.clone().requires_grad_()).sum().backward()
    assert len(found) == 1 and type(found[0]) is torch.Tensor


def test_a_function_for_each_item_does_not_run_on_examples() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.apply_(lambda value: value * 2) + 1

    assert torch.equal(trace(program, (x.clone(),))(x.clone()), x * 2 + 1)

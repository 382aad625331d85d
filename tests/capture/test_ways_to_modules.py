"""What a program writes to its modules is written to those of the captured program, whichever way it has them."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, trace

HELD: dict[str, nn.Module] = {}


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


class Counting(nn.Module):
    def __init__(self, way: Callable[[Any], Callable[..., Any]]) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.count, self.seen = 0, list[int]()
        self.step = way(self)

    def work(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.total = self.total + x.sum()
        return x * self.count + self.total

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


def by_default(module: Counting) -> Callable[..., Any]:
    def step(x: torch.Tensor, module: Counting = module) -> torch.Tensor:
        return module.work(x)

    return step


def by_list(module: Counting) -> Callable[..., Any]:
    steps = [wrapped(module.work)]
    return lambda x: steps[0](x)


def by_itself(module: Counting) -> Callable[..., Any]:
    def step(x: torch.Tensor, times: int = 2) -> torch.Tensor:
        return module.work(x) if times == 0 else step(x, times - 1)

    return step


class Holder:
    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.module.work(x)


def by_dict(module: Counting) -> Callable[..., Any]:
    held = {"module": Holder(module)}
    return lambda x: held["module"](x)


class Slotted:
    __slots__ = ("bound",)

    def __init__(self, module: Counting) -> None:
        self.bound = types.MethodType(lambda module, x: module.work(x), module)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.bound(x)


FUNCTIONS = [
    lambda module: module.work,
    lambda module: wrapped(module.work),
    lambda module: wrapped(wrapped(module.work)),
    lambda module: wrapped(functools.partial(module.work)),
    Holder,
    lambda module: Holder(module).__call__,
    lambda module: wrapped(Holder(module)),
    lambda module: Holder(Holder(module)).module,
    Slotted,
    by_default, by_list, by_itself, by_dict,
]  # fmt: skip


@pytest.mark.parametrize("way", FUNCTIONS)
@pytest.mark.parametrize("is_inside", [False, True])
def test_functions_lead_to_the_modules_of_the_captured_program(way: Callable[..., Any], is_inside: bool) -> None:
    def made() -> tuple[nn.Module, Counting]:
        counting = Counting(way)
        return nn.Sequential(counting, nn.ReLU()) if is_inside else counting, counting

    (model, counting), (eager, other) = made(), made()
    gm = trace(model, (torch.ones(2),))
    assert (counting.count, counting.total.item()) == (0, 0)
    mine = gm[0] if is_inside else gm
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2)):
        torch.testing.assert_close(gm(x), eager(x))
        assert (mine.count, mine.total.item()) == (other.count, other.total.item())


@pytest.mark.parametrize("question", [
    lambda self: self.step.module is self,
    lambda self: self.step.module.count == self.count,
    lambda self: self.step.__call__.__self__ is self.step,
])  # fmt: skip
def test_the_module_that_an_object_holds_is_the_one_that_holds_it(question: Callable[[Any], bool]) -> None:
    class Asking(Counting):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if question(self) else x - 1

    model = Asking(Holder)
    gm = trace(model, (torch.ones(2),))
    for each in (gm, copy.deepcopy(gm)):
        assert torch.equal(each(torch.ones(2)), model(torch.ones(2)))
        assert each.step.module is each and model.step.module is model


def test_what_an_object_that_holds_a_module_reads_of_it_is_live() -> None:
    class Scaling(Counting):
        def work(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.count

    gm = trace(Scaling(Holder), (torch.ones(2),))
    gm.count = 5
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 5.0))


class Elsewhere(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step, self.count = Holder(self), 2
        STEPS["step"] = self.step


STEPS: dict[str, Holder] = {}


def test_an_object_that_is_outside_too_is_refused_where_both_are_read() -> None:
    class Both(Elsewhere):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if self.step is STEPS["step"] else x - 1

    class One(Elsewhere):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * STEPS["step"].module.count

    with pytest.raises(CaptureError, match="the captured module has one of its own"):
        trace(Both(), (torch.ones(2),))
    model = One()
    assert torch.equal(trace(model, (torch.ones(2),))(torch.ones(2)), model(torch.ones(2)))


def test_hooks_and_attributes_lead_to_one_object() -> None:
    class Recorder:
        def __init__(self, module: nn.Module) -> None:
            self.module, self.seen = module, 0

        def hook(self, module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
            return output * self.scale()

        def scale(self) -> int:
            return self.module.training + 2

    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.recorder = nn.Identity(), Recorder(self)
            self.layer.register_forward_hook(self.recorder.hook)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.recorder.scale()

    model = Hooked()
    gm = trace(model, (torch.ones(2),))
    for is_training in (True, False):
        assert torch.equal(gm.train(is_training)(torch.ones(2)), model.train(is_training)(torch.ones(2)))
    (hook,) = gm.layer._forward_hooks.values()
    assert hook.__self__ is gm.recorder and gm.recorder.module is gm


def test_reads_by_way_of_objects_are_captured() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.step = nn.Linear(2, 2), Holder(self)

        def work(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.step(x)

    model = Reading()
    x = torch.randn(3, 2)
    torch.testing.assert_close(trace(model, (torch.ones(1, 2),))(x), model(x))


@pytest.mark.parametrize("holder", ["variable", "object"])
def test_modules_outside_that_are_hidden_are_refused_if_they_change(holder: str) -> None:
    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = Holder(HELD["module"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.holder(x) if holder == "object" else HELD["module"](x)

    HELD["module"] = hidden = Counting(lambda module: module.work)
    with pytest.raises(CaptureError, match="a module that"):
        trace(Apart(), (torch.ones(2),))
    assert hidden.count == 0
    assert type(hidden.total) is torch.Tensor

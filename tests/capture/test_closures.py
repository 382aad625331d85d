"""Modules that a function reaches, and objects that modules hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphwright


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


GLOBAL = network()


def through_a_global(x: torch.Tensor) -> torch.Tensor:
    return GLOBAL(x) * 2


def through_closure(model: nn.Module) -> Callable[..., Any]:
    return lambda x: model(x) * 2


def through_another_function(model: nn.Module) -> Callable[..., Any]:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    return lambda x: inner(x) * 2


def through_a_list(model: nn.Module) -> Callable[..., Any]:
    layers = [model]

    def run(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x * 2

    return run


def through_a_dict(model: nn.Module) -> Callable[..., Any]:
    layers = {"first": model}
    return lambda x: layers["first"](x) * 2


def through_a_decorator(model: nn.Module) -> Callable[..., Any]:
    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args) * 2

        return wrapper

    @twice
    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x)  # type: ignore[no-any-return]

    return run


class Owner:
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x) * 2  # type: ignore[no-any-return]

    __call__ = run


def called(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x) * 2  # type: ignore[no-any-return]


WAYS = [
    pytest.param(lambda model: through_a_global, "GLOBAL", id="global"),
    pytest.param(through_closure, "model", id="closure"),
    pytest.param(through_another_function, "model", id="another function"),
    pytest.param(through_a_list, "layers_0", id="list"),
    pytest.param(through_a_dict, "layers_first", id="dict"),
    pytest.param(through_a_decorator, "model", id="decorator"),
    pytest.param(lambda model: Owner(model).run, "model", id="bound object"),
    pytest.param(lambda model: functools.partial(through_closure(model)), "model", id="partial"),
    pytest.param(lambda model: functools.partial(called, model), "model", id="argument of a partial"),
    pytest.param(Owner, "model", id="callable object"),
]


@pytest.mark.parametrize(("make", "name"), WAYS)
def test_a_module_that_a_function_reaches_is_a_child(make: Callable[..., Any], name: str) -> None:
    torch.manual_seed(0)
    model = GLOBAL if name == "GLOBAL" else network()
    function = make(model)
    gm = graphwright.trace(function, (torch.randn(4, 3),))
    assert set(gm.state_dict()) == {f"{name}.{key}" for key in model.state_dict()}
    assert gm.get_parameter(f"{name}.0.weight") is model[0].weight
    x = torch.randn(5, 3)
    for mode in (True, False):
        gm.train(mode), model.train(mode)
        before = model[1].num_batches_tracked.clone()
        results = []
        for run in (function, gm):
            torch.manual_seed(1)
            model.zero_grad()
            model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
            result = run(x)
            result.sum().backward()
            results.append((result, model[0].weight.grad.clone()))
        torch.testing.assert_close(results[0], results[1])
        assert model[1].num_batches_tracked - before == (2 if mode else 0)
    model.train()


def test_a_function_that_reaches_modules_is_left_as_it_was() -> None:
    model = network()
    function = through_closure(model)
    cell = function.__closure__[0]  # type: ignore[index]
    gm = graphwright.trace(function, (torch.randn(4, 3),))
    assert function.__closure__[0] is cell and cell.cell_contents is model  # type: ignore[index]
    gm.eval()
    assert model.training and GLOBAL.training


class State:
    def __init__(self) -> None:
        self.hidden, self.calls, self.rows = torch.zeros(3), 0, []


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = State()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.hidden = self.state.hidden + x
        return self.state.hidden * 2


class Appends(Writes):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.rows.append(x)
        return x * 2


class Counts(Writes):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.calls += 1
        return x * 2


@pytest.mark.parametrize("kind", [Writes, Appends, Counts])
def test_what_a_program_does_to_an_object_that_a_module_holds_is_kept(kind: type[Writes]) -> None:
    model, expected = kind(), kind()
    gm = graphwright.trace(model, (torch.ones(3),))
    assert torch.equal(model.state.hidden, torch.zeros(3)) and model.state.rows == [] and model.state.calls == 0
    for x in (torch.ones(3), torch.randn(3)):
        assert torch.equal(gm(x), expected(x))
    assert model.state is gm.state and model.state.calls == expected.state.calls
    assert torch.equal(model.state.hidden, expected.state.hidden)
    assert list(map(torch.Tensor.tolist, model.state.rows)) == list(map(torch.Tensor.tolist, expected.state.rows))


def test_what_a_method_does_to_its_object_is_kept() -> None:
    class Keeps:
        def run(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x * 2
            return x

    owner = Keeps()
    gm = graphwright.trace(owner.run, (torch.ones(3),))
    assert not hasattr(owner, "last")
    gm(torch.ones(3))
    assert torch.equal(owner.last, torch.full((3,), 2.0)) and "self.keeps.last = " in gm.code


def test_lists_and_dicts_among_the_arguments_are_written() -> None:
    def program(x: torch.Tensor, rows: list[Any], table: dict[str, Any], *more: Any, **named: Any) -> torch.Tensor:
        rows.append(x * 2)
        table["k"] = x + 1
        table.setdefault("n", []).append(x)
        more[0].append(x)
        named["a"].extend([x, x])
        return x.sum()

    gm = graphwright.trace(program, (torch.ones(3), [], {}, []), {"a": []})
    seen = []
    for run in (program, gm):
        rows, table, more, named = [], {}, [], []  # type: ignore[var-annotated]
        run(torch.ones(2), rows, table, more, a=named)
        seen.append((rows, table, more, named))
    torch.testing.assert_close(seen[0], seen[1])

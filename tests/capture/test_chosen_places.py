"""Modules and values that data chooses by their place in a list, or by their key in a table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import trace


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])

    def forward(self, x: Tensor) -> Any:
        for _ in range(2):
            x = torch.tanh(self.layers[int(x.abs().sum() * 10) % 3 - 1](x))
        return x


class RoutedByName(Routed):
    def forward(self, x: Tensor) -> Any:
        layer = self.layers[int(x.argmax())]
        return layer(x) + layer.bias


def table(x: Tensor) -> Any:
    return {0: 1.0, 2: x.sum()}[int(x.argmax())] * x


class RoutedByATensor(nn.Module):
    """Tensors of integers are indices of lists as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        self.scales = nn.ParameterList([nn.Parameter(torch.full((3,), float(i))) for i in range(3)])

    def forward(self, x: Tensor) -> Any:
        place = x.argmax()
        return self.layers[place](x) * self.scales[place] + [1, 3, 5][place]


def one_of_tensors(x: Tensor) -> Any:
    parts = [x, x * 2, -x]
    parts[x.argmax()].add_(1)
    return torch.stack(parts) + (x.sin(), x.cos(), x)[int(x.argmin())]


def one_of_functions(x: Tensor) -> Any:
    return [torch.sin, torch.cos, torch.tanh][x.argmax()](x)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "program", [Routed(), RoutedByName(), RoutedByATensor(), table, one_of_tensors, one_of_functions]
)
def test_data_chooses(program: Any) -> None:
    gm = trace(program, (torch.tensor([3.0, 1.0, 2.0]),))
    torch.manual_seed(0)
    for x in [torch.tensor([1.0, 2.0, 5.0]), -torch.ones(3), *torch.randn(12, 3).unbind()]:
        try:
            wanted = program(x.clone())
        except KeyError as error:
            with pytest.raises(KeyError, match=str(error)):
                gm(x)
            continue
        assert torch.equal(gm(x), wanted)


def test_each_module_is_a_node_and_has_gradients() -> None:
    model = Routed()
    gm = trace(model, (torch.ones(3),))
    assert gm.code.count("self.layers[1](") == 2
    assert "elif" in gm.code
    x = torch.randn(3)
    gradients = [torch.autograd.grad(each(x).sum(), [*each.parameters()], allow_unused=True) for each in (gm, model)]
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_a_place_that_is_not_there() -> None:
    class Beyond(Routed):
        def forward(self, x: Tensor) -> Any:
            return self.layers[int(x.sum())](x)

    gm = trace(Beyond(), (torch.tensor([1.0, 0.0, 0.0]),))
    with pytest.raises(IndexError):
        gm(torch.ones(3) * 4)


def test_constants_are_no_state_of_a_captured_function() -> None:
    constant = torch.ones(3)
    for capture in (lambda f: trace(f, (constant,)), graphwright.script):
        gm = capture(lambda x: x + constant)
        assert not gm.state_dict()
        assert torch.equal(gm(constant), constant * 2)


# ---- tables of texts


TABLE = {"3": 1.0, "-3": 2.0}


def text_or_default(x: Tensor) -> Any:
    return TABLE.get(str(int(x.sum())), 0.0) + x


def other_kinds(x: Tensor) -> Any:
    return {"0": x, "1": -x}.get(f"{int(x.argmax())}", x * 3)


def none_is_asked(x: Tensor) -> Any:
    return -x if {1: 2.0, 3: x.sum()}.get(int(x.sum())) is None else x


def in_table(x: Tensor) -> Any:
    key = str(int(x.sum()))
    return x * TABLE[key] if key in TABLE and key not in {"7"} else x


@pytest.mark.parametrize("program", [text_or_default, other_kinds, none_is_asked, in_table])
def test_data_makes_the_key(program: Any) -> None:
    gm = trace(program, (torch.ones(3),))
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([0.0, 0.0, 7.0]), torch.tensor([0.0, 1.0, 0.0])):
        assert torch.equal(gm(x), program(x))


def test_a_key_that_is_not_there_is_an_error_of_the_program() -> None:
    gm = trace(lambda x: TABLE[str(int(x.sum()))] + x, (torch.ones(3),))
    with pytest.raises(KeyError, match="7"):
        gm(torch.tensor([0.0, 0.0, 7.0]))


def writes_at_a_place(x: Tensor) -> Any:
    values = same = [1, 2, 3]
    values[x.argmax()] = 5
    values[-1 - int(x.argmin())] += 2
    return x * values[0], values, same is values


def moves_items(x: Tensor) -> Any:
    rows = [x, x + 1, x + 2]
    rows.insert(x.argmax(), x * 5)
    last = rows.pop(x.argmin())
    del rows[x.argmax()]
    return last, rows


def counts_to_a_place(x: Tensor) -> Any:
    total = range(3, 9, 2)[x.argmax()]
    for i in range(x.argmax()):
        total += i
    return x * total


class Votes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.votes = [0, 0, 0]

    def forward(self, x: Tensor) -> Any:
        self.votes[x.argmax()] += 1
        return x, self.votes[0]


@pytest.mark.parametrize("make", [*[lambda f=f: f for f in (writes_at_a_place, moves_items, counts_to_a_place)], Votes])
def test_data_chooses_the_place_of_a_list_that_is_changed(make: Any) -> None:
    program, gm = make(), trace(make(), (torch.tensor([1.0, 3.0, 2.0]),))
    for values in ([1.0, 3.0, 2.0], [5.0, 3.0, 2.0], [1.0, 0.0, 2.0], [5.0, 3.0, 6.0]):
        x = torch.tensor(values)
        assert repr(gm(x)) == repr(program(x))


def test_a_place_of_a_list_that_is_not_there() -> None:
    def program(x: Tensor) -> Any:
        values = [1, 2]
        values[x.argmax()] = 5
        return values

    gm = trace(program, (torch.tensor([1.0, 3.0, 2.0]),))
    for each in (program, gm):
        with pytest.raises(IndexError, match="list assignment index out of range"):
            each(torch.tensor([1.0, 3.0, 4.0]))

"""What a program asks of its modules in passing: classes and order, and of modules that are in no table of modules."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, load, save, trace

X = torch.ones(2, 4)


@functools.singledispatch
def chosen(layer: nn.Module, x: Tensor) -> Tensor:
    return x


chosen.register(nn.ReLU)(lambda layer, x: x * 3)


class Hidden(nn.Module):
    """Modules in its tables and past them."""

    def __init__(self, run: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.run = run
        self.layer, self.other = nn.Linear(4, 4), nn.Tanh()
        self.factors = {nn.ReLU: 3}
        self.listed: Any = [nn.Linear(4, 4), nn.Dropout(0.0)]
        self.by_name = {"a": nn.Linear(4, 4)}
        self.again = [self.layer]
        self.called = self.layer.forward
        object.__setattr__(self, "past", nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)))

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def class_names(m: Any, x: Tensor) -> Any:
    names: list[str] = []
    m.apply(lambda module: names.append(type(module).__name__))
    return x * len("".join(names))


def walks_listed(m: Any, x: Tensor) -> Any:
    for layer in m.listed:
        x = layer(x)
    return x


def reorder(m: Any) -> None:
    weight = m.layer.weight
    del m.layer.weight
    m.layer.weight = weight


def swap(m: Any) -> None:
    layer = m.layer
    del m.layer
    m.layer = layer


WAYS: dict[str, tuple[Callable[[Any, Tensor], Any], Callable[[Any], Any]]] = {
    "names of classes": (class_names, lambda m: setattr(m, "other", nn.ReLU())),
    "name of a class": (lambda m, x: x * len(m.other.__class__.__name__), lambda m: setattr(m, "other", nn.ReLU())),
    "class as a key": (lambda m, x: x * m.factors.get(type(m.other), 1), lambda m: setattr(m, "other", nn.ReLU())),
    "chosen by a class": (lambda m, x: chosen(m.other, x), lambda m: setattr(m, "other", nn.ReLU())),
    "chosen from others": (lambda m, x: chosen(m.other, x), lambda m: chosen.register(nn.Tanh)(lambda layer, x: -x)),
    "order of parameters": (lambda m, x: x * (1 + [*dict(m.named_parameters())].index("layer.bias")), reorder),
    "order of children": (lambda m, x: x * (1 + [*dict(m.named_children())].index("layer")), swap),
    "listed, one more": (walks_listed, lambda m: m.listed.append(nn.Tanh())),
    "listed, another": (walks_listed, lambda m: m.listed.__setitem__(0, nn.Linear(4, 4))),
    "listed, another list": (walks_listed, lambda m: setattr(m, "listed", [nn.Tanh()])),
    "listed, hook": (walks_listed, lambda m: m.listed[0].register_forward_hook(lambda *args: args[2] * 2)),
    "listed, no bias": (walks_listed, lambda m: setattr(m.listed[0], "bias", None)),
    "listed, weight": (walks_listed, lambda m: setattr(m.listed[0], "weight", nn.Parameter(torch.zeros(4, 4)))),
    "listed, setting": (walks_listed, lambda m: setattr(m.listed[1], "p", 1.0)),
    "listed, mode": (walks_listed, lambda m: m.listed[1].eval()),
    "by name, another": (lambda m, x: m.by_name["a"](x), lambda m: m.by_name.update(a=nn.Tanh())),
    "by name, weight": (
        lambda m, x: m.by_name["a"](x),
        lambda m: setattr(m.by_name["a"], "weight", nn.Parameter(torch.zeros(4, 4))),
    ),
    "in a list, too": (lambda m, x: m.again[0](x), lambda m: m.again.__setitem__(0, nn.Linear(4, 4))),
    "past the tables, another": (lambda m, x: m.past(x), lambda m: object.__setattr__(m, "past", nn.Tanh())),
    "past the tables, another inside": (lambda m, x: m.past(x), lambda m: m.past.__setitem__(0, nn.Linear(4, 4))),
    "past the tables, setting": (lambda m, x: m.past(x), lambda m: setattr(m.past[1], "p", 1.0)),
    "past the tables, mode": (lambda m, x: m.past(x), lambda m: m.past.eval()),
    "method of a layer": (lambda m, x: m.called(x), lambda m: setattr(m, "layer", nn.Linear(4, 4))),
}  # fmt: skip


@pytest.mark.parametrize("is_copy", [False, True], ids=["captured", "copy"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_asked_of_modules_in_passing_is_guarded(way: str, is_copy: bool) -> None:
    torch.manual_seed(0)
    model = Hidden(WAYS[way][0])
    gm = trace(model, (X,))
    gm = copy.deepcopy(gm) if is_copy else gm
    for _ in range(2):
        assert torch.equal(gm(X), model(X))
    WAYS[way][1](gm)
    with pytest.raises(GuardError):
        gm(X)


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.listed = [nn.Linear(4, 4)]

    def forward(self, x: Tensor) -> Any:
        return self.listed[0](x)


def test_weights_of_listed_modules_may_be_trained() -> None:
    model = Listed()
    gm = trace(model, (X,))
    with torch.no_grad():
        gm.listed[0].weight.mul_(2)
    assert torch.equal(gm(X), model(X))


def test_listed_modules_are_in_a_file(tmp_path: Any) -> None:
    model = Listed()
    gm = trace(model, (X,))
    save(gm, tmp_path / "model.gw")
    again = load(tmp_path / "model.gw", allow=[__name__.partition(".")[0]])
    assert torch.equal(again(X), model(X))

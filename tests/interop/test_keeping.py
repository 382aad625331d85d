"""Guards stay unless they are to go, and a warning names what a target has as constants."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import Graph, GraphModule, GuardError, to_export, to_fx, trace
from graphwright.ops import cond

SCALE = 2.0


class Setting:
    def __init__(self) -> None:
        self.by = 3.0


def scaled(x: Tensor, setting: Setting) -> Tensor:
    return x * setting.by


class Live(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor, self.is_smooth, self.mode = 2.0, True, "sum"
        self.inner = nn.Linear(3, 3)
        self.inner.gain = 3.0  # type: ignore[assignment]
        self.drop = nn.Dropout()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.is_smooth:
            x = x * self.factor
        if x.sum() > 0:
            x = self.drop(x) * self.inner.gain * self.weight
        return self.inner(x) * SCALE


X = torch.ones(2, 3)


def captured() -> GraphModule:
    return trace(Live().eval(), (X,))


def said_by(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in said if "constant" in str(each.message)]


def test_an_exported_program_names_what_it_does_not_read_again() -> None:
    assert said_by(lambda: to_export(captured(), X)) == [
        "factor, inner.gain are constants of the exported program: the program reads them of its modules in each call"
    ]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


def test_of_many_constants_the_first_are_named() -> None:
    gm = trace(nn.Sequential(*[Scaled() for _ in range(8)]), (X,))
    (said,) = said_by(lambda: to_export(gm, X))
    assert "4.gain, 5.gain and 2 more are constants of the exported program" in said


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_smooth, self.linear, self.drop = True, nn.Linear(3, 3), nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.linear(x)) if self.is_smooth and x.sum() > 0 else x


def test_nothing_is_said_of_what_is_guarded_or_in_the_state() -> None:
    gm = trace(Plain().eval(), (X,))
    assert said_by(lambda: to_export(gm, X)) == [] == said_by(lambda: to_fx(gm, control_flow="hop"))


def test_numbers_are_read_live_in_torch_fx() -> None:
    gm = captured()
    assert said_by(lambda: to_fx(gm, control_flow="hop")) == []
    fx = to_fx(gm, control_flow="hop")
    before = fx(X)
    fx.factor = gm.factor = 6.0  # type: ignore[assignment]
    fx.inner.gain = 5.0  # type: ignore[union-attr, assignment]
    assert not torch.equal(fx(X), before) and torch.equal(fx(X), gm(X))


def test_objects_in_bodies_are_named() -> None:
    model = nn.Module()
    model.setting = Setting()  # type: ignore[assignment]
    graph, sides = Graph(), [Graph(), Graph()]
    for side, function in zip(sides, (scaled, lambda x, setting: x - setting.by), strict=True):
        x = side.placeholder("x")
        side.output(side.call_function(function, (x, side.create_node("get_attr", "setting"))))
    x = graph.placeholder("x")
    graph.output(graph.call_function(cond, (graph.call_method("any", (x,)), *sides, (x,))))
    gm = GraphModule(model, graph)
    assert said_by(lambda: to_fx(gm, control_flow="hop")) == [
        "setting is a constant of bodies of the torch.fx.GraphModule: the program reads it of its modules in each call"
    ]


def test_guards_go_only_when_asked() -> None:
    gm = captured()
    with pytest.raises(GuardError, match="mask"):
        to_fx(gm, control_flow="hop")(X, torch.ones(3))
    fx = to_fx(gm, control_flow="hop", guards="drop")
    assert torch.equal(fx(X, torch.ones(3)), gm(X))
    assert gm.guards
    for convert in (to_fx, lambda gm, **options: to_export(gm, X, **options)):
        with pytest.raises(ValueError, match="guards is 'keep' or 'drop', not 'no'"):
            convert(gm, guards="no")  # type: ignore[operator]


def columns(x: Tensor) -> Tensor:
    return sum(x[:, i] * i for i in range(x.shape[1]))  # type: ignore[return-value]


def test_guards_of_sizes_go_only_when_asked() -> None:
    gm = trace(columns, (X,), static=["x"])
    x = torch.randn(2, 5)
    with pytest.raises(Exception, match=r"3|Guard"):
        to_export(gm, X).module()(x)
    dropped = to_export(gm, X, guards="drop").module()(x)
    torch.testing.assert_close(dropped, columns(x[:, :3]))


def test_globals_and_modules_are_checked_before_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = captured()
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    with pytest.raises(GuardError, match="SCALE"):
        to_export(gm, X)
    monkeypatch.undo()
    gm.is_smooth = False
    with pytest.raises(GuardError, match="is_smooth"):
        to_export(gm, X)

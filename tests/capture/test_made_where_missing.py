"""Attributes that a program makes where they are missing: the first call makes them, later ones find them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import CaptureError, GuardError, Interpreter, TracerWarning, trace

SIZES = (3, 5, 2, 5, 7)


class Thing:
    """Something that attributes may be put on."""


class Slotted:
    __slots__ = ("mask",)


def noted() -> None:
    """A function that has attributes."""


class Model(nn.Module):
    """Runs a program of one of the ways below."""

    def __init__(self, way: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.linear = way, nn.Linear(4, 4)
        self.thing, self.things, self.slotted = Thing(), [Thing(), Thing()], Slotted()
        self.thing.inner = Thing()  # type: ignore[attr-defined]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.way(self, x)

    @property
    def lazy(self) -> torch.Tensor:
        if not hasattr(self, "_lazy"):
            self._lazy = self.linear.weight.sum(0)
        return self._lazy


def of_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "mask"):
        self.mask = x.sum(0)
    return self.linear(x) + self.mask


def caught_of_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        mask = self.mask
    except AttributeError:
        mask = self.mask = x.sum(0)
    return self.linear(x) + mask


def in_the_dict_of_a_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    if "mask" not in self.__dict__:
        self.mask = x.sum(0)
    return self.linear(x) + self.mask


def of_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self.thing, "mask"):
        self.thing.mask = x.sum(0)
    return self.linear(x) + self.thing.mask


def with_a_default(self: Any, x: torch.Tensor) -> torch.Tensor:
    mask = getattr(self.thing, "mask", None)
    if mask is None:
        mask = self.thing.mask = x.sum(0)
    return self.linear(x) + mask


def caught_of_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        mask = self.thing.mask
    except AttributeError:
        mask = self.thing.mask = x.sum(0)
    return self.linear(x) + mask


def in_the_dict_of_an_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    if "mask" not in vars(self.thing):
        self.thing.mask = x.sum(0)
    return self.linear(x) + self.thing.mask


def of_object_in_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self.thing.inner, "mask"):
        self.thing.inner.mask = x.sum(0)
    return self.linear(x) + self.thing.inner.mask


def of_objects_in_a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    for each in self.things:
        if not hasattr(each, "mask"):
            each.mask = x.sum(0)
        x = x + each.mask
    return self.linear(x)


def in_a_slot(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self.slotted, "mask"):
        self.slotted.mask = x.sum(0)
    return self.linear(x) + self.slotted.mask


def of_function(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(noted, "mask"):
        noted.mask = x.sum(0)
    return self.linear(x) + noted.mask


def of_class(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(Thing, "mask"):
        Thing.mask = x.sum(0)
    return self.linear(x) + Thing.mask


def counted(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.count = getattr(self, "count", 0) + 1
    return self.linear(x) * self.count


def counted_in_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.thing.count = getattr(self.thing, "count", 0) + 1
    return self.linear(x) * self.thing.count


def averaged(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "average"):
        self.average = x.mean(0)
    else:
        self.average = self.average * 0.9 + x.mean(0) * 0.1
    return self.linear(x) + self.average


def flagged(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "is_ready"):
        self.is_ready = True
        return self.linear(x) * 3
    return self.linear(x)


def named(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.thing.mode = "later" if hasattr(self.thing, "mode") else "first"
    return self.linear(x) * (2 if self.thing.mode == "first" else 1)


def of_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "rows") or self.rows.size(0) < x.size(0):
        self.rows = torch.arange(x.size(0)).float()[:, None] * x.mean()
    return self.linear(x) + self.rows[: x.size(0)]


def several(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "scale"):
        self.scale, self.shift, self.thing.size = x.sum(0), x.mean(), x.max()
    return self.linear(x) * self.scale + self.shift * self.thing.size


def one_after_the_other(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "first"):
        self.first = x.sum(0)
    x = self.linear(x) + self.first
    if x.sum() > 0:
        if not hasattr(self, "second"):
            self.second = x.mean()
        x = x + self.second
    return x


def on_a_side(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 4:
        if not hasattr(self, "mask"):
            self.mask = x.sum(0)
        return self.linear(x) + self.mask
    return self.linear(x)


def several_on_a_side(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 4:
        if not hasattr(self, "scale"):
            self.scale, self.shift, self.thing.size = x.sum(0), x.mean(), x.max()
        return self.linear(x) * self.scale + self.shift * self.thing.size
    self.register_buffer("last", x.mean())
    return self.linear(x)


def in_a_property(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.linear(x) + self.lazy


def a_dict(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "cache"):
        self.cache = {}
    if "mask" not in self.cache:
        self.cache["mask"] = x.sum(0)
    return self.linear(x) + self.cache["mask"]


def a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "seen"):
        self.seen = []
    self.seen.append(x.sum(0))
    return self.linear(x) + self.seen[-1] * len(self.seen)


def an_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "state"):
        self.state = Thing()
        self.state.mask, self.state.count = x.sum(0), 0
    self.state.count += 1
    return self.linear(x) + self.state.mask * self.state.count


def none_in_an_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self.thing, "before"):
        self.thing.before, x = None, x * 2
    return self.linear(x)


def a_buffer(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "table"):
        self.register_buffer("table", x.sum(0))
    return self.linear(x) + self.table


def a_buffer_of_a_child(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self.linear, "table"):
        self.linear.register_buffer("table", x.sum(0), persistent=False)
    return self.linear(x) + self.linear.table


def caught_of_a_buffer(self: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        table = self.table
    except AttributeError:
        self.register_buffer("table", x.sum(0), persistent=False)
        table = self.table
    return self.linear(x) + table


def in_the_table_of_buffers(self: Any, x: torch.Tensor) -> torch.Tensor:
    if "table" not in self._buffers:
        self.register_buffer("table", x.sum(0))
    return self.linear(x) + self.table


def counted_in_a_buffer(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "count"):
        self.register_buffer("count", torch.zeros(1))
    self.count += 1
    return self.linear(x) * self.count


def nothing_is_asked(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.thing.last, self.last = x.sum(0), x.mean()
    return self.linear(x) + self.thing.last * self.last


WAYS = [
    of_module, caught_of_module, in_the_dict_of_a_module, of_object, with_a_default, caught_of_object,
    in_the_dict_of_an_object, of_object_in_object, of_objects_in_a_list, in_a_slot, of_function, of_class, counted,
    counted_in_object, averaged, flagged, named, of_size, several, one_after_the_other, on_a_side, several_on_a_side,
    in_a_property, a_dict, a_list, an_object, none_in_an_object, a_buffer, a_buffer_of_a_child, caught_of_a_buffer,
    in_the_table_of_buffers, counted_in_a_buffer, nothing_is_asked,
]  # fmt: skip


@pytest.fixture(autouse=True)
def forget() -> Any:
    """Have the function and the class of this file lose what programs put there."""
    yield
    for owner in (noted, Thing):
        if hasattr(owner, "mask"):
            del owner.mask


def model_of(way: Callable[[Any, torch.Tensor], torch.Tensor]) -> Model:
    torch.manual_seed(0)
    return Model(way)


def calls() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(size, 4) for size in SIZES]


def eager(way: Callable[[Any, torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    model = model_of(way)
    results = [model(x) for x in calls()]
    for owner in (noted, Thing):
        if hasattr(owner, "mask"):
            del owner.mask
    return results


def check(run: Callable[[torch.Tensor], torch.Tensor], way: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    for x, wanted in zip(calls(), eager(way), strict=True):
        assert torch.allclose(run(x), wanted)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_first_call_makes_it_and_later_ones_find_it(way: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    model = model_of(way)
    gm = trace(model, (torch.ones(3, 4),))
    assert not gm.report.said
    assert not hasattr(noted, "mask") and not hasattr(Thing, "mask") and not hasattr(model, "mask")
    check(gm, way)


OF_MODELS = [way for way in WAYS if way not in (of_function, of_class)]


@pytest.mark.parametrize("way", OF_MODELS, ids=lambda way: way.__name__)
@torch.no_grad()
def test_a_model_that_has_it_is_captured_with_it(way: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    model = model_of(way)
    first, *others = calls()
    model(first)
    gm = trace(copy.deepcopy(model), (torch.ones(3, 4),))
    for x in others:
        assert torch.allclose(gm(x), model(x))


@pytest.mark.parametrize(
    "way",
    [of_module, of_object, counted, several, a_dict, a_buffer, caught_of_a_buffer],
    ids=lambda way: way.__name__,
)
@pytest.mark.parametrize("form", ["deepcopy", "pickle", "saved", "nested", "interpreted", "captured again"])
def test_captured_modules_that_make_it_go_on(
    way: Callable[[Any, torch.Tensor], torch.Tensor], form: str, tmp_path: Path
) -> None:
    gm: Any = trace(model_of(way), (torch.ones(3, 4),))
    if form == "deepcopy":
        gm = copy.deepcopy(gm)
    elif form == "pickle":
        gm = pickle.loads(pickle.dumps(gm))
    elif form == "saved":
        graphwright.save(gm, tmp_path / "model.gw")
        gm = graphwright.load(tmp_path / "model.gw", allow=[__name__])
    elif form == "nested":
        gm = graphwright.unflatten(gm)
    elif form == "captured again" and way is not several:
        gm = trace(gm, (torch.ones(3, 4),))
    check(Interpreter(gm).run if form == "interpreted" else gm, way)


def test_the_code_asks_whether_it_is_there() -> None:
    assert "if self.mask is None:" in trace(model_of(of_module), (torch.ones(3, 4),)).code
    assert "if not hasattr(self.thing, 'mask'):" in trace(model_of(of_object), (torch.ones(3, 4),)).code


def two_in_one_call(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.count = getattr(self, "count", 0) + 1
    if not hasattr(self, "mask"):
        self.mask = x.sum(0)
    return self.linear(x) * self.count + self.mask


def test_what_one_call_makes_is_asked_for_once() -> None:
    gm = trace(model_of(two_in_one_call), (torch.ones(3, 4),))
    check(gm, two_in_one_call)
    assert gm.code.count(" if ") == 1
    gm.mask = None
    with pytest.raises(GuardError, match=r"Model\.\w+ is missing with the others"):
        gm(torch.ones(3, 4))


class Layer(nn.Module):
    """Makes an attribute of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "first"):
            self.first = x.sum(0)
        return torch.tanh(x + self.first)


def test_of_many_layers_a_call_finds_all_or_none() -> None:
    model = nn.Sequential(*[Layer() for _ in range(5)])
    gm = trace(copy.deepcopy(model), (torch.ones(3, 4),))
    for x in calls():
        assert torch.allclose(gm(x), model(x))
    gm[2].first = None
    with pytest.raises(GuardError, match=r"Layer\.first is missing with the others"):
        gm(torch.ones(3, 4))


def none_in_a_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "before"):
        self.before, x = None, x * 2
    return self.linear(x)


def test_what_cannot_be_told_from_what_is_missing_is_said() -> None:
    with pytest.warns(TracerWarning, match=r"missing\.py:\d+: .*: self\.before is made where it is missing"):
        gm = trace(model_of(none_in_a_module), (torch.ones(3, 4),))
    assert "run the model once first" in gm.report.said[0].text
    model = model_of(none_in_a_module)
    model(torch.ones(3, 4))
    gm = trace(copy.deepcopy(model), (torch.ones(3, 4),))  # now it is there
    assert torch.equal(gm(torch.ones(5, 4)), model(torch.ones(5, 4)))


def the_same_in_each_call(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "table"):
        self.table = torch.arange(4.0)
    return self.linear(x) + self.table


def of_a_dtype(self: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "table"):
        self.table = x.dtype
    return self.linear(x).to(self.table)


@pytest.mark.parametrize(("way", "put"), [(the_same_in_each_call, torch.full((4,), 5.0)), (of_a_dtype, torch.float64)])
def test_what_is_the_same_in_each_call_is_another_where_others_put_that(way: Any, put: Any) -> None:
    for first in (0, 2):
        model = model_of(way)
        gm: Any = trace(copy.deepcopy(model), (torch.ones(3, 4),))
        assert not gm.report.said
        for call in range(4):
            if call == first:
                model.table = gm.table = put
            expected = model(torch.ones(3, 4))
            try:
                assert torch.equal(gm(torch.ones(3, 4)), expected)
            except graphwright.GuardError:
                assert way is of_a_dtype and call == first
                break


class ByWidth(nn.Module):
    """A layer for each width, made when that comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = str(x.shape[-1])
        if key not in self.layers:
            self.layers[key] = nn.Linear(x.shape[-1], 2)
        return self.layers[key](x)  # type: ignore[no-any-return]


class LayerWhereMissing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "layer"):
            self.layer = nn.Linear(4, 2)
        return self.layer(x)  # type: ignore[no-any-return]


class ParameterWhereMissing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "weight"):
            self.register_parameter("weight", nn.Parameter(torch.randn(4)))
        return x * self.weight


@pytest.mark.parametrize("kind", [ByWidth, LayerWhereMissing, ParameterWhereMissing])
def test_modules_and_parameters_that_only_the_first_call_makes_are_refused(kind: type[nn.Module]) -> None:
    x, model = torch.randn(3, 4), kind()
    with pytest.raises(CaptureError, match="while it runs, which only the first call does"):
        trace(model, (x,))
    model(x)
    gm = trace(model, (x,))
    assert torch.equal(gm(x), model(x)) and list(gm.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("way", [a_buffer, a_buffer_of_a_child, counted_in_a_buffer], ids=lambda way: way.__name__)
def test_buffers_that_the_first_call_makes_are_state_as_in_eager(way: Callable[[Any, torch.Tensor], Any]) -> None:
    gm, model = trace(model_of(way), (torch.ones(3, 4),)), model_of(way)
    assert gm.state_dict().keys() == model.state_dict().keys()
    for x in calls()[:2]:
        assert torch.equal(gm(x), model(x))
        assert gm.state_dict().keys() == model.state_dict().keys()
        assert [name for name, _ in gm.named_buffers()] == [name for name, _ in model.named_buffers()]
    gm.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    assert torch.equal(gm(torch.ones(2, 4)), model(torch.ones(2, 4)))

"""What a program writes in one place of a container or object, it takes for granted in the others."""

from __future__ import annotations

import contextlib
import copy
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GraphModule, load, save, trace
from graphwright.errors import GuardError

X = torch.ones(2)


class Meter:
    def __init__(self) -> None:
        self.total, self.scale, self.sizes = 1.0, 2, {"m": 3}


METER = Meter()
NUMBERS = [1, 2, 3]
NESTED: dict[str, Any] = {"inner": {"a": 1, "b": 2}, "k": 4}


def counts_in_an_object(x: torch.Tensor) -> torch.Tensor:
    METER.total = METER.total + 1
    return x * METER.scale + METER.sizes["m"]


def counts_in_a_list(x: torch.Tensor) -> torch.Tensor:
    NUMBERS[0] = NUMBERS[0] + 1
    return x * NUMBERS[1]


def writes_in_a_dict(x: torch.Tensor) -> torch.Tensor:
    NESTED["inner"]["a"] = 5
    return x * NESTED["inner"]["b"] + NESTED["k"]


@pytest.mark.parametrize(
    ("program", "change"),
    [
        (counts_in_an_object, lambda: setattr(METER, "scale", 7)),
        (counts_in_an_object, lambda: METER.sizes.update(m=7)),
        (counts_in_a_list, lambda: NUMBERS.__setitem__(1, 9)),
        (writes_in_a_dict, lambda: NESTED["inner"].update(b=9)),
        (writes_in_a_dict, lambda: NESTED.update(k=9)),
    ],
)
def test_what_is_written_flows_and_the_rest_is_guarded(program: Any, change: Callable[[], Any]) -> None:
    before = copy.deepcopy((vars(METER), NUMBERS, NESTED))
    try:
        captured = trace(program, (X,))
        first = copy.deepcopy((METER.total, NUMBERS, NESTED))
        given = captured(X), captured(X)
        METER.total, NUMBERS[:] = first[0], first[1]
        assert all(map(torch.equal, given, (program(X), program(X))))
        change()
        with pytest.raises(GuardError):
            captured(X)
    finally:
        vars(METER).update(before[0])
        NUMBERS[:] = before[1]
        NESTED.update(before[2])


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = {"a": 1, "b": 2.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sizes["b"] = 3.0
        return x * self.sizes["a"]


def test_a_dict_of_a_module_that_is_partly_written() -> None:
    captured: Any = trace(Held(), (X,))
    assert torch.equal(captured(X), captured(X))
    captured.sizes["a"] = 5
    with pytest.raises(GuardError, match=r"self.sizes.a was 1"):
        captured(X)


class CountsInAnObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()
        self.meter.rows = {"all": [0, 3], "k": 4}  # type: ignore[attr-defined]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows: Any = self.meter.rows  # type: ignore[attr-defined]
        rows["all"][0] += 1
        self.meter.sizes["m"] += 1
        return x * rows["all"][0] + rows["all"][1] * rows["k"] + self.meter.sizes["m"]


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair, self.nested = [torch.ones(2), torch.ones(2)], [[torch.ones(2)], [torch.ones(2)]]
        self.fixed = (torch.ones(2), [torch.ones(2)])


class OfAList(Pairs):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.pair[1] = x * 2
        return x + self.pair[0]


class OfAListInside(Pairs):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.nested[1][0] = x * 2
        return x + self.nested[0][0]


class OfATuple(Pairs):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.fixed[1][0] = x * 2
        return x + self.fixed[0]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (OfAList, lambda gm: gm.pair.__setitem__(0, X * 5)),
        (OfAList, lambda gm: setattr(gm, "pair", [X * 5, X])),
        (OfAListInside, lambda gm: gm.nested[0].__setitem__(0, X * 5)),
        (OfAListInside, lambda gm: gm.nested.__setitem__(0, [X * 5])),
        (OfATuple, lambda gm: setattr(gm, "fixed", (X * 5, gm.fixed[1]))),
    ],
)
def test_a_tensor_beside_one_that_is_written_is_the_same_one(
    kind: type[nn.Module], change: Callable[[Any], Any]
) -> None:
    gm, model = trace(kind(), (X,)), kind()
    for x in (X, X * 3):
        assert torch.equal(gm(x), model(x))
    change(gm)
    with pytest.raises(GuardError, match=r"was torch\.float32 2 when the program was captured"):
        gm(X)


def test_containers_in_an_object_of_a_module_are_partly_written() -> None:
    model = CountsInAnObject()
    gm, original = trace(model, (X,)), copy.deepcopy(model)
    for _ in range(3):
        assert torch.equal(gm(X), original(X))
    changes: list[Callable[[Any], Any]] = [lambda rows: rows.update(k=5), lambda rows: rows["all"].__setitem__(1, 9)]
    for change in changes:
        again = copy.deepcopy(gm)
        change(again.meter.rows)
        with pytest.raises(GuardError):
            again(X)


class Triple(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.ReLU(), Triple()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[-1](x)  # type: ignore[no-any-return]


def test_a_module_whose_code_alone_is_in_the_graph_may_not_go() -> None:
    captured: Any = trace(Last(), (X,))
    del captured.layers[1]
    with pytest.raises(GuardError, match="layers has lost 1"):
        captured(X)


def test_unused_modules_may_be_removed_by_name() -> None:
    captured: GraphModule = trace(Last(), (X,))
    captured.delete_all_unused_submodules()
    assert not list(captured.children()) and torch.equal(captured(X), 3 * X)
    captured = trace(Last(), (X,))
    assert captured.delete_submodule("layers.1") and torch.equal(captured(X), 3 * X)


class Shifted(nn.Module):
    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Shifted()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner.shift(x)


def test_a_method_may_not_be_hidden_by_an_attribute() -> None:
    captured: Any = trace(Around(), (X,))
    captured.inner.shift = lambda x: x - 1
    with pytest.raises(GuardError, match=r"self.inner.shift is there now"):
        captured(X)


class AsksItsClass(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2 if hasattr(type(self), "doubles") else 3)


def test_an_attribute_of_the_class_of_a_module_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = trace(AsksItsClass(), (X,))
    assert torch.equal(captured(X), X * 3)
    monkeypatch.setattr(AsksItsClass, "doubles", True, raising=False)
    with pytest.raises(GuardError, match=r"AsksItsClass\.doubles was no attribute"):
        captured(X)


SPACE = types.SimpleNamespace()


def suppresses(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(AttributeError):
        return x * SPACE.scale
    return x


def test_a_missing_attribute_that_is_suppressed_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = trace(suppresses, (X,))
    assert torch.equal(captured(X), X)
    monkeypatch.setattr(SPACE, "scale", 3, raising=False)
    with pytest.raises(GuardError, match="'scale' of the global 'SPACE'"):
        captured(X)


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.ReLU(), Triple()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_the_forward_of_a_class_may_not_be_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    captured: Any = trace(Calls(), (X,))
    copied, pickled = copy.deepcopy(captured), pickle.dumps(captured)
    save(captured, tmp_path / "calls.gw")
    assert torch.equal(captured(X), 3 * X)
    monkeypatch.setattr(Triple, "forward", lambda self, x: x * 5)
    for module in (captured, copied):
        with pytest.raises(GuardError, match=r"Triple.forward has been replaced"):
            module(X)
    for module in (pickle.loads(pickled), load(tmp_path / "calls.gw", allow=[__name__])):  # as in another process
        assert torch.equal(module(X), 3 * X)
    monkeypatch.undo()
    assert torch.equal(captured(X), 3 * X)


class Resets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Shifted()
        self.inner.mode = "up"  # type: ignore

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner.mode = "up"  # type: ignore
        return x + 1


def test_what_is_written_as_it_was_is_guarded() -> None:
    captured: Any = trace(Resets(), (X,))
    captured.inner.mode = "down"
    with pytest.raises(GuardError, match=r"self.inner.mode was 'up'"):
        captured(X)


def test_a_class_made_by_type_may_have_no_module() -> None:
    captured: Any = trace(Around(), (X,))
    names: dict[str, Any] = {"Shifted": Shifted}
    exec("Made = type('Made', (Shifted,), {})", names)
    captured.inner.__class__ = names["Made"]
    assert torch.equal(captured(X), X + 1)


class Doubled(Shifted):
    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 4


class Entered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Shifted()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1  # type: ignore[no-any-return]


class Asked(Entered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if type(self.inner) is Shifted else x - 1


@pytest.mark.parametrize(
    ("kind", "became"), [(Entered, Doubled), (Asked, Doubled), (Asked, type("Same", (Shifted,), {}))]
)
def test_a_module_that_becomes_another_class_is_seen(kind: type[nn.Module], became: type) -> None:
    captured: Any = trace(kind(), (X,))
    assert torch.equal(captured(X), X + 1)
    captured.inner.__class__ = became
    with pytest.raises(GuardError, match="inner"):
        captured(X)

"""`doctor` lists every obstacle of a program in one run, with the user's lines, and changes nothing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, doctor, trace
from graphwright.capture import Diagnosis


class Odd(bytearray):
    """No class that a graph can hold: what its objects have is in no attribute."""


class Many(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # how often its loop runs
        self.linear = nn.Linear(3, 3)
        self.seen: list[Any] = []

    def forward(self, x: torch.Tensor, mask: Any = None, settings: Any = None) -> Any:
        key = bytes(int(x.max()))
        self.last = [x * len(key), Odd()]
        y = self.linear(x)
        self.seen.append(y)
        for _ in range(int(y.abs().sum())):
            y = y + 1
        if mask is None:
            y = y * 2
        print(f"sum: {y.sum()}")
        while y.sum() > 1:
            y = y - 10
        title = key + bytes(int(y.abs().max()))
        if x.sum() > 0:
            return y, {"title": title, "odd": Odd()}
        return y


def found(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(obstacle.category, obstacle.source) for obstacle in diagnosis.obstacles]


def test_every_obstacle_is_found_in_one_run() -> None:
    model = Many()
    diagnosis = doctor(model, (torch.ones(2, 3),), {"settings": Odd()})
    definition = "def forward(self, x: torch.Tensor, mask: Any = None, settings: Any = None) -> Any:"
    assert not diagnosis.ok and not diagnosis and diagnosis.is_complete
    assert sorted(found(diagnosis)) == sorted([
        ("argument", definition),
        ("data", "key = bytes(int(x.max()))"),
        ("attribute", "self.last = [x * len(key), Odd()]"),
        ("data", 'title = key + bytes(int(y.abs().max()))'),
        ("value", definition),
        ("guard", definition),
        ("guard", definition),
        ("fork", "if x.sum() > 0:"),
    ])  # fmt: skip
    assert [obstacle.is_blocking for obstacle in diagnosis.obstacles] == [True] * 5 + [False] * 3
    assert all(obstacle.at.startswith("test_doctor.py:") and obstacle.fix for obstacle in diagnosis.obstacles)


def test_a_diagnosis_reads_as_text() -> None:
    lines = str(doctor(Many(), (torch.ones(2, 3),))).splitlines()
    assert lines[0] == "Many.forward cannot be captured yet: 4 obstacles, 3 notes"
    assert lines[1] == "1. data: the program asks for the data of a tensor, which is known only when it runs"
    assert lines[2].startswith("     at test_doctor.py:") and lines[2].endswith(": key = bytes(int(x.max()))")
    assert lines[3] == "     fix: use torch.where, or keep the value a tensor"


def test_it_never_changes_the_model() -> None:
    model = Many()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    state = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    expected = torch.rand(())
    torch.manual_seed(3)
    doctor(model, (torch.ones(2, 3),))
    assert torch.equal(torch.rand(()), expected)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert model.seen == [] and not hasattr(model, "last")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def pickled(x: torch.Tensor) -> int:
    return len(pickle.dumps(x))


def copied(x: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(x) + 1


def one_sided(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = x * 2
    return y


def fails_elsewhere(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x.view(17, 3)


class Reads(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * pickled(x)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reads = Reads()

    def forward(self, x: torch.Tensor) -> Any:
        x = self.reads(x) + copied(x)
        return fails_elsewhere(one_sided(x)), bytes(int(x.sum()))


def test_what_fails_is_passed_by_as_one_node() -> None:
    diagnosis = doctor(Fails(), torch.ones(3))
    assert diagnosis.is_complete
    assert found(diagnosis) == [
        ("failure", "if x.sum() > 0:"),
        ("failure", "return x * 2 if x.sum() > 0 else x.view(17, 3)"),
        ("data", "return fails_elsewhere(one_sided(x)), bytes(int(x.sum()))"),
        ("guard", "def forward(self, x: torch.Tensor) -> Any:"),
        ("opaque", "return x * pickled(x)"),
    ]
    assert "variable 'y' has a value on only one side" in diagnosis.obstacles[0].text


def test_where_the_program_itself_fails_the_rest_is_not_looked_at() -> None:
    def program(x: torch.Tensor) -> Any:
        text = bytes(int(x.sum()))
        x = x @ torch.ones(17)
        return bytes(int(x)), text

    diagnosis = doctor(program, torch.ones(3))
    assert not diagnosis.is_complete
    assert [category for category, _ in found(diagnosis)] == ["data", "failure"]
    assert str(diagnosis).endswith("was not looked at: remove it, then ask again.")


class Clean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers(x)
        return x * 2 if x.size(0) > 1 else x


def test_a_clean_model_has_no_obstacles() -> None:
    diagnosis = doctor(Clean(), torch.ones(2, 3))
    assert diagnosis.ok and diagnosis and diagnosis.obstacles == ()
    assert str(diagnosis) == "Clean.forward can be captured"


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({"expert_0": nn.Linear(2, 2), "expert_1": nn.Linear(2, 2)})

    def forward(self, x: torch.Tensor) -> Any:
        y = self.experts[f"expert_{x.argmax():d}"](x)
        return y, bytes(int(x.sum()))


def test_a_name_made_of_data_is_the_examples() -> None:
    diagnosis = doctor(Chosen(), torch.tensor([0.0, 1.0]))
    assert [category for category, _ in found(diagnosis)] == ["data", "data"]


def rate(x: torch.Tensor) -> int:
    return len(x.tolist())


def noted(x: torch.Tensor, flag: bool = False) -> Any:
    if flag:
        x = x * 2
    for i in (0,) * x.size(0):
        x = x + i
    x = x * rate(x)
    return (x, x) if x.sum() > 0 else x


def test_what_does_not_block_is_listed() -> None:
    diagnosis = doctor(noted, torch.ones(3), leaf_functions=[rate])
    assert diagnosis.ok
    assert found(diagnosis) == [
        ("guard", "def noted(x: torch.Tensor, flag: bool = False) -> Any:"),
        ("guard", "def noted(x: torch.Tensor, flag: bool = False) -> Any:"),
        ("guard", "for i in (0,) * x.size(0):"),
        ("opaque", "x = x * rate(x)"),
        ("fork", "return (x, x) if x.sum() > 0 else x"),
    ]
    assert str(diagnosis).startswith("noted can be captured, 5 notes\n1. guard: flag is False\n")


@pytest.mark.parametrize("program", [Many(), Fails(), Clean(), noted, one_sided, copied, pickled, fails_elsewhere])
def test_it_agrees_with_trace(program: Any) -> None:
    x = torch.ones(3) if not isinstance(program, Many | Clean) else torch.ones(2, 3)
    try:
        trace(program, x, leaf_functions=[rate])
        is_captured = True
    except Exception:
        is_captured = False
    assert doctor(program, x, leaf_functions=[rate]).ok == is_captured


REFUSED = [
    pytest.param(lambda: doctor(3, ()), "neither an nn.Module nor callable", id="not a program"),  # type: ignore[arg-type]
    pytest.param(lambda: doctor(Clean(), {"x": 1}), "args is a dict", id="a dict as args"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_a_wrong_call_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        call()


def test_inputs_that_do_not_fit_are_an_obstacle() -> None:
    diagnosis = doctor(Clean(), ())
    assert found(diagnosis) == [("argument", "def forward(self, x: torch.Tensor) -> torch.Tensor:")]
    assert not diagnosis.is_complete


def loops(x: torch.Tensor) -> Any:
    y: Any = x
    while x.sum() > 1:
        x, y = x - 1, (y, y)
    return y


def test_a_loop_on_data_is_refused_in_finite_time() -> None:
    with pytest.raises(CaptureError, match="forks into more than 8 paths"):
        trace(loops, torch.ones(3))
    with pytest.raises(CaptureError, match="forks into more than 2 paths"):
        trace(loops, torch.ones(3), max_paths=2)

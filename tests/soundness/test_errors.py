"""Errors: what leaves a capture is ours, or what the program itself raises; each names the user's line and a fix."""

from __future__ import annotations

import copy
import enum
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from graphwright import CaptureError, GuardError, symbolic_trace, trace

ROW = torch.ones(1, 2)


class CopiesItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        return copy.deepcopy(self.net)(x)


# Eager runs these: what cannot be captured is said by us, with the line.
REFUSED: list[Any] = [
    pytest.param(CopiesItself(), "copies a module", id="a copy of a module"),
    pytest.param(lambda x: pickle.dumps(x.shape[0]), "wrong class", id="C takes no number of ours"),
    pytest.param(lambda x: f"{x}"[0], "as text", id="the text of a tensor"),
]


@pytest.mark.parametrize(("program", "message"), REFUSED)
def test_what_cannot_be_captured_is_refused_with_the_line(program: Callable[..., Any], message: str) -> None:
    program(ROW)
    with pytest.raises(CaptureError, match=message) as raised:
        trace(program, (ROW,))
    assert "test_errors.py" in str(raised.value.at)
    assert raised.value.fix


class TooWide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


OWN: list[Any] = [
    pytest.param(TooWide(), id="a shape that does not fit"),
    pytest.param(lambda x: x @ torch.ones(7, 7), id="an operation"),
    pytest.param(lambda x: x.nonsense, id="an attribute"),
    pytest.param(lambda x: {}[x.shape[0]], id="a lookup"),
    pytest.param(lambda x: x.shape[0].nonsense, id="an attribute of a size"),
]


@pytest.mark.parametrize("program", OWN)
def test_what_eager_raises_is_raised_as_it_is_with_the_line(program: Callable[..., Any]) -> None:
    with pytest.raises(Exception) as eager:
        program(ROW)
    with pytest.raises(type(eager.value)) as captured:
        trace(program, (ROW,))
    assert str(captured.value) == str(eager.value)
    assert not hasattr(captured.value, "add_note") or "test_errors.py" in captured.value.__notes__[0]


def test_random_numbers_stay_as_they_were_where_a_program_fails() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.rand(2) @ torch.ones(7, 7)

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        trace(program, (ROW,))
    assert torch.equal(torch.get_rng_state(), before)


class Unmade(LazyModuleMixin, nn.Module):  # type: ignore[misc]
    def initialize_parameters(self, x: Tensor) -> None:
        self.layer = nn.Linear(x.shape[-1], 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


CALLS: list[Any] = [
    pytest.param(lambda: trace(nn.Linear(2, 2), ROW, ROW), "trace\\(model, \\(x, y\\), {}\\)", id="no tuple"),
    pytest.param(lambda: trace(nn.LazyLinear(2), (ROW,)), "call the model on the example once", id="lazy"),
    pytest.param(lambda: trace(nn.Sequential(nn.LazyLinear(2)), (ROW,)), "0 is a LazyLinear", id="lazy inside"),
    pytest.param(lambda: trace(Unmade(), (ROW,)), "the model is a Unmade, whose parameters", id="lazy, with parts"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_trace_says_what_it_wants(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        call()


@pytest.mark.slow
def test_a_compiled_module_is_captured_as_what_it_was_made_of() -> None:
    layer = nn.Linear(2, 2)
    gm = trace(torch.compile(layer), (ROW,))
    assert isinstance(gm, nn.Linear)
    assert torch.equal(gm(ROW), layer(ROW))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Adds:
    """An object that can be called, of which nobody knows what it holds."""

    def __init__(self) -> None:
        self.hidden = lambda value: value

    def __call__(self, x: Tensor) -> Tensor:
        return x + 1


OBJECTS: list[Any] = [
    pytest.param(Adds(), Adds(), "another", id="objects"),
    pytest.param(Color.RED, Color.BLUE, "Color.BLUE", id="members"),
    pytest.param(lambda x: x, lambda x: x + 1, "function", id="functions"),
]


@pytest.mark.parametrize(("given", "other", "name"), OBJECTS)
def test_a_guard_tells_what_differs(given: Any, other: Any, name: str) -> None:
    def program(x: Tensor, what: Any) -> Any:
        return what(x) if callable(what) else x + what.value

    gm = trace(program, (ROW, given))
    with pytest.raises(GuardError, match=f"now it is .*{name}") as raised:
        gm(ROW, other)
    was, now = raised.value.message.split(" when the program was captured; now it is ")
    assert not was.endswith(f" {now}")


RUN: list[Any] = [
    pytest.param(lambda x: torch.vmap(lambda row: row + torch.rand(2), randomness="different")(x), id="vmap"),
    pytest.param(lambda x: nn.Linear(x.shape[-1], 2)(x).shape if x.sum() > 0 else x.shape, id="a module on a side"),
    pytest.param(lambda x: torch.sym_max(x.shape[0], 3) + torch.sym_min(x.shape[0], 1), id="sym_max"),
    pytest.param(lambda x: torch.sym_not(x.shape[0] > 3), id="sym_not"),
    pytest.param(lambda x: torch.sym_float(x.shape[0]), id="sym_float"),
    pytest.param(lambda x: torch.sym_ite(x.shape[0] > 3, 1, 2), id="sym_ite"),
]


@pytest.mark.parametrize("program", RUN)
def test_these_are_captured(program: Callable[..., Any]) -> None:
    gm = trace(program, (ROW,))
    for x in ROW, torch.ones(5, 2):
        torch.manual_seed(0)
        expected = program(x)
        torch.manual_seed(0)
        given = gm(x)
        assert torch.equal(given, expected) if isinstance(expected, Tensor) else given == expected


def _of_two_ranks(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.view(2, -1) * 2
    except RuntimeError:
        return x * 3


def _of_two_kinds(x: torch.Tensor) -> Any:
    try:
        y = x.view(2, -1)
    except RuntimeError:
        return x.shape[0]
    return y, y.sum()


@pytest.mark.parametrize("program", [_of_two_ranks, _of_two_kinds])
def test_a_try_on_sizes_is_a_branch_whatever_its_ways_leave(program: Any) -> None:
    gm = trace(program, (torch.ones(4),))
    for size in (4, 5, 6, 7):
        x = torch.rand(size)
        torch.testing.assert_close(gm(x), program(x))


class Knot:
    """An object that has itself."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.around = [self]


def list_in_itself(x: torch.Tensor) -> Any:
    items: list[Any] = [x]
    items.append(items)
    return items


def dict_in_itself(x: torch.Tensor) -> Any:
    table: dict[str, Any] = {"x": x * 2}
    table["rows"] = [(1, table)]
    return table


def list_on_both_sides(x: torch.Tensor) -> Any:
    items: list[Any] = [x]
    items.append(items)
    if x.sum() > 0:
        items.append(1)
    return len(items)


@pytest.mark.parametrize(
    ("program", "kind"),
    [(list_in_itself, "list"), (dict_in_itself, "dict"), (Knot, "Knot"), (list_on_both_sides, "list")],
)
def test_what_holds_itself_is_named(program: Any, kind: str) -> None:
    with pytest.raises(CaptureError, match=f"a {kind} of the program holds itself"):
        trace(program if kind != "Knot" else lambda x: Knot(x + 1), (torch.ones(2),))


def list_given_back(x: torch.Tensor) -> Any:
    items: list[Any] = [x]
    items.append(items)
    return items


@pytest.mark.parametrize("capture", [lambda program: trace(program, (torch.ones(2),)), symbolic_trace])
def test_what_holds_itself_is_named_where_it_is_given_back(capture: Any) -> None:
    with pytest.raises(CaptureError, match="a list of the program holds itself"):
        capture(list_given_back)


@pytest.mark.parametrize("depth", range(1, 9))
def test_what_is_named_does_not_depend_on_how_deep_the_capture_was_called(depth: int) -> None:
    def capture(depth: int) -> None:
        if depth:
            capture(depth - 1)
        else:
            trace(lambda x: Knot(x + 1), (torch.ones(2),))

    with pytest.raises(CaptureError, match="a Knot of the program holds itself"):
        capture(depth)


def test_an_input_that_holds_itself_is_named() -> None:
    items: list[Any] = [torch.ones(2)]
    items.append(items)
    with pytest.raises(CaptureError, match="a list of the program holds itself"):
        trace(lambda items: items[0] + 1, (items,))


def test_what_holds_itself_may_be_used() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        knot = Knot(x * 2)
        return knot.around[0].around[0].x + 1  # type: ignore[no-any-return]

    assert torch.equal(trace(program, (torch.ones(2),))(torch.zeros(2)), torch.ones(2))

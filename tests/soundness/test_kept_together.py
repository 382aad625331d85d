"""What a program keeps in two places that belong together, or changes where no method of a container is called."""

from __future__ import annotations

import copy
import dataclasses
import heapq
import linecache
from collections import deque
from typing import Any

import pytest
import torch
from tests.soundness.stories import UP, calls, told
from torch import nn

import graphwright as gw

TABLE = torch.ones(2)


class Total(nn.Module):
    total = 0


class OnBoth(Total):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Total.total += 3
        self.total += 1
        return x * self.total


class OnTheClassFirst(Total):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            type(self).total += 1
        for _ in range(2):
            self.total = self.total * 2
        return x * self.total


class OnTheClass(Total):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Total.total += 3
        return x * self.total


@pytest.mark.parametrize("kind", [OnBoth, OnTheClassFirst, OnTheClass])
def test_an_attribute_starts_from_what_its_class_has_then(kind: Any) -> None:
    def make() -> nn.Module:
        Total.total = OnTheClassFirst.total = 0
        return kind()  # type: ignore[no-any-return]

    assert told(make, calls(UP, -UP, UP)).startswith("same" if kind is OnTheClass else "loud: the program writes")


@dataclasses.dataclass
class Box:
    a: Any


class Boxed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.box, self.held = Box(1.0), torch.zeros(2)


class OfAnotherKind(Boxed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.box.a += 1
        self.box = Box(self.held)
        return x + self.held


class OrNone(Boxed):
    def __init__(self) -> None:
        super().__init__()
        self.box = Box(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x if self.box.a is None else x + self.box.a
        self.box.a = y * 2
        if x.sum() < 0:
            self.box = Box(None)
        return y


@pytest.mark.parametrize("kind", [OfAnotherKind, OrNone])
def test_an_attribute_of_an_object_that_is_replaced_is_what_any_of_them_has(kind: Any) -> None:
    assert told(kind, calls(UP, -UP, UP, UP)).startswith(("same", "loud"))


CHANGES = [
    ("[]", "list.append(self.held, 2)"), ("[1]", "list.extend(self.held, [1])"), ("[1]", "list.clear(self.held)"),
    ("[1]", "list.insert(self.held, 0, 2)"), ("[1]", "list.__iadd__(self.held, [4])"),
    ("[1]", "heapq.heappush(self.held, 2)"), ("{1}", "set.add(self.held, 5)"),
    ("deque([1])", "deque.append(self.held, 3)"), ("{'a': 1}", "dict.update(self.held, b=2)"),
    ("{'a': 1}", "dict.setdefault(self.held, 'b', 3)"),
]  # fmt: skip


@pytest.mark.parametrize("has_source", [True, False])
@pytest.mark.parametrize(("start", "change"), CHANGES)
def test_a_function_in_c_changes_a_container_past_its_methods(start: str, change: str, has_source: bool) -> None:
    lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        self.held = {start}", "    def forward(self, x):", f"        {change}", "        return x"]
    text = "\n".join([*lines, ""])
    name = f"<past methods {change}>"
    if has_source:
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names: dict[str, Any] = {"nn": nn, "heapq": heapq, "deque": deque, "__name__": "past_methods"}
    exec(compile(text, name, "exec"), names)

    def story(program: Any) -> Any:
        for _ in range(3):
            program(UP)
        return program.held

    assert told(names["Model"], story).startswith(("same", "loud"))


class Adding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + TABLE


def test_a_copy_finds_the_very_tensors_outside() -> None:
    def story(program: nn.Module) -> list[torch.Tensor]:
        copied = copy.deepcopy(program)
        TABLE.add_(1)
        return [copied(UP), program(UP)]

    model, gm = Adding(), gw.trace(Adding(), (UP,))
    TABLE.fill_(1)
    want = story(model)
    TABLE.fill_(1)
    assert all(map(torch.equal, story(gm), want))


def shape_of(value: Any) -> str:
    """How values hold each other: each list, dict and tensor with a number, the same where it is the same one."""
    numbers: dict[int, int] = {}

    def told_of(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(told_of, part))
        if not isinstance(part, list | dict | torch.Tensor):
            return part
        number = numbers.setdefault(id(part), len(numbers))
        if isinstance(part, torch.Tensor):
            return number, part.tolist()
        return number, [told_of(item) for item in part.items()] if isinstance(part, dict) else [*map(told_of, part)]

    return str(told_of(value))


class Keeps(nn.Module):
    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run
        self.table: dict[Any, Any] = {}
        self.rows: list[Any] = []

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def under_two_keys(self: Keeps, x: torch.Tensor) -> Any:
    self.table["a"] = self.table["b"] = [x * 1]
    return x


def twice(self: Keeps, x: torch.Tensor) -> Any:
    row = [x * 1]
    self.rows.append(row)
    self.rows.append(row)
    return x


def in_two_containers(self: Keeps, x: torch.Tensor) -> Any:
    row = {"x": x * 1}
    self.rows.append(row)
    self.table["a"] = row
    return x


def also_returned(self: Keeps, x: torch.Tensor) -> Any:
    row = [x * 1]
    self.rows.append(row)
    return x, row


def also_returned_by_one_side(self: Keeps, x: torch.Tensor) -> Any:
    row = [x * 1]
    if x.sum() > 0:
        self.rows.append(row)
    else:
        self.table[x.shape[0]] = row
    return x, row


def read_and_kept_again(self: Keeps, x: torch.Tensor) -> Any:
    self.rows.append([x * 1])
    self.rows.append(self.rows[0])
    return x


@pytest.mark.parametrize(
    "program", [under_two_keys, twice, in_two_containers, also_returned, also_returned_by_one_side, read_and_kept_again]
)
def test_a_list_that_is_kept_in_several_places_is_one_list(program: Any) -> None:
    def story(model: Any) -> list[str]:
        return [shape_of((model(x), model.table, model.rows)) for x in (UP, -UP, torch.ones(3), UP)]

    found = told(lambda: Keeps(program), story)
    assert found.startswith("loud: the program keeps a list in several" if "side" in program.__name__ else "same")
    assert found == "same" or "row" in found


def filled_with_one(x: torch.Tensor) -> Any:
    row, rows = [x * 1], []
    for _ in range(x.shape[0]):
        rows.append(row)
    return rows


def filled_under_two_keys(x: torch.Tensor) -> Any:
    table = {}
    for i in range(x.shape[0]):
        row = [x * i]
        table["a"] = row
        table["b"] = row
    return table


def made_anew_with_one(x: torch.Tensor) -> Any:
    row: list[Any] = []
    table: dict[str, Any] = {}
    i = 0
    while True:
        i += 1
        table = {"a": row, "b": row}
        if x.shape[0] > 2 or i > 4:
            break
    table["a"].append(x)
    return table


def made_anew_of_two(x: torch.Tensor) -> Any:
    rows: list[Any] = []
    for i in range(x.shape[0]):
        row = [x * i]
        rows = [row, row]
    return rows


@pytest.mark.parametrize("program", [filled_with_one, filled_under_two_keys, made_anew_with_one, made_anew_of_two])
def test_a_list_that_a_loop_puts_into_several_places_is_one_list(program: Any) -> None:
    gm = gw.trace(program, (UP,))
    for x in (UP, -UP, torch.ones(3), torch.ones(1)):
        try:
            assert shape_of(gm(x)) == shape_of(program(x))
        except gw.GuardError:
            assert x.shape != UP.shape


class Asks(nn.Module):
    """It asks what an attribute is, and leaves a value there."""

    def __init__(self, start: Any, after: Any, ask: Any) -> None:
        super().__init__()
        self.held, self.after, self.ask = start(), after, ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.ask(self)
        self.held = self.after(x)
        return x + found


def has_a_text(self: Any) -> int:
    return len(str(self.held)) + len(f"{self.held}")


def is_an_int(self: Any) -> int:
    return 1 if isinstance(self.held, int) else 2


def matches(self: Any) -> int:
    match self.held:
        case int():
            return 1
        case Box():
            return 2
        case _:
            return 3


def is_of_class(self: Any) -> int:
    return 1 if type(self.held) is int else len(type(self.held).__name__)


def can_be_called(self: Any) -> int:
    return 1 if callable(self.held) else 2


def is_that(self: Any) -> int:
    return 1 if self.held is NOTHING else 2


def is_written_to(self: Any) -> int:
    if isinstance(self.held, Box):
        self.held.a = 5
    return 1


NOTHING = Box(0)
KINDS = [
    (lambda: NOTHING, lambda x: 3), (lambda: 1.5, lambda x: 3), (lambda: (1, 2), lambda x: x * 1),
    (lambda: None, lambda x: x * 1),
]  # fmt: skip


ASKS = [has_a_text, is_an_int, matches, is_of_class, can_be_called, is_that, is_written_to]


@pytest.mark.parametrize(("start", "after"), KINDS)
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_what_an_attribute_is_when_calls_leave_another_kind(start: Any, after: Any, ask: Any) -> None:
    assert told(lambda: Asks(start, after, ask), calls(UP, -UP, UP)).startswith(("same", "loud"))

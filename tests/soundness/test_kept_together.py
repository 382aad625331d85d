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

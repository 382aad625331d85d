"""Which values of a program are one object: what is put into kept containers, held twice, or of a class as well."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.soundness.stories import UP, calls, told
from torch import nn

import graphwright as gw

ROWS: list[Any] = []


class Node:
    """An object that modules hold."""

    def __init__(self, v: Any = 1) -> None:
        self.v = v


class Keeps(nn.Module):
    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run
        self.rows: list[Any] = []
        self.table: dict[Any, Any] = {}
        self.other = [1]

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def put_under_two_keys(self: Keeps, x: torch.Tensor) -> Any:
    self.table["k"] = self.table["j"] = [x]
    return x, self.table["k"] is self.table["j"]


def put_and_compared(self: Keeps, x: torch.Tensor) -> Any:
    row = [x]
    self.rows.append(row)
    return self.rows[-1] is row, self.rows[0] is row, self.rows[0] is self.rows[-1]


def put_from_an_attribute(self: Keeps, x: torch.Tensor) -> Any:
    before = self.rows[0] is self.other if self.rows else None
    self.rows.append(self.other)
    return before, self.rows[-1] is self.other


def a_tensor(self: Keeps, x: torch.Tensor) -> Any:
    y = x * 2
    self.rows.append(y)
    return self.rows[-1] is y, self.rows[0] is y


def grown_where_nothing_reads_it(self: Keeps, x: torch.Tensor) -> Any:
    row = [x]
    self.rows.append(row)
    self.rows.append(row)
    self.rows[0].append(x + 1)
    return len(self.rows[-1]), x


def grown_and_read(self: Keeps, x: torch.Tensor) -> Any:
    row = [x]
    self.rows.append(row)
    self.rows[-1].append(x + 1)
    return len(row)


def grown_in_a_dict_and_read(self: Keeps, x: torch.Tensor) -> Any:
    table = {"r": [x]}
    row = table["r"]
    self.rows.append(table)
    self.rows[-1]["r"].append(x + 1)
    return len(row)


def inside_of_what_is_put(self: Keeps, x: torch.Tensor) -> Any:
    row = [x]
    self.rows.append({"r": row})
    return row is self.rows[-1]["r"], row


def a_tuple(self: Keeps, x: torch.Tensor) -> Any:
    pair = (x, x)
    self.rows.append(pair)
    return self.rows[-1] is pair


def asked_for_its_id(self: Keeps, x: torch.Tensor) -> Any:
    row = [x]
    self.rows.append(row)
    return id(row) == id(self.rows[-1])


SAME = [
    put_under_two_keys, put_and_compared, put_from_an_attribute, a_tensor, grown_where_nothing_reads_it,
    inside_of_what_is_put,
]  # fmt: skip
LOUD = [grown_and_read, grown_in_a_dict_and_read, a_tuple, asked_for_its_id]


@pytest.mark.parametrize("program", [*SAME, *LOUD], ids=lambda program: program.__name__)
def test_what_comes_out_of_a_kept_container_is_what_was_put_there(program: Any) -> None:
    found = told(lambda: Keeps(program), calls(UP, -UP, UP))
    assert found.startswith("same" if program in SAME else "loud"), found


class Replaces(nn.Module):
    """It replaces an object, which another attribute may have, too."""

    def __init__(self, run: Any, is_first: bool) -> None:
        super().__init__()
        self.run = run
        if is_first:
            self.o = self.p = Node()
        else:
            self.p = self.o = Node()

    def forward(self, x: torch.Tensor) -> Any:
        o, self.o = self.o, Node()
        return self.run(self, x, o)


def given_back(self: Any, x: torch.Tensor, o: Any) -> Any:
    return x, o


def asked(self: Any, x: torch.Tensor, o: Any) -> Any:
    return x, o is self.p


def changed(self: Any, x: torch.Tensor, o: Any) -> Any:
    o.v += 1
    return x + self.p.v


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("run", [given_back, asked, changed])
def test_an_object_that_is_replaced_and_held_elsewhere(run: Any, is_first: bool) -> None:
    def story(program: Any) -> list[Any]:
        found = []
        for x in (UP, -UP):
            value, *rest = program(x)
            found.append((value, [each is program.p if isinstance(each, Node) else each for each in rest], program.p.v))
        return found

    found = told(lambda: Replaces(run, is_first), story)
    assert found == "same" if run is given_back else "are one object, of which the program replaces one" in found


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = ROWS

    def forward(self, x: torch.Tensor) -> Any:
        return x, self.rows is ROWS


def test_a_list_of_a_module_that_is_a_variable_too() -> None:
    assert told(Listed, calls(UP)).startswith("loud: the program asks about self.rows, which is 'ROWS'")


class Counts(nn.Module):
    num = 0
    last: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        if x.sum() > 0:
            self.num += 1
        for row in x:
            if row > 5:
                self.num = self.num + 2
                self.last = row
        return x + self.num


@pytest.mark.parametrize("first", [UP, -UP, UP * 9])
def test_a_side_that_writes_nothing_leaves_the_value_of_the_class(first: torch.Tensor) -> None:
    class Own(Counts):
        pass

    def story(program: Any) -> list[Any]:
        found = []
        Own.num = 0
        for x in (-UP, -UP, UP, -UP, UP * 9):
            own = vars(program)
            found.append((program(x), own.get("num"), own.get("last")))
        del program.num
        return [*found, program(-UP), "num" in vars(program), program(UP), vars(program)["num"]]

    assert told(Own, story, first) == "same"


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.late = 1

    def forward(self, x: torch.Tensor) -> Any:
        y = x + (1 if hasattr(self, "late") else 0)
        self.late = 3
        return y


class Makes(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        if not hasattr(self, "late"):
            self.late = x.sum()
        return x + self.late


@pytest.mark.parametrize("kind", [Asks, Makes])
def test_an_attribute_that_is_deleted_between_calls(kind: Any) -> None:
    def story(program: Any) -> list[Any]:
        found = [program(UP)]
        del program.late
        return [*found, program(-UP)]

    assert told(kind, story).startswith("loud: self.late was there")


class LooksAtHooks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        for _ in self.inner._forward_pre_hooks.values():
            x = x + 1
        return self.inner(x) + len(self.inner._forward_hooks)


@pytest.mark.parametrize("add", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_that_a_program_looks_at(add: str) -> None:
    def story(program: Any) -> list[Any]:
        found = [program(UP)]
        getattr(program.inner, add)(lambda *args: None)
        return [*found, program(UP)]

    assert told(LooksAtHooks, story).startswith("loud: module 'inner' has a hook")
    assert told(LooksAtHooks, calls(UP, -UP)) == "same"


class KeepsSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: dict[Any, Any] = {}
        self.rows: list[Any] = []

    def forward(self, x: torch.Tensor) -> Any:
        self.table[x.shape] = self.table.get(x.shape, 0) + 1
        self.rows.append(x.shape)
        self.rows.append((x.shape, 1))
        return x + self.table[x.shape], {x.shape: 2}


def test_sizes_that_are_kept_are_sizes() -> None:
    def story(program: Any) -> list[Any]:
        return [(program(x), program.table, copy.copy(program.rows)) for x in (UP, torch.ones(3), UP)]

    gm, model = gw.trace(KeepsSizes(), (UP,)), KeepsSizes()
    assert str(story(gm)) == str(story(model)) and "Size" in str(gm.table)

"""Sets, deques, ranges, namespaces and dataclasses among the inputs, and what the program changes in them."""

from __future__ import annotations

import collections
import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphwright import GuardError, load, save, trace, verify


@dataclasses.dataclass
class State:
    tensor: Tensor
    count: int = 3


def of_dataclass(state: State) -> Any:
    state.tensor = state.tensor + 1
    state.count += 1
    return state.tensor * state.count, state


@dataclasses.dataclass
class Counted:
    tensor: Tensor
    kind: typing.ClassVar[str] = "counted"
    count: int = dataclasses.field(init=False, default=2)


def of_field_set_later(counted: Counted) -> Any:
    counted.count += 1
    return counted.tensor * counted.count


def of_defaultdict(held: collections.defaultdict[str, Tensor]) -> Any:
    return held["a"] + held["b"]


def of_set(names: set[str], x: Tensor) -> Tensor:
    names.add("seen")
    names.discard("b")
    return x * 2 if "a" in names else x


def of_frozenset(names: frozenset[str], x: Tensor) -> Tensor:
    return x * len(names)


def of_range(steps: range, x: Tensor) -> Any:
    return [x * step for step in steps]


def of_deque(rows: collections.deque[Tensor]) -> Any:
    rows.appendleft(rows[-1] * 2)
    return torch.stack([*rows])


def of_ordered(held: collections.OrderedDict[str, Tensor]) -> Any:
    held["new"] = held["a"] * 2
    held.move_to_end("a")
    return held


def of_namespace(space: types.SimpleNamespace) -> Any:
    space.new = space.tensor * space.factor
    del space.factor
    return space.new


X = torch.arange(6.0).reshape(2, 3)
CASES: list[Any] = [
    pytest.param(of_dataclass, lambda x: (State(x, 5),), id="dataclass"),
    pytest.param(of_field_set_later, lambda x: (Counted(x),), id="a field that the constructor does not take"),
    pytest.param(of_defaultdict, lambda x: (collections.defaultdict(list, a=x, b=x + 1),), id="defaultdict"),
    pytest.param(of_set, lambda x: ({"a", "b"}, x), id="set"),
    pytest.param(of_frozenset, lambda x: (frozenset({"a", "b"}), x), id="frozenset"),
    pytest.param(of_range, lambda x: (range(1, 3), x), id="range"),
    pytest.param(of_deque, lambda x: (collections.deque([x, x + 1], maxlen=3),), id="deque"),
    pytest.param(of_ordered, lambda x: (collections.OrderedDict(a=x, b=x + 1),), id="ordered"),
    pytest.param(of_namespace, lambda x: (types.SimpleNamespace(tensor=x, factor=2.0),), id="namespace"),
]


@pytest.mark.parametrize(("program", "inputs"), CASES)
def test_they_are_read_and_changed_as_in_eager(program: Any, inputs: Any, tmp_path: Path) -> None:
    gm = trace(program, inputs(X))
    save(gm, tmp_path / "program.gw")
    for captured in (gm, load(tmp_path / "program.gw", allow=[__name__, "collections"])):
        report = verify(program, captured, [inputs(X), inputs(torch.ones(3, 2))])
        assert report.ok, f"{report}\n{gm.code}"


def test_what_a_set_holds_is_guarded_whatever_its_order() -> None:
    gm = trace(of_set, ({"a", "b"}, X))
    assert [guard.what for guard in gm.guards] == ["names is of class set", "items_names is frozenset"]
    assert torch.equal(gm({"b", "a"}, X), X * 2)
    with pytest.raises(GuardError, match="what is in argument 'names' was frozenset"):
        gm({"a"}, X)


def test_a_set_of_tensors_is_read() -> None:
    gm = trace(lambda tensors: sum(tensors) * 2, ({X},))
    assert torch.equal(gm({X + 1}), (X + 1) * 2)


class Pair(typing.NamedTuple):
    a: Tensor
    b: Tensor


class Tagged(Pair):  # without __slots__: an object of it takes attributes, too
    note: Any


class Row(tuple):
    note: Any


class Rows(list):
    note: Any


class Table(dict):
    note: Any


def annotated(tagged: Tagged, row: Row, rows: Rows, table: Table) -> Any:
    made = Tagged(tagged.b, row[0])
    made.note = rows.note + 1
    for held in (tagged, row, rows, table):
        held.note = held.note * 2
    return made, Row([tagged.note]), rows


def test_attributes_of_containers_are_read_and_written() -> None:
    def inputs(x: Tensor) -> list[Any]:
        found: list[Any] = [Tagged(x, x + 1), Row([x]), Rows([x]), Table(a=x)]
        for held in found:
            held.note = x - 3
        return found

    gm = trace(annotated, tuple(inputs(X)))
    expected, given = inputs(X + 1), inputs(X + 1)
    results = annotated(*expected), gm(*given)
    for mine, theirs in [*zip(given, expected, strict=True), (results[1][0], results[0][0])]:
        assert type(mine) is type(theirs)
        assert torch.equal(mine.note, theirs.note)
    assert results[1][2] is given[2]

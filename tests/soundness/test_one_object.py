"""Which values of a program are one object: what is put into kept containers, held twice, or of a class as well."""

from __future__ import annotations

import collections
import copy
import dataclasses
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


class ReplacesARecord(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.box = Box()

    def forward(self, x: torch.Tensor) -> Any:
        self.box.b = torch.ones(2)
        self.box = dataclasses.replace(self.box, a=x.shape[0])
        return x + self.box.a


@dataclasses.dataclass
class Box:
    a: Any = 1
    b: Any = None


def test_what_the_example_holds_is_of_a_form_that_a_call_may_find() -> None:
    assert told(ReplacesARecord, calls(UP, -UP, torch.ones(3))) == "same"


def given_by_a_loop(self: Keeps, x: torch.Tensor) -> Any:
    for row in x:
        if row > 0:
            return x, self.held
    return x, None


def given_by_a_loop_on_data(self: Keeps, x: torch.Tensor) -> Any:
    while x.sum() < 5:
        x = x + 1
        if x.sum() > 4:
            return x, [self.held, self.other]
    return x, self.other


@pytest.mark.parametrize("program", [given_by_a_loop, given_by_a_loop_on_data])
def test_what_a_loop_gives_back_is_what_the_module_holds(program: Any) -> None:
    def make() -> Any:
        model = Keeps(program)
        model.held = Node()
        return model

    def story(model: Any) -> list[Any]:
        found = []
        for x in (UP, -UP, UP):
            value, given = model(x)
            given = given if isinstance(given, list) and len(given) > 1 else [given]
            found.append((value, [(each is model.held, each is model.other) for each in given]))
        return found

    assert told(make, story) == "same"


def on_two_sides(self: Keeps, x: torch.Tensor) -> Any:
    if x[0] > 0:
        self.new = 1
    if x[1] > 0:
        self.new = 2
    return x


def in_each_turn(self: Keeps, x: torch.Tensor) -> Any:
    for i in range(2):
        if x[i] > 0:
            self.new = x * i
    return x


def where_an_error_is_caught(self: Keeps, x: torch.Tensor) -> Any:
    if x[0] > 0:
        self.new = 1
    try:
        if x[1] > 0:
            raise ValueError
    except ValueError:
        self.new = 2
    return x


SIDES = [UP, -UP, torch.tensor([1.0, -1]), torch.tensor([-1.0, 1])]


@pytest.mark.parametrize("program", [on_two_sides, in_each_turn, where_an_error_is_caught])
@pytest.mark.parametrize("example", SIDES)
def test_an_attribute_that_several_sides_make_is_what_the_last_makes_it(program: Any, example: Any) -> None:
    for x in SIDES:
        assert told(lambda: Keeps(program), lambda model, x=x: [model(x), vars(model).get("new")], example) == "same"


class Inner(nn.Module):
    last: Any

    def __init__(self) -> None:
        super().__init__()
        self.last, self.calls = None, 0

    def forward(self, x: torch.Tensor) -> Any:
        self.last, self.calls = x, self.calls + 1
        return torch.relu(x)


class Catches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.act = Inner(), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        try:
            x = self.act(self.inner(x)) * x.shape[0]
            {}["none"]
        except Exception:
            pass
        self.inner.last = None
        return x


def test_what_a_body_under_try_has_written_is_written_back() -> None:
    def story(program: Any) -> list[Any]:
        return [(program(x), program.inner.last, program.inner.calls) for x in (UP, -UP)]

    assert told(Catches, story) == "same"


class Key:
    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def counts_keys(x: torch.Tensor) -> Any:
    found = 0
    try:
        found = len({Key(1), Key(x.shape[0])})
    except Exception:
        found = -1
    return x, found


def test_no_handler_gets_what_a_capture_raises_for_a_hash() -> None:
    gm = gw.trace(counts_keys, (UP,))
    assert str(gm(UP)) == str(counts_keys(UP))
    with pytest.raises(gw.GuardError):
        gm(torch.ones(1))


class Ends:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> bool:
        return True


def counts_keys_of_data(x: torch.Tensor) -> Any:
    found = 0
    with Ends():
        found = len({Key(1), Key(int(x.sum()))})
    return x, found


def counts_keys_of_a_branch(x: torch.Tensor) -> Any:
    found, n = 0, x.shape[0]
    if x.sum() > 0:
        n = n + 1
    with Ends():
        found = len({Key(1), Key(n)})
    return x, found


@pytest.mark.parametrize("program", [counts_keys_of_data, counts_keys_of_a_branch])
def test_no_context_ends_what_a_capture_raises_for_a_hash(program: Any) -> None:
    found = told(lambda: program, calls(UP, -UP))
    assert found.startswith(("loud", "same"))


class Boxes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.boxes = [Box(1.0), Box(2.0)]
        self.named = {"a": Box(3.0)}

    def forward(self, x: torch.Tensor) -> Any:
        self.boxes[-1].a += 1
        for box in self.named.values():
            box.a += 1
        return x + self.boxes[0].a


CHANGES: Any = [
    lambda model: model.boxes.append(Box(5.0)), lambda model: model.boxes.reverse(),
    lambda model: model.boxes.pop(0), lambda model: model.named.update(b=Box(1.0)),
    lambda model: setattr(model.boxes[0], "a", 9.0),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_containers_of_objects_that_a_program_writes_to(change: Any) -> None:
    def story(program: Any) -> list[Any]:
        found = [program(UP)]
        change(program)
        return [*found, program(UP), program.boxes, program.named]

    assert told(Boxes, story).startswith(("same", "loud"))
    assert told(Boxes, calls(UP, -UP)) == "same"


class LooksInADefaultDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: Any = collections.defaultdict(list)

    def forward(self, x: torch.Tensor) -> Any:
        self.table[x.shape[0]]
        self.table["k"].append(x)
        return x


def test_a_default_dict_has_what_was_looked_for() -> None:
    def story(program: Any) -> list[Any]:
        return [(program(x), str(program.table)) for x in (UP, torch.ones(3), UP)]

    assert told(LooksInADefaultDict, story) == "same"

"""Which objects are one: data chooses one of two, a call passes one twice, a loop leaves a variable without a value.

Each program gives what eager gives, or says at the capture or at the call that it does not.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright as gw

UP, DOWN = torch.ones(2), -torch.ones(2)


class Point:
    def __init__(self, n: int) -> None:
        self.n = n


@dataclasses.dataclass
class Record:
    n: int


def outcome(run: Callable[[], Any]) -> str:
    try:
        return str(run())
    except UnboundLocalError as error:
        return f"UnboundLocalError: {error.args}"


def agrees(program: Callable[..., Any], captured: Callable[..., Any], *inputs: Any) -> bool:
    """Tell whether a captured program gives what the program does; an error of the library's is as good."""
    try:
        got = outcome(lambda: captured(*copy.deepcopy(inputs)))
    except gw.GraphwrightError:
        return True
    return got == outcome(lambda: program(*copy.deepcopy(inputs)))


# ---- data chooses one of two


def list_by_expression(x: Tensor) -> Any:
    a, b = [x], []
    chosen = a if x.sum() > 0 else b
    chosen.append(x)
    return len(a), len(b)


def list_by_statement(x: Tensor) -> Any:
    a = [x]
    b = a
    if x.sum() > 0:
        b = []
    b.append(x)
    return len(a)


def original_changed(x: Tensor) -> Any:
    a = [x]
    b = a if x.sum() > 0 else [x]
    a.append(x)
    return len(b)


def change_undone(x: Tensor) -> Any:
    a = [x]
    b = a if x.sum() > 0 else [x]
    b.append(x)
    count = len(a)
    b.pop()
    return count


def asked_by_is(x: Tensor) -> Any:
    a = [x]
    b = a if x.sum() > 0 else [x]
    return a is b


def item_set(x: Tensor) -> Any:
    a, b = [1], [1]
    chosen = a if x.sum() > 0 else b
    chosen[0] = 2
    return a[0], b[0]


def dict_item(x: Tensor) -> Any:
    a, b = {"n": 0}, {"n": 0}
    chosen = a if x.sum() > 0 else b
    chosen["n"] = 5
    return a["n"], b["n"]


def set_added(x: Tensor) -> Any:
    a: set[int] = set()
    b: set[int] = set()
    chosen = a if x.sum() > 0 else b
    chosen.add(5)
    return len(a), len(b)


def deque_added(x: Tensor) -> Any:
    a: Any = collections.deque()
    b: Any = collections.deque()
    chosen = a if x.sum() > 0 else b
    chosen.append(5)
    return len(a), len(b)


def object_attribute(x: Tensor) -> Any:
    a, b = Point(0), Point(0)
    chosen = a if x.sum() > 0 else b
    chosen.n = 5
    return a.n, b.n


def record_field(x: Tensor) -> Any:
    a, b = Record(0), Record(0)
    chosen = a if x.sum() > 0 else b
    chosen.n = 5
    return a.n, b.n


def list_in_dict(x: Tensor) -> Any:
    a: Any = {"items": []}
    b: Any = {"items": []}
    chosen = a if x.sum() > 0 else b
    chosen["items"].append(x)
    return len(a["items"]), len(b["items"])


def swapped(x: Tensor) -> Any:
    a, b = [x], [x]
    one, _other = (a, b) if x.sum() > 0 else (b, a)
    one.append(x)
    return len(a), len(b)


def picked(x: Tensor, a: Any, b: Any) -> Any:
    if x.sum() > 0:
        return a
    return b


def by_function(x: Tensor) -> Any:
    a: Any = []
    b: Any = []
    picked(x, a, b).append(x)
    return len(a), len(b)


def in_nested_branches(x: Tensor) -> Any:
    a = [x]
    if x.sum() > 0:
        chosen = a if x.sum() > 5 else [x]
    else:
        chosen = [x]
    chosen.append(x)
    return len(a)


def one_object_of_a_side(x: Tensor) -> Any:
    if x.sum() > 0:
        a = [x]
        b = a
    else:
        a = [x * 2]
        b = a
    b.append(x)
    return len(a)


def one_object_of_one_side(x: Tensor) -> Any:
    if x.sum() > 0:
        a = [x]
        b = a
    else:
        a = [x]
        b = [x]
    b.append(x)
    return len(a)


def one_object_of_the_side_that_goes_on(x: Tensor) -> Any:
    if x.sum() < -100:
        raise ValueError("too low")
    else:
        a = [x * 2]
        b = a
    b.append(x)
    return len(a)


def changed_on_the_side(x: Tensor) -> Any:
    a = [x]
    if x.sum() > 0:
        a[0] = x * 2
        chosen = a
    else:
        chosen = [x * 3]
    return chosen[0].sum(), a[0].sum()


def by_error(x: Tensor) -> Any:
    a, b = [x], []
    try:
        chosen = a
        if x.sum() > 0:
            raise ValueError
    except ValueError:
        chosen = b
    chosen.append(x)
    return len(a), len(b)


def by_size(x: Tensor) -> Any:
    a, b = [x], [x]
    chosen = a if x.shape[0] > 2 else b
    chosen.append(x)
    return len(a), len(b)


class OnSelf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a: list[Any] = []
        self.b: list[Any] = []

    def forward(self, x: Tensor) -> Any:
        chosen = self.a if x.sum() > 0 else self.b
        chosen.append(1)
        return len(self.a), len(self.b)


class OfMode(nn.Module):
    def forward(self, x: Tensor) -> Any:
        a, b = [], []  # type: ignore[var-annotated]
        (a if self.training else b).append(x)
        return len(a), len(b)


CHOICES = [
    *(list_by_expression, list_by_statement, original_changed, change_undone, asked_by_is, item_set, dict_item),
    *(set_added, deque_added, object_attribute, record_field, list_in_dict, swapped, by_function, in_nested_branches),
    *(one_object_of_a_side, one_object_of_one_side, one_object_of_the_side_that_goes_on, changed_on_the_side),
    *(by_error, by_size),
]


@pytest.mark.parametrize("program", CHOICES, ids=lambda program: program.__name__)
@pytest.mark.parametrize("door", ["trace", "symbolic_trace"])
def test_what_data_chooses_is_no_copy(program: Any, door: str) -> None:
    captured = gw.trace(program, (UP,)) if door == "trace" else gw.symbolic_trace(program)
    for x in (UP, DOWN, torch.ones(3)):
        assert str(captured(x)) == str(program(x))


@pytest.mark.parametrize("door", ["trace", "symbolic_trace"])
def test_lists_on_modules_that_data_chooses(door: str) -> None:
    captured = gw.trace(OnSelf(), (UP,)) if door == "trace" else gw.symbolic_trace(OnSelf())
    assert [copy.deepcopy(captured)(x) for x in (UP, DOWN)] == [(1, 0), (0, 1)]


def test_lists_that_the_mode_chooses() -> None:
    captured = gw.trace(OfMode(), (UP,))
    assert captured.train()(UP) == (1, 0)
    assert captured.eval()(UP) == (0, 1)


def test_what_is_not_changed_stays_one_value() -> None:
    def chosen(x: Tensor) -> Tensor:
        a, b = [x], [x * 2]
        chosen = a if x.sum() > 0 else b
        return chosen[0] + a[0]

    def fresh(x: Tensor) -> Any:
        found = [x] if x.sum() > 0 else [x * 2]
        found.append(x)
        return found

    for program in (chosen, fresh):
        captured = gw.trace(program, (UP,))
        assert "fork" not in str(captured.report)
        assert all(str(captured(x)) == str(program(x)) for x in (UP, DOWN))


# ---- in loops


def parted(x: Tensor) -> Any:
    big: list[Tensor] = []
    small: list[Tensor] = []
    for value in x:
        (big if value > 1 else small).append(value)
    return len(big), len(small)


def parted_by_name(x: Tensor) -> Any:
    big: list[Tensor] = []
    small: list[Tensor] = []
    for i in range(3):
        chosen = big if x[i % x.shape[0]] > 1 else small
        chosen.append(x)
    return len(big), len(small)


def set_in_loop(x: Tensor) -> Any:
    a, b = [x], [x]
    for i in range(x.shape[0]):
        chosen = a if x[i] > 0 else b
        chosen[0] = chosen[0] + 1
    return a[0].sum(), b[0].sum()


def given_up_after_a_change(x: Tensor) -> Any:
    a = [x]
    b = a
    for value in x:
        b[0] = b[0] + value
        b = [b[0]]
    return a[0].sum()


def bound_in_while(x: Tensor) -> Any:
    a = [x]
    b: list[Tensor] = []
    while x.sum() < 10:
        b = a
        x = x + 1
    b.append(x)
    return len(a)


def swapped_in_loop(x: Tensor) -> Any:
    a, b = [x], [x]
    for _ in range(x.shape[0]):
        a, b = b, a
    first = a
    first.append(x)
    return len(a), len(b)


def two_names_in_loop(x: Tensor) -> Any:
    a, b = [x], [x]
    for value in x:
        a = b = [value + a[0]]
    a[0] = a[0] * 2
    return a[0].sum(), b[0].sum()


LOOPS = [
    *(parted, parted_by_name, set_in_loop, given_up_after_a_change, bound_in_while, swapped_in_loop, two_names_in_loop),
]


@pytest.mark.parametrize("program", LOOPS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("door", ["trace", "symbolic_trace"])
def test_what_a_loop_chooses_is_no_copy(program: Any, door: str) -> None:
    try:
        captured = gw.trace(program, (UP,)) if door == "trace" else gw.symbolic_trace(program)
    except gw.GraphwrightError:
        return  # refused
    for x in (UP, DOWN, torch.tensor([3.0, 0.0, 5.0]), UP * 20):
        assert agrees(program, captured, x)


def first_unassigned(x: Tensor) -> Any:
    for i in range(x.shape[0]):
        last = x[i]
    return last


def target_unassigned(x: Tensor) -> Any:
    for row in x:  # noqa: B007 - read after it
        pass
    return row + 1


def constant_unassigned(x: Tensor) -> Any:
    for _row in x:
        found = "some"
    return found


def pair_unassigned(x: Tensor) -> Any:
    for i in range(x.shape[0]):
        pair = x[i], i
    return pair


def while_unassigned(x: Tensor) -> Any:
    total = x.sum()
    while total < 5:
        last = total
        total = total + 1
    return last


def read_where_it_is_there(x: Tensor) -> Any:
    for row in x:
        last = row * 2
    if x.shape[0] > 0:
        return last
    return x


def joined_after(x: Tensor) -> Any:
    for row in x:
        last = row * 2
    if x.sum() > 3:
        last = x[0]
    return last


def of_inner_loop(x: Tensor) -> Any:
    for row in x:
        for value in row:
            last = value
    return last


UNASSIGNED = [
    *(first_unassigned, target_unassigned, constant_unassigned, pair_unassigned, while_unassigned),
    *(read_where_it_is_there, joined_after, of_inner_loop),
]


@pytest.mark.parametrize("program", UNASSIGNED, ids=lambda program: program.__name__)
@pytest.mark.parametrize("door", ["trace", "symbolic_trace"])
def test_variables_of_loops_that_ran_no_iteration(program: Any, door: str) -> None:
    captured = gw.trace(program, (torch.ones(2, 2),)) if door == "trace" else gw.symbolic_trace(program)
    for x in (torch.ones(2, 2), torch.ones(3, 2), torch.ones(0, 2), torch.full((2, 2), 9.0)):
        assert agrees(program, captured, x)


# ---- what a call passes twice


def append_first(a: Any, b: Any) -> Any:
    a.append(1)
    return len(b)


def set_key(a: Any, b: Any) -> Any:
    a["k"] = 3
    return len(b)


def set_attribute(a: Any, b: Any) -> Any:
    a.n = 3
    return b.n


def set_first(a: Any, b: Any) -> Any:
    a[0] = a[0] + 1
    return b[0]


def same_objects(a: Any, b: Any) -> Any:
    return a is b


def add_in_place(a: Tensor, b: Tensor) -> Any:
    before = b.sum()
    a.add_(1)
    return before + b.sum()


def reshape_in_place(a: Tensor, b: Tensor) -> Any:
    a.unsqueeze_(0)
    return b.dim()


def count(a: Tensor, b: Tensor) -> Any:
    return len({a, b})


def look_up(a: Tensor, b: Tensor) -> Any:
    return {a: 1}.get(b, 0)


def same_ids(a: Tensor, b: Tensor) -> Any:
    return id(a) == id(b)


def same_tensors(a: Tensor, b: Tensor) -> Any:
    return 1 if a is b else 2


PASSED: list[tuple[Any, Callable[[], Any]]] = [
    *((append_first, list), (set_key, dict), (set_attribute, lambda: Point(1)), (set_attribute, lambda: Record(1))),
    *((set_first, lambda: [torch.ones(1)]), (same_objects, lambda: [torch.ones(1)]), (same_objects, dict)),
    *((program, lambda: torch.ones(2)) for program in (add_in_place, reshape_in_place, count, look_up)),
    *((program, lambda: torch.ones(2)) for program in (same_ids, same_tensors)),
]


@pytest.mark.parametrize(("program", "make"), PASSED, ids=[program.__name__ for program, _ in PASSED])
def test_one_object_passed_twice_is_one_object(program: Any, make: Callable[[], Any]) -> None:
    apart, once = (make(), make()), (lambda value: (value, value))(make())
    for example in (apart, once):
        captured = gw.trace(program, example)
        assert str(captured(*copy.deepcopy(example))) == str(program(*copy.deepcopy(example)))
        for inputs in (apart, once):
            assert agrees(program, captured, *inputs)


def test_inputs_are_told_apart_only_where_it_matters() -> None:
    def reads(a: list[int], b: list[int]) -> int:
        return a[0] + b[0]

    assert "object" not in str(gw.trace(reads, ([1], [2])).guards)
    assert "object" in str(gw.trace(append_first, ([], [])).guards)


def test_tensors_of_which_a_run_knows_whether_they_are_one_are_no_keys() -> None:
    with pytest.raises(gw.CaptureError, match="apart by their identity"):
        gw.trace(lambda x: len({x, x.contiguous()}), (UP,))


# ---- attributes of tensors


def tagged(x: Tensor) -> Any:
    y = x * 2
    y.tag = x + 1  # type: ignore[attr-defined]
    return y


def test_attributes_of_tensors_are_kept() -> None:
    assert torch.equal(gw.trace(tagged, (UP,))(DOWN).tag, DOWN + 1)


def test_attributes_of_tensors_on_sides_are_refused() -> None:
    def tagged_there(x: Tensor) -> Any:
        if x.sum() > 0:
            x.tag = 1  # type: ignore[attr-defined]
        return hasattr(x, "tag")

    with pytest.raises(gw.CaptureError, match="sets 'tag' of a tensor"):
        gw.trace(tagged_there, (UP,))

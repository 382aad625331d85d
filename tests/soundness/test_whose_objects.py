"""What a program gives back and keeps is the very object: of its modules, of its globals, and of what data chose."""

from __future__ import annotations

from typing import Any

import pytest
from tests.soundness.stories import DOWN, UP, calls, told
from torch import Tensor, nn


class Plain:
    n = 0


FIRST, SECOND = [1], [2]


def chosen_and_both(x: Tensor) -> Any:
    a, b = [x], [x * 2]
    chosen = a if x.sum() > 0 else b
    return a, b, chosen


def chosen_deep_inside(x: Tensor) -> Any:
    a, b = [x], [x * 2]
    chosen = a if x.sum() > 0 else b
    return a, (b, 3), {"chosen": chosen}["chosen"]


def two_that_may_be_one(x: Tensor) -> Any:
    a, b = [], []  # type: ignore[var-annotated]
    if x.sum() > 0:
        a = b = [x]
    return a is b


def one_of_two_globals(x: Tensor) -> Any:
    return FIRST if x.sum() > 0 else SECOND


def of_the_caller(program: Any) -> Any:
    found = []
    for x in UP, DOWN:
        a, b, chosen = program(x)
        b = b[0] if isinstance(b, tuple) else b
        found += [chosen is a, chosen is b]
        chosen.append(3)
        found += [len(a), len(b)]
    return found


@pytest.mark.parametrize(
    ("program", "story"),
    [
        (chosen_and_both, of_the_caller),
        (chosen_deep_inside, of_the_caller),
        (two_that_may_be_one, calls(UP, DOWN)),
        (one_of_two_globals, lambda program: (program(UP) is FIRST, program(DOWN) is SECOND)),
        (lambda x: FIRST, lambda program: program(UP) is FIRST),
    ],
)
def test_what_data_chose_is_left_as_what_it_is(program: Any, story: Any) -> None:
    assert told(lambda: program, story) == "same"


class Holder(nn.Module):
    """Holds containers and objects, of which `give` gives one back."""

    def __init__(self, give: Any) -> None:
        super().__init__()
        self.a: Any = [1, 2]
        self.b: Any = [3]
        self.table, self.thing, self.give = {"n": 0}, Plain(), give

    def forward(self, x: Tensor) -> Any:
        return self.give(self, x)


def written_list(holder: Any, x: Tensor) -> Any:
    holder.a[0] = holder.a[0] + 1
    return holder.a


def written_dict(holder: Any, x: Tensor) -> Any:
    holder.table["n"] += 1
    return holder.table


def written_object(holder: Any, x: Tensor) -> Any:
    holder.thing.n += 1
    return holder.thing


def grown_list(holder: Any, x: Tensor) -> Any:
    holder.a.append(x)
    return holder.a


def in_two_attributes(holder: Any, x: Tensor) -> Any:
    holder.b = holder.a
    return holder.b


@pytest.mark.parametrize(
    "give",
    [
        lambda holder, x: holder.a,
        lambda holder, x: holder.thing,
        lambda holder, x: (x, {"of": holder.table})[1]["of"],
        lambda holder, x: holder.a if x.sum() > 0 else holder.b,
        lambda holder, x: holder.thing if x.sum() > 0 else None,
        written_list,
        written_dict,
        written_object,
        grown_list,
        in_two_attributes,
    ],
)
def test_what_a_module_holds_is_given_back_itself(give: Any) -> None:
    def story(program: Any) -> Any:
        held = vars(program)
        found = [program(UP) for _ in range(2)]
        names = [name for name in ("a", "b", "table", "thing") if held[name] is found[1]]
        return found[0] is found[1], names, held["table"], held["thing"].n, [len(held[name]) for name in "ab"]

    assert told(lambda: Holder(give), story) == "same"


class OneForTwo(nn.Module):
    """Data has two attributes hold one dict, as the next call finds them."""

    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.a: Any = {"n": 1}
        self.b: Any = {"n": 1}
        self.asks = asks

    def forward(self, x: Tensor) -> Any:
        if self.asks:
            found = self.a is self.b
        else:
            self.a["n"] = self.a["n"] + 1
            found = self.b["n"]
        if x.sum() > 0:
            both = {"n": 5}
            self.a = both
            self.b = both
        return found


@pytest.mark.parametrize("asks", [True, False])
def test_one_dict_in_two_attributes_is_told(asks: bool) -> None:
    assert told(lambda: OneForTwo(asks), calls(DOWN, DOWN)) == "same"
    found = told(lambda: OneForTwo(asks), calls(UP, DOWN, UP))
    assert found.startswith("loud: the program was captured where this was False; now it is True")


class GrowsInTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a: list[Any] = [1]
        self.b: list[Any] = [1]

    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            both = [x]
            self.a = both
            self.b = both
        before = len(self.b)
        self.a.append(x)
        return before, len(self.b)


def test_one_list_in_two_attributes_grows_in_both() -> None:
    assert told(GrowsInTwo, calls(UP, UP, DOWN, UP, DOWN)) == "same"


class Counts(nn.Module):
    """Its attributes come to stand before those of its class."""

    n = 0
    seen: Any = None
    history: Any = []  # noqa: RUF012
    is_on = False
    text = ""

    def forward(self, x: Tensor) -> Any:
        self.n += 1
        if self.seen is None:
            self.seen = x.clone()
        self.history = self.history + [x.sum()]
        self.is_on = not self.is_on
        self.text = f"{tuple(x.shape)}"
        return x + self.n + self.seen, len(self.history), self.is_on, self.text


class CountsInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts, self.thing = Counts(), Plain()

    def forward(self, x: Tensor) -> Any:
        self.thing.n += 1
        return self.counts(x), self.thing.n


@pytest.mark.parametrize("make", [Counts, CountsInside])
def test_what_stands_before_the_value_of_a_class_is_kept(make: Any) -> None:
    assert told(make, calls(UP, DOWN, UP, UP)) == "same"


class ReadsTheLastText(nn.Module):
    last = ""

    def forward(self, x: Tensor) -> Any:
        was = self.last
        self.last = f"{tuple(x.shape)}"
        return was


def test_a_text_of_a_run_is_not_read_by_the_next_one() -> None:
    assert told(ReadsTheLastText, calls(UP, UP)).startswith("loud: the program reads ReadsTheLastText.last")

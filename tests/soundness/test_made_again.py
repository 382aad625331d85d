"""Objects that a program makes and returns: made again as they are, whatever their constructors do."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphwright import CaptureError, symbolic_trace, trace
from graphwright.runtime import attributes_of

X = torch.ones(2)


@dataclasses.dataclass
class Point:
    a: Any
    b: Any = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = 3


@dataclasses.dataclass(slots=True)
class Derived:
    a: Any
    b: Any = None
    n: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self.b = self.a * 2 if self.b is None else self.b
        self.n = 7


@dataclasses.dataclass
class Doubled:
    a: Any
    times: dataclasses.InitVar[int] = 2

    def __post_init__(self, times: int) -> None:
        self.a = self.a * times


@dataclasses.dataclass(init=False)
class Own:
    a: Any

    def __init__(self, x: Any) -> None:
        self.a = x * 7


@dataclasses.dataclass
class Setting:
    a: Any

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value * 2)


@dataclasses.dataclass
class Output(OrderedDict[str, Any]):
    """Attributes and items at once, as transformers' outputs are."""

    a: Any = None
    b: Any = None
    c: Any = None

    def __post_init__(self) -> None:
        self.update({name: value for name in "abc" if (value := getattr(self, name)) is not None})

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        super().__setattr__(name, value)


@dataclasses.dataclass
class Scaling(Output):
    def __post_init__(self) -> None:
        super().__post_init__()
        self["a"] = self["a"] * 2


def shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(shown, value)]
    items = list(value.items()) if isinstance(value, dict) else None
    return type(value).__name__, items and str(items), {name: str(held) for name, held in attributes_of(value).items()}


def changed(x: Any) -> Any:
    point = Point(x)
    point.a = point.a + 1
    return point


def with_more(x: Any) -> Any:
    point: Any = Point(x)
    point.extra = x * 3
    return point


def with_less(x: Any) -> Any:
    point = Point(x)
    del point.a
    return point


def derived_again(x: Any) -> Any:
    made = Derived(x)
    made.n, made.b = 5, None
    return made, Derived(x, x + 1)


def replaced(x: Any) -> Any:
    return Frozen(x), dataclasses.replace(Frozen(x), b=x + 1)


def twice(x: Any) -> Any:
    made = Doubled(x, times=3)
    made.a = made.a + 1
    return made


def in_another_order(x: Any) -> Any:
    made = Output(a=x)
    made["c"], made["b"] = x + 1, x + 2
    return made


def by_the_last(x: Any) -> Any:
    made = Output(c=x)
    made["a"] = x + 1
    return made, Output(b=x)


MADE = [changed, with_more, with_less, derived_again, replaced, twice, Own, Setting, in_another_order, by_the_last]


@pytest.mark.parametrize("capture", [lambda program: trace(program, X), symbolic_trace])
@pytest.mark.parametrize("program", MADE)
def test_an_object_is_made_again_as_it_is(program: Callable[[Any], Any], capture: Callable[[Any], Any]) -> None:
    gm = capture(lambda x: program(x))
    for x in X, torch.full((3,), 2.0):
        assert shown(gm(x)) == shown(program(x))


def shares_list(x: Any) -> Any:
    held = [x]
    return held, {"a": held}


def shares_dict(x: Any) -> Any:
    held = {"a": x}
    return [held, (held,)]


def shares_through_tuple(x: Any) -> Any:
    pair = ([x],)
    return pair, [pair]


def shares_deque(x: Any) -> Any:
    held = deque([x])
    return held, held


def shares_inside(x: Any) -> Any:
    held = [x]
    return Point(held), Derived(held, held)


def shares_objects(x: Any) -> Any:
    point, made = Point(x), Derived(x)
    return [point, made, (point, made)]


def returns_argument(x: Any, held: Any) -> Any:
    held.append(x)
    return held, {"a": held}


class Keeps(torch.nn.Module):
    held: Any = None

    def forward(self, x: Any) -> Any:
        self.held = [x]
        return self.held, self.held


def ones_of(value: Any) -> list[int]:
    """Which of the containers and objects in a value, in the order of a walk, are one."""
    places: dict[int, int] = {}
    found: list[int] = []

    def visit(each: Any) -> None:
        is_object = dataclasses.is_dataclass(each)
        if not isinstance(each, tuple | list | dict | deque) and not is_object:
            return
        if not isinstance(each, tuple):
            found.append(places.setdefault(id(each), len(places)))
        for item in attributes_of(each).values() if is_object else each.values() if isinstance(each, dict) else each:
            visit(item)

    visit(value)
    return found


SHARES = [shares_list, shares_dict, shares_through_tuple, shares_deque, shares_inside, shares_objects]


@pytest.mark.parametrize("program", SHARES)
def test_what_is_one_is_returned_as_one(program: Callable[[Any], Any]) -> None:
    assert ones_of(trace(program, X)(X)) == ones_of(program(X))
    assert len({*ones_of(program(X))}) < len(ones_of(program(X)))


def test_an_argument_is_returned_itself() -> None:
    gm, held = trace(returns_argument, (X, [])), []  # type: ignore[var-annotated]
    given, again = gm(X, held)
    assert given is held and again["a"] is held and len(held) == 1


def test_what_a_module_keeps_is_what_it_returns() -> None:
    gm = trace(Keeps(), X)
    first, other = gm(X)
    assert first is other is gm.held


def test_an_output_that_changes_what_it_is_given_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"cannot write a .*Scaling into the graph"):
        trace(lambda x: Scaling(a=x), X)

"""None or a tensor, kept in objects and containers: whoever reads it there finds what eager does."""

# ruff: noqa: C417, RUF017
from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import trace

PROGRAMS: list[Callable[[Tensor], Any]] = []


def program(function: Any) -> Any:
    PROGRAMS.append(function)
    return function


def mask(x: Tensor) -> Tensor | None:
    return x * 2 if x.sum() > 0 else None


def use(x: Tensor, masks: Iterable[Tensor | None]) -> Tensor:
    for each in masks:
        if each is not None:
            x = x + each
    return x


def nones(values: Iterable[Any]) -> list[bool]:
    return [value is None for value in values]


class Box:
    """Keeps what it is given in a list and in a dict."""

    item: Any = None

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.table: dict[str, Any] = {}

    def add(self, value: Any) -> None:
        self.items.append(value)

    def put(self, key: str, value: Any) -> None:
        self.table[key] = value

    def count(self) -> int:
        return sum(nones(self.items)) + 10 * sum(nones(self.table.values()))


class Magic:
    """Is asked what it keeps by operators and attributes."""

    def __init__(self, value: Any = None) -> None:
        self.value: Any = value

    def __getitem__(self, index: int) -> bool:
        return self.value is None

    def __len__(self) -> int:
        return 3 if self.value is None else 4

    def __bool__(self) -> bool:
        return self.value is not None

    def __iter__(self) -> Any:
        return iter([self.value is None])

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.value is None else x + self.value

    def __contains__(self, key: Any) -> bool:
        return self.value is None

    @property
    def is_empty(self) -> bool:
        return self.value is None


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def is_empty(self) -> bool:
        return self.value is None


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masks: list[Any] = []

    def read(self) -> list[bool]:
        return nones(self.masks)

    def forward(self, x: Tensor) -> Any:
        self.masks = []
        self.masks.append(mask(x))
        return x, self.read()


@program
def filled_by_a_callee(x):
    box = []
    fill(box, x)
    return x if box[0] is None else x + box[0]


def fill(box, x):
    box.append(mask(x))


@program
def views(x):
    table = {"a": mask(x), "b": mask(-x)}
    return use(x, table.values()), nones(table.values()), [key == "a" for key, value in table.items() if value is None]


@program
def methods(x):
    box = Box()
    box.add(mask(x))
    box.add(mask(-x))
    return x * box.count(), box.items[0] is None


@program
def keyed_methods(x):
    box = Box()
    box.put("a", mask(x))
    box.put("b", mask(-x))
    return x * box.count(), box.table["a"] is None


@program
def set_items(x):
    box = Box()
    box.items = [None]
    box.items[0] = mask(x)
    return box.count()


@program
def set_lists(x):
    box = Box()
    box.items = [mask(x)]
    return box.count()


@program
def set_attributes(x):
    box = Box()
    box.item, box.other = mask(x), 1
    return is_empty(box)


@program
def annotated_attributes(x):
    box = Box()
    box.item: Any = mask(x)
    return is_empty(box)


def is_empty(box):
    return box.item is None


TABLE: dict[str, Any] = {}


@program
def tables_of_modules(x):
    TABLE["mask"] = mask(x)
    return look_up(x)


def look_up(x):
    return x if TABLE["mask"] is None else x + 1


@program
def aliases(x):
    box = Box()
    items = box.items
    items += [mask(x)]
    return box.count()


@program
def iterators(x):
    masks = [mask(x), mask(-x)]
    rest = iter(masks)
    first = next(rest)
    return nones(rest), nones(enumerate(masks)), nones(zip(masks)), first is None, nones(reversed(masks))


@program
def chains(x):
    masks = [mask(x), mask(-x)]
    return nones(itertools.chain(masks, masks)), nones(masks + masks), nones(masks[::-1])


@program
def queues(x):
    queue = collections.deque([mask(x)])
    queue.appendleft(None)
    table = collections.OrderedDict()
    table.setdefault("a", mask(x))
    return nones(dict(table).values()), nones(tuple(queue)), isinstance(queue[1], Tensor)


@program
def partials(x):
    return functools.partial(use, masks=[mask(x)])(x), list(map(lambda value: value is None, [mask(x), None]))


@program
def generators(x):
    def each(masks):
        yield from masks

    return nones(each([mask(x)])), [value is None for value in each([mask(-x)])]


@program
def groups(x):
    table = {}
    for name, sign in (("a", 1), ("b", -1)):
        table.setdefault(name, []).append(mask(x * sign))
    return {key: value[0] is None for key, value in table.items()}, nones(sum(table.values(), []))


def magic(ask: Callable[[Any, Tensor], Any]) -> None:
    def made_of_it(x):
        return ask(Magic(mask(x)), x)

    def given_it(x):
        kept = Magic()
        kept.value = mask(x)
        return ask(kept, x)

    PROGRAMS.extend((made_of_it, given_it))


magic(lambda kept, x: kept[0])
magic(lambda kept, x: len(kept))
magic(lambda kept, x: x if kept else -x)
magic(lambda kept, x: list(kept))
magic(lambda kept, x: kept(x))
magic(lambda kept, x: 1 in kept)
magic(lambda kept, x: kept.is_empty)
PROGRAMS += [lambda x: Slotted(mask(x)).is_empty(), Keeps()]


@pytest.mark.filterwarnings("ignore:.*the global 'TABLE':graphwright.TracerWarning")
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_it_is_none_where_it_is_in_eager(number: int) -> None:
    program = PROGRAMS[number]
    gm = trace(program, (torch.ones(3),))
    for x in (torch.ones(3), -torch.ones(3), torch.zeros(3)):
        expected, found = program(x), gm(x)
        torch.testing.assert_close(found, expected)
        assert str(found) == str(expected)


@pytest.mark.parametrize("program", [set_attributes, annotated_attributes, set_lists, tables_of_modules])
@pytest.mark.filterwarnings("ignore:.*the global 'TABLE':graphwright.TracerWarning")
def test_functions_that_ask_do_not_fork(program: Any) -> None:
    assert not trace(program, (torch.ones(3),)).report.forks


def moved(x: Tensor) -> Any:
    masks = {"full": mask(x), "part": (mask(-x), None)}
    if not isinstance(masks, dict) or len(masks) == 3:
        masks = {"full": masks}
    return use(x, [masks["full"], *masks["part"]]), list(zip(masks["part"], [1, 2], strict=True))


def test_what_only_moves_it_does_not_fork() -> None:
    gm = trace(moved, (torch.ones(3),))
    assert not gm.report.forks
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(gm(x), moved(x))

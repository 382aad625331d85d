"""Iterators that only a run knows, gone over in parts or twice; ranges as values; contexts that end an error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest
import torch
from tests.soundness.stories import told
from torch import Tensor

X3 = torch.tensor([3.0, -1.0, 2.0])


def zipped_twice(x: Tensor) -> Any:
    pairs = zip(range(10), x, strict=False)
    return len(list(pairs)), len(list(pairs))


def left_and_taken_up(x: Tensor) -> Any:
    rows = enumerate(x)
    count = 0
    for _ in rows:
        count += 1
        break
    for _ in rows:
        count += 10
    return count


def mapped_in_parts(x: Tensor) -> Any:
    more = map(lambda v: v + 1, x)  # noqa: C417
    first = next(more)
    return first, sum(more), list(more)


def filtered_twice(x: Tensor) -> Any:
    kept = filter(lambda v: v > 0, x)
    return len(list(kept)), len(list(kept))


def reversed_once(x: Tensor) -> Any:
    rows = reversed(list(x))
    return next(rows), list(rows)


def told_by_class(x: Tensor) -> Any:
    pairs = zip(x, x, strict=True)
    more = map(abs, x)
    return type(pairs).__name__, isinstance(more, map), iter(pairs) is pairs, next(more)


def products(x: Tensor) -> Iterator[Tensor]:
    i = 0
    while True:
        yield x * i
        i += 1


def sums(_: Tensor) -> Generator[Any, Any, None]:
    total = torch.zeros(())
    while True:
        total = total + (yield total)


def taken_on_a_side(x: Tensor) -> Any:
    rows = products(x)
    found = next(rows) if x.sum() > 0 else next(rows) - next(rows)
    return found, next(rows)


def sent_in_a_loop(x: Tensor) -> Any:
    running = sums(x)
    found = next(running)
    for i in range(x.shape[0]):
        found = running.send(x[i])
    return found


def sent_on_a_side(x: Tensor) -> Any:
    running = sums(x)
    next(running)
    found = running.send(x[0]) if x.sum() > 0 else running.send(x[1])
    return found, running.send(x[2])


def left_in_a_loop(x: Tensor) -> Any:
    rows, found = products(x), []
    for _ in range(x.shape[0]):
        for row in rows:
            found.append(row)
            break
    return found


PROGRAMS = [taken_on_a_side, sent_in_a_loop, sent_on_a_side, left_in_a_loop]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("x", [X3, -X3])
def test_a_generator_is_where_it_was_only_if_it_holds_the_same(program: Any, x: Tensor) -> None:
    assert told(lambda: program, lambda p: p(x.clone()), X3) == "same"


def noting(x: Tensor, closed: list[Tensor]) -> Iterator[Tensor]:
    try:
        yield from x
    finally:
        closed.append(x.sum())


def first(rows: Any) -> Any:
    for row in rows:
        if row > 0:
            return row
    return None


def left_alone(x: Tensor, closed: list[Tensor]) -> Any:
    for row in noting(x, closed):
        if row > 0:
            break
    return row, [*closed]


def left_inside_of_others(x: Tensor, closed: list[Tensor]) -> Any:
    for _, (row, _) in enumerate(zip(noting(x, closed), range(3), strict=False)):
        if row > 0:
            break
    return row, [*closed]


def left_inside_of_one_like_it(x: Tensor, closed: list[Tensor]) -> Any:
    for row in (row + 1 for row in noting(x, closed)):
        if row > 0:
            break
    return row, [*closed]


def left_by_an_error(x: Tensor, closed: list[Tensor]) -> Any:
    try:
        for row in noting(x, closed):
            if row > 0:
                raise ValueError
    except ValueError:
        pass
    return row, [*closed]


def left_by_any(x: Tensor, closed: list[Tensor]) -> Any:
    return any(row > 0 for row in noting(x, closed)), [*closed]


def left_by_next(x: Tensor, closed: list[Tensor]) -> Any:
    return next((row for row in noting(x, closed) if row > 0), None), [*closed]


def held_by_a_name(x: Tensor, closed: list[Tensor]) -> Any:
    rows = noting(x, closed)
    return first(rows), [*closed], next(rows, None), [*closed]


def held_by_a_list(x: Tensor, closed: list[Tensor]) -> Any:
    held: list[Iterator[Tensor]] = []

    def kept() -> Iterator[Tensor]:
        held.append(noting(x, closed))
        return held[0]

    return first(kept()), [*closed], next(held[0], None), [*closed]


LEFT = [left_alone, left_inside_of_others, left_inside_of_one_like_it, left_by_an_error, left_by_any, left_by_next]


@pytest.mark.parametrize("program", [*LEFT, held_by_a_name, held_by_a_list])
def test_a_generator_is_closed_where_nothing_has_it_any_more(program: Any) -> None:
    def forward(x: Tensor) -> Any:
        return program(x, [])

    assert told(lambda: forward, lambda p: (p(X3.clone()), p(-X3)), X3) == "same"


def test_a_profiler_does_not_keep_a_generator_open() -> None:
    def run(program: Any) -> Any:
        return program(X3.clone())

    before = sys.getprofile()
    sys.setprofile(lambda *event: None)
    try:
        assert told(lambda: lambda x: left_alone(x, []), run, X3) == "same"
    finally:
        sys.setprofile(before)


def test_what_a_generator_does_as_the_program_ends_is_part_of_it() -> None:
    def program(x: Tensor) -> Any:
        rows = adding(x)
        return next(rows).clone()

    def adding(x: Tensor) -> Iterator[Tensor]:
        try:
            yield x
        finally:
            x.add_(1)

    def run(program: Any) -> Any:
        x = X3.clone()
        return program(x), x

    assert told(lambda: program, run, X3) == "same"


@pytest.mark.parametrize(
    "program", [zipped_twice, left_and_taken_up, mapped_in_parts, filtered_twice, reversed_once, told_by_class]
)
def test_an_iterator_is_gone_over_once(program: Any) -> None:
    assert told(lambda: program, lambda p: (p(X3.clone()), p(X3 + 1)), X3) == "same"


def test_an_iterator_without_a_name_may_be_of_any_length() -> None:
    def program(x: Tensor) -> Any:
        total = torch.zeros(())
        for i, (v, w) in enumerate(zip(x, x, strict=True)):
            total = total + v * w + i
        return total

    assert told(lambda: program, lambda p: [p(torch.ones(n)) for n in (3, 2, 5)], X3) == "same"


def compared(x: Tensor) -> Any:
    every = range(x.shape[0])
    return every == range(3), every != range(3), every in [range(3)], {range(3): 1}.get(every)


def parts(x: Tensor) -> Any:
    every = range(1, x.shape[0])
    return every.start, every.stop, every.step, every.index(2), every.count(1), hasattr(every, "last")


def classes(x: Tensor) -> Any:
    every = range(x.shape[0])
    return isinstance(every, range), isinstance(every, Sequence), type(every).__name__, isinstance(every, list)


@pytest.mark.parametrize("program", [compared, parts, classes])
def test_a_range_of_a_size_is_a_range(program: Any) -> None:
    assert told(lambda: program, lambda p: p(X3.clone()), X3) == "same"
    found = told(lambda: program, lambda p: p(torch.ones(5)), X3)
    assert found == "same" or found.startswith("loud: the program was captured where this was")


class Ends:
    def __enter__(self) -> Ends:
        return self

    def __exit__(self, kind: Any, *more: Any) -> bool:
        return kind is RuntimeError


@pytest.mark.parametrize("make", [lambda: contextlib.suppress(RuntimeError), Ends])
def test_an_error_that_a_context_ends_is_the_example_s(make: Any) -> None:
    def program(x: Tensor) -> Any:
        with make():
            x = x.view(2, -1)
        return x.shape

    assert told(lambda: program, lambda p: (p(X3.clone()), p(X3 + 1)), X3) == "same"
    found = told(lambda: program, lambda p: p(torch.ones(4)), X3)
    assert found.startswith("loud: the program was captured where this was 3; now it is 4")

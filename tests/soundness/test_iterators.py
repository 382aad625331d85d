"""Iterators that only a run knows, gone over in parts or twice; ranges as values; contexts that end an error."""

from __future__ import annotations

import contextlib
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


def closed_where_it_is_left(x: Tensor) -> Any:
    closed = []

    def rows() -> Iterator[Tensor]:
        try:
            yield from x
        finally:
            closed.append(x.sum())

    for row in rows():
        if row > 0:
            break
    return row, len(closed)


PROGRAMS = [taken_on_a_side, sent_in_a_loop, sent_on_a_side, left_in_a_loop, closed_where_it_is_left]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of passes that end in the loop
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("x", [X3, -X3])
def test_a_generator_is_where_it_was_only_if_it_holds_the_same(program: Any, x: Tensor) -> None:
    assert told(lambda: program, lambda p: p(x.clone()), X3) == "same"


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

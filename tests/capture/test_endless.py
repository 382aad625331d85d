"""Programs that go on without an end while they are captured."""

import contextlib
import gc
import itertools
import os
import queue
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphwright
from graphwright.capture.flow import loops
from graphwright.capture.proxies import recording
from graphwright.capture.python import callers, substitutes


def endless_while(x: Tensor) -> Tensor:
    while True:
        x = x + 1


def grows_while_it_is_walked(x: Tensor) -> Tensor:
    found = [x]
    for value in found:
        found.append(value + 1)
    return x


@pytest.mark.parametrize("program", [endless_while, grows_while_it_is_walked])
def test_an_endless_loop_ends_in_an_error_at_its_line(program, monkeypatch) -> None:
    monkeypatch.setattr(callers, "MOST_OPERATIONS", 50)
    with pytest.raises(graphwright.CaptureError, match=r"(?s)may have no end.*test_endless.py.*bound it"):
        graphwright.trace(program, (torch.ones(2),))


def shortened(x: Tensor) -> Tensor:
    try:
        return x + len(textwrap.shorten("a long line", x.size(0) + 4))
    except ValueError:
        return -x


def test_a_way_without_an_end_that_no_inputs_go_is_none(monkeypatch) -> None:
    monkeypatch.setattr(loops, "MOST_OPERATIONS", 50)
    gm = graphwright.trace(shortened, (torch.ones(5),))
    assert torch.equal(gm(torch.ones(5)), shortened(torch.ones(5)))
    with pytest.raises(graphwright.GuardError, match=r"textwrap\.py"):
        gm(torch.ones(7))


def test_a_line_may_record_as_many_operations_as_that(monkeypatch) -> None:
    monkeypatch.setattr(callers, "MOST_OPERATIONS", 50)

    def bounded(x: Tensor) -> Tensor:
        for i in range(50):
            x = x + i
        return x

    assert graphwright.trace(bounded, (torch.zeros(1),))(torch.zeros(1)).item() == sum(range(50))


def counts_for_ever(x: Tensor) -> Tensor:
    for i in itertools.count():
        x = x + i
    return x


@pytest.mark.parametrize("program", [counts_for_ever, grows_while_it_is_walked])
def test_a_symbolic_trace_of_one_does_too(program, monkeypatch) -> None:
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 50)
    with pytest.raises(graphwright.TraceError, match=r"(?s)may have no end.*test_endless.py.*bound it"):
        graphwright.symbolic_trace(program)


class Swallows:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> bool:
        return True


def swallowed(x: Tensor) -> Tensor:
    while True:
        try:
            return x + 1 if x.sum() > 0 else x - 1
        except:  # noqa: E722
            continue


def swallowed_in_a_function(x: Tensor) -> Tensor:
    def step() -> Tensor | None:
        try:
            return x + 1 if x.sum() > 0 else x - 1
        except BaseException:
            return None

    for _ in itertools.count():
        if (y := step()) is not None:
            return y
    return x


def swallowed_by_a_class(x: Tensor) -> Tensor:
    while True:
        with Swallows():
            return x + 1 if x.shape[0] > 2 else x - 1


def swallowed_by_a_stack_of_contexts(x: Tensor) -> Tensor:
    while True:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(BaseException))
            return x + 1 if x.sum() > 0 else x - 1


def swallowed_in_a_handler(x: Tensor) -> Tensor:
    try:
        return x + 1 if x.sum() > 0 else x - 1
    except BaseException:
        while True:
            try:
                return x * 2 if x.mean() > 0 else x
            except BaseException:
                continue


def swallowed_on_each_level(x: Tensor) -> Tensor:
    def level(depth: int) -> Tensor:
        while True:
            try:
                return level(depth - 1) if depth else x + 1 if x.sum() > 0 else x - 1
            except BaseException:
                pass

    return level(3)


def swallowed_in_a_generator(x: Tensor) -> Tensor:
    def rows() -> Iterator[Tensor]:
        i = 0
        while i < 2:
            try:
                yield x[i] * 2 if x[i] > 0 else x[i]
                i += 1
            except GeneratorExit:
                return
            except BaseException:
                pass

    return torch.stack(list(rows()))


def swallowed_where_an_array_is_made(x: Tensor) -> Tensor:
    try:
        peak = float(x.numpy().max())
    except BaseException:
        peak = -1.0
    return x + peak


@pytest.mark.parametrize("door", [lambda f: graphwright.trace(f, (torch.ones(2),)), graphwright.symbolic_trace])
@pytest.mark.parametrize(
    "program",
    [
        swallowed, swallowed_in_a_function, swallowed_by_a_class, swallowed_by_a_stack_of_contexts,
        swallowed_in_a_handler, swallowed_on_each_level, swallowed_in_a_generator, swallowed_where_an_array_is_made,
    ],
)  # fmt: skip
def test_a_program_that_swallows_what_stops_it_is_left(program, door) -> None:
    watched, handled = (sys.gettrace(), sys.getprofile()), sys.exc_info()[1]
    gm = door(program)
    assert (sys.gettrace(), sys.getprofile()) == watched
    assert sys.exc_info()[1] is handled or program is swallowed_by_a_stack_of_contexts
    for x in (torch.ones(2), -torch.ones(2), torch.arange(3.0)):
        if program is not swallowed_in_a_generator or len(x) == 2:
            torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


def tries_for_an_array(x: Tensor) -> Tensor:
    while True:
        try:
            return x * float(np.asarray(x).max())
        except BaseException:
            continue


def test_a_program_that_tries_for_what_no_proxy_gives_is_refused() -> None:
    with pytest.raises(graphwright.errors.TraceError, match=r"(?s)no array.* at \S*test_endless\.py:\d+"):
        graphwright.symbolic_trace(tries_for_an_array)


def closes_what_it_opens(x: Tensor) -> Tensor:
    while True:
        try:
            files = [open(os.devnull) for _ in range(2)]
            try:
                return x + 1 if x.sum() > 0 else x - 1
            finally:
                for file in files:
                    file.close()
        except BaseException:
            continue


def test_a_finally_is_done_whole_where_something_else_swallows() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gm = graphwright.trace(closes_what_it_opens, (torch.ones(2),))
        gc.collect()
    assert torch.equal(gm(-torch.ones(2)), -2 * torch.ones(2))


def test_a_loop_that_is_not_converted_ends_in_an_error(monkeypatch) -> None:
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 50)
    names: dict[str, Any] = {}
    lines = "def f(x):", "  while True:", "    try: return x + float(x.sum())", "    except: pass"
    exec("\n".join(lines), names)
    with pytest.raises(graphwright.CaptureError, match="known only when it runs"):
        graphwright.trace(names["f"], (torch.ones(2),))
    with pytest.raises(graphwright.TraceError, match="may have no end"):
        graphwright.symbolic_trace(names["f"])


def test_a_queue_that_is_empty_where_a_loop_is_captured_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(substitutes, "_LONGEST_WAIT", 0.01)

    def program(x: Tensor) -> Tensor:
        rows: queue.Queue[Tensor] = queue.Queue()
        for row in x:
            rows.put(row)
        total = torch.zeros(())
        while not rows.empty():
            total = total * 0.5 + rows.get()
        return total

    gm = graphwright.trace(program, (torch.ones(3),))
    for x in (torch.ones(3), torch.arange(3.0)):
        assert torch.equal(gm(x), program(x))

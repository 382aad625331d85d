"""What a converted function keeps of the user's, and functions that cannot be converted."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from graphwright import CaptureError, ScriptError, script, symbolic_trace, trace
from graphwright.capture.conversion.conversion import convert
from graphwright.capture.python.runtime import RUNTIME

XS = [torch.tensor([[1.0, 2.0], [-3.0, 1.0]]), -torch.ones(2, 2)]
DOORS = {"trace": lambda function: trace(function, (XS[0],)), "script": script, "symbolic_trace": symbolic_trace}


def make() -> Any:
    scale = 2.0

    def function(x: Any, n: int = 4, *, flag: bool = True) -> Any:
        """What it does."""
        if x.sum() > 0:
            x = x * scale
        for row in x:
            if row.sum() > n:
                x = x + row
        return x

    return function


def test_it_is_the_same_function_but_for_its_code() -> None:
    function = make()
    function.mark = "kept"
    made = convert(function, RUNTIME)
    assert made is not None and made is not function
    assert made.__closure__ == function.__closure__ and made.__closure__[0] is function.__closure__[0]
    for name in (
        "__defaults__",
        "__kwdefaults__",
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__annotations__",
    ):
        assert getattr(made, name) == getattr(function, name), name
    assert made.__globals__ is function.__globals__ and made.mark == "kept"  # type: ignore[attr-defined]
    for name in ("co_filename", "co_name", "co_firstlineno", "co_freevars", "co_argcount", "co_kwonlyargcount"):
        assert getattr(made.__code__, name) == getattr(function.__code__, name), name
    for x in XS:  # outside of a capture it does what the user's does
        assert torch.equal(made(x, 1), function(x, 1))


def test_a_debugger_steps_through_the_user_s_lines() -> None:
    """The lines that a trace function, as pdb's, is told of are those of the statements that run."""
    function = make()
    first = function.__code__.co_firstlineno
    seen: list[tuple[str, int]] = []

    def step(frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_code.co_filename == __file__ and first < frame.f_lineno < first + 9:
            seen.append((frame.f_code.co_name, frame.f_lineno - first))
        return step

    sys.settrace(step)
    try:
        trace(function, (XS[0], 1))
    finally:
        sys.settrace(None)
    lines = [line for name, line in seen if name == "function"]
    assert {2, 3, 4, 5, 6, 7} <= set(lines)
    assert all(name == "function" for name, _ in seen)


def fails(x: Any) -> Any:
    for row in x:
        if row.sum() > 0:
            x = row.reshape(7)
    return x


def test_a_traceback_shows_the_user_s_lines() -> None:
    with pytest.raises(RuntimeError, match=r"shape '\[7\]' is invalid") as caught:
        trace(fails, (XS[0],))
    frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
    first = fails.__code__.co_firstlineno
    mine = [
        (frame.name, frame.lineno and frame.lineno - first, frame.line) for frame in frames if frame.name == "fails"
    ]
    assert mine == [
        ("fails", 1, "for row in x:"),
        ("fails", 2, "if row.sum() > 0:"),
        ("fails", 3, "x = row.reshape(7)"),
    ]


def without_source(text: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(text, "<no file>", "exec"), names)
    return names["function"]


def test_a_branch_without_source_forks() -> None:
    function = without_source("def function(x):\n    if x.sum() > 0:\n        return x + 1\n    return x - 1")
    for door in ("trace", "symbolic_trace"):
        gm = DOORS[door](function)
        for x in XS:
            assert torch.equal(gm(x), function(x))
    with pytest.raises(CaptureError, match="function has no source that can be scripted"):
        script(function)


def test_a_loop_without_source_says_that_it_has_none() -> None:
    function = without_source("def function(x):\n    while x.sum() > 1:\n        x = x / 2\n    return x")
    for door in ("trace", "symbolic_trace"):
        with pytest.raises(ValueError, match="<no file> has no source that could be read"):
            DOORS[door](function)


def positive(x: Any) -> Iterator[Any]:
    for row in x:
        if row.sum() > 0:
            yield row


def goes_over_a_generator(x: Any) -> Any:
    total = torch.zeros(2)
    for row in positive(x):
        total = total + row
    return total


def test_generators_run_as_they_are() -> None:
    gm = trace(goes_over_a_generator, (XS[0],))
    for x in XS:
        assert torch.equal(gm(x), goes_over_a_generator(x))
    with pytest.raises(ScriptError, match="positive is a generator or a coroutine"):
        script(goes_over_a_generator)


async def waits(x: Any) -> Any:
    if x.sum() > 0:
        return x + 1
    return x


def runs(x: Any) -> Any:
    return asyncio.run(waits(x)) * 2


def test_coroutines() -> None:
    gm = trace(runs, (XS[0],))
    for x in XS:
        assert torch.equal(gm(x), runs(x))
    with pytest.raises(ScriptError, match="waits is a coroutine") as caught:
        script(runs)
    assert "^^^^^" in str(caught.value) and "fix: write an ordinary function" in str(caught.value)
    for door in (script, lambda function: trace(function, (XS[0],))):
        with pytest.raises(CaptureError, match="waits is a coroutine: a call of it runs nothing yet"):
            door(waits)


def with_all(x: Any, scale: float = 2.0) -> Any:
    shift = x.mean()
    if x.sum() > 0:
        held = {name: value for name, value in locals().items() if name != "scale"}
        x = held["x"] * held["shift"] + len(held)
    return x - shift


def with_some(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2
        x = x + y
    held = locals()
    return x + held["y"] if "y" in held else x - len(held)


class Named:
    def told(self, x: Any) -> Any:
        __inner = x * 2
        if x.sum() > 0:
            x = x + 1
        return x + sum(value.sum() for name, value in locals().items() if name == "_Named__inner")


@pytest.mark.parametrize("program", [with_all, with_some, Named().told], ids=["all", "some", "private"])
def test_a_function_that_takes_its_local_variables_is_converted(program: Any) -> None:
    assert convert(getattr(program, "__func__", program), RUNTIME) is not None
    captured = trace(program, (XS[0],))
    for x in XS:
        torch.testing.assert_close(captured(x), program(x))


def test_local_variables_that_are_taken_twice_leave_a_function_as_it_is() -> None:
    def twice(x: Any) -> Any:
        held = locals()
        y = x
        return [locals(), held["y"], y]

    assert convert(twice, RUNTIME) is None


class Private:
    def __twice(self, x: torch.Tensor, __n: int = 2) -> torch.Tensor:
        return x * __n

    def told(self, x: torch.Tensor) -> torch.Tensor:
        __inner = x * 2
        if x.sum() > 0:
            __inner = self.__twice(__inner, 3) + 1

        def __more() -> torch.Tensor:
            nonlocal __inner
            __inner = __inner + 1
            return __inner

        return __more() + __inner


def test_private_variables_are_those_of_their_class() -> None:
    private = Private()
    gm = trace(private.told, (torch.ones(2),))
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(gm(x), private.told(x))

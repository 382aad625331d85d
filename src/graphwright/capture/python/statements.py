"""Statements of converted functions: `assert`, `raise`, `try`, `with`, `for` and `while`.

Each does what Python does, or what the capture does that runs in this thread.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from graphwright.capture.flow.deciding import branch
from graphwright.capture.flow.plain_attempts import run_plainly
from graphwright.capture.flow.swallowing import watched
from graphwright.capture.state.parts import Handlers
from graphwright.capture.state.running import refusal, running
from graphwright.errors import CaptureError


def check(test: Any, message: Callable[[], Any] | None = None) -> None:
    """`assert test, message`."""

    def fail() -> None:
        raise raising(AssertionError(message()) if message is not None else AssertionError())

    branch(test, lambda: None, fail)


def raising(
    error: BaseException | type[BaseException], cause: BaseException | type[BaseException] | None = None
) -> Any:
    """`raise error from cause`: returns what is to be raised, or ends a side of a branch with it."""
    recorder, cause = running(), cause() if isinstance(cause, type) else cause
    if recorder is not None:
        return recorder.questions.raises.raising(error, cause)
    if cause is not None:
        error = error() if isinstance(error, type) else error
        error.__cause__ = cause
    return error


def attempt(
    tried: Callable[[], Any],
    handlers: Handlers,
    orelse: Callable[[], Any] | None,
    final: Callable[[], Any] | None,
    names: tuple[str, ...] = (),
    raising: str = "",
) -> Any:
    """`try: ... except ...: ... else: ... finally: ...`; returns whether a part said that it is left.

    `raising`: "again" where all that handlers do is to raise what they got, "other" where all raise in the end.
    """
    recorder = running()
    if recorder is None:
        return run_plainly(tried, handlers, orelse, names, final)
    return recorder.attempts.run(tried, handlers, orelse, final, names, raising)


def context(entered: AbstractContextManager[Any]) -> Any:
    """What a `with` block enters."""
    return watched(entered)


def suppressed(entered: AbstractContextManager[Any]) -> Any:
    """The classes of errors that `contextlib.suppress` is told of."""
    if type(entered) is contextlib.suppress:
        return entered._exceptions  # type: ignore[attr-defined]
    fix = "write `try` and `except`"
    raise refusal(CaptureError("another context than contextlib.suppress has its name", fix=fix))


def each(
    iterables: list[Iterable[Any]],
    body: Callable[[Any], Any],
    names: tuple[str, ...],
    private: tuple[str, ...] = (),
    target: str = "",
    asks_how: bool = False,
) -> Any:
    """`for item in iterable: ...`; returns whether `body` said that the loop ends.

    The list has the iterable alone: no call that this goes through holds it too, so its references can be counted.
    The body assigns the variables `names` around it; nothing but the loop uses those that are `private`. `target` is
    what the source calls an item. With `asks_how` the value is of use.
    """
    is_alone = sys.getrefcount(iterables[0]) <= sys.getrefcount(_ALONE[0])
    recorder = running()
    if recorder is not None:
        return recorder.loops.each(iterables.pop(), body, names, private, asks_how, target, is_alone)
    return any(map(body, iterables.pop()))


_ALONE = [object()]


def repeat(
    test: Callable[[], Any],
    body: Callable[[], Any],
    names: tuple[str, ...],
    private: tuple[str, ...] = (),
    asks_how: bool = False,
) -> Any:
    """`while test(): ...`; returns whether `body` said that the loop ends."""
    recorder = running()
    if recorder is not None:
        return recorder.loops.repeat(test, body, names, private, asks_how)
    while test():
        if body():
            return True
    return False

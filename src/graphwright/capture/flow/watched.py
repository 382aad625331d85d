"""A part of the program that is captured as a region: run with what it may change watched, and again where that grows.

The sides of a branch, the body of a loop and that of a `try` are such parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from graphwright.capture.effects.branch_state import State
from graphwright.capture.state.samples import Grows, Unlike

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

T = TypeVar("T")


def run_watched(
    recorder: Capture,
    watch: Callable[[], State],
    run: Callable[[State], T],
    grow: Callable[[State, Grows], object],
    refused: Callable[[str], BaseException],
) -> T:
    """Run a part of the program on a state, and again where a list in it, of any length from then on, gets longer.

    `grow` makes it such a list; `refused` is what to raise where that cannot be, of the reason.
    """
    while True:
        state = watch()
        if recorder.typed is not None:
            state.watch_outside(recorder.typed.callers.outside)
        recorder.states.append(state)
        try:
            return run(state)
        except Grows as growth:
            if not state.is_outermost(recorder, growth.content):
                raise
            state.restore()
            try:
                grow(state, growth)
            except Unlike as why:
                raise refused(str(why)) from None
        finally:
            recorder.states.pop()


def check_end(recorder: Capture, depth: int, refused: Callable[[], BaseException]) -> None:
    """See, where a part ends that began at this depth of contexts, that it leaves the ambient state as it was.

    Has the capture start again where the part has added to what the program keeps.
    """
    if recorder.ambient.depth != depth:
        recorder.ambient.forget(depth)
        raise refused()
    why = None if recorder.keeping is None else recorder.keeping.learn_growth()
    if why is not None:
        raise recorder.questions.restart(why)

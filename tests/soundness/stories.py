"""Stories: a program is called, its world changes, it is called again; on the capture that has to go as in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

import graphwright as gw

__all__ = ["DOWN", "UP", "calls", "told"]

UP, DOWN = torch.ones(2), -torch.ones(2)


def calls(*inputs: Any) -> Callable[[Any], list[Any]]:
    """The story that calls a program with each of some inputs in turn."""

    def story(program: Any) -> list[Any]:
        return [_outcome(program, each if isinstance(each, tuple) else (each,)) for each in inputs]

    return story


def _outcome(program: Any, inputs: tuple[Any, ...]) -> str:
    inputs = copy.deepcopy(inputs)
    try:
        return f"{program(*inputs)} {inputs}"
    except gw.GraphwrightError:
        raise
    except Exception as error:
        return type(error).__name__


def told(make: Callable[[], Any], story: Callable[[Any], Any], *example: Any) -> str:
    """Tell a story of a program, which `make` makes anew each time: `same` as in eager, or `loud`; else how it differs.

    What is captured has `example` as its inputs, UP without one.
    """
    torch.manual_seed(0)
    expected = str(story(make()))
    torch.manual_seed(0)
    try:
        captured = gw.trace(make(), example or (UP,))
        got = str(story(captured))
    except gw.GraphwrightError as error:
        return f"loud: {error}"
    return "same" if got == expected else f"{got} instead of {expected}"

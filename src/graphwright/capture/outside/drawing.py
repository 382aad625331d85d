"""Calls that draw random numbers of Python's or NumPy's, as nodes: every run of the graph draws anew.

While a program is captured it draws from copies of the generators, whose own states stay as they are.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy

from graphwright.capture.calls.opaque import record_foreign_call
from graphwright.capture.source.origins import user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["GENERATORS", "MAKERS", "is_draw", "record_draw"]

GENERATORS = (random.Random, numpy.random.RandomState, numpy.random.Generator)
_MAKERS = (random.Random, numpy.random.RandomState, numpy.random.default_rng)
_MAKER_IDS = frozenset(map(id, _MAKERS))
MAKERS = frozenset(maker.__name__ for maker in _MAKERS)  # what a function mentions that makes a generator of its own
_NO_DRAWS = frozenset({"seed", "getstate", "setstate", "get_state", "set_state", "shuffle", "spawn"})


def is_draw(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function draws from a generator of Python's or NumPy's, or makes one."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, GENERATORS):
        return function.__name__ not in _NO_DRAWS
    return id(function) in _MAKER_IDS


def record_draw(recorder: TypedCapture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a draw of numbers. What draws something else, as a layer from a list, is called, and so refused later."""
    restart = recorder.questions.refusals.helper_that_draws(user_frame(sys._getframe(1)))
    if restart is not None:
        raise recorder.questions.restart(restart)
    if id(function) in _MAKER_IDS:
        return record_foreign_call(recorder, function, args, kwargs)
    generator = recorder.generators.setdefault(id(function.__self__), copy.deepcopy(function.__self__))
    draw = getattr(generator, function.__name__)
    drawn = getattr(copy.deepcopy(generator), function.__name__)(
        *recorder.to_examples(args), **recorder.to_examples(kwargs)
    )
    if not all(isinstance(leaf, int | float | numpy.ndarray | numpy.generic) for leaf in leaves(drawn)):
        return function(*args, **kwargs)
    return record_foreign_call(recorder, function, args, kwargs, draw)

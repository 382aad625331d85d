"""Calls that draw random numbers of Python's or NumPy's, as nodes: every run of the graph draws anew.

While a program is captured it draws from copies of the generators, whose own states stay as they are.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy
import torch

from graphwright.capture.calls.opaque import record_foreign_call
from graphwright.capture.outside.unknown_calls import unknown_call
from graphwright.capture.outside.world import WORLD
from graphwright.source import user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

Drawer: TypeAlias = random.Random | numpy.random.RandomState | numpy.random.Generator
GENERATORS = (random.Random, numpy.random.RandomState, numpy.random.Generator)
_MAKERS = (random.Random, numpy.random.RandomState, numpy.random.default_rng)
_MAKER_IDS = frozenset(map(id, _MAKERS))
MAKERS = frozenset(maker.__name__ for maker in _MAKERS)  # what a function mentions that makes a generator of its own
_NO_DRAWS = frozenset({"shuffle", "spawn"})
_SEEDS = frozenset({"seed", "setstate", "set_state"})
_STATES = frozenset({"getstate", "get_state"})


def is_draw(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function draws from a generator of Python's or NumPy's, seeds it, or makes one."""
    if id(function) in _UNBOUND or isinstance(getattr(function, "__self__", None), GENERATORS):
        return function.__name__ not in _NO_DRAWS
    return id(function) in _MAKER_IDS


def computes_only(function: Callable[..., Any]) -> bool:
    """Tell whether what a function in C gives follows from its arguments: no generator, clock or file decides it.

    >>> computes_only(len), computes_only(random.random), computes_only(sys.getrecursionlimit)
    (True, False, False)
    """
    if unknown_call(function) is not None or is_draw(function):
        return False
    homes = [(sys.modules.get(home), names.split()) for home, names in WORLD.items()]
    is_of_world = any(getattr(home, name, None) is function for home, names in homes if home for name in names)
    owner = getattr(function, "__self__", None)
    return not is_of_world and not (isinstance(owner, type) and function.__name__ in _NOW)


_NOW = frozenset({"now", "utcnow", "today"})  # of datetime's classes


def _owner(function: Callable[..., Any]) -> Any:
    """The generator that a function belongs to: `numpy.random.seed` does not say it."""
    return _OF_NUMPY if id(function) in _UNBOUND else getattr(function, "__self__", None)


_OF_NUMPY = getattr(numpy.random.rand, "__self__", None)  # before a capture has something stand in its place
# By identity: what the program calls may say itself to what it is equal.
_UNBOUND = frozenset(map(id, (numpy.random.seed, numpy.random.ranf, numpy.random.sample)))


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    """The example of a state of a generator."""

    value: Any


def _no_effect(*args: Any, **kwargs: Any) -> None:
    """What a seed is to the examples."""


def record_draw(
    recorder: TypedCapture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a draw of numbers. What draws something else, as a layer from a list, is called, and so refused later."""
    if id(function) in _MAKER_IDS:
        return record_foreign_call(recorder, function, args, kwargs)
    if recorder.plan.cached:
        recorder.questions.refusals.cached_draw("call_function", torch.rand)
    owner, name = _owner(function), function.__name__
    generator = recorder.generators.setdefault(id(owner), copy.deepcopy(owner))
    draw = getattr(generator, name)
    if name in _STATES:
        return record_foreign_call(recorder, function, args, kwargs, functools.partial(_State, None))
    if name in _SEEDS:
        given = recorder.to_examples(args)
        if not any(isinstance(leaf, _State) for leaf in leaves(given)):
            draw(*given, **recorder.to_examples(kwargs))
        return recorder.record("call_function", function, _no_effect, args, kwargs)
    restart = recorder.questions.refusals.helper_that_draws(user_frame(sys._getframe(1)))
    if restart is not None:
        raise recorder.questions.restart(restart)
    if name in _NO_DRAWS:
        return function(*args, **kwargs)
    drawn = getattr(copy.deepcopy(generator), name)(*recorder.to_examples(args), **recorder.to_examples(kwargs))
    if not all(isinstance(leaf, int | float | numpy.ndarray | numpy.generic) for leaf in leaves(drawn)):
        return function(*args, **kwargs)
    return record_foreign_call(recorder, function, args, kwargs, draw)

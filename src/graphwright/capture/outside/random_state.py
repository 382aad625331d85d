"""Random state as a program sets, reads and forks it: nodes, in order. No generator is moved by a capture.

Each function that touches the generators of torch, Python or NumPy is in one of these tables.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy
import torch

from graphwright.capture.outside.drawing import record_draw
from graphwright.capture.outside.overheard import overhear, overhear_class
from graphwright.capture.outside.torch_generators import GeneratorProxy, some_number, some_state
from graphwright.capture.outside.world import say_read
from graphwright.capture.state.running import refusal
from graphwright.errors import CaptureError
from graphwright.ops import enter_context, exit_context
from graphwright.source import CallSite

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["OF_DEVICES", "OF_NUMPY", "OF_PYTHON", "OF_TORCH", "watch_random_state"]


# ---- what is recorded of torch


def _no_effect(*args: Any, **kwargs: Any) -> None:
    """What a seed is to the examples."""


def _recorded(
    run: Callable[..., Any],
    recorder: TypedCapture,
    frame: FrameType,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if recorder.typed is None:
        return recorder.torch_function(function, args, kwargs)
    return recorder.record("call_function", function, run, args, kwargs, gives_data=run is some_number)


def _generator(
    recorder: TypedCapture,
    frame: FrameType,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A call that gives a generator: `torch.Generator()`, and `torch.manual_seed(0)`, which gives torch's own."""
    if recorder.typed is None:
        if function is not torch._C.Generator:
            return recorder.torch_function(function, args, kwargs)
        say_read(recorder, frame, "torch.Generator()")  # what takes generators takes no proxies
        return function(*args, **kwargs)
    given = tuple([recorder.argument(arg) for arg in args])
    named = {key: recorder.argument(arg) for key, arg in kwargs.items()}
    is_made = function is torch._C.Generator
    recorder.ambient.notice()
    node = recorder.node("call_function", function, given, named, name=recorder.target_name() or "rng")
    device = kwargs.get("device", args[0] if args else "cpu") if is_made else "cpu"
    return GeneratorProxy.make(recorder, device, lambda: node)


def _forked(
    recorder: TypedCapture,
    frame: FrameType,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> _Fork:
    return _Fork(recorder, function, args, kwargs)


class _Fork:
    """`torch.random.fork_rng()` of a program, as a region of the graph."""

    def __init__(
        self, recorder: TypedCapture, manager: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._recorder, self._manager = recorder, manager
        args, kwargs = tuple(map(_as_list, args)), {key: _as_list(value) for key, value in kwargs.items()}
        self._args = tuple([recorder.argument(arg) for arg in args])
        self._kwargs = {key: recorder.argument(value) for key, value in kwargs.items()}

    def __enter__(self) -> None:
        if self._recorder.typed is not None:
            self._recorder.ambient.notice()
        arguments = (self._manager, *self._args)
        self._node = self._recorder.node("call_function", enter_context, arguments, self._kwargs, name="fork_rng")

    def __exit__(self, *error: object) -> None:
        if self._recorder.pending is None:
            self._recorder.node("call_function", exit_context, (self._node,), {})


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, range | set | frozenset) else value


def _refused(
    recorder: TypedCapture,
    frame: FrameType,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    at = CallSite(frame.f_code, frame.f_lasti, recorder.scope).line()
    what = f"the program calls {function.__module__}.{function.__name__}, which a graph cannot"
    fix = "call it outside of the program, or keep the function that calls it as one node: leaf_functions=[...]"
    raise refusal(CaptureError(what, at=at, fix=fix))


def _drawn(
    recorder: TypedCapture,
    frame: FrameType,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if recorder.typed is None:
        say_read(recorder, frame, f"{getattr(function, '__qualname__', function.__name__)}()")
        return function(*args, **kwargs)
    return record_draw(recorder, function, args, kwargs)


def _read_state(
    recorder: TypedCapture,
    frame: FrameType,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if sys._getframe(2).f_code is _FORK:  # made before the program ran, as `@fork_rng()` is
        return _refused(recorder, frame, torch.random.fork_rng, args, kwargs)
    return _recorded(some_state, recorder, frame, function, args, kwargs)


_FORK = inspect.unwrap(torch.random.fork_rng).__code__
_EFFECT, _NUMBER = (functools.partial(_recorded, run) for run in (_no_effect, some_number))
OF_TORCH: dict[str, Callable[..., Any]] = {
    "manual_seed": _generator, "seed": _NUMBER, "initial_seed": _NUMBER, "get_rng_state": _read_state,
    "set_rng_state": _EFFECT, "fork_rng": _forked, "thread_safe_generator": _refused,
}  # fmt: skip
OF_DEVICES: dict[str, Callable[..., Any]] = {  # of torch.cuda and the like
    **dict.fromkeys(("manual_seed", "manual_seed_all", "seed", "seed_all"), _EFFECT), "initial_seed": _NUMBER,
    **dict.fromkeys(("set_rng_state", "set_rng_state_all"), _EFFECT),
    **dict.fromkeys(("get_rng_state", "get_rng_state_all"), _refused),
}  # fmt: skip
OF_PYTHON = frozenset({
    "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "getstate", "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange",
    "sample", "seed", "setstate", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
})  # fmt: skip
OF_NUMPY = frozenset({
    "beta", "binomial", "bytes", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma", "geometric",
    "get_state", "gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries", "multinomial",
    "multivariate_normal", "negative_binomial", "noncentral_chisquare", "noncentral_f", "normal", "pareto",
    "permutation", "poisson", "power", "rand", "randint", "randn", "random", "random_integers", "random_sample", "ranf",
    "rayleigh", "sample", "seed", "set_state", "shuffle", "standard_cauchy", "standard_exponential", "standard_gamma",
    "standard_normal", "standard_t", "triangular", "uniform", "vonmises", "wald", "weibull", "zipf",
})  # fmt: skip
_DEVICES = ("torch.cuda", "torch.cuda.random", "torch.mps", "torch.xpu", "torch.xpu.random", "torch.mtia")
_watched: list[bool] = []


def watch_random_state() -> None:
    """Have what touches a random state heard of."""
    if _watched:
        return
    for name, act in OF_TORCH.items():
        overhear(torch.random, (name,), act, inner=(_FORK,))
        overhear(torch, (name,), act)
    for device in _DEVICES:
        for name, act in OF_DEVICES.items():
            if device in sys.modules:
                overhear(sys.modules[device], (name,), act)
    overhear_class(torch, "Generator", _generator, {})
    overhear(random, OF_PYTHON, _drawn)
    overhear(numpy.random, OF_NUMPY, _drawn)
    _watched.append(True)

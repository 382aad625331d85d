"""Random state as a program sets, reads and forks it: nodes, in order. No generator is moved by a capture.

Each function that touches the generators of torch, Python or NumPy is in one of these tables.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch

from graphwright.capture.outside.drawing import record_draw
from graphwright.capture.outside.entered_contexts import Entered
from graphwright.capture.outside.overheard import Heard, overhear, overhear_class
from graphwright.capture.outside.process_state import no_effect
from graphwright.capture.outside.torch_generators import GeneratorProxy, some_number, some_state
from graphwright.capture.outside.world import say_read

# ---- what is recorded of torch


def _recorded(run: Callable[..., Any], call: Heard) -> Any:
    if call.recorder.typed is None:
        return call.recorder.torch_function(call.function, call.args, call.kwargs)
    is_number = run is some_number
    return call.recorder.record("call_function", call.function, run, call.args, call.kwargs, gives_data=is_number)


def _generator(call: Heard) -> Any:
    """A call that gives a generator: `torch.Generator()`, and `torch.manual_seed(0)`, which gives torch's own."""
    recorder, function, args, kwargs = call.recorder, call.function, call.args, call.kwargs
    if recorder.typed is None:
        if function is not torch._C.Generator:
            return recorder.torch_function(function, args, kwargs)
        say_read(recorder, call.frame, "torch.Generator()")  # what takes generators takes no proxies
        return function(*args, **kwargs)
    given = tuple([recorder.argument(arg) for arg in args])
    named = {key: recorder.argument(arg) for key, arg in kwargs.items()}
    is_made = function is torch._C.Generator
    recorder.ambient.notice()
    node = recorder.node("call_function", function, given, named, name=recorder.target_name() or "rng")
    device = kwargs.get("device", args[0] if args else "cpu") if is_made else "cpu"
    return GeneratorProxy.make(recorder, device, lambda: node)


def _forked(call: Heard) -> Entered:
    """`torch.random.fork_rng()` of a program, as a region of the graph: a capture moves no generator."""
    return Entered(call, contextlib.nullcontext())


def _refused(call: Heard) -> Any:
    what = f"the program calls {call.function.__module__}.{call.function.__name__}, which a graph cannot"
    raise call.refused(what)


def _drawn(call: Heard) -> Any:
    if call.recorder.typed is None:
        say_read(call.recorder, call.frame, f"{getattr(call.function, '__qualname__', call.function.__name__)}()")
        return call.original()
    return record_draw(call.recorder, call.function, call.args, call.kwargs)


def _read_state(call: Heard) -> Any:
    if sys._getframe(2).f_code is _FORK:  # made before the program ran, as `@fork_rng()` is
        return _refused(Heard(call.recorder, call.frame, torch.random.fork_rng, call.args, call.kwargs))
    return _recorded(some_state, call)


_FORK = inspect.unwrap(torch.random.fork_rng).__code__
_EFFECT, _NUMBER = (functools.partial(_recorded, run) for run in (no_effect, some_number))
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
_DEVICES = (
    *("torch.cuda", "torch.cuda.random", "torch.mps", "torch.xpu", "torch.xpu.random", "torch.mtia"),
    *("torch.accelerator", "torch.accelerator.random"),
)


@functools.cache
def watch_random_state() -> None:
    """Have what touches a random state heard of."""
    for name, act in OF_TORCH.items():
        overhear(torch.random, (name,), act, inner=(_FORK,))
        overhear(torch, (name,), act)
    for device in _DEVICES:
        if device in sys.modules:
            for name, act in OF_DEVICES.items():
                overhear(sys.modules[device], (name,), act)
    for path, known in {"torch.random": OF_TORCH, **dict.fromkeys(_DEVICES, OF_DEVICES)}.items():
        if path.endswith(".random") and path in sys.modules:
            newer = {*getattr(sys.modules[path], "__all__", ())} - {*known}
            overhear(sys.modules[path], newer, _refused)
    overhear_class(torch, "Generator", _generator, {})
    overhear(random, OF_PYTHON, _drawn)
    overhear(numpy.random, OF_NUMPY, _drawn)

"""What torch keeps for the whole process and programs ask of it: the default dtype, how many threads, which backends.

What a program reads there is guarded, or said where it is the machine's; what it sets is a node, done while it is
captured as well and undone afterwards.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.outside.entered_contexts import is_set_around, watch_contexts
from graphwright.capture.outside.overheard import Heard, heard, overhear, overhear_in
from graphwright.capture.outside.world import say_read
from graphwright.ir import nodes_in

if TYPE_CHECKING:
    from graphwright.ir import Node

# What is asked, and guarded.
GETTERS: dict[str, tuple[str, ...]] = {
    "torch": (
        "get_default_dtype", "get_default_device", "get_num_threads", "get_num_interop_threads",
        "get_float32_matmul_precision", "are_deterministic_algorithms_enabled",
        "is_deterministic_algorithms_warn_only_enabled", "get_deterministic_debug_mode", "is_warn_always_enabled",
        "is_anomaly_enabled", "is_anomaly_check_nan_enabled",
    ),
    "torch.backends.cuda": ("cudnn_sdp_enabled", "flash_sdp_enabled", "math_sdp_enabled", "mem_efficient_sdp_enabled"),
}  # fmt: skip
# What the machine has, which is said: a captured program may go to another.
MACHINE: dict[str, tuple[str, ...]] = {
    "torch": ("is_vulkan_available",),
    "torch.backends.cuda": ("is_built",),
    "torch.backends.mkl": ("is_available",),
    "torch.backends.openmp": ("is_available",),
    "torch.backends.mps": ("is_available", "is_built"),
    "torch.backends.cpu": ("get_cpu_capability",),
    "torch.cuda": ("is_available", "device_count", "is_bf16_supported", "is_initialized", "get_device_capability"),
    "torch.accelerator": ("is_available", "device_count"),
    "torch.distributed": ("is_initialized", "get_rank", "get_world_size", "get_backend"),
}
# What is set, and what asks for it.
SETTERS = {
    "set_default_dtype": "get_default_dtype", "set_num_threads": "get_num_threads",
    "set_float32_matmul_precision": "get_float32_matmul_precision", "set_warn_always": "is_warn_always_enabled",
    "set_deterministic_debug_mode": "get_deterministic_debug_mode",
    "use_deterministic_algorithms": "are_deterministic_algorithms_enabled",
}  # fmt: skip
# Of the functions that are called `set_...` or `use_...`, those of which others know; no graph has the rest.
SET_OTHERWISE = frozenset({"set_grad_enabled", "set_printoptions", "set_rng_state"})


def _asked(path: str, call: Heard) -> Any:
    """Guard what a getter gives, unless the program has set it."""
    value, recorder, name = call.original(), call.recorder, call.function.__name__
    if recorder.typed is None or name in recorder.plan.sets or is_set_around(recorder, call.function):
        return value
    shown = ", ".join([*map(repr, call.args), *[f"{key}={value!r}" for key, value in call.kwargs.items()]])
    subject = f"{path}.{name}({shown})"
    if subject not in recorder.ledger.taken:
        recorder.ledger.take(subject, value, functools.partial(_at_start, call), subject)
    return value


def _of_machine(path: str, call: Heard) -> Any:
    say_read(call.recorder, call.frame, f"{path}.{call.function.__name__}()")
    return call.original()


def _at_start(call: Heard) -> Node:
    """The node that asks, before the first operation of the program."""
    graph = call.recorder.root.graph
    inputs = graph.placeholders()
    assert not [*nodes_in((call.args, call.kwargs))]
    with graph.inserting_after(inputs[-1]) if inputs else graph.inserting_before(next(iter(graph.nodes))):
        return graph.call_function(call.function, call.args, call.kwargs)


def _set(getter: Callable[[], Any], call: Heard) -> Any:
    """Set it in the graph, and for the rest of the capture."""
    recorder = call.recorder
    set_apart = functools.partial(copy_context().run, call.function)  # with the ContextVars that torch sets along
    recorder.plan.undo.append(functools.partial(set_apart, getter()))
    if recorder.typed is None:
        recorder.torch_function(call.function, call.args, call.kwargs)
        return set_apart(*call.args, **call.kwargs)
    recorder.plan.sets.add(getter.__name__)
    recorder.record("call_function", call.function, no_effect, call.args, call.kwargs)
    return set_apart(*recorder.to_examples(call.args), **recorder.to_examples(call.kwargs))


def _refused(call: Heard) -> Any:
    flag = call.function.__name__.removeprefix("_")
    what = f"the program calls {flag}, which changes what torch does in the whole process: no graph has it"
    raise call.refused(what)


def no_effect(*args: Any, **kwargs: Any) -> None:
    """What it is to the examples: set apart from them."""


@functools.cache
def watch_process_state() -> None:
    """Have it heard of what a program asks of the process, and sets."""
    for table, act in ((GETTERS, _asked), (MACHINE, _of_machine)):
        for path, names in table.items():
            overhear(sys.modules[path], names, functools.partial(act, path))
    watch_setters()


@functools.cache
def watch_setters() -> None:
    """Have it heard what a program sets, by functions or, for a while, by contexts."""
    watch_contexts()
    for name, getter in SETTERS.items():
        overhear(torch, (name,), functools.partial(_set, getattr(torch, getter)))
    others = {name for name in dir(torch) if name.startswith(("set_", "use_"))} - {*SETTERS, *SET_OTHERWISE}
    overhear(torch, others, _refused)
    _watch_flags()


def _watch_flags() -> None:
    """Have it heard what a program sets of torch's backends: by assigning attributes or by functions, all end in C."""
    refused = functools.partial(heard, act=_refused, through=_BACKENDS)
    setters = {name for name in dir(torch._C) if name.startswith("_set_")} - _NO_FLAGS
    overhear_in(vars(torch._C), setters, refused)
    for module in [module for path, module in sys.modules.items() if path.startswith("torch.backends")]:
        for flag in vars(type(module)).values():
            if hasattr(flag, "setter") and not isinstance(flag, property):
                overhear_in(vars(flag), ("setter",), refused)


# What is set by functions of C that are called in every capture, or is of a single tensor.
_NO_FLAGS = frozenset({
    "_set_grad_enabled", "_set_torch_function_state", "_set_dispatch_mode", "_set_conj", "_set_neg",
})  # fmt: skip
# Where torch has what sets flags.
_BACKENDS = (os.path.join(os.path.dirname(torch.__file__), "backends", ""), torch.utils.deterministic.__file__)

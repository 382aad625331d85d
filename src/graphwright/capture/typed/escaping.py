"""Errors that leave a capture: those that the program itself raises say where, all others become ours."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from graphwright.capture.proxies.cycles import error_of_cycle
from graphwright.errors import CaptureError, GraphwrightError
from graphwright.source import line_of_error


def as_left(error: Exception, function: Callable[[], Callable[..., Any]], call: tuple[Any, Any]) -> Exception:
    """What to raise for an error that the capture of a program has ended with.

    One that the program raises for its example without a capture, too, is its own: it comes with a note that names
    the user's line. Any other is a CaptureError. `function` gives a copy of the program to try this on.
    """
    if isinstance(error, GraphwrightError | Warning):
        return error
    at, first = line_of_error(error), str(error).partition("\n")[0]
    own = _raised(function, call)
    if type(own) is type(error):
        own = error if str(own) == str(error) else own  # whose text may be of what stands for its values
        if hasattr(own, "add_note") and at:
            own.add_note(f"at {at}\nThe program itself raises this for the example, without being captured.")
        return own
    cycle = error_of_cycle(error, at)
    if cycle is not None:
        return cycle
    what = type(error).__name__
    return CaptureError(
        f"the program cannot be captured: it raises {what} while it is, which it does not when it runs: {first}",
        at=at,
        fix="keep what fails as one node: leaf_functions=[...] or leaf_modules=[...]",
    )


def _raised(function: Callable[[], Callable[..., Any]], call: tuple[Any, Any]) -> Exception | None:
    """What a copy of the program raises for a copy of the example; random numbers stay as they were."""
    states = random.getstate(), numpy.random.get_state()
    try:
        (args, kwargs), program = copy.deepcopy(call), function()
    except Exception:  # it cannot be tried
        return None
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
            program(*args, **kwargs)
    except Exception as error:
        return error
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
    return None


def refuse_lazy(root: nn.Module | Callable[..., Any]) -> None:
    """Refuse a module whose parameters its first call makes. Raises CaptureError."""
    for path, module in root.named_modules() if isinstance(root, nn.Module) else ():
        tensors = [*module._parameters.values(), *module._buffers.values()]
        makes_parts = isinstance(module, LazyModuleMixin) and hasattr(module, "_initialize_hook")
        if makes_parts or any(map(torch.nn.parameter.is_lazy, tensors)):
            raise CaptureError(
                f"{path or 'the model'} is a {type(module).__name__}, whose parameters are made by its first call",
                fix="call the model on the example once, then capture it: model(*args)",
            )

"""Errors that leave a capture: those that the program itself raises say where, all others become ours."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn

from graphwright.capture.proxies.objects import is_plain_object
from graphwright.errors import CaptureError, GraphwrightError
from graphwright.source import line_of_error

__all__ = ["as_left", "refuse_lazy"]


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
    if isinstance(error, RecursionError) and (kind := _class_of_cycle(error)):
        return CaptureError(
            f"a {kind} of the program holds itself, however far inside: a graph can neither take nor make such a value",
            at=at,
            fix="refer to what is around by a name or an index, or keep what makes it as one node: leaf_functions",
        )
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
        if any(map(torch.nn.parameter.is_lazy, tensors)):
            raise CaptureError(
                f"{path or 'the model'} is a {type(module).__name__}, whose parameters are made by its first call",
                fix="call the model on the example once, then capture it: model(*args)",
            )


def _class_of_cycle(error: BaseException) -> str | None:
    """The class of what holds itself, where the functions that have run too deep were going over it; else None.

    Whoever goes over such a value has it, and what is in it, at each of the last steps.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in frames[:-_LAST_STEPS:-1]:
        for value in frame.f_locals.values():
            if _may_hold(value):
                found = _holds_itself(value)
                if found is not None:
                    return type(found).__name__
    return None


_LAST_STEPS = 40
_MOST = 10_000  # values that are looked at
_HOLDERS = (list, tuple, dict)


def _holds_itself(first: Any) -> Any:
    """The object, dict or list that a value leads to which leads to itself; None where there is none."""
    around: set[int] = set()  # what the value that is looked at is in
    done: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(first, False)]  # whether all that is in it has been looked at
    while waiting and len(done) < _MOST:
        value, is_over = waiting.pop()
        if is_over:
            around.discard(id(value))
            done.add(id(value))
        elif id(value) in around:
            path = [each for each, is_around in waiting if is_around]
            first = next(i for i, each in enumerate(path) if each is value)
            return min(path[first:], key=_rank)
        elif id(value) not in done:
            around.add(id(value))
            waiting += [(value, True), *[(each, False) for each in _inside(value) if _may_hold(each)]]
    return None


def _rank(value: Any) -> int:
    """What to name of a circle, whose values any step may be at: an object before a dict, that before a list."""
    return next((rank for rank, kind in enumerate((dict, list, tuple), 1) if isinstance(value, kind)), 0)


def _may_hold(value: Any) -> bool:
    is_ours = type(value).__module__.partition(".")[0] in ("graphwright", "torch")
    return isinstance(value, _HOLDERS) or (not is_ours and is_plain_object(value))


def _inside(value: Any) -> list[Any]:
    held = value if isinstance(value, _HOLDERS) else vars(value)
    return [*(held.values() if isinstance(held, dict) else held)]

"""What operations gave in earlier passes of a capture, given again.

A capture that starts again does the same on the same stand-ins up to where the last pass ended. To run an operation on
fake tensors takes most of the time of recording it; what it gave is remembered by the identity of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

# Not what stands for them while a program is captured.
IS_GRAD, IS_INFERENCE_MODE = torch.is_grad_enabled, torch.is_inference_mode_enabled

_IS_INFERENCE, _VERSION = torch.Tensor.is_inference, torch.Tensor._version.__get__  # type: ignore[attr-defined]

PLAIN = frozenset({
    int, float, bool, complex, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format,
})  # fmt: skip


class Replays:
    """The results of the operations of a capture on fake tensors, in the order in which each was asked for.

    Once an operation has written to a tensor, or what is not torch's was called, nothing is given again: `is_spoiled`
    says so, and the stand-ins must be made anew for the next pass.
    """

    def __init__(self) -> None:
        self.is_spoiled = False
        self._results: dict[Any, list[Any]] = {}
        self._keep: list[Any] = []  # arguments are known by id
        self._counts: dict[Any, int] = {}

    def start(self) -> None:
        """Begin a pass."""
        self._counts = {}

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]
    ) -> Any:
        """Give what `call(function, args, kwargs)` gave in an earlier pass, or call it."""
        self.is_spoiled |= isinstance(function, nn.Module) and not type(function).__module__.startswith("torch.nn.")
        key = None if self.is_spoiled else _key(function, args, kwargs)
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        known = self._results.setdefault(key, [])
        if key is not None and count < len(known):
            return known[count]
        tensors = tensors_in(args, kwargs)
        with torch._C.DisableTorchFunction():
            if any(map(_IS_INFERENCE, tensors)):
                tensors = [tensor for tensor in tensors if not tensor.is_inference()]
            before = [*map(_VERSION, tensors)]  # how often each was written to
        result = call(function, args, kwargs)
        with torch._C.DisableTorchFunction():
            is_written = before != [*map(_VERSION, tensors)]
        if is_written or _writes(function):
            self.is_spoiled = True
        elif key is not None and count == len(known):
            known.append(result)
            self._keep.append((function, args, kwargs))
        return result


def _writes(function: Callable[..., Any]) -> bool:
    """Tell whether an operation changes what kind of tensor its argument is, as no version counter does."""
    name = getattr(function, "__name__", "")
    return function is setattr or (name.endswith("_") and not name.endswith("__") and name not in ("and_", "or_"))


class _Unknown(Exception):
    """A value that cannot be part of a key."""


def _key(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        key = (
            function, _all_frozen(args), _all_frozen(kwargs.items()) if kwargs else (), IS_GRAD(),
            IS_INFERENCE_MODE(), torch._C._is_any_autocast_enabled(),
        )  # fmt: skip
        hash(key)
    except (_Unknown, TypeError):
        return None
    return key


def _all_frozen(values: Iterable[Any]) -> tuple[Any, ...]:
    """What tells values from others; those that operations mostly take without a further call."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            found.append((kind, value))
        elif isinstance(value, torch.Tensor):
            found.append(("tensor", id(value)))
        else:
            found.append(_frozen(value))
    return tuple(found)


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return kind, value
    if isinstance(value, torch.Tensor):
        return "tensor", id(value)
    if isinstance(value, tuple | list):
        return kind, _all_frozen(value)
    if kind is dict:
        return kind, tuple(value), _all_frozen(value.values())
    if kind is slice:
        return kind, _frozen((value.start, value.stop, value.step))
    raise _Unknown


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    found, waiting = [], [*values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
    return found

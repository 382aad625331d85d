"""Whether code for given sizes may answer a call: inputs like the example's, no gradients, nothing that watches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Sizes", "facts_of", "fits", "is_watched"]

_ATOMS = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout)
_len_dispatch, _len_function = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms, _tracing_state = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
_is_autocast = torch._C._is_any_autocast_enabled


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a tensor has to be like: exactly a tensor, of this shape, dtype and device, strided."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def facts_of(value: Any) -> Any:
    """What an input has to be like to be as this one: `Sizes` of tensors, atoms and containers as they are.

    Raises TypeError for what no facts say, such as an object of the user's own.

    >>> facts_of([torch.ones(2), None])
    [Sizes(shape=(2,), dtype=torch.float32, device=device(type='cpu')), None]
    """
    if isinstance(value, Tensor):
        if type(value) not in (Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise TypeError(f"an input is a {type(value).__name__} of layout {value.layout}")
        return Sizes(tuple(value.shape), value.dtype, value.device)
    if type(value) in (tuple, list):
        return type(value)(map(facts_of, value))
    if type(value) is dict and all(type(key) in _ATOMS for key in value):
        return {key: facts_of(item) for key, item in value.items()}
    if type(value) in _ATOMS:
        return value
    raise TypeError(f"an input is a {type(value).__name__}")


def fits(values: Sequence[Any], facts: Sequence[Any]) -> bool:
    """Tell whether inputs are like their facts.

    >>> x = torch.ones(2)
    >>> fits([x, 1], facts_of([x, 1])), fits([x, True], facts_of([x, 1])), fits([x[:1], 1], facts_of([x, 1]))
    (True, False, False)
    """
    for value, fact in zip(values, facts, strict=True):
        if type(fact) is Sizes:
            if (
                (type(value) is not Tensor and type(value) is not torch.nn.Parameter)
                or value.shape != fact.shape
                or value.dtype is not fact.dtype
                or value.device != fact.device
                or value.layout is not torch.strided
                or (value.requires_grad and torch.is_grad_enabled())
            ):
                return False
        elif type(value) is not type(fact):
            return False
        elif type(fact) in (tuple, list):
            if len(value) != len(fact) or not fits(value, fact):
                return False
        elif type(fact) is dict:
            if list(value) != list(fact) or not fits([*value.values()], [*fact.values()]):
                return False
        elif type(fact) is float:
            if value.hex() != fact.hex():  # 0.0 and -0.0 are equal
                return False
        elif value is not fact and value != fact:
            return False
    return True


def is_watched() -> bool:
    """Tell whether something looks at each operation of this thread, or changes it: a mode, a transform, autocast."""
    return (
        _is_autocast()  # of any device
        or _len_function() > 0
        or _len_dispatch() > 0
        or _transforms() is not None
        or _tracing_state() is not None
    )

"""Python's functions of numbers that only a run knows, which would otherwise be asked for the example's.

A whole number is a SymInt of torch's; every other number is a tensor without dimensions: float64 or bool.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

_RATIOS = WeakTensorKeyDictionary()  # of whole numbers: what is rounded of them is one of which more is known

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_symbolic(value: Any) -> bool:
    """Tell whether a value is a number that only a run knows.

    >>> is_symbolic(3), is_symbolic(torch.ones(()))
    (False, False)
    """
    return isinstance(value, _SYMBOLIC)


def as_number_tensor(value: Any) -> torch.Tensor:
    """A number as a tensor without dimensions: of int64, float64 or bool.

    >>> as_number_tensor(2), as_number_tensor(0.5).dtype, as_number_tensor(True).dtype
    (tensor(2), torch.float64, torch.bool)
    """
    if isinstance(value, torch.Tensor):
        return value.reshape(()) if value.dim() else value
    if isinstance(value, bool | torch.SymBool):
        if isinstance(value, bool):
            return torch.full((), value, dtype=torch.bool)
        return torch.scalar_tensor(torch.sym_ite(value, 1, 0), dtype=torch.int64) != 0
    dtype = torch.int64 if isinstance(value, int | torch.SymInt) else torch.float64
    return torch.scalar_tensor(value, dtype=dtype)


def as_truth(value: Any) -> torch.Tensor:
    """Whether `if` takes a number or a tensor of one element for true, as a tensor of bool without dimensions.

    >>> as_truth(torch.tensor([2.0])), as_truth(0)
    (tensor(True), tensor(False))
    """
    tensor = as_number_tensor(value)
    return tensor if tensor.dtype == torch.bool else tensor != 0


def call_on_numbers(target: Any, args: tuple[Any, ...]) -> Any:
    """Call a function of Python's on numbers that only a run knows; NotImplemented for what is none of these.

    >>> call_on_numbers(float, (torch.tensor([2]),))
    tensor(2., dtype=torch.float64)
    >>> call_on_numbers(len, ([],))
    NotImplemented
    """
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    known = _FUNCTIONS.get(target) if callable(target) else None
    if known is not None and (tensors or any(map(is_symbolic, _flat(args)))):
        return known(*args)
    if target in _MATH and (tensors or any(map(is_symbolic, args))):
        function = getattr(torch, _MATH[target])
        return function(*[as_number_tensor(arg).to(torch.float64) for arg in args])
    return NotImplemented


def _flat(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], list | tuple) else args


def _integer(value: Any = 0, *_: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.reshape(()).to(torch.int64).item()
    return value if isinstance(value, torch.SymInt) else torch.sym_int(value)


def _real(value: Any) -> Any:
    return as_number_tensor(value).to(torch.float64)


def _rounded(function: str, value: Any) -> Any:
    """`math.ceil(value)` and its like: a whole number."""
    if isinstance(value, torch.SymInt):
        return value
    if isinstance(value, torch.Tensor) and value in _RATIOS and function in ("ceil", "floor"):
        whole, by = _RATIOS[value]
        return -(-whole // by) if function == "ceil" else whole // by
    return getattr(torch, function)(as_number_tensor(value)).to(torch.int64).item()


def _round(value: Any, digits: int | None = None) -> Any:
    """`round(value)`, a whole number, or a number of so many digits."""
    if digits is None:
        return _rounded("round", value)
    return torch.round(as_number_tensor(value).to(torch.float64), decimals=digits)


def _extreme(smallest: bool, *values: Any) -> Any:
    given = list(_flat(values))
    if any(isinstance(value, torch.Tensor | torch.SymFloat) for value in given):
        pick = torch.minimum if smallest else torch.maximum
        return functools.reduce(pick, [as_number_tensor(value) for value in given])
    return functools.reduce(torch.sym_min if smallest else torch.sym_max, given)


def _negated(value: Any) -> Any:
    return torch.sym_not(value) if isinstance(value, torch.SymBool) else ~as_truth(value)


def _divided(a: Any, b: Any) -> Any:
    """`a / b`, of two whole numbers a real one."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a / b
    value = as_number_tensor(a).to(torch.float64) / as_number_tensor(b).to(torch.float64)
    if isinstance(b, int) and b > 0:
        _RATIOS[value] = (a, b)
    return value


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int | torch.SymInt) and isinstance(b, int) and b >= 0:
        return functools.reduce(operator.mul, [a] * b, 1)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a**b
    return torch.pow(as_number_tensor(a).to(torch.float64), as_number_tensor(b).to(torch.float64))


def _tensor(items: Any, *_: Any, **__: Any) -> Any:
    return (
        torch.stack([as_number_tensor(item) for item in items]) if isinstance(items, list | tuple) else NotImplemented
    )


def _truth(value: Any) -> Any:
    return value if isinstance(value, torch.SymBool) else as_truth(value)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    builtins.int: _integer,
    builtins.float: _real,
    builtins.bool: _truth,
    operator.truth: _truth,
    operator.not_: _negated,
    builtins.min: functools.partial(_extreme, True),
    builtins.max: functools.partial(_extreme, False),
    math.ceil: functools.partial(_rounded, "ceil"),
    math.floor: functools.partial(_rounded, "floor"),
    math.trunc: functools.partial(_rounded, "trunc"),
    builtins.round: _round,
    operator.truediv: _divided,
    operator.pow: _power,
}
_MATH: dict[Any, str] = {
    math.sqrt: "sqrt",
    math.log: "log",
    math.log2: "log2",
    math.log10: "log10",
    math.exp: "exp",
    math.sin: "sin",
    math.cos: "cos",
    math.tanh: "tanh",
    math.pow: "pow",
}

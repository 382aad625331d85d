"""Calls of autograd functions: `MyFunction.apply(x)`, as a value and on the stack.

`apply` is written in Python up to torch 2.14, and runs in a frame of its own. Since torch 2.15 it is written in C and
leaves none: there the `forward` of a known autograd function is what tells of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import BuiltinMethodType, CodeType, FrameType, MethodType
from typing import Any

import torch

from graphwright.source import by_code

_FUNCTION: Any = torch.autograd.Function
_apply: Any = getattr(_FUNCTION.apply, "__func__", None)
APPLY: CodeType | None = getattr(_apply, "__code__", None)


def is_apply(function: Callable[..., Any]) -> bool:
    """Tell whether a function is the `apply` of an autograd function, and none of the program's own."""
    owner: Any = getattr(function, "__self__", None)
    if type(function) is MethodType:
        return function.__func__ is _apply and isinstance(owner, type)
    is_named_so = type(function) is BuiltinMethodType and function.__name__ == "apply"
    return is_named_so and issubclass(type(owner), type) and issubclass(owner, _FUNCTION)


def applied_by(frame: FrameType) -> Any:
    """The autograd function of whose call a frame tells; None for other frames."""
    code = frame.f_code
    if APPLY is not None:
        return frame.f_locals.get("cls") if code is APPLY else None
    return _whose_forward(code)


@by_code
def _whose_forward(code: CodeType) -> Any:
    """The autograd function whose forward a code object is; None for others."""
    return next((kind for kind in _all_functions(_FUNCTION) if _forward_code(kind) is code), None)


def caller_of(frame: FrameType) -> FrameType | None:
    """Where to look from for the caller of a call of torch's that a frame tells of."""
    return frame if APPLY is not None or applied_by(frame) is None else frame.f_back


def _all_functions(kind: type[Any]) -> Iterator[Any]:
    for each in type.__subclasses__(kind):
        yield each
        yield from _all_functions(each)


def _forward_code(kind: type) -> CodeType | None:
    forward = vars(kind).get("forward")
    return getattr(getattr(forward, "__func__", forward), "__code__", None)

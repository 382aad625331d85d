"""How many torch calls of a program are nodes of its graph, and how many stay inside what is not looked into.

What counts is what a `TorchFunctionMode` sees in eager, outside leaf modules: all but reads of what kind of tensor it
is (shape, dtype, device, ...), and what Python itself asks (`bool(t)`, `len(t)`), which are answered rather than
recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from graphwright.capture.proxies.calls_as_written import KIND_METHODS, property_name, tensor_method_name
from graphwright.values import leaves

_ANSWERED = KIND_METHODS | {
    *("size", "dim", "ndimension", "numel", "nelement"),
    *("__len__", "__bool__", "__int__", "__index__", "__float__", "__complex__", "__format__", "__repr__", "__hash__"),
}


class CountingMode(TorchFunctionMode):
    """Counts the operations of torch that run while it is entered, but for those inside leaf modules.

    >>> with CountingMode(lambda module: False) as mode:
    ...     x = torch.ones(2) + 1
    ...     rows = len(x)
    >>> mode.count
    2
    """

    def __init__(self, is_leaf: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self.count = 0
        self._is_leaf = is_leaf
        self._outside: FrameType | None = None

    def __enter__(self) -> CountingMode:
        self._outside = sys._getframe(1)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._outside = None
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        with torch._C.DisableTorchFunction():
            result = function(*args, **(kwargs or {}))
            if is_operation(function, args, kwargs, result) and not self._is_inside_leaf():
                self.count += 1
        return result

    def _is_inside_leaf(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self._outside:
            if frame.f_code is _CALL and self._is_leaf(frame.f_locals["self"]):
                return True
            frame = frame.f_back
        return False


_CALL = nn.Module._call_impl.__code__


def is_operation(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None, result: Any) -> bool:
    """Tell whether a torch call with this result counts."""
    if property_name(function) is not None:
        return len(args) > 1 or isinstance(result, torch.Tensor)
    if tensor_method_name(function) in _ANSWERED:
        return False
    return any(isinstance(value, torch.Tensor) for value in leaves((args, kwargs, result)))

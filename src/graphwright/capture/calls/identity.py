"""Which values of a program are one: `a is b` and `a in values`, where only a run knows.

What branches and loops give, and `contiguous` or `to`, may be the very tensor that they were given, and two inputs may
be one tensor.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.uncertain import asked_for_class
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ops import may_share_memory

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["is_member", "is_same"]


def is_same(left: Any, right: Any) -> Any:
    """`left is right`: a bool of the program where two tensors may be one when it runs.

    Raises what ends the capture where the class of a value matters that is a number on some ways.
    """
    if left is right:
        return True
    for value in left, right:
        if type(value) is TensorProxy and value.is_mixed:
            raise asked_for_class(value)
    if _is_bool_of_run(left) or _is_bool_of_run(right):  # there is one True and one False
        return left == right if isinstance(left, bool) and isinstance(right, bool) else False
    recorder = _recorder_of_tensors(left, right)
    if recorder is None or not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        return False
    nodes = recorder.argument(left), recorder.argument(right)
    if not may_share_memory(*nodes, lambda node: None):
        return False
    node = recorder.node("call_function", operator.is_, nodes, {}, "is_same")
    return recorder.numbers.of_node(node, UNKNOWN, bool)


def _is_bool_of_run(value: Any) -> bool:
    return is_symbolic(value) and isinstance(value, bool)


def is_member(item: Any, values: list[Any] | tuple[Any, ...]) -> Any:
    """`item in values`, where one of them is a tensor of the program; NotImplemented where that is to be done else."""
    recorder = _recorder_of_tensors(item, *values)
    if recorder is None or not all(_is_plain(value) for value in (item, *values)):
        return NotImplemented
    arguments = recorder.argument(values), recorder.argument(item)
    node = recorder.node("call_function", operator.contains, arguments, {}, "contains")
    return recorder.numbers.of_node(node, UNKNOWN, bool)


def _recorder_of_tensors(*values: Any) -> TypedCapture | None:
    """The recorder of those that are tensors of the program; None where there is none."""
    return next((value.recorder for value in values if type(value) is TensorProxy), None)


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor | int | float | bool | str | None) or is_symbolic(value)

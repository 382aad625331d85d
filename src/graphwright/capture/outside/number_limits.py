"""`torch.finfo(x.dtype).min`: numbers that follow from the dtype of a tensor, and are read at each call.

`torch.finfo` is a class that takes dtypes alone, and a dtype does not tell of which tensor it is: a stand-in hears of
the call, and the place of the call tells (`calls/dtypes.py`). What the program does with the result, other than to read
numbers of it, makes the dtype one that was asked for.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.dtype_questions import LIMITS
from graphwright.capture.calls.result_dtypes import is_fixed
from graphwright.capture.outside.overheard import Heard, overhear_class
from graphwright.capture.state.symbols import as_number
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import uses_of

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node


@functools.cache
def watch_number_limits() -> None:
    """Have it heard where a program asks for the limits of a dtype's numbers."""
    overhear_class(torch, "finfo", _limits, {})


def _limits(call: Heard) -> Any:
    """What `torch.finfo` gives: with numbers of the program, where it is for the dtype of a tensor."""
    limits, recorder, kind, frame = call.original(), call.recorder.typed, call.function, call.frame
    uses = uses_of(frame.f_code, frame.f_lasti)
    if recorder is None or not all(use.asked and use.asked.name in LIMITS and not use.asked.other for use in uses):
        return limits
    keyword, dtype = (None, call.args[0]) if call.args else next(iter(call.kwargs.items()), ("", None))
    tensor = recorder.dtypes.tensor_given(dtype, frame, 0, keyword)
    if tensor is None or (isinstance(tensor, TensorProxy) and is_fixed(recorder, tensor.node_of())):
        return limits
    known = recorder.region.attributes
    key = kind, id(tensor)
    if key not in known:
        known[key] = recorder.node("call_function", kind, (recorder.dtypes.node_of(tensor),), {}, kind.__name__)
    return _Limits(recorder, known[key], limits)


class _Limits:
    """What `torch.finfo` gives for a dtype that only a call has."""

    def __init__(self, recorder: TypedCapture, node: Node, limits: Any) -> None:
        self._recorder, self._node, self._limits = recorder, node, limits

    def __getattr__(self, name: str) -> Any:
        recorder, node, known = self._recorder, self._node, self._recorder.region.attributes
        key = name, id(node)
        if key not in known:
            known[key] = recorder.node("call_function", getattr, (node, name), {}, name)
        return as_number(recorder.numbers.input_symbol(known[key], getattr(self._limits, name)))

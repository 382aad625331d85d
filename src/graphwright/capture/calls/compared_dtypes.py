"""Dtypes of inputs and parameters that a program compares: each call checks how they compare, and no more of them.

`if x.dtype != self.weight.dtype: x = x.to(self.weight.dtype)` is right for all dtypes with the same answer. What a
function does with a dtype where the answer is another one is not reached.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.facts import dtype_of, take_dtype, whole_frame
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.runtime import expect
from graphwright.source import Use, is_skipped

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not,
}  # fmt: skip


class ComparedDtypes:
    """The comparisons of dtypes that the program of one capture makes."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        # Those of which one side is in a variable, by frame and place: whose dtypes these are, and where it was read.
        self._pairs: dict[tuple[int, tuple[int, int]], tuple[tuple[torch.Tensor, torch.Tensor], str]] = {}

    def without_compared(
        self, uses: tuple[Use, ...], tensor: torch.Tensor, frame: FrameType | None, at: str
    ) -> tuple[Use, ...]:
        """What else a function does with the dtype of a tensor than to compare it, and reaches."""
        answers = {use: self._answer(use, tensor, frame, at) for use in uses if use.asked is not None}
        return tuple([use for use in uses if answers.get(use) is None and not _is_skipped(use, answers, frame)])

    def settle(self) -> None:
        """The program has ended: with what else it compared a variable, nobody knows."""
        for key in [*self._pairs]:
            self._miss(key)

    def _answer(self, use: Use, tensor: torch.Tensor, frame: FrameType | None, at: str) -> bool | None:
        """Have a call check how the dtypes of two tensors compare, inputs or of modules, where that is what is asked.

        It is written as `x.dtype != self.weight.dtype`; one of the two may be in a variable. Gives the answer; None for
        other questions.
        """
        compare = None if use.asked is None or use.may_recur else _COMPARES.get(use.asked.name)
        if use.asked is None or use.asked.other is None or compare is None or frame is None:
            return None
        key = id(whole_frame(frame)), use.asked.place
        if isinstance(use.asked.other, ast.Name):
            pair = self._pairs[key][0] if key in self._pairs else ()
            if not any(each is tensor for each in pair):
                self._miss(key)
                return None
            del self._pairs[key]
            return bool(compare(*map(dtype_of, pair)))
        other = _tensor_of(use.asked.other, frame)
        if other is None or not all(map(self._is_at_hand, (tensor, other))):
            return None
        if use.may_wait:  # this one is in a variable
            self._miss(key)
            self._pairs[key] = (tensor, other), at
        recorder = self._recorder
        sides = sorted((tensor, other), key=lambda each: not isinstance(each, TensorProxy))
        fact, answer = ("compared", compare, *map(id, sides)), bool(compare(dtype_of(tensor), dtype_of(other)))
        if not any(fact in region.attributes for region in recorder.region.all()):
            name = "dtypes_differ" if "Not" in use.asked.name else "dtypes_are_equal"
            dtypes = tuple([recorder.dtypes.node_of(each) for each in sides])
            node = recorder.node("call_function", compare, dtypes, {}, name)
            recorder.region.attributes[fact] = recorder.node("call_function", expect, (node, answer, at), {}, "guard")
        return answer

    def _miss(self, key: tuple[int, tuple[int, int]]) -> None:
        """A variable was compared with the dtype of something else than was expected, or nobody knows with what."""
        pair, at = self._pairs.pop(key, ((), ""))
        for each in pair:
            take_dtype(self._recorder, each, None, at)

    def _is_at_hand(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is an input, or one of the modules."""
        is_input = isinstance(tensor, TensorProxy) and "given" in vars(tensor)
        return is_input or self._recorder.tensors.path(tensor) is not None


def _tensor_of(read: ast.expr, frame: FrameType) -> torch.Tensor | None:
    """The tensor whose dtype an expression reads, by the variables of a frame and what modules hold; nothing runs."""
    if not isinstance(read, ast.Attribute) or read.attr != "dtype":
        return None
    names: list[str] = []
    owner = read.value
    while isinstance(owner, ast.Attribute):
        names.append(owner.attr)
        owner = owner.value
    value = frame.f_locals.get(owner.id) if isinstance(owner, ast.Name) else None
    for name in reversed(names):
        state = value.__dict__ if isinstance(value, nn.Module) else {}
        tables = [state, *[state.get(table, {}) for table in ("_parameters", "_buffers", "_modules")]]
        value = next((table[name] for table in tables if name in table), None)
    return value if isinstance(value, torch.Tensor) else None


def _is_skipped(use: Use, answers: dict[Use, bool | None], frame: FrameType | None) -> bool:
    """Tell whether what a function does with a dtype is not reached, by the answers that it gets."""
    if use.call is None or frame is None:
        return False
    return any(
        answer is not None
        and each.asked
        and is_skipped(frame.f_code, frame.f_lineno, use.call, each.asked.place, answer)
        for each, answer in answers.items()
    )

"""What converted functions do with truths: conditions, `and`, `or`, `not`, the ternary and chained comparisons."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from graphwright.capture.calls.identity import is_same
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy, object_recorder
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.training_flag import TrainingFlag
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy

__all__ = ["Deciding", "held", "recorder_of"]

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt,
    "GtE": operator.ge, "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


def recorder_of(value: Any) -> Any:
    """The recorder of a value that only a run has; None for plain values."""
    if type(value) is TensorProxy:
        return value.recorder
    if type(value) is ObjectProxy:
        return object_recorder(value)
    if isinstance(value, Proxy):
        return None if isinstance(value, TrainingFlag) else value.tracer._recorder
    return value.node.recorder if is_symbolic(value) else None


def held(value: Any) -> Any:
    """A value whose truth is asked for; of a tensor that the program has, only a run knows it."""
    if is_growing(value):
        return value.recorder.numbers.truth(value)
    recorder = running() if isinstance(value, torch.Tensor) and type(value) is not TensorProxy else None
    return value if recorder is None else recorder.value(value)


class _Parts:
    """What a condition is made of, as far as it was evaluated."""

    def __init__(self, recorder: Any, left: Any) -> None:
        self._recorder, self.found = recorder, [left]

    def first(self) -> Any:
        return self._recorder.numbers.loose_truth(self.found[0])

    def second(self, value: Any) -> Any:
        self.found.append(value)
        return self._recorder.numbers.loose_truth(value)


class Deciding:
    """Conditions: Python's way for plain values, the recorder's for those that only a run has."""

    def branch(
        self,
        test: Any,
        then: Callable[[], Any],
        other: Callable[[], Any],
        names: tuple[str, ...] | None = None,
        alive: tuple[str, ...] | None = None,
        unshared: tuple[str, ...] = (),
    ) -> Any:
        """`if test: ... else: ...` and `then if test else other`, the sides as functions.

        Those of a statement assign the variables `names` around them; only those `alive`, all by default, are of use
        afterwards. The lists and dicts in those `unshared` are not.
        """
        test = held(test)
        recorder = recorder_of(test)
        if recorder is None:
            return then() if test else other()
        return recorder.questions.branch(test, then, other, names, alive, unshared)

    def and_then(self, left: Any, right: Callable[[], Any]) -> Any:
        """`left and right`."""
        left = held(left)
        return left and right() if recorder_of(left) is None else self.branch(left, right, lambda: left)

    def or_else(self, left: Any, right: Callable[[], Any]) -> Any:
        """`left or right`."""
        left = held(left)
        return left or right() if recorder_of(left) is None else self.branch(left, lambda: left, right)

    def both(self, left: Any, right: Callable[[], Any]) -> Any:
        """`left and right` where only the truth of the result counts."""
        recorder = recorder_of(left)
        if recorder is None:
            return left and right()
        parts = _Parts(recorder, left)
        result = self.branch(left, lambda: parts.second(right()), lambda: parts.first())
        recorder.questions.knowledge.conditions.note_parts(result, parts.found, True)
        return result

    def either(self, left: Any, right: Callable[[], Any]) -> Any:
        """`left or right` where only the truth of the result counts."""
        recorder = recorder_of(left)
        if recorder is None:
            return left or right()
        parts = _Parts(recorder, left)
        result = self.branch(left, lambda: parts.first(), lambda: parts.second(right()))
        recorder.questions.knowledge.conditions.note_parts(result, parts.found, False)
        return result

    def negation(self, value: Any) -> Any:
        """`not value`."""
        value = held(value)
        recorder = recorder_of(value)
        return not value if recorder is None else recorder.numbers.negation(value)

    def is_none(self, value: Any) -> Any:
        """`value is None`."""
        if type(value) is TensorProxy and value.optional is not None:
            return value.recorder.numbers.is_none(value)
        return value is None

    def is_given(self, value: Any) -> Any:
        """`value is not None`."""
        return self.negation(self.is_none(value))

    def same(self, left: Any, right: Any) -> Any:
        """`left is right`."""
        return is_same(left, right)

    def compare(self, operators: str, left: Any, *rights: Callable[[], Any]) -> Any:
        """`left < right < ...`."""
        first, _, more = operators.partition(" ")
        right = rights[0]()
        recorder = recorder_of(left) or recorder_of(right)
        if first == "Is" or first == "IsNot":
            result = self.same(left, right) if first == "Is" else self.negation(self.same(left, right))
        else:
            compare = _COMPARISONS[first]
            result = compare(left, right) if recorder is None else recorder.numbers.compare(compare, left, right)
        if not more:
            return result
        return self.and_then(result, lambda: self.compare(more, right, *rights[1:]))

    def truth(self, value: Any) -> Any:
        """`bool(value)`."""
        value = held(value)
        recorder = recorder_of(value)
        return bool(value) if recorder is None else recorder.numbers.truth(value)

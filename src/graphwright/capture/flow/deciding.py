"""What converted functions do with truths: conditions, `and`, `or`, `not`, the ternary and chained comparisons.

Python's way for plain values, the recorder's for those that only a run has.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.identity import is_same
from graphwright.capture.conversion.conversion import is_standard
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy, object_recorder
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.training_flag import TrainingFlag
from graphwright.capture.proxies.uncertain import is_input
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import BoolProxy, FloatProxy, IntProxy, is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import is_internal

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import Condition

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt,
    "GtE": operator.ge, "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


# These two are asked about nearly every value of a converted function: the common kinds are answered by one look-up.
_PLAIN = frozenset({bool, int, float, str, type(None)})
_NUMBERS = frozenset({BoolProxy, IntProxy, FloatProxy})
_ARE_HELD = frozenset({*_PLAIN, *_NUMBERS, TensorProxy})
_TAKEN = {  # what Python takes from an object's own methods
    "__bool__": (bool, BoolProxy), "__len__": (int, IntProxy), "__int__": (int, IntProxy),
    "__float__": (float, FloatProxy),
}  # fmt: skip


def recorder_of(value: Any) -> Any:
    """The recorder of a value that only a run has; None for plain values."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    if kind is TensorProxy:
        return value.recorder
    if kind in _NUMBERS:
        return value.node.recorder
    if kind is ObjectProxy:
        return object_recorder(value)
    if isinstance(value, Proxy):
        return None if isinstance(value, TrainingFlag) else value.tracer._recorder
    return value.node.recorder if is_symbolic(value) else None


def held(value: Any) -> Any:
    """A value whose truth is asked for; of a tensor that the program has, only a run knows it."""
    if type(value) in _ARE_HELD:
        return value
    if is_growing(value):
        return value.recorder.numbers.truth(value)
    recorder = running() if isinstance(value, torch.Tensor) and type(value) is not TensorProxy else None
    if recorder is not None:
        return recorder.value(value)
    return told_by(value, "__bool__", "__len__")


def told_by(value: Any, *names: str) -> Any:
    """What an object tells by the first of these methods that it has, if that is the program's; else the object."""
    own = _own_method(type(value), *names)
    recorder = None if own is None else running()
    if own is None or recorder is None:
        return value
    found = recorder.questions.staging.converted(own)(value)
    return found if type(found) in _TAKEN[own.__name__] else value  # which Python refuses


def _own_method(kind: type, *names: str) -> FunctionType | None:
    """The first of these methods that a class has, if it is the program's."""
    method = next(filter(None, [getattr(kind, name, None) for name in names]), None)
    if type(method) is not FunctionType or is_internal(method.__code__.co_filename) or is_standard(method.__code__):
        return None
    return method


def _has_own_truth(value: Any) -> bool:
    return _own_method(type(value), "__bool__", "__len__") is not None


class _Parts:
    """What a condition is made of, as far as it was evaluated."""

    def __init__(self, recorder: Capture, left: Condition) -> None:
        self._recorder, self.found = recorder, [left]

    def first(self) -> Any:
        return self._recorder.numbers.loose_truth(self.found[0])

    def second(self, value: Condition) -> Any:
        self.found.append(value)
        return self._recorder.numbers.loose_truth(value)


def branch(
    test: Condition,
    then: Callable[[], Any],
    other: Callable[[], Any],
    names: tuple[str, ...] | None = None,
    alive: tuple[str, ...] | None = None,
    unshared: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
) -> Any:
    """`if test: ... else: ...` and `then if test else other`, the sides as functions.

    Those of a statement assign the variables `names` around them; only those `alive`, by default all but those that are
    `private` to it, are of use afterwards. The lists and dicts in those `unshared` are not.
    """
    if type(test) in _PLAIN:
        return then() if test else other()
    test = held(test)
    recorder = recorder_of(test)
    if recorder is None:
        return then() if test else other()
    return recorder.questions.branch(test, then, other, names, alive, unshared, private)


def and_then(left: Condition, right: Callable[[], Any]) -> Any:
    """`left and right`."""
    test = held(left)
    value = left if _has_own_truth(left) else test
    return (right() if test else value) if recorder_of(test) is None else branch(test, right, lambda: value)


def or_else(left: Condition, right: Callable[[], Any]) -> Any:
    """`left or right`."""
    test = held(left)
    value = left if _has_own_truth(left) else test
    return (value if test else right()) if recorder_of(test) is None else branch(test, lambda: value, right)


def both(left: Condition, right: Callable[[], Any]) -> Any:
    """`left and right` where only the truth of the result counts."""
    return _joined(left, right, True)


def either(left: Condition, right: Callable[[], Any]) -> Any:
    """`left or right` where only the truth of the result counts."""
    return _joined(left, right, False)


def _joined(left: Condition, right: Callable[[], Any], are_both: bool) -> Any:
    if type(left) not in _ARE_HELD and _has_own_truth(left):
        left = held(left)
    recorder = recorder_of(left)
    if recorder is None:
        return (left and right()) if are_both else (left or right())
    parts = _Parts(recorder, left)
    sides = lambda: parts.second(right()), lambda: parts.first()
    result = branch(left, *(sides if are_both else sides[::-1]))
    recorder.questions.knowledge.conditions.note_parts(result, parts.found, are_both)
    return result


def negation(value: Condition) -> Any:
    """`not value`."""
    value = held(value)
    recorder = recorder_of(value)
    return not value if recorder is None else recorder.numbers.negation(value)


def is_none(value: Any) -> Any:
    """`value is None`."""
    if type(value) is TensorProxy and value.optional is not None:
        return value.recorder.numbers.is_none(value)
    recorder = running() if is_input(value) else None
    if recorder is not None:
        recorder.ledger.ask_of_input(value, "none")
    return value is None


def is_given(value: Any) -> Any:
    """`value is not None`."""
    return negation(is_none(value))


def same(left: Any, right: Any) -> Any:
    """`left is right`."""
    recorder = running()
    if recorder is not None and recorder.choices.open:
        recorder.choices.ask(left, right)
    return is_same(left, right)


def compare(operators: str, left: Any, *rights: Callable[[], Any]) -> Any:
    """`left < right < ...`."""
    first, _, more = operators.partition(" ")
    right = rights[0]()
    recorder = recorder_of(left) or recorder_of(right)
    if first == "Is" or first == "IsNot":
        result = same(left, right) if first == "Is" else negation(same(left, right))
    else:
        comparison = _COMPARISONS[first]
        result = comparison(left, right) if recorder is None else recorder.numbers.compare(comparison, left, right)
    if not more:
        return result
    return and_then(result, lambda: compare(more, right, *rights[1:]))


def truth(value: Condition) -> Any:
    """`bool(value)`."""
    value = held(value)
    recorder = recorder_of(value)
    return bool(value) if recorder is None else recorder.numbers.truth(value)

"""Which values of the two sides of a branch become one, and what that one is."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

import torch

from graphwright.capture.outside import ObjectProxy, object_node
from graphwright.capture.symbols import UNKNOWN, Symbol, as_number, is_symbolic, symbol_of
from graphwright.capture.tensor_proxy import TensorProxy
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["Joining", "Unlike", "Verdict"]

# Two values become a value of the branch; or the first does for both; or it depends on what they hold.
Verdict = Literal["join", "same", "look inside"]


class Unlike(Exception):
    """Two values cannot be joined."""


class Joining:
    """Joins values of `trace`: tensors of one dtype and rank, numbers of one kind."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def verdict(self, a: Any, b: Any, may_be_none: bool) -> Verdict:
        """Say what becomes of two values. Raises Unlike.

        A tensor and None make a tensor that may be None, where that is allowed: whoever reads it is then converted.
        """
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            x, y = self._recorder.example(a), self._recorder.example(b)
            if (x.dtype, x.dim(), x.device) != (y.dtype, y.dim(), y.device):
                raise Unlike(f"{x.dtype} of {x.dim()} dimensions on one side, {y.dtype} of {y.dim()} on the other")
            return "join"
        if type(a) is ObjectProxy or type(b) is ObjectProxy:
            raise Unlike("objects outside of torch")
        if may_be_none and (a is None or b is None) and (isinstance(a, TensorProxy) or isinstance(b, TensorProxy)):
            return "join"
        kind_a, kind_b = _number_kind(a), _number_kind(b)
        if kind_a is None or kind_b is None:
            return "look inside"
        if kind_a is not kind_b:
            raise Unlike(f"{kind_a.__name__} on one side, {kind_b.__name__} on the other")
        if not is_symbolic(a) and not is_symbolic(b):
            return "same" if a == b else "join"
        return "same" if symbol_of(a) is symbol_of(b) else "join"

    def node_of(self, value: Any) -> Node | None:
        """The node of a value that only a run has, as far as there is one."""
        if isinstance(value, TensorProxy):
            return value._node
        if type(value) is ObjectProxy:
            return object_node(value)
        symbol = symbol_of(value)
        return None if symbol is None else self._recorder.region.number(symbol)

    def is_open(self, value: Any) -> bool:
        """Tell whether only a run has a value."""
        return isinstance(value, TensorProxy) or is_symbolic(value) or type(value) is ObjectProxy

    def value(self, subject: Any, pair: tuple[Any, Any], node: Node, place: Any, then_raised: bool) -> Any:
        """The value in the program of one output of a branch; its example is that of the side the example takes."""
        recorder = self._recorder
        taken = recorder.numbers.hint(subject)
        sample = pair[1] if then_raised or taken is False or pair[0] is None else pair[0]
        if sample is None:
            sample = pair[0]
        if isinstance(sample, torch.Tensor):
            proxy = TensorProxy.make(recorder, recorder.example(sample), node)
            if any(_may_be_none(subject, side, taken) for side, taken in zip(pair, (True, False), strict=True)):
                proxy.optional = place
                proxy.is_none = None if taken is None else _is_none(pair[0 if taken else 1])
                recorder.questions.has_optionals = True
            return proxy
        symbol = symbol_of(sample)
        kind = type(sample) if symbol is None else symbol.kind
        hint = UNKNOWN
        if taken is not None:
            hint = sample if symbol is None else symbol._hint
        sampled = sample if symbol is None else symbol.sample
        symbol = recorder.numbers.data_symbol(hint, kind, "branch", (node,), sampled)
        is_data = recorder.questions.is_data
        symbol.is_data = is_data(subject) or any(is_symbolic(side) and is_data(side) for side in pair)
        recorder.region.numbers[symbol] = node
        return as_number(symbol)

    def kind_name(self, value: Any) -> str:
        """What kind of value the program has there, in a message."""
        kind = _number_kind(value) or (torch.Tensor if isinstance(value, TensorProxy) else type(value))
        return kind.__name__

    def source_name(self, value: Any) -> str:
        """What the source calls a value, if it does."""
        node = value._node if isinstance(value, TensorProxy) else None
        return str(node.origin.target) if node is not None and node.origin is not None else ""


def _is_none(value: Any) -> bool | None:
    """Tell whether a value of one side is None for the example."""
    return value.is_none if isinstance(value, TensorProxy) else value is None


def _may_be_none(subject: Any, value: Any, is_then: bool) -> bool:
    """Tell whether a side's value may be None: not where the branch asks whether it is, on the side where it is not."""
    if not isinstance(value, TensorProxy) or value.optional is None:
        return value is None
    symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
    while symbol is not None and symbol.function is operator.not_:
        symbol, is_then = symbol.args[0], not is_then
    asks = symbol is not None and symbol.function is operator.is_ and symbol.args[1] is None
    return not (asks and symbol.args[0] is value and not is_then)  # type: ignore[union-attr]


def _number_kind(value: Any) -> type | None:
    if is_symbolic(value):
        return symbol_of(value).kind  # type: ignore[union-attr]
    return type(value) if type(value) in (int, float, bool) else None

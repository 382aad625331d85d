"""What tells the values of a capture with examples apart: symbols by how they are computed, tensors by their data."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy

if TYPE_CHECKING:
    from graphwright.capture.state.rungs import HasTruth, QuestionSubject


class ExampleSubjects:
    """The values that Python asks about: numbers, which have a symbol, and tensors."""

    def subject_of(self, test: HasTruth) -> Any:
        """What decides a branch on a value: the symbol behind a number, else the value itself."""
        symbol = None if type(test) is TensorProxy else symbol_of(test)
        return test if symbol is None else symbol

    def key_of(self, subject: QuestionSubject) -> Any:
        """What tells a value from others."""
        if type(subject) is TensorProxy:
            return id(subject), *subject.recorder.writes.stamp(subject)
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        return id(subject) if symbol is None else symbol.key

    def opposite(self, subject: QuestionSubject) -> Any:
        """What tells the value whose negation a value is from others; None for what is no negation."""
        if type(subject) is TensorProxy:
            return None
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        return self.key_of(symbol.args[0]) if symbol is not None and symbol.function is operator.not_ else None

    def is_data(self, subject: QuestionSubject) -> bool:
        """Tell whether a value depends on the data of tensors, rather than on sizes and flags."""
        if type(subject) is TensorProxy:
            return True
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        return symbol is None or symbol.is_data

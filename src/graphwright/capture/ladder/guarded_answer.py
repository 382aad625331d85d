"""Guard: take the example's answer, and check when the program runs that it is this."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import stopping
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.ir import Node
from graphwright.runtime import expect

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.regions import Region
    from graphwright.capture.state.rungs import QuestionSubject


class Guards:
    """The answers that one capture takes from its example."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def guard(self, symbol: Symbol, where: str = "") -> Any:
        """Take the answer of the example, and check when the program runs that it is this."""
        capture = self._capture
        questions = capture.questions
        if comes_from_loop(symbol):  # the answer is another in other iterations
            restart = questions.refusals.unroll_around("it asks for its counter")
            if restart is not None:
                raise questions.restart(restart)
            if self._is_made_in_loop(symbol):
                return questions.refusals.refuse_data(symbol)
        key, of_itself = ("guard", _key(symbol)), ("guard", symbol.key)
        known = [region.attributes for region in capture.region.all()]
        if not any(key in guards for guards in known):
            node = with_examples(capture).numbers.node_of_symbol(symbol)
            arguments = (node, symbol.hint, where or capture.where() or "")
            made = capture.node("call_function", expect, arguments, {}, name="guard")
            capture.region.attributes |= {key: made, of_itself: made}
        elif not any(of_itself in guards for guards in known):
            with_examples(capture).numbers.size_known_by(symbol)
        if symbol.kind is bool:
            capture.questions.knowledge.learn(symbol, bool(symbol.hint))
        return symbol.hint

    def _is_made_in_loop(self, subject: Any) -> bool:
        """Tell whether a node of the loop that runs, or of a branch in it, gives a number or what it is computed of."""
        if isinstance(subject, Symbol):
            return any(map(self._is_made_in_loop, subject.args))
        regions = [*self._capture.region.all()]
        loops = [i for i, region in enumerate(regions) if region.is_loop]
        inside = regions[: loops[-1] + 1] if loops else []
        return isinstance(subject, Node) and any(subject.graph is region.graph for region in inside)

    def guard_sizes(self, values: Iterable[Any]) -> None:
        """Take what these values are, short of their data, from the example: the program asked by a `try`."""
        for value in values:
            symbol = symbol_of(value.length() if is_growing(value) else value)
            symbols = [] if symbol is None else [symbol]
            if isinstance(value, TensorProxy):
                capture = with_examples(self._capture)
                for fact in ("rank", "dtype"):
                    capture.ledger.tensor(value, fact, self._capture.where() or "")
                symbols = [capture.numbers.size_symbol(value, dim) for dim in range(value.example.dim())]
            for symbol in symbols:
                is_open = symbol.has_value and not symbol.is_data and symbol.function != "constant"
                if is_open or is_growing(value):
                    self.guard(symbol)

    def of_example(self, subject: QuestionSubject) -> Any:
        """The answer of the example, None where that cannot tell."""
        return subject.hint if isinstance(subject, Symbol) else self._capture.numbers.hint(subject)

    def follow(self, subject: QuestionSubject) -> Any:
        """Answer a question of data with the example's data, and warn that other data may lead elsewhere."""
        answer = self.of_example(subject)
        if answer is None:
            raise stopping(NeedsRealValues("the path of the example is followed"))
        warn_tracer(
            f"at {self._capture.where()}: the program asks for the data of a tensor, and only the way that the "
            f"example takes ({answer!r}) is captured; with other data the captured program may be wrong",
            self._capture.log,
        )
        return answer


def comes_from_loop(subject: QuestionSubject | Hashable, loop: Region | None = None) -> bool:
    """Tell whether a value that is no tensor's data may be another in each iteration of a loop, or of this one."""
    symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
    if symbol is None:
        return loop is None and not isinstance(subject, TensorProxy)
    if symbol.function == "opaque":
        return loop is None or symbol.args[0].graph is loop.graph
    return any(comes_from_loop(arg, loop) for arg in symbol.args if isinstance(arg, Symbol))


def _key(symbol: Symbol) -> Hashable:
    """What tells a number from others: sizes that operations make equal are one."""
    if symbol.dim is not None:
        return id(symbol.dim)
    arguments = [_key(arg) if isinstance(arg, Symbol) else arg for arg in symbol.args]
    is_plain = all(issubclass(type(arg), Hashable) and not isinstance(arg, torch.Tensor) for arg in arguments)
    return (symbol.function, *arguments) if is_plain else tuple(symbol.key)


def symbol_behind(capture: Capture, subject: QuestionSubject) -> Symbol:
    """The number or truth that a question is about."""
    symbol = subject if isinstance(subject, Symbol) else symbol_of(capture.numbers.truth(subject))
    assert symbol is not None
    return symbol

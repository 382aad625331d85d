"""What becomes of the values that a body ends with: they are returned, variables get them, a round of a loop ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from graphwright.codegen.readable.assignments import in_sequence, is_simple, mentions
from graphwright.codegen.readable.expressions import Expression, tested
from graphwright.codegen.readable.writer import Block, Clause, ReadableWriter, plain
from graphwright.codegen.spelling.arguments import argument
from graphwright.ir import Node


def expression_of(writer: ReadableWriter, value: Any) -> tuple[str, int]:
    """Write a value that a body ends with, and say how tightly the code binds."""
    if isinstance(value, Expression):
        return value
    return writer.node(value) if type(value) is Node else Expression(writer.value(value))


def text_of(writer: ReadableWriter, value: Any) -> str:
    """Write a value that a body ends with."""
    return expression_of(writer, value)[0]


# ---- the ways to end


@dataclasses.dataclass(frozen=True, slots=True)
class Assigns:
    """Variables get the values."""

    targets: Sequence[str]
    conditions: frozenset[int] = frozenset()

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return list(zip(self.targets, values, strict=True))

    def write(self, writer: ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends."""
        return ";  ".join(in_sequence([(target, text_of(writer, value)) for target, value in self.pairs(values)]))


@dataclasses.dataclass(frozen=True, slots=True)
class Tests:
    """The value is the test of a loop: it ends where that does not hold."""

    conditions: frozenset[int] = frozenset()

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return []

    def write(self, writer: ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends; the text of the test is the writer's result."""
        writer.result_code = expression_of(writer, values[0])
        return Block([Clause("if", writer.negation(values[0]), ["break"])])


@dataclasses.dataclass(frozen=True, slots=True)
class Returns:
    """The program returns `template`, whose nodes `items` stand for the values."""

    template: Any
    items: Sequence[Node]
    conditions: frozenset[int] = frozenset()

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return []

    def write(self, writer: ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends."""
        texts = {item: (text_of(writer, value), 0) for item, value in zip(self.items, values, strict=True)}
        return Block([plain(f"return {argument(self.template, writer.names, texts.__getitem__)[0]}")], leaves=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Exit:
    """How a program returns from inside a loop: where the value `flag` is true, by the lines that `write` gives.

    `needs` are the values that it returns.
    """

    flag: int
    needs: frozenset[int]
    write: Callable[[ReadableWriter, Sequence[Any]], list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class NextRound:
    """The first value says whether the loop ends, the variables get the others; without a variable, one is not needed.

    `conditions` are the values of which nothing but their truth counts.
    """

    targets: Sequence[str | None]
    conditions: frozenset[int] = frozenset([0])
    exit: Exit | None = None

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return [(target, value) for target, value in zip(self.targets, values[1:], strict=True) if target]

    def is_return(self, values: Sequence[Any]) -> bool:
        """Tell whether the program returns here, or where it stops here."""
        if self.exit is None:
            return False
        flag = values[self.exit.flag]
        return flag is True or (flag is values[0] and not isinstance(flag, bool))

    def write(self, writer: ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends."""
        stop = values[0]
        is_known = not isinstance(stop, Node | Expression)
        if is_known and stop and self.is_return(values):
            assert self.exit is not None
            return Block([plain(*self.exit.write(writer, values))], leaves=True)
        pairs = []
        for target, value in zip(self.targets, values[1:], strict=True):
            text = text_of(writer, value)
            if target is None and not is_simple(text) and value is not stop:  # it is computed though nothing needs it
                target = writer.fresh("_")
            if target is not None and target != text:
                pairs.append((target, text))
        if is_known:
            lines = [*in_sequence(pairs), *(["break"] if stop else [])]
            return Block([plain(*lines)], leaves=bool(stop)) if lines else ""
        test = tested(expression_of(writer, stop))[0]
        lines = []
        if pairs and not (is_simple(test) and all(not mentions(test, target) for target, _ in pairs)):
            flag = writer.fresh("stop")
            lines.append(f"{flag} = {test}")
            test = flag
        lines += in_sequence(pairs)
        ends = ["break"]
        if self.is_return(values):
            assert self.exit is not None
            given = dict(zip([text for _, text in pairs], [target for target, _ in pairs], strict=True))
            texts = [text_of(writer, value) for value in values]
            after = [Expression(given.get(text, text)) for text in texts]
            ends = self.exit.write(writer, after)
        return Block([*([plain(*lines)] if lines else []), Clause("if", test, [*ends])])

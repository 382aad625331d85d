"""Steps that are a branch or loop, with what its bodies do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from graphwright.ir import Graph, Node
from graphwright.rewrite.steps import Attempt, Step, Then, match_all, show


class Body(NamedTuple):
    """One body of a pattern's region: the inputs that are its own, what it gives, how many values are carried."""

    own: Sequence[Step]
    result: Any
    carried: int


class Parts(NamedTuple):
    """The arguments of a branch or loop by what they are for."""

    plain: Sequence[Any]
    bodies: Sequence[Graph]
    carried: Sequence[Any]
    operands: Sequence[Any]


def parts_of(node: Node) -> Parts | None:
    """The parts of a region whose bodies are graphs; None for others."""
    subject, first, second, *rest = node.args
    if isinstance(first, Graph) and isinstance(second, Graph):  # cond(pred, true, false, operands)
        return Parts([subject], [first, second], [], rest[0] if rest else ())
    if not isinstance(first, Graph):
        return None
    operands = rest[0] if rest else node.kwargs.get("operands", ())
    breaks = rest[1] if len(rest) > 1 else node.kwargs.get("breaks", False)
    if isinstance(subject, Graph):  # while_loop(test, body, carried, operands, breaks)
        return Parts([breaks], [subject, first], second, operands)
    return Parts([subject, breaks], [first], second, operands)  # for_loop(iterable, body, carried, operands, breaks)


class Bodies(Step):
    """A branch or loop: its bodies do what the pattern's do with the same values from outside."""

    def __init__(self, name: str, node: Node, plain: Sequence[Any], bodies: Sequence[Body]) -> None:
        self.name, self.target = name, node.target
        self.plain, self.bodies = plain, bodies

    def __repr__(self) -> str:
        return str(self.target.__name__)

    def keys(self) -> set[Hashable] | None:
        return {("call_function", self.target)}

    def inputs(self) -> Sequence[Any]:
        return (*self.plain, *[body.result for body in self.bodies])

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        known = attempt.nodes.get(self)
        if known is not None:
            return then() if known is value else attempt.no(lambda: f"{self} is {show(known)} already", value)
        if type(value) is not Node or value.target is not self.target:
            return attempt.no(lambda: f"{self} is wanted, and there is {show(value)}", value)
        parts = parts_of(value)
        if parts is None or len(parts.bodies) != len(self.bodies) or len(parts.carried) != self.bodies[-1].carried:
            return attempt.no(lambda: f"{show(value)} has other bodies or carries other values", value)
        attempt.nodes[self] = value
        came_in: list[Node] = []
        pairs = [(wanted, given) for wanted, given in zip(self.plain, (*parts.plain, *parts.carried), strict=True)]
        for body, graph in zip(self.bodies, parts.bodies, strict=True):
            placeholders = graph.placeholders()
            inner = len(placeholders) - len(parts.operands)
            for placeholder, operand in zip(placeholders[inner:], parts.operands, strict=True):
                attempt.inputs[placeholder] = operand
                came_in.append(placeholder)
            pairs += [(own, node) for own, node in zip(body.own, placeholders[:inner], strict=True)]
            pairs.append((body.result, graph.output_node().args[0]))
        found = match_all(pairs, 0, attempt, then)
        if not found:
            del attempt.nodes[self]
            for placeholder in came_in:
                del attempt.inputs[placeholder]
        return found

"""Steps that are one of several operations, or a chain of them."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

from graphwright.rewrite import words
from graphwright.rewrite.operations import ModuleStep
from graphwright.rewrite.steps import Attempt, Step, Then, match_value, parts_in, same


class Choice(Step):
    """One of several."""

    def __init__(self, word: words.OneOf, choices: Sequence[Any]) -> None:
        self.name, self.word, self.choices = word.name, word, choices

    def __repr__(self) -> str:
        return repr(self.word)

    def keys(self) -> set[Hashable] | None:
        return _union(self.choices)

    def inputs(self) -> Sequence[Any]:
        return self.choices

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        if self in attempt.nodes:
            return then() if attempt.nodes[self] is value else attempt.no(lambda: f"{self} is another one", value)
        attempt.nodes[self] = value
        for choice, function in zip(self.choices, self.word.choices, strict=True):
            if match_value(choice, value, attempt, functools.partial(attempt.bind, self.name, function, then)):
                return True
        del attempt.nodes[self]
        return False


class Chain(Step):
    """An operation as often as it is there, the longest chain first."""

    def __init__(self, word: words.Repeat, step: Any, hole: Step, start: Any) -> None:
        self.name, self.word, self.step, self.hole, self.start = word.name, word, step, hole, start
        self.inside = _steps_between(step, hole)
        self.names = list(_names_in(self.inside))

    def __repr__(self) -> str:
        return repr(self.word)

    def keys(self) -> set[Hashable] | None:
        return _union([self.step] if self.word.at_least else [self.step, self.start])

    def inputs(self) -> Sequence[Any]:
        return (self.step, self.start)

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        if self in attempt.nodes:
            return then() if attempt.nodes[self] is value else attempt.no(lambda: f"{self} is another one", value)
        attempt.nodes[self] = value
        if self._match(value, attempt, then, []):
            return True
        del attempt.nodes[self]
        return False

    def _match(self, value: Any, attempt: Attempt, then: Then, links: list[Any]) -> bool:
        """Match the chain that ends in a value; `links` has what was bound in those after it."""
        if self.word.at_most is None or len(links) < self.word.at_most:

            def go_on() -> bool:
                earlier = attempt.nodes.pop(self.hole)
                nodes = {step: attempt.nodes.pop(step) for step in self.inside if step in attempt.nodes}
                values = {name: attempt.values.pop(name) for name in self.names if name in attempt.values}
                if self._match(earlier, attempt, then, [*links, (nodes, values)]):
                    return True
                attempt.nodes.update(nodes)
                attempt.values.update(values)
                attempt.nodes[self.hole] = earlier
                return False

            if match_value(self.step, value, attempt, go_on):
                return True
        if len(links) < self.word.at_least:
            return attempt.no(lambda: f"{self} is there only {len(links)} times", value)
        bound: dict[str, Any] = {name: [values.get(name) for _, values in links] for name in self.names}
        if self.name:
            bound[self.name] = len(links)
        attempt.values.update(bound)
        for i, (nodes, _) in enumerate(links):
            attempt.nodes.update({(step, i): node for step, node in nodes.items()})
        if match_value(self.start, value, attempt, then):
            return True
        for name in bound:
            del attempt.values[name]
        for i, (nodes, _) in enumerate(links):
            for step in nodes:
                del attempt.nodes[step, i]
        return False


class Hole(Step):
    """In a chain, the value before an operation."""

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        known = attempt.nodes.get(self)
        if known is not None:
            return then() if same(known, value) else attempt.no(lambda: "a step reads two values", value)
        attempt.nodes[self] = value
        if then():
            return True
        attempt.nodes.pop(self, None)
        return False


def _union(steps: Sequence[Any]) -> set[Hashable] | None:
    found: set[Hashable] = set()
    for step in steps:
        keys = step.keys() if isinstance(step, Step) else None
        if keys is None:
            return None
        found |= keys
    return found


def _names_in(steps: Sequence[Step]) -> dict[str, None]:
    """What a match calls what these steps and the words among their arguments stand for."""
    found: dict[str, None] = {}
    for step in steps:
        found[step.word.name if isinstance(step, ModuleStep) else step.name] = None
        for part in parts_in([*step.inputs(), getattr(step, "kind", None)]):
            if isinstance(part, words.Word):
                found[part.name] = None
    return {name: None for name in found if name}


def _steps_between(last: Any, hole: Step) -> list[Step]:
    """The steps that a value is made by, the hole aside."""
    found: dict[Step, None] = {}
    waiting = list(parts_in(last))
    while waiting:
        value = waiting.pop()
        if isinstance(value, Step) and value is not hole and value not in found:
            found[value] = None
            waiting.extend(parts_in(value.inputs()))
    return list(found)

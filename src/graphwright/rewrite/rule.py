"""Rules: a pattern, what stands in its place, and the conditions under which it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from graphwright.errors import PatternError
from graphwright.ir import Node
from graphwright.rewrite.calls import Calls
from graphwright.rewrite.match import Match
from graphwright.rewrite.pattern import Pattern, place_of
from graphwright.rewrite.replacement import Function, Template, replacement_of
from graphwright.rewrite.steps import Attempt, Failures, Step, match_value

Condition = Callable[[Match], Any]


class Rule:
    """What `rule` makes. `name` is that of the replacement, and `where` the file and line that say the rule."""

    def __init__(
        self,
        pattern: Pattern,
        replacement: Function | Template,
        conditions: Sequence[Condition],
        name: str,
        where: str,
        recursive: bool,
        same_value: bool = False,
    ) -> None:
        self.pattern, self.replacement, self.conditions = pattern, replacement, tuple(conditions)
        self.name, self.where, self.recursive, self.same_value = name, where, recursive, same_value

    def __repr__(self) -> str:
        return f"Rule({self.name})"

    def match(
        self,
        node: Node,
        calls: Calls,
        module: nn.Module,
        failures: Failures | None = None,
        left: list[tuple[str, str]] | None = None,
    ) -> Match | None:
        """Find the pattern with this node as its first root; `failures` learns why it is not there.

        `left` learns why it is left alone where it is there, and what would help: what it writes to others may read, or
        a condition has answered with text.
        """
        attempt = Attempt(calls)
        attempt.failure, attempt.left = failures, left
        found: list[Match] = []

        def meets_conditions() -> bool:
            roots = [attempt.nodes[root] for root in self.pattern.roots]
            match = Match(attempt, roots, module)
            for condition in self.conditions:
                answer = condition(match)
                if answer is not True:
                    match.keep()  # the condition may have put it away
                    if left is not None and isinstance(answer, str):
                        left.append((answer, ""))
                    return attempt.no(lambda: _reason(condition, answer), node)  # noqa: B023 - read at once
            if attempt.barred is not None:
                if left is not None:
                    left.append(attempt.barred)
                return False
            found.append(match)
            return True

        find(self.pattern, node, attempt, meets_conditions)
        return found[0] if found else None


def rule(
    pattern: Any,
    replacement: Any,
    where: Condition | Sequence[Condition] | None = None,
    *,
    name: str = "",
    recursive: bool = False,
    same_value: bool = False,
) -> Rule:
    """Make a rule: where `pattern` is found, `replacement` is put in its place.

    pattern: a function, a module, a graph, or an expression of `Var`s. Its parameters stand for any value, or for
        what their default says: `Lit(float)`, `mod(nn.Linear)`. What it returns is what is replaced: one value, or a
        tuple of them.
    replacement: the same, or a function that is called for each match. Its parameters have the names of what the
        pattern names, or stand in the order of the pattern's parameters; one called `match` is given the Match.
    where: a condition, or several: a function of the Match that answers True, or with text that says why not.
    recursive: whether the rule is tried on what it has written itself. Without it, a replacement may have the pattern
        inside.
    same_value: whether the replacement gives the very value that the pattern gives, and no copy of it or view on it,
        as an `nn.Identity` does. Then it may stand there even if one of the two is written to in place.

    Two spellings of an operation are one: `x.relu()`, `torch.relu(x)`, `F.relu(x)` and `nn.ReLU()(x)`; arguments by
    position, by name or left out; `a + b` and `b + a`. Raises PatternError for a pattern or replacement that cannot be
    right.

    >>> import torch
    >>> from graphwright import rewrite, symbolic_trace
    >>> twice = rule(lambda x: x + x, lambda x: 2 * x)
    >>> gm = symbolic_trace(lambda x: torch.relu(torch.add(x, x)))
    >>> rewrite(gm, [twice]).count
    1
    >>> print(gm.code.strip())
    def forward(self, x):
        mul = 2 * x;  x = None
        relu = torch.relu(mul);  mul = None
        return relu
    """
    what = Pattern.of(pattern)
    conditions = () if where is None else (where,) if callable(where) else tuple(where)
    for condition in conditions:
        if not callable(condition):
            raise PatternError(f"a condition is a function of the match, not {condition!r}", at=what.where)
    put = replacement_of(replacement, what)
    named = name or next((text for each in (replacement, pattern) if (text := _name(each))), "rule")
    return Rule(what, put, conditions, named, what.where or put.where, recursive, same_value)


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "")
    return "" if name == "<lambda>" else name


def _reason(condition: Condition, answer: Any) -> str:
    """Why a condition does not hold: what it says, or the line where it stands."""
    if isinstance(answer, str):
        return answer
    name = getattr(condition, "__name__", "")
    try:
        text = inspect.getsource(condition).strip().splitlines()[0] if name == "<lambda>" else name
    except OSError:
        text = name
    return f"the condition does not hold ({place_of(condition)}): {text}"


# ---- finding


def find(pattern: Pattern, node: Node, attempt: Attempt, then: Callable[[], bool]) -> bool:
    """Find a pattern with a node as its first root, whatever the others are."""
    roots = pattern.roots
    if len(roots) == 1:
        return roots[0].match(node, attempt, then)
    return match_value(roots[0], node, attempt, lambda: _find_others(pattern, 1, attempt, then))


def _find_others(pattern: Pattern, i: int, attempt: Attempt, then: Callable[[], bool]) -> bool:
    if i == len(pattern.roots):
        return then()
    root = pattern.roots[i]
    for node in _candidates(pattern, root, attempt):
        if match_value(root, node, attempt, lambda: _find_others(pattern, i + 1, attempt, then)):
            return True
    return False


def _candidates(pattern: Pattern, root: Step, attempt: Attempt) -> list[Node]:
    """The nodes that a further root may be: so far from a value that is known as in the pattern."""
    if root in attempt.nodes:
        return [attempt.nodes[root]]
    way = pattern.way_to_known(root, lambda step: _known(step, attempt) is not None)
    if way is None:
        first = next(iter(attempt.nodes.values()))
        return list(first.graph.nodes)
    start, length = way
    known = _known(start, attempt)
    assert known is not None
    nodes = {known: None}
    for _ in range(length):
        nodes = dict.fromkeys(user for node in nodes for user in node.users)
    return [node for node in nodes if node not in attempt.nodes.values()]


def _known(step: Step, attempt: Attempt) -> Node | None:
    value = attempt.nodes.get(step)
    if value is None and step.name:
        value = attempt.values.get(step.name)
    return value if type(value) is Node else None

"""What a pattern consists of: for each operation in it, a step that says what the graph must have there.

Steps match by asking the next one to go on: `step.match(value, attempt, then)` finds out whether the value fits, notes
that in the attempt, and answers what `then()` does. If that is no, the note is taken back and the step tries its next
way: the other order of a commutative operation, the next choice, a shorter chain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from graphwright.ir import ATOMS, Node
from graphwright.ops import Picked
from graphwright.rewrite import words
from graphwright.rewrite.calls import Calls

Then = Callable[[], bool]


class Attempt:
    """One try to find a pattern at a place: what its variables and steps stand for so far.

    `values` has the variables by name: nodes, literals, modules, and lists of those of a chain. `nodes` has the node
    of each step that is an operation. `paths` has the dotted path of modules.
    """

    __slots__ = ("barred", "calls", "exact", "failure", "inputs", "left", "nodes", "paths", "turned", "values")

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.values: dict[str, Any] = {}
        self.nodes: dict[Any, Any] = {}
        self.paths: dict[str, str] = {}
        self.inputs: dict[Node, Any] = {}  # of bodies: what comes in there
        self.failure: Failures | None = None  # where somebody wants to know why
        self.left: list[tuple[str, str]] | None = None  # why what was found is left alone, and what would help
        self.barred: tuple[str, str] | None = None  # why the match that is being looked for may not be one
        self.turned = 0  # how many commutative operations are being tried in their other order

    def no(self, why: Callable[[], str], at: Any = None) -> bool:
        """Say that something does not fit, and why."""
        if self.failure is not None:
            self.failure.note(len(self.nodes) - 0.5 * bool(self.turned), why(), at)
        return False

    def bar(self, why: str, fix: str, rest: Then) -> None:
        """Find out whether the rest of a pattern is there, though something in it forbids to replace it: note that."""
        if self.left is not None and self.barred is None:
            failure, self.failure = self.failure, None
            self.barred = why, fix
            rest()
            self.barred, self.failure = None, failure

    def bind(self, name: str, value: Any, then: Then) -> bool:
        """Give a variable its value, or see that it has this one."""
        if not name:
            return then()
        if name in self.values:
            if same(self.values[name], value):
                return then()
            return self.no(lambda: f"{name} is {show(self.values[name])} already, and {show(value)} here", value)
        self.values[name] = value
        if then():
            return True
        del self.values[name]
        return False


class Failures:
    """Why a pattern is not there: what went wrong where most of it had been found."""

    def __init__(self) -> None:
        self.found = -1.0
        self.reasons: list[tuple[str, Any]] = []

    def note(self, found: float, why: str, at: Any) -> None:
        """Keep a reason, if it is of the best try so far: `found` operations, half of one less in another order."""
        if found > self.found:
            self.found, self.reasons = found, []
        if found == self.found and (why, at) not in self.reasons:
            self.reasons.append((why, at))


class Step:
    """One operation or input of a pattern. `name` is what it is called in the pattern."""

    name: str = ""

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        """Tell whether a value is what this step means and the rest of the pattern is there, too."""
        raise AssertionError("every step has its own")

    def keys(self) -> set[Hashable] | None:
        """What nodes that this step may match are found by; None for any node."""
        return None

    def inputs(self) -> Sequence[Any]:
        """What the step reads: steps, words and literals."""
        return ()


class Wildcard(Step):
    """A value that the pattern takes from outside: anything, or what its word says."""

    def __init__(self, name: str, kind: words.Word | None = None) -> None:
        self.name, self.kind = name, kind

    def match(self, value: Any, attempt: Attempt, then: Then) -> bool:
        if isinstance(self.kind, words.Lit):
            return _match_literal(self.kind, self.name, value, attempt, then)
        return attempt.bind(self.name, value, then)


def parts_in(value: Any) -> Iterator[Any]:
    """The steps and words inside of nested arguments of a step."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Step | words.Word):
            yield item
        elif isinstance(item, list | tuple):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, slice):
            waiting.extend((item.step, item.stop, item.start))


# ---- values


def match_all(pairs: Sequence[tuple[Any, Any]], start: int, attempt: Attempt, then: Then) -> bool:
    """Match pairs of what is wanted and what is there, one after the other."""
    end = len(pairs)
    while start < end:
        wanted, value = pairs[start]
        start += 1
        if type(wanted) not in ATOMS:
            go_on = then if start == end else functools.partial(match_all, pairs, start, attempt, then)
            return match_value(wanted, value, attempt, go_on)
        if not same(wanted, value):
            return attempt.no(functools.partial(_unlike, wanted, value), value)
    return then()


def _unlike(wanted: Any, value: Any) -> str:
    return f"{show(wanted)} is wanted, and there is {show(value)}"


def match_value(wanted: Any, value: Any, attempt: Attempt, then: Then) -> bool:
    """Match an argument: a step, a word, a literal, or a container of those."""
    if attempt.inputs:
        while type(value) is Node and value in attempt.inputs:
            value = attempt.inputs[value]
    if isinstance(wanted, Step):
        return wanted.match(value, attempt, then)
    if isinstance(wanted, words.Any):
        return attempt.bind(wanted.name, value, then)
    if isinstance(wanted, words.Lit):
        return _match_literal(wanted, wanted.name, value, attempt, then)
    if isinstance(wanted, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(wanted) or not _are_alike(wanted, value):
            return attempt.no(lambda: f"{len(wanted)} values are wanted, and there is {show(value)}", value)
        return match_all(list(zip(wanted, value, strict=True)), 0, attempt, then)
    if isinstance(wanted, dict):
        if not isinstance(value, Mapping) or value.keys() != wanted.keys():
            return attempt.no(lambda: f"values for {', '.join(map(str, wanted))} are wanted, not {show(value)}", value)
        return match_all([(w, value[key]) for key, w in wanted.items()], 0, attempt, then)
    if isinstance(wanted, slice):
        if not isinstance(value, slice):
            return attempt.no(lambda: f"a slice is wanted, and there is {show(value)}", value)
        ends = [(getattr(wanted, end), getattr(value, end)) for end in ("start", "stop", "step")]
        return match_all(ends, 0, attempt, then)
    if same(wanted, value):
        return then()
    return attempt.no(lambda: _unlike(wanted, value), value)


def _are_alike(one: Any, other: Any) -> bool:
    """Tell whether two sequences mean the same: any do, but where they are indices."""
    return isinstance(one, Picked) == isinstance(other, Picked)


def _match_literal(kind: words.Lit, name: str, value: Any, attempt: Attempt, then: Then) -> bool:
    literal = value
    is_of_dimensions = isinstance(value, tuple | list) and not isinstance(value, Picked)
    if is_of_dimensions and value and not any(issubclass(each, tuple | list) for each in kind.types):
        first = value[0]
        if kind.types and all(same(first, item) for item in value):  # one number for all dimensions
            literal = first
    if _has_node(literal) or (kind.types and type(literal) not in kind.types):
        wanted = " or ".join(each.__name__ for each in kind.types) or "literal"
        return attempt.no(lambda: f"a {wanted} is wanted, and there is {show(value)}", value)
    return attempt.bind(name, literal, then)


def _has_node(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_node, value))
    return type(value) is Node


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are one node, or equal literals of one type."""
    if one is other:
        return True
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and _are_alike(one, other) and all(map(same, one, other))
    if type(one) is not type(other) or isinstance(one, Node | nn.Module):
        return False
    return bool(one == other) or (one != one and other != other)  # nan


def show(value: Any) -> str:
    """Write a value as it is told to people."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(show, value))}]"
    return (
        value.name
        if type(value) is Node
        else f"the {type(value).__name__}"
        if isinstance(value, nn.Module)
        else repr(value)
    )

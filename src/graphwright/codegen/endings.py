"""What becomes of the values that a body ends with: they are returned, variables get them, a round of a loop ends.

A branch at the end of a body is written so that each of its sides ends the body: a side that breaks has its `break`,
and what comes after such a side needs no `else`. `split_at_end` finds such a branch.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from graphwright.codegen.spelling import argument
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import cond, raise_error

if TYPE_CHECKING:
    from graphwright.codegen.readable import _ReadableWriter

__all__ = [
    "Assigns", "Block", "Ending", "Exit", "NextRound", "Outside", "Returns", "Slot", "Split", "Tests", "Text",
    "branch_at_end", "ends_by_raising", "in_sequence", "is_simple", "outcomes", "split_at_end", "split_by", "text_of",
    "truth_of", "values_of",
]  # fmt: skip


class Text(str):
    """A piece of code where a value is expected."""

    __slots__ = ()


@dataclasses.dataclass(slots=True)
class Block:
    """A compound statement: plain lines, and headers each with the body that it opens."""

    parts: list[tuple[str, list[_ReadableWriter | str]]]
    leaves: bool = False  # whether nothing that comes after it is ever reached


@dataclasses.dataclass(frozen=True, slots=True)
class Outside:
    """A value that a body ends with and does not give itself."""

    value: Any


# Where a value of an ending comes from: an item of what the body gives, all of it (None), or from outside.
Slot = int | Outside | None


def values_of(output: Node, slots: Sequence[Slot]) -> list[Any]:
    """The values that a body ends with."""
    given: Any = output._args[0] if output._args else None
    return [slot.value if isinstance(slot, Outside) else given if slot is None else given[slot] for slot in slots]


def ends_by_raising(body: Graph) -> bool:
    """Tell whether the last thing that a body does is to raise."""
    last = body._root._prev
    return (last._prev if last._op == "output" else last)._target is raise_error


def text_of(writer: _ReadableWriter, value: Any) -> str:
    """Write a value that a body ends with."""
    return str(value) if isinstance(value, Text) else writer.value(value)


# ---- the ways to end


@dataclasses.dataclass(frozen=True, slots=True)
class Assigns:
    """Variables get the values."""

    targets: Sequence[str]
    conditions: frozenset[int] = frozenset()

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return list(zip(self.targets, values, strict=True))

    def write(self, writer: _ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends."""
        return ";  ".join(in_sequence([(target, text_of(writer, value)) for target, value in self.pairs(values)]))


@dataclasses.dataclass(frozen=True, slots=True)
class Tests:
    """The value is the test of a loop: it ends where that does not hold."""

    conditions: frozenset[int] = frozenset()

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return []

    def write(self, writer: _ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends; the text of the test is the writer's result."""
        writer.result_text = writer.value(values[0]), 0
        return Block([(f"if {writer.negation(values[0])}:", ["break"])])


@dataclasses.dataclass(frozen=True, slots=True)
class Returns:
    """The program returns `template`, whose nodes `items` stand for the values."""

    template: Any
    items: Sequence[Node]
    conditions: frozenset[int] = frozenset()

    def pairs(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The variables, each with what it gets."""
        return []

    def write(self, writer: _ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends."""
        texts = {item: (text_of(writer, value), 0) for item, value in zip(self.items, values, strict=True)}
        return Block([("", [f"return {argument(self.template, writer.names, texts.__getitem__)[0]}"])], leaves=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Exit:
    """How a program returns from inside a loop: where the value `flag` is true, by the lines that `write` gives.

    `needs` are the values that it returns.
    """

    flag: int
    needs: frozenset[int]
    write: Callable[[_ReadableWriter, Sequence[Any]], list[str]]


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

    def write(self, writer: _ReadableWriter, values: Sequence[Any]) -> Block | str:
        """Write how a body ends."""
        stop = values[0]
        is_known = not isinstance(stop, Node | Text)
        if is_known and stop and self.is_return(values):
            assert self.exit is not None
            return Block([("", [*self.exit.write(writer, values)])], leaves=True)
        pairs = []
        for target, value in zip(self.targets, values[1:], strict=True):
            text = text_of(writer, value)
            if target is None and not is_simple(text) and value is not stop:  # it is computed though nothing needs it
                target = writer.fresh("_")
            if target is not None and target != text:
                pairs.append((target, text))
        if is_known:
            lines: list[Any] = [*in_sequence(pairs), *(["break"] if stop else [])]
            return Block([("", lines)], leaves=bool(stop)) if lines else ""
        test = _as_test(text_of(writer, stop))
        lines = []
        if pairs and not (is_simple(test) and all(not _mentions(test, target) for target, _ in pairs)):
            flag = writer.fresh("stop")
            lines.append(f"{flag} = {test}")
            test = flag
        lines += in_sequence(pairs)
        ends = ["break"]
        if self.is_return(values):
            assert self.exit is not None
            given = dict(zip([text for _, text in pairs], [target for target, _ in pairs], strict=True))
            after = [Text(given.get(text_of(writer, value), text_of(writer, value))) for value in values]
            ends = self.exit.write(writer, after)
        return Block([*([("", lines)] if lines else []), (f"if {test}:", [*ends])])


def _as_test(text: str) -> str:
    """Write a condition without a `bool()` around all of it."""
    inner = text.removeprefix("bool(").removesuffix(")")
    depth, lowest = 0, 0
    for char in inner:
        depth += (char == "(") - (char == ")")
        lowest = min(lowest, depth)
    is_whole = text == f"bool({inner})" and depth == lowest == 0 and not set(inner) & set("\"',*")
    return inner if is_whole else text


Ending = Assigns | Tests | Returns | NextRound


# ---- assignments


def is_simple(text: str) -> bool:
    """Tell whether reading a value takes nothing: the name of a variable, or a number."""
    return text.isidentifier() or text.replace(".", "", 1).removeprefix("-").isdigit()


def _mentions(text: str, name: str) -> bool:
    return name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def in_sequence(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Write that variables get values, one by one where no value reads a variable that has got its own.

    What is computed is computed in the order given.

    >>> in_sequence([("a", "b"), ("b", "a + b")])
    ['a, b = b, a + b']
    >>> in_sequence([("i", "i + 1"), ("total", "total + i"), ("last", "last")])
    ['i, total = i + 1, total + i']
    >>> in_sequence([("previous", "x"), ("x", "f(x)")])
    ['previous = x', 'x = f(x)']
    """
    left = [(target, text) for target, text in pairs if target != text]
    lines = []
    while left:
        for i, (target, text) in enumerate(left):
            must_wait = not is_simple(text) and any(not is_simple(other) for _, other in left[:i])
            if not must_wait and not any(_mentions(other, target) for _, other in (*left[:i], *left[i + 1 :])):
                lines.append(f"{target} = {text}")
                del left[i]
                break
        else:
            lines.append(f"{', '.join(t for t, _ in left)} = {', '.join(text for _, text in left)}")
            break
    return lines


# ---- branches at the end of a body


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """A branch whose sides end the body, and where each side gets the values from that the body ends with.

    What is `unread` is known on each side.
    """

    branch: Node
    items: tuple[Node, ...]
    unread: tuple[Node, ...]
    slots: dict[bool, list[Slot]]

    def side(self, is_true: bool) -> Graph:
        """One of the two bodies."""
        return self.branch._args[1 if is_true else 2]  # type: ignore[no-any-return]


def branch_at_end(output: Node) -> tuple[Node, tuple[Node, ...]] | None:
    """The branch that a body ends with, and the items of its value, where nothing but the output reads them."""
    items = []
    node = output._prev
    while node._op == "call_function" and (not node.users or list(node.users) == [output]):
        if node._target is operator.getitem:
            items.append(node)
        elif node._target not in _TRUTHS:
            break
        node = node._prev
    if node._target is not cond or not all(isinstance(body, Graph) for body in node._args[1:3]):
        return None
    if any(item._args[0] is not node or type(item._args[1]) is not int for item in items):
        return None
    if set(node.users) != set(items) if items else list(node.users) not in ([output], []):
        return None
    for body in node._args[1:3]:
        last = body._root._prev
        if not ends_by_raising(body) and (last._op != "output" or not _has_items(last._args, items)):
            return None
    return node, tuple(items[::-1])


_TRUTHS = (bool, operator.truth, operator.not_)


def truth_of(value: Any, pred: Any) -> bool | None:
    """What a value is where a condition holds, if it is the condition as True or False, or its opposite; else None."""
    is_call = type(value) is Node and value._op == "call_function" and value._target in _TRUTHS
    return value._target is not operator.not_ if is_call and value._args == (pred,) else None


def _has_items(args: Sequence[Any], items: Sequence[Node]) -> bool:
    """Tell whether the value of an output has all of these items, as far as it is seen."""
    value = args[0] if args else None
    return not items or (isinstance(value, tuple) and all(0 <= item._args[1] < len(value) for item in items))


def split_at_end(output: Node, values: Sequence[Any], conditions: frozenset[int]) -> Split | None:
    """Split a body at the branch that it ends with, if that decides the first value: whether the loop ends."""
    found = branch_at_end(output)
    if found is None:
        return None
    split = split_by(*found, values, conditions)
    is_known = not isinstance(values[0], Node | Text) if values else True
    return split if split is not None and (is_known or _decides(split)) else None


def split_by(branch: Node, items: tuple[Node, ...], values: Sequence[Any], conditions: frozenset[int]) -> Split | None:
    """Split a body at a branch; None where a value holds an item inside a container."""
    slots: dict[bool, list[Slot]] = {True: [], False: []}
    pred = branch._args[0]
    unread = []
    for i, value in enumerate(values):
        truth = True if i in conditions and type(value) is Node and value is pred else truth_of(value, pred)
        if truth is not None and value is not pred and all(user._op == "output" for user in value.users):
            unread.append(value)
        for is_true in (True, False):
            if truth is not None:
                slots[is_true].append(Outside(is_true is truth))
            elif value is branch:
                slots[is_true].append(None)
            elif type(value) is Node and value in items:
                slots[is_true].append(value._args[1])
            elif any(used is branch or used in items for used in nodes_in(value)):
                return None
            else:
                slots[is_true].append(Outside(value))
    return Split(branch, items, tuple(unread), slots)


def _decides(split: Split) -> bool:
    """Tell whether on one of the sides, or inside it, it is known whether the loop ends."""
    for is_true, slots in split.slots.items():
        if isinstance(slots[0], Outside):
            return isinstance(slots[0].value, bool)
        body = split.side(is_true)
        if ends_by_raising(body):
            continue
        output = body.output_node()
        values = values_of(output, slots)
        if isinstance(values[0], bool) or split_at_end(output, values, frozenset([0])):
            return True
    return False


def outcomes(body: Graph, values: Sequence[Any], conditions: frozenset[int]) -> Iterator[list[Any]]:
    """The values at each end of a body and of the branches that it ends with, as far as they are written there."""
    if ends_by_raising(body):
        return
    split = split_at_end(body.output_node(), values, conditions)
    if split is None:
        yield list(values)
        return
    for is_true, slots in split.slots.items():
        side = split.side(is_true)
        if ends_by_raising(side):
            continue
        inputs = [node for node in side.nodes if node._op == "placeholder"]
        around = dict(zip(inputs, split.branch._args[3], strict=True))
        given = values_of(side.output_node(), slots)
        resolved = [around.get(value, value) if type(value) is Node else value for value in given]
        yield from outcomes(side, resolved, conditions)

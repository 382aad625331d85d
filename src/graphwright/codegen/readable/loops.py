"""Loops as `for` and `while` statements, with `break`, `return` and `else`.

The variables that a loop carries keep one name where they can; those that only say how the loop ended are written as
the `break`, `return` or `else` that they stand for.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

from graphwright.codegen.readable.assignments import is_simple
from graphwright.codegen.readable.branches import is_empty, leaves, side_of, targets_of
from graphwright.codegen.readable.endings import Exit, NextRound, Returns, Tests, text_of
from graphwright.codegen.readable.expressions import Expression
from graphwright.codegen.readable.loop_headers import header_of
from graphwright.codegen.readable.splits import (
    Outside,
    Slot,
    Split,
    outcomes,
    values_of,
)
from graphwright.codegen.readable.unpacking import unpacked_items
from graphwright.codegen.readable.variables import base_of, first_holder, is_read, reads_after
from graphwright.codegen.readable.writer import Block, Clause, ReadableWriter, plain
from graphwright.codegen.spelling.operators import ATOM
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import LoopParts, cond, ends_by_raising, is_impure, is_loop, loop_parts, while_loop


def loop_block(writer: ReadableWriter, node: Node) -> Block:
    """Write a loop: its variables before it, then `for item in ...` or `while test`, then what its end decides."""
    if not all(isinstance(body, Graph) for body in node._args[0 if node._target is while_loop else 1 : 2]):
        raise GraphError(f"{node.name!r} has bodies that are no graphs: they cannot be written", at=node.origin)
    return _Loop(writer, node).block()


def name_initial_values(writer: ReadableWriter) -> None:
    """Compute what a loop starts with into the variable that the loop goes on with, where nothing else reads it."""
    for node in writer.nodes:
        if not is_loop(node) or not isinstance(node._args[1], Graph):
            continue
        parts = loop_parts(node)
        items = (unpacked_items(node) if node.users else None) or [None] * len(parts.carried)
        inputs = parts.body.placeholders()
        uses = list(nodes_in(node._args))
        for initial, item, inner in zip(
            parts.carried, items, inputs[0 if node._target is while_loop else 1 :], strict=False
        ):
            if type(initial) is not Node or list(initial.users) != [node] or uses.count(initial) != 1:
                continue
            is_named = initial._op == "placeholder" or initial in writer.texts or initial in writer.exits
            wish = inner.name if item is None or base_of(item.name) == "getitem" else item.name
            if is_named or item in writer.texts or base_of(initial.name) == base_of(wish):
                continue
            is_own = item is not None and wish == item.name and writer.is_outermost
            writer.texts[initial] = (wish if is_own else writer.fresh(wish)), ATOM
            if item is not None:
                writer.texts[item] = writer.texts[initial]


@dataclasses.dataclass(frozen=True)
class _Deciding:
    """The branch after a loop that asks, by the carried value number `flag`, how the loop ended."""

    flag: int
    branch: Node
    asks_opposite: Node | None  # the node that negates the flag, where the branch asks for that
    skipped: tuple[Node, ...]  # what is written with the loop

    @property
    def sides(self) -> tuple[bool, bool]:
        """The side for a loop that has ended by itself, and that for one that was left."""
        return (self.asks_opposite is not None, self.asks_opposite is None)


class _Loop:
    def __init__(self, writer: ReadableWriter, node: Node) -> None:
        self.writer, self.node = writer, node
        self.parts: LoopParts = loop_parts(node)
        items = unpacked_items(node) if node.users else None
        self.is_whole = bool(node.users) and items is None
        self.items: list[Node | None] = items or [None] * len(self.parts.carried)
        self.placeholders = self.parts.body.placeholders()
        count = len(self.parts.carried)
        self.inputs = self.placeholders[0 if node._target is while_loop else 1 :][:count]
        self.output = self.parts.body._root._prev
        self.shared: list[tuple[Node, Node]] = []  # values of the branch after the loop that have its variables
        branch = self._branch_after()
        self.returning: int | None = None  # the carried value that says whether the program returns
        self.leaving: _Deciding | None = None  # whose side for a loop that was left returns
        self.breaking: _Deciding | None = None  # whose other side is the `else` of the loop
        if branch is not None and self._is_flag(branch.flag, only_at_stop=False) and self._may_return(branch):
            self.returning, self.leaving = branch.flag, branch
        elif branch is not None and self._is_flag(branch.flag, only_at_stop=True) and self._has_native_else(branch):
            self.breaking = branch
        if self.leaving is None:
            self.returning = self._flag_of_outer_return()
        self.unwritten = self._unwritten()
        unnamed = [item for i, item in enumerate(self.items) if i in self.unwritten and item is not None]
        writer.skipped.update(unnamed)  # no variable holds them
        writer.kept.update(unnamed)
        self.targets: list[str | None] = []
        for i in range(count):
            self.targets.append(self._target(i))

    # ---- how the loop ends

    def _branch_after(self) -> _Deciding | None:
        """The branch after the loop that asks how the loop ended."""
        known = [item for item in self.items if item is not None]
        if not known or not self.parts.breaks or self.output._op != "output":
            return None
        branch, negated = known[-1]._next, None
        if branch._target is operator.not_ and branch._op == "call_function" and list(branch.users) == [branch._next]:
            negated, branch = branch, branch._next
        asked = branch._args[0] if branch._target is cond else None
        flag = asked._args[0] if negated is not None and asked is negated else asked
        if flag not in known or asked in branch._args[3] or flag in branch._args[3]:
            return None
        if not all(isinstance(body, Graph) for body in branch._args[1:3]):
            return None
        if self.writer.readers(flag) != [branch if negated is None else negated]:
            return None
        items = [item for item in unpacked_items(branch) or () if item is not None]
        skipped = (branch, *items, *([] if negated is None else [negated]))
        return _Deciding(self.items.index(flag), branch, negated, skipped)

    def _is_flag(self, i: int, only_at_stop: bool) -> bool:
        """Tell whether a carried value is False until the loop is left, and True only then.

        With `only_at_stop` it must become True whenever the loop is left.
        """
        initial = self.parts.carried[i]
        known = self.writer.constants.get(initial) if type(initial) is Node else initial
        if known is not False:
            return False
        for stop, *values in outcomes(self.parts.body, [self.parts.stop, *self.parts.given], frozenset([0, i + 1])):
            value = False if values[i] is self.inputs[i] else values[i]
            if value is not stop and (only_at_stop or value is not False):
                return False
        return True

    def _may_return(self, after: _Deciding) -> bool:
        """Tell whether the branch after the loop, where that was left, only gives something back that is returned."""
        writer, branch = self.writer, after.branch
        is_true = after.sides[1]
        body = branch._args[1 if is_true else 2]
        if any(inner._op not in ("placeholder", "output") for inner in body.nodes):
            return False
        if writer.returned is branch:
            return True
        split = writer.split
        if split is None or split.branch is not branch:
            return False
        if writer.ending is None or isinstance(writer.ending, Returns):
            return True
        if not isinstance(writer.ending, NextRound):
            return False
        values = values_of(body.output_node(), split.slots[is_true])
        return values[0] is True and writer.ending.is_return(values)

    def _flag_of_outer_return(self) -> int | None:
        """The carried value that says whether the program returns, where the loop around this one asks for it."""
        writer = self.writer
        if not isinstance(writer.ending, NextRound) or writer.ending.exit is None or writer.output is None:
            return None
        values = values_of(writer.output, writer.slots)
        flag = values[0]
        if type(flag) is not Node or flag not in self.items or not writer.ending.is_return(values):
            return None
        i = self.items.index(flag)
        places = [j for j, value in enumerate(values) if value is flag]
        if list(flag.users) != [writer.output] or not set(places) <= {0, writer.ending.exit.flag}:
            return None
        for j in writer.ending.exit.needs:
            value = values[j]
            if type(value) is Node and value not in self.items and not value < self.node:
                return None
        written = () if self.breaking is None else self.breaking.skipped
        between = self.node._next
        while between is not writer.output:
            if between not in self.items and between not in written and is_impure(between):
                return None
            between = between._next
        return i if self._is_flag(i, only_at_stop=False) else None

    def _has_native_else(self, after: _Deciding) -> bool:
        """Tell whether the side for a loop that has ended by itself may be its `else`.

        That is so where the other side does nothing, or the `else` leaves. What the other side gives back then stays
        in the variables of the loop.
        """
        writer, branch = self.writer, after.branch
        if not self._has_simple_test():
            return False
        if writer.returned is branch:
            return True
        if writer.split is not None and writer.split.branch is branch:
            if writer.ending is None or isinstance(writer.ending, Returns):
                return True
            if self._goes_on(after, writer.split):
                return True
            other, slots = branch._args[1 if after.sides[0] else 2], writer.split.slots[after.sides[0]]
            if ends_by_raising(other) or isinstance(slots[0], Outside):
                return False
            ends = outcomes(other, values_of(other.output_node(), slots), writer.ending.conditions)
            return all(stop is True for stop, *_ in ends)
        return self._share_variables(after)

    def _goes_on(self, after: _Deciding, split: Split) -> bool:
        """Tell whether the branch, where the loop was left, only goes on with the next round of the loop around it.

        Values of the loop then have the variables that would get them.
        """
        writer, is_true = self.writer, after.sides[1]
        body = split.side(is_true)
        if not isinstance(writer.ending, NextRound) or any(n._op not in ("placeholder", "output") for n in body.nodes):
            return False
        inputs = (inner for inner in body.nodes if inner._op == "placeholder")
        around = dict(zip(inputs, split.branch._args[3], strict=True))
        stop, *values = values_of(body.output_node(), split.slots[is_true])
        if stop is not False:
            return False
        following = self.node._next
        adopted: dict[Node, str] = {}
        for target, value in zip(writer.ending.targets, values, strict=True):
            held = around.get(value, value) if type(value) is Node else value
            if target is None or (type(held) is Node and writer.name(held) == target):
                continue
            if held not in self.items or held in adopted or held in writer.kept:
                return False
            if any(writer.name(used) == target for used in nodes_in(self.parts.operands)):
                return False
            node = following
            while node is not writer.output:
                if any(writer.name(used) == target for used in (*nodes_in(node._args), *nodes_in(node._kwargs))):
                    return False
                node = node._next
            adopted[held] = target
        for item, target in adopted.items():
            writer.texts[item] = target, ATOM
            writer.kept.add(item)
        return True

    def _share_variables(self, after: _Deciding) -> bool:
        """Let the values that the branch gives back have the variables of the loop; answer whether all of them can."""
        branch, writer = after.branch, self.writer
        body = branch._args[1 if after.sides[1] else 2]
        if any(inner._op not in ("placeholder", "output") for inner in body.nodes) or body._root._prev._op != "output":
            return False
        inputs = (inner for inner in body.nodes if inner._op == "placeholder")
        around = dict(zip(inputs, branch._args[3], strict=True))
        items = unpacked_items(branch)
        value = body.output_node()._args[0]
        wanted: list[Node | None] = ([branch] if branch.users else []) if items is None else items
        given = list(value) if items is not None else [value] * len(wanted)
        for item, inner in zip(wanted, given, strict=True):
            held = around.get(inner) if type(inner) is Node else None
            if item is None:
                continue
            if type(held) is not Node:
                return False
            if item in writer.kept:
                if writer.name(item) != writer.name(held):
                    return False
                continue
            is_own = held in self.items or first_holder(held, writer.texts)._op != "placeholder" or writer.is_outermost
            if not is_own or held in writer.kept or held in writer.inside or reads_after(branch, held, writer.texts):
                return False
            if any(held is other for _, other in self.shared):
                return False
            self.shared.append((item, held))
        return True

    def _has_simple_test(self) -> bool:
        """Tell whether the test of the loop is an expression."""
        if self.node._target is not while_loop:
            return True
        inputs = self.parts.subject.placeholders()
        test = self.writer.body(self.parts.subject, [Expression(node.name) for node in inputs], Tests(), [None])
        return test.is_expression

    def _is_read_inside(self, i: int) -> bool:
        """Tell whether a round reads the carried value that it gets."""
        node = self.inputs[i]
        if self.output._op != "output":
            return bool(node.users)
        if is_read(node, self.output, {i + self.parts.breaks}):
            return True
        if self.node._target is not while_loop:
            return False
        return bool(self.parts.subject.placeholders()[i].users)

    # ---- the variables

    def _flags(self) -> list[int]:
        """The carried values that say how the loop ended, and need not."""
        breaking = [] if self.breaking is None else [self.breaking.flag]
        return breaking if self.returning is None else [self.returning, *breaking]

    def _unwritten(self) -> set[int]:
        """The carried values that need no variable: how the loop ended, and what is returned from inside it."""
        found = set(self._flags())
        if self.returning is None:
            return found
        for i, item in enumerate(self.items):
            if item is not None and i not in found and not self._is_read_inside(i) and self._is_returned_only(item):
                found.add(i)
        return found

    def _is_returned_only(self, item: Node) -> bool:
        """Tell whether a value of the loop is used for nothing but what the program returns from inside the loop."""
        writer = self.writer
        branch = None if self.leaving is None else self.leaving.branch
        for user in item.users:
            if user is branch and self.leaving is not None:
                other = branch._args[1 if self.leaving.sides[0] else 2]
                inputs = (inner for inner in other.nodes if inner._op == "placeholder")
                if any(op is item and inner.users for op, inner in zip(branch._args[3], inputs, strict=True)):
                    return False
            elif user is not writer.output or not isinstance(writer.ending, NextRound):
                return False
            else:
                values = values_of(writer.output, writer.slots)
                places = [j for j, value in enumerate(values) if value is item]
                if not all(j and writer.ending.targets[j - 1] is None for j in places):
                    return False
        return bool(item.users)

    def _target(self, i: int) -> str | None:
        """The variable of a carried value; None where it needs none."""
        if i in self.unwritten:
            return None
        writer, item, wish = self.writer, self.items[i], self.inputs[i].name
        if item is not None:
            if item in writer.kept:
                return writer.name(item)
            if base_of(item.name) != "getitem":
                wish = item.name
        initial = self.parts.carried[i]
        if type(initial) is Node and self._may_go_on(initial, wish):
            name = writer.name(initial)
            writer.kept.add(initial)
            if item is not None:
                writer.texts[item] = name, ATOM
            return name
        if item is not None and wish == item.name:
            return writer.name(item)
        name = writer.fresh(wish)
        if item is not None:
            writer.texts[item] = name, ATOM
        return name

    def _last_values(self) -> dict[Node, str]:
        """The values that a variable has at the end of each round, as it does after the loop: `for row in rows:`."""
        if self.output._op != "output":
            return {}
        ends = list(outcomes(self.parts.body, [self.parts.stop, *self.parts.given], frozenset([0])))
        named: dict[Node, str] = {}
        for i, target in enumerate(self.targets):
            given = {end[i + 1] if type(end[i + 1]) is Node else None for end in ends}
            if target is not None and len(given) == 1 and not self._is_read_inside(i):
                named.setdefault(given.pop() or self.output, target)
        return named

    def _may_go_on(self, initial: Node, wish: str) -> bool:
        """Tell whether the variable of the value before the loop may hold those after it, too."""
        writer = self.writer
        if base_of(writer.name(initial)) != base_of(wish):
            return False
        if initial in writer.inside or initial in writer.skipped or initial in writer.kept:
            return False
        holder, own = first_holder(initial, writer.texts), writer.texts
        if holder._op == "placeholder" and not writer.is_outermost:
            return False
        if writer.name(initial) in self.targets:
            return False
        uses = [first_holder(used, own) for used in nodes_in((self.parts.carried, self.parts.operands))]
        return uses.count(holder) == 1 and not reads_after(self.node, initial, own)

    # ---- the statement

    def block(self) -> Block:
        """Write the loop."""
        writer, parts, node = self.writer, self.parts, self.node
        first = [
            (target, writer.value(value))
            for i, (target, value) in enumerate(zip(self.targets, parts.carried, strict=True))
            if target is not None and (self.items[i] is not None or self.is_whole or self._is_read_inside(i))
        ]
        before = ", ".join(t for t, v in first if t != v), ", ".join(v for t, v in first if t != v)
        leave = None
        if self.returning is not None:
            leave = Exit(self.returning + 1, self._needed(), self._return_lines)
        ending = NextRound(self.targets, frozenset([0, *(flag + 1 for flag in self._flags())]), leave)
        count = len(parts.carried)
        slots: list[Slot] = [*range(count + 1)] if parts.breaks else [Outside(False), *range(count)]
        variables: list[Any] = [
            (value if type(value) is not Node else False) if target is None else Expression(target)
            for target, value in zip(self.targets, parts.carried, strict=True)
        ]
        inputs = [*variables, *parts.operands]
        if node._target is while_loop:
            test = writer.body(parts.subject, inputs, Tests(), [None])
            lines = writer.body(parts.body, inputs, ending, slots)
            loop = Clause("while", test.result_code[0], [lines])
            if not test.is_expression:
                loop = Clause("while", "True", [test, lines])
        else:
            item, names = header_of(writer, self.placeholders[0], parts.subject, self._last_values())
            lines = writer.body(parts.body, [Expression(item), *inputs], ending, slots, names)
            loop = Clause("for", f"{item} in {writer.value(parts.subject)}", [lines])
        block = Block([plain(f"{before[0]} = {before[1]}"), loop] if before[0] else [loop])
        if self.is_whole:
            texts = [str(target) for target in self.targets]
            block.clauses.append(plain(f"{writer.name(node)} = ({', '.join(texts)}{',' * (len(texts) == 1)})"))
        if self.leaving is not None or self.breaking is not None:
            self._decide(block)
        if self.returning is not None and self.leaving is None:
            returned = self.items[self.returning]
            assert returned is not None
            writer.never.add(returned)
        return block

    def _decide(self, block: Block) -> None:
        """Add to the loop what the branch after it does."""
        writer, after = self.writer, self.leaving or self.breaking
        assert after is not None
        for item, carried in self.shared:
            writer.texts[item] = writer.name(carried), ATOM
            writer.kept.add(carried)
        targets = targets_of(writer, after.branch)
        other = side_of(writer, after.branch, after.sides[0], targets)
        if not is_empty(other):
            block.clauses.append(Clause("else", "", [other]) if after is self.breaking else plain(other))
        block.leaves = leaves(other)
        if after is self.breaking and block.leaves:
            then = side_of(writer, after.branch, after.sides[1], targets)
            block.clauses += [] if is_empty(then) else [plain(then)]
            block.leaves = leaves(then)
        writer.skipped.update(after.skipped)
        writer.decided[self.node] = after.branch

    # ---- returning from inside the loop

    def _needed(self) -> frozenset[int]:
        """The carried values, as those of the body's end, that are returned."""
        return frozenset(i + 1 for i in self._returned())

    def _returned(self) -> list[int]:
        """The carried values that are returned, in the order in which they stand there."""
        ending, output = self.writer.ending, self.writer.output
        found: list[Any] = []
        if isinstance(ending, NextRound) and ending.exit is not None and output is not None:
            values = values_of(output, self.writer.slots)
            found += [values[j] for j in sorted(ending.exit.needs)]
        if self.leaving is not None:
            branch = self.leaving.branch
            body = branch._args[1 if self.leaving.sides[1] else 2]
            around = dict(zip(body.placeholders(), branch._args[3], strict=True))
            found += [around[inner] for inner in nodes_in(body.output_node()._args)]
        return [self.items.index(op) for op in found if type(op) is Node and op in self.items]

    def _return_lines(self, leaf: ReadableWriter, values: Sequence[Any]) -> list[str]:
        """Write what the program returns at the end of a round that gives these values."""
        writer = self.writer
        texts = [text_of(leaf, value) for value in values[1:]]
        computed = [i for i, text in enumerate(texts) if not is_simple(text) and i != self.returning]
        lines = []
        if [i for i in self._returned() if i in computed] != computed:
            for i in computed:
                name = writer.fresh(self.inputs[i].name)
                lines.append(f"{name} = {texts[i]}")
                texts[i] = name

        def inside(value: Any) -> Any:
            return Expression(texts[self.items.index(value)]) if type(value) is Node and value in self.items else value

        if self.leaving is None:
            ending = writer.ending
            assert isinstance(ending, NextRound)
            assert ending.exit is not None
            assert writer.output is not None
            given = [inside(value) for value in values_of(writer.output, writer.slots)]
            outside = [Expression(writer.value(value)) if type(value) is Node else value for value in given]
            return [*lines, *ending.exit.write(leaf, outside)]
        branch = self.leaving.branch
        inner = side_of(writer, branch, self.leaving.sides[1], [], inside)
        for statement in inner.plan:
            code = statement.code
            written = [code] if isinstance(code, str) else [line for clause in code.clauses for line in clause.body]
            lines += [str(line) for line in written if line]
        return lines

"""Branches as `if` statements and as expressions.

A branch whose bodies are single expressions is an expression, `a if p else b`, `p and a`. The variables that a
branch gives values to are assigned inside it; where it is the last thing that its body does, its sides end the body:
they return, break or go on themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphwright.codegen.readable.endings import Assigns, NextRound, Returns, expression_of
from graphwright.codegen.readable.expressions import Expression, Negation, in_place, tested
from graphwright.codegen.readable.splits import Outside, Slot
from graphwright.codegen.readable.unpacking import unpacked_items
from graphwright.codegen.readable.user_statements import is_from_assert
from graphwright.codegen.readable.writer import Block, Clause, ReadableWriter, plain
from graphwright.codegen.spelling.operators import AND_THEN, NOT, OR_ELSE, TERNARY
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node
from graphwright.ops import ends_by_raising, is_region, raise_error

_LONGEST_EXPRESSION, _LONGEST_CONDITION = 88, 200  # characters; of `p and a`, of which each part has a line


def is_and_or(writer: ReadableWriter, node: Node) -> bool:
    """Tell whether a branch is written as `p and a` or `p or a`, with its condition once."""
    pred, *bodies, operands = node._args
    if not node.users or unpacked_items(node) or not all(isinstance(body, Graph) for body in bodies):
        return False
    bare = [_is_operand(body, operands, pred) and len(body.nodes) == len(operands) + 1 for body in bodies]
    if sum(bare) != 1 or list(operands).count(pred) != 1:
        return False
    other = bodies[bare.index(False)]
    inputs = other.placeholders()
    if inputs[list(operands).index(pred)].users:
        return False
    known = writer.tried.get(node)
    if known is None:
        known = writer.tried[node] = writer.body(other, operands, None, role="part").is_expression
    return known


def branch_expression(writer: ReadableWriter, node: Node) -> tuple[str, int] | None:
    """Write a branch as an expression, where both its bodies are expressions; else None."""
    known = writer.expressions.get(node)
    if known is not None:
        return known
    pred, true, false, operands = node._args
    if unpacked_items(node) or not node.users or not isinstance(true, Graph) or not isinstance(false, Graph):
        return None
    if writer.split is not None and writer.split.branch is node:
        return None
    if writer.statements.get(node):  # tried before, inside another body: each level would try those within it again
        return None
    bare = _is_operand(true, operands, pred), _is_operand(false, operands, pred)
    sides = []
    for body in (true, false):
        inner = writer.body(body, operands, None, role="step" if bare[0] is bare[1] else "part")
        if not inner.is_expression:
            writer.statements[node] = any(is_region(each) for each in body.nodes)
            return None
        sides.append(inner)
    test = writer.value(pred)
    then, other = (in_place(inner.result_code, strength) for inner, strength in zip(sides, _STRENGTHS, strict=True))
    if bare[1] and not bare[0]:  # `p and a`
        text = f"{writer.operand(pred, AND_THEN)} and {in_place(sides[0].result_code, AND_THEN)}", AND_THEN
    elif bare[0] and not bare[1]:
        text = f"{writer.operand(pred, OR_ELSE)} or {in_place(sides[1].result_code, OR_ELSE)}", OR_ELSE
    elif writer.name(node) in (then, other) and (
        node in writer.kept or node in writer.renewed
    ):  # `x = a if p else x`: only one side assigns
        return None
    else:
        is_node = type(pred) is Node
        condition = in_place(tested(writer.node(pred)), OR_ELSE) if is_node else writer.operand(pred, OR_ELSE)
        text = f"{then} if {condition} else {other}", TERNARY
    longest = _LONGEST_EXPRESSION if text[1] == TERNARY else _LONGEST_CONDITION
    is_long = len(text[0]) > longest or len(test) > longest
    if is_long and not (pred in operands and type(pred) is Node and pred in writer.inside):
        return None
    writer.expressions[node] = text
    return text


_STRENGTHS = (OR_ELSE, TERNARY)  # of what stands before `if` and after `else`


def _is_operand(body: Graph, operands: Any, wanted: Any) -> bool:
    """Tell whether a body gives back one of its inputs, and that is the wanted value."""
    inputs = body.placeholders()
    value = body.output_node()._args[0]
    return type(value) is Node and value in inputs and operands[inputs.index(value)] is wanted


def branch_block(writer: ReadableWriter, node: Node) -> Block:
    """Write a branch as an `if` statement."""
    pred = node._args[0]
    if not all(isinstance(body, Graph) for body in node._args[1:3]):
        raise GraphError(f"{node.name!r} has bodies that are no graphs: they cannot be written", at=node.origin)
    test = _test(writer, pred)
    targets = targets_of(writer, node)
    then, other = (side_of(writer, node, is_true, targets) for is_true in (True, False))
    if writer.returned is node:
        return Block([Clause("if", test, [then]), plain(other)], leaves=True)
    is_at_end = writer.split is not None and writer.split.branch is node
    if is_at_end and leaves(then):
        after = [] if is_empty(other) else [plain(other)]
        return Block([Clause("if", test, [then]), *after], leaves=leaves(other))
    if is_at_end and leaves(other):
        rest = [] if is_empty(then) else [plain(then)]
        return Block([Clause("if", writer.negation(pred), [other]), *rest])
    if is_empty(then) and not is_empty(other):
        if is_at_end and isinstance(writer.ending, NextRound) and _is_long(other):
            return Block([Clause("if", test, ["continue"]), plain(other)])
        return Block([_assertion(test, other) or Clause("if", writer.negation(pred), [other])])
    if is_empty(other):
        return Block([_assertion(writer.negation(pred), then) or Clause("if", test, [then])])
    return Block([Clause("if", test, [then]), Clause("else", "", [other])])


def _assertion(condition: str, side: ReadableWriter) -> Clause | None:
    """Write a side that does nothing but raise as the `assert` that the source has; None for other sides."""
    statements = [statement for statement in side.written() if isinstance(statement.code, str)]
    if len(side.written()) != 1 or len(statements) != 1:
        return None
    raised, code = statements[0].node, str(statements[0].code)
    if raised._target is not raise_error or raised._kwargs or not is_from_assert(raised):
        return None
    message = code.removeprefix("raise AssertionError")
    return plain(f"assert {condition}{f', {message[1:-1]}' if message else ''}") if message != code else None


def _test(writer: ReadableWriter, pred: Any) -> str:
    """Write a condition where only its truth counts: `a` for `not not a` and `bool(a)`."""
    condition = writer.node(pred) if type(pred) is Node else None
    inner = condition.inner if isinstance(condition, Negation) else None
    if isinstance(inner, Negation):
        return in_place(inner.inner, NOT)
    return writer.value(pred) if condition is None else tested(condition)[0]


def side_of(
    writer: ReadableWriter,
    node: Node,
    is_true: bool,
    targets: list[str],
    instead: Callable[[Any], Any] = lambda value: value,
) -> ReadableWriter:
    """Write one side of a branch; where it does not end the body around it, `targets` get its values.

    `instead` gives what stands for a value from around the branch.
    """
    body, operands = node._args[1 if is_true else 2], [instead(value) for value in node._args[3]]
    if writer.returned is node:
        return writer.body(body, operands, None, role="end")
    split = writer.split
    if split is not None and split.branch is node:
        ending = writer.ending
        if ending is None:
            assert writer.output is not None
            ending = Returns(writer.output._args[0], split.items)
        return writer.body(body, operands, ending, [_written(writer, slot, instead) for slot in split.slots[is_true]])
    slots: list[Slot] = [*range(len(targets))] if unpacked_items(node) else [None] * len(targets)
    return writer.body(body, operands, Assigns(targets), slots)


def _written(writer: ReadableWriter, slot: Slot, instead: Callable[[Any], Any]) -> Slot:
    if not isinstance(slot, Outside):
        return slot
    value = instead(slot.value)
    if isinstance(value, Expression | bool | int | float | None):
        return Outside(value)
    written = expression_of(writer, value)
    return Outside(written if isinstance(written, Expression) else Expression(*written))


def targets_of(writer: ReadableWriter, node: Node) -> list[str]:
    """The variables that a branch gives values to."""
    if writer.returned is node:
        writer.names.release(writer.name(node))  # no variable holds the value
        return []
    if not node.users or (writer.split is not None and writer.split.branch is node):
        return []
    items = unpacked_items(node)
    if items is None:
        return [writer.name(node)]
    return [writer.fresh("_") if item is None else writer.name(item) for item in items]


# ---- what has been written


def is_empty(writer: ReadableWriter) -> bool:
    """Tell whether a body does nothing."""
    return not writer.written()


def leaves(writer: ReadableWriter) -> bool:
    """Tell whether nothing that comes after a body is ever reached."""
    if ends_by_raising(writer.graph) or writer.ending is None:
        return True
    last = writer.written()[-1:]
    return any(isinstance(statement.code, Block) and statement.code.leaves for statement in last)


def _is_long(writer: ReadableWriter) -> bool:
    """Tell whether a body is more than one simple statement."""
    statements = writer.written()
    blocks = [statement.code for statement in statements if isinstance(statement.code, Block)]
    return len(statements) > 1 or any(clause.keyword for block in blocks for clause in block.clauses)

"""Loops that the source writes as comprehensions: `[row * 2 for row in x if row > 0]`, `any(row > 0 for row in x)`.

In the graph the first is an empty list and a loop that appends to it, the second a loop that gives whether it was left.
They are one expression where the loop does nothing else, and what an iteration computes is one.
"""

from __future__ import annotations

from graphwright.codegen.readable.endings import NextRound, Tests
from graphwright.codegen.readable.expressions import AnyNot, Expression, Negation
from graphwright.codegen.readable.loop_headers import header_of
from graphwright.codegen.readable.splits import Outside, truth_of
from graphwright.codegen.readable.user_statements import is_from_for
from graphwright.codegen.readable.writer import Block, Clause, ReadableWriter
from graphwright.codegen.spelling.operators import ATOM, PRIMARY, TERNARY
from graphwright.ir import Graph, Node
from graphwright.ops import LoopParts, cond, for_loop, loop_parts

_LONGEST = 100  # characters


def comprehensions(nodes: list[Node]) -> dict[Node, Node]:
    """Map each loop that may be a comprehension to the list that it makes, or to whether it was left."""
    found: dict[Node, Node] = {}
    for node in nodes:
        if node._target is not for_loop or not isinstance(node._args[1], Graph):
            continue
        parts, is_known = loop_parts(node), node.origin is not None
        if parts.carried == (False,) and parts.breaks and is_known and not is_from_for(node):
            if len(node.users) == 1 and _gives_only_whether_it_ends(parts):
                found[node] = next(iter(node.users))
            continue
        if node.users:
            continue
        if parts.carried or parts.breaks or not is_known or is_from_for(node):
            continue
        made = _list_made(parts.body, parts.operands)
        if made is None or made._op == "placeholder" or made in found.values():  # another body's list may hold more
            continue
        if all(user is node or node < user for user in made.users):
            found[node] = made
    return found


def _gives_only_whether_it_ends(parts: LoopParts) -> bool:
    """Tell whether a loop carries nothing but whether it was left."""
    inputs = parts.body.placeholders()
    given = parts.given[0]
    return not inputs[1].users and (given is parts.stop or truth_of(given, parts.stop) is True)


def _list_made(body: Graph, operands: tuple[Node, ...]) -> Node | None:
    """The empty list that a body appends to, as the last thing that it does."""
    inputs = body.placeholders()
    last = body.output_node()._prev
    if last._target is cond and isinstance(last._args[1], Graph):
        side, inner = last._args[1], last._args[1].placeholders()
        other = last._args[2]
        if any(node._op not in ("placeholder", "output") for node in other.nodes):
            return None
        held = _list_made_by(side, inner, last._args[3])
        return _list_made_by(body, inputs, operands, held)
    return _list_made_by(body, inputs, operands)


def _list_made_by(body: Graph, inputs: list[Node], operands: tuple[Node, ...], held: Node | None = None) -> Node | None:
    if held is None:
        last = body.output_node()._prev
        held = last._args[0] if last._op == "call_method" and last._target == "append" and not last.users else None
    if type(held) is not Node or held not in inputs or len(held.users) != 1:
        return None
    made = operands[inputs.index(held) - len(inputs)] if inputs.index(held) >= len(inputs) - len(operands) else None
    if made is None or made._op == "placeholder":
        return made
    is_empty = made._target is list and not made._args and not made._kwargs and made._op == "call_function"
    return made if is_empty and list(operands).count(made) == 1 else None


def comprehension(writer: ReadableWriter, loop: Node, made: Node) -> tuple[str, int] | None:
    """Write a loop as a comprehension; None where it takes statements."""
    parts = loop_parts(loop)
    if parts.breaks:
        return _search(writer, parts)
    with writer.shadowing(parts.body, parts.operands):
        item, names = header_of(writer, next(iter(parts.body.nodes)), parts.subject, {})
        body = writer.body(parts.body, [Expression(item), *parts.operands], NextRound([]), [Outside(False)], names)
    condition, element = "", _only_element(body)
    if element is None:
        clause = _only_clause(body)
        if clause is None or clause.keyword != "if" or len(clause.body) != 1 or isinstance(clause.body[0], str):
            return None
        condition, element = f" if {clause.rest}", _only_element(clause.body[0])
    if element is None:
        return None
    iterable = writer.operand(parts.subject, TERNARY + 1) if condition else writer.value(parts.subject)
    text = f"[{element} for {item} in {iterable}{condition}]"
    return (text, ATOM) if len(text) <= _LONGEST else None


def _only_element(body: ReadableWriter) -> str | None:
    """What a body appends to the list, where that is all that it does."""
    statements = body.written()
    return body.appended.get(statements[0].node) if len(statements) == 1 else None


def _only_clause(body: ReadableWriter) -> Clause | None:
    """The clause of a body that is one compound statement with one clause."""
    statements = body.written()
    block = statements[0].code if len(statements) == 1 else None
    return block.clauses[0] if isinstance(block, Block) and len(block.clauses) == 1 else None


def _search(writer: ReadableWriter, parts: LoopParts) -> tuple[str, int] | None:
    """Write a loop that gives whether it was left as `any`; None where that takes statements."""
    with writer.shadowing(parts.body, parts.operands):
        item, names = header_of(writer, next(iter(parts.body.nodes)), parts.subject, {})
        given = parts.given[0]
        if given is not parts.stop:
            names = {**names, given: "_"}  # the same as a bool
        body = writer.body(parts.body, [Expression(item), False, *parts.operands], Tests(), [0], names)
    if not body.is_expression:
        return None
    test, rest = body.result_code, f" for {item} in {writer.value(parts.subject)}"
    found = AnyNot.of(test, rest) if isinstance(test, Negation) else Expression(f"any({test[0]}{rest})", PRIMARY)
    return found if len(found.text) <= _LONGEST else None

"""Attempts as `try` statements, with what is done where they fail in their `except`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from graphwright.codegen.readable.branches import is_empty, leaves, side_of, targets_of
from graphwright.codegen.readable.endings import Assigns
from graphwright.codegen.readable.unpacking import unpacked_items
from graphwright.codegen.readable.writer import Block, Clause, ReadableWriter, plain
from graphwright.codegen.spelling.operators import ATOM
from graphwright.errors import GuardError
from graphwright.ir import Graph, Node
from graphwright.ops import cond, ends_by_raising


def attempt_block(writer: ReadableWriter, node: Node) -> Block:
    """Write a body under `try`: the error that it raised, or None, and its values get variables."""
    _, body, _, operands, options = node._args
    items = unpacked_items(node)
    handler = _handler_of(node, items)
    if handler is not None:
        return _handled_block(writer, node, handler, items or [])
    names = items or [None] * (options["count"] + 1)
    targets = [writer.fresh("_") if item is None else writer.name(item) for item in names]
    error, *values = targets
    caught = writer.fresh("caught")
    writer.names.share(caught)
    lines: list[ReadableWriter | str] = [writer.body(body, operands, Assigns(values), [*range(len(values))])]
    if not ends_by_raising(body):
        lines.append(f"{error} = None")
    left: list[ReadableWriter | str] = [f"{error} = {caught}", *([f"{' = '.join(values)} = None"] if values else [])]
    clauses = [Clause("try", "", lines), *_handlers(writer, node, caught, left)]
    if node.users and items is None:
        clauses.append(plain(f"{writer.name(node)} = ({', '.join(targets)},)"))
    return Block(clauses)


def _handlers(writer: ReadableWriter, node: Node, name: str, body: list[ReadableWriter | str]) -> list[Clause]:
    """Write what catches the errors of a `try`, where these get a name: but for what a capture took for granted."""
    errors = node._args[4]["errors"]
    kind = writer.value(errors[0] if len(errors) == 1 else errors)
    clause = Clause("except", f"{kind} as {name}" if name else kind, body)
    if issubclass(GuardError, errors) and any(map(_is_guard, node._args[1].all_nodes())):
        return [Clause("except", writer.names.function(GuardError), ["raise"]), clause]
    return [clause]


def _handler_of(node: Node, items: Sequence[Node | None] | None) -> Node | None:
    """The branch right after a `try` that asks whether it has caught an error, and alone needs what that gives.

    Other nodes may need that, too, where the branch raises if there was an error.
    """
    error, *values = items or [None]
    test = node._next
    while test in (items or ()):
        test = test._next
    if error is None or test._target is not operator.is_ or test._args != (error, None):
        return None
    branch = test._next
    if list(test.users) != [branch] or branch._target is not cond or branch._args[0] is not test:
        return None
    then, other, operands = branch._args[1:]
    if not isinstance(then, Graph) or not isinstance(other, Graph) or test in operands:
        return None
    used = {user for value in values if value is not None for user in value.users}
    if not {*error.users} <= {test, branch} or not (used <= {branch} or ends_by_raising(other)):
        return None
    is_read = _reads(then, operands, [error]) or _reads(other, operands, values)
    return None if is_read else branch


def _reads(body: Graph, operands: Sequence[Any], values: Sequence[Any]) -> bool:
    """Tell whether a body does something with values from around it."""
    inputs = zip(operands, body.placeholders(), strict=True)
    return any(inner.users and operand in values for operand, inner in inputs if type(operand) is Node)


def _handled_block(writer: ReadableWriter, node: Node, branch: Node, items: Sequence[Node | None]) -> Block:
    """Write a `try` whose branch is what it does where it has caught an error, or else."""
    _, body, _, operands, _ = node._args
    error, *values = items
    assert error is not None
    targets = targets_of(writer, branch)
    then = branch._args[1]
    given = then.output_node()._args[0] if not ends_by_raising(then) else None
    around = dict(zip(then.placeholders(), branch._args[3], strict=True))
    passed = [given] if unpacked_items(branch) is None or not isinstance(given, tuple) else [*given]
    results = unpacked_items(branch) or [branch]
    for i, (result, inner) in enumerate(zip(results, passed, strict=False)):
        held = around.get(inner) if type(inner) is Node else None
        if result is None or result in writer.texts or not targets:
            continue
        if held is not None and held in values and held not in writer.kept:
            targets[i] = writer.name(held)  # one variable holds what the `try` gives and what comes after it
            writer.texts[result] = targets[i], ATOM
            writer.kept.add(held)
    names = [writer.fresh("_") if item is None else writer.name(item) for item in values]
    tried = writer.body(body, operands, Assigns(names), [*range(len(values))])
    sides = [side_of(writer, branch, is_true, targets) for is_true in (True, False)]
    name = writer.name(error) if _reads(branch._args[2], branch._args[3], [error]) else ""
    clauses = [Clause("try", "", [tried]), *_handlers(writer, node, name, [sides[1]])]
    if not is_empty(sides[0]):
        clauses.append(plain(sides[0]) if leaves(sides[1]) else Clause("else", "", [sides[0]]))
    written = (branch, branch._args[0], *(unpacked_items(branch) or ()))
    writer.skipped.update(used for used in written if used is not None)
    writer.decided[node] = branch
    return Block(clauses, leaves=leaves(sides[0]) and leaves(sides[1]))


def _is_guard(node: Node) -> bool:
    """Tell whether a node checks what the capture took for granted: that this fails is no error of the program."""
    return getattr(node._target, "__module__", None) == "graphwright.runtime.guards"

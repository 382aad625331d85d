"""Which operations are written inside which: the graph's straight line cut into statements.

An operation stands inside another one where the source wrote it so, as far as the graph tells: the source gives its
value no name, one operation reads it, and both come from one statement. Evaluation stays in the order of the nodes:
operations wait on a stack, and only its top, in order, may go inside the next one.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from graphwright.codegen.operators import STATEMENTS
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import (
    cond,
    enter_context,
    exit_context,
    for_loop,
    is_attempt,
    is_region,
    raise_error,
    transformed,
    unpack,
    while_loop,
    write_attribute,
)

if TYPE_CHECKING:
    from graphwright.codegen.endings import Block
    from graphwright.codegen.readable import _ReadableWriter
    from graphwright.ir import Origin

__all__ = ["Statement", "is_statement", "statement_key", "statements_of", "unpacked_items", "unpacking_of"]

# The node, the text of its statement (a block for a branch or loop), the named values that it reads.
Statement = tuple[Node, "str | Block", list[Node]]
_LONGEST_INSIDE = 88  # characters: a longer expression gets a statement of its own


def statements_of(writer: _ReadableWriter) -> list[Statement]:
    """Cut a graph into statements, writing each."""
    plan: list[Statement] = []
    inside = writer.inside
    waiting: list[Node] = []
    reads: dict[Node, list[Node]] = {}

    def settle(count: int) -> None:
        """Make statements of the expressions that have waited longest."""
        for node in waiting[:count]:
            text, _ = inside.pop(node)
            plan.append((node, f"{writer.name(node)} = {text}", reads.pop(node)))
        del waiting[:count]

    unpacked: set[Node] = set()
    lists = set(writer.lists.values())
    for node in writer.nodes:
        if node._op == "placeholder":
            if node in writer.texts:  # the input of a body
                continue
            renamed = writer.bind_parameter(node)
            if renamed:
                plan.append((node, renamed, []))
            continue
        if node in unpacked or node in writer.skipped or node in lists:  # it is written elsewhere
            continue
        mentioned = list(dict.fromkeys(_in_order_of_evaluation(node)))
        held = _held(waiting, mentioned, node, writer)
        block: Block | None = None
        made = writer.lists.get(node)
        if made is not None:  # a loop that is a comprehension, if it takes no statements
            settle(len(waiting) - len(held))
            written = writer.comprehension(node, made)
            if written is None and made._target is list:
                plan.append((made, writer.statement(made), []))
            elif written is not None:
                writer.skipped.add(node)
                read = [name for used in mentioned for name in (reads.pop(used) if used in held else [used])]
                read = [used for used in read if used is not made]
                for used in held:
                    del inside[used]
                del waiting[len(waiting) - len(held) :]
                if may_stand_inside(made, writer):
                    inside[made], reads[made] = written, read
                    waiting.append(made)
                else:
                    plan.append((made, f"{writer.name(made)} = {written[0]}", read))
                continue
        if is_region(node) or node._target is transformed:
            settle(len(waiting) - len(held))
            block = writer.block(node)
        waits = block is None and may_stand_inside(node, writer)
        if waits:  # it waits, too; only what it reads by name must have one
            settle(
                max((waiting.index(used) + 1 for used in mentioned if used in inside and used not in held), default=0)
            )
        elif not _commutes(node, waiting):
            settle(len(waiting) - len(held))
        read = [name for used in mentioned for name in (reads.pop(used) if used in held else [used])]
        if block is not None:
            read += writer.read_with(node, held)
        if waits:
            writer.keep_inside(node)
            reads[node] = read
        else:
            if node._op == "output":
                is_over = plan and not isinstance(plan[-1][1], str) and plan[-1][1].leaves
                if not is_over and writer.split is None:
                    # A round that ends with a test stands in the place of that.
                    end = held[0] if held and writer.ends_with_test(held[0]) else node
                    plan.append((end, writer.result(node), read))
            else:
                plan.append((node, block or writer.statement(node), read))
            unpacking = node if block is None or node._target is not transformed else unpacking_of(node)
            if unpacking is not None:
                unpacked.update(item for item in (unpacking, *(unpacked_items(unpacking) or ())) if item is not None)
        for used in held:
            del inside[used]
        if held:
            del waiting[len(waiting) - len(held) :]
        if node in inside:
            waiting.append(node)
            if len(inside[node][0]) > _LONGEST_INSIDE and node.origin is not None:
                settle(len(waiting))
        if node._op == "output":
            break
    settle(len(waiting))
    return plan


def _held(waiting: list[Node], mentioned: list[Node], node: Node, writer: _ReadableWriter) -> list[Node]:
    """The top of the stack, as far down as it may go inside a node: read by it, in this order, in one statement."""
    if node._target is transformed:  # what a key orders is evaluated where it stands, what the key uses, later
        mentioned = [used for used in nodes_in(node._args[2]) if used not in node._args[3]]
        mentioned = mentioned if node._args[0] in _ORDERINGS else []
    elif is_region(node):  # only the condition: operands are used inside, once, more often or not at all
        mentioned = [used for used in mentioned[:1] if used is node._args[0]] if node._target is not while_loop else []
    if node._op == "output" and waiting and writer.ends_with_test(waiting[-1]):
        return waiting[-1:]
    order = {used: i for i, used in enumerate(mentioned)}
    held: list[Node] = []
    for used in reversed(waiting):
        if (
            used not in order
            or not (writer.is_test or _same_statement(used, node))
            or (held and order[used] > order[held[0]] and not _may_wait_for(used, held))
        ):
            break
        held.insert(0, used)
    return held


def _may_wait_for(node: Node, others: list[Node]) -> bool:
    """Tell whether an item may be taken after attributes are read: `self.table[path[-1]]`."""
    return node._target is operator.getitem and all(other._op == "get_attr" for other in others)


def unpacked_items(node: Node) -> list[Node | None] | None:
    """The items of a node with several values, None for unused ones, where taking them is all that is done with it.

    That is so of `unpack`, written as `a, b = value`, and of branches and loops.
    """
    count = _count_of_values(node)
    if count is None or not node.users:
        return None
    items: list[Node | None] = [None] * count
    following = node
    for user in node.users:
        following = following._next
        index = user._args[1] if user._target is operator.getitem else None
        if user is not following or type(index) is not int or not 0 <= index < len(items) or items[index] is not None:
            return None
        items[index] = user
    return items if len(items) > 1 or node._target is unpack or is_region(node) or is_attempt(node) else None


def unpacking_of(node: Node) -> Node | None:
    """The node after this one that only takes its value apart, where that is all that is done with it."""
    if is_attempt(node):
        return node if unpacked_items(node) is not None else None
    following = node._next
    is_alone = list(node.users) == [following] and following._target is unpack
    return following if is_alone and unpacked_items(following) else None


def _count_of_values(node: Node) -> int | None:
    if is_attempt(node):
        return 1 + int(node._args[4]["count"])
    if node._target is unpack and len(node._args) == 2 and type(node._args[1]) is int:
        return node._args[1]
    if node._target is cond and all(isinstance(body, Graph) for body in node._args[1:3]):
        values = [body.output_node()._args[0] for body in node._args[1:3]]
        if all(type(value) is tuple for value in values) and len(values[0]) == len(values[1]):
            return len(values[0])
    if is_region(node) and node._target is not cond:
        return len(node._args[2])
    return None


def may_stand_inside(node: Node, writer: _ReadableWriter) -> bool:
    """Tell whether a node is an expression that the source does not name and exactly one place reads."""
    if node.type is not None or not node.users or is_statement(node) or node._op == "output":
        return False
    readers = list(node.users) if len(node.users) == 1 else writer.readers(node)
    if len(readers) != 1:
        return False
    if node._target is unpack and unpacked_items(node):  # `a, = value`
        return False
    (user,) = readers
    times = sum(used is node for used in (*nodes_in(user._args), *nodes_in(user._kwargs)))
    is_test = writer.is_test and user._op == "output"  # which gives the test alone
    if times != 1 and not is_test and not (times == 2 and user._target is cond and writer.is_and_or(user)):
        return False
    origin = node.origin
    if origin is None:  # what the capture itself made: the object that is returned
        is_made = user._op == "output" and isinstance(node._target, type)
        return is_made or writer.is_test or _is_iterator(node, user)
    return not origin.target


def _is_iterator(node: Node, user: Node) -> bool:
    """Tell whether a node makes what a loop goes through: `range(n)`, or `zip(x, y)` in `enumerate(zip(x, y))`."""
    return node._target in _ITERATORS and (user._target is for_loop or user._target in _ITERATORS)


_ORDERINGS = ("sorted", "max", "min")
_ITERATORS = (range, enumerate, zip, reversed)
_OWN_STATEMENTS = STATEMENTS | {enter_context, exit_context, raise_error, write_attribute}


def is_statement(node: Node) -> bool:
    """Tell whether a node is written as a statement, not as an expression."""
    try:
        is_own = node._op == "call_function" and node._target in _OWN_STATEMENTS
        return is_own and (not node._kwargs or node._target in (enter_context, raise_error))
    except TypeError:  # a callable object that has no hash
        return False


def _commutes(node: Node, waiting: list[Node]) -> bool:
    """Tell whether a node may be computed before the waiting ones: the read of a size before reads of attributes."""
    is_read = (node._op == "call_method" and node._target == "size") or node._target is getattr
    if not is_read or any(other._op != "get_attr" for other in waiting):
        return False
    return not set(waiting) & set(nodes_in(node._args))


def _in_order_of_evaluation(node: Node) -> list[Node]:
    """The nodes whose values a statement reads, as Python comes to them: `a[k] = v` evaluates v first."""
    args = node._args
    if node._target is operator.setitem and is_statement(node):
        args = (args[-1], *args[:-1])
    elif node._target is operator.contains:  # `k in a` evaluates k first
        args = args[::-1]
    return [*nodes_in(args), *nodes_in(node._kwargs)]


def _same_statement(one: Node, other: Node) -> bool:
    a, b = one.origin, other.origin
    if a is None:
        return other._op == "output" or _is_iterator(one, other)
    return b is not None and statement_key(a) == statement_key(b)


def statement_key(origin: Origin) -> tuple[Any, ...]:
    """What tells one run of one statement of the user's program from others."""
    return origin.file, origin.function, origin.statement, origin.module, origin.call

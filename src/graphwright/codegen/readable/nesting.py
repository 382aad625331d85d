"""Which operations are written inside which: the graph's straight line cut into statements.

An operation stands inside another one where the source wrote it so, as far as the graph tells: the source gives its
value no name, one operation reads it, and both come from one statement. Evaluation stays in the order of the nodes:
operations wait on a stack, and only its top, in order, may go inside the next one.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

from graphwright.codegen.function import is_plain_name
from graphwright.codegen.readable.unpacking import unpacked_inside, unpacked_items, unpacking_of
from graphwright.codegen.readable.user_statements import is_from_return
from graphwright.codegen.readable.variables import base_of
from graphwright.codegen.readable.writer import Block, ReadableWriter, Statement
from graphwright.codegen.spelling.operators import INPLACE, STATEMENTS
from graphwright.ir import Node, nodes_in
from graphwright.ops import (
    cond,
    enter_context,
    exit_context,
    for_loop,
    is_impure,
    is_region,
    raise_error,
    transformed,
    unpack,
    while_loop,
    write_attribute,
    write_variable,
    written_and_given,
)

_LONGEST_INSIDE = 88  # characters: a longer expression gets a statement of its own


def statements_of(writer: ReadableWriter) -> list[Statement]:
    """Cut a graph into statements, writing each."""
    return _Statements(writer).all()


class _Statements:
    """The statements of a body so far, and the expressions that wait to go inside a later one.

    Invariant: `waiting` has what `writer.inside` has that this body computes, in the order of evaluation.
    """

    def __init__(self, writer: ReadableWriter) -> None:
        self._writer = writer
        self._plan: list[Statement] = []
        self._waiting: list[Node] = []
        self._reads: dict[Node, list[Node]] = {}  # of those waiting, the named values that each reads
        self._parts: dict[Node, list[Node]] = {}  # of those that have waited, what is written inside each
        self._unpacked: set[Node] = set()  # written with the value that they are items of
        self._lists = set(writer.lists.values())  # written by the loops that make them

    def all(self) -> list[Statement]:
        """Write the nodes in their order."""
        left_after = self._writer.left_after
        nodes = [node for node in self._writer.nodes if node not in left_after]
        for node in [*nodes, *sorted(left_after)]:
            if node._op == "placeholder":
                self._parameter(node)
            elif node not in self._unpacked and node not in self._writer.skipped and node not in self._lists:
                self._operation(node)
        self._settle(len(self._waiting))
        return self._plan

    def _parameter(self, node: Node) -> None:
        if not self._writer.is_outermost:  # it stands for a value around the body
            return
        renamed = self._writer.bind_parameter(node)
        if renamed:
            self._plan.append(Statement(node, renamed, []))

    def _operation(self, node: Node) -> None:
        writer = self._writer
        mentioned = [used for used in dict.fromkeys(_in_order_of_evaluation(node)) if used not in writer.skipped]
        held = self._held(mentioned, node)
        if node in writer.lists and self._comprehension(node, mentioned, held):
            return
        block: Block | None = None
        if is_region(node) or node._target is transformed:
            self._settle(len(self._waiting) - len(held))
            block = writer.block(node)
        store = _stored_back(node, held, writer)
        if store is not None:
            self._update(node, store, mentioned, held)
        elif block is None and _may_stand_inside(node, writer) and not self._is_counted_before(node):
            self._wait(node, mentioned, held)
        else:
            self._state(node, block, mentioned, held)

    def _comprehension(self, loop: Node, mentioned: list[Node], held: list[Node]) -> bool:
        """Write a loop as a comprehension; answer whether it takes no statements."""
        writer, made = self._writer, self._writer.lists[loop]
        self._settle(len(self._waiting) - len(held))
        written = writer.comprehension(loop, made)
        if written is None:
            if made._target is list:
                self._plan.append(Statement(made, writer.statement(made), []))
            return False
        writer.skipped.add(loop)
        read = [used for used in self._named(mentioned, held) if used is not made]
        self._take(held)
        if _may_stand_inside(made, writer):
            writer.inside[made], self._reads[made], self._parts[made] = written, read, [loop]
            self._waiting.append(made)
        else:
            self._plan.append(Statement(made, f"{writer.name(made)} = {written[0]}", read))
        return True

    def _update(self, node: Node, store: Node, mentioned: list[Node], held: list[Node]) -> None:
        """Write `x[key] += value`: the item that is read, what changes it, and that it is stored back."""
        writer = self._writer
        self._settle(len(self._waiting) - len(held))
        read = self._named(mentioned, held)
        left, symbol = writer.inside[held[0]][0], INPLACE[node._target]  # type: ignore[index]
        self._plan.append(Statement(store, f"{left} {symbol} {writer.value(node._args[1])}", read))
        writer.skipped.add(store)
        writer.without_variable.add(node)
        self._take(held)

    def _wait(self, node: Node, mentioned: list[Node], held: list[Node]) -> None:
        """Keep an expression to go inside another; only what it reads by name must have one."""
        writer, waiting = self._writer, self._waiting
        named = [waiting.index(used) for used in mentioned if used in writer.inside and used not in held]
        self._settle(max(named, default=-1) + 1)
        read = self._named(mentioned, held)
        writer.keep_inside(node)
        self._take(held)
        self._reads[node], self._parts[node] = read, held
        waiting.append(node)
        is_whole = node._next._target is unpack and node._next in node.users  # it stands alone behind `a, b =`
        if len(writer.inside[node][0]) > _LONGEST_INSIDE and node.origin is not None and not is_whole:
            self._settle(len(waiting))

    def _state(self, node: Node, block: Block | None, mentioned: list[Node], held: list[Node]) -> None:
        """Write a node as a statement of its own."""
        writer = self._writer
        if not self._commutes(node) and not self._is_counted_before(node):
            self._settle(len(self._waiting) - len(held))
        read = self._named(mentioned, held)
        if block is not None:
            read += writer.read_with(node, held)
        if node._op == "output":
            self._end(node, read, held)
        else:
            self._plan.append(Statement(node, block or writer.statement(node), read))
            unpacking = node if block is None or node._target is not transformed else unpacking_of(node)
            if unpacking is not None:
                for each in (unpacking, *unpacked_inside(unpacking).values()):
                    self._unpacked.update(item for item in (each, *(unpacked_items(each) or ())) if item is not None)
        self._take(held)

    def _is_counted_before(self, node: Node) -> bool:
        """Tell whether a node counts what the waiting expressions do not read: `n = n + 1` comes before `if test:`."""
        writer, waiting = self._writer, self._waiting
        if node not in writer.kept or not _is_count(node):
            return False
        if set(waiting) & set(nodes_in(node._args)) or not all(_comes_before(node, other) for other in waiting):
            return False
        read = {writer.name(used) for other in waiting for used in self._reads[other]}
        return writer.name(node) not in read and all(map(self._is_pure, waiting))

    def _commutes(self, node: Node) -> bool:
        """Tell whether a node may be computed before the waiting ones: what it takes from sizes or an attribute.

        The waiting ones leave these as they are, and the node reads nothing that they compute.
        """
        is_read = node._target is getattr or _is_number(node)
        return (
            is_read
            and not set(self._waiting) & set(nodes_in(node._args))
            and all(map(self._keeps_sizes, self._waiting))
        )

    def _keeps_sizes(self, waiting: Node) -> bool:
        return self._writer.keeps_sizes(waiting) and all(map(self._keeps_sizes, self._parts.get(waiting, ())))

    def _is_pure(self, waiting: Node) -> bool:
        return not is_impure(waiting) and all(map(self._is_pure, self._parts.get(waiting, ())))

    def _held(self, mentioned: list[Node], node: Node) -> list[Node]:
        """The top of the stack, as far down as it may go inside a node: read by it, in this order, in one statement."""
        writer, waiting = self._writer, self._waiting
        if node._target is transformed:  # what a key orders is evaluated where it stands, what the key uses, later
            mentioned = [used for used in nodes_in(node._args[2]) if used not in node._args[3]]
            mentioned = mentioned if node._args[0] in _ORDERINGS else []
        elif is_region(node):  # only the condition: operands are used inside, once, more often or not at all
            is_first = node._target is not while_loop and mentioned[:1] == [node._args[0]]
            mentioned = mentioned[:1] if is_first else []
        if node._op == "output" and waiting and writer.ends_with_test(waiting[-1]):
            return waiting[-1:]
        order = {used: i for i, used in enumerate(mentioned)}
        held: list[Node] = []
        for used in reversed(waiting):
            if (
                used not in order
                or not (writer.is_test or _same_statement(used, node) or _is_returned_at_end(used, node, writer))
                or (held and order[used] > order[held[0]] and not self._may_wait_for(used, held))
            ):
                break
            held.insert(0, used)
        return held

    def _may_wait_for(self, node: Node, others: list[Node]) -> bool:
        """Tell whether a waiting node may be computed after others that were computed after it.

        An item may be taken after attributes are read, `self.table[path[-1]]`, and what writes to nothing, after
        what an operator or attribute gives that does not either: `0.1 * step * x.sum()`.
        """
        if node._target is operator.getitem and all(other._op == "get_attr" for other in others):
            return True
        is_plain = all(_is_count(other) or other._target is getattr for other in others)
        return is_plain and self._is_pure(node) and all(map(self._is_pure, others))

    def _end(self, output: Node, read: list[Node], held: list[Node]) -> None:
        """Write how the body ends, where what is written before it has not said that."""
        last = self._plan[-1].code if self._plan else ""
        if (isinstance(last, Block) and last.leaves) or self._writer.split is not None:
            return
        end = output
        if held and self._writer.ends_with_test(held[0]):  # a round that ends with a test stands in the place of that
            end = held[0]
        elif held and _is_returned_at_end(held[-1], output, self._writer):
            end = held[-1]
        self._plan.append(Statement(end, self._writer.result(output), read))

    # ---- the expressions that wait

    def _settle(self, count: int) -> None:
        """Make statements of the expressions that have waited longest."""
        for node in self._waiting[:count]:
            text, _ = self._writer.inside.pop(node)
            if not self._writer.stays_in_its_variable(node):
                text = f"{self._writer.name(node)} = {text}"
            self._plan.append(Statement(node, text, self._reads.pop(node)))
        del self._waiting[:count]

    def _named(self, mentioned: list[Node], held: list[Node]) -> list[Node]:
        """The named values that a statement reads, itself and by what goes inside it."""
        return [name for used in mentioned for name in (self._reads.pop(used) if used in held else [used])]

    def _take(self, held: list[Node]) -> None:
        """Let the last expressions wait no longer: they have gone inside another."""
        for used in held:
            del self._writer.inside[used]
            self._writer.without_variable.add(used)
        del self._waiting[len(self._waiting) - len(held) :]


def _is_returned_at_end(used: Node, node: Node, writer: ReadableWriter) -> bool:
    """Tell whether a body of the program ends with `return used`, as the source does."""
    return writer.is_end and node._op == "output" and is_from_return(used)


def _stored_back(node: Node, held: list[Node], writer: ReadableWriter) -> Node | None:
    """What puts an item or attribute back that an operator changes in place: `x[key] += value`, `x.data += value`."""
    if not held or len(node.users) != 1 or not is_statement(node) or node._target not in INPLACE:
        return None
    (store,) = node.users
    is_store = (is_statement(store) and store._target is operator.setitem) or assigns_attribute(store)
    if not is_store or store.users or store._prev is not node or held[0] is not node._args[0] or node.type is not None:
        return None
    return store if writer.statement(store) == f"{writer.inside[held[0]][0]} = {writer.name(node)}" else None


def _may_stand_inside(node: Node, writer: ReadableWriter) -> bool:
    """Tell whether a node is an expression that the source does not name and exactly one place reads."""
    if node.type is not None or not node.users or is_statement(node) or node._op == "output":
        return False
    readers = list(node.users) if len(node.users) == 1 else writer.readers(node)
    if len(readers) != 1:
        return False
    if node._target is unpack and unpacked_items(node):  # `a, = value`
        return False
    (user,) = readers
    is_changed = user._target in INPLACE and is_statement(user) and user._args[:1] == (node,)
    if is_changed and written_and_given(node) is not None:  # `x.add_(1); x += 1` names what both change
        return False
    if user not in writer.mentions:  # once: it may read very many
        writer.mentions[user] = Counter((*nodes_in(user._args), *nodes_in(user._kwargs)))
    times = writer.mentions[user][node]
    is_test = writer.is_test and user._op == "output"  # which gives the test alone
    if times != 1 and not is_test and not (times == 2 and user._target is cond and writer.is_and_or(user)):
        return False
    origin = node.origin
    if origin is None:  # what the capture itself made: the object that is returned
        is_made = user._op == "output" and isinstance(node._target, type)
        return is_made or writer.is_test or any(is_part(node, user) for is_part in _PARTS)
    return not origin.target


def _is_taken_apart(node: Node, user: Node) -> bool:
    """Tell whether it makes what is only taken apart: `x, y = self.stage_0(x)`."""
    return user._target is unpack and node._op != "placeholder"


def _is_asked_at_start(node: Node, user: Node) -> bool:
    """Tell whether it asks what a call starts with, which no line of the program does: `if self.mask is None:`."""
    if user._target is cond:
        return user._args[0] is node and node._target in _QUESTIONS
    is_part = user._target in _QUESTIONS and user._origin is None and len(user.users) == 1
    return is_part and _is_asked_at_start(user, next(iter(user.users)))


def _is_iterator(node: Node, user: Node) -> bool:
    """Tell whether it makes what a loop goes through: `range(n)`, `zip(x, y)` in `enumerate(zip(x, y))`, `y[1:]`."""
    is_read = node._op == "get_attr" or (node._target is operator.getitem and isinstance(node._args[1], slice))
    return (is_read or node._target in _ITERATORS) and (user._target is for_loop or user._target in _ITERATORS)


def _is_item_of(node: Node, user: Node) -> bool:
    """Tell whether it holds what is read or written in it outside of the program's lines: `self.counts[0] = count`."""
    is_read = node._op == "get_attr" or node._target is operator.getitem
    is_item = user._target in (operator.getitem, operator.setitem) or user._op == "call_method"
    return is_read and is_item and user._origin is None and user._args[:1] == (node,)


def _is_checked(node: Node, user: Node) -> bool:
    """Tell whether it is read for a check before the program: `expect_values("f", len_x=(len(x), 2))`."""
    if user._origin is not None or user._op != "call_function":
        return False
    if not user.users:
        return bool(user._args) and isinstance(user._args[0], str)  # a check says of which program it is
    return len(user.users) == 1 and _is_checked(user, next(iter(user.users)))


def _is_counted_at_end(node: Node, user: Node) -> bool:
    """Tell whether it counts, from sizes, a number that is only returned: `return (y, x.size(0) + 1)`."""
    if base_of(node.name) != (node._target if node._op == "call_method" else getattr(node._target, "__name__", "")):
        return False  # the source names it
    is_number = node._target == "size" if node._op == "call_method" else _is_count(node)
    return is_number and (user._op == "output" or (user._origin is None and _is_count(user)))


def _is_count(node: Node) -> bool:
    return node._op == "call_function" and any(node._target is count for count in _COUNTS)


_PARTS = (
    _is_counted_at_end,
    _is_iterator,
    _is_item_of,
    _is_asked_at_start,
    _is_checked,
    _is_taken_apart,
)  # of what nodes that no line of the program made are for
_ORDERINGS = ("sorted", "max", "min")
_ITERATORS = (range, enumerate, zip, reversed)
_QUESTIONS = (operator.is_, operator.eq, operator.not_, hasattr)
_COUNTS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
_OWN_STATEMENTS = STATEMENTS | {enter_context, exit_context, raise_error, write_attribute, write_variable}


def is_statement(node: Node) -> bool:
    """Tell whether a node is written as a statement, not as an expression."""
    try:
        is_own = node._op == "call_function" and node._target in _OWN_STATEMENTS
        return is_own and (not node._kwargs or node._target in (enter_context, raise_error))
    except TypeError:  # a callable object that has no hash
        return False


def assigns_attribute(node: Node) -> bool:
    """Tell whether a node is written as an assignment to an attribute of a value: `x.data = y`."""
    if node._target is not setattr or node.users or node._kwargs or len(node._args) != 3:
        return False
    return isinstance(node._args[0], Node) and isinstance(node._args[1], str) and is_plain_name(node._args[1])


def _is_number(value: Node, depth: int = 4) -> bool:
    """Tell whether a value is a size, or counted from sizes."""
    if value._op == "call_method":
        return value._target == "size"
    args = value._args if depth and _is_count(value) else (None,)
    return all(type(arg) is int or (type(arg) is Node and _is_number(arg, depth - 1)) for arg in args)


def _in_order_of_evaluation(node: Node) -> list[Node]:
    """The nodes whose values a statement reads, as Python comes to them: `a[k] = v` and `a.k = v` evaluate v first."""
    args = node._args
    if (node._target is operator.setitem and is_statement(node)) or assigns_attribute(node):
        args = (args[-1], *args[:-1])
    elif node._target is operator.contains:  # `k in a` evaluates k first
        args = args[::-1]
    return [*nodes_in(args), *nodes_in(node._kwargs)]


def _same_statement(one: Node, other: Node) -> bool:
    a, b = one.origin, other.origin
    if a is None:
        return other._op == "output" or any(is_part(one, other) for is_part in _PARTS)
    return b is not None and statement_key(one) == statement_key(other)


def _comes_before(one: Node, other: Node) -> bool:
    """Tell whether the statement of a node stands before that of another one in a function of the program."""
    if one.origin is None or other.origin is None or function_key(one) != function_key(other):
        return False
    return one.origin.statement < other.origin.statement


def statement_key(node: Node) -> tuple[Any, ...]:
    """What tells one run of one statement of the user's program from others, and from those of other functions."""
    origin = node.origin
    assert origin is not None
    return origin.statement, *function_key(node)


def function_key(node: Node) -> tuple[Any, ...]:
    """What tells one run of one function of the user's program from others: its file, its name, its module."""
    origin = node.origin
    assert origin is not None
    if node._op == "call_module" and node._target == origin.module:  # which `symbolic_trace` records inside of itself
        return origin.file, origin.function, origin.stack[-2][0] if len(origin.stack) > 1 else "", 0
    return origin.file, origin.function, origin.module, origin.call

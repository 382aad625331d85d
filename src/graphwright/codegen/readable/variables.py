"""Which values share a variable: `x = f(x)` where the old `x` is not read any more, and `x` after `x.add_(1)`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from graphwright.codegen.readable.expressions import Expression
from graphwright.codegen.readable.user_statements import is_from_if
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import cond, is_loop, is_region, raise_error, written_and_given


def base_of(name: str) -> str:
    """A name without the number that tells it from others: `x` for `x_1`."""
    return re.sub(r"_\d+$", "", name)


def named_in_place(
    nodes: Sequence[Node], text: Callable[[Any], str | None], pairs: Sequence[tuple[str, Any]], left_out: set[Node]
) -> dict[Node, str]:
    """The nodes of a body that may be computed into the variables that are to get their values.

    `text` says which variable holds a value so far; `pairs` are the variables, each with what it gets in the end. A
    variable may also hold values on the way: `x = f(x)`, `x = g(x)`.
    """
    wanted: dict[Node, str] = {}
    for target, value in pairs:
        if type(value) is Node and value._op != "placeholder" and value not in left_out:
            wanted.setdefault(value, target)
    by_base: dict[str, str] = {base_of(target): target for target, _ in pairs}
    named: dict[Node, str] = {}

    first: dict[Node, Node] = {}  # of what writes to a value and gives it back: the first of those
    for node in nodes:
        before = written_and_given(node)
        if before is not None:
            first[node] = first.get(before, before)
    names_of: dict[Any, set[str]] = {}  # by the first of such values: the variables of those that have got one

    def holds(value: Any, target: str) -> bool:
        """Whether a variable holds a value, or may hold it because it holds another one that is the same."""
        known = named.get(value) or text(value)
        if known is not None or value not in first:
            return known == target
        root = first[value]
        return text(root) == target or target in names_of.get(root, ())

    for i, node in enumerate(nodes):
        wish: str | None = wanted.get(node)
        if wish is None and node._op not in ("placeholder", "output") and node._name and node not in left_out:
            wish = by_base.get(base_of(node._name)) if node.users else None
        if wish is None:
            continue
        start = i + 1
        region = node._args[0] if node._target is operator.getitem else None
        if type(region) is Node and is_region(region):  # its items get their values when it runs
            start = nodes.index(region) + 1
            if is_loop(region) and any(holds(used, wish) for used in _read_at_loop(region)):
                continue
        if not _is_read_later(nodes[start:], wish, node, holds, pairs):
            named[node] = wish
            names_of.setdefault(first.get(node, node), set()).add(wish)
    return named


def _read_at_loop(loop: Node) -> Iterator[Node]:
    """The values that a loop reads once its variables have what it starts with: for its bodies, and in its header."""
    yield from nodes_in(loop._args[3])
    waiting = [*nodes_in(loop._args[0])]
    while waiting:
        used = waiting.pop()
        yield used
        if len(used.users) == 1:  # it may be written in the header
            waiting += used.all_input_nodes


def _is_read_later(
    later: Sequence[Node],
    target: str,
    node: Node,
    holds: Callable[[Any, str], bool],
    pairs: Sequence[tuple[str, Any]],
) -> bool:
    """Tell whether what a variable holds before a node is read after it."""
    for reader in later:
        if reader._op == "output":
            given = dict(pairs).get(target)
            for used in nodes_in(reader._args):
                if used is not node and used is not given and holds(used, target):
                    return True
            if given is not node and isinstance(given, Node | Expression) and holds(given, target):
                return True
            if any(other != target and value is not node and holds(value, target) for other, value in pairs):
                return True
        elif any(
            used is not node and holds(used, target) for used in (*nodes_in(reader._args), *nodes_in(reader._kwargs))
        ):
            return True
    return False


def first_holder(value: Node, own: Container[Node]) -> Node:
    """The value whose variable another one may have: what it writes to and gives back, as far back as that goes.

    Those in `own` have a variable that was chosen for them.
    """
    before = written_and_given(value)
    while before is not None and value not in own:
        value, before = before, written_and_given(before)
    return value


def uses_of(value: Node, own: Container[Node]) -> Iterator[Node]:
    """The nodes that read a value, or one that may have the same variable because it writes to it and gives it back.

    Those in `own` have a variable that was chosen for them.
    """
    return _readers(first_holder(value, own), own)


def is_overwritten(item: Node, node: Node, name: str, texts: Mapping[Node, tuple[str, int]]) -> bool:
    """Tell whether a variable gets another value after a branch while what the branch made of it is still read."""
    last = max(uses_of(item, texts), default=node)
    while node is not last:
        node = node._next
        if node is not item and node is not last and node in texts and texts[node][0] == name:
            return True
    return False


def _readers(value: Node, own: Container[Node], but: Node | None = None) -> Iterator[Node]:
    """What reads a value, and what writes to it and gives it back; but for one such, and what reads that."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        for user in value.users:
            if user is but:
                continue
            yield user
            if written_and_given(user) is value and user not in own:
                waiting.append(user)


def is_read_besides(node: Node, value: Node, own: Container[Node], seen: Container[Node]) -> bool:
    """Tell whether the variable of a value to which a node writes is read after it, other than for what it gives.

    Of those in `seen` it is known that nothing does.
    """
    writer: Node | None = node
    before: Node | None = value
    while before is not None:
        if any(node < user for user in _readers(before, own, writer)):
            return True
        if before in seen or before in own:
            return False
        writer, before = before, written_and_given(before)
    return False


def reads_after(node: Node, value: Node, own: Container[Node]) -> bool:
    """Tell whether anything that comes after a node reads what the variable of a value holds."""
    return any(not (user is node or user < node) for user in uses_of(value, own))


def is_read(node: Node, output: Node, allowed: set[int | None]) -> bool:
    """Tell whether a body does more with one of its values than to give it back at the allowed places.

    A place is the number of an item of what the body gives, or None for all of it.
    """
    for user in node.users:
        if user is output:
            value = output._args[0]
            if value is node:
                if None not in allowed:
                    return True
            elif not isinstance(value, tuple | list) or any(
                not (item is node and i in allowed) and node in nodes_in(item) for i, item in enumerate(value)
            ):
                return True
        elif user._target is cond and user._args[0] is not node and all(isinstance(b, Graph) for b in user._args[1:3]):
            passed: set[int | None] = set()
            for item in user.users:
                if item is output:
                    if not is_read(user, output, allowed):
                        passed.add(None)
                elif type(item._args[-1]) is int and not is_read(item, output, allowed):
                    passed.add(item._args[-1])
            for body in user._args[1:3]:
                inputs = body.placeholders()
                for inner, operand in zip(inputs, user._args[3], strict=True):
                    if operand is node and (
                        body._root._prev._op != "output" or is_read(inner, body.output_node(), passed)
                    ):
                        return True
        else:
            return True
    return False


def reassigned(node: Node, own: Container[Node]) -> Iterator[tuple[Node, Node]]:
    """The values of an `if` of which one side leaves a variable as it is, each with what that holds before.

    Nodes in `own` have a variable that was chosen for them.
    Where nothing reads the old value any more, the variable may hold the new one: `if bias: x = x + bias`.
    """
    if not node.users or not all(isinstance(body, Graph) for body in node._args[1:3]):
        return
    if not is_from_if(node):
        return
    operands = list(node._args[3])
    ends = [(body, body._root._prev) for body in node._args[1:3]]
    ends = [(body, last) for body, last in ends if last._op == "output" and last._prev._target is not raise_error]
    is_whole = not any(isinstance(last._args[0], tuple | list) for _, last in ends)
    items: dict[int, Node] = {}
    for user in () if is_whole else node.users:
        if user._target is not operator.getitem or type(user._args[1]) is not int:
            return
        items[user._args[1]] = user
    for body, last in ends:
        given = [last._args[0]] if is_whole else last._args[0]
        for i, value in enumerate(given if isinstance(given, tuple | list) else ()):
            item = node if is_whole else items.get(i)
            for before in _left_as_they_are(value, body, operands) if item is not None else ():
                assert item is not None
                if type(before) is not Node:  # a literal: no variable holds it
                    continue
                holders = [first_holder(used, own) for used in nodes_in(operands)]
                is_alone = holders.count(first_holder(before, own)) == 1
                may = base_of(before.name) == base_of(item.name) and is_alone
                if may and before is not node._args[0] and not reads_after(node, before, own):
                    yield item, before


def _left_as_they_are(value: Any, body: Graph, operands: Sequence[Any]) -> Iterator[Node]:
    """The operands that some way through a body gives back as this value."""
    if type(value) is not Node:
        return
    inputs = body.placeholders()
    if value in inputs:
        yield operands[inputs.index(value)]
        return
    is_item = value._target is operator.getitem and type(value._args[0]) is Node and type(value._args[1]) is int
    node = value._args[0] if is_item else value
    if node._target is not cond or not all(isinstance(side, Graph) for side in node._args[1:3]):
        return
    for side in node._args[1:3]:
        last = side._root._prev
        if last._op == "output" and last._prev._target is not raise_error:
            given = last._args[0][value._args[1]] if is_item else last._args[0]
            for inner in _left_as_they_are(given, side, node._args[3]):
                if inner in inputs:
                    yield operands[inputs.index(inner)]

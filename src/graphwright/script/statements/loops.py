"""Loops: `while` and `for`, kept in the graph, and `for` over what is known one by one, which is written out.

The variables that an iteration changes and another, or what follows, reads are carried. What they are is learned by
compiling the body: where a variable turns out to be None in one iteration and a tensor in the next, it is compiled
once more with that known.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphwright.ir import NestedGraph
from graphwright.ops import write_loop
from graphwright.script.program.frames import LoopEnds
from graphwright.script.program.values import (
    BAD,
    Bad,
    Const,
    Display,
    Group,
    Instance,
    Runtime,
    Unbound,
    Value,
    constant,
)
from graphwright.script.statements.branches import branch, continue_unless_left
from graphwright.script.statements.merging import NEXT, Side, flag_of
from graphwright.script.types import ANY, BOOL, NONE, Type, item_type, join
from graphwright.source import assigned, leaves_loop, target_names, with_test_inside

if TYPE_CHECKING:
    from graphwright.script.program.context import Context, Kinds

_MOST_ATTEMPTS = 8
_MOST_UNROLLED = 1024


class NeedsItems(Exception):
    """What is done with the item of a loop over a known range needs it to be known: `self.layers[i]`."""


def needs_items(c: Context, message: str, node: ast.AST) -> Bad:
    """Have the loops around written out, where their ranges are known; else note what is wrong."""
    if c.ranges_around:
        raise NeedsItems
    return c.problem(message, node, "go over the modules themselves: for layer in self.layers")


@dataclasses.dataclass
class _Carried:
    """A variable that a loop carries: its value before the loop, what is known of its parts, whether it is one part."""

    name: str
    before: Value | None  # None: it has none
    kinds: list[Type] = dataclasses.field(default_factory=list)
    as_one: bool = False

    def parts(self) -> list[Value]:
        """The values that start the loop."""
        return [constant(None)] if self.before is None else _parts(self.before, self.as_one)


class _Again(Exception):
    """The body has to be compiled once more: more is known of what it carries."""


def while_statement(c: Context, node: ast.While) -> Kinds:
    """Compile a `while` loop."""
    inside = with_test_inside(node)
    if inside is None:
        c.problem("the `else` of such a loop leaves another one", node.orelse[0], "assign before the loop: n = f(x)")
        return NEXT
    if inside is not node:
        c.frame.code.liveness.add(inside, node)
    return _loop(c, inside, None)


def for_statement(c: Context, node: ast.For) -> Kinds:
    """Compile a `for` loop."""
    subject = c.expression(node.iter)
    if isinstance(subject, Bad):  # one iteration, to find what else is wrong
        return _unrolled(c, node, [BAD])
    items = static_items(c, subject)
    if items is not None and not isinstance(subject, Display):
        return _unrolled(c, node, items)
    if item_type(subject.type) is None:
        c.problem(f"cannot go over a value of type {subject.type}", node.iter, "go over range(n), a list or a tensor")
        return NEXT
    items = _range_items(subject)
    if items is None:
        return _loop(c, node, subject)
    before = len(c.problems)
    c.ranges_around += 1
    try:
        return _loop(c, node, subject)
    except NeedsItems:
        del c.problems[before:]
    finally:
        c.ranges_around -= 1
    if isinstance(subject, Runtime) and not subject.node.users:
        subject.node.graph.erase_node(subject.node)
    return _unrolled(c, node, items)


def static_items(c: Context, value: Value) -> list[Value] | None:
    """The items of what is known one by one; None for what the graph goes over."""
    if isinstance(value, Group):
        return list(value.items)
    if isinstance(value, Display):
        return [item if key is None else key for key, item in value.items]
    return c.parts.object_keys(c, value) if isinstance(value, Instance) else c.parts.module_items(c, value)


def _range_items(subject: Value) -> list[Value] | None:
    """The numbers of a range that is known."""
    if isinstance(subject, Runtime) and subject.node.target is range:
        args = subject.node.args
        with contextlib.suppress(TypeError, ValueError):  # a run raises that
            if all(type(arg) is int for arg in args) and len(range(*args)) <= _MOST_UNROLLED:
                return [constant(i, fixed=True) for i in range(*args)]
    return None


# ---- loops that stay


def _loop(c: Context, node: ast.For | ast.While, subject: Value | None) -> Kinds:
    live = c.frame.code.liveness
    after, head = live.after(node), live.head(node)
    carried = _carried(c, node, subject, live.ended(node), head)
    problems = len(c.problems)
    for _ in range(_MOST_ATTEMPTS):
        names = dict(c.frame.names)
        try:
            return _write(c, node, subject, carried, LoopEnds(after, head))
        except _Again:
            del c.problems[problems:]
            c.frame.names = names
    c.problem(
        "what this loop carries has another type after each iteration",
        node,
        "say what empty lists and dicts before it are to hold: items: list[Tensor] = []",
    )
    return NEXT


def _carried(
    c: Context, node: ast.For | ast.While, subject: Value | None, ended: frozenset[str], head: frozenset[str]
) -> list[_Carried]:
    """The variables that a loop carries from one iteration to the next, or to what follows it."""
    targets = target_names(node.target) if isinstance(node, ast.For) else []
    written = dict.fromkeys([*targets, *assigned(node.body)])
    found = []
    for name in sorted(written, key=lambda name: list(c.frame.names).index(name) if name in c.frame.names else 10**6):
        before = c.frame.names.get(name)
        if isinstance(before, Unbound):
            before = None
        is_read = name in ended or (name in head and name not in targets)
        if not is_read or (before is None and not (name in ended and _runs_once(node, subject))):
            continue
        if before is not None:
            before = c.held(before, node, named=name)
            c.frame.names[name] = before
        one = _Carried(name, before)
        one.kinds = [part.type for part in one.parts()] if before is not None else []
        declared = c.frame.declared.get(name)
        if declared is not None and len(one.kinds) == 1:
            one.kinds = [declared]
        found.append(one)
    return found


def _runs_once(node: ast.For | ast.While, subject: Value | None) -> bool:
    """Tell whether a loop runs its body at least once."""
    if isinstance(node, ast.While):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    return bool(_range_items(subject)) if subject is not None else False


def _parts(value: Value, as_one: bool) -> list[Value]:
    if isinstance(value, Group) and not as_one:
        return [part for item in value.items for part in _parts(item, False)]
    return [value] if isinstance(value, Runtime | Const | Group | Display) else []


def _rebuilt(value: Value, as_one: bool, made: Iterator[Value]) -> Value:
    if isinstance(value, Group) and not as_one:
        return Group(tuple([_rebuilt(item, False, made) for item in value.items]), value.kind)
    return next(made) if isinstance(value, Runtime | Const | Group | Display) else value


def _write(
    c: Context, node: ast.For | ast.While, subject: Value | None, carried: list[_Carried], ends: LoopEnds
) -> Kinds:
    """Write a loop whose carried variables are of the types that are known so far; raises _Again where they are not."""
    known, outer, test = {one.name for one in carried}, c.body, None
    body, names = NestedGraph(outer), dict(c.frame.names)
    for name in assigned(node.body):
        if name not in known and not _is_bound(names.get(name)):
            names.pop(name, None)
            if name in ends.head:
                names[name] = Unbound(*_NOT_YET)
    kinds: Kinds | None = None
    c.frame.loops.append(ends)
    try:
        with c.writing(body, names):
            if isinstance(node, ast.For):
                assert subject is not None
                wish = node.target.id if isinstance(node.target, ast.Name) else "item"
                item = Runtime(body.add_input(wish), item_type(subject.type) or ANY)
                _inputs(c, carried, body)
                c.parts.assign(c, node.target, item, node)
                kinds = c.parts.block(c, node.body)
            else:
                _inputs(c, carried, body)
                test, refined = _test(c, node, carried, outer)
                if test is not None:
                    c.refine(refined)
                    kinds = c.parts.block(c, node.body)
            if kinds is not None:
                _learn(c, node, carried, kinds)
                given, stop = _given(c, node, carried, kinds)
                results = [c.argument(value) for value in given]
                stop_argument = None if stop is None else c.argument(stop)
                end = Side(body, c.frame.names, NEXT)
    finally:
        c.frame.loops.pop()
    if kinds is None:  # known: no iteration
        return c.parts.block(c, node.orelse) if node.orelse else NEXT
    return _finish(c, node, subject, carried, test, body, kinds, results, stop_argument, end)


_NOT_YET = "in the first iteration of the loop", "give it a value before the loop"


def _inputs(c: Context, carried: list[_Carried], body: NestedGraph) -> list[Value]:
    """Make the inputs of a body for what the loop carries, and give the variables these values."""
    made: list[Value] = []
    for one in carried:
        if one.before is None:
            body.add_input(one.name)
            c.frame.names[one.name] = Unbound(*_NOT_YET)
            continue
        parts: list[Value] = [Runtime(body.add_input(one.name), kind) for kind in one.kinds]
        c.frame.names[one.name] = _rebuilt(one.before, one.as_one, iter(parts))
        made += parts
    return made


def _test(
    c: Context, node: ast.While, carried: list[_Carried], outer: NestedGraph
) -> tuple[tuple[NestedGraph, object] | None, dict[str, Type]]:
    """Compile the test of a `while` loop as a body with a result. None for a loop that is known not to run."""
    body = NestedGraph(outer)
    with c.writing(body, dict(c.frame.names)):
        _inputs(c, carried, body)
        test, (refined, _) = c.parts.condition(c, node.test)
        if isinstance(test, Const) and test.fixed and not test.value:
            return None, {}
        return (body, True if isinstance(test, Bad) else c.argument(_truth(test))), dict(refined)


def _truth(test: Value) -> Value:
    return constant(bool(test.value)) if isinstance(test, Const) else test


def _learn(c: Context, node: ast.For | ast.While, carried: list[_Carried], kinds: Kinds) -> None:
    """Compare what the body gives for the carried variables with what was known; raises _Again for news."""
    if kinds <= {"return", "raise"}:
        return
    for one in carried:
        now = c.frame.names.get(one.name)
        if now is None or isinstance(now, Unbound | Bad):
            continue
        now = c.frame.names[one.name] = c.held(now, node)
        before = one.before if one.before is not None else now
        if not one.as_one and _shape(before) != _shape(now):
            if _is_static(before) or _is_static(now):
                c.problem(
                    f"{one.name!r} is another object after each iteration of the loop", node, "use a value of one type"
                )
                continue
            one.as_one = True
            one.kinds = [before.type]
            raise _Again
        parts = _parts(now, one.as_one)
        if one.before is None:
            one.kinds = [part.type for part in parts]
            if len(parts) != 1:
                one.as_one, one.kinds = True, [now.type]
            continue
        for i, part in enumerate(parts):
            joined = join(one.kinds[i], part.type)
            if joined is None:
                c.problem(
                    f"{one.name!r} is {one.kinds[i]} before the loop, and {part.type} after an iteration",
                    node.iter if isinstance(node, ast.For) else node.test,
                    "give it one type from the start, or use another variable",
                )
            elif joined != one.kinds[i]:
                one.kinds[i] = joined
                raise _Again


def _shape(value: Value) -> object:
    if isinstance(value, Group):
        return value.kind, tuple([_shape(item) for item in value.items])
    return None if isinstance(value, Runtime | Const | Display) else id(getattr(value, "value", value))


def _is_static(value: Value) -> bool:
    return not isinstance(value, Runtime | Const | Display | Group)


def _given(
    c: Context, node: ast.For | ast.While, carried: list[_Carried], kinds: Kinds
) -> tuple[list[Value], Value | None]:
    """What the body gives: the carried values, whether and what the program returns; and whether the loop ends."""
    names = c.frame.names
    given: list[Value] = []
    for one in carried:
        now = names.get(one.name)
        if now is None or isinstance(now, Unbound | Bad):
            given += [constant(None)] * max(1, len(one.kinds))
        elif one.as_one:
            given.append(now)
        else:
            given += _parts(now, False)
    leaving = [kind for kind in ("break", "return") if kind in kinds]
    if not leaving:
        return given, None
    end = Side(c.body, names, kinds)
    returned = flag_of(end, "return")
    if kinds - {"raise"} <= {"break", "return"}:
        stop: Value = constant(True)
    else:
        stop = flag_of(end, "stop")
    if "return" in kinds:
        given += [returned, names["$result"]]
    if _needs_left(node):
        given.append(stop)
    return given, stop


def _needs_left(node: ast.For | ast.While) -> bool:
    return bool(node.orelse) and leaves_loop(node.body)


def _finish(
    c: Context,
    node: ast.For | ast.While,
    subject: Value | None,
    carried: list[_Carried],
    test: tuple[NestedGraph, object] | None,
    body: NestedGraph,
    kinds: Kinds,
    results: list[object],
    stop: object,
    end: Side,
) -> Kinds:
    """Write the loop itself, and give the variables their values after it."""
    breaks = bool(kinds & {"break", "return"})
    bodies = [body] if test is None else [test[0], body]
    starts: list[Value] = []
    for one in carried:
        parts = one.parts()
        starts += parts if one.before is not None else [constant(None)] * max(1, len(one.kinds))
    wishes = [one.name for one in carried for _ in range(max(1, len(one.kinds)))]
    for name, start in (("returned", False), ("result", None)):
        if "return" in kinds:
            for other in bodies:
                other.add_input(name)
            starts.append(constant(start))
            wishes.append(name)
    if breaks and _needs_left(node):
        for other in bodies:
            other.add_input("left")
        starts.append(constant(False))
        wishes.append("left")
    at = node.iter if isinstance(node, ast.For) else node.test
    origin = c.frame.origin(at)
    items = write_loop(c.maker(at), subject, test, body, starts, results, stop if breaks else None, wishes, origin)
    return _after(c, node, carried, kinds, iter([Runtime(item, ANY) for item in items]), end)


def _after(
    c: Context, node: ast.For | ast.While, carried: list[_Carried], kinds: Kinds, made: Iterator[Runtime], end: Side
) -> Kinds:
    """Give the variables their values after a loop, and go on with its `else`."""
    names = c.frame.names
    for one in carried:
        now = end.names.get(one.name)
        value = one.before if one.before is not None else now
        parts: list[Value] = [Runtime(next(made).node, kind) for kind in one.kinds or [NONE]]
        if value is None or isinstance(now, Unbound | Bad):
            names[one.name] = now if now is not None else BAD
        else:
            names[one.name] = _rebuilt(value, one.as_one, iter(parts))
    written = [*(target_names(node.target) if isinstance(node, ast.For) else ()), *assigned(node.body)]
    for name in written:
        if name not in {one.name for one in carried} and not _is_bound(names.get(name)):
            why = f"where the loop in line {node.lineno} runs no iteration"
            names[name] = Unbound(why, "give it a value before the loop")
    after: Kinds = NEXT
    if "return" in kinds:
        returned, result = next(made), next(made)
        names["$return"] = Runtime(returned.node, BOOL)
        names["$result"] = Runtime(result.node, end.names["$result"].type)
        names["$at"] = end.names["$at"]
        never_ends = isinstance(node, ast.While) and _runs_once(node, None) and "break" not in kinds
        after = frozenset({"return"} if never_ends else {"next", "return"})
        if never_ends:
            names.pop("$return")
    if node.orelse and after != {"return"}:
        is_left = bool(kinds & {"break", "return"}) and _needs_left(node)  # a `break` may never be reached
        left = Runtime(next(made).node, BOOL) if is_left else None
        return _else(c, node, after, left)
    return after


def _else(c: Context, node: ast.For | ast.While, kinds: Kinds, left: Runtime | None) -> Kinds:
    """Compile the `else` of a loop, which runs unless it was left."""
    live = c.frame.code.liveness.after(node)

    def ending() -> Kinds:
        return c.parts.block(c, node.orelse)

    if left is not None:
        c.frame.names.pop("$return", None) if kinds == NEXT else None

        def go_on() -> Kinds:
            c.frame.names.pop("$return", None)
            return ending()

        ends, _ = branch(c, left, (lambda: kinds, go_on), ({}, {}), None, live, node, "the loop was left")
        return ends
    return ending() if kinds == NEXT else continue_unless_left(c, kinds, ending, live)


def _is_bound(value: Value | None) -> bool:
    return value is not None and not isinstance(value, Unbound)


# ---- loops that are written out


def _unrolled(c: Context, node: ast.For, items: list[Value]) -> Kinds:
    """Write a loop over values that are known one by one: its body, once for each."""
    live = c.frame.code.liveness
    ends = LoopEnds(live.after(node), live.head(node), is_written_out=True)
    c.frame.loops.append(ends)
    try:
        kinds = _iterations(c, node, items, 0)
    finally:
        c.frame.loops.pop()
    if "break" in kinds:
        c.frame.names.pop("$break", None)
        kinds = (kinds - {"break"}) | NEXT
    return kinds


def _iterations(c: Context, node: ast.For, items: list[Value], first: int) -> Kinds:
    for i in range(first, len(items)):
        c.frame.statement = node
        c.parts.assign(c, node.target, items[i], node)
        kinds = c.parts.block(c, node.body)
        if "continue" in kinds:
            c.frame.names.pop("$continue", None)
            kinds = (kinds - {"continue"}) | NEXT
        if kinds == NEXT:
            continue
        if "next" not in kinds:
            return kinds
        c.frame.statement = node
        live = c.frame.loops[-1].head
        return continue_unless_left(c, kinds, lambda i=i: _iterations(c, node, items, i + 1), live)  # type: ignore[misc]
    return c.parts.block(c, node.orelse) if node.orelse else NEXT

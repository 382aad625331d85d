"""Branches: `if`, the ternary, `and`, `or`, and what is left of a block once some way has left it.

A side that returns, breaks or continues has no way on, so what follows the branch becomes part of the other side: an
early return stays one. Where both sides go on, at least on some way, flags tell after the branch which way was taken,
and what follows runs under them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from graphwright.ir import NestedGraph
from graphwright.ops import write_branch
from graphwright.script.program.values import Choice, Const, Instance, Runtime, Value
from graphwright.script.statements.merging import LEAVING, NEXT, Merger, Side, flag_of
from graphwright.script.types import ANY, BOOL, Type
from graphwright.values import Given, filled

if TYPE_CHECKING:
    from graphwright.script.program.context import Context, Kinds

Work = Callable[[], "Kinds"]
Refined = Mapping[str, Type]  # variables of which more is known on a side


def branch(
    c: Context,
    test: Value,
    works: tuple[Work, Work],
    refined: tuple[Refined, Refined],
    rest: Work | None,
    live: frozenset[str],
    at: ast.AST,
    condition: str,
    live_after_rest: frozenset[str] = frozenset(),
) -> tuple[Kinds, bool]:
    """Write a branch. `rest` is what follows it in its block; `live` is what is read after the branch.

    Returns how the statement may end, and whether what follows has become part of it.
    """
    one, other = (_side(c, work, more) for work, more in zip(works, refined, strict=True))
    took_rest = False
    if rest is not None:
        for mine, its in ((one, other), (other, one)):
            if _leaves(mine) and "next" in its.kinds and not took_rest:
                _extend(c, its, rest, live_after_rest)
                took_rest = True
    return _join(c, test, one, other, live_after_rest if took_rest else live, at, condition), took_rest


def _leaves(side: Side) -> bool:
    """Tell whether a side has no way on, other than by raising only."""
    return "next" not in side.kinds and side.kinds != {"raise"}


def _side(c: Context, work: Work, refined: Refined) -> Side:
    side = Side(NestedGraph(c.body), dict(c.frame.names), NEXT)
    _run(c, side, work, refined)
    return side


def _run(c: Context, side: Side, work: Work, refined: Refined | None = None) -> None:
    with c.writing(side.body, side.names):
        c.refine(refined or {})
        side.kinds = work()
        side.names = c.frame.names


def _extend(c: Context, side: Side, rest: Work, live: frozenset[str]) -> None:
    """Go on with what follows, inside a side."""
    kinds = side.kinds
    if kinds == NEXT:
        _run(c, side, rest)
        return
    every = live | frozenset(side.names)  # what it assigns, too; pruned where nothing reads it
    _run(c, side, lambda: continue_unless_left(c, kinds, rest, every))


def continue_unless_left(c: Context, kinds: Kinds, rest: Work, live: frozenset[str]) -> Kinds:
    """Go on with what follows a statement some of whose ways have left, on the others."""
    at = c.frame.statement
    test = flag_of(Side(c.body, c.frame.names, kinds), "any")

    def go_on() -> Kinds:
        for kind in (*LEAVING, "stop", "any"):
            c.frame.names.pop(f"${kind}", None)
        return rest()

    ends, _ = branch(c, test, (lambda: kinds - {"next"}, go_on), ({}, {}), None, live, at, "the loop was left")
    return ends


def choose(
    c: Context,
    test: Value,
    works: tuple[Callable[[], Value], Callable[[], Value]],
    refined: tuple[Refined, Refined],
    at: ast.AST,
    condition: str,
    is_test: bool = False,
    named: str = "",
) -> Value:
    """Write a branch that is an expression, and return its value."""
    key = "$test" if is_test else "$value"

    def side(work: Callable[[], Value], more: Refined) -> Side:
        made: list[Value] = []

        def run() -> Kinds:
            made.append(work())
            return NEXT

        done = _side(c, run, more)
        done.names = {**done.names, key: made[0]}
        return done

    one, other = (side(work, more) for work, more in zip(works, refined, strict=True))
    for mine, its, decided in ((one, other, False), (other, one, True)):
        right, left = mine.names[key], its.names[key]
        is_known = isinstance(right, Const) and right.fixed and type(right.value) is bool and mine.body.is_empty()
        if is_test and left is test and is_known:  # `x and False`, `x or True`
            return right if right.value is decided else left  # type: ignore[attr-defined]
    merger = Merger(c, (one, other), at, condition)
    merger.declared = c.frame.declared.get(named)
    value = merger.merge(one.names[key], other.names[key], key)
    names = merger.names(set(one.names) | set(other.names))
    merger.wishes = [wish or named for wish in merger.wishes]
    made = _write(c, test, merger, (one, other), at)
    for name, merged in names.items():
        c.frame.names[name] = filled(merged, made)
    joined: Value = filled(value, made)
    return joined


def chosen(c: Context, choice: Choice, use: Callable[[Value], Value], node: ast.AST, named: str = "") -> Value:
    """Do the same with each item that may be chosen, on a branch of its own."""
    return by_number(c, choice.number, [lambda item=item: use(item) for item in choice.items], node, named)  # type: ignore[misc]


def by_number(c: Context, number: Value, works: list[Callable[[], Value]], node: ast.AST, named: str = "") -> Value:
    """Do one of several things, by a number that the program computes."""
    if len(works) == 1:
        return works[0]()
    last = len(works) - 1

    def from_(i: int) -> Value:
        if i == last:
            return works[i]()
        test = c.function(operator.eq, (number, i), BOOL, node)
        return choose(c, test, (works[i], lambda: from_(i + 1)), ({}, {}), node, f"item {i} is chosen", named=named)

    return from_(0)


def _join(c: Context, test: Value, one: Side, other: Side, live: frozenset[str], at: ast.AST, condition: str) -> Kinds:
    """Write the branch itself, and give the variables their values after it."""
    every = one.kinds | other.kinds
    kinds = every - {"raise"} if len(every) > 1 else every

    merger = Merger(c, (one, other), at, condition)
    names = merger.variables(kinds, live, c.frame.is_entry and kinds == {"return"})
    made = _flags_of_test(c, test, merger, (one, other)) or _write(c, test, merger, (one, other), at)
    c.frame.names = {name: filled(value, made) for name, value in names.items()}
    return kinds


def _flags_of_test(c: Context, test: Value, merger: Merger, sides: tuple[Side, Side]) -> Given | None:
    """The values of a branch that gives nothing but whether its condition holds; None for every other one."""
    if not merger.slots or not isinstance(test, Runtime) or not all(side.body.is_empty() for side in sides):
        return None
    if not c.frame.loops or not c.frame.loops[-1].is_written_out:
        return None
    values = [[value.value if isinstance(value, Const) else None for value in pair] for pair in merger.slots]
    if not all(pair in ([True, False], [False, True]) for pair in values):
        return None
    if values[0][0] is False or len(values) > 1:
        return None
    return Given([Runtime(test.node, BOOL)])


def _write(c: Context, test: Value, merger: Merger, sides: tuple[Side, Side], at: ast.AST) -> Given:
    """Write what a branch computes; return the values of its slots."""
    results: list[list[object]] = []
    origins = []
    for number, side in enumerate(sides):
        with c.writing(side.body):
            given = [pair[number] for pair in merger.slots]
            results.append([None if value is None else c.argument(value) for value in given])
        returned = side.names.get("$at")
        is_return = side.kinds == {"return"} and isinstance(returned, Instance)
        origins.append(returned.value if is_return else c.frame.origin(at))  # type: ignore[union-attr]
    nodes = write_branch(c.maker(at), test, [side.body for side in sides], results, merger.wishes, origins)
    return Given([Runtime(node, ANY) for node in nodes])

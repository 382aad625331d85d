"""Both sides of a branch, captured one after the other and joined.

Each side runs on the same state: what it assigned, and what it changed in containers and modules, is noted and undone
before the other runs. Then the two are joined: what is the same stays; tensors of one dtype and rank, and numbers of
one kind, become values of the branch; what cannot be joined makes the capture start again with a fork at this place.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Hashable
from types import CellType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from graphwright.capture.containers.opening import OPENABLE, make_growing
from graphwright.capture.effects.branch_state import State, set_cell
from graphwright.capture.effects.choices import Choice
from graphwright.capture.flow.caught_errors import divides_by_zero
from graphwright.capture.flow.joined_values import Join, Leaving
from graphwright.capture.flow.shared_ends import mark_rest
from graphwright.capture.flow.watched import check_end, run_watched
from graphwright.capture.numbers.classes import is_flag
from graphwright.capture.proxies.unbound import BoundIf, Unbound
from graphwright.capture.state.regions import Region, Writing
from graphwright.capture.state.running import Refusal
from graphwright.capture.state.samples import MISSING, Grows, Unlike
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.symbols import Symbol, as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import GraphwrightError
from graphwright.ops import cond, write_branch
from graphwright.source import EMPTY, HIDDEN, content_of
from graphwright.values import Container, Given, Slot, filled

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import QuestionSubject
    from graphwright.ir import Argument, Node


def branch(
    recorder: Capture,
    subject: QuestionSubject,
    then: Callable[[], Any],
    other: Callable[[], Any],
    names: tuple[str, ...],
    alive: tuple[str, ...],
    place: Place | None,
    unshared: tuple[str, ...] = (),
    can_wait: bool = False,
) -> Any:
    """Capture both sides of a branch on a symbolic value; return what the branch returns.

    `names` are the variables that the sides assign, through their closures; those `alive` are joined. The lists and
    dicts in those `unshared` are not: nobody has them after the branch. `can_wait` tells that the rest of the function
    could be part of both sides.
    """
    quiet = recorder.examples.quiet
    pred = quiet(lambda: recorder.numbers.predicate(subject))  # both sides may use it
    test = _Test(subject, pred, recorder.numbers.hint(subject), recorder.questions.subjects.is_data(subject))
    mark = recorder.choices.mark()

    def differ(why: str) -> BaseException:
        return recorder.questions.forking.differ(place, why, can_wait)

    def both(state: State) -> Any:
        try:
            sides = [_run_side(recorder, test, True, then, state, place)]
            sides.append(_run_side(recorder, test, False, other, state, place))
            sides[0].values += state.contents_before(len(sides[0].values) - 1)  # of what the other was first to reach
            if recorder.plan.max_paths == 1 and recorder.plan.ways.get(place) == "wait" and _share_modules(sides):
                raise recorder.questions.restart(recorder.plan.change(place, "fork", "both sides call one module"))
            with torch._C.DisableTorchFunction():  # the recorder must not see what is done here
                return quiet(lambda: _joined(recorder, test, sides, state, place, can_wait))
        except Unlike as why:
            raise differ(str(why)) from None

    def grow(state: State, growth: Grows) -> None:  # in a loop on one of the sides
        recorder.choices.cut(mark)
        make_growing(recorder, state, growth, place, "fork", can_wait)

    def watch() -> State:
        return quiet(lambda: State((then, other), names, alive, unshared=unshared))

    return run_watched(recorder, watch, both, grow, differ)


def _joined(
    recorder: Capture,
    test: _Test,
    sides: list[_Side],
    state: State,
    place: Place | None,
    can_wait: bool,
) -> Any:
    """Write the branch, give the state its values after it, and return the branch's own."""
    going = [side for side in sides if not side.raised] if sides[0].raised or sides[1].raised else sides
    if not going:
        _finish(recorder, test, sides, [])
        raise Raised
    count = 1 + len(state.names)
    join: Join | Leaving
    if len(going) == 1:
        join = Leaving(recorder, going[0].region, state)
        made = join.values(going[0].values, [EMPTY, *state.values_before()])
    else:
        _settle(sides)
        _write_new_attributes(recorder, sides, state, place)
        join = Join(recorder)
        if state._containers:
            containers = [id(now) for now, _ in state._containers]
            join = Join(recorder, [dict(zip(containers, side.values[count:], strict=True)) for side in sides])
        first, *more = zip(sides[0].values, sides[1].values, strict=True)
        made = [_join_results(recorder, test.subject, *first, join)]
        made += [
            pair[0] if pair[0] is pair[1] and type(pair[0]) is not BoundIf else _variable(join, first, pair, name)
            for name, pair in zip(state.names, more, strict=False)
        ]
        for (a, b), (now, _) in zip(more[count - 1 :], state._containers, strict=True):
            if a is b:  # neither side has changed it
                made.append(a)
                continue
            is_other = type(now) is not list and type(now) in OPENABLE and _keys_of(a) != _keys_of(b)
            if (type(now) is list and len(a) != len(b)) or (is_other and recorder.region.is_in_loop()):
                raise Grows(now)
            made.append(join.contents(a, b))
    leaves = join.leaves
    called: dict[int, str] = {}
    for name, value in zip((recorder.target_name(), *state.names), made, strict=False):
        if name and issubclass(type(value), Slot):  # whatever else it is is not asked for its class
            called.setdefault(value.number, name.partition(HIDDEN)[0])
    for table in made[1 + len(state.names) :]:  # attributes
        for name, value in table.items.items() if isinstance(table, Container) and type(table.like) is dict else ():
            if isinstance(value, Slot) and isinstance(name, str) and name.isidentifier():
                called.setdefault(value.number, name)
    for number, pair in enumerate(leaves):
        called.setdefault(number, next(filter(None, map(recorder.joining.source_name, pair)), ""))
    given = Given(_finish(recorder, test, sides, leaves, called))
    if len(going) == 1:
        recorder.questions.knowledge.learn(test.subject, going[0] is sides[0])
    result, *state_values = [filled(value, given) for value in made]
    state.write(state_values, recorder.where, place, result)
    ended = sides[0].choices + sides[1].choices
    if ended:
        recorder.choices.reopen(ended)
    if isinstance(join, Join):
        forking, can_wait = recorder.questions.forking, can_wait or not state.names
        join.note_choices(given, lambda why: forking.differ(place, why, can_wait), ended)
    return result


def _share_modules(sides: list[_Side]) -> bool:
    one, other = ({n.target for n in side.region.graph.all_nodes_now() if n.op == "call_module"} for side in sides)
    return bool(one & other)


def _settle(sides: list[_Side]) -> None:
    """Where a side knows that a tensor is None, it leaves None there."""
    for side, other in (sides, sides[::-1]):
        none = set()
        for key, is_so in side.facts.items():
            if is_so and type(key) is tuple and key[0] == "is_none":
                none.add(key[1])
        if none:
            pairs = zip(side.values, other.values, strict=True)
            side.values = [_settled(mine, its, none) for mine, its in pairs]


def _write_new_attributes(recorder: Capture, sides: list[_Side], state: State, place: Place | None) -> None:
    """Where one side alone gives a module an attribute that it did not have, write that there.

    Nobody may read it after the branch.
    """
    if recorder.keeping is None:
        return
    first = 1 + len(state.names)
    for number, (container, before) in enumerate(state._containers, first):
        held: list[Any] = [side.values[number] for side in sides]
        if type(container) is not dict or held[0] is held[1]:
            continue
        if held[0].keys() == held[1].keys() and not any(isinstance(value, Unbound) for value in before.values()):
            continue
        held = [dict(each) for each in held]
        for side, its in zip(sides, held, strict=True):
            side.values[number] = its
        for side, mine, its in (sides[0], *held), (sides[1], *reversed(held)):
            for key in [key for key in mine if not _lacks(mine, key) and _lacks(its, key) and _lacks(before, key)]:
                unbound = Unbound(key, recorder.where(), place)
                with Writing(recorder, side.region):
                    is_written = recorder.keeping.write_new(container, key, mine[key], unbound)
                if is_written:
                    del mine[key]
                    for values in held:
                        values[key] = unbound


def _lacks(held: dict[Any, Any], key: Hashable) -> bool:
    """Tell whether attributes lack one, or a side of an earlier branch alone has written it."""
    return key not in held or isinstance(held[key], Unbound)


def _settled(mine: Any, its: Any, none: set[int]) -> Any:
    if mine is its:
        return mine
    if type(mine) is dict and type(its) is dict:
        return {key: _settled(value, its.get(key), none) for key, value in mine.items()}
    return None if isinstance(mine, TensorProxy) and id(mine) in none else mine


class _Test(NamedTuple):
    """What decides a branch."""

    subject: QuestionSubject
    pred: Argument
    hint: Any  # what it is for the example, or None
    is_data: bool


@dataclasses.dataclass(eq=False)
class _Side:
    region: Region
    raised: bool
    values: list[Any]  # the result, then the state afterwards
    choices: list[Choice]  # which objects data chose on it
    facts: dict[Any, bool]  # what is known there since the condition is


def _run_side(
    recorder: Capture, test: _Test, value: bool, run: Callable[[], Any], state: State, place: Place | None
) -> _Side:
    subject = test.subject
    region = Region(recorder.region, sys._getframe(), place)
    region.is_data = test.is_data
    region.is_taken = None if test.hint is None else test.hint is value
    recorder.ambient.notice()
    depth = recorder.ambient.depth
    raised = False
    result = None
    mark = recorder.choices.mark()
    facts = recorder.questions.knowledge.conditions.facts(subject, value)
    region.known = region.known | facts
    with Writing(recorder, region):
        bound = _bind(recorder, subject, value, state)
        try:
            result = run()
            recorder.ambient.notice()
            if recorder.choices.open:
                recorder.choices.look()
        except Raised:
            raised = True
        except (Exception, Refusal) as error:
            questions, is_taken = recorder.questions, recorder.attempts.takes(error)
            is_certain = questions.raises.is_certain(error) or divides_by_zero(error)
            if not is_taken and (recorder.plan.ways.get(place) == "wait" or not is_certain):
                failed = _failed(recorder, subject, value, error, place)
                if failed is error:
                    raise
                raise failed from error
            questions.raises.end_side(error, is_taken)
            raised = True

    def entered() -> BaseException:
        return recorder.questions.restart(recorder.plan.change(place, "fork", "a context is entered on one side only"))

    check_end(recorder, depth, entered)
    state.check()
    values = state.read()
    for cell, content_before in bound:
        set_cell(cell, content_before)
    state.restore(values)
    return _Side(region, raised, [result, *values], recorder.choices.cut(mark), facts)


def _bind(recorder: Capture, subject: QuestionSubject, value: bool, state: State) -> list[tuple[CellType, Any]]:
    """Give the variables that have a value where a loop was left that value, on the side where it was."""
    questions, bound = recorder.questions, []
    for cell in state.cells.values():
        before = content_of(cell)
        if type(before) is BoundIf:
            held, decider = before.parts()
            key = questions.subjects.key_of(questions.subjects.subject_of(decider))
            is_opposite = key == questions.subjects.opposite(subject)
            if is_opposite or key == questions.subjects.key_of(subject):
                bound.append((cell, before))
                set_cell(cell, held if value is not is_opposite else EMPTY)
    return bound


def _failed(
    recorder: Capture, subject: QuestionSubject, value: bool, error: Exception | Refusal, place: tuple[Any, ...] | None
) -> BaseException:
    """What to do where one side raises: an exception of the user's goes into the graph, else the example decides."""
    if recorder.pending is not None and not isinstance(recorder.pending, Refusal):
        return recorder.pending
    if recorder.plan.ways.get(place) == "wait":  # what raises may be what comes after the branch
        return recorder.questions.restart(recorder.plan.change(place, "fork", _why(error)))
    if recorder.pending is not None and recorder.questions.subjects.is_data(subject):
        return recorder.questions.refusals.given_up(recorder.pending, place)
    codes = recorder.questions.staging.convertible_at(error)
    if codes:  # a `raise` that was not converted yet
        return recorder.questions.restart(recorder.plan.convert(codes))
    if not recorder.questions.subjects.is_data(subject):
        hint = recorder.numbers.hint(subject)
        if hint is value and _is_elsewhere(recorder.region.outer) and not isinstance(error, Refusal | GraphwrightError):
            return error  # as it would be raised without this branch: it ends the side around it, which is not taken
        # For all questions there with this answer, but not for those with the other.
        assert place is not None
        return recorder.questions.restart(recorder.plan.change((*place, hint), "guard", _why(error)))
    if recorder.questions.raises.is_caught_outside():
        return recorder.questions.restart(
            recorder.plan.change(place, "fork", "the program catches what one side raises")
        )
    return recorder.questions.refusals.given_up(error, place, recorder.numbers.hint(subject) is (not value))


def _is_elsewhere(region: Region | None) -> bool:
    """Tell whether a region is the side of a branch on a flag or size that the example does not take."""
    return region is not None and region.is_taken is False and not region.is_data


def _why(error: Exception | Refusal) -> str:
    """Why a branch is none of the graph: what one side raises, or what of it does not go with the other."""
    if isinstance(error, Unlike):
        return str(error)
    return f"one side raises {type(getattr(error, 'error', error)).__name__}"


def _finish(
    recorder: Capture,
    test: _Test,
    sides: list[_Side],
    leaves: list[tuple[Any, Any]],
    names: dict[int, str] | None = None,
) -> list[Any]:
    """Write the outputs of both bodies and the branch itself; return its values."""
    results: list[list[Argument]] = []
    for number, side in enumerate(sides):
        given: list[Argument] = [None] * len(leaves)
        if not side.raised and leaves:
            with Writing(recorder, side.region):
                for i, pair in enumerate(leaves):
                    if pair[number] is not MISSING:
                        given[i] = recorder.lifted(recorder.argument(pair[number]))
        results.append(given)
    origin = recorder.site()
    wishes = [(names or {}).get(i) or ("cond" if len(leaves) == 1 else "value") for i in range(len(leaves))]
    regions = [sides[0].region, sides[1].region]
    has_rest = recorder.plan.ways.get(sides[0].region.place) == "wait"

    def make(function: Callable[..., Any], args: tuple[Any, ...], name: str) -> Node:
        node = recorder.make("call_function", function, args, name)
        if has_rest and function is cond:
            mark_rest(node)
        return node

    nodes = write_branch(make, test.pred, regions, results, wishes, (origin, origin), "cond")
    place, raised = sides[0].region.place, sides[0].raised
    values = [
        recorder.joining.value(test.subject, pair, made, place, raised)
        for pair, made in zip(leaves, nodes, strict=True)
    ]
    if leaves and not raised and not sides[1].raised:
        recorder.region.note_given(nodes, sides, results)
        recorder.keep.append(test.subject)  # what is known is so by its id
    if not test.is_data:
        for value in values:
            recorder.questions.knowledge.conditions.note_decider(value, place)
    return values


# ---- joining


def _variable(join: Join, results: tuple[Any, Any], pair: tuple[Any, Any], name: str) -> Any:
    try:
        return join.bound_at_exit(results, pair) or join.join(*pair)
    except Unlike as why:
        raise why.of(name.partition(HIDDEN)[0]) from None


def _join_results(recorder: Capture, subject: QuestionSubject, a: Any, b: Any, join: Join) -> Any:
    """Join the results of the two sides; on its own sides the value that decides is True and False."""
    if a is None and b is None:
        return None
    if type(a) is bool and type(b) is bool and a is not b:
        truth = recorder.numbers.loose_truth if is_flag(recorder.region, subject) else recorder.numbers.truth
        return truth(_as_value(subject)) if a else recorder.numbers.negation(_as_value(subject))
    for mine, its, decided in ((a, b, True), (b, a, False)):
        if _is_subject(subject, mine) and type(its) is bool:
            return its if its is decided else mine
    return join.join(a, b)


def _as_value(subject: QuestionSubject) -> Any:
    return as_number(subject) if isinstance(subject, Symbol) else subject


def _is_subject(subject: QuestionSubject, value: Any) -> bool:
    """Tell whether a value is the bool that decides the branch, or the truth of the tensor that does."""
    symbol = symbol_of(value)
    if symbol is None or symbol.kind is not bool:
        return False
    return symbol is subject or (symbol.function == "truth" and symbol.args[0] is subject)


def _keys_of(held: Collection[Any]) -> Any:
    """What tells two contents of one dict, set or deque apart, but for the values."""
    return held if isinstance(held, set) else list(held) if isinstance(held, dict) else len(held)

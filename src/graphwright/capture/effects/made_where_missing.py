"""Attributes that a program makes where they are missing: `if not hasattr(self, "mask"): self.mask = ...`.

Whether a call finds such an attribute decides what it does, so that the program has an end for calls that do and one
for calls that do not. The captured module has None in the place of its own attributes until a call has made them; other
objects are asked for theirs. Of a plain object nobody tells which of the attributes that it lacks are looked up: what
the code of the program may ask for by name, or where it catches errors, counts as asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from graphwright.capture.effects.held_tables import Field, Hidden
from graphwright.capture.effects.hook_effects import expect_plain, hooks_left, install, kinds_of
from graphwright.capture.effects.kept_kinds import Choice
from graphwright.capture.effects.kept_tables import Table, holds_attributes, key_in
from graphwright.capture.effects.variables import Variables
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Graph, Node, nodes_in
from graphwright.ops import is_random, is_region, write_attribute, written_and_given
from graphwright.values import ConstantKind, Kind, OptionalKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture

_ASKED_APART = 2  # times that a call may make some: of more, another one has to find all or none
_NONE = ConstantKind(None)


class MadeWhereMissing:
    """Those of one run of a program. `read` gives the node that reads a place, or the owner of one."""

    def __init__(self, recorder: TypedCapture, read: Callable[[Place], Node]) -> None:
        self._recorder, self._read = recorder, read
        self._known: dict[Place, int | None] = recorder.plan.missing
        self._answers: dict[int, bool] = {}  # whether those are missing that one call makes together
        self._installed: set[tuple[str, str, int]] = set()  # the hooks that the call has left that made what is found
        self._next_hook: int = RemovableHandle.next_id

    def learn(self, made: list[tuple[Table, Any, Any]], live: dict[Any, Any], kind_of: Callable[[Any], Kind]) -> bool:
        """Have attributes be state that this run has made, if the program asked for one of them before, or of others.

        Those that it does not ask for are there where the others are, or what a first call sets beside them. What one
        run makes, one call has made. Tell whether there are any.
        """
        asked = {table.place(key) for table, key, now in made if self._is_asked(table, key, now, kind_of)}
        numbers = {number for number in self._known.values() if number is not None}
        plan = self._recorder.plan
        sets_others = plan.is_set_together or any(before is None for before in plan.at_first.values())
        if not (asked or numbers or sets_others):
            return False
        count = len(self._known)
        for table, key, now in made:
            place = table.place(key)
            if not (asked or numbers or _is_of_module(table)):
                continue  # nothing stands for it in an object before that
            if place in asked or (_can_be_asked(table, key) and not isinstance(now, nn.Module | nn.Parameter)):
                live[place] = kind_of(now)
                self._known[place] = len(numbers) if place in asked else None
                if table.transient is not None:
                    plan.missing_buffers[place] = key not in table.transient
        return len(self._known) > count

    def learn_hooks(self) -> None:
        """Keep the hooks that this run leaves on modules for the runs that find what it has made; refuse others.

        A way that the example does not go is left out where it leaves hooks although all is found.
        """
        recorder = self._recorder
        left = [] if recorder.shells is None else hooks_left(recorder.shells)
        left = [each for each in left if each[:3] not in self._installed]
        made = [number for number, is_missing in self._answers.items() if is_missing]
        forks = [fork for fork in recorder.questions.forking.forks if left and fork.next_hook <= left[0][2]]
        if not made and forks and forks[-1].answer is not forks[-1].hint:
            raise recorder.questions.restart(recorder.plan.change(forks[-1].place, "guard", "a path leaves a hook"))
        known = [recorder.plan.hooks_left[number] for number in made if number in recorder.plan.hooks_left]
        is_same = all(kinds_of(each) == kinds_of(left) for each in known)  # whatever way the first call goes
        if is_same:
            expect_plain(recorder, left, self._next_hook, is_remembered=bool(made))
        else:
            expect_plain(recorder, max(left, *known, key=len), 0, is_remembered=False)
        recorder.plan.hooks_left |= dict.fromkeys(made, left)

    def of(self, table: Table) -> Iterator[Any]:
        """Iterate over the attributes of a table that this call finds, though the example does not."""
        for place, number in self._known.items():
            key = self._key_in(table, place)
            if key is None or key in table.before:
                continue
            if _is_of_module(table):
                self._recorder.ledger.unset.add(place[0])
            if table.transient is not None:
                self._recorder.ledger.buffers[place[0]] = persists = self._recorder.plan.missing_buffers[place]
                table.transient.update([] if persists else [key])
            if number is None or not self._is_missing(table, key, place, number):
                yield key

    def _key_in(self, table: Table, place: Place) -> Any:
        if place not in self._recorder.plan.missing_buffers:
            return key_in(table, *place)
        owner, _, name = place[0].rpartition(".")
        return name if table.transient is not None and table.path.rstrip(".") == owner else None

    def _is_asked(self, table: Table, key: str, now: Any, kind_of: Callable[[Any], Kind]) -> bool:
        if isinstance(now, nn.Module | nn.Parameter):
            return False
        recorder, is_of_module = self._recorder, _is_of_module(table)
        is_asked = recorder.callers.may_look_for(str(key), in_dicts=is_of_module)
        if is_of_module and recorder.reads is not None:
            is_asked |= (table.path[:-1], key) in recorder.reads.found_missing
        if not is_asked or _can_be_asked(table, key):
            return is_asked and not (is_of_module and _may_be_none(kind_of(now)))
        what = f"the program makes {table.name(key)} where it is missing, which a graph cannot ask"
        error = CaptureError(what, fix="give it a value before the first call, such as None")
        recorder.questions.refusals.refuse(error, "attribute")
        return False

    def _is_missing(self, table: Table, key: str, place: Place, number: int) -> bool:
        """Have the program fork into the calls that find an attribute and those that do not, or check for it."""
        recorder = self._recorder
        if _is_of_module(table):
            node = recorder.node("call_function", operator.is_, (self._read(place), None), {}, name="is_missing")
        else:
            path, keys = place
            owner = table.now.shown(key)[0] if isinstance(table.now, Variables) else self._read((path, keys[:-1]))
            node = recorder.node("call_function", hasattr, (owner, str(key)), {}, name="is_there")
            node = recorder.node("call_function", operator.not_, (node,), {}, name="is_missing")
        if len({*self._known.values()} - {None}) > _ASKED_APART:
            number = 0
        answer = self._answers.get(number)
        symbol = recorder.numbers.input_symbol(node, answer is not False)
        question, forking = ("attribute", place), recorder.questions.forking
        if answer is not None or recorder.plan.ways.get(question) == "guard" or forking.follows_start():
            when = "before the first call: capture the model after it" if answer is None else "with the others"
            is_missing = bool(recorder.questions.guards.guard(symbol, f"{table.name(key)} is missing {when}"))
        else:
            is_missing = forking.fork(symbol, question)
            forking.forks[-1].site = None  # no line of the program asks
        if number not in self._answers:
            self._answers[number] = is_missing
            if not is_missing and recorder.shells is not None:
                left = recorder.plan.hooks_left.get(number, [])
                install(recorder.shells, left)
                self._installed.update(each[:3] for each in left)
        return is_missing


def say_made(recorder: TypedCapture, graph: Graph, looked_for: dict[tuple[str, str], tuple[str, bool]]) -> None:
    """Say which attributes of modules the graph makes at each call, though the program does where they are missing.

    `looked_for` are those that it looked for, by the path of the module and their name: where, and whether in a line
    that nobody can change. One that hangs on nothing that another call may have otherwise is the same each time.
    """
    nodes = graph.all_nodes_now() if looked_for else ()
    writes = {str(node.args[0]): node.args[1] for node in nodes if node.target is write_attribute}
    for (path, name), (at, is_quiet) in looked_for.items():
        full = f"{path}.{name}" if path else name
        if (full, ()) not in recorder.plan.missing and full in writes and _may_vary(writes[full]):
            what = f"self.{full} is made where it is missing, which the captured program does at each call"
            recorder.ledger.say(f"{what}: run the model once first", at, is_quiet=is_quiet)


def _may_vary(value: Argument) -> bool:
    """Tell whether what a graph computes may be something else in another call."""
    waiting, seen = [*nodes_in(value)], set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if node.op in ("placeholder", "get_attr") or is_region(node) or is_random(node):
                return True
            if any(written_and_given(user) is node or user.target is operator.setitem for user in node.users):
                return True  # each call writes to what the one before has left
            waiting += node.all_input_nodes
    return value is None or type(value) in (int, float)  # which may have been counted


def _is_of_module(table: Table) -> bool:
    return table.keys is None and not isinstance(table.now, Variables)


def _can_be_asked(table: Table, key: str) -> bool:
    """Tell whether a graph can ask for an attribute."""
    if isinstance(table.now, Variables):
        return isinstance(table.now.owner, type | FunctionType)
    if table.keys is None:
        return holds_attributes(table) or table.transient is not None
    return isinstance(key, Field) and not any(isinstance(each, Hidden) for each in table.place(key)[1])


def _may_be_none(kind: Kind) -> bool:
    return kind == _NONE or isinstance(kind, OptionalKind) or (isinstance(kind, Choice) and None in kind.values)

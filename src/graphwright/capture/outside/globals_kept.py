"""Global variables and tables that installed packages write to: none of them keeps a value of a capture."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.outside.entered_contexts import is_seen_with_examples
from graphwright.capture.outside.overheard import aliases
from graphwright.capture.outside.python_draws import STATELESS, has_state
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.source import is_installed, is_internal, stored_globals

if TYPE_CHECKING:
    from graphwright.capture.state.plan import Log, Plan

_MISSING = object()


class Globals:
    """What the functions of a program found under the global names that they mention."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._found: dict[tuple[int, str], tuple[dict[str, Any], Any, Any]] = {}  # names, value, a copy of a table
        self._searched: set[int] = set()  # globals of modules, by id
        self._counted: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}  # numbers and texts that it assigns
        self.overheard: dict[tuple[int, str], Any] = {}  # names that functions of the capture's interest have there
        self.generators: dict[int, Any] = {}  # of random numbers, that functions of the program can reach, by id
        self.closing: set[tuple[str, int, str]] = set()  # the variables of other functions that hold some of them

    def note(self, code: CodeType, names: dict[str, Any]) -> None:
        """Note what there is before a function goes on."""
        if code in self._codes:
            return
        self._codes.add(code)
        self._look_into(names)
        if not is_installed(code.co_filename):  # what the program itself writes is a part of the captured one
            return
        for name in stored_globals(code):
            if type(names.get(name)) in _PLAIN:
                self._counted.setdefault((id(names), name), (names, names[name]))
        for name in code.co_names:
            value = names.get(name, _MISSING)
            if (id(names), name) not in self._found and (value is _MISSING or isinstance(value, _KEPT)):
                copied = value.copy() if isinstance(value, _TABLES) and not holds_values(value) else None
                self._found[id(names), name] = names, value, copied

    def _look_into(self, names: dict[str, Any]) -> None:
        if id(names) not in self._searched:
            self._searched.add(id(names))
            self.search(names)
            self.hear_in(names)

    def hear_in(self, names: dict[str, Any]) -> None:
        """Note what functions of the capture's interest are called there."""
        heard = [entry for entry in aliases(names) if not is_seen_with_examples(entry[2])]
        self.overheard.update({(id(names), entry[1]): entry for entry in heard})

    def follow(self, function: FunctionType) -> None:
        """Look into the variables of a function's module, and of those whose functions it calls by a name."""
        waiting, seen = [function], {id(function.__code__)}
        while waiting:
            function = waiting.pop()
            names = function.__globals__
            if is_internal(function.__code__.co_filename):
                continue
            self._look_into(names)
            for name in function.__code__.co_names:
                called = names.get(name)
                if type(called) is FunctionType and id(called.__code__) not in seen:
                    seen.add(id(called.__code__))
                    waiting.append(called)

    def search(self, values: Mapping[str, Any]) -> None:
        """Note the generators of random numbers among these variables."""
        held = [value for value in [*values.values()] if type(value) not in STATELESS]
        self.generators.update((id(value), value) for value in held if has_state(value))

    def search_closure(self, frame: FrameType, plan: Plan) -> None:
        """Note the generators among a function's variables of other functions.

        A variable that holds another one than in the last pass does not count: this is one that the program makes.
        """
        code, held = frame.f_code, frame.f_locals
        for name in code.co_freevars:
            value = held.get(name)
            if has_state(value):
                place = code.co_filename, code.co_firstlineno, name
                self.closing.add(place)
                if place not in plan.closing or id(value) in plan.generators:
                    self.generators[id(value)] = value

    def put_back(self, is_over: bool, log: Log | None) -> None:
        """Take values of the capture out again, and give numbers back, with a TracerWarning for each name."""
        for (_, name), (names, before) in self._counted.items():
            now = names.get(name, _MISSING)
            if type(now) in _PLAIN and now is not before and now != before:
                names[name] = before
                if not is_over:  # it might have given it back itself
                    continue
                warn_tracer(
                    f"the program assigns the global {name!r} of {names.get('__name__')}: the captured one does not",
                    log,
                )
        self._counted.clear()
        for (_, name), (names, before, copied) in self._found.items():
            now = names.get(name, _MISSING)
            if now is _MISSING or not holds_values(now):
                continue
            if now is not before:
                if before is _MISSING:
                    del names[name]
                else:
                    names[name] = before
            elif copied is not None:
                now.clear()
                now.extend(copied) if isinstance(now, list) else now.update(copied)
            warn_tracer(
                f"the program keeps a tensor in the global {name!r} of {names.get('__name__')}: "
                "the captured one does not",
                log,
            )
        self._found.clear()
        self._codes.clear()


_PLAIN = (int, float, bool, str)
_TABLES = (dict, list, set)
_KEPT = (*_TABLES, int, float, str, type(None))

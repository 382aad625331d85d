"""What the sides of a branch, or the iterations of a loop, may change: it is noted, put back and written."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from types import CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.effects.reach import EMPTY, content_of, leads_to, seen_state
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.contents import changeable, content, is_unchanged, refill
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.unbound import BoundIf, Unbound
from graphwright.capture.state.running import is_in_context, set_in_context
from graphwright.capture.state.samples import Unlike
from graphwright.source import PREFIX, codes_of, mentions
from graphwright.values import Given, Template, filled

if TYPE_CHECKING:
    from graphwright.capture.effects.variables import Variables
    from graphwright.capture.proxies.contents import Container
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["EMPTY", "Bound", "OneSided", "State", "cells_of", "content_of", "names_in", "set_cell"]


_ATOMS = frozenset({int, float, bool, str, bytes, complex, type(None)})
_UNCHANGED = (torch.Tensor, ModuleType)
_TABLES = ("_modules", "_buffers", "_parameters")
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


class Bound(Template):
    """In joined values: a variable that has a value where the branch is true."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def filled(self, given: Given) -> Bound:
        """The variable with its value."""
        return Bound(filled(self.value, given))


class OneSided:
    """In joined values: a variable that one side left without a value."""


class State:
    """What the sides of a branch may change: variables, containers that these reach, attributes of modules.

    Modules are watched from when they are first reached: from the variables of the branch, or called on a side of it.
    """

    def __init__(
        self,
        functions: tuple[Callable[[], Any], ...],
        names: tuple[str, ...],
        alive: tuple[str, ...],
        is_loop: bool = False,
        unshared: tuple[str, ...] = (),
    ) -> None:
        self.is_loop = is_loop
        everything = cells_of(functions)
        self._containers: list[tuple[Any, Any]] = []
        self._apart: list[tuple[Any, Any]] = []  # what is written to these is not joined: in the graph, or gone
        self._kept: list[tuple[Any, Any]] = []  # what cannot be put back, and how it is
        self._outside: list[tuple[Variables, str, Any]] = []
        self._seen: set[int] = set()
        self._alive: list[Any] = []
        self._functions: list[FunctionType] = []  # that the variables lead to
        self._unshared = {id(content_of(everything[name])) for name in unshared if name in everything}
        near = _functions_in(functions)
        mentioned = _names_of((*functions, *near))
        cells_near = [cell for function in near for cell in function.__closure__ or ()]
        for cell in (*everything.values(), *cells_near):
            self.watch(content_of(cell), mentioned)
        self._context = copy_context()
        for value in set_in_context():
            self.watch(value, mentioned)
        inner = _cells_inside(everything, near, self._functions)
        names, alive = (*names, *inner), (*alive, *inner)
        everything.update(inner)
        cells = {name: everything[name] for name in everything if name in names}
        self._cells = cells
        self.cells = everything  # those that the sides only read, too
        self.names = tuple(name for name in cells if name in alive)
        self._before = [content_of(cell) for cell in cells.values()]

    def watch(self, value: Any, mentioned: frozenset[str] = frozenset()) -> None:
        """Note what a value leads to: what containers, modules and objects hold, to put it back.

        Of a module, its submodules are noted too, and theirs whose names are `mentioned` by whoever has it; all others
        are noted when they are called.
        """
        waiting = [value]
        if isinstance(value, nn.Module):
            waiting = [*_reached_submodules(value, mentioned)[::-1], value]
        while waiting:
            value = waiting.pop()
            if type(value) in _ATOMS or id(value) in self._seen or isinstance(value, _UNCHANGED):
                continue
            if is_growing(value):
                self._see(value)
                if not value.is_local:
                    self._apart.append((value, content(value)))
                continue
            containers = changeable(value)
            if isinstance(value, nn.Module):
                self._see(value)
                tables = vars(value)
                containers = [tables, *[tables[name] for name in _TABLES if name in tables]]
                waiting += [tables[name] for name in tables if name not in _TABLES][::-1]
            elif containers:
                self._see(value)
                if "<locals>" in type(value).__qualname__:
                    waiting.append(type(value))
                for container in containers:
                    waiting += [*(container.values() if isinstance(container, dict) else container)][::-1]
            elif isinstance(value, tuple) or not _is_ours(value):
                waiting += self._look(value)
            for container in containers:
                kept = self._apart if id(container) in self._unshared else self._containers
                kept.append((container, content(container)))

    def watch_outside(self, variables: Iterable[Variables]) -> None:
        """Note what variables outside of the program's functions and modules hold, and lead to."""
        for each in variables:
            self._outside += [(each, name, each.value(name)) for name in each.names]
            for name in each.names:
                self.watch(each.value(name))

    def _look(self, value: Any) -> list[Any]:
        """Where a value leads that is no container, last first; of one that cannot be put back, note how it is."""
        if type(value) is FunctionType:
            if is_torch(value):
                return []
            self._functions.append(value)
        leads, state = [*leads_to(value)], seen_state(value)
        if leads or state is not None:
            self._see(value)
        if state is not None:
            self._kept.append((value, state))
        return leads[::-1]

    def _see(self, value: Any) -> None:
        self._seen.add(id(value))
        self._alive.append(value)  # no other object gets its id

    def check(self) -> None:
        """See that nothing has changed that cannot be put back. Raises Unlike."""
        for value, before in self._kept:
            if seen_state(value) != before:
                name = f"the class {value.__qualname__}" if isinstance(value, type) else f"a {type(value).__name__}"
                raise Unlike(f"{name} is changed")
        if not is_in_context(self._context):
            raise Unlike("a ContextVar is set")
        for variables, name, value in self._outside:
            if variables.value(name) is not value:
                raise Unlike(f"{name!r} of {variables.title} is assigned")

    def has_changed(self, before: Sequence[Any]) -> bool:
        """Tell whether something of the state, which was read `before`, is another now."""
        try:
            self.check()
        except Unlike:
            return True
        return not all(map(is_unchanged, before, self.read()))

    def is_outermost(self, recorder: Capture, container: Container) -> bool:
        """Tell whether no other branch or loop around this one has a container as part of its state."""
        return self.watches(container) and self is next(s for s in recorder.states if s.watches(container))

    def has_seen(self, value: Any) -> bool:
        """Tell whether what is watched leads to a value that may change."""
        return id(value) in self._seen

    def watches(self, container: Container) -> bool:
        """Tell whether a container is part of the state."""
        return any(now is container for now, _ in self._containers)

    def values_before(self) -> list[Any]:
        """The state before the branch, as `read` gives that now."""
        values = dict(zip(self._cells, self._before, strict=True))
        return [*map(values.__getitem__, self.names), *[before for _, before in self._containers]]

    def contents_before(self, count: int) -> list[Any]:
        """What the containers that were watched after `count` others held: a side that did not reach them left it."""
        return [before for _, before in self._containers[count - len(self.names) :]]

    def read(self) -> list[Any]:
        """The state now: the variables, then the containers' contents."""
        return [*[content_of(self._cells[name]) for name in self.names], *[content(now) for now, _ in self._containers]]

    def restore(self) -> None:
        """Put everything back to how it was before the branch."""
        for cell, value in zip(self._cells.values(), self._before, strict=True):
            set_cell(cell, value)
        for now, before in (*self._containers, *self._apart):
            refill(now, before)

    def write(self, values: list[Any], where: str | None, place: Place | None, result: Any = None) -> None:
        """Give the variables and containers their values after the branch, whose own value is the result."""
        count = len(self.names)
        for name, value in zip(self.names, values[:count], strict=True):
            if value is OneSided:
                value = Unbound(name, where, place)
            elif type(value) is Bound:
                value = value.value if result is True else BoundIf(name, where, place, value.value, result)
            set_cell(self._cells[name], value)
        for (now, _), value in zip(self._containers, values[count:], strict=True):
            refill(now, value)


def cells_of(functions: Iterable[Callable[..., Any]]) -> dict[str, CellType]:
    """The variables that functions made from statements close over, through each other too."""
    cells: dict[str, CellType] = {}
    waiting = [*functions]
    while waiting:
        function = waiting.pop()
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name.startswith(PREFIX):  # what comes after the branch, a function that both sides call
                waiting.append(content_of(cell))
            else:
                cells[name] = cell
    return cells


def _cells_inside(
    cells: dict[str, CellType], near: Sequence[FunctionType], functions: Iterable[FunctionType]
) -> dict[str, CellType]:
    """The variables of functions in these variables, and those that further ones assign.

    def add(v): nonlocal total; total += v
    """
    known = {id(cell) for cell in cells.values()}
    found: dict[str, CellType] = {}
    for function in (*near, *functions):
        rebound = mentions(function.__code__).rebound if function not in near else None
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in known and not name.startswith(PREFIX) and (rebound is None or name in rebound):
                known.add(id(cell))
                found[name if name not in {*cells, *found} else f"{name} of {function.__name__} {len(found)}"] = cell
    return found


def _functions_in(functions: Sequence[Any]) -> list[FunctionType]:
    """The functions that the variables of functions hold, and the variables of these."""
    found: dict[int, FunctionType] = {}
    waiting = [content_of(cell) for function in functions for cell in function.__closure__ or ()]
    while waiting:
        value = waiting.pop()
        if type(value) is tuple:
            waiting += value
        elif type(value) is FunctionType and id(value) not in found and not is_torch(value):
            found[id(value)] = value
            waiting += map(content_of, value.__closure__ or ())
    return [*found.values()]


def names_in(function: Any) -> frozenset[str]:
    """The names that a function mentions, and those that it closes over."""
    return _names_of((function, *_functions_in((function,))))


def _names_of(functions: Sequence[Any]) -> frozenset[str]:
    codes = (code for function in functions for code in codes_of(function.__code__))
    return frozenset(itertools.chain.from_iterable(code.co_names for code in codes))


def _reached_submodules(module: nn.Module, mentioned: frozenset[str]) -> list[nn.Module]:
    """The submodules of a module, and theirs that are mentioned by name, or as items of a list that is."""
    found, waiting, seen = [], [(module, True)], {id(module)}
    while waiting:
        around, has_all = waiting.pop()
        for name, child in vars(around).get("_modules", {}).items():
            if child is not None and id(child) not in seen and (has_all or name in mentioned):
                seen.add(id(child))
                found.append(child)
                if name in mentioned or isinstance(around, _LISTS):
                    waiting.append((child, isinstance(child, _LISTS)))
    return found


def _is_ours(value: Any) -> bool:
    """Tell whether a value is the capture's own: a stand-in of it, or a call that a shell makes."""
    made_by = value.func if isinstance(value, functools.partial) else value
    homes = type(value).__module__, getattr(made_by, "__module__", None)
    return any(isinstance(home, str) and home.startswith("graphwright.") for home in homes)


def set_cell(cell: CellType, value: Any) -> None:
    """Have a cell hold a value, or nothing if that is EMPTY."""
    if value is EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = value

"""What the sides of a branch, or the iterations of a loop, may change: it is noted, put back and written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.reach import seen_state
from graphwright.capture.effects.watched_values import WatchedOutside, WatchedValues
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.contents import content, is_still, is_unchanged, refill
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.capture.proxies.unbound import BoundIf, Unbound
from graphwright.capture.state.running import is_in_context, set_in_context
from graphwright.capture.state.samples import Unlike
from graphwright.source import EMPTY, PREFIX, closure_of, content_of, mentions, names_in
from graphwright.values import Given, Template, filled

if TYPE_CHECKING:
    from graphwright.capture.effects.variables import Variables
    from graphwright.capture.proxies.contents import Container
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture


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
        self._outside: list[tuple[Variables, str, Any]] = []
        held = [*map(everything.get, unshared)] if unshared else []
        self._watched = WatchedValues({id(content_of(cell)) for cell in held if cell is not None} if held else set())
        self._containers = self._watched.containers
        near = _functions_in(functions)
        mentioned = _names_of((*functions, *near))
        cells_near = [*everything.values()]
        for function in near:
            cells_near += function.__closure__ or ()
        for cell in cells_near:
            self._watched.watch(content_of(cell), mentioned)
        self._context = copy_context()
        for value in set_in_context():
            self.watch(value, mentioned)
        inner = _cells_inside(everything, near, self._watched.functions)
        names, alive = (*names, *inner), (*alive, *inner)
        everything.update(inner)
        cells = {name: everything[name] for name in everything if name in names}
        self._cells = cells
        self.cells = everything  # those that the sides only read, too
        self.names = tuple(filter(alive.__contains__, cells))
        self._before = [*map(content_of, cells.values())]

    def watch(self, value: Any, mentioned: frozenset[str] = frozenset()) -> None:
        """Note what a value leads to; of a module, what is `mentioned` below it by whoever has it."""
        self._watched.watch(value, mentioned)

    def watch_outside(self, outside: WatchedOutside) -> None:
        """Note what variables outside of the program's functions and modules hold, and lead to."""
        self._outside, found = outside.look()
        self._watched.take(found)

    def check(self) -> None:
        """See that nothing has changed that cannot be put back. Raises Unlike."""
        for value, before in self._watched.kept:
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

    def watches(self, container: Container) -> bool:
        """Tell whether a container is part of the state."""
        return any(now is container for now, _ in self._containers)

    def was_there(self, value: Any) -> bool:
        """Tell whether a value is an object that the state leads to: what changes in it is part of the state."""
        return self._watched.has_seen(value) and is_plain_object(value)

    def values_before(self) -> list[Any]:
        """The state before the branch, as `read` gives that now."""
        values = dict(zip(self._cells, self._before, strict=True))
        return [*map(values.__getitem__, self.names), *[before for _, before in self._containers]]

    def contents_before(self, count: int) -> list[Any]:
        """What the containers that were watched after `count` others held: a side that did not reach them left it."""
        first = count - len(self.names)
        return [before for _, before in self._containers[first:]] if first < len(self._containers) else []

    def read(self) -> list[Any]:
        """The state now: the variables, then the containers' contents; of one that is as it was, those from before."""
        variables = [*map(content_of, map(self._cells.__getitem__, self.names))]
        if not self._containers:
            return variables
        return variables + [before if is_still(now, before) else content(now) for now, before in self._containers]

    def restore(self, values: Sequence[Any] | None = None) -> None:
        """Put everything back to how it was before the branch, from how it was just read, where that is known."""
        for cell, value in zip(self._cells.values(), self._before, strict=True):
            set_cell(cell, value)
        for now, before in self._watched.apart:
            refill(now, before)
        held = itertools.repeat(None) if values is None else values[len(self.names) :]
        for (now, before), value in zip(self._containers, held, strict=False):
            if value is not before:
                refill(now, before)

    def write(
        self, values: list[Any], where: Callable[[], str | None], place: Place | None, result: Any = None
    ) -> None:
        """Give the variables and containers their values after the branch, whose own value is the result.

        `where` tells the user's line.
        """
        count = len(self.names)
        for name, value in zip(self.names, values[:count], strict=True):
            if value is OneSided:
                value = Unbound(name, where(), place)
            elif type(value) is Bound:
                value = value.value if result is True else BoundIf(name, where(), place, value.value, result)
            set_cell(self._cells[name], value)
        for (now, _), value in zip(self._containers, values[count:], strict=True):
            refill(now, value)


def cells_of(functions: Iterable[Callable[..., Any]]) -> dict[str, CellType]:
    """The variables that functions made from statements close over, through each other too."""
    cells: dict[str, CellType] = {}
    waiting: list[Any] = [*functions]
    while waiting:
        function = waiting.pop()
        for name, cell in closure_of(function).items():
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
    found: dict[str, CellType] = {}
    known = {*map(id, cells.values())}
    for function in (*near, *functions):
        rebound = mentions(function.__code__).rebound if function not in near else None
        for name, cell in closure_of(function).items():
            if id(cell) not in known and not name.startswith(PREFIX) and (rebound is None or name in rebound):
                known.add(id(cell))
                found[name if name not in {*cells, *found} else f"{name} of {function.__name__} {len(found)}"] = cell
    return found


def _functions_in(functions: Sequence[Any]) -> list[FunctionType]:
    """The functions that the variables of functions hold, and the variables of these."""
    found: dict[int, FunctionType] = {}
    waiting: list[Any] = []
    for function in functions:
        waiting += map(content_of, function.__closure__ or ())
    while waiting:
        value = waiting.pop()
        if type(value) is tuple:
            waiting += value
        elif type(value) is FunctionType and id(value) not in found and not is_torch(value):
            found[id(value)] = value
            waiting += map(content_of, value.__closure__ or ())
    return [*found.values()]


def names_reached(function: Any) -> frozenset[str]:
    """The names that a function mentions, and those that it closes over."""
    return _names_of((function, *_functions_in((function,))))


def _names_of(functions: Sequence[Any]) -> frozenset[str]:
    return frozenset().union(*[names_in(function.__code__) for function in functions])


def set_cell(cell: CellType, value: Any) -> None:
    """Have a cell hold a value, or nothing if that is EMPTY."""
    if value is EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = value

"""What the sides of a branch, or the iterations of a loop, may change: it is noted, put back and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.contents import changeable, content, refill
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.unbound import BoundIf, Unbound
from graphwright.source import PREFIX
from graphwright.values import Given, Template, filled

if TYPE_CHECKING:
    from graphwright.capture.proxies.contents import Container
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["EMPTY", "Bound", "OneSided", "State", "cells_of", "content_of", "set_cell"]

EMPTY: Any = object()  # the content of a cell without one
_DEPTH = 4  # how far inside of each other the objects are that a branch may change


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
        inner = _cells_inside(everything)
        names, alive = (*names, *inner), (*alive, *inner)
        everything.update(inner)
        cells = {name: everything[name] for name in everything if name in names}
        self._cells = cells
        self.cells = everything  # those that the sides only read, too
        self.names = tuple(name for name in cells if name in alive)
        self._before = [content_of(cell) for cell in cells.values()]
        self._containers: list[tuple[Any, Any]] = []
        self._apart: list[tuple[Any, Any]] = []  # what is written to these is not joined: in the graph, or gone
        self._seen: set[int] = set()
        self._unshared = {id(content_of(everything[name])) for name in unshared if name in everything}
        for value in map(content_of, everything.values()):
            self.watch(value)
            if isinstance(value, nn.Module):
                for child in value._modules.values():
                    self.watch(child)

    def watch(self, value: Any, depth: int = _DEPTH) -> None:
        """Note what a container, module or object holds, to put it back."""
        seen = self._seen
        if id(value) in seen:
            return
        if type(value) is tuple:
            for item in value:
                self.watch(item, depth)
            return
        if is_growing(value):
            seen.add(id(value))
            if not value.is_local:
                self._apart.append((value, content(value)))
            return
        containers = changeable(value)
        if not containers:
            return
        seen.add(id(value))
        is_module = isinstance(value, nn.Module)
        for container in containers:
            kept = self._apart if id(container) in self._unshared else self._containers
            kept.append((container, content(container)))
            held = container.values() if isinstance(container, dict) else container
            for item in list(held) if depth and not (is_module and container is not value.__dict__) else ():
                if not isinstance(item, nn.Module):  # those are watched when they are called
                    self.watch(item, depth - 1)

    def is_outermost(self, recorder: Capture, container: Container) -> bool:
        """Tell whether no other branch or loop around this one has a container as part of its state."""
        return self.watches(container) and self is next(s for s in recorder.states if s.watches(container))

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


def _cells_inside(cells: dict[str, CellType]) -> dict[str, CellType]:
    """The variables that functions defined around a branch assign: `def add(v): nonlocal total; total += v`."""
    known = {id(cell) for cell in cells.values()}
    found: dict[str, CellType] = {}
    waiting = [content_of(cell) for cell in cells.values()]
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function.__closure__ is None or is_torch(function):
            continue
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            if id(cell) not in known:
                known.add(id(cell))
                waiting.append(content_of(cell))
                if not name.startswith(PREFIX):
                    found[name if name not in cells else f"{name} of {function.__name__}"] = cell
    return found


def content_of(cell: CellType) -> Any:
    """What a cell holds, EMPTY if nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def set_cell(cell: CellType, value: Any) -> None:
    """Have a cell hold a value, or nothing if that is EMPTY."""
    if value is EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = value

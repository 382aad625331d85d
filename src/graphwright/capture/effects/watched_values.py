"""What values lead to that a part of the program may change: noted, to see what it has changed, and to put it back."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from types import CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.effects.reach import leads_to, seen_state
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.contents import Container, changeable, content, is_still, is_unchanged
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.unbound import BoundIfRun
from graphwright.capture.state.symbols import NUMBERS
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import content_of

if TYPE_CHECKING:
    from graphwright.capture.effects.variables import Variables

# These lead nowhere, and do not change. A number of the run takes who asks for its class for the program.
_ATOMS = frozenset({int, float, bool, str, bytes, complex, type(None), TensorProxy, *NUMBERS})
_UNCHANGED = (torch.Tensor, ModuleType)
_TABLES = ("_modules", "_buffers", "_parameters")
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


class WatchedValues:
    """Containers, objects and modules that values lead to, and how these were."""

    def __init__(self, unshared: Collection[int] = ()) -> None:
        self.containers: list[tuple[Any, Any]] = []
        self.apart: list[tuple[Any, Any]] = []  # what is written to these is not joined: in the graph, or gone
        self.functions: list[FunctionType] = []
        self.kept: list[tuple[Any, Any]] = []  # what cannot be put back, and how it is
        self._cells: list[tuple[CellType, Any]] = []  # of functions that are looked into
        self._seen: set[int] = set()
        self._alive: list[Any] = []
        self._unshared = unshared

    def watch(self, value: Any, mentioned: frozenset[str] = frozenset()) -> None:
        """Note what a value leads to: what containers, modules and objects hold, to put it back.

        Of a module, its submodules are noted too, and theirs whose names are `mentioned` by whoever has it; all others
        are noted when they are called.
        """
        waiting = [value.value() if type(value) is BoundIfRun else value]
        if isinstance(value, nn.Module):
            waiting = [*_reached_submodules(value, mentioned)[::-1], value]
        while waiting:
            value = waiting.pop()
            kind = type(value)
            if kind in _ATOMS or id(value) in self._seen or isinstance(value, _UNCHANGED):
                continue
            if kind is OrderedDict and not value:  # hooks, of which most modules have none
                self._see(value)
                self._keep(value, {})
                continue
            if is_growing(value):
                self._see(value)
                if not value.is_local:
                    self.apart.append((value, content(value)))
                continue
            containers = changeable(value)
            if isinstance(value, nn.Module):
                self._see(value)
                tables = vars(value)
                containers = [tables, *[tables[name] for name in _TABLES if isinstance(tables.get(name), dict)]]
                others = [tables[name] for name in tables if name not in _TABLES]
                waiting += [other for other in others if type(other) not in _ATOMS][::-1]
            elif containers:
                self._see(value)
                if "<locals>" in kind.__qualname__:
                    waiting.append(kind)
                for container in containers:
                    waiting += [*(container.values() if isinstance(container, dict) else container)][::-1]
            elif isinstance(value, tuple) or not _is_ours(value):
                waiting += self._look(value)
            for container in containers:
                self._keep(container, content(container))

    def take(self, other: WatchedValues) -> None:
        """Note what is noted there, too."""
        if not other._seen:
            return
        noted = {id(each) for each, _ in (*self.containers, *self.apart, *self.kept)}
        for mine, its in (self.containers, other.containers), (self.apart, other.apart), (self.kept, other.kept):
            mine += [each for each in its if id(each[0]) not in noted]
        self._alive += other._alive
        self._seen |= other._seen

    def has_seen(self, value: Any) -> bool:
        """Tell whether what is watched leads to a value that may change."""
        return id(value) in self._seen

    def is_unchanged(self) -> bool:
        """Tell whether all is as it was noted: to look again would find the same."""
        return (
            not self.apart
            and all(is_still(now, before) or is_unchanged(before, content(now)) for now, before in self.containers)
            and all(content_of(cell) is before for cell, before in self._cells)
            and all(seen_state(value) == before for value, before in self.kept)
        )

    def _look(self, value: Any) -> list[Any]:
        """Where a value leads that is no container, last first; of one that cannot be put back, note how it is."""
        if type(value) is FunctionType:
            if is_torch(value):
                return []
            self.functions.append(value)
            self._cells += [(cell, content_of(cell)) for cell in value.__closure__ or ()]
        leads, state = [*leads_to(value)], seen_state(value)
        if leads or state is not None:
            self._see(value)
        if state is not None:
            self.kept.append((value, state))
        return leads[::-1]

    def _keep(self, container: Container, held: Any) -> None:
        kept = self.apart if id(container) in self._unshared else self.containers
        kept.append((container, held))

    def _see(self, value: Any) -> None:
        self._seen.add(id(value))
        self._alive.append(value)  # no other object gets its id


class WatchedOutside:
    """What variables outside of the program's functions and modules hold, and lead to.

    That may be much, and most branches leave it alone: it is looked at again where it is not what it was.
    """

    def __init__(self, variables: Callable[[], Iterable[Variables]]) -> None:
        self.variables = variables
        self._held: list[tuple[Variables, str, Any]] = []
        self._found = WatchedValues()

    def look(self) -> tuple[list[tuple[Variables, str, Any]], WatchedValues]:
        """The variables with their values, and what these lead to."""
        before, self._held = self._held, []
        for variables in self.variables():
            self._held += [(variables, name, variables.value(name)) for name in variables.names]
        if not before and not self._held:
            return self._held, self._found
        is_same = len(before) == len(self._held) and all(a[2] is b[2] for a, b in zip(before, self._held, strict=True))
        if not is_same or (before and not self._found.is_unchanged()):
            self._found = WatchedValues()
            for *_, value in self._held:
                self._found.watch(value)
        return self._held, self._found


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

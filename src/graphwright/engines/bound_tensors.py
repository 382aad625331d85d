"""What inlined code takes for granted of modules: found once, looked at in one check at the start of each call.

Inlined code calls the functions of modules, and not the modules. That is right as long as these are the same modules,
of the same classes, with the same settings, and nobody hooked into them. Tensors are never remembered: each call reads
them where their modules have them, so that they may be replaced at any time.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn
from torch.compiler import is_dynamo_compiling

from graphwright.errors import GuardError
from graphwright.ir import Graph
from graphwright.runtime import (
    HOOKS,
    STATE,
    Bound,
    FoundModules,
    Plainness,
    Watch,
    Watched,
    bound,
    calls_are_plain,
    facts_of_modules,
    is_conditional,
    unrolled_checks,
    unrolled_reads,
)

_TABLES = ("_parameters", "_buffers")
_ITEM = operator.getitem


@dataclass(frozen=True, slots=True)
class Leaf:
    """A module of which the function is called in its place.

    path: where it is. kind: its class, and `forward` that of its class. settings: the plain attributes that the call
    has as literals. absent: the parameters and buffers that it has not.
    """

    path: str
    kind: type[nn.Module]
    forward: Any
    settings: Mapping[str, Any]
    absent: tuple[str, ...]

    def fits(self, module: nn.Module | None) -> bool:
        """Tell whether a module is of the class for which the call was written."""
        return type(module) is self.kind and self.kind.forward is self.forward


class Place(NamedTuple):
    """Where a tensor or training flag is: the path of its module, which table of that has it, and its name there."""

    owner: str
    table: str
    name: str


def place_of(root: nn.Module, path: str) -> Place | None:
    """The place of a tensor or training flag; None for what is no such thing.

    >>> place_of(nn.Sequential(nn.BatchNorm1d(2)), "0.running_mean"), place_of(nn.ReLU(), "inplace")
    (Place(owner='0', table='_buffers', name='running_mean'), None)
    """
    above, _, name = path.rpartition(".")
    owner: Any = root
    for atom in above.split(".") if above else ():
        owner = owner._modules.get(atom) if isinstance(owner, nn.Module) else None
    if not isinstance(owner, nn.Module) or hasattr(type(owner), name):
        return None
    if name == "training":
        return Place(above, "__dict__", name)
    table = next((each for each in _TABLES if name in owner.__dict__[each]), None)
    return None if table is None or name in owner.__dict__ else Place(above, table, name)


class Binding:
    """What one piece of inlined code takes for granted: of which modules it knows, and where their tensors are."""

    __slots__ = ("facts", "graph", "leaves", "places")

    def __init__(self, graph: Graph, leaves: Sequence[Leaf], places: Sequence[Place]) -> None:
        self.graph = graph
        self.leaves = leaves
        self.places = places
        self.facts: Facts | None = None  # None: to be found

    def checked(self, root: nn.Module) -> Facts | None:
        """The facts of the modules that are there now; None where modules have to be called."""
        facts = self.facts
        if facts is not None and facts.are_untouched(root):
            return facts
        try:
            if facts is not None and facts.hold(root, self.graph):
                return facts
            if facts is not None and facts.are_of(root):
                return None
            facts = self.facts = Facts(root, self)
            return facts if facts.hold(root, self.graph) else None
        except KeyError:  # a setting that is gone
            return None


class Facts:
    """What one tree of modules is to be like, and where it has its tensors."""

    __slots__ = (
        "_checks", "_flags", "_found", "_hooks", "_is_usable", "_names", "_plainness", "_premises", "_reads",
        "_same_tables", "_states", "_tables", "_watch",
    )  # fmt: skip

    def __init__(self, root: nn.Module, binding: Binding) -> None:
        leaves, places = binding.leaves, binding.places
        self._found = FoundModules(root, [*[leaf.path for leaf in leaves], *[place.owner for place in places]])
        modules, owners = self._found.modules[: len(leaves)], self._found.modules[len(leaves) :]
        fits = [leaf.fits(module) for leaf, module in zip(leaves, modules, strict=True)]
        self._is_usable = all(fits) and None not in owners
        self._premises: Bound | None = None  # what the capture took for granted
        self._plainness = Plainness([module for module in modules if module is not None])
        pairs = [(leaf, module.__dict__) for leaf, module in zip(leaves, modules, strict=True) if module is not None]
        settings = [(state, name, value) for leaf, state in pairs for name, value in leaf.settings.items()]
        self._checks = unrolled_checks("{0}[{1}] is not {2} and {0}[{1}] != {2}", settings)
        # Tensors that are not to be there.
        absent = [(state, table, name) for leaf, state in pairs for name in leaf.absent for table in _TABLES]
        self._checks += unrolled_checks("{0}[{1}].get({2}) is not None", absent)
        held = [(owner.__dict__, place) for owner, place in zip(owners, places, strict=True) if owner is not None]
        tensors = [(state, place.table, place.name) for state, place in held if place.table != "__dict__"]
        flags = [(state, place.name) for state, place in held if place.table == "__dict__"]
        self._reads = [*unrolled_reads("{0}[{1}][{2}]", tensors), *unrolled_reads("{0}[{1}]", flags)]
        # The tables that are looked at, and where they are: of hooks, and of tensors; and the owners of flags.
        rows = [(state, table) for _, state in pairs for table in HOOKS]
        self._hooks = len(rows)
        rows += [(state, table) for state, table, _ in (*absent, *tensors)]
        self._states, self._names = [state for state, _ in rows], [name for _, name in rows]
        self._tables = [*map(_ITEM, self._states, self._names)]
        self._same_tables = unrolled_checks(
            "{0}[{1}] is not {2}", [*zip(self._states, self._names, self._tables, strict=True)]
        )
        self._flags = [state for state, _ in flags]
        self._watch = self._watch_all()

    def tensors(self) -> list[Any] | None:
        """The tensors, and the training flags after them; None where one is computed now."""
        tensors: list[Any] = []
        try:
            for read in self._reads:
                tensors += read()
        except KeyError:
            return None
        return tensors

    @property
    def versions(self) -> list[int] | None:
        """Another list whenever something was written to; None where that is not known."""
        return self._watch.versions

    def notices(self, tables: Sequence[dict[Any, Any]]) -> bool:
        """Tell whether all these tables are among those whose writes give other versions."""
        return self._watch.includes(tables)

    def _watch_all(self) -> Watch:
        tables = [*self._states, *self._flags, *self._tables[self._hooks :]]
        premises = [] if self._premises is None else [self._premises.watched()]
        own = Watched(tables, self._tables[: self._hooks])
        return Watch([own, self._found.watched(), self._plainness.watched(), *premises])

    def are_untouched(self, root: nn.Module) -> bool:
        """Tell whether all is as it was when it was last found to hold; where that is not known, no."""
        return (
            root.__dict__["_modules"] is self._found.table
            and calls_are_plain()
            and self._watch.holds()
            and (self._premises is None or self._premises.rest_holds())
        )

    def are_of(self, root: nn.Module) -> bool:
        """Tell whether these are facts of the modules that are there now, with the tables that they have."""
        return (
            self._found.is_current(root)
            and not self._plainness.is_outdated()
            and all(same() for same in self._same_tables)
        )

    def hold(self, root: nn.Module, graph: Graph) -> bool:
        """Tell whether functions may be called instead of modules, as far as these are facts of the modules."""
        versions = self._watch.look()
        if is_conditional(graph) and (self._premises is None or not self._premises.holds()):
            try:
                self._premises = bound(root, graph, facts_of_modules(graph))
            except GuardError:
                return False
            self._watch = self._watch_all()
            versions = self._watch.look()
            if not self._premises.holds():
                return False
        if not self._is_usable or not self._found.is_current(root) or not self._plainness.holds():
            return False
        for check in self._checks if versions is None else (*self._checks, *self._same_tables):
            if not check():
                return False
        self._watch.keep(versions)
        return True


def tensors_of(module: Any, entry: str = "forward") -> list[Any] | None:
    """The tensors that inlined code reads, and the training flags after them; None where modules have to be called.

    That is where one of them has a hook, is of another class, has other settings or tensors, or is in training where
    the code is for evaluation; and for compilers, which inline for themselves.
    """
    if is_dynamo_compiling():
        return None
    held = module.__dict__[STATE].entries[entry].held
    facts = None if held is None else held.checked(module)  # None while a capture of another module captures this one
    return None if facts is None else facts.tensors()

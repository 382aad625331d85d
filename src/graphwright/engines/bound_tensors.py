"""What inlined code takes for granted of modules: found once, looked at in one check at the start of each call.

Inlined code calls the functions of modules, and not the modules. That is right as long as these are the same modules,
of the same classes, with the same settings, and nobody hooked into them. Tensors are never remembered: each call reads
them where their modules have them, so that they may be replaced at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn
from torch.compiler import is_dynamo_compiling

from graphwright.errors import GuardError
from graphwright.ir import Graph
from graphwright.runtime import (
    STATE,
    FoundModules,
    Plainness,
    bound,
    facts_of_modules,
    unrolled_checks,
    unrolled_reads,
)

__all__ = ["Binding", "Leaf", "Place", "place_of", "tensors_of"]

_TABLES = ("_parameters", "_buffers")


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
        self.facts: _Facts | None = None  # None: to be found

    def renew(self, root: nn.Module) -> _Facts:
        """Find the facts of the modules that are there now."""
        facts = self.facts = _Facts(root, self)
        return facts


class _Facts:
    """What one tree of modules is to be like, and where it has its tensors."""

    __slots__ = ("_checks", "_plainness", "found", "is_usable", "premises", "reads")

    def __init__(self, root: nn.Module, binding: Binding) -> None:
        leaves, places = binding.leaves, binding.places
        self.found = FoundModules(root, [*[leaf.path for leaf in leaves], *[place.owner for place in places]])
        modules, owners = self.found.modules[: len(leaves)], self.found.modules[len(leaves) :]
        fits = [leaf.fits(module) for leaf, module in zip(leaves, modules, strict=True)]
        self.is_usable = all(fits) and None not in owners
        self.premises: Any = _Unmet() if facts_of_modules(binding.graph) else None  # what the capture took for granted
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
        self.reads = [*unrolled_reads("{0}[{1}][{2}]", tensors), *unrolled_reads("{0}[{1}]", flags)]

    def hold(self) -> bool:
        """Tell whether functions may be called instead of modules."""
        if not self.is_usable:
            return False
        for check in self._checks:
            if not check():
                return False
        return self._plainness.holds()

    def are_outdated(self) -> bool:
        """Tell whether modules have got other classes."""
        return self._plainness.is_outdated()

    def renew_premises(self, root: nn.Module, graph: Graph) -> bool:
        """Tell whether what the capture took for granted is as good as it was."""
        try:
            self.premises = bound(root, graph)
        except GuardError:
            return False
        return True


class _Unmet:
    """Stands for premises that have not been found to hold yet."""

    def holds(self) -> bool:
        """Tell that they do not."""
        return False


def tensors_of(module: Any, entry: str = "forward") -> list[Any] | None:
    """The tensors that inlined code reads, and the training flags after them; None where modules have to be called.

    That is where one of them has a hook, is of another class, has other settings or tensors, or is in training where
    the code is for evaluation; and for compilers, which inline for themselves.
    """
    if is_dynamo_compiling():
        return None
    binding = module.__dict__[STATE].entries[entry].held
    facts = binding.facts
    if facts is None or not facts.found.is_current(module):
        facts = binding.renew(module)
    try:
        if not facts.hold():
            if not facts.are_outdated():
                return None
            facts = binding.renew(module)
            if not facts.hold():
                return None
        premises = facts.premises
        if premises is not None and not premises.holds() and not facts.renew_premises(module, binding.graph):
            return None
        tensors: list[Any] = []
        for read in facts.reads:
            tensors += read()
        return tensors
    except KeyError:  # a setting that is gone, or a tensor that is computed now
        return None

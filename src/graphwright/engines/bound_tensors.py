"""What inlined code takes for granted of modules: found once, looked at in one check at the start of each call.

Inlined code calls the functions of modules, and not the modules. That is right as long as these are the same modules,
of the same classes, with the same settings, and nobody hooked into them. Tensors are never remembered: each call reads
them where their modules have them, so that they may be replaced at any time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.nn.modules import module as _torch_module

from graphwright.errors import GuardError
from graphwright.ir import Graph
from graphwright.runtime import HOOKS, STATE, bound, facts_of_modules

__all__ = ["Binding", "Leaf", "Place", "is_called_plainly", "place_of", "tensors_of"]

_CALL = nn.Module.__call__
_GLOBAL_HOOKS = [
    getattr(_torch_module, name)
    for name in (
        "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks"
    )
]  # fmt: skip
_OF_CALLS = ("forward", "_compiled_call_impl")  # attributes of a module that change what its call does
_TABLES = ("_parameters", "_buffers")
_IS, _ITEM, _CONTAINS, _FORWARD = operator.is_, operator.getitem, operator.contains, operator.attrgetter("forward")
_NO_FORWARD, _NO_COMPILED = map(repeat, _OF_CALLS)
_MODULES, _TRAINING, _NONE = repeat("_modules"), repeat("training"), repeat(None)
_GET: Callable[..., Any] = dict.get


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


def is_called_plainly(module: nn.Module) -> bool:
    """Tell whether calling a module runs the `forward` of its class: `compile`, too, gives a module a call of its own.

    >>> is_called_plainly(nn.ReLU())
    True
    """
    return type(module).__call__ is _CALL and not any(map(module.__dict__.get, _OF_CALLS))


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
    """What one tree of modules is to be like, in lists of which each call compares all in C.

    Modules have one table of hooks of each kind for all their life; their tables of parameters are read each time.
    """

    __slots__ = (
        "absent", "classes", "flags", "forwards", "idle", "inside", "is_usable", "kinds", "modules",
        "premises", "read", "root", "settings", "states", "tables", "then", "values",
    )  # fmt: skip

    def __init__(self, root: nn.Module, binding: Binding) -> None:
        self.root = root.__dict__  # stand-ins that captures make of a module have its binding, too
        self.tables: list[dict[str, Any]] = []  # of submodules, and what is to be in them
        self.inside: list[dict[str, Any]] = []  # the attributes of the modules which have these tables
        self.modules: list[nn.Module] = []
        self.states: list[dict[str, Any]] = []  # the attributes of these
        self.idle = list(_GLOBAL_HOOKS)  # tables of hooks that are to be empty
        self.settings: _Places = [], []
        self.values: list[Any] = []
        self.absent: _Entries = [], [], []  # tensors that are not to be there
        self.read: _Entries = [], [], []  # tensors that are
        self.flags: list[dict[str, Any]] = []  # attributes of modules of which the training flag is read, after these
        self.premises: Any = _Unmet() if facts_of_modules(binding.graph) else None  # what the capture took for granted
        fits = [self._add_leaf(root, leaf) for leaf in binding.leaves]
        fits += [self._add_place(root, place) for place in binding.places]
        self.is_usable = all(fits)  # whether all modules are there
        self.then = [dict(table) for table in self.tables]
        self.kinds: list[type] = [leaf.kind for leaf in binding.leaves]
        forwards = {leaf.kind: leaf.forward for leaf in binding.leaves}
        self.classes, self.forwards = list(forwards), list(forwards.values())

    def _walk(self, root: nn.Module, path: str) -> Any:
        """The module at a path; the tables on the way are to stay what they are."""
        module: Any = root
        for atom in path.split(".") if path else ():
            if not isinstance(module, nn.Module):
                return None
            if not any(module._modules is table for table in self.tables):
                self.tables.append(module._modules)
                self.inside.append(module.__dict__)
            module = module._modules.get(atom)
        return module

    def _add_leaf(self, root: nn.Module, leaf: Leaf) -> bool:
        module = self._walk(root, leaf.path)
        if not isinstance(module, nn.Module):
            return False
        state = module.__dict__
        self.modules.append(module)
        self.states.append(state)
        self.idle += [state[table] for table in HOOKS]
        for name, value in leaf.settings.items():
            _add(self.settings, state, name)
            self.values.append(value)
        for name in leaf.absent:
            for table in _TABLES:
                _add(self.absent, state, table, name)
        return True

    def _add_place(self, root: nn.Module, place: Place) -> bool:
        owner = self._walk(root, place.owner)
        if not isinstance(owner, nn.Module):
            return False
        if place.table == "__dict__":
            self.flags.append(owner.__dict__)
        else:
            _add(self.read, owner.__dict__, place.table, place.name)
        return True

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


_Places = tuple[list[dict[str, Any]], list[str]]
_Entries = tuple[list[dict[str, Any]], list[str], list[str]]


def _add(lists: tuple[list[Any], ...], *values: Any) -> None:
    """Add a row to lists that are columns."""
    for column, value in zip(lists, values, strict=True):
        column.append(value)


def tensors_of(module: Any, entry: str = "forward") -> list[Any] | None:
    """The tensors that inlined code reads, and the training flags after them; None where modules have to be called.

    That is where one of them has a hook, is of another class, has other settings or tensors, or is in training where
    the code is for evaluation; and for compilers, which inline for themselves.
    """
    if is_dynamo_compiling():
        return None
    state = module.__dict__
    binding = state[STATE].entries[entry].held
    facts = binding.facts
    if (
        facts is None
        or facts.root is not state
        or facts.tables != facts.then
        or not all(map(_IS, map(_ITEM, facts.inside, _MODULES), facts.tables))
    ):
        facts = binding.renew(module)
    if (
        not facts.is_usable
        or any(facts.idle)
        or any(map(_CONTAINS, facts.states, _NO_FORWARD))
        or any(map(_CONTAINS, facts.states, _NO_COMPILED))
        or nn.Module.__call__ is not _CALL
        or [*map(type, facts.modules)] != facts.kinds
        or [*map(_FORWARD, facts.classes)] != facts.forwards
        or [*map(_GET, *facts.settings)] != facts.values
        or not (facts.premises is None or facts.premises.holds() or facts.renew_premises(module, binding.graph))
    ):
        return None
    states, tables, names = facts.absent
    if states and not all(map(_IS, map(_GET, map(_ITEM, states, tables), names), _NONE)):
        return None
    states, tables, names = facts.read
    try:
        return [*map(_ITEM, map(_ITEM, states, tables), names), *map(_ITEM, facts.flags, _TRAINING)]
    except KeyError:  # a tensor that is computed now
        return None

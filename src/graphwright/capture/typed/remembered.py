"""What captures of a process have learned of the programs that they captured, for the next capture of one like it.

A capture that meets a question which it cannot answer as it goes starts again, until its plan has an answer for each.
The next capture of a program that is made alike and gets alike inputs begins with the plan that held. It is a hint on
what to do first and no more: where the graph does not come out as it did, or there is one more question, the capture
is made as if nothing were known.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.state.plan import Conversions, Plan
from graphwright.ir import ATOMS, Graph, Node, nodes_in
from graphwright.runtime import MODULE_TABLES, ReportEntry, facts_of_modules, state_of
from graphwright.source import content_of
from graphwright.values import Kind

if TYPE_CHECKING:
    from graphwright.capture.state.members import Members

_MOST = 64  # programs that are remembered
_DEEPEST = 3  # how far objects are looked into
_MOST_OBJECTS = 10_000
# What belongs to one pass or one capture alone.
_OF_ONE_CAPTURE = frozenset({
    "control_flow", "max_paths", "dynamic", "leaves", "enters_libraries", "is_one_of_several", "leaves_copies",
    "answers", "paths", "log", "cached", "cached_results", "sets", "undo", "put_back", "is_remembered",
})  # fmt: skip
_HELD = frozenset({"generators", "overheard", "obstacles"})  # what makes it impossible to remember a plan
_SCALARS = ATOMS | {torch.dtype, torch.device, torch.layout, torch.memory_format}


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """What a plan holds as a pass starts, as plain data."""

    fields: dict[str, Any]

    def put_into(self, plan: Plan) -> bool:
        """Have a plan hold the same; tell whether all code and classes are still there that it was about."""
        try:
            held = {name: _strong(value) for name, value in self.fields.items()}
        except _NotPlain:
            return False
        for name, value in held.items():
            setattr(plan, name, value)
        return True


@dataclasses.dataclass(frozen=True, eq=False)
class Remembered:
    """How a capture went in the end."""

    attempt: str
    learned: Learned
    restarts: tuple[ReportEntry, ...]
    keeps_history: bool
    came_out: int


class _NotPlain(Exception):
    """A value that must not be kept alive, or of which no copy can be made."""


def learned(plan: Plan) -> Learned | None:
    """Copy what a plan holds; None where that cannot be kept from one capture to the next."""
    try:
        if any(getattr(plan, name) for name in _HELD):
            return None
        fields = [field.name for field in dataclasses.fields(plan) if field.name not in _OF_ONE_CAPTURE | _HELD]
        return Learned({name: _weak(getattr(plan, name)) for name in fields})
    except _NotPlain:
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class _Conversions:
    codes: list[weakref.ref[CodeType]]
    waiting: frozenset[tuple[str, int]]


def _weak(value: Any) -> Any:
    """A copy of plain data that keeps no code and no class alive."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is CodeType or isinstance(value, type):
        return weakref.ref(value)
    if kind is Conversions:
        return _Conversions([weakref.ref(code) for code in value], frozenset(value.waiting))
    if kind in (set, frozenset, list, tuple):
        return kind([_weak(item) for item in value])
    if kind is dict:
        return {_weak(key): _weak(item) for key, item in value.items()}
    fields = getattr(kind, "__dataclass_fields__", None)
    if isinstance(value, Kind) and fields is not None:
        for name in fields:
            held = getattr(value, name)
            _weak(held)
            if isinstance(held, type) and held.__module__.partition(".")[0] not in ("builtins", "collections", "torch"):
                raise _NotPlain
        return value
    raise _NotPlain


def _strong(value: Any) -> Any:
    """What `_weak` made a copy of. Raises _NotPlain where something of it is gone."""
    kind = type(value)
    if kind is weakref.ref:
        found = value()
        if found is None:
            raise _NotPlain
        return found
    if kind is _Conversions:
        made = Conversions()
        made.update(_strong(value.codes))
        made.waiting |= value.waiting
        return made
    if kind in (set, frozenset, list, tuple):
        return kind([_strong(item) for item in value])
    if kind is dict:
        return {_strong(key): _strong(item) for key, item in value.items()}
    return value


# ---- programs that are alike


class _TooMuch(Exception):
    """There is more to look at than a capture may cost."""


class Likeness:
    """What a program is and gets, as far as it is looked at to tell whether another one is like it.

    `first` is the part of it that costs nothing. Nothing of the program's runs, and nothing of it is kept alive.
    """

    def __init__(self, root: Any, method: str, options: Hashable) -> None:
        self.made_by = weakref.ref(getattr(root, "__code__", type(root)))
        self.first = id(self.made_by()), method, options
        self._met: dict[int, int] = {}

    def of(self, program: Any, members: Members | None, args: Any, kwargs: Any) -> Hashable:
        """All of it; None where there is too much to look at. Costs what a walk over the modules costs."""
        self._met = {}
        settings = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._is_any_autocast_enabled()
        try:
            with torch._C.DisableTorchFunction():
                modules = () if members is None else tuple(self._modules(members))
                told = self._told(args), self._told(kwargs), self._told(program), modules
        except _TooMuch:
            return None
        return told, settings, torch.get_default_dtype()

    def _modules(self, members: Members) -> Iterator[Hashable]:
        entered = {id(module) for module in members.entered}
        for module, path in members.tree.modules:
            held = [
                (name, self._told(value, 1))
                for name, value in module.__dict__.items()
                if name not in MODULE_TABLES or name == "training"
            ]
            tensors = [
                (name, value if value is None else (value.dtype, value.requires_grad))
                for table in (module._parameters, module._buffers)
                for name, value in table.items()
            ]
            yield path, id(type(module)), id(module) in entered, tuple(held), tuple(tensors)

    def _told(self, value: Any, depth: int = 0) -> Hashable:
        kind = type(value)
        if kind in _SCALARS:
            return kind, value
        if isinstance(value, type | ModuleType):
            return id(value)
        met = len(self._met)
        place = self._met.setdefault(id(value), met)
        if place < met:
            return place
        if met > _MOST_OBJECTS:
            raise _TooMuch
        if kind in (torch.Tensor, nn.Parameter) and value.layout is torch.strided:
            return id(kind), value.dtype, value.shape, value.stride(), value.device, value.requires_grad, value.is_leaf
        if isinstance(value, torch.Tensor | nn.Module) or depth > _DEEPEST:
            return id(kind)
        held: list[Any] = []
        if isinstance(value, dict):
            held = [part for item in dict.items(value) for part in item]
        elif kind in (list, tuple, set, frozenset):
            held = [*value]
        elif kind is MethodType:
            held = [value.__func__, value.__self__]
        elif kind is FunctionType:
            held = [value.__defaults__, *map(content_of, value.__closure__ or ())]
            kind = value.__code__
        elif kind.__dictoffset__:
            held = [part for item in state_of(value).items() for part in item]
        return id(kind), *[self._told(item, depth + 1) for item in held]


# ---- the memory of the process

# By what tells the program, those that were asked for last at the end; with its code or class, whose id others may get.
_known: dict[Any, tuple[weakref.ref[Any], Remembered]] = {}


def _key(likeness: Likeness, subject: tuple[Any, ...]) -> Hashable:
    told = likeness.of(*subject)
    return None if told is None else (likeness.first, hash(told))  # a hint of another program gives another graph


def recalled(likeness: Likeness, *subject: Any) -> Remembered | None:
    """How the capture of a program like this one went; None where none is known that started again."""
    if not any(first == likeness.first for first, _ in _known):
        return None
    key = _key(likeness, subject)
    made_by, found = (None, None) if key is None else _known.pop(key, (None, None))
    if made_by is None or found is None or made_by() is not likeness.made_by():
        return None
    _known[key] = made_by, found
    return found


def remember(likeness: Likeness, remembered: Remembered, *subject: Any) -> None:
    """Keep how the capture of a program went."""
    key = _key(likeness, subject)
    if key is not None:
        _known.pop(key, None)
        _known[key] = likeness.made_by, remembered
        while len(_known) > _MOST:
            del _known[next(iter(_known))]


def forget(likeness: Likeness, *subject: Any) -> None:
    """Forget what does not hold any more."""
    _known.pop(_key(likeness, subject), None)


def forget_all() -> None:
    """Forget all programs."""
    _known.clear()


def what_came_out(graph: Graph) -> int:
    """A number that tells the graph of a capture from others."""
    found: list[Hashable] = []
    for node in graph.all_nodes_now():
        target = node._target
        found += (node._op, node._name, target if type(target) is str else getattr(target, "__name__", ""))
        for arg in (*node._args, *node._kwargs.values()):
            if type(arg) is Node:
                found.append(arg._name)
            elif type(arg) not in ATOMS:
                found += [used._name for used in nodes_in(arg)]
    return hash((tuple(found), tuple([(path, *facts) for path, facts in facts_of_modules(graph).items()])))

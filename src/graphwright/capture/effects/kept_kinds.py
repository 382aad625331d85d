"""Kinds of values that a program keeps: what an attribute is before a call must go with what it is after one."""

from __future__ import annotations

import abc
import dataclasses
import enum
import sys
from collections.abc import Collection
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from graphwright.capture.proxies.contents import HOLDERS
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.capture.state.ledger import Fact
from graphwright.capture.state.running import refusal, running
from graphwright.capture.state.symbols import symbol_of
from graphwright.errors import CaptureError
from graphwright.runtime import is_atom, is_plain_container, spelled
from graphwright.source import is_internal
from graphwright.values import (
    MIXED,
    UNKNOWN,
    ConstantKind,
    Kind,
    NumberKind,
    OptionalKind,
    Policy,
    RecordKind,
    TensorKind,
    join,
    leaves,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Grows(Kind):
    """A dict or list to which the program adds: what it may hold."""

    held: Kind
    are_growing: bool = False  # what is in it are lists and dicts to which the program adds as well
    is_assumed: bool = False  # because it holds tensors, as a cache does; not because a pass has shown it

    def empty(self) -> Any:
        """Such a container with nothing in it."""
        return emptied(self.held)

    @classmethod
    def dict_of(cls, items: dict[Any, Kind], is_assumed: bool = False, kind: type = dict, factory: Any = None) -> Grows:
        """A dict of which a call may find any of these keys."""
        return cls(RecordKind(kind, items, frozenset(items), factory), is_assumed=is_assumed)


def emptied(kind: Kind) -> Any:
    """A container of a kind with nothing in it.

    >>> emptied(RecordKind(set, {}))
    set()
    """
    factory = getattr(kind, "factory", None)
    return kind.kind() if factory is None else kind.kind(factory)  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Choice(Kind):
    """One of a few texts, members of enums and their like: the program has an end for each that a call starts with."""

    values: tuple[Any, ...]

    def but_none(self) -> Choice:
        """What calls find that come after one which has found None."""
        return Choice(tuple([value for value in self.values if value is not None]))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Either(Kind):
    """A tensor or number that a first call finds, and another one that calls leave: the program has an end for each."""

    first: Kind
    later: Kind


def joined(one: Kind, other: Kind) -> Kind:
    """The kind of an attribute that is of one kind before a call, and of the other after it.

    >>> joined(ConstantKind("on"), ConstantKind("off")).values
    ('on', 'off')
    """
    if isinstance(one, Either):
        for name, known in ("later", one.later), ("first", one.first):
            kind = join(known, other, ATTRIBUTE)
            if kind is not MIXED and not isinstance(kind, OptionalKind):
                return one if kind is known else dataclasses.replace(one, **{name: kind})
        return MIXED
    values = list(_choices(one))
    values += [value for value in _choices(other) if not any(value is known or value == known for known in values)]
    if 1 < len(values) <= _MOST_CHOICES and _choices(one) and _choices(other):
        return one if len(values) == len(_choices(one)) else Choice(tuple(values))
    kind = join(one, other, ATTRIBUTE)
    if kind is MIXED and any(isinstance(each, OptionalKind) or _choices(each) == (None,) for each in (one, other)):
        return one if one == _MIXED_OR_NONE else _MIXED_OR_NONE  # whether it is None may be asked
    return Either(one, other) if kind is MIXED and telling(one, other) is not None else kind


def telling(first: Kind, later: Kind) -> tuple[Any, ...] | None:
    """What tells the values of one kind from those of another: the name of a method or attribute and what it gives.

    None where they are not told apart; for numbers their class alone.

    >>> telling(NumberKind(float), TensorKind(torch.float32, 1))
    (<class 'float'>,)
    """
    if isinstance(first, NumberKind) and isinstance(later, TensorKind) and first.kind is not bool:
        return (first.kind,)
    if not isinstance(first, TensorKind) or not isinstance(later, TensorKind | NumberKind):
        return None
    if isinstance(later, NumberKind):
        return (torch.Tensor,)
    if first.rank != later.rank:
        return "dim", first.rank
    return ("dtype", first.dtype) if first.dtype != later.dtype else None


_MIXED_OR_NONE = OptionalKind(MIXED)


def as_left(kind: Kind, left: Kind) -> Kind:
    """The kind of an attribute, with the examples of what a call has left in it.

    >>> as_left(NumberKind(int, 0), NumberKind(int, 7)).hint
    7
    """
    left = left.item if isinstance(left, OptionalKind) else left
    if isinstance(kind, OptionalKind):
        return OptionalKind(as_left(kind.item, left))
    if isinstance(kind, TensorKind) and isinstance(left, TensorKind):
        return dataclasses.replace(kind, example=left.example)
    if isinstance(kind, NumberKind) and isinstance(left, NumberKind):
        return NumberKind(kind.kind, left.hint if left.hint is UNKNOWN else kind.kind(left.hint))
    if isinstance(kind, RecordKind) and isinstance(left, RecordKind) and kind.items.keys() == left.items.keys():
        items = {key: as_left(item, left.items[key]) for key, item in kind.items.items()}
        return dataclasses.replace(kind, items=items)
    return kind


def _choices(kind: Kind) -> tuple[Any, ...]:
    if isinstance(kind, Choice):
        return kind.values
    is_one = isinstance(kind, ConstantKind) and (kind.value is None or _is_chosen(kind.value))
    return (kind.value,) if is_one else ()  # type: ignore[attr-defined]


def _is_chosen(value: Any) -> bool:
    """Tell whether a value is one of a few that a program has; a function that it makes is another one each time."""
    if isinstance(value, FunctionType):
        return "<" not in value.__qualname__
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, type | ModuleType | None)
    return isinstance(value, (str, bytes, enum.Enum, torch.dtype, torch.device))


_MOST_CHOICES = 4


class Plain(Kind):
    """A dict that was assumed to grow, and which the program uses as one that does not."""

    __slots__ = ()


PLAIN = Plain()


def form_of(kind: Kind, facts: Collection[Fact] = ()) -> dict[str, Any] | None:
    """The form of values of a kind, as guards tell it; None where they may be anything.

    Tensors are alike in the `facts` that the program reads of them.

    >>> form_of(OptionalKind(NumberKind(int, 0))), form_of(TensorKind(torch.float32, 2), ["rank"])
    ({'or': [{'is': None}, {'number': ['int']}]}, {'tensor': {'ndim': ['2']}})
    """
    if isinstance(kind, Choice):
        return {"or": [{"is": spelled(value)} for value in kind.values]}
    if isinstance(kind, Either):
        forms = [form_of(kind.first, facts), form_of(kind.later, facts)]
        return None if None in forms else {"or": forms}
    if isinstance(kind, OptionalKind):
        form = form_of(kind.item, facts)
        return None if form is None else {"or": [{"is": None}, form]}
    if isinstance(kind, TensorKind) and not kind.may_be_number:
        return {"tensor": _told_of(kind, facts)}
    if isinstance(kind, NumberKind):
        return {"number": [kind.kind.__name__, *(["int"] if kind.kind is float else [])]}
    if (
        isinstance(kind, ConstantKind)
        and not is_growing(kind.value)
        and (is_atom(kind.value) or is_plain_container(kind.value))
    ):
        return {"is": spelled(kind.value)}
    if isinstance(kind, RecordKind) and not kind.loose:
        items = {str(key): form_of(item, facts) for key, item in kind.items.items()}
        is_whole = None not in items.values()
        return {"of": [f"{kind.kind.__module__}.{kind.kind.__qualname__}", items if is_whole else None]}
    return None


def _told_of(kind: TensorKind, facts: Collection[Fact]) -> dict[str, list[str]]:
    """What tensors of a kind have in their attributes; where a dtype does as well as their own, either."""
    told: dict[str, list[str]] = {}
    if "rank" in facts and kind.rank is not None:
        told["ndim"] = [str(kind.rank)]
    if "device" in facts and kind.device is not None:
        told["device"] = [str(kind.device)]
    own = frozenset({kind.dtype})
    of_dtype = [fact if isinstance(fact, frozenset) else own for fact in facts if fact not in ("rank", "device")]
    if of_dtype and kind.dtype is not None:
        told["dtype"] = sorted(map(str, own.union(*of_dtype).intersection(*of_dtype) | own))
    return told


def is_as_it_was(kind: Kind) -> bool:
    """Tell whether a place is of a kind that no pass has shown to change: a dict that only may be a cache."""
    return kind is PLAIN or (isinstance(kind, Grows) and kind.is_assumed)


def is_same(a: Any, b: Any) -> bool:
    """Tell whether a value is what it was."""
    if a is b:
        return True
    known, now = symbol_of(a), symbol_of(b)
    if known is not None or now is not None:
        return known is not None and now is not None and known.key == now.key
    if type(a) is not type(b) or isinstance(a, torch.Tensor):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    return isinstance(a, int | float | str | bytes | complex | torch.dtype | torch.device) and bool(a == b)


# An attribute keeps its layout, joins int and float, and may be None at times; where calls leave it in kinds that have
# nothing in common, nothing may read it before it is written.
ATTRIBUTE = Policy(
    (int, float), (TensorKind, NumberKind, RecordKind), compares_layout=True, mixes=True, is_same=is_same
)


def has_a_kind(value: Any) -> bool:
    """Tell whether a value is of a kind that all in a dict may be of, whatever its key."""
    return isinstance(value, torch.Tensor | int | float)


def is_cache(value: dict[Any, Any]) -> bool:
    """Tell whether a dict holds tensors, as those do to which a program adds."""
    return any(isinstance(item, torch.Tensor) and not isinstance(item, nn.Parameter) for item in value.values())


def adds_to(kind: type, name: str) -> bool:
    """Tell whether a method of a class mentions one of its attributes and the `add` of sets.

    A size that goes into a plain set is asked for its hash, which only the example can answer.
    """
    methods = [method for base in kind.__mro__ if base is not nn.Module for method in vars(base).values()]
    codes = [method.__code__ for method in methods if isinstance(method, FunctionType)]
    return any(name in code.co_names and not _ADDS.isdisjoint(code.co_names) for code in codes)


_ADDS = frozenset({"add", "update"})


def is_readable(kind: Kind) -> bool:
    """Tell whether a part of an attribute may be read before it is written: None is there for tensors only."""
    return kind is not MIXED and (not isinstance(kind, OptionalKind) or isinstance(kind.item, TensorKind))


def may_be_kept(value: Any, depth: int = 3) -> bool:
    """Tell whether a value can be written into the graph, objects only up to a depth."""
    if value is None or symbol_of(value) is not None or isinstance(value, enum.Enum) or dataclasses.is_dataclass(value):
        return True
    if type(value) in HOLDERS:
        held = value.values() if isinstance(value, dict) else value
        return all(may_be_kept(leaf, depth) for leaf in leaves([*held]))
    if depth and is_plain_object(value):
        return all(may_be_kept(leaf, depth - 1) for leaf in leaves(dict(vars(value))))
    return isinstance(value, _PLAIN_KINDS) or (callable(value) and hasattr(value, "__name__")) or is_growing(value)


_PLAIN_KINDS = (
    torch.Tensor, bool, int, float, complex, str, bytes, range, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.Generator,
)  # fmt: skip


_ABSTRACT = abc.ABCMeta.__instancecheck__.__code__.co_filename  # Python 3.10 has a file, others have it frozen


class Unreadable:
    """Stands for an attribute whose value goes with no kind; any use of it is an error."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        recorder = running()
        raise refusal(
            CaptureError(
                f"the program reads {object.__getattribute__(self, '_name')} and leaves a value of another kind in it",
                at=None if recorder is None else recorder.where(),
                fix="keep one kind of value there: a tensor of one dtype and rank, a number, or None and such a value",
            )
        )

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What `isinstance` and `match` ask for: those of the program are told."""
        frame: Any = sys._getframe(1)
        while (filename := frame.f_code.co_filename) == _ABSTRACT:
            frame = frame.f_back
        return Unreadable if is_internal(filename) else self._refuse()

    __hash__ = None  # type: ignore[assignment]


def _refuse_all() -> None:
    """Have all that Python may ask of a value be refused, but for what the capture itself asks of it."""
    names = "getattr setattr delattr call getitem setitem delitem iter next len contains reversed bool str repr format"
    names += " int float complex index round trunc floor ceil abs neg pos invert enter exit eq ne lt gt le ge"
    for name in "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split():  # noqa: SIM905
        names += f" {name} r{name}"
    for name in (*names.split(), "torch_function"):
        setattr(Unreadable, f"__{name}__", Unreadable._refuse)


_refuse_all()

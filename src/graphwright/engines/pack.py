"""Tensors and engines that are made of a program's tensors: once, and anew when one of these has changed.

A prepacked weight is the tensor as a kernel wants it. It is made at the first call, and again when a tensor that it was
made of is another one, was written to or moved: each call looks at the identity, the version and the address of all of
them. What was made is this process's: copies, pickles and forked processes make their own.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_VERSION, _POINTER, _TRAINED = operator.attrgetter("_version"), Tensor.data_ptr, operator.attrgetter("requires_grad")
_IS = operator.is_
_forks = [0]  # how many forks lie between the first process and this one
os.register_at_fork(after_in_child=lambda: operator.setitem(_forks, 0, _forks[0] + 1))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How something is made: `make(*tensors, *settings)`, of the tensors at these paths.

    make: a function that can be told by name, which writes to none of the tensors. Equal recipes make the same.
    """

    make: Callable[..., Any]
    sources: tuple[str, ...]
    settings: tuple[Any, ...] = ()


def itself(*tensors: Tensor) -> Tensor:
    """A tensor as it is; several in one."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


@dataclass(frozen=True, slots=True)
class Held:
    """What was made, of which tensors: first those to which a write matters, of which there are versions."""

    tensors: tuple[Tensor, ...]
    versions: list[int]
    pointers: list[int]
    kept: list[Tensor]  # keep the memory of the tensors, so that no other gets its address
    made: list[Any]
    given: Any  # the tensors that are as they are, and what was made, as attributes
    forks: int

    def is_current(self) -> bool:
        """Tell whether nothing was written to these tensors, none was moved, and this is the same process."""
        try:
            return (
                self.forks == _forks[0]
                and [*map(_POINTER, self.tensors)] == self.pointers
                and [*map(_VERSION, self.tensors[: len(self.versions)])] == self.versions
            )
        except RuntimeError:  # an inference tensor does not say when it is written to
            return False


class Packs:
    """What some recipes make of tensors that are given at each call: first those that are as they are, then the others.

    `count` says how many things were made so far.

    >>> packs = Packs(["weight", "bias"], {Recipe(torch.neg, ("weight",)): "minus", Recipe(itself, ("bias",)): "bias"})
    >>> weight, bias = torch.ones(2), torch.zeros(1)
    >>> packs.of([weight, bias]).minus, packs.of([weight, bias]).minus, packs.of([weight, bias]).bias, packs.count
    (tensor([-1., -1.]), tensor([-1., -1.]), tensor([0.]), 1)
    >>> _ = weight.add_(1)
    >>> packs.of([weight, bias]).minus, packs.count
    (tensor([-2., -2.]), 2)
    """

    def __init__(
        self, paths: Sequence[str], recipes: Mapping[Recipe, str], kinds: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        places = {path: i for i, path in enumerate(paths)}
        plain = [recipe for recipe in recipes if _is_plain(recipe)]
        others = [recipe for recipe in recipes if not _is_plain(recipe)]
        self.recipes = [*plain, *others]
        self._names = [recipes[recipe] for recipe in self.recipes]
        self._kind = type("Packed", (), {"__slots__": self._names})  # whose attributes are found the fastest
        made_of = list(dict.fromkeys(path for recipe in others for path in recipe.sources))
        self._count = len(made_of)
        seen = list(dict.fromkeys([*made_of, *(recipe.sources[0] for recipe in plain)]))
        rows = {path: row for row, path in enumerate(seen)}
        self._look_at = _getter([places[path] for path in seen])
        self._kinds = [kinds.get(path) for path in seen]
        self._sources = [[rows[path] for path in recipe.sources] for recipe in others]
        self._plain = [rows[recipe.sources[0]] for recipe in plain]
        self._others = others
        self._held: Held | None = None
        self._lock = threading.Lock()
        self.count = 0

    def of(self, tensors: list[Tensor]) -> Any:
        """What is made of these tensors, by the names of the recipes; None as for `look`."""
        held = self.look(tensors)
        return None if held is None else held.given

    def look(self, tensors: list[Tensor]) -> Held | None:
        """What is made of these tensors, and of what.

        None where they do not say when they are written to, as inference tensors do not, are of classes of their own,
        or of other kinds than they were: `kinds` has what `kind_of` gives, by path.
        """
        held, seen = self._held, self._look_at(tensors)
        try:
            if held is not None and all(map(_IS, seen, held.tensors)) and held.is_current():
                return held
            return self._renewed(seen)
        except RuntimeError:
            if any(map(torch.is_inference, seen)):
                return None
            raise

    def made(self) -> dict[Recipe, Any]:
        """What was made last, by its recipe."""
        return {} if self._held is None else dict(zip(self._others, self._held.made, strict=True))

    def _renewed(self, tensors: tuple[Tensor, ...]) -> Held | None:
        if not all(map(_is_of_kind, tensors, self._kinds)):
            return None
        if self._held is not None and self._held.forks != _forks[0]:
            self._lock = threading.Lock()  # another thread of the first process may have had it
        with self._lock, torch.no_grad():
            before = self._held if self._held is not None and self._held.forks == _forks[0] else None
            versions, pointers = [*map(_VERSION, tensors[: self._count])], [*map(_POINTER, tensors)]
            changed = {
                i
                for i, version in enumerate(versions)
                if before is None
                or tensors[i] is not before.tensors[i]
                or version != before.versions[i]
                or pointers[i] != before.pointers[i]
            }
            made = [
                self._make(recipe, [tensors[i] for i in sources])
                if before is None or not changed.isdisjoint(sources)
                else before.made[k]
                for k, (recipe, sources) in enumerate(zip(self._others, self._sources, strict=True))
            ]
            kept = [tensor.detach() for tensor in tensors]
            given = self._kind()
            for name, value in zip(self._names, [*[tensors[row] for row in self._plain], *made], strict=True):
                setattr(given, name, value)
            self._held = Held(tensors, versions, pointers, kept, made, given, _forks[0])
            return self._held

    def _make(self, recipe: Recipe, tensors: list[Tensor]) -> Any:
        self.count += 1
        return recipe.make(*tensors, *recipe.settings)


def kind_of(tensor: Tensor) -> tuple[Any, ...]:
    """What kernels are chosen by: the sizes of a tensor, its dtype, device and layout."""
    return tuple(tensor.shape), tensor.dtype, tensor.device, tensor.layout


def _is_of_kind(tensor: Tensor, kind: tuple[Any, ...] | None) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and kind in (None, kind_of(tensor))


def _is_plain(recipe: Recipe) -> bool:
    return recipe.make is itself and len(recipe.sources) == 1


def _getter(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Takes the items at some places."""
    if not places:
        return lambda items: ()
    if len(places) == 1:
        (place,) = places
        return lambda items: (items[place],)
    return operator.itemgetter(*places)


def is_trained(tensors: Sequence[Tensor]) -> bool:
    """Tell whether a gradient is wanted of one of these tensors now.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     print(is_trained([weight]))
    False
    >>> is_trained([weight])
    True
    """
    return torch.is_grad_enabled() and any(map(_TRAINED, tensors))

"""Tensors and engines that are made of a program's tensors: once, and anew when one of these has changed.

A prepacked weight is the tensor as a kernel wants it. It is made at the first call, and again when a tensor that it was
made of is another one, was written to or moved: each call looks at the identity, the version and the address of all of
them. What was made is this process's: copies, pickles and forked processes make their own.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Recipe", "Packs", "is_trained"]

_VERSION, _POINTER, _TRAINED = operator.attrgetter("_version"), Tensor.data_ptr, operator.attrgetter("requires_grad")
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


@dataclass(frozen=True, slots=True)
class _Held:
    """What was made, of which tensors."""

    tensors: list[Tensor]
    versions: list[int]
    pointers: list[int]
    kept: list[Tensor]  # keep the memory of the tensors, so that no other gets its address
    made: list[Any]
    forks: int


class Packs:
    """What some recipes make of tensors that are given at each call, in the order of `paths`.

    `count` says how many things were made so far.

    >>> packs = Packs(["weight"], [Recipe(torch.neg, ("weight",))])
    >>> weight = torch.ones(2)
    >>> packs.of([weight]), packs.of([weight]), packs.count
    ([tensor([-1., -1.])], [tensor([-1., -1.])], 1)
    >>> _ = weight.add_(1)
    >>> packs.of([weight]), packs.count
    ([tensor([-2., -2.])], 2)
    """

    def __init__(self, paths: Sequence[str], recipes: Sequence[Recipe]) -> None:
        places = {path: i for i, path in enumerate(paths)}
        self._sources = [[places[path] for path in recipe.sources] for recipe in recipes]
        self._recipes = list(recipes)
        self._held: _Held | None = None
        self._lock = threading.Lock()
        self.count = 0

    def of(self, tensors: list[Tensor]) -> list[Any] | None:
        """What is made of these tensors; None where they do not say when they are
        written to, as inference tensors do not, or are of classes of their own."""
        held = self._held
        try:
            if (
                held is not None
                and held.forks == _forks[0]
                and all(map(operator.is_, tensors, held.tensors))
                and [*map(_VERSION, tensors)] == held.versions
                and [*map(_POINTER, tensors)] == held.pointers
            ):
                return held.made
            return self._renewed(tensors)
        except RuntimeError:
            if any(map(torch.is_inference, tensors)):
                return None
            raise

    def _renewed(self, tensors: list[Tensor]) -> list[Any] | None:
        if not all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors):
            return None
        if self._held is not None and self._held.forks != _forks[0]:
            self._lock = threading.Lock()  # another thread of the first process may have had it
        with self._lock, torch.no_grad():
            before = self._held if self._held is not None and self._held.forks == _forks[0] else None
            versions, pointers = [*map(_VERSION, tensors)], [*map(_POINTER, tensors)]
            changed = {
                i
                for i, tensor in enumerate(tensors)
                if before is None
                or tensor is not before.tensors[i]
                or versions[i] != before.versions[i]
                or pointers[i] != before.pointers[i]
            }
            made = [
                self._make(recipe, [tensors[i] for i in sources])
                if before is None or not changed.isdisjoint(sources)
                else before.made[k]
                for k, (recipe, sources) in enumerate(zip(self._recipes, self._sources, strict=True))
            ]
            kept = [tensor.detach() for tensor in tensors]
            self._held = _Held(list(tensors), versions, pointers, kept, made, _forks[0])
            return made

    def _make(self, recipe: Recipe, tensors: list[Tensor]) -> Any:
        self.count += 1
        return recipe.make(*tensors, *recipe.settings)


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

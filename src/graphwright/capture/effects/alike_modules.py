"""Modules that are alike: whatever a capture of one of them has taken for granted holds for the other as well.

Everything that a module holds is compared, down to its tensors' kinds and to what is the same object in two places.
Only plain attributes that nobody has asked for may differ: the number of a layer that it hands to no one.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeGuard

import torch
from torch import nn

from graphwright.capture.proxies.objects import is_plain_object
from graphwright.runtime import HOOKS, MODULE_TABLES, is_atom
from graphwright.values import leaves

_TABLES = ("_modules", "_parameters", "_buffers")


def is_below(path: str | None, root: str) -> TypeGuard[str]:
    """Tell whether a path leads to a module, or to something inside of it.

    >>> is_below("layers.1.norm", "layers.1"), is_below("layers.10", "layers.1")
    (True, False)
    """
    return path is not None and (path == root or path.startswith(f"{root}."))


class Pairs:
    """What is compared of two modules, part by part.

    `roots` are their paths; `path` and `tensor_path` give those of all modules and tensors of the program.
    """

    def __init__(
        self, roots: tuple[str, str], path: Callable[[Any], str | None], tensor_path: Callable[[Any], str | None]
    ) -> None:
        self._roots, self._path, self._tensor_path = roots, path, tensor_path
        self._other: dict[int, Any] = {}  # of what can be told from its like, by id
        self._one: dict[int, Any] = {}
        self.modules: list[tuple[nn.Module, nn.Module]] = []
        self.differing: list[tuple[nn.Module, str]] = []  # attributes of modules of the first that differ

    def alike(self, one: Any, other: Any) -> bool:
        """Tell whether two values are alike."""
        if type(one) is not type(other):
            return False
        if isinstance(one, nn.Module):
            return self._modules_alike(one, other)
        if isinstance(one, torch.Tensor):
            return self._tensors_alike(one, other)
        if is_atom(one):
            return one is other or (is_atom(other) and repr(one) == repr(other) and bool(one == other))
        if one is other:
            return not any(isinstance(leaf, nn.Module) for leaf in leaves(one))
        if isinstance(one, functools.partial):
            parts = ((each.func, each.args, each.keywords) for each in (one, other))
            return self.alike(*parts)
        if isinstance(one, MethodType):
            return one.__func__ is other.__func__ and self.alike(one.__self__, other.__self__)
        if type(one) is tuple:
            return len(one) == len(other) and all(map(self.alike, one, other))
        met = self._met(one, other)
        if met is not None:
            return met
        if type(one) in (list, collections.deque):
            return len(one) == len(other) and all(map(self.alike, one, other))
        if type(one) in (set, frozenset):
            return one == other and all(map(is_atom, one))
        if type(one) in (dict, collections.OrderedDict):
            return self._dicts_alike(one, other)
        return is_plain_object(one) and self._dicts_alike(vars(one), vars(other))

    def _met(self, one: Any, other: Any) -> bool | None:
        """Whether two objects were met as each other's; None where neither was met at all."""
        if id(one) in self._other or id(other) in self._one:
            return self._other.get(id(one)) is other and self._one.get(id(other)) is one
        self._other[id(one)], self._one[id(other)] = other, one
        return None

    def _dicts_alike(self, one: dict[Any, Any], other: dict[Any, Any]) -> bool:
        return (
            list(one) == list(other) and all(map(is_atom, one)) and all(map(self.alike, one.values(), other.values()))
        )

    def _are_places_alike(self, one: str | None, other: str | None) -> bool:
        """Tell whether two places are the same one below the modules that are compared."""
        first, second = self._roots
        if not is_below(one, first) and not is_below(other, second):
            return True
        return is_below(one, first) and is_below(other, second) and one[len(first) :] == other[len(second) :]

    def _modules_alike(self, one: nn.Module, other: nn.Module) -> bool:
        met = self._met(one, other)
        if met is not None:
            return met
        places = self._path(one), self._path(other)
        if None in places or not self._are_places_alike(*places):
            return False
        if one is other:  # held by both
            return True
        self.modules.append((one, other))
        if any("__slots__" in vars(kind) for kind in type(one).__mro__ if kind is not object):
            return False
        state, its = one.__dict__, other.__dict__
        if state.keys() != its.keys() or any(state[hooks] or its[hooks] for hooks in HOOKS):
            return False
        for name, value in state.items():
            its_value = its[name]
            if name in _TABLES:
                if not self._dicts_alike(value, its_value):
                    return False
            elif name in MODULE_TABLES and not value and not its_value and type(value) is type(its_value):
                continue  # most of modules: tables of torch's in which nothing is, and flags that are off
            elif not self.alike(value, its_value):
                if not is_atom(value) or not is_atom(its_value):
                    return False
                self.differing.append((one, name))
        return True

    def _tensors_alike(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        met = self._met(one, other)
        if met is not None:
            return met
        if not self._are_places_alike(self._tensor_path(one), self._tensor_path(other)):
            return False
        if one is other:
            return True
        if one.layout is not torch.strided or one._is_view() or other._is_view():
            return False
        if vars(one) or vars(other) or (one.grad is None) != (other.grad is None):
            return False
        return facts_of_tensor(one) == facts_of_tensor(other)


def facts_of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All that a program may ask of a dense tensor, its data and who it is aside."""
    return (
        tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.device, tensor.layout,
        tensor.requires_grad, tensor.is_leaf, tensor.is_inference(), tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip

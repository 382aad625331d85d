"""Submodules that are taken out of a captured module for a while, and put back where they were."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.ops import is_untouched
from graphwright.passes.support.submodules import ModuleCalls


@dataclass(frozen=True, slots=True)
class Slot:
    """A module and its place: the dotted path, and the names of all modules beside it, in order."""

    path: str
    module: nn.Module
    order: tuple[str, ...]

    def put_back(self, gm: nn.Module, module: nn.Module) -> None:
        """Put a module where this one was."""
        owner, _, name = self.path.rpartition(".")
        modules = gm.get_submodule(owner)._modules
        modules[name] = module
        places = {each: i for i, each in enumerate(self.order)}
        for each in sorted(modules, key=lambda each: places.get(each, len(places))):
            modules[each] = modules.pop(each)


def take_out(gm: nn.Module, path: str) -> Slot:
    """Take a module away; in a list, where others are known by their places, an Identity stays."""
    owner, _, name = path.rpartition(".")
    parent = gm.get_submodule(owner)
    slot = Slot(path, gm.get_submodule(path), tuple(parent._modules))
    if isinstance(parent, nn.Sequential | nn.ModuleList):
        parent._modules[name] = nn.Identity()
    else:
        del parent._modules[name]
    return slot


def call_with(node: Node, value: Any, names: Iterable[str] = ()) -> None:
    """Have a node pass one value to its module: by position, or by a name where it was passed so."""
    kwargs = dict.fromkeys(names, value)
    node.args, node.kwargs = () if kwargs else (value,), kwargs


def is_own(module: nn.Module, gm: nn.Module, calls: ModuleCalls, uses: int = 1) -> bool:
    """Tell whether a module does what its class says, is there once, and shares its parameters with no other."""
    if not is_untouched(module) or calls.is_read(module) or len(calls.nodes(module)) != uses:
        return False
    if sum(other is module for _, other in gm.named_modules(remove_duplicate=False)) != 1:
        return False
    own = {id(parameter) for parameter in module.parameters()}
    every = [id(parameter) for _, parameter in gm.named_parameters(remove_duplicate=False)]
    return sum(parameter in own for parameter in every) == len(own)


def like_now(module: nn.Module, now: nn.Module) -> nn.Module:
    """A module as it was, with the training flag, dtype and device of the one that stood for it since."""
    weight = now.weight
    assert isinstance(weight, torch.Tensor)
    first = next((each for each in module.parameters() if each.is_floating_point()), weight)
    if first.dtype != weight.dtype or first.device != weight.device:
        module = copy.deepcopy(module).to(weight.device, weight.dtype)
    if module.training is not now.training:
        module = copy.copy(module)
        module.training = now.training
    return module

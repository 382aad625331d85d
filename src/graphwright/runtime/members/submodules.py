"""Adding and removing submodules of a captured module by dotted path."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import nn

from graphwright.ir import Graph, is_computed
from graphwright.ops import write_attribute
from graphwright.runtime.inside import holder_of
from graphwright.runtime.members.shells import copy_slots


def add_submodule(root: nn.Module, target: str, module: nn.Module) -> bool:
    """Put a module at a dotted path, with plain modules on the way; False where a step is something else."""
    *parents, field = target.split(".")
    for atom in parents:
        below = getattr(root, atom, None)
        if below is None:
            below = nn.Module()
            setattr(root, atom, below)
        if not isinstance(below, nn.Module):
            return False
        root = below
    root.add_module(field, module)
    return True


def with_submodules(root: nn.Module, others: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a module that has other modules at some paths, and shares all else with it.

    >>> root = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU())
    >>> copied = with_submodules(root, {"0.0": nn.Identity()})
    >>> copied[0][0], root[0][0], copied[1] is root[1]
    (Identity(), Linear(in_features=2, out_features=2, bias=True), True)
    """
    copied = copy.copy(root) if hasattr(type(root), "__copy__") else _copy(root)
    below: dict[str, dict[str, nn.Module]] = {}
    for path, module in others.items():
        name, _, rest = path.partition(".")
        below.setdefault(name, {})[rest] = module
    for name, parts in below.items():
        child = copied._modules[name]
        copied._modules[name] = parts[""] if "" in parts or child is None else with_submodules(child, parts)
    return copied


def _copy(module: nn.Module) -> nn.Module:
    copied: nn.Module = object.__new__(type(module))
    copy_slots(module, copied)
    tables = {name: vars(module)[name].copy() for name in ("_modules", "_parameters", "_buffers")}
    vars(copied).update({**vars(module), **tables})
    return copied


def delete_submodule(root: nn.Module, target: str) -> bool:
    """Remove the module at a dotted path; False where there is none."""
    *parents, field = target.split(".")
    for atom in parents:
        below = getattr(root, atom, None)
        if not isinstance(below, nn.Module):
            return False
        root = below
    if not field or not isinstance(getattr(root, field, None), nn.Module):
        return False
    delattr(root, field)
    return True


def unused_submodules(root: nn.Module, graph: Graph) -> list[str]:
    """The modules that a graph neither calls nor reads, that are not inside of one, and hold nothing it uses."""
    used: set[str] = set()  # what nodes name, and everything below
    on_the_way: set[str] = {""}
    for node in graph.all_nodes():
        if node.op in ("call_module", "get_attr") or node.target is write_attribute:
            path = str(node.args[0] if node.target is write_attribute else node.target)
            owner, _, name = path.rpartition(".")
            used.add(owner if owner and is_computed(holder_of(root, path)[0], name) else path)
            atoms = path.split(".")
            on_the_way.update(".".join(atoms[:length]) for length in range(1, len(atoms) + 1))
    unused = []
    for path, _ in root.named_modules():
        atoms = path.split(".")
        is_inside = any(".".join(atoms[:length]) in used for length in range(1, len(atoms) + 1))
        if path not in on_the_way and not is_inside:
            unused.append(path)
    return unused

"""Adding and removing submodules of a captured module by dotted path."""

from __future__ import annotations

from torch import nn

from graphwright.ir import Graph
from graphwright.ops import write_attribute


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
            used.add(path)
            atoms = path.split(".")
            on_the_way.update(".".join(atoms[:length]) for length in range(1, len(atoms) + 1))
    unused = []
    for path, _ in root.named_modules():
        atoms = path.split(".")
        is_inside = any(".".join(atoms[:length]) in used for length in range(1, len(atoms) + 1))
        if path not in on_the_way and not is_inside:
            unused.append(path)
    return unused

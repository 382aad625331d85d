"""Attributes by dotted path: reading, copying and removing what `get_attr` and `call_module` nodes name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.errors import MissingAttributeError
from graphwright.ir import is_computed, on_the_way
from graphwright.runtime.inside import HOLDS

MODULE_TABLES = frozenset(nn.Module().__dict__)  # the names of the attributes that every module has


def read_attribute(module: nn.Module, path: str) -> Any:
    """Follow a dotted path. Raises AttributeError naming the step that is missing.

    >>> read_attribute(nn.Sequential(nn.Linear(2, 3)), "0.weight").shape
    torch.Size([3, 2])
    """
    return read_attributes(module, path.split("."))


def read_attributes(module: nn.Module, atoms: Iterable[str]) -> Any:
    """Follow a path given by its steps; without any it leads to the module itself."""
    steps = [*atoms]
    return getattr(functools.reduce(on_the_way, steps[:-1], module), steps[-1]) if steps else module


def has_attribute(module: nn.Module, path: str) -> bool:
    """Tell whether a dotted path leads to something.

    >>> has_attribute(nn.Linear(2, 3), "weight"), has_attribute(nn.Linear(2, 3), "weight.missing")
    (True, False)
    """
    try:
        read_attribute(module, path)
    except AttributeError:
        return False
    return True


def free_path(module: nn.Module, path: str) -> str:
    """A dotted path that leads to nothing yet: this one, or it with a number.

    >>> free_path(nn.Linear(2, 3), "weight"), free_path(nn.Linear(2, 3), "scale")
    ('weight_1', 'scale')
    """
    free, number = path, 1
    while has_attribute(module, free):
        free, number = f"{path}_{number}", number + 1
    return free


def add_constant(module: nn.Module, value: Any, name: str = "constant", persistent: bool = False) -> str:
    """Keep a value in a module under a dotted path that leads to nothing yet; return the path, which `get_attr` reads.

    A tensor becomes a buffer: outside of the state_dict, so that parameters of the original still load, or in it where
    it is `persistent`. Modules and parameters are registered as such, anything else is a plain attribute.

    >>> import torch
    >>> module = nn.Linear(2, 3)
    >>> add_constant(module, torch.ones(3), "weight"), list(module.state_dict())
    ('weight_1', ['weight', 'bias'])
    """
    path = free_path(module, name)
    assign_attribute(value, module, path, persistent)
    return path


def delete_attribute(module: nn.Module, path: str) -> None:
    """Remove what a dotted path names. Raises AttributeError where there is no such thing.

    >>> module = nn.Linear(2, 3)
    >>> delete_attribute(module, "bias"), hasattr(module, "bias")
    (None, False)
    """
    *parents, field = path.split(".")
    delattr(read_attributes(module, parents), field)


def assign_attribute(value: Any, module: nn.Module, path: str, persistent: bool = True) -> None:
    """Set what a dotted path names, making plain modules on the way; a tensor becomes a buffer, `persistent` or not.

    >>> import torch
    >>> module = nn.Module()
    >>> assign_attribute(torch.ones(2), module, "block.scale")
    >>> [name for name, _ in module.named_buffers()]
    ['block.scale']
    """
    *parents, field = path.split(".")
    for atom in parents:
        below = getattr(module, atom, None)
        if below is None:
            below = nn.Module()
            module.add_module(atom, below)
        module = below
    _set(module, field, value, persistent)


def copy_attributes(
    source: nn.Module, destination: nn.Module, paths: Iterable[Any], constants: Mapping[str, Any], is_captured: bool
) -> None:
    """Take over what dotted paths name, and those of the constants that the source lacks.

    What holds the parts of a captured program can be indexed where what held them can.
    """
    for path in paths:
        if path in constants and not hasattr(source, path):
            assign_attribute(constants[path], destination, path)
        else:
            copy_attribute(source, destination, path)
    if is_captured:
        _index_holders(source, destination)


def _index_holders(source: nn.Module, destination: nn.Module) -> None:
    """Make what holds a part of a container one that can be indexed, as it is: `self.layers[0]`, `self.layers["1"]`."""
    for name, held in destination._modules.items():
        whole = source._modules.get(name)
        if held is None or whole is None or held is whole:
            continue
        _index_holders(whole, held)
        names = whole._modules
        is_hidden = any(hasattr(nn.ModuleDict, each) for each in names)  # by what a dict has
        if type(held) is not nn.Module or is_hidden or all(map(str.isidentifier, names)):
            continue
        is_list = isinstance(whole, nn.ModuleList | nn.Sequential)
        is_all = is_list and [*names] == [*map(str, range(len(held._modules)))]
        made = nn.ModuleList() if is_all else nn.ModuleDict()
        made.__dict__.update({**held.__dict__, HOLDS: True})
        made._modules = {key: held._modules[key] for key in names if key in held._modules}  # type: ignore[misc]
        destination._modules[name] = made


def is_compiled(module: nn.Module) -> bool:
    """Tell whether a module is one of TorchScript, scripted or traced, whose state is not in Python."""
    state = module.__dict__
    return isinstance(state.get("_c"), torch.ScriptObject) or "_actual_script_module" in state


def copy_attribute(source: nn.Module, destination: nn.Module, path: str) -> None:
    """Take over what a dotted path names, with plain modules for the containers on the way.

    Modules and tensors are shared; of a module of TorchScript, or one that computes the attribute, as a parametrized
    one does, nothing can be taken but the whole. What the destination already has whole is left alone. Raises an error
    that is an AttributeError where the source lacks a step.
    """
    *parents, field = path.split(".")
    for i, atom in enumerate(parents):
        below = source._modules.get(atom)
        if below is not None and is_computed(below, (*parents, field)[i + 1]):
            destination._modules[atom] = below
            return
        if below is None or is_compiled(below):
            if not hasattr(source, atom):
                raise _missing(source, atom, path)
            _set(destination, atom, getattr(source, atom))
            return
        container = destination._modules.get(atom)
        if container is None:
            container = nn.Module()
            container.training = below.training
            destination._modules[atom] = container
        elif container is below:
            return  # a parent was taken over whole
        source, destination = below, container
    value = source._modules.get(field)
    if value is not None:
        destination._modules[field] = value
        return
    try:
        value = getattr(source, field)
    except AttributeError:
        raise _missing(source, field, path) from None
    _set(destination, field, value, persistent=field not in source._non_persistent_buffers_set)


def _set(destination: nn.Module, field: str, value: Any, persistent: bool = True) -> None:
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        destination.register_buffer(field, value, persistent)
    elif field == "training" or not isinstance(value, nn.Module):
        setattr(destination, field, value)
    else:
        destination.add_module(field, value)


def _missing(source: nn.Module, atom: str, path: str) -> MissingAttributeError:
    return MissingAttributeError(
        f"the graph uses {path!r}, but '{type(source).__name__}' object has no attribute {atom!r}",
        fix="pass the module that the graph was captured from",
    )

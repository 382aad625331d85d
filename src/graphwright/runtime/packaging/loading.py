"""Builds the parts of a written model: modules without their constructors, and the tensors of the weights file.

graphwright puts a copy of this file into every package that it writes, so that the package needs nothing but torch
and safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import nn

WEIGHTS_FILE = "weights.safetensors"

Module = TypeVar("Module", bound=nn.Module)


def rebuilt(
    kind: type[Module],
    attributes: Mapping[str, Any],
    parameters: Mapping[str, nn.Parameter | None] | None = None,
    buffers: Mapping[str, torch.Tensor | None] | None = None,
    modules: Mapping[str, nn.Module | None] | None = None,
) -> Module:
    """Make a module from what it consists of, without running the constructor of its class.

    >>> rebuilt(nn.Dropout, {"p": 0.25, "inplace": False})
    Dropout(p=0.25, inplace=False)
    """
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    module.__dict__.update(attributes)
    module._parameters.update(parameters or {})
    module._modules.update(modules or {})
    for name, tensor in (buffers or {}).items():
        module._buffers[name] = tensor
        if not getattr(tensor, "persistent", True):
            module._non_persistent_buffers_set.add(name)
    return module


def load_tensors(module: nn.Module, beside: str) -> None:
    """Give every parameter, buffer and tensor attribute the tensor stored under its name, in a file beside another.

    Parameters that are one stay one, and each keeps its `requires_grad`. Raises RuntimeError where the module has a
    tensor that the file lacks, or one of another shape.
    """
    places: dict[int, list[tuple[str, nn.Module, str]]] = {}
    for path, owner, name, tensor in tensor_slots(module):
        places.setdefault(id(tensor), []).append((path, owner, name))
    with safe_open(str(Path(beside).with_name(WEIGHTS_FILE)), framework="pt") as file:
        stored = set(file.keys())
        layouts = json.loads((file.metadata() or {}).get("layouts", "{}"))
        pieces: dict[str, torch.Tensor] = {}  # memory that several tensors share
        for slots in places.values():
            path, owner, name = slots[0]
            layout = layouts.get(path, {})
            piece = layout.get("in", path)
            if piece not in stored:
                raise RuntimeError(f"{WEIGHTS_FILE} has no tensor {path!r}: build the model with load_weights=False")
            if piece not in pieces:
                # A copy: memory of the file is aligned otherwise, which some kernels answer with other last digits.
                pieces[piece] = file.get_tensor(piece).clone()
            loaded = unpacked(pieces[piece], layout) if layout else pieces.pop(piece)
            now = getattr(owner, name)
            if now.shape != loaded.shape:
                raise RuntimeError(f"{path!r} is {list(now.shape)} in the code, {list(loaded.shape)} in {WEIGHTS_FILE}")
            if isinstance(now, nn.Parameter):
                loaded = nn.Parameter(loaded, requires_grad=now.requires_grad)
            elif now.requires_grad:
                loaded.requires_grad_()
            for _, owner, name in slots:
                setattr(owner, name, loaded)


def tensor_slots(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, torch.Tensor]]:
    """Iterate over (dotted path, owner, name, tensor) of parameters, buffers and tensor attributes, each place once."""
    for prefix, owner in module.named_modules():
        for table in (owner._parameters, owner._buffers, owner.__dict__):
            for name, value in table.items():
                if isinstance(value, torch.Tensor):
                    yield f"{prefix}.{name}" if prefix else name, owner, name, value


def unpacked(stored: torch.Tensor, layout: Mapping[str, Any]) -> torch.Tensor:
    """Turn what the file could store back into the tensor that it stands for."""
    if "dtype" in layout:
        dtype: torch.dtype = getattr(torch, layout["dtype"])
        stored = torch.view_as_complex(stored) if dtype.is_complex else stored.view(dtype)
    if "size" in layout:
        stored = stored.as_strided(layout["size"], layout["stride"], layout["offset"])
    return stored

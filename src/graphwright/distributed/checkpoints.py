"""Checkpoints in safetensors, of which a stage reads its own part."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from graphwright.errors import LoadError

_INDEX = "model.safetensors.index.json"
_FILE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors in safetensors files: `files` says which file has each name."""

    path: Path
    files: Mapping[str, Path]

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Checkpoint:
        """Read which names a checkpoint has: of a file, an index of shards, or a folder with one of these.

        Raises LoadError for what is none.
        """
        found = Path(path)
        if found.is_dir():
            found = next((found / name for name in (_INDEX, _FILE) if (found / name).exists()), found / _FILE)
        if not found.exists():
            raise LoadError(f"there is no checkpoint {found}", fix=f"pass {_FILE}, {_INDEX}, or their folder")
        if found.suffix != ".json":
            with _opened(found) as file:
                return Checkpoint(found, dict.fromkeys(file.keys(), found))
        try:
            names = json.loads(found.read_text())["weight_map"]
            shards = {name: Path(shard) for name, shard in names.items()}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise LoadError(f"{found} is no index of safetensors shards: it has no weight_map") from error
        strange = next((shard for shard in shards.values() if shard.is_absolute() or ".." in shard.parts), None)
        if strange is not None:
            raise LoadError(f"{found} names {str(strange)!r}, which is outside of its folder")
        return Checkpoint(found, {name: found.parent / shard for name, shard in shards.items()})

    def name_of(self, names: tuple[str, ...]) -> str | None:
        """The first of some names of a tensor under which the checkpoint has it."""
        return next((name for name in names if name in self.files), None)

    def check(
        self, module: nn.Module, names: Mapping[str, tuple[str, ...]], values: Mapping[str, Tensor], stage: int
    ) -> None:
        """Raise LoadError where a stage needs a tensor that is neither here nor among `values`, nor has data."""
        missing = [
            name
            for name, tensor, persists in _tensors(module)
            if self.name_of(names.get(name, (name,))) is None and name not in values and (persists or tensor.is_meta)
        ]
        if missing:
            shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            raise LoadError(
                f"{self.path} lacks {shown}, which stage {stage} needs",
                fix="pass what no checkpoint holds, such as buffers that do not persist: values={name: tensor}",
            )

    def read(self, name: str, device: torch.device) -> Tensor:
        """Read one tensor."""
        with _opened(self.files[name], str(device)) as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor


def _opened(path: Path, device: str = "cpu") -> Any:
    try:
        return safe_open(path, framework="pt", device=device)
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path} cannot be read as safetensors: {error}") from error


def names_of(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """By the name of each parameter and buffer all names that the same tensor has."""
    found: dict[int, list[str]] = {}
    for tensors in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in tensors:
            found.setdefault(id(tensor), []).append(name)
    return {name: tuple(names) for names in found.values() for name in names}


def load_module(
    module: Any,
    checkpoint: Checkpoint,
    names: Mapping[str, tuple[str, ...]],
    values: Mapping[str, Tensor],
    device: torch.device,
) -> Any:
    """Copy a module with its tensors read from a checkpoint, or taken from `values`, on a device.

    They get the dtypes that they have in the module. What is in neither keeps its data. Raises LoadError for a tensor
    of another shape.
    """
    fresh: dict[int, Any] = {}
    for name, old, _ in _tensors(module):
        stored = checkpoint.name_of(names.get(name, (name,)))
        if stored is not None:
            new = checkpoint.read(stored, device)
        else:
            new = values.get(name, old)
        if new.shape != old.shape:
            raise LoadError(
                f"{stored or name} has shape {tuple(new.shape)} in the checkpoint, {tuple(old.shape)} in the program"
            )
        new = new.detach().to(device, old.dtype)
        fresh[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
    return copy_with(module, fresh)


def copy_with(module: Any, tensors: Mapping[int, Tensor]) -> Any:
    """Copy a module with other tensors in place of some, by id; it shares the rest of its tensors."""
    own = {id(tensor): tensor for _, tensor, _ in _tensors(module)}
    return copy.deepcopy(module, {**own, **tensors})  # what the memo has is not copied


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """The parameters and buffers of a module, each once, and whether a state_dict has them."""
    persisting = module.state_dict(keep_vars=True).keys()
    for tensors in (module.named_parameters(), module.named_buffers()):
        for name, tensor in tensors:
            yield name, tensor, name in persisting

"""Import written packages in a process that captured nothing, and compare them with what was captured.

Run as `python -m tests.runtime.load_packages FOLDER`: each package in FOLDER lies beside NAME.pt, which says what it
must be. Prints a JSON object from names to what is wrong.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def facts_of(module: nn.Module) -> dict[str, Any]:
    """What of a module its package must keep."""
    tensors = tensors_of(module)
    names: dict[int, str] = {}
    memory: dict[int, str] = {}
    return {
        "tensors": {name: tensor.detach() for name, tensor in tensors.items()},
        "strides": {name: tensor.stride() for name, tensor in tensors.items() if is_dense(tensor)},
        "learn": {name: tensor.requires_grad for name, tensor in tensors.items()},
        "kinds": {name: isinstance(tensor, nn.Parameter) for name, tensor in tensors.items()},
        "one": {name: names.setdefault(id(tensor), name) for name, tensor in tensors.items()},
        "memory": {
            name: memory.setdefault(tensor.untyped_storage().data_ptr(), name)
            for name, tensor in tensors.items()
            if tensor.numel()
        },
        "state": list(module.state_dict()),
        "training": {path: below.training for path, below in module.named_modules(remove_duplicate=False)},
    }


def is_dense(tensor: Tensor) -> bool:
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() > 0 and span + 1 == tensor.numel()


def differences(model: nn.Module, wanted: dict[str, Any]) -> list[str]:
    facts = facts_of(model)
    if list(facts["tensors"]) != list(wanted["tensors"]):
        return [f"the tensors are {list(facts['tensors'])}, not {list(wanted['tensors'])}"]
    facts["strides"] = {name: facts["strides"].get(name) for name in wanted["strides"]}
    wanted["training"] = {path: wanted["training"][path] for path in facts["training"]}  # a package may hold fewer
    wrong = [
        f"{name} has other values"
        for name, t in facts.pop("tensors").items()
        if not is_equal(t, wanted["tensors"][name])
    ]
    return wrong + [f"{key}: {facts[key]}, not {wanted[key]}" for key in facts if facts[key] != wanted[key]]


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype in (torch.float8_e4m3fn, torch.uint16):
            one, other = one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)
        return torch.equal(one, other)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict):
        return (
            type(one) is type(other)
            and one.keys() == other.keys()
            and all(is_equal(one[key], other[key]) for key in one)
        )
    return type(one) is type(other) and bool(one == other)


def check(folder: Path, name: str) -> str:
    wanted = torch.load(folder / f"{name}.pt", weights_only=False)
    package = importlib.import_module(name)
    assert package.__all__ == ["Model"]
    model = package.Model()
    wrong = differences(model, wanted["facts"])
    torch.manual_seed(0)
    result = model(*wanted["args"])
    if not is_equal(result, wanted["result"]):
        wrong.append(f"the result is {result}, not {wanted['result']}")
    empty = package.Model(load_weights=False)
    if list(empty.state_dict()) != list(model.state_dict()) or any(t.is_meta for t in empty.state_dict().values()):
        wrong.append("without weights it is another module")
    return "; ".join(wrong)


def main(folder: Path) -> dict[str, str]:
    declare_torchvision()
    sys.path.insert(0, str(folder))
    report = {}
    for file in sorted(folder.glob("*.pt")):
        try:
            report[file.stem] = check(folder, file.stem)
        except Exception:
            report[file.stem] = traceback.format_exc()
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

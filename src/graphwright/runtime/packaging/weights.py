"""The tensors of a module as a safetensors file: shared memory stored once, every dtype and layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphwright.errors import ExportError
from graphwright.runtime.packaging.whole_files import replacing, write_tensors

# What every version of safetensors stores as it is.
_STORABLE = frozenset({
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
})  # fmt: skip
_LONGER = 16  # times its elements: what a tensor's memory may be to be stored with what lies between them
_PLAIN_TYPES = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


def save_tensors(tensors: Mapping[str, Tensor], file: Path, notes: Mapping[str, str] | None = None) -> None:
    """Save tensors by name, in a form that `load_tensors` reads back with equal values, dtypes, strides and sharing.

    `notes` are texts to keep beside them. Raises ExportError for what is more than a block of memory: sparse,
    quantized, fake and meta tensors, subclasses; and where there is no room or no right to write.
    """
    pieces: dict[str, Tensor] = {}
    layouts: dict[str, dict[str, Any]] = {}
    sharing: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        _check(name, tensor)
        if tensor.numel():
            sharing.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
        else:
            sharing[-len(sharing) - 1] = [name]
    for names in sharing.values():
        if len(names) > 1:
            _store_shared({name: tensors[name].detach() for name in names}, pieces, layouts)
        else:
            _store_alone(names[0], tensors[names[0]].detach().resolve_conj().resolve_neg().cpu(), pieces, layouts)
    metadata = {"format": "pt", **(notes or {})}
    if layouts:
        metadata["layouts"] = json.dumps(layouts)
    with replacing(file) as open_file:
        write_tensors(open_file, pieces, metadata)


def _check(name: str, tensor: Tensor) -> None:
    if type(tensor) not in _PLAIN_TYPES:
        what = f"a {type(tensor).__name__}"
    elif tensor.is_meta:
        what = "on the meta device, without values"
    elif tensor.layout is not torch.strided:
        what = f"stored as {tensor.layout}"
    elif tensor.is_quantized:
        what = f"quantized as {tensor.dtype}"
    else:
        return
    raise ExportError(
        f"cannot write the tensor {name!r}: it is {what}", fix="replace it by an ordinary dense tensor before writing"
    )


def _store_alone(name: str, tensor: Tensor, pieces: dict[str, Tensor], layouts: dict[str, dict[str, Any]]) -> None:
    layout: dict[str, Any] = {}
    if not tensor.is_contiguous():
        if _span(tensor) <= _LONGER * tensor.numel():  # channels_last, a transposed weight, every second column
            layout.update(size=list(tensor.shape), stride=list(tensor.stride()), offset=0)
            tensor = _memory_of(tensor)
        else:
            tensor = tensor.contiguous()
    if tensor.dtype not in _STORABLE and not tensor.dtype.is_complex and not layout:
        layout.update(size=list(tensor.shape), stride=list(tensor.stride()), offset=0)  # its bytes are one row
    pieces[name] = _storable(tensor, layout)
    if layout:
        layouts[name] = layout


def _store_shared(tensors: dict[str, Tensor], pieces: dict[str, Tensor], layouts: dict[str, dict[str, Any]]) -> None:
    """Store tensors that lie in the same memory: the memory once, and where each of them lies in it."""
    first_name, first = next(iter(tensors.items()))
    if any(tensor.dtype != first.dtype or tensor.is_conj() or tensor.is_neg() for tensor in tensors.values()):
        raise ExportError(
            f"cannot write the tensors {list(tensors)}: they read the same memory in different ways",
            fix="clone all but one of them",
        )
    start = min(tensor.storage_offset() for tensor in tensors.values())
    end = max(tensor.storage_offset() + _span(tensor) for tensor in tensors.values())
    dtype: dict[str, Any] = {}
    pieces[first_name] = _storable(first.as_strided((end - start,), (1,), start).cpu(), dtype)
    for name, tensor in tensors.items():
        layouts[name] = {
            "in": first_name,
            **dtype,
            "size": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset() - start,
        }


def _memory_of(tensor: Tensor) -> Tensor:
    """The memory from the first to the last element of a tensor as one row, with zeros for what it does not read."""
    memory = tensor.as_strided((_span(tensor),), (1,))
    if len(memory) == tensor.numel() and 0 not in tensor.stride():
        return memory
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places[..., None] + torch.arange(size) * stride
    rows = memory.view(torch.uint8).view(len(memory), tensor.element_size())
    read = torch.zeros_like(rows)
    read[places.reshape(-1)] = rows[places.reshape(-1)]
    return read.view(-1).view(tensor.dtype)


def _span(tensor: Tensor) -> int:
    """How many elements of memory lie between the first and the last element of a tensor, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _storable(tensor: Tensor, layout: dict[str, Any]) -> Tensor:
    """Write complex numbers as pairs, and dtypes that older versions of safetensors do not know as bytes."""
    if tensor.dtype in _STORABLE:
        return tensor
    layout["dtype"] = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor).contiguous()
    return tensor.contiguous().view(-1).view(torch.uint8)

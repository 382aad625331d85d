"""What is known of a value besides its data, in a form that two of them can be compared in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphwright.analysis.tensor_metadata import TensorMetadata, extract_tensor_metadata
from graphwright.ir import ATOMS, Node, map_aggregate


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands where a value cannot be told: the node at which that began, and why; `error` where it failed."""

    node: Node
    reason: str
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What is known of a tensor."""

    metadata: TensorMetadata
    device: torch.device


@dataclass(frozen=True, slots=True)
class _Plain:
    """Anything else: 1, 1.0 and True are three different things."""

    kind: type
    value: Any


def describe_value(value: Any) -> Any:
    """Rebuild nested containers with facts in place of what they hold."""
    if isinstance(value, Tensor):
        return TensorFacts(extract_tensor_metadata(value), value.device)
    kind = type(value)
    return _Plain(kind, value) if kind in ATOMS else map_aggregate(value, _describe_leaf)


def _describe_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return TensorFacts(extract_tensor_metadata(leaf), leaf.device)
    return leaf if isinstance(leaf, Gap) else _Plain(type(leaf), leaf)


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two descriptions are certainly of values alike."""
    try:
        return one is other or bool(one == other)
    except Exception:  # whatever the values' own classes say
        return False


def public_part(described: Any, field: str) -> Any:
    """Rebuild a description with one field of tensors in their place; None where there are no tensors."""
    found = False

    def take(leaf: Any) -> Any:
        nonlocal found
        if isinstance(leaf, TensorFacts):
            found = True
            return getattr(leaf, field)
        return leaf.value if isinstance(leaf, _Plain) else None

    taken = map_aggregate(described, take)
    return taken if found else None


def gap_in(value: Any) -> Gap | None:
    """The first gap in a value, if there is one."""
    if isinstance(value, Gap):
        return value
    if isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            gap = gap_in(item)
            if gap is not None:
                return gap
    return None


_FIXED = (Tensor, Gap, torch.dtype, torch.device, torch.layout, torch.memory_format, type, slice, range, bytes)


def is_mutable(value: Any) -> bool:
    """Tell whether a value, tensors aside, may be changed by what is given it."""
    if type(value) in ATOMS or isinstance(value, _FIXED):
        return False
    return any(map(is_mutable, value)) if isinstance(value, tuple) else True

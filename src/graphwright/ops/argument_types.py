"""torch's part in the arguments of nodes: which of its values are atoms, and pytree's view of the containers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphwright.ir import immutable_dict, immutable_list

# What an argument may be besides nodes and containers.
BASE_TYPES: tuple[type, ...] = (
    *(str, int, float, bool, complex),
    *(torch.dtype, torch.Tensor, torch.device, torch.memory_format, torch.layout, torch._ops.OpOverload),
    *(torch.SymInt, torch.SymBool, torch.SymFloat),
)


def register_containers() -> None:
    """Let pytree flatten the immutable containers as it does lists and dicts. Doing it again changes nothing."""
    if immutable_list in pytree.SUPPORTED_NODES:
        return

    def list_with_keys(value: immutable_list) -> tuple[list[Any], Any]:
        return [(pytree.SequenceKey(i), item) for i, item in enumerate(value)], None

    def dict_with_keys(value: immutable_dict) -> tuple[list[Any], Any]:
        return [(pytree.MappingKey(key), item) for key, item in value.items()], list(value)

    pytree.register_pytree_node(
        immutable_list,
        lambda value: (list(value), None),
        lambda items, _: immutable_list(items),
        serialized_type_name="graphwright.immutable_collections.immutable_list",
        flatten_with_keys_fn=list_with_keys,
    )
    pytree.register_pytree_node(
        immutable_dict,
        lambda value: (list(value.values()), list(value)),
        lambda items, keys: immutable_dict(zip(keys, items, strict=True)),
        serialized_type_name="graphwright.immutable_collections.immutable_dict",
        flatten_with_keys_fn=dict_with_keys,
    )

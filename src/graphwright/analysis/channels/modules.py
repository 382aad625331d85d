"""What layers of torch.nn that hold parameters do to channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from graphwright.analysis.channels.operator_rules import (
    convolution,
    embedding,
    grouped,
    linear,
    normalized,
    per_channel,
    transposed,
)
from graphwright.analysis.channels.values import Dims, Knowledge
from graphwright.ir import Node
from graphwright.ops import is_plain_module

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def of_module(known: Knowledge, node: Node, module: nn.Module, inputs: Mapping[Node, Any], value: Any) -> Dims | None:
    """The dimensions of what a layer gives; None where it is no layer that is known to have parameters."""
    if not is_plain_module(module) or not node.args or not isinstance(node.args[0], Node):
        return None
    dims: Dims = known.of(node.args[0])
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
    tensors = [known.of_tensor(tensor) for tensor in (weight, bias) if isinstance(tensor, torch.Tensor)]
    if isinstance(module, nn.Linear):
        return linear(known, node, dims, tensors[0], tensors[1] if bias is not None else None)
    if isinstance(module, _CONVOLUTIONS):
        return convolution(
            known, node, dims, tensors[0], tensors[1] if bias is not None else None, module.groups, module.weight.shape
        )
    if isinstance(module, _TRANSPOSED):
        return transposed(
            known, node, dims, tensors[0], tensors[1] if bias is not None else None, module.groups, module.weight.shape
        )
    if isinstance(module, _NORMS):
        statistics = [getattr(module, name) for name in ("running_mean", "running_var")]
        tensors += [known.of_tensor(each) for each in statistics if isinstance(each, torch.Tensor)]
        return per_channel(known, node, dims, tensors)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return normalized(known, node, dims, len(module.normalized_shape), tensors)
    if isinstance(module, nn.GroupNorm):
        return grouped(known, node, dims, module.num_groups, tensors)
    if isinstance(module, nn.Embedding):
        return embedding(known, node, dims, tensors[0], value)
    if isinstance(module, nn.PReLU):
        return _prelu(known, node, dims, tensors[0])
    return None


def _prelu(known: Knowledge, node: Node, dims: Dims, weight: Dims) -> Dims:
    if weight[0] is None:
        return dims
    return (dims[0], known.same(dims[1], weight[0], node), *dims[2:])

"""What is known of tensors without their values: noted by passes, found out for single nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis.randomness import same_randomness
from graphwright.ir import Node, map_aggregate
from graphwright.runtime import read_attribute
from graphwright.values import TensorMetadata

__all__ = ["TensorMetadata", "describe_tensors", "extract_tensor_metadata", "infer_tensor_metadata"]


_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """Describe a tensor; without `include_contiguity`, not in which order its elements lie.

    >>> extract_tensor_metadata(torch.ones(2, 3)).memory_format
    torch.contiguous_format
    """
    is_strided = result.layout is torch.strided
    memory_format = None
    if include_contiguity and is_strided:
        if result.is_contiguous():
            memory_format = torch.contiguous_format
        elif result.dim() >= 4:
            memory_format = next((kind for kind in _FORMATS[1:] if _lies_in(result, kind)), None)
    is_quantized = result.is_quantized
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride() if _has_strides(result) else (),
        memory_format,
        is_quantized,
        _quantization(result) if is_quantized else {},
    )


def _has_strides(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided or tensor.is_mkldnn


def _lies_in(tensor: Tensor, memory_format: torch.memory_format) -> bool:
    dimensions = 4 if memory_format is torch.channels_last else 5
    return tensor.dim() == dimensions and tensor.is_contiguous(memory_format=memory_format)


def _quantization(tensor: Tensor) -> dict[str, Any]:
    scheme = tensor.qscheme()
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {"qscheme": scheme, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    if scheme in (torch.per_channel_affine, torch.per_channel_affine_float_qparams, torch.per_channel_symmetric):
        return {  # lists, since the meta of nodes should not hold tensors
            "qscheme": scheme,
            "scale": tensor.q_per_channel_scales().tolist(),
            "zero_point": tensor.q_per_channel_zero_points().tolist(),
            "axis": tensor.q_per_channel_axis(),
        }
    return {"qscheme": scheme}


def describe_tensors(value: Any) -> Any:
    """Rebuild nested containers with TensorMetadata in place of tensors; None where there are no tensors."""
    found = False

    def describe(leaf: Any) -> Any:
        nonlocal found
        if isinstance(leaf, Tensor):
            found = True
            return extract_tensor_metadata(leaf)
        return leaf

    described = map_aggregate(value, describe)
    return described if found else None


def infer_tensor_metadata(node: Node, owner: nn.Module) -> Any:
    """Describe what a node gives from what is noted of the nodes that it reads, without running them.

    `owner` is the captured module. Operators run on tensors without data, so that nothing is computed and nothing
    written. Returns a TensorMetadata, or nested containers with them; None where it cannot be told: an input is not
    described, the operator wants data, or gives no tensor.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x.t())
    >>> x, t, _ = gm.graph.nodes
    >>> x.meta["tensor_meta"] = extract_tensor_metadata(torch.ones(2, 3))
    >>> infer_tensor_metadata(t, gm).shape
    torch.Size([3, 2])
    """
    try:
        args = map_aggregate(node.args, lambda arg: _example(arg, owner))
        kwargs = map_aggregate(node.kwargs, lambda arg: _example(arg, owner))
        with same_randomness():
            if node.op == "call_function":
                result = node.target(*args, **kwargs)
            elif node.op == "call_method":
                result = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            elif node.op == "call_module":
                module = owner.get_submodule(str(node.target))
                tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
                without_data = {name: _without_data(tensor) for name, tensor in tensors.items()}
                result = torch.func.functional_call(module, without_data, args, kwargs)
            elif node.op == "get_attr":
                result = read_attribute(owner, str(node.target))
            else:
                return None
    except Exception:  # whatever an operator says of tensors without data
        return None
    return describe_tensors(result) if not isinstance(result, Tensor) else extract_tensor_metadata(result)


def _example(arg: Any, owner: nn.Module) -> Any:
    if not isinstance(arg, Node):
        return arg
    if arg.op == "get_attr":
        value = read_attribute(owner, str(arg.target))
        return _without_data(value) if isinstance(value, Tensor) else value
    return _as_tensor(arg.meta["tensor_meta"])


def _as_tensor(described: Any) -> Any:
    if isinstance(described, TensorMetadata):
        tensor = torch.empty_strided(described.shape, described.stride, dtype=described.dtype, device="meta")
        return tensor.requires_grad_(described.requires_grad)
    if isinstance(described, tuple | list):
        return type(described)([_as_tensor(item) for item in described])
    if isinstance(described, dict):
        return {key: _as_tensor(item) for key, item in described.items()}
    return described


def _without_data(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta").requires_grad_(tensor.requires_grad)

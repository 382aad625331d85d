"""Layers that torch.export would fix to the example, or torch.onnx would misread, as what they come to."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from graphwright.onnx.torch_private import recurrent_operator


class Kept(TorchFunctionMode):
    """Keeps `torch.gru` and `torch.lstm` of tensors as they are: torch.export would fix the length.

    What attention gives is laid out as its decomposition gives it, or views of it fail when it is decomposed.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call what is called, these two by an operator of ours."""
        if func in (torch.gru, torch.lstm) and not kwargs and len(args) == 9 and not isinstance(args[3], torch.Tensor):
            input, state, weights, *options = args
            *_, dropout, is_training, _, _ = options
            if not (is_training and dropout):
                parts = state if isinstance(state, list | tuple) else (state,)
                name = "gru" if func == torch.gru else "lstm"
                return recurrent_operator(name, input, tuple(parts), tuple(weights), *options)
        if func == torch.batch_norm and not kwargs and args[5]:
            input, weight, bias, mean, var, _, momentum, eps, _ = args
            return _batch_norm(input, mean, var, weight, bias, True, momentum, eps)
        if func is torch.nn.functional.batch_norm and (args[5:] or [(kwargs or {}).get("training")])[0]:
            return _batch_norm(*args, **(kwargs or {}))
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {})).clone(memory_format=torch.contiguous_format)
        return func(*args, **(kwargs or {}))


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, *options: Any, **named: Any
) -> torch.Tensor:
    """Attention over any number of dimensions, as that over the four that torch.onnx translates."""
    attend: Any = torch.nn.functional.scaled_dot_product_attention
    given = [query, key, value]
    if all(each.dim() == 4 for each in given):
        return attend(*given, attn_mask, *options, **named)  # type: ignore[no-any-return]
    before = torch.broadcast_shapes(*[each.shape[:-3] for each in given])
    mask = attn_mask if attn_mask is None or attn_mask.dim() < 4 else _in_four(attn_mask, before)
    attended: torch.Tensor = attend(*[_in_four(each, before) for each in given], mask, *options, **named)
    heads = attended.shape[1:-2] if any(each.dim() > 2 for each in given) else ()
    return attended.reshape(*before, *heads, *attended.shape[-2:])


def _in_four(tensor: torch.Tensor, before: torch.Size) -> torch.Tensor:
    """A tensor of heads in four dimensions; those before the heads, repeated to some sizes, are one."""
    heads = tensor if tensor.dim() > 2 else tensor.unsqueeze(0)
    return heads.expand(*before, *heads.shape[-3:]).reshape(-1, *heads.shape[-3:])


def _batch_norm(
    input: torch.Tensor,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Batch norm of the batch itself, as in training: torch.onnx has only that of the running values."""
    dims, shape = [0, *range(2, input.dim())], [1, -1, *[1] * (input.dim() - 2)]
    of_batch = input.mean(dims, keepdim=True)
    off = input - of_batch
    spread = (off * off).mean(dims, keepdim=True)
    if mean is not None:
        count = math.prod(input.shape[dim] for dim in dims)
        mean.copy_(mean * (1 - momentum) + of_batch.detach().flatten() * momentum)
        var.copy_(var * (1 - momentum) + spread.detach().flatten() * (count / (count - 1) * momentum))
    output = off * torch.rsqrt(spread + eps)
    output = output if weight is None else output * weight.view(shape)
    return output if bias is None else output + bias.view(shape)

"""torch.ao's steps: a module is prepared, data or training goes through it, and it is converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from graphwright.capture import symbolic_trace
from graphwright.compat.torch_ao.configs import PatternsInOrder
from graphwright.errors import QuantizationError
from graphwright.passes import FuseConvBatchNorm
from graphwright.quantization import (
    Backend,
    QConfigMapping,
    backends,
    convert,
    lower,
    preparation_of,
    prepare,
    with_mapping,
)
from graphwright.runtime import GraphModule

__all__ = ["convert_fx", "fuse_fx", "native_backend", "prepare_fx", "prepare_qat_fx", "tensorrt_backend"]


def prepare_fx(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | Mapping[str, Any],
    example_inputs: tuple[Any, ...] | Tensor,
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Backend | None = None,
) -> GraphModule:
    """Give a copy of a module in evaluation that observes its values: `graphwright.quantization.prepare`.

    Any module is captured, also where torch.fx's tracing fails. Raises QuantizationError for custom configurations.

    >>> import torch
    >>> from graphwright.compat.torch_ao.configs import default_mapping
    >>> prepared = prepare_fx(nn.Sequential(nn.Linear(4, 2)).eval(), default_mapping(), (torch.randn(1, 4),))
    >>> _ = prepared(torch.randn(8, 4))
    >>> convert_fx(prepared).get_submodule("0")
    QuantizedLinear(4, 2, bias=True, int8)
    """
    _refuse(prepare_custom_config=prepare_custom_config, _equalization_config=_equalization_config)
    return _prepared(model, qconfig_mapping, example_inputs, backend_config, training=False)


def prepare_qat_fx(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | Mapping[str, Any],
    example_inputs: tuple[Any, ...] | Tensor,
    prepare_custom_config: Any = None,
    backend_config: Backend | None = None,
) -> GraphModule:
    """Give a copy of a module that trains with rounding: `graphwright.quantization.prepare(..., training=True)`."""
    _refuse(prepare_custom_config=prepare_custom_config)
    return _prepared(model, qconfig_mapping, example_inputs, backend_config, training=True)


def convert_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: QConfigMapping | Mapping[str, Any] | None = None,
    backend_config: Backend | None = None,
    keep_original_weights: bool = False,
) -> GraphModule:
    """Give the program with integers of a prepared module that has seen data, with the fastest kernels that torch has.

    That is `convert` and `lower` of `graphwright.quantization`; `convert_to_reference_fx` is `convert` alone.

    qconfig_mapping: other rules than those of `prepare_fx`, with None for what is to stay in float.
    """
    _refuse(convert_custom_config=convert_custom_config, keep_original_weights=keep_original_weights or None)
    if qconfig_mapping is not None or backend_config is not None:
        rules = None if qconfig_mapping is None else _rules(qconfig_mapping)
        graph_module = with_mapping(graph_module, rules, backend_config)
    preparation = preparation_of(graph_module)
    return lower(convert(graph_module), *preparation.calls[0], engine="torch")


def fuse_fx(model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None) -> GraphModule:
    """Capture a module in evaluation, and fold its batch norms and activations into the layers before them."""
    _refuse(fuse_custom_config=fuse_custom_config)
    gm = symbolic_trace(model)
    FuseConvBatchNorm().run(gm)
    return gm


def native_backend() -> Backend:
    """torch.ao's `get_native_backend_config`: what torch computes on this processor."""
    return backends.x86


def tensorrt_backend() -> Backend:
    """torch.ao's `get_tensorrt_backend_config`: symmetric integers, whose zero points are 0."""
    return backends.tensorrt


def _prepared(model: nn.Module, rules: Any, example: Any, backend: Backend | None, training: bool) -> GraphModule:
    args = tuple(example) if isinstance(example, tuple | list) else (example,)
    chosen = {} if backend is None else {"backend": backend}
    return prepare(model, _rules(rules), args, training=training, **chosen)  # type: ignore[arg-type]


def _rules(rules: Any) -> QConfigMapping:
    return rules if isinstance(rules, QConfigMapping) else PatternsInOrder.from_dict(rules)


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise QuantizationError(
                f"{name} is not taken here",
                fix="leave it out: every module is captured, and rules of the mapping say what stays in float",
            )

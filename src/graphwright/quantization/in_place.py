"""`quantize_`: layers of a module replaced by quantized ones, without a capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from torch import nn

from graphwright.errors import QuantizationError
from graphwright.quantization.layers import QuantizedEmbedding, QuantizedLinear
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.recurrent_layers import RECURRENT_FORMS, fitting_recurrent
from graphwright.quantization.schemes import PerGroup, PerToken, QConfig

Filter = Callable[[nn.Module, str], bool]


def quantize_(model: nn.Module, config: QConfig, filter_fn: Filter | None = None) -> None:
    """Replace layers of a module by quantized ones, in place: the names of torchao, no capture.

    config: `dynamic_int8()`, `weight_only_int8()` or `weight_only_int4()`, whose algorithm is rounding. filter_fn: is
    given each linear layer, embedding, LSTM, GRU and cell of these, and its path, and tells which to replace; by
    default every nn.Linear. Groups that do not divide the inputs of a layer leave it as it is, unless `filter_fn` chose
    it.

    Raises QuantizationError, before anything is changed, for a config that needs data.

    >>> from graphwright.quantization import dynamic_int8
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    >>> quantize_(model, dynamic_int8(), lambda module, path: path == "2")
    >>> model
    Sequential(
      (0): Linear(in_features=8, out_features=8, bias=True)
      (1): ReLU()
      (2): QuantizedLinear(8, 4, bias=True, input per token, int8)
    )
    """
    if config.needs_data or config.weight is None:
        raise QuantizationError(
            "this config finds ranges or weights in calibration", fix="graphwright.quantize(model, config, calibration)"
        )
    made: list[tuple[nn.Module, str, nn.Module]] = []
    for path, module in model.named_modules():
        for name, child in module._modules.items():
            full = f"{path}.{name}".lstrip(".")
            if child is None or type(child) not in (nn.Linear, nn.Embedding, *RECURRENT_FORMS):
                continue
            if type(child) is nn.Linear if filter_fn is None else filter_fn(child, full):
                layer = _quantized(child, full, config, filter_fn is not None)
                if layer is not None:
                    made.append((module, name, layer))
    for module, name, layer in made:
        module._modules[name] = layer


def _quantized(module: nn.Module, path: str, config: QConfig, is_asked: bool) -> nn.Module | None:
    scheme = config.weight
    assert scheme is not None
    if type(module) in RECURRENT_FORMS:
        fitting = dataclasses.replace(config, weight=fitting_recurrent(scheme)[0])
        return RECURRENT_FORMS[type(module)].from_float(module, fitting)
    assert isinstance(module, nn.Linear | nn.Embedding)
    if isinstance(scheme.granularity, PerGroup) and module.weight.shape[1] % scheme.granularity.size:
        if not is_asked:
            return None
        size = scheme.granularity.size
        raise QuantizationError(
            f"{path}: groups of {size} do not divide {module.weight.shape[1]} inputs", fix="ask for another size"
        )
    grid = weight_grid(module.weight, scheme)
    if isinstance(module, nn.Embedding):
        return QuantizedEmbedding.from_float(module, grid)
    if config.activation is None:
        return QuantizedLinear.from_float(module, grid)
    is_token = isinstance(config.activation.granularity, PerToken)
    return QuantizedLinear.from_float(module, grid, "token" if is_token else "tensor")

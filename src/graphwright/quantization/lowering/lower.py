"""`lower`: a reference program as the fastest program of integers that computes the same."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from graphwright.engines import FloatLayers, Search, engines_of_auto, fastest_form, installed
from graphwright.errors import QuantizationError
from graphwright.quantization.lowering.computing import has_onednn
from graphwright.quantization.lowering.finding import QuantizedLayers
from graphwright.runtime import GraphModule

__all__ = ["Engine", "lower"]

Engine = Literal["auto", "torch", "onnxruntime", "openvino"]
ENGINE_NAMES = ("auto", "torch", "onnxruntime", "openvino")
_TOLERANCE = 0.5  # of the whole, where integers off by a step go on through all layers; each site is checked by itself


def lower(
    r: GraphModule,
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    engine: Engine = "auto",
) -> GraphModule:
    """Copy a reference program, with kernels that compute with integers where these are the fastest.

    The graph of the result is that of `r`, and so are its tensors and its state; what runs is chosen by measuring, for
    inputs like these, and other inputs run the reference program. Between layers values stay bytes: convolutions and
    linear layers read and write them, with the sums and activations behind; max pooling, padding, joining and reshaping
    are done on them. Weights are packed at the first call. Each kernel was compared with the reference on what it reads
    in the program: bytes are within one step, floats have noise 40 dB below at most.

    engine: "torch" uses what PyTorch has; "onnxruntime" and "openvino" run pieces of the program too, where they are
    faster; "auto" is all that is installed.

    Raises QuantizationError for an engine that is not known, and PassError for one that is not installed.

    >>> from graphwright import trace
    >>> from graphwright.quantization import quantize, dequantize
    >>> r = trace(lambda x: dequantize(quantize(x, 0.1, 3), 0.1, 3).relu(), torch.ones(4))
    >>> fast = lower(r, torch.ones(4), engine="torch")
    >>> bool(torch.isclose(fast(torch.tensor([0.11, 7.0])), torch.tensor([0.1, 7.0])).all())
    True
    """
    if engine not in ENGINE_NAMES:
        fix = f"engines are {', '.join(map(repr, ENGINE_NAMES))}"
        raise QuantizationError(f"there is no engine {engine!r}", fix=fix)
    names = engines_of_auto() if engine == "auto" else ["torch"] if engine == "torch" else ["torch", engine]
    if not has_onednn() and not torch.cpu._is_vnni_supported():
        warnings.warn("there are no kernels of integers for this processor: layers may be no faster", stacklevel=2)
    search = Search(
        engines=tuple(installed(names)),
        finders=(QuantizedLayers(), FloatLayers()),
        tolerance=_TOLERANCE,
        is_checked_by_site=True,
        again="lower what is loaded: graphwright.quantization.lower",
    )
    return fastest_form(r, args if isinstance(args, tuple) else (args,), dict(kwargs or {}), search)

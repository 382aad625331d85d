"""`lower`: a reference program as the fastest program of integers that computes the same."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import torch

from graphwright.engines import Call, FloatLayers, Search, engines_of_auto, fastest_form, installed
from graphwright.errors import QuantizationError
from graphwright.quantization.lowering.computing import has_onednn
from graphwright.quantization.lowering.finding import QuantizedLayers
from graphwright.quantization.lowering.linears import COPIES
from graphwright.runtime import GraphModule

Engine = Literal["auto", "torch", "onnxruntime", "openvino"]
ENGINE_NAMES = ("auto", "torch", "onnxruntime", "openvino")
_TOLERANCE = 0.5  # of the whole, where integers off by a step go on through all layers; each site is checked by itself


def check_engine(engine: str) -> None:
    """Raise QuantizationError for an engine that is not known."""
    if engine not in ENGINE_NAMES:
        fix = f"engines are {', '.join(map(repr, ENGINE_NAMES))}"
        raise QuantizationError(f"there is no engine {engine!r}", fix=fix)


def lower(r: GraphModule, calls: Sequence[Call], engine: Engine) -> GraphModule:
    """Copy a reference program as it is, in whatever dialect, with the fastest kernels: see `lower` of the room.

    Raises QuantizationError for an engine that is not known, and PassError for one that is not installed.
    """
    check_engine(engine)
    names = engines_of_auto() if engine == "auto" else ["torch"] if engine == "torch" else ["torch", engine]
    if not has_onednn() and not torch.cpu._is_vnni_supported():
        warnings.warn("there are no kernels of integers for this processor: layers may be no faster", stacklevel=2)
    search = Search(
        engines=tuple(installed(names)),
        finders=(QuantizedLayers(), FloatLayers()),
        tolerance=_TOLERANCE,
        is_checked_by_site=True,
        again="",
        is_general=True,
        copies=COPIES,
    )
    return fastest_form(r, calls, search)

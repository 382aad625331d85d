"""Other systems that `bench_quantization.py` sets beside ours, with defaults: torch.ao, ONNX Runtime, torchao and NNCF.

Each function takes a model, batches of calibration data and the call that is timed, and gives a module that takes and
gives tensors. ImportError says that a system is not installed.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Args = tuple[Tensor, ...]
Make = Callable[[nn.Module, list[Args], Args], nn.Module]


class _UnderEngine(nn.Module):
    """A module of torch.ao's, whose kernels ask at each call which engine is set."""

    def __init__(self, model: nn.Module, engine: str) -> None:
        super().__init__()
        self.model, self.engine = model, engine

    def forward(self, *args: Tensor) -> Any:
        torch.backends.quantized.engine = self.engine
        return self.model(*args)


def ao_fx(engine: str) -> Make:
    """Static quantization in torch.ao's FX graph mode, for "onednn" or "x86"."""

    def make(model: nn.Module, calibration: list[Args], args: Args) -> nn.Module:
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        torch.backends.quantized.engine = engine
        prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(engine), args)
        for batch in calibration:
            prepared(*batch)
        return _UnderEngine(convert_fx(prepared), engine)

    return make


def ao_dynamic(model: nn.Module, calibration: list[Args], args: Args) -> nn.Module:
    """Linear layers quantized dynamically by torch.ao, weights by channels."""
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    torch.backends.quantized.engine = "onednn"
    made = quantize_dynamic(copy.deepcopy(model), {nn.Linear: per_channel_dynamic_qconfig})
    return _UnderEngine(made, "onednn")


def torchao(config: str) -> Make:
    """A configuration of torchao, in eager."""

    def make(model: nn.Module, calibration: list[Args], args: Args) -> nn.Module:
        from torchao import quantization

        made = copy.deepcopy(model)
        quantization.quantize_(made, getattr(quantization, config)())
        return made

    return make


def nncf(model: nn.Module, calibration: list[Args], args: Args) -> nn.Module:
    """NNCF's post-training quantization, a program that rounds floats: its time is not that of integers."""
    import nncf

    nncf.set_log_level(40)
    data = nncf.Dataset([batch if len(batch) > 1 else batch[0] for batch in calibration])
    kind = None if any(isinstance(module, nn.Conv2d) for module in model.modules()) else nncf.ModelType.TRANSFORMER
    made: nn.Module = nncf.quantize(copy.deepcopy(model), data, model_type=kind, subset_size=len(calibration))
    return made


# ---- ONNX Runtime


class _InOnnxRuntime(nn.Module):
    def __init__(self, path: Path) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self.session.get_inputs()]

    def forward(self, *args: Tensor) -> Tensor:
        feeds = {name: each.contiguous().numpy() for name, each in zip(self.names, args, strict=True)}
        return torch.from_numpy(self.session.run(None, feeds)[0])


def onnxruntime_static(model: nn.Module, calibration: list[Args], args: Args) -> nn.Module:
    """ONNX Runtime's `quantize_static`, a scale for each channel of a weight, ranges from the least to the largest."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self, names: list[str]) -> None:
            pieces = (piece for batch in calibration for piece in pieces_of(batch, len(args[0])))
            self._found: Iterator[dict[str, Any]] = (
                {name: each.contiguous().numpy() for name, each in zip(names, piece, strict=True)} for piece in pieces
            )

        def get_next(self) -> dict[str, Any] | None:
            return next(self._found, None)

    def quantize(source: Path, target: Path, names: list[str]) -> None:
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(source, target, Reader(names), QuantFormat.QDQ, per_channel=True, **types)

    return _through_files(model, args, quantize)


def onnxruntime_dynamic(model: nn.Module, calibration: list[Args], args: Args) -> nn.Module:
    """ONNX Runtime's `quantize_dynamic`."""
    from onnxruntime.quantization import quantize_dynamic

    return _through_files(model, args, lambda source, target, names: quantize_dynamic(source, target))


def _through_files(model: nn.Module, args: Args, quantize: Callable[[Path, Path, list[str]], None]) -> nn.Module:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from graphwright.onnx import export

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, prepared, made = (Path(folder) / name for name in ("plain.onnx", "prepared.onnx", "made.onnx"))
        program = export(model, args, dynamic_shapes=tuple([None] * len(args)))
        program.save(plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize(prepared, made, program.input_names)
        return _InOnnxRuntime(made)


def pieces_of(batch: Args, size: int) -> list[Args]:
    """A batch in pieces of so many examples each; what is left over is left out."""
    count = len(batch[0]) // size
    return [tuple(each[i * size : (i + 1) * size] for each in batch) for i in range(count)]

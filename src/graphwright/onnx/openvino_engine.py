"""A program of tensors of known sizes in OpenVINO, by way of its ONNX model, called with torch's tensors."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphwright.onnx.export import export_at_sizes
from graphwright.onnx.program import OnnxProgram
from graphwright.runtime import GraphModule


def open_program(gm: GraphModule, args: tuple[Tensor, ...], threads: int) -> _Compiled:
    """Export a program that gives a tuple of tensors, for inputs of these sizes, and compile it for so many threads."""
    return _Compiled(export_at_sizes(gm, args), threads)


class _Compiled:
    """A compiled model; what it gives is copied, since the next call writes to it."""

    def __init__(self, program: OnnxProgram, threads: int) -> None:
        self._program = program
        self._open(threads)

    def _open(self, threads: int) -> None:
        openvino = importlib.import_module("openvino")  # an extra, which the files of this room are read without
        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self._program.save(path)
            compiled = openvino.Core().compile_model(str(path), "CPU", options)
        self._threads = threads
        self._request = compiled.create_infer_request()
        places = {value.get_any_name(): i for i, value in enumerate(compiled.inputs)}
        self._places = [(i, places[name]) for i, name in enumerate(self._program.input_names) if name in places]
        self._count = len(compiled.outputs)

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Run the model."""
        if torch.get_num_threads() != self._threads:
            self._open(torch.get_num_threads())
        feeds: dict[int, Any] = {place: tensors[i].detach().contiguous().numpy() for i, place in self._places}
        given = self._request.infer(feeds, share_inputs=True, share_outputs=False)
        return [torch.from_numpy(given[i]) for i in range(self._count)]

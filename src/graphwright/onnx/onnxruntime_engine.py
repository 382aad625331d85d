"""A program of tensors of known sizes in ONNX Runtime, called with torch's tensors."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime  # type: ignore[import-untyped]
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as _runtime  # type: ignore[import-untyped]
from torch import Tensor

from graphwright.onnx.export import export_at_sizes
from graphwright.onnx.overflow import ROUNDS_NO_ACTIVATIONS, open_session
from graphwright.onnx.program import OnnxProgram
from graphwright.runtime import GraphModule


def open_program(gm: GraphModule, args: tuple[Tensor, ...], threads: int) -> _Session:
    """Export a program that gives a tuple of tensors, for inputs of these sizes, and open it on so many threads."""
    return _Session(export_at_sizes(gm, args), threads)


_to_dlpack: Any = torch._C._to_dlpack
_from_dlpack: Any = torch._C._from_dlpack


def _takes_dlpack() -> bool:
    """Tell whether this release takes and gives tensors by DLPack, which costs less than arrays of numpy."""
    try:
        _runtime.OrtValue.from_dlpack(_to_dlpack(torch.ones(1)))
    except (AttributeError, TypeError):
        return False
    return hasattr(_runtime.OrtValueVector, "dlpack_at")


def _takes_bools() -> bool:
    """Tell whether this release knows the bools of DLPack; an older one takes and gives bytes, and is told which."""
    try:
        _runtime.OrtValue.from_dlpack(_to_dlpack(torch.ones(1, dtype=torch.bool)))
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True


_BY_DLPACK = _takes_dlpack()
_BY_BYTES = _BY_DLPACK and not _takes_bools()


_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "Round")


class _Session:
    """A session: what is passed shares the memory of torch's tensors. Threads may call it at the same time."""

    def __init__(self, program: OnnxProgram, threads: int) -> None:
        self._program, self._threads = program, threads
        self._open(threads)

    def _open(self, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not any(node.op_type in _ROUNDING for node in self._program.model.graph):
            options.add_session_config_entry(*ROUNDS_NO_ACTIVATIONS)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self._program.save(path)
            self._session = open_session(path, options)
        inside, self._threads = self._session._sess, threads
        self._run = inside.run_with_ort_values if _BY_DLPACK else inside.run
        wanted = {value.name for value in self._session.get_inputs()}
        self._names = [(i, name) for i, name in enumerate(self._program.input_names) if name in wanted]
        self._outputs = self._program.output_names

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Run the session."""
        if torch.get_num_threads() != self._threads:
            self._open(torch.get_num_threads())
        if not _BY_DLPACK:
            feeds: dict[str, Any] = {name: tensors[i].detach().contiguous().numpy() for i, name in self._names}
            return [*map(torch.from_numpy, self._run(self._outputs, feeds, None))]
        if _BY_BYTES:
            return self._call_by_bytes(tensors)
        value_of = _runtime.OrtValue.from_dlpack
        feeds = {name: value_of(_to_dlpack(tensors[i].contiguous())) for i, name in self._names}
        given = self._run(feeds, self._outputs, None)
        return [_from_dlpack(given.dlpack_at(i)) for i in range(len(self._outputs))]

    def _call_by_bytes(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run the session of a release that takes and gives bools as bytes."""
        given = self._run({name: _value_of(tensors[i].contiguous()) for i, name in self._names}, self._outputs, None)
        made, bools = [_from_dlpack(given.dlpack_at(i)) for i in range(len(self._outputs))], given.bool_tensor_indices()
        return [value.view(torch.bool) if i in bools else value for i, value in enumerate(made)]


def _value_of(tensor: Tensor) -> Any:
    """What a release that does not know the bools of DLPack takes for a tensor."""
    is_bool = tensor.dtype is torch.bool
    return _runtime.OrtValue.from_dlpack(_to_dlpack(tensor.view(torch.uint8) if is_bool else tensor), is_bool)

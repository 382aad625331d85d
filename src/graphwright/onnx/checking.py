"""A model in ONNX Runtime beside the program that it was made of: on the example, and at two other sizes."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.onnx.program import OnnxProgram
from graphwright.onnx.sizes import Sizes, at_sizes

__all__ = ["check", "difference", "result_at", "written"]

TOLERANCE = 1e-3  # of the largest value, and the least that counts is 1


def check(program: OnnxProgram, module: nn.Module, accepts: Callable[[Sizes], bool]) -> list[Sizes]:
    """Compare a model with its program on the example and at two other sizes that the program takes; give the sizes.

    Raises ExportError naming the output and the sizes where they differ.
    """
    inputs = program.arguments.inputs
    checked = [[list(each.example.shape) for each in inputs]]
    for sizes in _others(program):
        if len(checked) < 3 and sizes not in checked and accepts(sizes):
            checked.append(sizes)
    for sizes in checked:
        said = difference(program, module, sizes)
        if said:
            raise ExportError(f"{said}, at {written(program, sizes)}", fix=_FIX)
    return checked


def difference(program: OnnxProgram, module: nn.Module, sizes: Sizes) -> str:
    """Say what a model does otherwise than its program at these sizes; nothing where they agree."""
    wanted = result_at(program, module, sizes)
    args, kwargs = program.arguments.call(at_sizes(program.arguments, sizes))
    try:
        given = program(*args, **kwargs)
    except Exception as error:
        return f"ONNX Runtime cannot run the model: {(str(error).splitlines() or [type(error).__name__])[0]}"
    return _compared(program, given, wanted)


def result_at(program: OnnxProgram, module: nn.Module, sizes: Sizes) -> Any:
    """What the program itself gives at these sizes."""
    args, kwargs = program.arguments.call(at_sizes(program.arguments, sizes))
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        return copy.deepcopy(module)(*copy.deepcopy(args), **copy.deepcopy(kwargs))


def written(program: OnnxProgram, sizes: Sizes) -> str:
    """Sizes with the names of their inputs."""
    return ", ".join(f"{each.name} {size}" for each, size in zip(program.arguments.inputs, sizes, strict=True))


_FIX = "see program.report, and fix these sizes with dynamic_shapes"


def _others(program: OnnxProgram) -> Iterator[Sizes]:
    """Other sizes, those of one name in the model being one."""
    inputs = program.arguments.inputs
    for factor, more in ((1, 1), (2, 0), (1, 32), (1, -1)):
        sizes: Sizes = []
        for each, names in zip(inputs, program.report.sizes.values(), strict=True):
            pairs = zip(each.example.shape, names, strict=True)
            sizes.append([size if isinstance(name, int) else max(factor * size + more, 1) for size, name in pairs])
        yield sizes


def _compared(program: OnnxProgram, given: Any, wanted: Any) -> str:
    pairs = zip(pytree.tree_leaves(given), pytree.tree_leaves(wanted), strict=True)
    names = iter(program.output_names)
    for one, other in pairs:
        if not isinstance(one, torch.Tensor):
            continue
        name, other = next(names), torch.as_tensor(other)
        if one.shape != other.shape:
            return f"output {name!r} is of shape {tuple(one.shape)} in ONNX Runtime and {tuple(other.shape)} here"
        if not one.numel():
            continue
        one, other = one.to(torch.float64), other.to(torch.float64)
        most = max(1.0, float(other.abs().nan_to_num(0, 0, 0).max()))
        if not torch.allclose(one, other, TOLERANCE, TOLERANCE * most, equal_nan=True):
            return f"output {name!r} is off by {float((one - other).abs().max()):.3g} in ONNX Runtime"
    return ""

"""A model in ONNX Runtime beside the program that it was made of: on the example, and at two other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.onnx.original import Original
from graphwright.onnx.program import OnnxProgram
from graphwright.onnx.sizes import Sizes, at_sizes

TOLERANCE = 1e-3  # of the largest value, and the least that counts is 1
TOLERANCE_OF_INTEGERS = 0.1  # what is between two integers may be rounded either way, layer after layer


def check(program: OnnxProgram, original: Original) -> list[Sizes]:
    """Compare a model with its program on the example and at two other sizes that the program takes; give the sizes.

    Raises ExportError naming the output and the sizes where they differ, or saying that the program is random.
    """
    inputs = program.arguments.inputs
    checked = [[list(each.example.shape) for each in inputs]]
    for sizes in _others(program):
        if len(checked) < 3 and sizes not in checked and original.takes(sizes):
            checked.append(sizes)
    for sizes in checked:
        said = difference(program, original.at(sizes), sizes)
        if said and original.is_random(sizes):
            raise ExportError(
                "the program gives other values each time, with which its model cannot be compared",
                fix="export it without verify=True, or have what is drawn handed in as an input",
            )
        if said:
            raise ExportError(f"{said}, at {written(program, sizes)}", fix=_FIX)
    return checked


def difference(program: OnnxProgram, wanted: Any, sizes: Sizes) -> str:
    """Say what a model gives at these sizes that is not what its program gives; nothing where they agree."""
    try:
        outputs: Any = program.run(at_sizes(program.arguments, sizes))
    except Exception as error:
        outputs = (str(error).splitlines() or [type(error).__name__])[0]
    return difference_of(program, outputs, wanted)


def difference_of(program: OnnxProgram, outputs: Sequence[torch.Tensor] | str, wanted: Any) -> str:
    """Say what there is in these outputs, or the words of ONNX Runtime, that is not what the program gives."""
    if isinstance(outputs, str):
        return f"ONNX Runtime cannot run the model: {outputs}"
    given, names = program.result_of(outputs)
    rounds = any(node.op_type == "QuantizeLinear" for node in program.model.graph)
    tolerance = TOLERANCE_OF_INTEGERS if rounds else TOLERANCE
    return _compared(pytree.tree_leaves(given), pytree.tree_leaves(wanted), names, tolerance)


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


def _compared(given: Sequence[Any], wanted: Sequence[Any], names: Sequence[str], tolerance: float) -> str:
    if len(given) != len(wanted):
        return f"the result has {len(given)} values in ONNX Runtime and {len(wanted)} here"
    left = iter(names)
    for one, other in zip(given, wanted, strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        name, other = next(left), torch.as_tensor(other)
        if one.shape != other.shape:
            return f"output {name!r} is of shape {tuple(one.shape)} in ONNX Runtime and {tuple(other.shape)} here"
        if not one.numel():
            continue
        one, other = one.to(torch.float64), other.to(torch.float64)
        most = max(1.0, float(other.abs().nan_to_num(0, 0, 0).max()))
        if not torch.allclose(one, other, tolerance, tolerance * most, equal_nan=True):
            return f"output {name!r} is off by {float((one - other).abs().max()):.3g} in ONNX Runtime"
    return ""

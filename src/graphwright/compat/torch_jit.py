"""`trace` and `script` with torch.jit's options: those that say nothing here are taken, the others are explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from graphwright.capture import trace as captured
from graphwright.errors import CaptureError
from graphwright.runtime import GraphModule
from graphwright.script import script as compiled

__all__ = ["script", "trace"]

_EXPLAINED = {
    "_force_outplace": (
        "would change operations in place into others, which the captured program keeps",
        "leave it out, and run graphwright.passes.RemoveInPlace().run(gm) on the result",
    ),
    "_module_class": (
        "would choose the class of the result, which is an instance of the program's own class",
        "leave it out",
    ),
    "_compilation_unit": (
        "would collect functions of TorchScript, of which the result has none",
        "leave it out: each capture stands for itself",
    ),
    "_rcb": (
        "would look names up, which are found in the function's own module and closure",
        "leave it out, and have the names where the function is defined",
    ),
    "example_inputs": (
        "would have types of parameters observed, which are those of annotations",
        "annotate the parameters, or capture the run on examples: graphwright.jit.trace(model, args)",
    ),
}


def trace(
    func: nn.Module | Callable[..., Any],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    example_inputs: tuple[Any, ...] | torch.Tensor | Mapping[str, Any] | None = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    optimize: bool | None = None,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    _store_inputs: bool = True,
    **options: Any,
) -> GraphModule:
    """Capture a program as `graphwright.trace` does, with the same options, and those of torch.jit.trace.

    `example_inputs` and `example_kwarg_inputs` are torch.jit's names for `args` and `kwargs`. `optimize`, `strict` and
    `_store_inputs` say nothing here: nothing is optimized unasked, dicts and lists may be returned anyway, and no
    example is kept. Raises CaptureError for the others where they are not torch.jit's defaults, with what to do
    instead, and for inputs that are given twice.

    >>> gm = trace(lambda x, y: {"sum": x + y}, torch.ones(2), example_kwarg_inputs={"y": torch.ones(2)}, strict=False)
    >>> gm(torch.ones(1), torch.ones(1))
    {'sum': tensor([2.])}
    """
    _explain(_force_outplace=_force_outplace, _module_class=_module_class, _compilation_unit=_compilation_unit)
    if example_inputs is not None:
        _once(args, "args", "example_inputs")
        args = () if isinstance(example_inputs, Mapping) else example_inputs
        if isinstance(example_inputs, Mapping):
            _once(example_kwarg_inputs, "example_kwarg_inputs", "example_inputs, a dict")
            example_kwarg_inputs = example_inputs
    if example_kwarg_inputs is not None:
        _once(kwargs, "kwargs", "example_kwarg_inputs")
        kwargs = example_kwarg_inputs
    return captured(func, args, kwargs, **options)


def script(
    obj: nn.Module | Callable[..., Any],
    optimize: bool | None = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
    **options: Any,
) -> GraphModule:
    """Compile a program as `graphwright.script` does, with the same options, and those of torch.jit.script.

    `optimize` and `_frames_up` say nothing here: nothing is optimized unasked, and names are found where the function
    is defined. Raises CaptureError for `_rcb` and `example_inputs`, with what to do instead.

    >>> script(lambda x: x * 2, optimize=True)(torch.ones(1))
    tensor([2.])
    """
    _explain(_rcb=_rcb, example_inputs=example_inputs)
    return compiled(obj, **options)


def _explain(**given: Any) -> None:
    """Raise CaptureError for an option that asks for what is not done here."""
    for name, value in given.items():
        if value is not None and value is not False:
            what, fix = _EXPLAINED[name]
            raise CaptureError(f"torch.jit's option {name}={value!r} {what}", fix=fix)


def _once(value: Any, name: str, other: str) -> None:
    if value is not None and not (isinstance(value, tuple) and not value):
        raise CaptureError(f"example inputs are given twice: as {name} and as {other}", fix=f"leave {name} out")

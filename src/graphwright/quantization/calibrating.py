"""`calibrate`: data like that of use, run through a prepared module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.progress import followed, shown
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.preparing import Preparation, preparation_of
from graphwright.quantization.programs.state import as_it_was, call_of_batch, fresh
from graphwright.runtime import GraphModule

_KEPT = 32  # batches that algorithms see again


@shown("calibrating")
def calibrate(gm: GraphModule, batches: Iterable[Any] | Callable[[Any], Any]) -> GraphModule:
    """Run a prepared module on batches: a tensor, a tuple of arguments or a dict of keyword arguments each.

    Or make a run with it, which calls it, as that of `graphwright.record` does. The first 32 batches are kept, as they
    are, for the algorithms of `convert` that look at data. What the program writes to its own state and to its
    arguments is as it was afterwards. Gives the module.

    Raises QuantizationError where there is no batch, for one that fails, and for values that are no finite numbers.

    >>> import graphwright
    >>> from torch import nn
    >>> from graphwright.quantization import prepare, static_int8
    >>> prepared = prepare(nn.Linear(4, 2).eval(), static_int8(), torch.randn(1, 4))
    >>> _ = calibrate(prepared, [torch.randn(8, 4) for _ in range(4)])
    """
    preparation = preparation_of(gm)
    if isinstance(batches, Tensor | Mapping | str):
        raise QuantizationError(
            f"batches are one {type(batches).__name__}", fix="give a list of batches, or something like it: [batch]"
        )
    if callable(batches):
        return _calibrate_in(gm, preparation, batches)
    count = 0
    with torch.no_grad(), as_it_was(gm, gm):
        for i, batch in enumerate(followed(batches, "batch")):
            call = call_of_batch(batch)
            args, kwargs = fresh(call)
            try:
                gm(*args, **kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                if isinstance(error, QuantizationError):
                    raise
                raise QuantizationError(f"batch {i} fails: {error}", fix="give batches like the example") from error
            if len(preparation.batches) < _KEPT:
                preparation.batches.append(call)
            count += 1
    if not count:
        needs = any(isinstance(module, Observer) for module in gm.modules())
        if needs or iter(batches) is batches:
            raise no_data(batches)
    return gm


def _calibrate_in(gm: GraphModule, preparation: Preparation, run: Callable[[Any], Any]) -> GraphModule:
    """Make a run with a prepared module."""
    count = 0

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        if len(preparation.batches) < _KEPT:
            preparation.batches.append(fresh((args, kwargs)))

    handle = gm.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.no_grad(), as_it_was(gm, gm):
            run(gm)
    finally:
        handle.remove()
    if not count:
        raise QuantizationError(
            "the run makes no call of the module", fix="have it call the module that it is given: lambda m: m(x)"
        )
    return gm


def no_data(batches: Iterable[Any]) -> QuantizationError:
    """The error of calibration data without a batch."""
    why = "; an iterator can be gone through once" if iter(batches) is batches else ""
    return QuantizationError(
        f"there is no batch of calibration data{why}",
        fix="give batches of inputs like those of use, or quantize with dynamic_int8(), which needs none",
    )

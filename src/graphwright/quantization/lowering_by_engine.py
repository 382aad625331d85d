"""`lower`: for each engine the program in the dialect that it computes with, and of these the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphwright.engines import ENGINES, Call, OptimizedReport, RunsOn, add_notes, calling_all, fastest
from graphwright.errors import GraphwrightError
from graphwright.quantization.dialects import example_of, in_dialect
from graphwright.quantization.lowering.lower import Engine
from graphwright.quantization.lowering.lower import lower as lower_as_it_is
from graphwright.quantization.programs.state import as_it_was, call_of_batch
from graphwright.quantization.sites import QUANTIZED
from graphwright.runtime import GraphModule

_DIALECTS: Mapping[Engine, str] = {"onnxruntime": "ort", "openvino": "openvino"}
_SECONDS = 1.0


def lower(
    r: GraphModule,
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    engine: Engine = "auto",
    *,
    examples: Iterable[Any] = (),
) -> GraphModule:
    """Copy a reference program, with kernels and engines that compute with integers where these are the fastest.

    The graph of the result is that of `r`, in the dialect of the engine, and its tensors and its state are the same.
    What runs is chosen by measuring, for inputs like these; those of other sizes that the program takes run on the same
    kernels of torch, and others the reference program. Between layers
    values stay bytes: convolutions and linear layers read and write them, with the sums and activations behind; max
    pooling, padding, joining and reshaping are done on them. Weights are packed at the first call. Each kernel was
    compared with the reference on what it reads in the program: bytes are within one step, floats have noise 40 dB
    below at most.

    args, kwargs: a call to measure with; by default one of random numbers, of the sizes and between the bounds of that
    which a quantized module was captured with.
    engine: "torch" uses what PyTorch has; "onnxruntime" and "openvino" run pieces of the program too, where they are
    faster: of the program in their dialect, see `in_dialect`, where it is one that `convert` made. "auto" is the
    fastest of all that are installed; `report` and the notes of `explain()` say of the others why they are not used.
    examples: more calls of a module that was captured for several, one for each way that they take. Of such a module,
    and of one that takes objects such as caches, linear layers alone have kernels of integers, in calls of all sizes.

    Raises QuantizationError for an engine that is not known, and PassError for one that is not installed.

    >>> from graphwright import trace
    >>> from graphwright.quantization import quantize, dequantize
    >>> r = trace(lambda x: dequantize(quantize(x, 0.1, 3), 0.1, 3).relu(), torch.ones(4))
    >>> lower(r, torch.ones(4), engine="torch")(torch.tensor([-0.2, 0.0, 0.11, 7.0]))
    tensor([0.0000, 0.0000, 0.1000, 7.0000])
    """
    given, named = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    if not given and not named and QUANTIZED in r.meta:
        given, named = example_of(r)
    calls = [(given, named), *map(call_of_batch, examples)]
    if engine == "torch" or QUANTIZED not in r.meta or "dialect" in r.meta[QUANTIZED]:
        return lower_as_it_is(r, calls, engine)
    if engine != "auto":
        return lower_as_it_is(in_dialect(r, _DIALECTS[engine]) if engine in _DIALECTS else r, calls, engine)
    forms, against = {"torch": lower_as_it_is(r, calls, "torch")}, []
    for name, dialect in _DIALECTS.items():
        if not ENGINES[name].is_installed:
            against.append(f"{name} is not used: it is not installed ({ENGINES[name].install})")
            continue
        try:
            form = lower_as_it_is(in_dialect(r, dialect), calls, name)
        except GraphwrightError as error:  # the program has something that the dialect cannot say
            against.append(f"{name} is not used: {error.message}")
            continue
        if _program_of(form).runs_on == name:
            forms[name] = form
        else:
            against += [f"{name} is not used: {reason}" for reason in _reasons_against(form, name)]
    return _fastest(r, forms, against, calls)


def _program_of(form: GraphModule) -> RunsOn:
    """What the whole of a lowered module runs on."""
    report = form.report
    assert isinstance(report, OptimizedReport)
    return report.program


def _reasons_against(form: GraphModule, engine: str) -> list[str]:
    """Why a program in the dialect of an engine does not run on it."""
    program = _program_of(form)
    said = [reason.partition(": ")[2] for reason in program.why if reason.startswith(f"{engine} is not used")]
    times = dict(program.times_us)
    if said or engine not in times:
        return said or ["it has no piece of the program"]
    return [f"it took {times[engine] / 1000:.3g} ms in its dialect, and torch {times[program.runs_on] / 1000:.3g} ms"]


def _fastest(
    r: GraphModule,
    forms: Mapping[str, GraphModule],
    against: Sequence[str],
    made: Sequence[Call],
) -> GraphModule:
    """The fastest form, which says of the others why not."""
    best, against = "torch", list(against)
    if len(forms) > 1:
        calls = {name: calling_all(form, made) for name, form in forms.items()}
        with torch.no_grad(), as_it_was(r, *forms.values()) as put_back:
            measured = fastest(calls, _SECONDS, before=put_back)
        best, times = measured.best, {name: f"{time / 1000:.3g} ms" for name, time in measured.times_us.items()}
        against += [
            f"{name} is not used: it took {times[name]}, and {best} {times[best]}" for name in forms if name != best
        ]
    add_notes(forms[best], against)
    return forms[best]

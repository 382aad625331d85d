"""`graphwright.quantize`: prepare, calibrate, convert and lower in one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.capture import recorded_run
from graphwright.engines import Call, calling_all, fastest, has_form, has_several
from graphwright.errors import QuantizationError
from graphwright.progress import shown
from graphwright.quantization.backends import Backend, x86
from graphwright.quantization.calibrating import calibrate, no_data
from graphwright.quantization.converting import convert
from graphwright.quantization.lowering.lower import Engine, check_engine
from graphwright.quantization.lowering_by_engine import lower
from graphwright.quantization.mapping import QConfigMapping
from graphwright.quantization.preparing import (
    as_module,
    captured_for,
    mapping_of,
    preparation_of,
    prepare,
    with_mapping,
)
from graphwright.quantization.programs.state import as_it_was, call_of_batch, examples_of
from graphwright.quantization.record import say, slower_layers
from graphwright.quantization.schemes import QConfig
from graphwright.quantization.sites import QUANTIZED
from graphwright.runtime import GraphModule

_SECONDS = 1.0  # of measuring the result against the module that it was made of


@shown("quantizing")
def quantize_model(
    model: nn.Module | Callable[..., Any],
    config: QConfig | QConfigMapping | None = None,
    calibration: Iterable[Any] | Callable[[Any], Any] | None = None,
    *,
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    backend: Backend | str = x86,
    engine: Engine | None = "torch",
    progress: bool | None = None,
) -> GraphModule:
    """Capture a module and give one whose layers compute with integers; the module stays as it is, bit for bit.

    config: how: `static_int8()`, which is the default, `dynamic_int8()`, `weight_only_int8()`, `weight_only_int4()`, a
    QConfig, or a QConfigMapping with rules for some layers. calibration: batches of inputs like those of use: tensors,
    tuples of arguments or dicts of keyword arguments; or a run as that of `record`, such as
    `lambda model: model.generate(ids)`, for each form of whose calls the module is captured. args, kwargs: a call for
    the capture; by default the first batch.
    engine: what runs it, see `lower`: layers stay in float where integers are no faster here. None leaves the reference
    program. progress: whether a bar is shown; None: where it lasts longer than a second. `quantization` of the result
    says what became of each layer, and why: `print(q.quantization.explain())`.

    Raises QuantizationError for data that is missing, and as `prepare`, `calibrate` and `convert` do.

    >>> import torch, graphwright
    >>> from graphwright.quantization import static_int8
    >>> model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    >>> q = graphwright.quantize(model, static_int8(), [torch.randn(32, 16) for _ in range(4)], engine=None)
    >>> x = torch.randn(8, 16)
    >>> bool((q(x) - model(x)).abs().max() < 0.2)
    True
    """
    mapping = mapping_of(config)
    if engine is not None:
        check_engine(engine)
    needs_data = any(rule.config is not None and rule.config.needs_data for rule in mapping.rules)
    given, named = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    if needs_data and calibration is None:
        raise QuantizationError(
            "there is no calibration data",
            fix="give batches of inputs: calibration=[...]; or quantize with dynamic_int8(), which needs none",
        )
    calls = [(given, named)] if given or named else []
    if not callable(calibration) or isinstance(calibration, nn.Module):
        batches, calls = _data(model, calibration, calls, needs_data)
        batches = None if calibration is None else batches
        return _quantized(as_module(model, calls[:1]), mapping, batches, calls, backend, engine)
    recorded = recorded_run(model, calibration)
    calls += recorded.calls["forward"]

    def quantized(part: nn.Module, path: str, run: Callable[[Any], Any]) -> nn.Module:
        if has_form(part) or (isinstance(part, GraphModule) and QUANTIZED in part.meta):
            return part
        q = quantize_model(part, mapping.within(path), run, backend=backend, engine=engine)
        return q if len(q.quantization) else part

    model = captured_for(recorded.with_other_parts(quantized), calls)
    return _quantized(model, mapping, calibration if needs_data else None, calls, backend, engine)


def _quantized(
    model: nn.Module,
    mapping: QConfigMapping,
    batches: Any,
    calls: list[Call],
    backend: Backend | str,
    engine: Engine | None,
) -> GraphModule:
    """A quantized copy of a module. batches: data to calibrate with, or a run; None: it needs none."""
    first, *examples = calls = examples_of(model, calls)
    prepared = prepare(model, mapping, *first, backend=backend, examples=examples)
    if batches is not None:
        calibrate(prepared, batches)
    reference = convert(prepared)
    if engine is None:
        return reference
    lowered = _with_float_layers(lower(reference, *first, engine, examples=examples), prepared, calls, engine)
    return _unless_slower(lowered, model, prepared, calls)


def _data(model: Any, calibration: Any, own: list[Call], needs_data: bool) -> tuple[Any, list[Call]]:
    """The data to calibrate with, and calls to capture and measure with, the first of them before all."""
    batches: Iterable[Any] = iter(()) if calibration is None else _checked(calibration)
    if isinstance(model, GraphModule) and has_several(model) and calibration is not None:
        batches = [*batches]
        own += map(call_of_batch, batches)
    elif not own:
        first, batches = _first(batches, needs_data)
        own = [call_of_batch(first)]
    if not own:
        raise no_data(batches)
    return batches, own


def _with_float_layers(q: GraphModule, prepared: GraphModule, calls: Sequence[Call], engine: Engine) -> GraphModule:
    """A lowered module; layers that have no kernel of integers that is faster than floats are in float."""
    reasons = slower_layers(q, {str(node.target) for node in prepared.graph.all_nodes() if node.op == "call_module"})
    if not reasons:
        return q
    mapping = preparation_of(prepared).mapping.copy()
    for path in reasons:
        mapping.set_module_name(path, None)
    (args, kwargs), *examples = calls
    other = lower(convert(with_mapping(prepared, mapping)), args, kwargs, engine, examples=examples)
    with torch.no_grad(), as_it_was(prepared, q, other) as put_back:
        made = {"fewer": calling_all(other, calls), "all": calling_all(q, calls)}
        if fastest(made, _SECONDS, before=put_back).best == "all":
            return q
    say(other, reasons, q.meta[QUANTIZED]["rows"])
    return other


def _unless_slower(q: GraphModule, model: nn.Module, prepared: GraphModule, calls: Sequence[Call]) -> GraphModule:
    """A quantized module; where it takes more time than the module that it was made of, that with float layers."""
    with torch.no_grad(), as_it_was(prepared, model, q) as put_back:
        made = {"integers": calling_all(q, calls), "float": calling_all(model, calls)}
        measured = fastest(made, _SECONDS, before=put_back)
    if measured.best == "integers":
        return q
    ratio = measured.times_us["integers"] / measured.times_us["float"]
    in_float = convert(with_mapping(prepared, QConfigMapping()))
    reason = f"integers took {ratio:.2f} of the time of floats in the whole"
    say(in_float, {row.path: reason for row in in_float.quantization.rows})
    return in_float


def _checked(calibration: Any) -> Iterable[Any]:
    is_listed = isinstance(calibration, Iterable) or hasattr(calibration, "__getitem__")
    if isinstance(calibration, Tensor | Mapping | str | nn.Module) or not is_listed:
        raise QuantizationError(
            f"calibration is one {type(calibration).__name__}", fix="give a list of batches: calibration=[batch]"
        )
    found: Iterable[Any] = calibration
    return found


def _first(batches: Iterable[Any], needs_data: bool) -> tuple[Any, Iterable[Any]]:
    rest = iter(batches)
    for first in rest:
        return first, itertools.chain([first], rest)
    if needs_data:
        raise no_data(batches)
    raise QuantizationError(
        "there is neither a batch nor an example", fix="give batches of inputs, or a call: args=(x,)"
    )

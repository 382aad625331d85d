"""`convert`: a program whose layers have integer weights, and whose values are written as integers between them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.ir import Node
from graphwright.passes import ModuleCalls
from graphwright.progress import shown
from graphwright.quantization.affine import Grid, dequantize, quantize
from graphwright.quantization.backends import Backend
from graphwright.quantization.decide import Decision, decide
from graphwright.quantization.grids import Range, ValueGrid, activation_scheme, range_of, value_grids
from graphwright.quantization.improving.correcting import correct_biases, some_outputs
from graphwright.quantization.improving.equalizing import equalize_layers
from graphwright.quantization.improving.judging import losses_of_layers
from graphwright.quantization.improving.ranging import refine_ranges
from graphwright.quantization.improving.rounding import rounded_weights
from graphwright.quantization.improving.smoothing import smooth
from graphwright.quantization.improving.watching import run_batches
from graphwright.quantization.layers import FORMS, QuantizedLinear, with_tensors
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.preparing import (
    PREPARED,
    Preparation,
    add_observers,
    preparation_of,
)
from graphwright.quantization.programs.observing import take_observers
from graphwright.quantization.programs.simplifying import with_own_modules
from graphwright.quantization.programs.state import without_gradients
from graphwright.quantization.record import record_of
from graphwright.quantization.recurrent_layers import RECURRENT_FORMS, QuantizedRecurrent
from graphwright.quantization.results import results_of
from graphwright.quantization.schemes import PerToken
from graphwright.quantization.sites import QUANTIZED, Program, after
from graphwright.quantization.training.preparing import evaluated
from graphwright.runtime import GraphModule


@shown("converting")
def convert(gm: GraphModule) -> GraphModule:
    """Give the reference program of a prepared and calibrated module; that stays as it is.

    Layers have weights of int8, or of two integers of 4 bits a byte, and float scales. Each value that a static layer
    reads is written as integers by `quantize` and read by `dequantize`, plain functions of plain tensors, so that the
    program runs wherever torch does; `lower` makes it fast. `quantization` of the result says what became of each
    layer, and why.

    Raises QuantizationError for a module that is not prepared, and where no data went through it that it needs.

    >>> from graphwright.quantization import calibrate, prepare, static_int8
    >>> prepared = prepare(nn.Sequential(nn.Linear(4, 2), nn.ReLU()).eval(), static_int8(), torch.randn(1, 4))
    >>> reference = convert(calibrate(prepared, [torch.randn(8, 4)]))
    >>> reference.get_submodule("0").weight.dtype
    torch.int8
    """
    return converted(parts_of(gm))


def converted(parts: Parts, is_judged: bool = True) -> GraphModule:
    """The program that parts make together. is_judged: with the loss of each layer in its record."""
    program, decisions, layers, grids, preparation = (
        parts.program, parts.decisions, parts.layers, parts.grids, parts.preparation,
    )  # fmt: skip
    made, batches = program.gm, preparation.batches
    losses = losses_of_layers(made, decisions, layers, grids, batches) if is_judged else {}
    outputs = some_outputs(made, decisions, batches)
    paths = _put_layers(made, layers)
    put_on_grids(grids, decisions)
    correct_biases(made, outputs, decisions, layers, batches)
    without_gradients(made)
    made.recompile()
    made.meta.pop(PREPARED, None)
    sqnr = {node: each.sqnr for node, each in losses.items()}
    made.meta[QUANTIZED] = record_of(
        decisions, parts.ranges, grids, sqnr, paths, preparation.backend, preparation.calls
    )
    return made


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A program in float, with what takes the places of its layers and values in one of integers."""

    program: Program
    decisions: Mapping[Node, Decision]
    ranges: Mapping[Node, Range]
    grids: Mapping[Node, ValueGrid]
    layers: Mapping[Node, nn.Module]
    preparation: Preparation


def parts_of(gm: GraphModule) -> Parts:
    """What `convert` makes of a prepared and calibrated module, before it is put together. Raises as that does."""
    preparation = preparation_of(gm)
    _ask(gm)
    if preparation.is_training:
        made, observers = evaluated(gm, preparation.calls)
    else:
        made = with_own_modules(gm)
        observers = take_observers(made)
    program = preparation.program(made)
    decisions: Mapping[Node, Decision] = decide(program, preparation.mapping, preparation.backend)
    for change in (equalize_layers, functools.partial(smooth, batches=preparation.batches)):
        if preparation.batches and change(program, decisions):
            program, decisions, observers = _observed_again(made, preparation)
    ranges = _ranges(program, observers, decisions, preparation.backend)
    refine_ranges(made, decisions, observers, ranges, preparation.backend, preparation.batches)
    _leave_unreached(decisions, ranges)
    grids = value_grids(program, decisions, ranges, preparation.backend, not preparation.is_training)
    layers = _layers(decisions, rounded_weights(program, decisions, preparation.batches))
    return Parts(program, decisions, ranges, grids, layers, preparation)


def _ask(gm: GraphModule) -> None:
    """Raise QuantizationError where observers have seen nothing at all."""
    observers = [module for module in gm.modules() if isinstance(module, Observer)]
    if observers and not any(int(each.batches) for each in observers):
        raise QuantizationError(
            "the prepared module has seen no data",
            fix="calibrate(prepared, batches), or quantize with dynamic_int8(), which needs none",
        )


def _ranges(
    program: Program, observers: Mapping[Node, Observer], decisions: Mapping[Node, Decision], backend: Backend
) -> dict[Node, Range]:
    """What was seen of each value, as far as any was, with the bounds for how it will be written."""
    static = [each for each in decisions.values() if each.mode == "static"]
    read = {value: each for each in reversed(static) for value in each.site.inputs}
    ranges: dict[Node, Range] = {}
    for value, decision in {**results_of(program, decisions), **read}.items():
        observer = observers.get(value)
        if observer is not None and int(observer.count) and decision.config is not None:
            low, high = observer.range(activation_scheme(decision.config, backend))
            ranges[value] = range_of(low, high, observer.mean_square)
    return ranges


def _observed_again(
    gm: GraphModule, preparation: Preparation
) -> tuple[Program, Mapping[Node, Decision], dict[Node, Observer]]:
    """Observe a program that was changed on the batches that are kept."""
    program = preparation.program(gm)
    add_observers(program, decide(program, preparation.mapping, preparation.backend))
    gm.recompile()
    run_batches(gm, preparation.batches)
    observers = take_observers(gm)
    program = preparation.program(gm)
    return program, decide(program, preparation.mapping, preparation.backend), observers


def _leave_unreached(decisions: Mapping[Node, Decision], ranges: Mapping[Node, Range]) -> None:
    for decision in decisions.values():
        if decision.mode == "static" and any(edge not in ranges for edge in decision.edges):
            decision.mode, decision.config, decision.edges = "float", None, ()
            decision.reason = "no batch of calibration came to it"


# ---- layers


def _layers(decisions: Mapping[Node, Decision], weights: Mapping[Node, tuple[Tensor, Grid]]) -> dict[Node, nn.Module]:
    """The quantized layer of each call; calls of one layer that are quantized alike share one."""
    made: dict[Any, nn.Module] = {}
    layers = {}
    for node, (weight, grid) in weights.items():
        decision = decisions[node]
        key = id(decision.site.module), decision.mode, decision.config
        if key not in made:
            made[key] = _layer(decision, weight, grid)
        layers[node] = made[key]
    for node, decision in decisions.items():
        module, config = decision.site.module, decision.config
        if decision.mode != "float" and module is not None and config is not None and type(module) in RECURRENT_FORMS:
            key = id(module), decision.mode, config
            if key not in made:
                made[key] = RECURRENT_FORMS[type(module)].from_float(module, config)
            layers[node] = made[key]
    return layers


def _layer(decision: Decision, weight: Tensor, grid: Grid) -> nn.Module:
    """The quantized form of a layer, with this weight on this grid."""
    module, config = decision.site.module, decision.config
    assert module is not None and config is not None
    twin = with_tensors(module, weight, None)
    form = FORMS[type(module)]
    if form is QuantizedLinear and decision.mode == "dynamic":
        assert config.activation is not None
        per = "token" if isinstance(config.activation.granularity, PerToken) else "tensor"
        return QuantizedLinear.from_float(twin, grid, per)  # type: ignore[arg-type]
    made: nn.Module = form.from_float(twin, grid)
    if config.correct_bias and decision.mode == "static" and getattr(made, "bias", None) is None:
        scales = made.weight_scale
        assert isinstance(scales, Tensor)
        outputs = module.out_channels if hasattr(module, "out_channels") else scales.shape[0]
        assert isinstance(outputs, int)
        made.register_buffer("bias", torch.zeros(outputs))
    return made


def _put_layers(gm: GraphModule, layers: Mapping[Node, nn.Module]) -> dict[Node, str]:
    """Call quantized layers; each takes the place of the float one, beside it where others call that."""
    calls = ModuleCalls(gm)
    nodes_of: dict[int, list[Node]] = {}
    for node, layer in layers.items():
        nodes_of.setdefault(id(layer), []).append(node)
    for nodes in nodes_of.values():
        layer = layers[nodes[0]]
        calls.replace(nodes, layer, "quantized")
        if isinstance(layer, QuantizedRecurrent):
            for node in nodes:  # the function of the layer reads both
                node.args = (*node.args, None) if len(node.args) == 1 else node.args
    return {node: str(node.target) for node in layers}


# ---- values


def put_on_grids(grids: Mapping[Node, ValueGrid], decisions: Mapping[Node, Decision]) -> dict[Node, Node]:
    """Write values as integers, and have static sites read these; gives what is read in the place of each value."""
    read: dict[Node, Node] = {}
    for value, grid in grids.items():
        with value.graph.inserting_before(after(value)):
            args = (value, grid.scale, grid.zero_point)
            kwargs = {} if grid.dtype is torch.uint8 else {"dtype": grid.dtype}
            written = value.graph.call_function(quantize, args, kwargs)
            read[value] = value.graph.call_function(dequantize, (written, grid.scale, grid.zero_point))
        written.origin = read[value].origin = value.origin
        written.name, read[value].name = f"{value.name}_quantized", f"{value.name}_read"
    readers = {node: decision.edges for node, decision in decisions.items() if decision.mode == "static"}
    for node, edges in readers.items():
        for edge in edges:
            if edge in read:
                node.replace_input_with(edge, read[edge])
    for value in grids:
        for user in list(value.users):
            if user in _movers(value, grids) and user is not read[value].args[0]:
                user.replace_input_with(value, read[value])
    return read


def _movers(value: Node, grids: Mapping[Node, ValueGrid]) -> set[Node]:
    """The nodes that move a value to another one that has the same grid."""
    return {user for user in value.users if user in grids and grids[user] == grids[value]}

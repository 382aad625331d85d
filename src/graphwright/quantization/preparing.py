"""`prepare`: a copy of a program whose values are observed where they will be written as integers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from graphwright.analysis import ShapesOfCalls
from graphwright.capture import leaf_predicate, trace
from graphwright.engines import Call, has_form
from graphwright.errors import QuantizationError
from graphwright.hierarchy import as_flat
from graphwright.ir import Node
from graphwright.quantization.attention import open_attention
from graphwright.quantization.backends import BACKENDS, Backend, x86
from graphwright.quantization.decide import Decision, decide
from graphwright.quantization.mapping import QConfigMapping
from graphwright.quantization.observers.by_name import observer_of
from graphwright.quantization.programs.observing import call_observer, put_observer
from graphwright.quantization.programs.simplifying import simplify, simplify_in_both_modes, with_own_modules
from graphwright.quantization.programs.state import call_of_batch, own_state
from graphwright.quantization.results import results_of
from graphwright.quantization.schemes import QConfig, static_int8
from graphwright.quantization.sites import QUANTIZED, Program
from graphwright.quantization.training.preparing import mapping_of_training, round_in_training
from graphwright.runtime import GraphModule, memo_of_results, without_forms

PREPARED = "prepared for quantization"  # the key in the meta of a module


@dataclasses.dataclass(slots=True, eq=False)
class Preparation:
    """What a prepared module was prepared for.

    calls: that of the example, and those that take other ways. batches: those that `calibrate` ran, the first of them,
    as they were.
    """

    mapping: QConfigMapping
    backend: Backend
    calls: Sequence[Call]
    is_training: bool = False
    batches: list[Call] = dataclasses.field(default_factory=list)

    def program(self, gm: GraphModule) -> Program:
        """A program, and what is known of its values."""
        return Program(gm, ShapesOfCalls(gm, self.calls))


def prepare(
    model: nn.Module | Callable[..., Any],
    mapping: QConfigMapping | QConfig | None = None,
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: Backend | str = x86,
    training: bool = False,
    learn_scales: bool = False,
    examples: Iterable[Any] = (),
) -> GraphModule:
    """Capture a module, if it is none yet, and give a copy that looks at the values that will be integers.

    It computes what the module does in evaluation: batch norms are folded into the layers before them. Call it on data
    like that of use, or hand this to `calibrate`; then `convert` it. The module stays as it is.

    mapping: rules, or what holds for all layers; `static_int8()` by default. args, kwargs: of a call. backend: what
    integers are for, of `backends` or its name.

    training: give a copy that is trained further instead, with values and weights rounded as integers will round them;
    batch norms stay what they are. It starts in the modes that the module is in, and has `fake_quantize(on)`,
    `observe(on)` and `freeze_batch_norms()` besides. learn_scales: its scales of values are parameters. examples: more
    calls, one for each way through the module, which is captured for all of them: layers that no call comes to stay in
    float.

    Raises QuantizationError for a module in training, one that is quantized already, and rules that no layer has;
    CaptureError as `trace` does.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    >>> prepared = prepare(model, static_int8(), torch.randn(1, 3, 8, 8))
    >>> sorted(name for name, _ in prepared.named_modules() if name.startswith("observers."))
    ['observers.input_1', 'observers.relu']
    """
    given, named = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    calls = [(given, named), *map(call_of_batch, examples)]
    rules, table = mapping_of(mapping), backend_of(backend)
    model = as_module(model, calls, training)
    model = without_forms(model) if isinstance(model, GraphModule) and has_form(model) else model
    if training:
        preparation = Preparation(mapping_of_training(rules), table, calls, is_training=True)
        return _prepare_training(model, preparation, learn_scales)
    _check(model)
    gm = with_own_modules(as_flat(model)) if isinstance(model, GraphModule) else captured_for(model, calls)
    own_state(gm)
    open_attention(gm, ShapesOfCalls(gm, calls))
    simplify(gm, calls)
    preparation = Preparation(rules, table, calls)
    program = preparation.program(gm)
    add_observers(program, decide(program, rules, table))
    gm.recompile()
    gm.meta[PREPARED] = preparation
    return gm


def _prepare_training(model: nn.Module, preparation: Preparation, learn_scales: bool) -> GraphModule:
    _check_is_float(model)
    copied = copy.deepcopy(model, memo_of_results(model))
    modes = {path: module.training for path, module in model.named_modules()}
    copied.eval()
    gm = captured_for(copied, preparation.calls)
    simplify_in_both_modes(gm, preparation.calls)
    other = copy.deepcopy(gm)
    simplify(other, preparation.calls)
    program = preparation.program(other)
    decisions = decide(program, preparation.mapping, preparation.backend)
    round_in_training(gm, program, decisions, preparation.backend, learn_scales)
    for path, module in gm.named_modules():
        module.training = modes.get(path, modes[""])
    gm.meta[PREPARED] = preparation
    return gm


# torch's own that are made of layers: their layers are what is quantized.
_COMPOSED = (
    nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)  # fmt: skip


def as_module(model: nn.Module | Callable[..., Any], calls: Sequence[Call], training: bool = False) -> nn.Module:
    """A module as it is; a function, which has no mode of its own, captured."""
    if isinstance(model, nn.Module):
        return model
    return captured_for(model, calls).train(training)


def captured_for(model: nn.Module | Callable[..., Any], calls: Sequence[Call]) -> GraphModule:
    """A module, captured for one call or several, if it is none yet, with the layers of torch's composed ones."""
    if isinstance(model, GraphModule):
        return model
    is_leaf = leaf_predicate(())
    leaf_modules = lambda module, path: is_leaf(module, path) and not isinstance(module, _COMPOSED)  # noqa: E731
    if len(calls) > 1:
        return trace(model, examples=calls, leaf_modules=leaf_modules)
    return trace(model, calls[0][0], kwargs=calls[0][1], leaf_modules=leaf_modules)


def preparation_of(gm: nn.Module) -> Preparation:
    """What a module was prepared for. Raises QuantizationError where it was not."""
    found = gm.meta.get(PREPARED) if isinstance(gm, GraphModule) else None
    if not isinstance(found, Preparation):
        raise QuantizationError(
            f"{type(gm).__name__} is not prepared", fix="prepare it first: prepare(model, static_int8(), args)"
        )
    return found


def with_mapping(
    gm: GraphModule,
    mapping: QConfigMapping | QConfig | None = None,
    backend: Backend | str | None = None,
) -> GraphModule:
    """Give a prepared module that `convert` treats by other rules, or for another backend; it shares what it has seen.

    What a rule asks for that nothing was observed for stays in float.

    Raises QuantizationError for a module that is not prepared.
    """
    preparation = preparation_of(gm)
    rules = preparation.mapping if mapping is None else mapping_of(mapping)
    made = copy.copy(gm)
    made.meta = {
        **gm.meta,
        PREPARED: dataclasses.replace(
            preparation,
            mapping=mapping_of_training(rules) if preparation.is_training else rules,
            backend=preparation.backend if backend is None else backend_of(backend),
        ),
    }
    return made


def mapping_of(mapping: QConfigMapping | QConfig | None) -> QConfigMapping:
    """Rules, of what may be given for them."""
    if isinstance(mapping, QConfigMapping):
        return mapping.copy()
    return QConfigMapping().set_global(static_int8() if mapping is None else mapping)


def backend_of(backend: Backend | str) -> Backend:
    """A backend, or that of a name. Raises QuantizationError where there is none."""
    if isinstance(backend, Backend):
        return backend
    if backend not in BACKENDS:
        raise QuantizationError(f"there is no backend {backend!r}", fix=f"backends are {', '.join(BACKENDS)}")
    return BACKENDS[backend]


def _check_is_float(model: nn.Module) -> None:
    if isinstance(model, GraphModule) and QUANTIZED in model.meta:
        raise QuantizationError("the module is quantized already", fix="give the module that it was made of")
    if isinstance(model, GraphModule) and PREPARED in model.meta:
        raise QuantizationError("the module is prepared already", fix="calibrate and convert it")


def _check(model: nn.Module) -> None:
    _check_is_float(model)
    training = [path or "the module" for path, module in model.named_modules() if module.training]
    if training:
        raise QuantizationError(
            f"{training[0]} is in training, where batch norms and dropout do something else",
            fix="call model.eval() before",
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type != "cpu":
            raise QuantizationError(f"{name} is on {tensor.device}", fix='calibrate on the processor: model.to("cpu")')


def add_observers(program: Program, decisions: Mapping[Node, Decision]) -> None:
    """Have each value that a static site reads, and each result that a backend may write, be seen by an observer."""
    observed: dict[Node, Node] = {}
    results = results_of(program, decisions)
    for decision in decisions.values():
        if decision.mode != "static":
            continue
        assert decision.config is not None and decision.config.activation is not None
        for value in decision.site.inputs:
            if value not in observed:
                made = observer_of(decision.config.activation, f"the input {value.name} of {decision.site.path}")
                observed[value] = call_observer(value, put_observer(program.gm, made, value.name))
            decision.site.node.replace_input_with(value, observed[value])
    for value, decision in results.items():
        if value in observed:
            continue
        assert decision.config is not None and decision.config.activation is not None
        made = observer_of(decision.config.activation, f"the result {value.name}")
        seen = call_observer(value, put_observer(program.gm, made, value.name))
        value.replace_all_uses_with(seen, lambda user, seen=seen: user is not seen)  # type: ignore[misc]

"""What becomes of each site: by the rules that the user gave, what the backend computes, and where values come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from graphwright.errors import QuantizationError
from graphwright.ir import Node
from graphwright.quantization.backends import Backend
from graphwright.quantization.mapping import QConfigMapping, Rule
from graphwright.quantization.recurrent_layers import RECURRENT_KINDS, fitting_recurrent
from graphwright.quantization.schemes import PerAxis, PerGroup, QConfig, Scheme
from graphwright.quantization.sites import QUANTIZED, Program, Site, quantized_parts

_FLOAT_ALWAYS = {
    **dict.fromkeys(("rnn", "rnn_cell"), "of recurrent layers, LSTM and GRU alone have a form with integers"),
    "attention": "attention as one module stays in float",
    "bilinear": "bilinear layers stay in float",
    "embedding_bag": "bags of embeddings stay in float",
}
_RECURRENT = {*RECURRENT_KINDS.values()}
_PRODUCTS = {"matmul", "bmm", "baddbmm", "addmm", "mm", "scaled_dot_product_attention", "einsum"}


@dataclasses.dataclass(slots=True, eq=False)
class Decision:
    """What becomes of a site.

    mode: "static", "dynamic", "weight" or "float". config: how, where it is not float. reason: why. edges: the inputs
    that are quantized, of a static one.
    """

    site: Site
    mode: str
    config: QConfig | None
    reason: str
    rule: Rule | None
    edges: tuple[Node, ...] = ()


def _paths_of_parts(root: nn.Module) -> list[str]:
    """The paths of layers in modules inside that were quantized by themselves."""
    parts = quantized_parts(root)
    own = [f"{path}.{row['path']}" for path, part in parts.items() for row in part.meta[QUANTIZED]["rows"]]
    return own + [f"{path}.{inner}" for path, part in parts.items() for inner in _paths_of_parts(part)]


def decide(program: Program, mapping: QConfigMapping, backend: Backend) -> dict[Node, Decision]:
    """Decide on every site of a program, in the order of the program.

    Raises QuantizationError for rules that no layer has, and for a layer that cannot be what a rule by name asks.
    """
    mapping.check([site.path for site in program.sites], _paths_of_parts(program.gm))
    decisions = {site.node: _layer(site, program, mapping, backend) for site in program.sites if site.kind not in _SUMS}
    for decision in decisions.values():
        if mapping.overruled(decision.site.path, decision.site.target):
            decision.reason += "; an earlier rule of that kind says something else, and the last counts"
    for site in program.sites:
        if site.kind in _SUMS:
            decisions[site.node] = Decision(site, "float", None, "nothing that is quantized reads it", None)
    put_sums(program, decisions, mapping, backend)
    return {site.node: decisions[site.node] for site in program.sites}


_SUMS = ("add", "cat")


def _layer(site: Site, program: Program, mapping: QConfigMapping, backend: Backend) -> Decision:
    config, rule = mapping.resolve(site.path, site.target)
    if config is None:
        reason = "no rule is about it" if rule is None else "a rule leaves it in float"
        return Decision(site, "float", None, reason, rule)
    mode = "weight" if config.activation is None else "dynamic" if config.activation.is_dynamic else "static"
    if site.kind == "embedding" and config.weight is not None:
        mode, config = "weight", dataclasses.replace(config, activation=None)
    reason = _against(site, program, mode, config, backend)
    if reason:
        return Decision(site, "float", None, reason, rule)
    config, why = _fitting(site, config, rule)
    if mode == "dynamic" and site.kind not in backend.dynamic:
        return Decision(site, "float", None, f"{backend.name} has no {site.kind} with ranges of each call", rule)
    edges = site.inputs if mode == "static" else ()
    return Decision(site, mode, config, why or f"asked for by the rule: {rule}", rule, edges)


def _against(site: Site, program: Program, mode: str, config: QConfig, backend: Backend) -> str:
    """Why a site stays in float, empty where it need not."""
    if site.kind in _FLOAT_ALWAYS:
        return ": ".join(filter(None, (_FLOAT_ALWAYS[site.kind], site.trouble)))
    if site.kind in _PRODUCTS:
        return f"products of two values that the program computes stay in float on {backend.name}"
    if site.trouble:
        return site.trouble
    if site.module is None:
        return "its weight is computed by the program"
    if config.weight is None:
        return "the rule has no scheme for its weight"
    if site.kind in _RECURRENT and mode == "static":
        return "recurrent layers have no static form, each step reads what the one before gave: ask for a dynamic one"
    if site.kind != "embedding" and not all(map(program.is_float, site.inputs)):
        is_reached = program.shapes.may_run(site.node)
        return "its input is no tensor of single precision" if is_reached else "no example comes to it"
    if mode == "static" and any(map(program.is_written, site.inputs)):
        return "something writes to its input in place"
    kinds = {"static": backend.static, "dynamic": backend.dynamic | {"embedding"}, "weight": backend.weights}[mode]
    return "" if site.kind in kinds else f"{backend.name} has no {site.kind} that is {mode}"


def _fitting(site: Site, config: QConfig, rule: Rule | None) -> tuple[QConfig, str]:
    """A config that fits the weight of a layer: integers of 8 bits where groups do not."""
    assert site.module is not None and config.weight is not None
    if site.kind in _RECURRENT:
        scheme, why = fitting_recurrent(config.weight)
        return dataclasses.replace(config, weight=scheme), why
    weight, scheme = site.module.weight, config.weight
    if not isinstance(scheme.granularity, PerGroup):
        if isinstance(scheme.granularity, PerAxis):
            axis = 1 if site.kind.startswith("conv_transpose") else 0
            config = dataclasses.replace(config, weight=dataclasses.replace(scheme, granularity=PerAxis(axis)))
        return config, ""
    size = scheme.granularity.size
    assert isinstance(weight, torch.Tensor)
    if site.kind == "linear" and weight.shape[1] % size == 0 and (scheme.bits != 4 or weight.shape[1] % 2 == 0):
        return config, ""
    why = f"groups of {size} do not divide {weight.shape[1]} inputs" if site.kind == "linear" else "no linear layer"
    if rule is not None and rule.kind == "module name" and rule.key == site.path:
        raise QuantizationError(f"{site.path}: {why}", at=site.node.origin, fix="ask for another size of groups")
    scheme = Scheme(torch.int8, PerAxis(1 if site.kind.startswith("conv_transpose") else 0), True, scheme.observer)
    return dataclasses.replace(config, weight=scheme), f"{why}: integers of 8 bits"


# ---- sums and concatenations


def put_sums(
    program: Program, decisions: Mapping[Node, Decision], mapping: QConfigMapping | None, backend: Backend
) -> None:
    """Quantize the inputs of sums and concatenations that lie between quantized layers, as far as rules let."""
    changed = True
    while changed:  # a sum may be read by a sum
        changed = False
        for node, decision in decisions.items():
            if decision.site.kind not in _SUMS or decision.mode != "float":
                continue
            site = decision.site
            config, rule = (None, None) if mapping is None else mapping.resolve(site.path, site.target)
            if rule is not None and rule.kind != "global" and config is None:
                decision.reason, decision.rule = "a rule leaves it in float", rule
                continue
            if decision.site.kind not in backend.static:
                decision.reason = f"{backend.name} has no {decision.site.kind} that is static"
                continue
            if any(map(program.is_written, (node, *decision.site.inputs))):
                decision.reason = "something writes to its values in place"
                continue
            reader = _static_reader(node, program, decisions)
            if reader is None or not any(_comes_of_layer(each, program, decisions) for each in decision.site.inputs):
                continue
            edges = _summed(decision.site, decisions, backend)
            decision.mode, decision.config, decision.edges = "static", reader.config, edges
            decision.reason, decision.rule = f"{reader.site.path}, which reads it, is quantized", reader.rule
            changed = True


def _static_reader(node: Node, program: Program, decisions: Mapping[Node, Decision]) -> Decision | None:
    """A static site that reads a value, or what it is moved or rectified to."""
    for user in node.users:
        decision = decisions.get(user)
        if decision is not None and node in decision.edges:
            return decision
        if program.moved(user) is node or program.rectified(user) is node:
            found = _static_reader(user, program, decisions)
            if found is not None:
                return found
    return None


def _comes_of_layer(value: Node, program: Program, decisions: Mapping[Node, Decision]) -> bool:
    """Tell whether a value is the output of a static site, moved or rectified."""
    while True:
        if value in decisions:
            return decisions[value].mode == "static"
        before = program.moved(value) or program.rectified(value)
        if before is None:
            return False
        value = before


def _summed(site: Site, decisions: Mapping[Node, Decision], backend: Backend) -> tuple[Node, ...]:
    """The inputs of a sum that are quantized: all, but one that a kernel adds to before it rounds."""
    if site.kind != "add" or not backend.adds_float:
        return site.inputs
    layers = [each for each in _values(site) if _is_read_once(each) and _is_layer(each, decisions)]
    return tuple([each for each in site.inputs if not layers or each is not layers[-1]])


def _values(site: Site) -> Iterable[Node]:
    return sorted(site.inputs)


def _is_read_once(node: Node) -> bool:
    return len(node.users) == 1


def _is_layer(node: Node, decisions: Mapping[Node, Decision]) -> bool:
    decision = decisions.get(node)
    return decision is not None and decision.mode == "static" and decision.site.kind in ("conv2d", "linear")

"""Inputs of linear layers divided by factors that their weights are multiplied by, channel by channel.

SmoothQuant does so for layers whose inputs are quantized, AWQ for those whose weights alone are. A norm that the layers
alone read takes the factors into its weight; otherwise the program multiplies, and the error must fall by more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.passes import ModuleCalls
from graphwright.quantization.algorithms.awq import awq
from graphwright.quantization.algorithms.input_factors import divide_norm, scale_inputs
from graphwright.quantization.algorithms.input_moments import InputMoments
from graphwright.quantization.algorithms.input_rows import linear_rows, some_rows
from graphwright.quantization.algorithms.smoothquant import smooth as search
from graphwright.quantization.decide import Decision
from graphwright.quantization.improving.watching import Batches, See, in_chunks, run_batches, watching
from graphwright.quantization.layers import with_tensors
from graphwright.quantization.sites import Program, owners_of_tensors

_ROWS, _BYTES = 2048, 256 << 20  # of each input, and of all that are kept at a time
_LEAST_ROWS = 64  # fewer say too little of the largest values that are to come
_GAIN_FREE, _GAIN = 1.05, 1.3  # how many times smaller the squared error must be


def smooth(program: Program, decisions: Mapping[Node, Decision], batches: Batches) -> bool:
    """Put factors between values and the linear layers that read them, where that helps; tells whether it did."""
    groups = _groups(program, decisions)
    batches, gm = list(batches), program.gm
    calls = ModuleCalls(gm)
    changed = False
    for chunk in in_chunks(groups, lambda nodes: 4 * _ROWS * _inputs(nodes[0]), _BYTES):
        kept: dict[Node, list[Tensor]] = {nodes[0]: [] for nodes in chunk}
        with watching(gm, {node: _keeping(found, len(batches)) for node, found in kept.items()}):
            run_batches(gm, batches)
        for nodes in chunk:
            rows = torch.cat(kept.pop(nodes[0]) or [torch.empty(0)])
            if len(rows) >= _LEAST_ROWS:
                changed |= _smooth_group(program, calls, [decisions[node] for node in nodes], rows)
    if changed:
        gm.recompile()
    return changed


def _groups(program: Program, decisions: Mapping[Node, Decision]) -> list[list[Node]]:
    """The linear layers that read each value, where all calls of them do and they are quantized alike.

    A weight that another module has as well stays as it is.
    """
    calls = ModuleCalls(program.gm)
    owners = owners_of_tensors(program.gm)
    by_value: dict[tuple[Node, object, str], list[Node]] = {}
    for node, decision in decisions.items():
        config, module = decision.config, decision.site.module
        if config is None or module is None or decision.site.kind != "linear":
            continue
        wanted = config.smooth if decision.mode == "static" else config.algorithm == "awq"
        if (
            wanted
            and owners[id(module.weight)] == 1
            and all(other.args[0] is node.args[0] for other in calls.nodes(module))
        ):
            value = node.args[0]
            assert isinstance(value, Node)
            if program.is_written(value):
                continue
            by_value.setdefault((value, config, decision.mode), []).append(node)
    return list(by_value.values())


def _inputs(node: Node) -> int:
    owner = node.graph.owning_module
    assert owner is not None
    module = owner.get_submodule(str(node.target))
    assert isinstance(module, nn.Linear)
    return module.in_features


def _keeping(found: list[Tensor], batches: int) -> See:
    def see(x: Tensor, y: Tensor) -> None:
        found.append(some_rows(linear_rows(x).detach(), max(_ROWS // batches, 64)))

    return see


def _smooth_group(program: Program, calls: ModuleCalls, decisions: Sequence[Decision], rows: Tensor) -> bool:
    modules = [decision.site.module for decision in decisions]
    linears = [module for module in modules if isinstance(module, nn.Linear)]
    value = decisions[0].site.node.args[0]
    assert isinstance(value, Node)
    norm = _norm_of(calls, value, decisions)
    factors, gain = _factors(decisions[0], linears, rows)
    if gain < (_GAIN_FREE if norm is not None else _GAIN):
        return False
    done: set[int] = set()
    for linear in linears:
        if id(linear) not in done:
            twin = with_tensors(linear, scale_inputs(linear.weight.detach(), factors), linear.bias)
            calls.replace(list(calls.nodes(linear)), twin, "smooth")
            done.add(id(linear))
    if norm is not None:
        weight, bias = divide_norm(norm.weight.detach(), _bias(norm), factors)
        calls.replace([value], with_tensors(norm, weight, bias), "smooth")
    else:
        _divide(program, value, [decision.site.node for decision in decisions], 1 / factors)
    return True


def _factors(decision: Decision, linears: Sequence[nn.Linear], rows: Tensor) -> tuple[Tensor, float]:
    """The factors, and how many times smaller the error is with them."""
    config = decision.config
    assert config is not None and config.weight is not None
    weights = [linear.weight for linear in linears]
    if decision.mode == "static":
        assert config.activation is not None
        scheme = dataclasses.replace(config.activation, observer="minmax")
        found = search(weights, rows, scheme, dataclasses.replace(config.weight, observer="minmax"))
        return found.factors, found.gain
    moments = InputMoments(decision.site.path)
    moments.observe(rows)
    joined = torch.cat([weight.detach() for weight in weights])
    plain = awq(joined, moments.hessian, config.weight, alphas=())
    scaled = awq(joined, moments.hessian, config.weight)
    return scaled.factors, plain.rounded.error / max(scaled.rounded.error, 1e-30)


def _norm_of(calls: ModuleCalls, value: Node, decisions: Sequence[Decision]) -> nn.LayerNorm | nn.RMSNorm | None:
    """The norm that gives a value to these layers alone, and can take factors."""
    module = calls.find(value)
    if not isinstance(module, nn.LayerNorm | nn.RMSNorm) or type(module) not in (nn.LayerNorm, nn.RMSNorm):
        return None
    readers = {decision.site.node for decision in decisions}
    if set(value.users) != readers or len(calls.nodes(module)) != 1 or module.weight is None:
        return None
    return module if module.weight.dim() == 1 else None


def _bias(module: nn.Module) -> Tensor | None:
    bias = module._parameters.get("bias")
    return None if bias is None else bias.detach()


def _divide(program: Program, value: Node, readers: Sequence[Node], factors: Tensor) -> None:
    """Have layers read a value multiplied by factors, which the program keeps."""
    path = program.gm.add_constant(factors, f"{value.name}_factors", persistent=True)
    graph = value.graph
    with graph.inserting_before(min(readers)):
        read = graph.create_node("get_attr", path, (), {})
        made = graph.call_function(torch.mul, (value, read))
    read.origin = made.origin = readers[0].origin
    for node in readers:
        node.replace_input_with(value, made)

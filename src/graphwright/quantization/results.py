"""Which results kernels of integers could write as integers, for backends whose kernels end with integers."""

from __future__ import annotations

from collections.abc import Mapping

from graphwright.ir import Node
from graphwright.quantization.decide import Decision
from graphwright.quantization.sites import Program

_LAYERS = ("conv1d", "conv2d")
_ARITHMETIC = ("add", "mul", "mean", "adaptive_avg_pool2d")
_ACTIVATIONS = ("hardsigmoid", "hardswish", "sigmoid", "silu")  # written where arithmetic reads them


def results_of(program: Program, decisions: Mapping[Node, Decision]) -> dict[Node, Decision]:
    """The results of static convolutions, rectified, and of arithmetic whose operands are all written as integers.

    Each comes with the decision whose scheme it has: that of the layer that the integers come of.
    """
    written = {value: each for each in decisions.values() if each.mode == "static" for value in each.site.inputs}
    found: dict[Node, Decision] = {}
    activations: list[Node] = []
    for node in program.gm.graph.all_nodes():
        decision = decisions.get(node)
        is_layer = decision is not None and decision.mode == "static" and decision.site.kind in _LAYERS
        if not is_layer:
            decision = _decision_of_operands(node, program, {**written, **found})
        if decision is None:
            continue
        found[_rectified(node, program)] = decision
        if _key(node, program) in _ACTIVATIONS:
            activations.append(node)
    for node in activations:
        readers = [user for user in node.users if _key(user, program) in _ARITHMETIC]
        if node not in written and not any(_rectified(user, program) in found for user in readers):
            del found[node]
    return found


def _decision_of_operands(node: Node, program: Program, written: Mapping[Node, Decision]) -> Decision | None:
    """The decision that arithmetic has from its operands; None where not all of them are integers."""
    operands = node.all_input_nodes
    if _key(node, program) not in (*_ARITHMETIC, *_ACTIVATIONS) or not program.is_float(node):
        return None
    if not operands or not all(each in written and program.is_float(each) for each in operands):
        return None
    return None if any(map(program.is_written, (node, *operands))) else written[operands[0]]


def _rectified(node: Node, program: Program) -> Node:
    """What a value is rectified to, where nothing else reads it; or itself."""
    users = list(node.users)
    return users[0] if len(users) == 1 and program.rectified(users[0]) is node else node


def _key(node: Node, program: Program) -> str:
    call = program.calls.of(node) if node.op in ("call_module", "call_function", "call_method") else None
    return "" if call is None else call.key

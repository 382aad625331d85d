"""Values and weights rounded in a program that trains; and back to one of float layers, for `convert`.

What is rounded is decided on the program of evaluation, where batch norms are in the layers before them: that is what
becomes integers. Its layers have the names that they have in the program that trains.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence

from torch import nn

from graphwright.engines import Call
from graphwright.ir import Node
from graphwright.quantization.backends import Backend
from graphwright.quantization.decide import Decision
from graphwright.quantization.grids import activation_scheme, root_of
from graphwright.quantization.mapping import QConfigMapping
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.programs.observing import call_observer, put_observer, take_observers
from graphwright.quantization.programs.simplifying import simplify
from graphwright.quantization.schemes import PerToken, QConfig
from graphwright.quantization.sites import Program
from graphwright.quantization.training.fake_quantize import FakeQuantize, LearnedFakeQuantize
from graphwright.quantization.training.layers import FORMS, FakeQuantizedLayer, give_back, take_over
from graphwright.quantization.training.prepared_module import TrainingModule
from graphwright.runtime import GraphModule, change_base, forget_module, graphs_of


def mapping_of_training(mapping: QConfigMapping) -> QConfigMapping:
    """Rules with what training itself does left out: ranges are those of an average batch, and weights are trained."""
    made = mapping.copy()
    made.rules = [dataclasses.replace(rule, config=_of_training(rule.config)) for rule in mapping.rules]
    return made


def _of_training(config: QConfig | None) -> QConfig | None:
    if config is None:
        return None
    activation, weight = config.activation, config.weight
    return QConfig(
        None if activation is None else dataclasses.replace(activation, observer="moving_average"),
        None if weight is None else dataclasses.replace(weight, observer="minmax"),
    )


# ---- there


def round_in_training(
    gm: GraphModule, program: Program, decisions: Mapping[Node, Decision], backend: Backend, learn_scales: bool
) -> None:
    """Have a program that trains round what `decisions` say of the same program in evaluation, `program`."""
    rounding = _Rounding(gm, program, backend, learn_scales)
    for decision in decisions.values():
        node = rounding.node_of(decision.site.node)
        if node is not None and decision.mode != "float":
            rounding.round(node, decision)
    gm.recompile()
    change_base(gm, GraphModule, TrainingModule)


class _Rounding:
    """Puts what rounds into a program that trains, `gm`; `program` is the same one in evaluation."""

    def __init__(self, gm: GraphModule, program: Program, backend: Backend, learn_scales: bool) -> None:
        self._gm, self._program, self._backend = gm, program, backend
        self._kind = LearnedFakeQuantize if learn_scales else FakeQuantize
        self._nodes: dict[str, Node] = {}
        for node in gm.graph.all_nodes():
            self._nodes.setdefault(node.name, node)
        self._names = {node.name for node in program.gm.graph.all_nodes()}
        self._paths: dict[tuple[Node, bool], str] = {}
        self._rounded: dict[tuple[Node, bool], Node] = {}

    def node_of(self, node: Node) -> Node | None:
        """The node of the program that trains which one in evaluation was."""
        found = self._nodes.get(node.name)
        return found if found is not None and (found.op, found.target) == (node.op, node.target) else None

    def round(self, node: Node, decision: Decision) -> None:
        """Round the weight of a layer and, where it is static, what it reads."""
        site, config = decision.site, decision.config
        assert config is not None
        if decision.mode == "static":
            pairs = _inputs_in_both(site.node, node)
            if any(value not in pairs for value in site.inputs):
                return  # its training reads something else: `convert` says that nothing was seen of it
            for value in site.inputs:
                trained, is_edge = pairs[value], value in decision.edges
                node.replace_input_with(trained, self._rounded_value(value, trained, decision, is_edge))
        layer = self._gm.get_submodule(str(node.target)) if site.module is not None else None
        if layer is not None and type(layer) in FORMS and config.weight is not None:
            take_over(layer, config.weight, _activation(decision), self._norms(node))
            self._forget(layer)

    def _forget(self, layer: nn.Module) -> None:
        """Have the program take nothing for granted of a layer, such as its class, under any of its names."""
        for path, module in self._gm.named_modules(remove_duplicate=False):
            if module is layer:
                for graph in graphs_of(self._gm):
                    forget_module(graph, path)

    def _rounded_value(self, value: Node, trained: Node, decision: Decision, is_edge: bool) -> Node:
        """The node that gives a value, rounded, or only observed where it is no edge."""
        key = trained, is_edge
        if key not in self._rounded:
            made = self._fake_quantize(value, decision, is_edge)
            self._rounded[key] = call_observer(trained, made)
        return self._rounded[key]

    def _fake_quantize(self, value: Node, decision: Decision, is_edge: bool) -> str:
        """The path of what rounds a value; values that one is moved to have the grid of that one."""
        root = root_of(value, self._program), is_edge
        if root not in self._paths:
            assert decision.config is not None
            scheme = activation_scheme(decision.config, self._backend)
            made = self._kind(scheme, f"the input {value.name} of {decision.site.path}")
            made.rounds = is_edge
            self._paths[root] = put_observer(self._gm, made, value.name)
        observer = self._gm.get_submodule(self._paths[root])
        assert isinstance(observer, FakeQuantize)
        observer.values = (*observer.values, value.name)
        return self._paths[root]

    def _norms(self, node: Node) -> tuple[nn.Module, ...]:
        """The batch norm behind a layer that is in the layer in evaluation."""
        called = [other for other in self._nodes.values() if other.op == node.op and other.target == node.target]
        if len(node.users) != 1 or len(called) != 1:
            return ()
        (user,) = node.users
        norm = self._gm.get_submodule(str(user.target)) if user.op == "call_module" else None
        is_folded = isinstance(norm, nn.modules.batchnorm._BatchNorm) and user.name not in self._names
        return (norm,) if norm is not None and is_folded else ()


def _inputs_in_both(node: Node, trained: Node) -> dict[Node, Node]:
    """The values that a node reads in evaluation, and what it reads in their places in training."""
    ours, theirs = node.all_input_nodes, trained.all_input_nodes
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {}


def _activation(decision: Decision) -> str:
    activation = None if decision.config is None else decision.config.activation
    if decision.mode != "dynamic" or activation is None:
        return "float"
    return "token" if isinstance(activation.granularity, PerToken) else "tensor"


# ---- and back


def evaluated(gm: GraphModule, calls: Sequence[Call]) -> tuple[GraphModule, dict[Node, Observer]]:
    """Give a copy of a trained program as it is in evaluation, of float layers, and what was seen of its values."""
    made = copy.deepcopy(gm)
    if isinstance(made, TrainingModule):
        change_base(made, TrainingModule, GraphModule)
    found: dict[str, Observer] = {}
    for observer in take_observers(made).values():
        if isinstance(observer, FakeQuantize):
            found.update(dict.fromkeys(observer.values, observer))
    for module in list(made.modules()):
        if isinstance(module, FakeQuantizedLayer):
            give_back(module)
    made.eval()
    simplify(made, calls)
    return made, {node: found[node.name] for node in made.graph.all_nodes() if node.name in found}

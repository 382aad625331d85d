"""Matrix products in low precision, the rest in float32, with as few conversions as that takes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from graphwright.analysis import Effects, Place, Shapes, TensorMetadata
from graphwright.errors import GraphError
from graphwright.ir import Node, bodies_of
from graphwright.ops import enter_context, exit_context
from graphwright.passes.memory.precision_rules import Choice, PrecisionRules
from graphwright.passes.support.bodies import plain_graphs
from graphwright.passes.support.module_slots import is_own
from graphwright.passes.support.submodules import ModuleCalls
from graphwright.runtime import GraphModule, graph_of


@dataclass(frozen=True, slots=True)
class UseMixedPrecision:
    """Run linear layers, convolutions, matrix products and attention in low precision, what is sensitive in float32.

    args, kwargs: example inputs, from which dtypes are known. dtype: torch.bfloat16 or torch.float16.
    rules: a precision, `dtype` or torch.float32, for modules by a pattern of their paths ("head", "layers.*.mlp": with
        all that runs inside) or by their class, and for functions; of several that hold, the last one.

    Activations, sums of two values, views and pooling go on in the precision of what they are given; norms, softmax,
    losses, and what is not known, get float32. A value is converted at most once in each direction between two writes
    in place. Inputs and outputs of the program keep their dtypes. Modules that run in low precision are new ones with
    parameters in low precision; the original's stay as they are.

    Modules that others share parameters with or that have hooks, what is in `with` blocks, what branches and loops are
    given and give, and values that something else writes to stay in float32. Returns how many nodes run in low
    precision. Raises PassError for a rule that concerns nothing.

    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Softmax(-1))
    >>> gm = trace(model, (torch.ones(2, 8),))
    >>> UseMixedPrecision(args=(torch.ones(2, 8),)).run(gm)
    3
    >>> [str(node.target) for node in gm.graph.nodes if node.op.startswith("call")]
    ['to', '0', '1', '2', 'to', '3']
    """

    args: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.bfloat16
    rules: Mapping[Any, torch.dtype] = field(default_factory=dict)

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of nodes that run in low precision."""
        rules = PrecisionRules(gm, self.dtype, self.rules)
        args = self.args if isinstance(self.args, tuple) else (self.args,)
        facts = _Facts(gm, Shapes(gm, args, self.kwargs), rules)
        plan = facts.plan()
        if not plan:
            return 0
        _Conversion(gm, self.dtype, facts, plan).run()
        return len(plan)


class _Facts:
    """Which nodes may run in low precision, found before anything changes."""

    def __init__(self, gm: GraphModule, shapes: Shapes, rules: PrecisionRules) -> None:
        self.gm, self.calls = gm, ModuleCalls(gm)
        self._shapes, self._rules = shapes, rules
        self._effects = Effects(gm)
        graphs = list(plain_graphs(graph_of(gm)))
        self.nodes = [node for graph in graphs for node in graph.nodes]
        self.floats = {node for node in self.nodes if self._is_float(node)}
        self.choices: dict[Node, Choice] = {}
        for graph in graphs:
            open_blocks = 0
            for node in graph.nodes:
                open_blocks -= node.target is exit_context
                if node.op.startswith("call"):
                    self.choices[node] = "full" if open_blocks or _is_fixed(node) else rules.choose(node)
                open_blocks += node.target is enter_context
        self.writes = {node: self._effects.writes(node) for node in self.choices}
        self._pinned: set[Place] = set()
        for node, written in self.writes.items():
            if self.choices[node] != "follow":
                # What is not known may write to what it is given, which is among these, not to other values.
                self._pinned |= {place for place in written if place.kind not in ("random", "unknown")}

    def plan(self) -> list[Node]:
        """The nodes to run in low precision, in order."""
        low: dict[Node, None] = {}
        for node in self.nodes:
            choice = self.choices.get(node, "full")
            if node not in self.floats or choice in ("full", "either") or self._is_pinned(node):
                continue
            inputs = self.inputs(node)
            if choice == "low":
                if inputs and not self._has_other_floats(node) and self._may_be_low(node):
                    low[node] = None
            elif inputs and inputs[0] in low and (self._is_write(node) or all(used in low for used in inputs)):
                low[node] = None
        return list(low) if any(self.choices[node] == "low" for node in low) else []

    def inputs(self, node: Node) -> list[Node]:
        """The float32 tensors that a node reads."""
        return [used for used in node.all_input_nodes if used in self.floats]

    def _is_float(self, node: Node) -> bool:
        try:
            described = self._shapes[node]
        except GraphError:
            return False
        return isinstance(described, TensorMetadata) and described.dtype is torch.float32

    def _has_other_floats(self, node: Node) -> bool:
        for used in node.all_input_nodes:
            described = self._shapes[used] if used not in self.floats else None
            if described is not None and not (
                isinstance(described, TensorMetadata) and not described.dtype.is_floating_point
            ):
                return True
        return False

    def _is_write(self, node: Node) -> bool:
        return any(place.kind != "random" for place in self.writes[node])

    def _is_pinned(self, node: Node) -> bool:
        """Tell whether something that may not run in low precision writes to what a node gives."""
        if not self._pinned:
            return False
        memory = self._effects.memory(node)
        return any(self._effects.may_be_same(one, other) for one in memory for other in self._pinned)

    def _may_be_low(self, node: Node) -> bool:
        if self._is_write(node):
            return False
        if node.op != "call_module":
            return True
        module = self.gm.get_submodule(str(node.target))
        called = self.calls.nodes(module)
        if any(self.choices.get(each) != "low" or each not in self.floats for each in called):
            return False
        tensors = [*module.parameters(), *module.buffers()]
        if any(tensor.is_floating_point() and tensor.dtype is not torch.float32 for tensor in tensors):
            return False
        return is_own(module, self.gm, self.calls, len(called))


def _is_fixed(node: Node) -> bool:
    """Tell whether the precision of a call is none of our business: bodies, `out=`, and what names a dtype."""
    given = (*node.args, *node.kwargs.values())
    return bool(bodies_of(node)) or "out" in node.kwargs or any(isinstance(arg, torch.dtype) for arg in given)


class _Conversion:
    """Puts conversions into a graph, each value's once, and modules in low precision."""

    def __init__(self, gm: GraphModule, dtype: torch.dtype, facts: _Facts, plan: list[Node]) -> None:
        self._gm, self._dtype, self._facts, self._low = gm, dtype, facts, set(plan)
        self._made: dict[tuple[Node, torch.dtype], Node] = {}
        self._installed: set[nn.Module] = set()

    def run(self) -> None:
        """Edit the graph."""
        facts = self._facts
        for node in facts.nodes:
            if node.op == "placeholder" or facts.choices.get(node) == "either":
                continue
            if node.target is exit_context or node.target is enter_context:
                continue
            is_low = node in self._low
            for used in facts.inputs(node):
                if self._needs(node, used, is_low):
                    node.replace_input_with(used, self._converted(used, self._dtype if is_low else torch.float32, node))
            if is_low:
                node._meta = None if node._meta is None else _without_dtypes(node._meta)
                if node.op == "call_module":
                    self._install(node)
            if any(place.kind != "random" for place in facts.writes.get(node, ())):
                self._made.clear()  # what was converted before is not what there is now

    def _needs(self, node: Node, used: Node, is_low: bool) -> bool:
        """Tell whether a value has to be converted for a node."""
        if (used in self._low) == is_low:
            return False
        if is_low or self._facts.choices.get(node, "full") != "follow":
            return True
        return all(each in self._low for each in self._facts.inputs(node))  # else the result is in float32 anyway

    def _converted(self, value: Node, dtype: torch.dtype, before: Node) -> Node:
        known = self._made.get((value, dtype))
        if known is None:
            with before.graph.inserting_before(before):
                known = before.graph.call_method("to", (value, dtype))
            known.origin = before.origin
            self._made[value, dtype] = known
        return known

    def _install(self, node: Node) -> None:
        calls = self._facts.calls
        module = self._gm.get_submodule(str(node.target))
        if module in self._installed:
            return
        nodes = list(calls.nodes(module))
        new = copy.deepcopy(module).to(self._dtype)
        calls.replace(nodes, new, "low")
        self._installed.add(new)


def _without_dtypes(meta: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key not in ("tensor_meta", "val")}

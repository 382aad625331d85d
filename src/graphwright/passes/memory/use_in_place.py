"""Operations on values that nobody needs any more, in place."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import Call, call_of, gives_fresh_value, is_untouched, module_called
from graphwright.passes.support.bodies import plain_graphs
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import ModuleCalls
from graphwright.passes.support.tensor_facts import is_number, is_version_read, shape_and_dtype
from graphwright.runtime import GraphModule, graph_of


@dataclass(frozen=True, slots=True)
class UseInPlace:
    """Have operations write over a value that only they read, which saves the memory for another one.

    ReLU, ReLU6, leaky ReLU, sigmoid, tanh, exp and neg, products and sums with numbers, and sums and differences of
    two tensors of one shape. Returns the number of operations.

    A value is written over only if it was made for the program alone (no input, no view), by an operation whose
    derivative does not need it: a layer, a norm, a product of matrices, a sum. It has no other reader, and is not given
    back. Left alone are also values made in another `with` block, modules with hooks, programs that other transforms
    run, and, without `ShapeProp`, whatever might change shape or dtype: two tensors are added in place only where both
    come from layers, so that autocast gives them one dtype, too.

    With `only_inference`, values that derivatives need are written over as well.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    >>> UseInPlace().run(gm)
    1
    >>> gm.get_submodule("1")
    ReLU(inplace=True)
    """

    only_inference: bool = False

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        assert isinstance(gm, GraphModule)
        calls = ModuleCalls(gm)
        ownership = Ownership(gm)
        return sum(self._edit(graph, calls, ownership) for graph in list(plain_graphs(graph_of(gm))))

    def _edit(self, graph: Graph, calls: ModuleCalls, ownership: Ownership) -> int:
        effects = ownership.effects(graph)
        count = 0
        for node in list(graph.nodes):
            for value in _overwritable(node, calls):
                is_own = effects.are_together(value, node) and list(value.users) == [node]
                is_own = is_own and not is_version_read(node) and sum(used is value for used in _nodes_in(node)) == 1
                if is_own and gives_fresh_value(value, module_called) and self._may_be_lost(value, calls):
                    effects.made([_overwrite(node, value, calls)], node)
                    count += 1
                    break
        return count

    def _may_be_lost(self, value: Node, calls: ModuleCalls) -> bool:
        return _is_not_saved(value, calls) or (self.only_inference and bool(value.all_input_nodes))


# ---- which value an operation could write over

_SAME_DTYPE = frozenset({"relu", "relu6", "leaky_relu"})  # of every dtype that they take
_OF_FLOATS = frozenset({"sigmoid", "tanh", "exp", "neg"})
_ARITHMETIC = frozenset({"add", "sub", "mul", "div"})
_MODULES = (nn.ReLU, nn.ReLU6, nn.LeakyReLU)


def _overwritable(node: Node, calls: ModuleCalls) -> list[Node]:
    """The values that a node could write over, as far as shapes and dtypes go."""
    if node.op == "call_module":
        module = calls.module(node)
        if type(module) not in _MODULES or not is_untouched(module) or module.inplace:  # type: ignore[arg-type, union-attr]
            return []
        rising = getattr(module, "negative_slope", 0) >= 0
        return [value for value in node.all_input_nodes if rising]
    call = call_of(node) if node.op in ("call_function", "call_method") else None
    if call is None or call.writes or node.kwargs.get("out") is not None:
        return []
    value = call.arguments.get("input")
    if call.key in _ARITHMETIC:
        is_plain = call.arguments.get("alpha", 1) == 1 and not call.arguments.get("rounding_mode")
        return _of_two(call, calls) if is_plain else []
    if not isinstance(value, Node):
        return []
    slope = call.arguments.get("negative_slope", 0)
    may = call.key in _SAME_DTYPE and type(slope) in (int, float) and slope >= 0
    return [value] if may or (call.key in _OF_FLOATS and _is_floating(value, calls)) else []


def _of_two(call: Call, calls: ModuleCalls) -> list[Node]:
    one, other = call.arguments["input"], call.arguments["other"]
    choices = [(one, other)] if call.key in ("sub", "div") else [(one, other), (other, one)]
    return [value for value, beside in choices if isinstance(value, Node) and _fits(value, beside, call.key, calls)]


def _fits(value: Node, beside: Any, key: str, calls: ModuleCalls) -> bool:
    """Tell whether the result has the shape and dtype of the first value."""
    if not _is_floating(value, calls):
        return False
    if is_number(beside):
        return True
    if key in ("mul", "div") or not isinstance(beside, Node):  # derivatives of products need both
        return False
    facts = shape_and_dtype(value), shape_and_dtype(beside)
    is_alike = None not in facts and facts[0] == facts[1]
    return is_alike and _layer_of(value, calls) is not None and _layer_of(beside, calls) is not None


def _nodes_in(node: Node) -> list[Node]:
    return [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, Node)]


# ---- what is known of values

_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
_LAYER_KEYS = frozenset({
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "matmul", "bmm",
    "addmm", "baddbmm",
})  # fmt: skip
_NOT_SAVING = _LAYER_KEYS | {
    "add", "sub", "neg", "mul", "batch_norm", "layer_norm", "group_norm", "instance_norm", "embedding", "mean", "sum",
    "cat", "stack", "clone", "avg_pool1d", "avg_pool2d", "avg_pool3d", "interpolate",
}  # fmt: skip


def _is_not_saved(value: Node, calls: ModuleCalls) -> bool:
    """Tell whether the derivative of the operation that made a value does not need it."""
    if value.op == "call_module":
        module = calls.module(value)
        return isinstance(module, _LAYERS + _NORMS) and is_untouched(module)
    call = call_of(value) if value.op in ("call_function", "call_method") else None
    return call is not None and call.key in _NOT_SAVING and bool(value.all_input_nodes)


def _is_floating(value: Node, calls: ModuleCalls) -> bool:
    known = shape_and_dtype(value)
    if known is not None:
        return bool(known[1].is_floating_point)
    layer = _layer_of(value, calls)
    module = None if layer is None else calls.module(layer)
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.is_floating_point()


def _layer_of(value: Node, calls: ModuleCalls) -> Node | None:
    """The layer that a value comes from, by way of operations that keep the dtype."""
    for _ in range(8):
        if value.op == "call_module":
            module = calls.module(value)
            if isinstance(module, _LAYERS):
                return value
            if not isinstance(module, (*_NORMS, *_MODULES)):
                return None
            before: Any = calls.input(value)
        else:
            call = call_of(value) if value.op in ("call_function", "call_method") else None
            if call is None:
                return None
            if call.key in _LAYER_KEYS:
                return value
            scaled = call.key in _ARITHMETIC and is_number(call.arguments["other"])
            if not (call.key in _SAME_DTYPE | _OF_FLOATS or scaled):
                return None
            before = call.arguments["input"]
        if not isinstance(before, Node):
            return None
        value = before
    return None


# ---- the edit

_FLAGGED: dict[str, Any] = {"relu6": F.relu6, "leaky_relu": F.leaky_relu}


def _overwrite(node: Node, value: Node, calls: ModuleCalls) -> Node:
    """Have a node write over a value; return what stands in its place."""
    graph = node.graph
    if node.op == "call_module":
        module = calls.module(node)
        assert module is not None
        flagged = copy.copy(module)
        flagged.inplace = True  # type: ignore[assignment]
        calls.replace([node], flagged, "in_place")
        return node
    call = call_of(node)
    assert call is not None
    new = _written(graph, node, value, call)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    return new


def _written(graph: Graph, node: Node, value: Node, call: Call) -> Node:
    arguments = dict(call.arguments)
    with graph.inserting_before(node):
        if call.key in _FLAGGED:
            arguments.pop("input")
            new = graph.call_function(_FLAGGED[call.key], (value,), {**arguments, "inplace": True})
        else:
            others = [
                arguments[name] for name in ("input", "other") if name in arguments and arguments[name] is not value
            ]
            new = graph.call_method(f"{call.key}_", (value, *others))
    new.origin = node.origin
    new.meta.update({key: node.meta[key] for key in ("tensor_meta", "type") if key in node.meta})
    return new

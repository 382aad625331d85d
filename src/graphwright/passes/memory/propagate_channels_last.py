"""Run convolutions, and what stands between them, with their channels last in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.analysis import TensorMetadata
from graphwright.ir import Graph, Node, map_arg
from graphwright.ops import (
    Call,
    call_of,
    enter_context,
    exit_context,
    functional_call,
    gives_fresh_value,
    is_region,
    is_untouched,
    may_share_memory,
    module_called,
)
from graphwright.passes.support.bodies import may_write
from graphwright.passes.support.submodules import ModuleCalls, graphs_in
from graphwright.runtime import GraphModule, read_attribute


@dataclass(frozen=True, slots=True)
class PropagateChannelsLast:
    """Convert to `torch.channels_last` at the entry of each part around convolutions, and back at its exit.

    A part is convolutions and the operations between them that compute in the order of memory that they are given:
    batch norms, activations, sums and products, pools, `cat`, `interpolate`. There is one conversion for each value
    that enters it and one for each that leaves it, and none between. What leaves it is contiguous as it was, with the
    same strides: for `view`, for outputs, for whatever reads it. The weights of the convolutions are copies in
    channels_last, under the names that they had; an optimizer has to be made afterwards. The original model stays as
    it is. Values are the same up to the rounding of another kernel. Returns the number of convolutions in such parts.

    Reads what `ShapeProp` has noted: four dimensions, in contiguous order. Without it, nothing changes. Run with
    inputs of another rank, or that are in channels_last already, the conversions are errors or do nothing.

    at_least: so many convolutions a part needs to be worth the conversions.

    Run it before `FuseConvReLU` and `FuseActivations`, whose modules it does not look into.

    Left alone: programs that write in place to what enters or leaves a part, random operations, subclasses, hooks,
    padding modes other than zeros, functions of weights (see `UseModules`), bodies of branches and loops. Weights with
    several names, or that the program reads, are not copied.

    >>> from graphwright import symbolic_trace
    >>> from graphwright.passes import ShapeProp
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten())
    >>> gm = symbolic_trace(model)
    >>> _ = ShapeProp(gm).propagate(torch.randn(1, 3, 8, 8))
    >>> PropagateChannelsLast().run(gm)
    2
    >>> [node.target for node in gm.graph.nodes]
    ['input', 'contiguous', '0', '1', '2', 'clone', '3', 'output']
    """

    at_least: int = 2

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of changes."""
        calls = ModuleCalls(gm)
        members: dict[Node, None] = {}
        for graph in graphs_in(gm):
            found = self._members(graph, gm, calls)
            _convert_graph(graph, found)
            members.update(found)
        convolutions = [node for node in members if _is_convolution(node, calls)]
        _convert_weights(convolutions, gm, calls)
        return len(convolutions)

    def _members(self, graph: Graph, gm: GraphModule, calls: ModuleCalls) -> dict[Node, None]:
        """The nodes of a graph that compute with channels last, in the order of the graph."""
        candidates = {node: None for node in graph.nodes if _may_be_last(node, calls)}
        while True:  # what is written in place has to be made inside
            outside = [node for node in candidates if not all(w in candidates for w in _written(node))]
            if not outside:
                break
            for node in outside:
                del candidates[node]
        found: dict[Node, None] = {}
        for part in _connected(candidates):
            counted = [node for node in part if _is_convolution(node, calls) and _differs(_image(calls.input(node)))]
            if len(counted) >= self.at_least and not _is_disturbed(part, graph, gm):
                found.update(dict.fromkeys(part))
        return {node: None for node in candidates if node in found}


# ---- what computes with channels last

_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_OPERATIONS = frozenset({
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardtanh", "hardswish",
    "hardsigmoid", "sigmoid", "tanh", "softplus", "softsign", "log_sigmoid", "clamp", "neg", "abs", "exp", "sqrt",
    "add", "sub", "mul", "div", "maximum", "minimum", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d",
    "adaptive_max_pool2d", "interpolate", "cat",
})  # fmt: skip
_ASKED_OF_ANY_LAYOUT = frozenset({"size", "dim", "numel", "dtype", "device", "is_cuda", "requires_grad"})


def _image(value: Any) -> TensorMetadata | None:
    """What is known of a value, where it is numbers in four dimensions and contiguous."""
    known = value.meta.get("tensor_meta") if isinstance(value, Node) else None
    if not isinstance(known, TensorMetadata) or len(known.shape) != 4 or not known.dtype.is_floating_point:
        return None
    return known if known.memory_format is torch.contiguous_format else None


def _differs(known: TensorMetadata | None) -> bool:
    """Tell whether channels last is another order for a value at all."""
    return known is not None and known.shape[1] > 1 and known.shape[2] * known.shape[3] > 1


def _call(node: Node) -> Call | None:
    """The call of an operation whose value follows the order of what it reads."""
    call = functional_call(node)
    return call if call is not None and call.key in _OPERATIONS and not call.random else None


def _is_convolution(node: Node, calls: ModuleCalls) -> bool:
    module: Any = calls.module(node)
    return type(module) in _CONVOLUTIONS and is_untouched(module) and module.padding_mode == "zeros"


def _may_be_last(node: Node, calls: ModuleCalls) -> bool:
    images = [used for used in node.all_input_nodes if used.op != "get_attr" and _rank(used) == 4]
    if _image(node) is None or not images or any(_image(used) is None for used in images):
        return False
    if _is_convolution(node, calls):
        return True
    module = calls.module(node)
    if type(module) is nn.BatchNorm2d:
        return is_untouched(module)
    call = _call(node)
    return call is not None and call.writes in ((), ("input",))


def _rank(node: Node) -> int:
    known = node.meta.get("tensor_meta")
    return len(known.shape) if isinstance(known, TensorMetadata) else 0


def _written(node: Node) -> list[Any]:
    """What a member writes to."""
    call = _call(node)
    return [] if call is None else [call.arguments[name] for name in call.writes]


def _connected(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """The parts that nodes fall into, by which of them read each other."""
    left = dict.fromkeys(nodes)
    while left:
        waiting, part = [next(iter(left))], []
        del left[waiting[0]]
        while waiting:
            node = waiting.pop()
            part.append(node)
            for near in (*node.all_input_nodes, *node.users):
                if near in left:
                    del left[near]
                    waiting.append(near)
        yield part


# ---- writes in place


def _is_disturbed(part: list[Node], graph: Graph, gm: GraphModule) -> bool:
    """Tell whether something outside of a part may write to its values or to what enters it, or see what it writes."""
    inside = set(part)
    near = [*part, *_entries(part)]
    for node in graph.nodes:
        if node.op.startswith("call") and node not in inside and may_write([node], gm):
            written = _may_be_written(node)
            if any(may_share_memory(each, other, module_called) for each in written for other in near):
                return True
    overwritten = _overwritten(part)
    returned = set()
    for node in overwritten:
        for user in _outside_readers(node, inside):
            if user.op != "output" and not gives_fresh_value(user, module_called):
                return True
            if user.op == "output":
                if overwritten[node] in returned:
                    return True
                returned.add(overwritten[node])
    return False


def _may_be_written(node: Node) -> list[Node]:
    """The values that a node which writes may write to."""
    call = functional_call(node)
    if node.target is enter_context or node.target is exit_context:
        return []
    if call is None or not call.writes or is_region(node):
        return node.all_input_nodes
    return [value for name in call.writes if isinstance(value := call.arguments[name], Node)]


def _overwritten(part: Iterable[Node]) -> dict[Node, Node]:
    """The values of a part that are written to in place, each with the node that made its memory."""
    makers: dict[Node, Node] = {}
    for node in sorted(part):
        for written in _written(node):
            makers[node] = makers.setdefault(written, written)
    return makers


# ---- editing


def _entries(part: Iterable[Node]) -> list[Node]:
    """The values in four dimensions that a part reads and does not compute."""
    inside = dict.fromkeys(part)
    read = [used for node in inside for used in node.all_input_nodes if used not in inside and used.op != "get_attr"]
    return [used for used in dict.fromkeys(read) if _image(used) is not None]


def _outside_readers(node: Node, inside: Iterable[Node]) -> list[Node]:
    """What reads a value outside of its part, and not only its shape or dtype."""
    return [user for user in node.users if user not in inside and not _asks_for_any_layout(user)]


def _asks_for_any_layout(user: Node) -> bool:
    call = call_of(user) if user.op in ("call_function", "call_method") else None
    return call is not None and call.key in _ASKED_OF_ANY_LAYOUT


def _convert_graph(graph: Graph, members: dict[Node, None]) -> None:
    """Put the conversions at the borders of the parts, and note the new order in what is known of the nodes."""
    overwritten = _overwritten(members)
    exits = {node: _outside_readers(node, members) for node in members}
    for entry in _entries(members):
        after = entry
        while after.op == "placeholder" and after.next.op == "placeholder":
            after = after.next
        with graph.inserting_after(after):
            converted = graph.call_method("contiguous", (entry,), {"memory_format": torch.channels_last})
        _describe(converted, entry)
        converted.meta["tensor_meta"] = _in_channels_last(converted.meta["tensor_meta"])
        for user in [user for user in entry.users if user in members]:
            _read(user, entry, converted)
    for node, readers in exits.items():
        if readers and node not in overwritten:
            with graph.inserting_after(node):
                _read_copy(graph, node, readers)
        for reader in readers if node in overwritten else ():  # each at its own time
            with graph.inserting_before(reader):
                _read_copy(graph, node, [reader])
    for node in members:
        node.meta["tensor_meta"] = _in_channels_last(node.meta["tensor_meta"])


def _read_copy(graph: Graph, node: Node, readers: Iterable[Node]) -> None:
    """Have readers read a contiguous copy: not `contiguous`, which leaves the strides where a size is 1."""
    copied = graph.call_method("clone", (node,), {"memory_format": torch.contiguous_format})
    _describe(copied, node)
    for reader in readers:
        _read(reader, node, copied)


def _read(user: Node, old: Node, new: Node) -> None:
    user.args = map_arg(user.args, lambda used: new if used is old else used)
    user.kwargs = map_arg(user.kwargs, lambda used: new if used is old else used)


def _describe(node: Node, like: Node) -> None:
    node.origin = like.origin
    node.meta["tensor_meta"] = like.meta["tensor_meta"]


def _in_channels_last(known: TensorMetadata) -> TensorMetadata:
    _, channels, height, width = known.shape
    strides = (channels * height * width, 1, width * channels, channels)
    return known._replace(stride=strides, memory_format=torch.channels_last)


def _convert_weights(convolutions: list[Node], gm: GraphModule, calls: ModuleCalls) -> None:
    """Give convolutions weights in channels_last, in modules of their own."""
    names: dict[int, int] = {}
    for _, parameter in gm.named_parameters(remove_duplicate=False):
        names[id(parameter)] = names.get(id(parameter), 0) + 1
    by_module: dict[int, list[Node]] = {}
    for node in convolutions:
        by_module.setdefault(id(calls.find(node)), []).append(node)
    for nodes in by_module.values():
        module: Any = read_attribute(gm, str(nodes[0].target))
        weight = module.weight
        if type(weight) is not nn.Parameter or weight._backward_hooks or names.get(id(weight)) != 1:
            continue
        if calls.is_read(module) or len(calls.nodes(module)) > len(nodes):
            continue
        if weight.is_contiguous(memory_format=torch.channels_last):
            continue
        new = copy.deepcopy(module, {id(each): each for each in (*module.parameters(), *module.buffers())})
        converted = weight.detach().contiguous(memory_format=torch.channels_last)
        new.weight = nn.Parameter(converted, requires_grad=weight.requires_grad)
        calls.replace(nodes, new, "channels_last")

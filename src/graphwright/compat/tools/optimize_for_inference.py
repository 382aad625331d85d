"""torch.fx's tools for inference on a CPU: folding, dropping dropout, parts that run in MKL-DNN's layout."""

from __future__ import annotations

import copy
import operator
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import mkldnn as torch_mkldnn

from graphwright.capture import Tracer, symbolic_trace
from graphwright.errors import PassError
from graphwright.ir import Graph, Node, map_arg
from graphwright.passes import FuseConvBatchNorm
from graphwright.runtime import GraphModule, Interpreter

__all__ = [
    "MklSubgraph", "UnionFind", "extract_subgraph", "fuse", "gen_mkl_autotuner", "matches_module_pattern",
    "modules_to_mkldnn", "optimize_for_inference", "parent_name", "remove_dropout", "replace_node_module",
    "reset_modules", "use_mkl_length",
]  # fmt: skip

Modules = dict[str, nn.Module]


# ---- modules of a graph


def parent_name(target: str) -> tuple[str, str]:
    """The path of the module that holds a target, and its name there.

    >>> parent_name("layers.0.weight")
    ('layers.0', 'weight')
    """
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: Modules) -> bool:
    """Tell whether a node and the value it reads first call modules of these two classes, the node the second."""
    if not node.args:
        return False
    return all(
        isinstance(one, Node) and one.op == "call_module" and type(modules.get(str(one.target))) is kind
        for kind, one in zip(pattern, (node.args[0], node), strict=False)
    )


def replace_node_module(node: Node, modules: Modules, new_module: nn.Module) -> None:
    """Have a call_module node's path lead to a new module, in the table and in the module that holds it."""
    path = str(node.target)
    parent, name = parent_name(path)
    modules[path] = new_module
    setattr(modules[parent], name, new_module)


def extract_subgraph(orig_module: nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> GraphModule:
    """A module of these nodes alone, in their order; it returns the list of the outputs."""
    graph = Graph()
    copies = {value: graph.placeholder(value.name) for value in inputs}
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[value] for value in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


# ---- folding and dropping


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """Fold batch norms into the layers before them; the model itself stays as it is unless `inplace`.

    With `no_trace` the model is captured already. See `FuseConvBatchNorm` for what is left alone. Raises
    TrainingModeError (a PassError and an AssertionError) where a batch norm that would be folded is in training mode.

    >>> fused = fuse(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval())
    >>> [node.target for node in fused.graph.find_nodes(op="call_module")]
    ['0']
    """
    if not inplace:
        model = copy.deepcopy(model)
    module = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    FuseConvBatchNorm(relu=False, into_next=False).run(module)
    module.recompile()
    return module


def remove_dropout(model: nn.Module) -> nn.Module:
    """Capture a model without its `nn.Dropout` modules, whatever its mode.

    >>> [node.op for node in remove_dropout(nn.Sequential(nn.Dropout(), nn.ReLU())).graph.nodes]
    ['placeholder', 'call_module', 'output']
    """
    traced = symbolic_trace(model)
    for node in traced.graph.find_nodes(op="call_module"):
        if isinstance(traced.get_submodule(node.target), nn.Dropout) and node.all_input_nodes:
            node.replace_all_uses_with(node.all_input_nodes[0])
            traced.graph.erase_node(node)
    return GraphModule(traced, traced.graph)


# ---- MKL-DNN's layout

mkldnn_supported: list[Any] = [
    nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, torch.relu,
    torch.transpose, torch.sigmoid, F.relu, F.avg_pool2d, F.adaptive_avg_pool2d,
]  # fmt: skip
mkldnn_supported_unknown: list[Any] = [operator.add, operator.mul]  # where all that they read is in the layout
mkldnn_map: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.Conv2d: lambda module: torch_mkldnn.MkldnnConv2d(module, torch.float),
    nn.Linear: lambda module: torch_mkldnn.MkldnnLinear(module, torch.float),
    nn.BatchNorm2d: lambda module: torch_mkldnn.MkldnnBatchNorm(module),
}


def modules_to_mkldnn(nodes: Iterable[Node], modules: Modules) -> dict[nn.Module, nn.Module]:
    """Put copies in MKL-DNN's layout in the place of the modules that nodes call; answer which was there before.

    The answer goes from new module to old one, as `reset_modules` takes it.
    """
    old_modules: dict[nn.Module, nn.Module] = {}
    for node in nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if module is not None and type(module) in mkldnn_map:
            new = mkldnn_map[type(module)](module)
            old_modules[new] = copy.deepcopy(module)
            replace_node_module(node, modules, new)
    return old_modules


def reset_modules(nodes: Iterable[Node], modules: Modules, old_modules: dict[nn.Module, nn.Module]) -> None:
    """Undo `modules_to_mkldnn` for the modules that these nodes call."""
    for node in nodes:
        if node.op == "call_module" and modules[str(node.target)] in old_modules:
            replace_node_module(node, modules, old_modules[modules[str(node.target)]])


class UnionFind:
    """Disjoint sets of numbers below `n`, with the usual path compression and union by size.

    >>> sets = UnionFind(3)
    >>> for number in range(3):
    ...     sets.make_set(number)
    >>> sets.join(0, 2)
    >>> sets.find(0) == sets.find(2), sets.find(0) == sets.find(1)
    (True, False)
    """

    def __init__(self, n: int) -> None:
        self.parent: list[int | None] = [None] * n
        self.size = [0] * n

    def make_set(self, v: int) -> None:
        """Make a set of one number."""
        self.parent[v], self.size[v] = v, 1

    def find(self, v: int) -> int:
        """The number that stands for the set of `v`."""
        root = v
        while self.parent[root] != root:
            root = self.parent[root]  # type: ignore[assignment]
        while self.parent[v] != root:
            self.parent[v], v = root, self.parent[v]  # type: ignore[assignment]
        return root

    def join(self, a: int, b: int) -> int | None:
        """Make one set of two; answers the number that stands for them where they were one already."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return None


class MklSubgraph:
    """A part of a graph that runs in MKL-DNN's layout: its nodes, and the conversions at its borders."""

    def __init__(self, fx_graph: Graph) -> None:
        self.fx_graph = fx_graph
        self.nodes: list[Node] = []
        self.start_nodes: list[Node] = []
        self.end_nodes: list[Node] = []
        self.old_modules: dict[nn.Module, nn.Module] = {}


def use_mkl_length(graph: MklSubgraph) -> bool:
    """Take parts of more than two operations: shorter ones are not worth the conversions."""
    return len(graph.nodes) > 2


def gen_mkl_autotuner(example_inputs: Any, iters: int = 10, warmup: int = 1) -> Callable[[MklSubgraph], bool]:
    """A heuristic that runs each part in both layouts on example inputs, a tensor or a list, and takes the faster."""
    inputs = list(example_inputs) if isinstance(example_inputs, list | tuple) else [example_inputs]

    def is_faster(part: MklSubgraph) -> bool:
        owner = part.fx_graph.owning_module
        if owner is None:
            raise PassError("the graph belongs to no module, so that nothing can be run")
        run = Interpreter(owner, garbage_collect_values=False, graph=part.fx_graph)
        run.run(*inputs)
        read = [run.env[node.args[0]] for node in part.start_nodes]
        border = [node.args[0] for node in part.start_nodes]
        sources = [node.args[0] for node in part.end_nodes]
        fast = extract_subgraph(
            owner, [*part.start_nodes, *part.nodes, *part.end_nodes], list(dict.fromkeys(border)), part.end_nodes
        )
        dense = extract_subgraph(owner, part.nodes, part.start_nodes, sources)
        modules: Modules = dict(dense.named_modules())
        reset_modules(dense.graph.nodes, modules, part.old_modules)
        values = dict(zip(border, read, strict=True))
        return _seconds(fast, list(values.values()), iters, warmup) < _seconds(dense, read, iters, warmup)

    return is_faster


def _seconds(module: nn.Module, inputs: list[Any], iters: int, warmup: int) -> float:
    for _ in range(warmup):
        module(*inputs)
    begin = time.perf_counter()
    for _ in range(iters):
        module(*inputs)
    return time.perf_counter() - begin


def optimize_for_inference(
    model: nn.Module, pass_config: dict[str, Any] | None = None, tracer: type[Tracer] = Tracer
) -> nn.Module:
    """Fold batch norms, drop dropout, and run what gains from it in MKL-DNN's layout; the model stays as it is.

    `pass_config` switches the steps: `{"conv_bn_fuse": False, "remove_dropout": False, "mkldnn_layout_optimize":
    False}`, or `{"mkldnn_layout_optimize": {"heuristic": which}}`, where `which(part)` says whether a part of the
    graph changes its layout (`use_mkl_length`, or what `gen_mkl_autotuner` makes).
    """
    config: dict[str, Any] = {"conv_bn_fuse": True, "remove_dropout": True, **(pass_config or {})}
    layout = config.setdefault("mkldnn_layout_optimize", {"heuristic": use_mkl_length})
    if config["conv_bn_fuse"]:
        model = fuse(model)
    if config["remove_dropout"]:
        model = remove_dropout(model)
    if layout is False:
        return model
    if not isinstance(layout, dict):
        raise PassError("mkldnn_layout_optimize config is not a dict")
    if "heuristic" not in layout:
        raise PassError("Heuristic not found in mkldnn_layout_optimize config")
    graph = tracer().trace(copy.deepcopy(model))
    module = GraphModule(copy.deepcopy(model), graph)
    _change_layout(module, layout["heuristic"])
    return module


def _change_layout(module: GraphModule, heuristic: Callable[[MklSubgraph], bool]) -> None:
    graph: Graph = module.graph
    modules: Modules = dict(module.named_modules())
    inside = _convert_borders(graph, modules)
    old_modules = modules_to_mkldnn(inside, modules)
    for node in graph.find_nodes(op="call_method", target="to_mkldnn"):
        source = node.args[0]
        if source.op == "call_method" and source.target == "to_dense":
            node.replace_all_uses_with(source.args[0])
            graph.erase_node(node)
    for node in graph.find_nodes(op="call_method", target="to_dense"):
        if not node.users:
            graph.erase_node(node)
    for part in _parts(graph, inside):
        part.old_modules = old_modules
        if not heuristic(part):
            for node in part.start_nodes + part.end_nodes:
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
            reset_modules(part.nodes, modules, old_modules)
    graph.lint()
    module.recompile()


def _convert_borders(graph: Graph, modules: Modules) -> list[Node]:
    """Put a conversion before and after each operation that knows the layout; return those operations."""
    inside = []
    for node in list(graph.nodes):
        if not _knows_layout(node, modules):
            continue
        inside.append(node)
        with graph.inserting_before(node):
            node.args = map_arg(node.args, lambda read: graph.call_method("to_mkldnn", (read,)))
        with graph.inserting_after(node):
            dense = graph.call_method("to_dense", (node,))
        node.replace_all_uses_with(dense, lambda user, dense=dense: user is not dense)  # type: ignore[misc]
    return inside


def _knows_layout(node: Node, modules: Modules) -> bool:
    if node.op == "call_module":
        module = modules[str(node.target)]
        sample = next(module.parameters(), None)
        is_plain = sample is None or (sample.dtype == torch.float and sample.device.type == "cpu")
        return type(module) in mkldnn_supported and is_plain
    if node.op != "call_function":
        return False
    if node.target in mkldnn_supported_unknown:
        return all(isinstance(arg, Node) and arg.target == "to_dense" for arg in node.args)
    return node.target in mkldnn_supported


def _parts(graph: Graph, inside: list[Node]) -> list[MklSubgraph]:
    """The connected parts in the layout, in the order of the graph."""
    nodes = list(graph.nodes)
    number = {node: index for index, node in enumerate(nodes)}
    starts = graph.find_nodes(op="call_method", target="to_mkldnn")
    members = {*inside, *starts}
    sets = UnionFind(len(nodes))
    for node in members:
        sets.make_set(number[node])
    for node in inside:
        for read in node.all_input_nodes:
            if read in members:
                sets.join(number[node], number[read])
    parts: dict[int, MklSubgraph] = {}
    for node in nodes:
        if node in members:
            part = parts.setdefault(sets.find(number[node]), MklSubgraph(graph))
            (part.start_nodes if node in starts else part.nodes).append(node)
        elif node.target == "to_dense" and node.args[0] in members:
            parts[sets.find(number[node.args[0]])].end_nodes.append(node)
    return list(parts.values())

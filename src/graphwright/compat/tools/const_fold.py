"""Compute once what does not depend on inputs: the constant part of a module becomes an attribute of it."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.capture import symbolic_trace
from graphwright.errors import PassError
from graphwright.ir import Graph, Node, map_arg, nodes_in
from graphwright.ops import is_impure, written_attributes
from graphwright.runtime import GraphModule, graph_of

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "inline_module", "split_const_subgraphs"]


# What gives a tensor that shares the memory of another one.
_VIEWS = frozenset(
    [
        *(
            "chunk",
            "contiguous",
            "detach",
            "diagonal",
            "expand",
            "expand_as",
            "flatten",
            "getitem",
            "movedim",
            "narrow",
        ),
        *("permute", "ravel", "real", "reshape", "select", "split", "squeeze", "swapaxes", "swapdims", "t"),
        *("transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as"),
    ]
)


class FoldedGraphModule(GraphModule):
    """A module whose constant part is a module of its own, run at the first call.

    Its values are then kept in the attribute `fx_const_folded_attrs_name`: a parameter, or a list of parameters.
    """

    def __init__(
        self,
        root: nn.Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute the constant part and keep its values, as the first call does. A second time: AssertionError."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("Folding has already been run")
        self.has_folding_been_run = True
        values = self.const_subgraph_module()
        folded: Any = _parameter(values)
        if isinstance(values, tuple | list):
            folded = nn.ParameterList([_parameter(value) for value in values])
        setattr(self, self.fx_const_folded_attrs_name, folded)


def _parameter(value: Any) -> Any:
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
        return value
    return nn.Parameter(value, requires_grad=value.requires_grad)


def split_const_subgraphs(
    module: nn.Module | GraphModule,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """Split off what depends on no input, to be computed once, at the first call or by `run_folding`.

    Nodes with effects or random values stay, nodes for which `skip_folding_node_fn` says so, and whatever depends on
    them. A module that is not captured is traced first.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = nn.Parameter(torch.ones(2))
    ...     def forward(self, x):
    ...         return x + self.w * 2
    >>> folded = split_const_subgraphs(Net())
    >>> print(folded.code.strip())
    def forward(self, x):
        _fx_const_folded_attrs = self._FX_CONST_FOLDED_ATTRS
        add = x + _fx_const_folded_attrs;  x = _fx_const_folded_attrs = None
        return add
    """
    gm = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constant_nodes(gm, skip_folding_node_fn)
    if not any(node.op != "get_attr" for node in constant):
        return FoldedGraphModule(gm, graph_of(gm))
    results = _results(graph_of(gm), constant)
    if not results:
        return FoldedGraphModule(gm, graph_of(gm))
    name = get_unique_attr_name_in_module(gm, "_FX_CONST_FOLDED_ATTRS")
    root = copy.copy(gm)  # for the attribute: the module itself stays as it is
    setattr(root, name, nn.ParameterList() if len(results) > 1 else nn.Parameter(torch.empty(0)))
    return FoldedGraphModule(
        root,
        _remaining_graph(gm, constant, results, name),
        _constant_graph(gm, constant, results),
        name,
        device_for_folded_attrs,
    )


def get_unique_attr_name_in_module(mod_traced: nn.Module, name: str) -> str:
    """Make a name legal and, with a number behind it, different from the attributes that a module has.

    >>> get_unique_attr_name_in_module(nn.Linear(1, 1), "weight"), get_unique_attr_name_in_module(nn.ReLU(), "a.b")
    ('weight_1', 'a_b')
    """
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    if name[:1].isdigit():
        name = f"_{name}"
    while hasattr(mod_traced, name):
        match = re.match(r"(.*)_(\d+)$", name)
        name = f"{match[1]}_{int(match[2]) + 1}" if match else f"{name}_1"
    return name


def _constant_nodes(gm: GraphModule, skip: Callable[[Node], bool] | None) -> dict[Node, None]:
    """The nodes whose values are the same in every call."""
    graph = graph_of(gm)
    varying = {node for node in graph.nodes if node.op != "get_attr" and _has_effect(node, gm)}
    kept = written_attributes(graph)
    varying |= {node for node in graph.nodes if node.op == "get_attr" and node.target in kept}
    written = _with_bases({used for node in varying if node.op != "output" for used in node.all_input_nodes})
    constant: dict[Node, None] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or node in varying or (skip is not None and skip(node)):
            continue
        if node in written:
            continue
        if all(used in constant for used in node.all_input_nodes):
            constant[node] = None
    return constant


def _with_bases(nodes: set[Node]) -> set[Node]:
    """The nodes, and those whose memory they share."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if getattr(node.target, "__name__", node.target) in _VIEWS:
            waiting.extend(used for used in node.all_input_nodes if used not in nodes)
            nodes.update(node.all_input_nodes)
    return nodes


def _has_effect(node: Node, gm: GraphModule) -> bool:
    called = gm.get_submodule(str(node.target)) if node.op == "call_module" else None
    if isinstance(called, GraphModule):  # as pure as what it does
        inside = [inner for inner in graph_of(called).nodes if inner.op not in ("placeholder", "output")]
        return bool(written_attributes(graph_of(called))) or any(_has_effect(inner, called) for inner in inside)
    return is_impure(node, called)


def _results(graph: Graph, constant: dict[Node, None]) -> list[Node]:
    """The computed constants that the rest reads, in the order in which it does."""
    found: dict[Node, None] = {}
    for node in graph.nodes:
        if node not in constant:
            for used in (*nodes_in(node.args), *nodes_in(node.kwargs)):
                if used in constant and used.op != "get_attr":
                    found[used] = None
    return list(found)


def _constant_graph(gm: GraphModule, constant: dict[Node, None], results: list[Node]) -> Graph:
    graph = Graph()
    copies: dict[Node, Node] = {}
    needed = _needed_by(results)
    attributes = [used for node in constant if node in needed for used in node.all_input_nodes if used.op == "get_attr"]
    inputs = [graph.placeholder(node.name) for node in dict.fromkeys(attributes)]  # torch.fx's names: it has them, too
    for node in dict.fromkeys(attributes):
        copies[node] = graph.get_attr(str(node.target), node.type)
        copies[node].meta = dict(node.meta)
    for taken in inputs:
        graph.erase_node(taken)
    for node in constant:
        if node in needed and node not in copies:
            copies[node] = _copy(graph, node, copies)
    values = tuple([copies[node] for node in results])
    graph.output(values[0] if len(values) == 1 else values)
    return graph


def _needed_by(results: list[Node]) -> set[Node]:
    needed: set[Node] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    return needed


def _remaining_graph(gm: GraphModule, constant: dict[Node, None], results: list[Node], name: str) -> Graph:
    old = graph_of(gm)
    graph = Graph(tracer_cls=old._tracer_cls)
    copies: dict[Node, Node] = {}

    for node in old.nodes:
        is_read = node.op == "get_attr" and any(user not in constant for user in node.users)
        if node.op == "placeholder" or is_read:
            copies[node] = graph.node_copy(node)
    folded = graph.get_attr(name)
    if len(results) == 1:
        copies[results[0]] = folded
        folded.meta = dict(results[0].meta)
    else:
        for i, node in enumerate(results):
            copies[node] = graph.call_function(operator.getitem, (folded, i))
            copies[node].meta = dict(node.meta)
    taken = [graph.create_node("get_attr", name, name=node.name) for node in results]  # torch.fx's names
    for node in old.nodes:
        if node.op == "output":
            graph.output(map_arg(node.args[0], copies.__getitem__), node.type).meta = dict(node.meta)
        elif node not in copies and node not in constant:
            copies[node] = _copy(graph, node, copies)
    for node in taken:
        graph.erase_node(node)
    return graph


def _copy(graph: Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """Copy a call to the end of a graph, under a name of its own there."""
    args, kwargs = map_arg((node.args, node.kwargs), copies.__getitem__)
    copied = graph.create_node(node.op, node.target, args, kwargs, None, node.type)
    copied.meta = dict(node.meta)
    return copied


def inline_module(gm: GraphModule, inline_mod_name: str, run_dce: bool = True) -> dict[Node, Node]:
    """Put the nodes of a captured submodule in the place of the one call of it; `run_dce` removes dead code after.

    Returns the new nodes by those of the submodule, and by the nodes that took results out of the call. Raises
    PassError where the submodule is not captured, not called, or called with keywords or nested values.
    """
    inner = gm.get_submodule(inline_mod_name)
    graph = graph_of(gm)
    calls = graph.find_nodes(op="call_module", target=inline_mod_name)
    if not isinstance(inner, GraphModule) or len(calls) != 1 or calls[0].kwargs:
        raise PassError(f"{inline_mod_name!r} is not a captured module that is called once, by position")
    call = calls[0]
    copies: dict[Node, Any] = {}
    inputs = iter(call.args)
    prefix = f"{inline_mod_name}."
    with graph.inserting_before(call):
        for node in graph_of(inner).nodes:
            if node.op == "placeholder":
                copies[node] = next(inputs, *node.args)
            elif node.op == "output":
                result = map_arg(node.args[0], copies.__getitem__)
            else:
                copies[node] = graph.node_copy(node, copies.__getitem__)
                if node.op in ("call_module", "get_attr"):
                    copies[node].target = prefix + node.target
    if isinstance(result, Node):
        call.replace_all_uses_with(result)
    else:
        for user in list(call.users):
            if user.op == "call_function" and user.target is operator.getitem:
                copies[user] = result[user.args[1]]
                user.replace_all_uses_with(copies[user])
                graph.erase_node(user)
    graph.erase_node(call)
    if run_dce:
        graph.eliminate_dead_code()  # type: ignore[attr-defined]
    return copies

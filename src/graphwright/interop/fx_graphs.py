"""Graphs of torch.fx's, read node by node; torch's operators with graphs inside become branches and loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.fx
import torch.fx.node
from torch import nn

from graphwright.codegen import parse_stack_trace
from graphwright.interop.fx_guards import checking
from graphwright.interop.fx_values import is_constant
from graphwright.interop.operands import kept
from graphwright.ir import Graph, Origin
from graphwright.ops import cond, while_loop

ORIGIN = "graphwright_origin"  # in the meta of torch.fx's nodes
REGIONS: dict[Any, Any] = {
    torch.ops.higher_order.cond: cond,
    torch.ops.higher_order.while_loop: while_loop,
}


def read_nodes(nodes: Iterable[torch.fx.Node], graph: Graph, module: nn.Module, prefix: str = "") -> None:
    """Make what torch.fx's nodes say in a graph; `prefix` is the path of the module that they name things of."""
    made: dict[torch.fx.Node, Any] = {}
    for node in nodes:
        if is_constant(node):
            made[node] = getattr(module, str(node.target))
            continue
        if checking(node.target) is kept:
            continue  # here, what has an effect stays anyway
        if _names_body(node):
            continue  # the graph of a branch or loop, which becomes an argument
        target: Any = f"{prefix}{node.target}" if node.op in ("get_attr", "call_module") else checking(node.target)
        args, kwargs = node.args, node.kwargs
        if node.op == "call_function" and node.target in REGIONS:
            target, args, kwargs = REGIONS[node.target], _arguments_of_region(node, made, module, prefix), {}
        else:
            args, kwargs = torch.fx.node.map_arg((args, kwargs), made.__getitem__)
        copied = made[node] = graph.create_node(node.op, target, args, kwargs, node.name, node.type)
        copied.origin = node.meta.get(ORIGIN) or _origin(node.meta)
        copied.meta.update({key: value for key, value in node.meta.items() if key != ORIGIN})


def bodies_named(graph: torch.fx.Graph) -> set[str]:
    """The modules of a graph that are bodies of its branches and loops, and nothing else."""
    named = [node for node in graph.nodes if node.op == "get_attr"]
    others = {str(node.target) for node in named if not _names_body(node)}
    called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    return {str(node.target) for node in named if _names_body(node)} - others - called


def _names_body(node: torch.fx.Node) -> bool:
    return node.op == "get_attr" and bool(node.users) and all(_is_body(node, user) for user in node.users)


def _is_body(node: torch.fx.Node, user: torch.fx.Node) -> bool:
    """Tell whether an operator of torch's gets a graph by a node."""
    return user.target in REGIONS and any(arg is node for arg in (*user.args, *user.kwargs.values()))


def _arguments_of_region(node: torch.fx.Node, made: dict[torch.fx.Node, Any], module: nn.Module, prefix: str) -> Any:
    """The arguments of a branch or loop: its bodies as graphs, and what these take from around as inputs."""

    def body(read: Any) -> Graph:
        path, graph = str(read.target), Graph()
        inner = module.get_submodule(path)
        read_nodes(inner.graph.nodes, graph, inner, f"{prefix}{path}.")  # type: ignore[union-attr, arg-type]
        return graph

    def value(argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, made.__getitem__)

    first, second, third, fourth = (*node.args, *node.kwargs.values(), (), ())[:4]
    if node.target is torch.ops.higher_order.cond:
        return value(first), body(second), body(third), tuple(value(fourth))
    return body(first), body(second), tuple(value(third)), tuple(value(fourth))


def stack_trace(origin: Origin) -> str:
    """A place as torch.fx notes it."""
    return f'  File "{origin.file}", line {origin.line}, in {origin.function}\n    {origin.source}\n'


def _origin(meta: dict[str, Any]) -> Origin | None:
    """Where torch.fx says that a node comes from."""
    place = parse_stack_trace(meta["stack_trace"]) if meta.get("stack_trace") else None
    if place is None:
        return None
    modules = [entry for entry in (meta.get("nn_module_stack") or {}).values() if isinstance(entry, tuple)]
    path, kind = modules[-1] if modules else ("", None)
    return Origin(
        place.file, int(place.lineno), place.name, place.code, int(place.lineno),
        module=str(path), module_type=kind if isinstance(kind, type) else None,
    )  # fmt: skip

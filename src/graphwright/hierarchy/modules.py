"""The modules of nested captures: each with a graph, its own state, and what was taken for granted of it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.errors import GraphError
from graphwright.hierarchy.sharing import write_nested
from graphwright.ir import Graph
from graphwright.runtime import (
    Entry,
    GraphModule,
    called_entry,
    captured_module,
    change_entries,
    entry_points_of,
    facts_of_modules,
    keep_modules,
    make_captured,
    names_constants,
    why_not_captured,
)


def unflatten(gm: nn.Module) -> Any:
    """Make the modules of a captured program modules again: each that it entered has a graph and a forward of its own.

    The result computes what `gm` does, and shares its parameters and buffers; `gm` is not changed. Its tree has
    captured modules of the original classes where the original has modules, and each call of one is a call_module node
    with the arguments and results that the source has, as far as values of the graph pass through them. Equal modules
    share one graph: an edit of it changes all of them.

    Where a module is called in ways that need two graphs, the second is a method `forward_2` beside its forward: a
    call_method node on the module, which runs its hooks as a call does. A call stays part of the module around it where
    the class cannot be captured, where the program forks inside of it, and as far as passes have mixed it with others:
    `gm.meta["flat_calls"]` says which and why. What hooks did when the program was captured is part of the graphs;
    hooks that are registered later run. Raises GraphError for a module that is not a captured one.

    >>> import torch
    >>> from graphwright import trace
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = nn.Linear(4, 4)
    ...     def forward(self, x):
    ...         return x + self.linear(x).relu()
    >>> nested = unflatten(trace(nn.Sequential(Block(), Block()), torch.ones(2, 4)))
    >>> nested[0].graph is nested[1].graph, [node.name for node in nested[0].graph.nodes]
    (True, ['x', 'linear', 'relu', 'add', 'output'])
    """
    points = entry_points_of(gm)
    if not points:
        raise GraphError(f"{type(gm).__name__} is no captured module", fix="trace it: graphwright.trace(model, args)")
    return _unflattened(gm, list(points.values()), lambda made: captured_module(gm, made, type(gm).__name__))


def unflatten_in_place(gm: GraphModule, write_out: Callable[[Graph], object]) -> None:
    """Do what `unflatten` does to a captured module that nobody else has yet: it has no second tree of modules.

    Its graphs may have copied calls, which `write_out` writes out where they are not to be as they are.
    """

    def changed(made: list[Entry]) -> GraphModule:
        change_entries(gm, made)
        return gm

    entries = list(entry_points_of(gm).values())
    flat = {entry.graph for entry in entries}
    _unflattened(gm, entries, changed, write_out)
    for graph in flat:
        graph._dissolve()


def _unflattened(
    gm: nn.Module,
    entries: list[Entry],
    captured: Callable[[list[Entry]], GraphModule],
    write_out: Callable[[Graph], object] | None = None,
) -> GraphModule:
    """Write the graphs of entry points as nested ones; `captured` gives the module that is to have them."""
    graphs = list({id(entry.graph): entry.graph for entry in entries}.values())
    modules = dict(gm.named_modules(remove_duplicate=False))
    are_captured = any(path and entry_points_of(module) for path, module in modules.items())
    nodes = [node for graph in graphs for node in graph.all_nodes()] if are_captured else ()
    kept = {id(modules[called[0]]) for node in nodes if (called := called_entry(node, gm)) is not None}

    def why_not(module: nn.Module) -> str | None:
        return "it is called as a captured one" if id(module) in kept else why_not_captured(module)

    written = write_nested(modules, graphs, why_not, write_out)
    tops = dict(zip(map(id, graphs), written.tops, strict=True))
    made = [Entry(entry.name, tops[id(entry.graph)], entry.signature) for entry in entries]
    facts = _facts_by_owner(graphs, written.of_module)
    for graph, top in zip(graphs, written.tops, strict=True):
        of_top = _of_top(facts_of_modules(graph), written.of_module)
        top.meta.pop("modules", None)
        keep_modules(top, of_top)
    nested = captured(made)
    if nested is not gm:
        modules = dict(nested.named_modules(remove_duplicate=False))
    for path, programs in written.of_module.items():
        make_captured(modules[path], programs, facts.get(path, {}))
    if written.flat:
        nested.meta["flat_calls"] = dict(written.flat)
    return nested


def _owner_of(path: str, nested: Any) -> str:
    """The innermost module with a graph that a path leads through, itself included; "" for the whole."""
    while path and path not in nested:
        path = path.rpartition(".")[0]
    return path


def _of_top(facts: Any, nested: Any) -> dict[str, Any]:
    """What is taken for granted of modules without a graph, and of constants that others hold: the top has them."""
    found = {path: of_one for path, of_one in facts.items() if not _owner_of(path, nested)}
    for path, of_one in facts.items():
        held = {name: told for name, told in of_one.get("values", {}).items() if names_constants(told)}
        if held and path not in found:
            found[path] = {"values": held}
    return found


def _facts_by_owner(graphs: Any, nested: Any) -> dict[str, dict[str, Any]]:
    """For each module with a graph what is taken for granted of it and of what is inside of it, by path from there.

    Its class and its hooks are not: another module may take its place, and its hooks run.
    """
    found: dict[str, dict[str, Any]] = {}
    for graph in graphs:
        for path, of_one in facts_of_modules(graph).items():
            owner = _owner_of(path, nested)
            if not owner:
                continue
            inner = path[len(owner) + 1 :] if path != owner else ""
            kept = {key: fact for key, fact in of_one.items() if inner or key not in ("class", "hooks")}
            if kept:
                found.setdefault(owner, {}).setdefault(inner, kept)
    return found

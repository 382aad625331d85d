"""A nested capture as one graph again: the graphs of modules written where these are called."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, Origin, map_arg
from graphwright.ops import unpack, write_attribute
from graphwright.runtime import (
    HOOKS,
    Entry,
    GraphModule,
    called_entry,
    captured_module,
    class_name,
    entry_points_of,
    is_nested,
    is_readable,
    keep_calls,
    keep_modules,
    names_of_values,
    nested_in,
    own_class,
)
from graphwright.source import CallSite, Scope, name_as_called


def flatten(gm: nn.Module, keep: Callable[[str, nn.Module], bool] | None = None) -> Any:
    """Write a nested capture as one graph: what `unflatten` undoes.

    The captured modules that it calls are written where they are called; those that have hooks, which a graph would
    pass over, stay modules, and so do those that `keep(path, module)` tells to. The result shares parameters and
    buffers with
    `gm`, which is not changed. Raises GraphError for a module that is not a captured one.

    >>> import torch
    >>> from graphwright import trace, unflatten
    >>> nested = unflatten(trace(nn.Sequential(nn.Sequential(nn.ReLU()), nn.Tanh()), torch.ones(2)))
    >>> [node.target for node in nested.graph.find_nodes(op="call_module")]
    ['0', '1']
    >>> [node.target for node in flatten(nested).graph.find_nodes(op="call_module")]
    ['0.0', '1']
    """
    points = entry_points_of(gm)
    if not points:
        raise GraphError(f"{type(gm).__name__} is no captured module", fix="trace it: graphwright.trace(model, args)")
    entries = list(points.values())
    flat: dict[int, Graph] = {}
    for entry in entries:
        if id(entry.graph) not in flat:
            flat[id(entry.graph)] = _Flat(gm, entry, keep).graph
    return captured_module(
        gm, [Entry(each.name, flat[id(each.graph)], each.signature) for each in entries], type(gm).__name__
    )


def as_flat(gm: nn.Module, keep: Callable[[str, nn.Module], bool] | None = None) -> Any:
    """Answer a nested capture written flat, and any other module as it is: for tools that work on one graph.

    >>> linear = nn.Linear(2, 2)
    >>> as_flat(linear) is linear
    True
    """
    return flatten(gm, keep) if entry_points_of(gm) and nested_in(gm) else gm


class _Flat:
    """The graph of an entry point, written with those of the modules that it calls."""

    def __init__(self, root: nn.Module, entry: Entry, keep: Callable[[str, nn.Module], bool] | None = None) -> None:
        self._root = root
        self._keep = keep
        self._counts: dict[str, int] = {}
        self._noted: dict[str, Any] = {}
        self._facts: dict[str, Any] = {path: dict(of_one) for path, of_one in entry.premises.items()}
        graph = entry.graph
        top = next((node._origin.scope for node in graph.nodes if isinstance(node._origin, CallSite)), None)
        while top is not None and top.outer is not None:
            top = top.outer
        self.graph = self._body(graph, "", top)
        self.graph._writer, self.graph._tracer_cls = graph._writer, graph._tracer_cls
        self.graph.constants = graph.constants
        if graph._meta is not None:
            self.graph._meta = dict(graph._meta)
        keep_modules(self.graph, self._facts)
        keep_calls(self.graph, self._noted)

    def _body(self, graph: Graph, path: str, scope: Scope | None) -> Graph:
        written = Graph()
        values: dict[Node, Any] = {}
        for node in graph.nodes:
            if self._is_opened(node, path):
                values[node] = None
            elif node.op == "output":
                output = written.output(map_arg(node.args[0], values.__getitem__), node.type)
                output._origin = self._origin(node, path, scope)
            else:
                values[node] = self._node(written, node, values, path, scope)
        return written

    def _node(self, written: Graph, node: Node, values: Mapping[Node, Any], path: str, scope: Scope | None) -> Any:
        args, kwargs = map_arg(node._args, values.__getitem__), map_arg(node._kwargs, values.__getitem__)
        target = node._target
        called = called_entry(node, self._root.get_submodule(path))
        if called is not None:
            inner = f"{path}.{called[0]}" if path else called[0]
            if self._is_written(inner, self._root.get_submodule(inner)):
                args = args if node._op == "call_module" else args[1:]
                return self._call(written, called[1], node, args, kwargs, inner, scope, path)
        if target is operator.getitem and isinstance(args[0], tuple) and isinstance(args[1], int):
            return args[0][args[1]]
        if target is unpack and isinstance(args[0], tuple):
            return args[0]
        if node._op in ("call_module", "get_attr") and path:
            target = f"{path}.{target}"
        elif target is write_attribute and path:
            args = (f"{path}.{args[0]}", *args[1:])
        args = tuple([self._body(arg, path, scope) if type(arg) is Graph else arg for arg in args])
        made = written.create_node(node._op, target, args, kwargs, node.name, node.type)
        made._origin = self._origin(node, path, scope)
        meta = dict(node._meta or {})
        meta.pop("nn_module_stack", None)
        made._meta = meta or None
        return made

    def _is_written(self, path: str, module: nn.Module) -> bool:
        if self._keep is not None and self._keep(path, module):
            return False
        points = entry_points_of(module)
        is_one = isinstance(module, GraphModule) and (len(points) == 1 or is_nested(module)) and is_readable(module)
        return is_one and points["forward"].form is None and not any(module.__dict__[table] for table in HOOKS)

    def _is_opened(self, node: Node, path: str) -> bool:
        """Tell whether a node reads a module for nothing but calls that are written here."""
        if node.op != "get_attr" or not node.users:
            return False
        owner = self._root.get_submodule(path)
        if not all(user.args[0] is node and called_entry(user, owner) is not None for user in node.users if user.args):
            return False
        inner = f"{path}.{node.target}" if path else str(node.target)
        return self._is_written(inner, self._root.get_submodule(inner))

    def _call(
        self,
        written: Graph,
        entry: Entry,
        node: Node,
        args: Any,
        kwargs: Any,
        path: str,
        outer: Scope | None,
        outer_path: str,
    ) -> Any:
        """Write what a called module does; return the value that it gives."""
        module = self._root.get_submodule(path)
        for inner, of_one in entry.premises.items():
            self._facts.setdefault(f"{path}.{inner}" if inner else path, dict(of_one))
        self._facts.setdefault(path, {}).update({"class": class_name(module), "hooks": {}})
        count = self._counts.get(path, 0)
        self._counts[path] = count + 1
        scope = Scope(path, own_class(module), count, outer or Scope("", type(self._root)))
        site = self._origin(node, outer_path, outer)
        scope.site = site if isinstance(site, CallSite) else None
        inputs = entry.graph.placeholders()
        given = {**dict(zip([str(each.target) for each in inputs], args, strict=False)), **kwargs}
        values: dict[Node, Any] = {each: given[str(each.target)] for each in inputs}
        for each in entry.graph.nodes:
            if each.op == "output":
                result = map_arg(each.args[0], values.__getitem__)
                name_as_called(scope, result)
                self._noted[scope.key] = {
                    "passed": {name: names_of_values(value) for name, value in given.items()},
                    "given": names_of_values(result),
                }
                return result
            if each.op != "placeholder":
                values[each] = self._node(written, each, values, path, scope)
        raise AssertionError(f"the graph of {path} has no output")

    def _origin(self, node: Node, path: str, scope: Scope | None) -> Any:
        """Where a node comes from, as told in the whole program."""
        origin = node._origin
        if not path or origin is None:
            return origin
        if isinstance(origin, CallSite):
            return CallSite(origin.code, origin.instruction, self._within(origin.scope, path, scope), origin.is_whole)
        if not isinstance(origin, Origin):
            origin = origin.resolve()
        module = f"{path}.{origin.module}" if origin.module else path
        kind = origin.module_type
        stack = (*([] if scope is None else scope.stack()), *[(f"{path}.{at}", of) for at, of in origin.stack])
        return dataclasses.replace(origin, module=module, module_type=kind, stack=stack)

    def _within(self, inner: Scope, path: str, scope: Scope | None) -> Scope:
        """A call as told in the whole program, given as it is told in the module at a path, whose call is `scope`."""
        if inner.outer is None:
            return scope or inner
        outer = self._within(inner.outer, path, scope)
        return Scope(f"{path}.{inner.path}", inner.kind, inner.call, outer)

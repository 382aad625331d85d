"""The structure of arguments and results, which torch.fx keeps beside a graph of leaves, as nodes of the graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.ir import Graph, Node
from graphwright.runtime import expect


def is_of_call(in_spec: pytree.TreeSpec) -> bool:
    """Tell whether a structure is that of a call, `(args, kwargs)`, as torch.export has it."""
    return in_spec.type is tuple and [child.type for child in _children(in_spec)] == [tuple, dict]


def nest(graph: Graph, names: list[str], in_spec: pytree.TreeSpec, out_spec: pytree.TreeSpec | None) -> None:
    """Have a graph of leaves take what a call is given, a parameter for each name, and return its result as nested.

    Raises ExportError for arguments in containers other than tuples, lists and dicts.
    """
    args, kwargs = _children(in_spec)
    rest = iter(graph.placeholders())
    first = next(node for node in graph.nodes if node.op != "placeholder")
    nested: list[tuple[Node, pytree.TreeSpec, str, list[Node]]] = []
    for name, spec in zip(names, [*_children(args), *_children(kwargs)], strict=True):
        leaves = [next(rest) for _ in range(spec.num_leaves)]
        if spec.is_leaf():
            first.prepend(leaves[0])  # after the parameters before it
            continue
        with graph.inserting_before(first):
            nested.append((graph.placeholder(name), spec, name, leaves))
    for value, spec, name, leaves in nested:
        _take(graph, value, spec, name, iter(leaves), first)
    output = graph.output_node()
    if out_spec is not None:
        output.args = (_nested(list(output.args[0]), out_spec, output),)


def _take(graph: Graph, value: Node, spec: pytree.TreeSpec, name: str, leaves: Iterator[Node], first: Node) -> None:
    """Have the parts of an argument stand in the place of leaves; how many there are is checked."""
    if spec.type not in (tuple, list, dict):
        raise ExportError(
            f"the argument {name} is a {spec.type.__name__}, which a graph of leaves takes apart in a way of its own",
            fix="export the program with tuples, lists and dicts of tensors",
        )
    children = _children(spec)
    keys = list(spec.context) if spec.type is dict else list(range(len(children)))
    with graph.inserting_before(first):
        count = graph.call_function(len, (value,))
        graph.call_function(expect, (count, len(children), f"the length of {name}"))
    for key, child in zip(keys, children, strict=True):
        with graph.inserting_before(first):
            item = graph.call_function(operator.getitem, (value, key))
        if child.is_leaf():
            leaf = next(leaves)
            item.meta.update(leaf.meta)
            leaf.replace_all_uses_with(item)
            graph.erase_node(leaf)
        else:
            _take(graph, item, child, f"{name}[{key!r}]", leaves, first)


def _nested(leaves: list[Any], spec: pytree.TreeSpec, output: Node) -> Any:
    """A result as it is nested: plain containers as such, others made by a call."""

    def build(part: pytree.TreeSpec) -> Any:
        if part.is_leaf():
            return leaves.pop(0)
        children = [build(child) for child in _children(part)]
        if part.type is dict:
            return dict(zip(part.context, children, strict=True))
        if part.type in (tuple, list):
            return part.type(children)
        with output.graph.inserting_before(output):
            return output.graph.call_function(pytree.tree_unflatten, (children, _of_leaves(part)))

    return build(spec)


def _of_leaves(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """A structure whose parts are leaves."""
    leaf = pytree.tree_structure(0)
    return pytree.TreeSpec(spec.type, spec.context, [leaf] * len(_children(spec)))


def _children(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    return spec.children() if hasattr(spec, "children") else spec.children_specs

"""Graphs as flat data, for pickle: no links between nodes, functions by reference, everything else as it is."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import ATOMS, Graph, Node, Origin, map_aggregate
from graphwright.runtime.references import Reference, describe, is_definition, reference_to, why_unimportable

__all__ = ["graph_to_record", "record_to_graph", "reduce_graph", "reduce_node"]

_FORMAT = 1  # of the records; raised when an older version could not read a newer record

# What pickles for certain, by exact type, so that it need not be tried.
_PICKLES = ATOMS | {torch.Tensor, nn.Parameter, torch.dtype, torch.device, torch.Size, torch.layout, range}


class _Use(int):
    """In a record, the node with this number."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Use, (int(self),)


class _Named:
    """In a record, an object that is found by its name and that pickle itself cannot refer to."""

    __slots__ = ("reference",)

    def __init__(self, reference: Reference) -> None:
        self.reference = reference


class _Body:
    """In a record, the graph of a branch or a loop."""

    __slots__ = ("record",)

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record


class _Unknown:
    """In a record, a class that only the process that wrote it could reach; it stays known by name."""

    __slots__ = ("module", "name", "qualname")

    def __init__(self, kind: type) -> None:
        self.module, self.name, self.qualname = kind.__module__, kind.__name__, kind.__qualname__

    def stand_in(self) -> type:
        """Make a class of this name, with nothing in it."""
        return type(self.name, (), {"__module__": self.module, "__qualname__": self.qualname})


def graph_to_record(graph: Graph) -> dict[str, Any]:
    """Write a graph as plain data that pickle takes: names, types, meta, origins and constants included.

    Raises GraphError, naming the node, for what cannot be pickled: a lambda, a function defined inside another, an
    object that refuses.
    """
    writer = _RecordWriter(graph)
    return {
        "format": _FORMAT,
        "nodes": [writer.node(node) for node in graph.nodes],
        "names": graph._namespace,
        "constants": graph.constants,
        "meta": graph._meta,
        "codegen": graph._writer,
        "tracer_cls": graph._tracer_cls if reference_to(graph._tracer_cls) else None,
        "tracer_extras": graph._tracer_extras,
    }


def record_to_graph(record: dict[str, Any]) -> Graph:
    """Rebuild the graph that `graph_to_record` wrote.

    >>> import operator, pickle
    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(operator.neg, (graph.placeholder("x"),)))
    >>> str(record_to_graph(pickle.loads(pickle.dumps(graph_to_record(graph))))) == str(graph)
    True
    """
    if record["format"] > _FORMAT:
        raise GraphError(
            f"the graph was saved in format {record['format']}, this version reads up to {_FORMAT}",
            fix="load it with the version of graphwright that saved it, or a newer one",
        )
    graph = Graph(tracer_cls=record["tracer_cls"], tracer_extras=record["tracer_extras"])
    nodes: list[Node] = []
    stand_ins: dict[tuple[str, str], type] = {}

    def load(leaf: Any) -> Any:
        if type(leaf) is _Use:
            return nodes[leaf]
        if type(leaf) is _Named:
            return leaf.reference.resolve()
        if type(leaf) is _Body:
            return record_to_graph(leaf.record)
        if type(leaf) is _Unknown:
            return stand_ins.setdefault((leaf.module, leaf.qualname), leaf.stand_in())
        return leaf

    for name, op, target, args, kwargs, kind, meta, origin in record["nodes"]:
        node = graph.create_node(op, load(target), map_aggregate(args, load), map_aggregate(kwargs, load))
        node._name = name
        node.type = load(kind)
        node._meta = None if meta is None else _map_plain(meta, load)
        node._origin = None if origin is None else Origin(*(_map_plain(field, load) for field in origin))
        nodes.append(node)
    graph._unnamed.clear()
    graph._namespace = record["names"]
    graph.constants = record["constants"]
    graph._meta, graph._writer = record["meta"], record["codegen"]
    return graph


def reduce_graph(graph: Graph) -> tuple[Any, ...]:
    """Tell pickle how to rebuild a graph; the graph of a captured module comes with the module, as that one's graph."""
    owner = graph.owning_module
    if getattr(owner, "graph", None) is graph:
        return getattr, (owner, "graph")
    return _load_graph, (graph_to_record(graph), owner)


def reduce_node(node: Node) -> tuple[Any, ...]:
    """Tell pickle how to rebuild a node: it comes with its graph. Raises GraphError for an erased one."""
    numbers = {other: number for number, other in enumerate(node.graph.nodes)}
    if node not in numbers:
        raise GraphError(f"{node.name} was erased from its graph, and cannot be pickled with it", at=node.origin)
    return _load_node, (node.graph, numbers[node])


def _load_graph(record: dict[str, Any], owner: Any) -> Graph:
    graph = record_to_graph(record)
    graph.owning_module = owner
    return graph


def _load_node(graph: Graph, number: int) -> Node:
    return next(itertools.islice(graph.nodes, number, None))


class _RecordWriter:
    """Writes nodes as tuples, each leaf checked once."""

    def __init__(self, graph: Graph) -> None:
        graph._make_names()
        self.numbers = {node: number for number, node in enumerate(graph.nodes)}
        self._known: dict[int, tuple[Any, Any]] = {}  # id -> (object, what stands for it)

    def node(self, node: Node) -> tuple[Any, ...]:
        """Return name, opcode, target, args, kwargs, type, meta and origin of a node."""

        def in_arguments(leaf: Any) -> Any:
            return self.leaf(leaf, node, "an argument")

        def in_meta(leaf: Any) -> Any:
            return self.leaf(leaf, node, "a value in meta")

        origin = node.origin
        return (
            node._name,
            node._op,
            self.leaf(node._target, node, "the target"),
            map_aggregate(node._args, in_arguments),
            map_aggregate(node._kwargs, in_arguments),
            self.leaf(node.type, node, "the type"),
            None if node._meta is None else _map_plain(node._meta, in_meta),
            None if origin is None else tuple(_map_plain(field, in_meta) for field in _fields(origin)),
        )

    def leaf(self, value: Any, node: Node, role: str) -> Any:
        """Return what stands for a leaf value in the record."""
        kind = type(value)
        if kind in _PICKLES:
            return value
        if kind is Node:
            number = self.numbers.get(value)
            if number is None:
                raise GraphError(
                    f"cannot save node {node.name!r}: {role}, the node {value.name!r}, is not in its graph",
                    at=node.origin,
                    fix="remove it, or replace it by its name",
                )
            return _Use(number)
        if kind is Graph:
            return _Body(graph_to_record(value))
        known = self._known.get(id(value))
        if known is None or known[0] is not value:
            known = self._known[id(value)] = value, self._checked(value, node, role)
        return known[1]

    def _checked(self, value: Any, node: Node, role: str) -> Any:
        try:
            pickle.dumps(value)
        except Exception as error:
            reference = reference_to(value)
            if reference is not None:
                return _Named(reference)
            if isinstance(value, type) and role == "a value in meta":
                return _Unknown(value)  # a class in a module stack: its name is what is asked for
            why, fix = why_unimportable(value) if is_definition(value) else (str(error), "replace it by plain values")
            raise GraphError(
                f"cannot save node {node.name!r}: {role}, {describe(value)}, does not pickle: {why}",
                at=node.origin,
                fix=fix,
            ) from error
        return value


def _fields(origin: Origin) -> Iterator[Any]:
    for field in origin.__dataclass_fields__:
        yield getattr(origin, field)


def _map_plain(value: Any, change: Any) -> Any:
    """Rebuild plain dicts, lists and tuples with `change` applied to what they hold; they stay mutable."""
    kind = type(value)
    if kind is dict:
        return {key: _map_plain(item, change) for key, item in value.items()}
    if kind is list:
        return [_map_plain(item, change) for item in value]
    if kind is tuple:
        return tuple([_map_plain(item, change) for item in value])
    return change(value)

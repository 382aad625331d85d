"""Graphs as flat data, for pickle: no links between nodes, functions by reference, everything else as it is."""

from __future__ import annotations

import inspect
import itertools
import pickle
import random
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy
import torch
from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import ATOMS, EMPTY_KWARGS, Graph, Meta, Node, Origin, map_aggregate, restore_node
from graphwright.runtime.entries import entry_points_of
from graphwright.runtime.references import Reference, describe, is_definition, reference_to, why_unimportable
from graphwright.values import is_named_tuple

# Of the records; raised when an older version could not read a newer record. Format 1 had a tuple for each node.
_FORMAT = 2

# What pickles for certain, by exact type, so that it need not be tried.
_PICKLES = ATOMS | {*(torch.Tensor, nn.Parameter, torch.dtype, torch.device, torch.Size, torch.layout, range)}

_fields_of = attrgetter(*Origin.__dataclass_fields__)


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
    return {
        "format": _FORMAT,
        "nodes": _RecordWriter(graph).columns(),
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
        kind = type(leaf)
        if kind is _Use:
            return nodes[leaf]
        if kind is _Named:
            return leaf.reference.resolve()
        if kind is _Body:
            graph.has_bodies = True
            return record_to_graph(leaf.record)
        if kind is _Unknown:
            return stand_ins.setdefault((leaf.module, leaf.qualname), leaf.stand_in())
        return leaf

    def load_argument(arg: Any) -> Any:
        kind = type(arg)
        if kind is list:  # arguments hold no plain lists: this is a node, by its number
            return nodes[arg[0]]
        return arg if kind in ATOMS else map_aggregate(arg, load)

    columns = record["nodes"] if record["format"] > 1 else _columns_of_format_1(record["nodes"])
    kwargs, types, metas = columns["kwargs"], columns["types"], columns["metas"]
    origins = [Origin(*[_map_plain(field, load) for field in fields]) for fields in columns["places"]]
    rows = zip(*(columns[name] for name in ("names", "ops", "targets", "args", "origins")), strict=True)
    for number, (name, op, target, args, origin) in enumerate(rows):
        node = restore_node(
            graph,
            name,
            op,
            target if type(target) is str else load(target),
            tuple([load_argument(arg) for arg in args]),
            map_aggregate(kwargs[number], load) if number in kwargs else EMPTY_KWARGS,
            load(types[number]) if number in types else None,
            _map_plain(metas[number], load) if number in metas else None,
            None if origin is None else origins[origin],
        )
        nodes.append(node)
    graph._namespace = record["names"]
    graph.constants = record["constants"]
    graph._meta, graph._writer = record["meta"], record["codegen"]
    return graph


def reduce_graph(graph: Graph) -> tuple[Any, ...]:
    """Tell pickle how to rebuild a graph; the graph of a captured module comes with the module, as that one's graph."""
    owner = graph.owning_module
    for name, entry in entry_points_of(owner).items():
        if entry.graph is graph:
            return _graph_of_entry, (owner, name)
    return _load_graph, (graph_to_record(graph), owner)


def reduce_node(node: Node) -> tuple[Any, ...]:
    """Tell pickle how to rebuild a node: it comes with its graph. Raises GraphError for an erased one."""
    numbers = {other: number for number, other in enumerate(node.graph.nodes)}
    if node not in numbers:
        raise GraphError(f"{node.name} was erased from its graph, and cannot be pickled with it", at=node.origin)
    return _load_node, (node.graph, numbers[node])


def _graph_of_entry(owner: Any, name: str) -> Graph:
    return entry_points_of(owner)[name].graph


def _load_graph(record: dict[str, Any], owner: Any) -> Graph:
    graph = record_to_graph(record)
    graph.owning_module = owner
    return graph


def _load_node(graph: Graph, number: int) -> Node:
    return next(itertools.islice(graph.nodes, number, None))


def _columns_of_format_1(rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Bring the nodes of a format 1 record, a tuple each, into columns."""
    names, ops, targets, args, kwargs, types, metas, origins = zip(*rows, strict=True) if rows else ((),) * 8
    rows_of_places = itertools.count()
    return {
        "names": names,
        "ops": ops,
        "targets": targets,
        "args": args,
        "kwargs": dict(enumerate(kwargs)),
        "types": dict(enumerate(types)),
        "metas": {number: meta for number, meta in enumerate(metas) if meta is not None},
        "places": [origin for origin in origins if origin is not None],
        "origins": [None if origin is None else next(rows_of_places) for origin in origins],
    }


class _RecordWriter:
    """Writes the nodes of a graph as columns, each leaf checked once."""

    def __init__(self, graph: Graph) -> None:
        graph._make_names()
        self.nodes = list(graph.nodes)
        self.numbers = {node: number for number, node in enumerate(self.nodes)}
        self._known: dict[int, tuple[Any, Any]] = {}  # id -> (object, what stands for it)
        self._tuples: dict[type, bool] = {}  # class of named tuples -> whether one pickles if what it holds does

    def columns(self) -> dict[str, Any]:
        """Return names, opcodes, targets and args of all nodes; kwargs, types and meta of those that have any.

        `origins` has the row of each node in `places`, where each place in the program stands once.
        """
        nodes = self.nodes
        places: dict[tuple[Any, ...], int] = {}
        origins = [
            None if node._origin is None else places.setdefault(_fields_of(node.origin), len(places)) for node in nodes
        ]
        first = {row: node for node, row in zip(reversed(nodes), reversed(origins), strict=True)}
        return {
            "names": [node._name for node in nodes],
            "ops": [node._op for node in nodes],
            "targets": [self.leaf(node._target, node, "the target") for node in nodes],
            "args": [self._args(node) for node in nodes],
            "kwargs": {
                number: map_aggregate(node._kwargs, self._in(node, "an argument"))
                for number, node in enumerate(nodes)
                if node._kwargs
            },
            "types": {number: self._type(node) for number, node in enumerate(nodes) if node.type is not None},
            "metas": {
                number: self._meta(node._meta, node) for number, node in enumerate(nodes) if node._meta is not None
            },
            "places": [tuple([self._meta(field, first[row]) for field in fields]) for fields, row in places.items()],
            "origins": origins,
        }

    def _args(self, node: Node) -> tuple[Any, ...]:
        """Return the positional arguments, a node as a list of its number."""
        written: list[Any] = []
        for arg in node._args:
            kind = type(arg)
            if kind is Node and arg in self.numbers:
                written.append([self.numbers[arg]])
            elif kind in ATOMS:
                written.append(arg)
            else:
                written.append(map_aggregate(arg, self._in(node, "an argument")))
        return tuple(written)

    def _type(self, node: Node) -> Any:
        """Return what stands for an annotation: its text where the class cannot be found again. It is nothing run."""
        try:
            return self.leaf(node.type, node, "the type")
        except GraphError:
            return inspect.formatannotation(node.type)

    def _in(self, node: Node, role: str) -> Callable[[Any], Any]:
        return lambda leaf: self.leaf(leaf, node, role)

    def _meta(self, value: Any, node: Node) -> Any:
        """Return what stands for a value in meta: plain containers are rebuilt, named tuples of plain values kept."""
        kind = type(value)
        if kind in _PICKLES:
            return value
        if kind is dict or kind is Meta:
            return {key: self._meta(item, node) for key, item in value.items() if not stands_in(item)}
        if kind is list:
            return [self._meta(item, node) for item in value]
        if kind is tuple:
            return tuple([self._meta(item, node) for item in value])
        if kind is OrderedDict:
            return OrderedDict([(key, self._meta(item, node)) for key, item in value.items()])
        if self._is_plain(value):
            return value
        if self._tuples.get(kind):
            return kind._make([self._meta(item, node) for item in value])
        return self.leaf(value, node, "a value in meta")

    def _is_plain(self, value: Any) -> bool:
        """Tell whether a value is for certain made of what pickles, without trying."""
        kind = type(value)
        if kind in _PICKLES:
            return True
        if kind is dict:
            return all(map(self._is_plain, value.values())) and all(map(self._is_plain, value))
        if kind is list or kind is tuple:
            return all(map(self._is_plain, value))
        known = self._tuples.get(kind)
        if known is None:
            known = self._tuples[kind] = _is_named_tuple(kind) and reference_to(kind) is not None
        return known and all(map(self._is_plain, value))

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
        of_process = _of_process(value)
        if of_process is not None:
            return _Named(of_process)
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


def stands_in(value: Any) -> bool:
    """Tell whether a value has no data, or no number: what torch computes shapes with is of no use to another process.

    >>> stands_in(torch.ones(2)), stands_in([3])
    (False, False)
    """
    if isinstance(value, list | tuple):
        return any(map(stands_in, value))
    is_symbol = isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
    return is_symbol or (isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not None)


def _of_process(value: Any) -> Reference | None:
    """Where something that pickle would copy, or cannot write for torch.save, is found.

    That is a generator of random numbers of the process, a method of one, or a memory format.
    """
    if type(value) is torch.memory_format:
        return Reference("torch", str(value).rpartition(".")[2])
    if value is torch.default_generator:
        return Reference("torch", "default_generator")
    home = _HOMES.get(id(getattr(value, "__self__", None)))
    return None if home is None else Reference(home, value.__name__)


_HOMES = {
    id(getattr(random.random, "__self__", None)): "random",
    id(getattr(numpy.random.rand, "__self__", None)): "numpy.random",
}


def _is_named_tuple(kind: type) -> bool:
    """Tell whether instances of a class are pickled as a tuple of fields: not where the class has its own way."""
    own = ("__reduce__", "__reduce_ex__", "__getstate__")
    return is_named_tuple(kind) and not any(name in kind.__dict__ for name in own)


def _map_plain(value: Any, change: Any) -> Any:
    """Rebuild plain dicts, lists and tuples with `change` applied to what they hold; they stay mutable."""
    kind = type(value)
    if kind is dict:
        return {key: _map_plain(item, change) for key, item in value.items()}
    if kind is list:
        return [_map_plain(item, change) for item in value]
    if kind is tuple:
        return tuple([_map_plain(item, change) for item in value])
    if kind is OrderedDict:
        return OrderedDict([(key, _map_plain(item, change)) for key, item in value.items()])
    if isinstance(value, tuple) and any(type(item) is _Named for item in value):
        return kind._make([change(item) for item in value])
    return change(value)

"""Graphs as plain data for a file, and back: every name checked, every target one that the file may name."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from graphwright.errors import ExportError, GraphError, LoadError, on_screen
from graphwright.ir import Graph, Node, Origin, nodes_in
from graphwright.ops import (
    read_variable,
    write_variable,
)
from graphwright.runtime.guards import expect_outside
from graphwright.runtime.outside import Outside
from graphwright.runtime.pickling import stands_in
from graphwright.runtime.references import describe, is_definition
from graphwright.runtime.saving.plain_data import NotPlain, PlainReader, PlainWriter, check_keys, damaged
from graphwright.runtime.saving.saved_types import is_type_text, type_of, type_record
from graphwright.runtime.trust.names import Trust, source_hash
from graphwright.runtime.trust.sizes import WrittenOut, items_in
from graphwright.runtime.trust.verifier import PLAINLY
from graphwright.values import is_named_tuple

_PLACE = ("file", "line", "function", "source", "statement", "target", "module", "call", "column", "end_column")


class GraphWriter:
    """Writes the graphs of one file; their origins go into one table."""

    def __init__(self, values: PlainWriter) -> None:
        self._values = values
        self.places: list[list[Any]] = []
        self._places: dict[Any, int] = {}
        self.sources: dict[str, str] = {}  # of the functions that the graphs call, hashed

    def record(self, graph: Graph, path: str) -> list[list[Any]]:
        """Write the nodes of a graph, one list each. Raises ExportError for a target or argument that has no name."""
        return [self._node(node, path) for node in graph.nodes]

    def _node(self, node: Node, path: str) -> list[Any]:
        where = f"{path} node {node.name!r}"
        if node.target is read_variable or node.target is write_variable:
            owner, name, *_ = node.args
            raise ExportError(
                f"cannot save the node {node.name!r}: the program uses {name!r} of {describe(owner)}, outside of it",
                at=node.origin,
                fix="keep it in an attribute of a module, or pass it as an argument",
            )
        try:
            called = PLAINLY.get(node.target, node.target)  # `load` sees again where it has to be
            target = called if isinstance(called, str) else self._values.name(called)
            if node.op == "call_function":
                self._note_source(target, node.target)
            args = [self._argument(arg, path) for arg in _given(node)]
            kwargs = {key: self._argument(arg, path) for key, arg in node.kwargs.items()}
        except NotPlain as error:
            raise ExportError(
                f"cannot save the node {node.name!r}: it uses {error}",
                at=node.origin,
                fix="use functions and classes at the top level of modules, and plain values",
            ) from None
        meta = {}
        for key, value in (node._meta or {}).items():
            if key == "parameter_kind":
                meta[key] = {"parameter_kind": value.name}
            elif key != "nn_module_stack" and not stands_in(value):  # the origin says the same as that stack
                try:
                    meta[key] = self._values.attribute(value, where)
                except NotPlain as error:
                    self._values.left_out.append(f"{where}: meta[{key!r}]: {error}")
        kind = type_record(node.type)
        if isinstance(kind, str) and not is_type_text(kind):
            self._values.left_out.append(f"{where}: the annotation {kind!r}, which does more than to name types")
            kind = None
        return [node.name, node.op, target, args, kwargs, kind, meta, self._place(node.origin)]

    def note_method(self, function: Any) -> None:
        """Note a method that the graph calls. Raises LoadError for one that no file may call."""
        self._note_source(self._values.trust.check_method(function), function)

    def _note_source(self, name: Any, target: Any) -> None:
        found = None if isinstance(target, type) else source_hash(target)
        if found is not None:
            self.sources[name] = found

    def _argument(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is Node:
            return {"node": value.name}
        if kind is Graph:
            return {"graph": self.record(value, path)}
        if is_definition(value):
            return {"name": self._values.name(value)}
        if not nodes_in(value):
            return self._values.value(value, path)
        if kind is tuple:
            return {"tuple": [self._argument(item, path) for item in value]}
        if isinstance(value, list):
            return {"list": [self._argument(item, path) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self._values.key(k, path), self._argument(item, path)] for k, item in value.items()]}
        if kind is slice:
            return {"slice": [self._argument(item, path) for item in (value.start, value.stop, value.step)]}
        if is_named_tuple(kind):
            return {"named_tuple": [self._values.name(kind), [self._argument(item, path) for item in value]]}
        raise NotPlain(f"a {kind.__module__}.{kind.__qualname__} of values")

    def _place(self, origin: Origin | None) -> int | None:
        if origin is None:
            return None
        fields: list[Any] = [_line(getattr(origin, name)) for name in _PLACE]
        classes = []
        for kind in (origin.module_type, *[kind for _, kind in origin.stack]):
            try:
                classes.append(None if kind is None else self._values.name(kind))
            except NotPlain:
                classes.append(None)
        fields += [classes[0], [[path, name] for (path, _), name in zip(origin.stack, classes[1:], strict=True)]]
        key = repr(fields)
        if key not in self._places:
            self._places[key] = len(self.places)
            self.places.append(fields)
        return self._places[key]


def _given(node: Node) -> tuple[Any, ...]:
    """The arguments of a node; of what was found outside only what it was called: a file is read in another outside."""
    return (node.args[0], *node.args[1].what) if node.target is expect_outside else node.args


class GraphReader:
    """Reads what `GraphWriter` wrote. Raises LoadError before a graph holds anything that a file may not name."""

    def __init__(self, values: PlainReader, trust: Trust, places: Any, sources: Any) -> None:
        self._values = values
        self._trust = trust
        self._sources = sources
        self._checked: set[str] = set()  # whose source is as it was
        self._written = WrittenOut(values.held)
        self._places = [self._origin(place) for place in places]

    def graph(self, record: Any) -> Graph:
        """Rebuild a graph from its record, and lint it."""
        graph = Graph()
        nodes: dict[str, Node] = {}
        for fields in record:
            name, op, target, args, kwargs, kind, meta, place = fields
            if op == "call_function":
                target = self._function(target)
            elif not isinstance(target, str):
                raise damaged(f"{target!r} is no target of {op}")
            arguments = tuple([self._argument(arg, nodes) for arg in args])
            if op == "call_function" and target is expect_outside:
                arguments = (*arguments[:1], Outside((), [text for text in arguments[1:] if isinstance(text, str)]))
            keywords = {_keyword(key): self._argument(arg, nodes) for key, arg in kwargs.items()}
            self._written.add((arguments, keywords), items_in([args, kwargs]))
            try:
                node = graph.create_node(op, target, arguments, keywords, name, type_of(kind, self._trust))
            except (GraphError, AssertionError) as error:
                raise damaged(str(error).partition("\n")[0]) from error
            if not isinstance(name, str) or node.name != name:
                raise damaged(f"{name!r} is no name of a value, or that of two")
            node._origin = None if place is None else self._places[place]
            node._meta = self._meta(meta, node._origin)
            nodes[name] = node
        try:
            graph.lint()
        except GraphError as error:
            raise damaged(error.message) from error
        return graph

    def check_method(self, function: Any) -> None:
        """Refuse a method that no file may call, or that has another source now."""
        self._check_source(self._trust.check_method(function), function)

    def _function(self, name: Any) -> Any:
        function = self._trust.find(name)
        self._trust.check_called(name, function)
        self._check_source(name, function)
        return function

    def _check_source(self, name: str, function: Any) -> None:
        wanted = None if name in self._checked else self._sources.get(name)
        self._checked.add(name)
        if wanted is not None and source_hash(function) != wanted:
            raise LoadError(
                f"{name} has another source now than when the file was written, and the graph calls it",
                fix="load it with the version it was saved with, or capture and save again",
            )

    def _argument(self, data: Any, nodes: dict[str, Node]) -> Any:
        if type(data) is dict and len(data) == 1:
            ((tag, content),) = data.items()
            if tag == "node":
                if not isinstance(content, str) or content not in nodes:
                    raise damaged(f"no node before this one makes {content!r}")
                return nodes[content]
            if tag == "graph":
                return self.graph(content)
            if tag == "name":  # whether it may stand there is looked at when the graph is whole
                return self._trust.find(content)
            if tag in ("tuple", "list"):
                items = [self._argument(item, nodes) for item in content]
                return tuple(items) if tag == "tuple" else items
            if tag == "dict":
                pairs = [(self._values.key(key), self._argument(item, nodes)) for key, item in content]
                check_keys([key for key, _ in pairs])
                return dict(pairs)
            if tag == "slice":
                start, stop, step = [self._argument(item, nodes) for item in content]
                return slice(start, stop, step)
            if tag == "named_tuple":
                name, items = content
                kind = self._trust.find(name, is_class=True)
                if not issubclass(kind, tuple):
                    raise damaged(f"{name} is no NamedTuple")
                return tuple.__new__(kind, [self._argument(item, nodes) for item in items])
        return self._values.value(data)

    def _meta(self, record: Any, origin: Origin | None) -> dict[str, Any] | None:
        if not record:
            return None
        meta = {} if origin is None else origin.initial_meta()
        for key, value in record.items():
            if key == "parameter_kind":
                meta[key] = inspect._ParameterKind[value["parameter_kind"]]
            else:
                read = self._values.value(value)
                meta[key] = on_screen(read) if isinstance(read, str) else read
        return meta

    def _origin(self, record: Any) -> Origin:
        *fields, kind, stack = record
        if len(fields) != len(_PLACE) or any(isinstance(field, str) and not field.isprintable() for field in fields):
            raise damaged("a place in the program is more than a line")
        named = dict(zip(_PLACE, fields, strict=True))
        types_ = {field.name: field.type for field in dataclasses.fields(Origin)}
        for name, value in named.items():
            expected = {"str": str, "int": int, "int | None": (int, type(None))}[str(types_[name])]
            if not isinstance(value, expected):  # type: ignore[arg-type]
                raise damaged(f"the {name} of a place in the program is {value!r}")
        found = [(str(path), self._class(name)) for path, name in stack]
        classes = tuple([(path, kind) for path, kind in found if kind is not None])
        return Origin(**named, module_type=self._class(kind), stack=classes)

    def _class(self, name: Any) -> Any:
        """The class of this name, for people to read; None where it is not allowed."""
        try:
            return None if name is None else self._trust.find(name, is_class=True)
        except LoadError:
            return None


def _line(value: Any) -> Any:
    """Write a text so that it stays on its line."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(char if char.isprintable() else " " for char in value)
    return value


def _keyword(key: Any) -> str:
    if not isinstance(key, str):
        raise damaged(f"{key!r} is no keyword")
    return key

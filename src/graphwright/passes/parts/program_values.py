"""The values of a captured program by name, those on the sides of branches too, and a program that gives some of them.

The names are those of node_names.py, and the paths of modules where the capture noted what they gave.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from graphwright.capture import noted
from graphwright.errors import PassError
from graphwright.ir import Graph, Node, map_arg, nodes_in
from graphwright.ops import cond, enter_context, exit_context, is_impure, is_region, is_scratch_write, kind_of
from graphwright.passes.simplifying.dead_values import remove_dead_values
from graphwright.passes.support.bodies import ends_by_raising, may_write, module_of, own_bodies
from graphwright.passes.support.node_names import Counts, is_unnamed
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import calls_of_modules, is_guard

_GONE: Any = object()


@dataclass(frozen=True, slots=True)
class _Value:
    """A value, and the node after which it is wanted: what is written to it later does not count."""

    value: Any
    place: Node


@dataclass(slots=True)
class _Table:
    """The values of one graph by name, and the branches in it with the tables of their sides."""

    graph: Graph
    values: dict[str, _Value] = field(default_factory=dict)
    sides: dict[Node, list[_Table]] = field(default_factory=dict)
    hidden: dict[str, Node] = field(default_factory=dict)  # what is inside of loops

    def names(self) -> Iterator[str]:
        """All names, those of hidden values last."""
        yield from self.values
        for tables in self.sides.values():
            for table in tables:
                yield from table.names()
        yield from self.hidden

    def hidden_at(self, name: str) -> Node | None:
        """The loop that a value is inside of, where it is nowhere else."""
        tables = [self]
        node = None
        while tables:
            table = tables.pop()
            if name in table.values:
                return None
            node = node or table.hidden.get(name)
            tables += [side for sides in table.sides.values() for side in sides]
        return node


class ProgramValues:
    """The values of the graph of a captured module; `keep_only` changes the graph, once.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x + 1).relu().neg())
    >>> values = ProgramValues(gm.graph, gm)
    >>> values.names
    ['x', 'add', 'relu', 'neg']
    >>> values.keep_only({"y": "relu"})
    >>> print(gm.code.strip())
    def forward(self, x):
        add = x + 1;  x = None
        relu = add.relu();  add = None
        return {'y': relu}
    """

    def __init__(self, graph: Graph, gm: nn.Module, drops_numbers: bool = False) -> None:
        self._gm = gm
        self._graph = graph
        self._notes: list[Node] = []
        self._keeps_last = drops_numbers  # torchvision calls the last value inside of a module by the module's path
        self._table = self._read(graph, Counts(drops_numbers))
        known = {note.args[1] for note in self._notes}
        if drops_numbers:
            self._table.values.update(_last_of_modules(self._table.values, known))
        else:
            _name_modules(self._table, calls_of_modules(graph), known)
        self._items: dict[Node, list[Any]] = {}  # of branches that give more than they did: a list per side
        self._copies: list[Node] = []  # of what is wanted, where it is wanted

    @property
    def names(self) -> list[str]:
        """The names of all values, in the order of the program."""
        return list(dict.fromkeys(self._table.names()))

    def keep_only(self, outputs: Mapping[str, str]) -> None:
        """Have the program give a dict of these values, by what they are called, and compute nothing else.

        Raises PassError for what is inside of a loop only, before anything is changed, and for the value of a branch
        or loop that is written to later.
        """
        for name in outputs.values():
            loop = self._table.hidden_at(name)
            if loop is not None:
                raise PassError(
                    f"{name!r} is computed inside of a loop or transform, as often as that runs",
                    at=loop.origin,
                    fix="ask for a value behind it",
                )
        output = self._graph.output_node()
        output.args, output.type, output._origin = (None,), None, None
        found = {called: self._find(self._table, name) for called, name in outputs.items()}
        given = self._finish(self._table, list(found.values()))
        output.args = (dict(zip(found, given, strict=True)),)
        for note in self._notes:
            if not note._erased:
                note.graph.erase_node(note)
        for graph in self._graph.all_graphs():
            graph.owning_module = self._gm
        remove_dead_values(self._graph, self._is_needed)
        _drop_empty_blocks(self._graph)
        self._drop_needless_copies()
        self._graph.lint()

    # ---- reading

    def _read(self, graph: Graph, counts: Counts) -> _Table:
        table = _Table(graph)
        of_modules: dict[str, _Value] = {}
        for node in graph.nodes:
            if node.target is noted:
                self._notes.append(node)
                value, path = node.args
                keys = [key for key in _calls_around(node) if key.partition("@")[0] == path]
                of_modules[path if self._keeps_last or not keys else _path(keys[-1])] = _Value(value, node)
            elif node.op != "output" and not is_unnamed(node):
                table.values[counts.name(node)] = _Value(node, node)
            if node.target is cond and own_bodies(node):
                copies = [counts.copy() for _ in own_bodies(node)]
                table.sides[node] = [self._read(*each) for each in zip(own_bodies(node), copies, strict=True)]
                counts.join(copies)
            elif is_region(node):
                for body in own_bodies(node):
                    table.hidden.update(dict.fromkeys(self._read(body, counts.copy()).names(), node))
        table.values.update(of_modules)
        return table

    # ---- finding

    def _find(self, table: _Table, name: str) -> _Value | None:
        """A value in terms of one graph: an item of a branch where only sides of that compute it."""
        if name in table.values:
            return table.values[name]
        for node, sides in reversed(table.sides.items()):
            given = [self._find(side, name) for side in sides]
            if any(value is not None for value in given):
                item = self._another_item(node, given)
                return _Value(item, node)
        return None

    def _another_item(self, node: Node, given: list[_Value | None]) -> Node:
        """Have a branch give one more value."""
        graph = node.graph
        items = self._items.get(node)
        if items is None:
            items = self._items[node] = []
            if node.users:
                with graph.inserting_after(node):
                    before = graph.call_function(operator.getitem, (node, 0))
                for user in list(node.users):
                    if user is not before:
                        user.replace_input_with(node, before)
                items.append(None)  # what it gave before
        items.append(given)
        with graph.inserting_after(node):
            return graph.call_function(operator.getitem, (node, len(items) - 1))

    # ---- writing

    def _finish(self, table: _Table, wanted: list[_Value | None]) -> list[Any]:
        """Have the branches in a graph give what is asked of them; return the values that are wanted of the graph."""
        for node, sides in table.sides.items():
            items = self._items.get(node)
            if items is None:
                continue
            keeps = bool(items) and items[0] is None
            asked = items[1:] if keeps else items
            for i, side in enumerate(sides):
                if ends_by_raising(side.graph):
                    continue
                output = side.graph.output_node()
                before = output.args[0]
                if not keeps:
                    output.args = (None,)
                given = self._finish(side, [each[i] for each in asked])
                output.args = ((before, *given) if keeps else tuple(given),)
                if not keeps:
                    self._cut(side.graph, [each[i] for each in asked])
        if table.graph is self._graph:
            self._cut(table.graph, wanted)
        return [None if value is None else self._copied(value) for value in wanted]

    def _copied(self, value: _Value) -> Any:
        """A copy of a value: what is written to it later must not show. Needless ones go in the end."""
        graph = value.place.graph
        if value.place in self._items:  # its sides have copied it, or it is None
            return value.value
        copies: dict[Node, Node] = {}
        with graph.inserting_before(value.place.next):
            for node in dict.fromkeys(nodes_in(value.value)):
                if node.op != "get_attr" and kind_of(node) != "int":
                    copies[node] = graph.call_method("clone", (node,))
        self._copies += copies.values()
        return map_arg(value.value, lambda node: copies.get(node, node))

    def _cut(self, graph: Graph, wanted: Iterable[_Value | None]) -> None:
        """Erase all that comes after the last of the values wanted, whatever it does."""
        places = [value.place for value in wanted if value is not None]
        read = {used for value in wanted if value is not None for used in nodes_in(value.value)}
        last = max([*places, *read], default=None)
        for node in reversed(graph.nodes):
            if node.op == "placeholder" or node is last or (last is not None and node < last):
                break
            entered = node.args[0] if node.target is exit_context else None
            if node.op != "output" and not node.users and (entered is None or last is None or entered > last):
                graph.erase_node(node)

    def _is_needed(self, node: Node) -> bool:
        """Tell whether a node does what has to be done though nobody reads its value.

        Random numbers that nobody reads, and statistics of a layer whose values nobody reads, need not be.
        """
        find = module_of(self._gm)
        if node.op in ("placeholder", "output") or is_guard(node):
            return True
        return is_impure(node, find(node)) and may_write([node], self._gm) and not is_scratch_write(node, find)

    def _drop_needless_copies(self) -> None:
        """Erase copies of what nothing writes to after it was wanted."""
        calls = Calls(self._gm)
        effects = {graph: GraphEffects(graph, calls) for graph in self._graph.all_graphs()}
        outer = effects[self._graph].has_writers
        for copied in self._copies:
            if copied._erased:
                continue
            graph, node = copied.graph, copied.args[0]
            known = effects[graph]
            if graph is not self._graph and outer:
                continue
            if not known.has_writers or known.writer_of(node, between=(copied, graph.output_node())) is None:
                copied.replace_all_uses_with(node)
                graph.erase_node(copied)
            elif is_region(node) and not _gives_one_value(node):
                raise PassError(
                    f"{node.name} is several values that a branch or loop gives, which may be written to later",
                    at=node.origin,
                    fix="ask for the values that are computed inside, or behind it",
                )


def _gives_one_value(node: Node) -> bool:
    """Tell whether the sides of a branch each give one value of the program."""
    sides = [body for body in own_bodies(node) if not ends_by_raising(body)]
    return node.target is cond and all(isinstance(body.output_node().args[0], Node) for body in sides)


def _last_of_modules(values: Mapping[str, _Value], known: set[Any]) -> dict[str, _Value]:
    """What modules give of which the capture did not note it: the last value that is computed inside."""
    last: dict[str, _Value] = {}
    for name, value in values.items():
        path = name.rpartition(".")[0]
        while path:
            last[path] = value
            path = path.rpartition(".")[0]
    return {path: value for path, value in last.items() if path not in values and path not in known}


def _name_modules(table: _Table, calls: Mapping[str, Any], known: Collection[str]) -> None:
    """Name what modules give of which the capture put no note into the graph, by what it kept of their calls.

    Where nothing is kept, or a pass has put other nodes in the place of those, it is the one value that leaves the
    module. The second call of a module has a number, as that of a layer has. What cannot be told has no name.
    """
    inside: dict[str, list[Node]] = {}
    for node in table.graph.nodes:
        for key in _calls_around(node) if node.op not in ("placeholder", "output") else ():
            inside.setdefault(key, []).append(node)
    by_name = {node.name: node for node in table.graph.nodes}
    for key, nodes in inside.items():
        value = _given(calls[key]["given"], by_name) if key in calls else _GONE
        if value is _GONE:
            leaving = [node for node in nodes if not node.users.keys() <= set(nodes)]
            value = leaving[0] if len(leaving) == 1 else None
        if value is not None and key.partition("@")[0] not in known:
            table.values.setdefault(_path(key), _Value(value, max(nodes[-1], *nodes_in(value))))
    for sides in table.sides.values():
        for side in sides:
            _name_modules(side, calls, known)


def _calls_around(node: Node) -> list[str]:
    """The calls of modules that a node is inside of, outermost first: `path`, and `path@n` for the n-th after that."""
    return list(node.meta.get("nn_module_stack", ()))


def _path(key: str) -> str:
    """What a call of a module gives is called."""
    return key.replace("@", "_")


def _given(names: Any, by_name: Mapping[str, Node]) -> Any:
    """What a call gave, _GONE where nodes of it are gone; None where it is neither one value nor a tuple of some."""
    if isinstance(names, list):
        items = [name if name is None else by_name.get(name, _GONE) for name in names if not isinstance(name, list)]
        return None if len(items) < len(names) or not any(items) else _GONE if _GONE in items else tuple(items)
    return None if names is None else by_name.get(names, _GONE)


def _drop_empty_blocks(graph: Graph) -> None:
    """Erase `with` blocks that have nothing inside any more."""
    for each in graph.all_graphs():
        for node in reversed(each.nodes):
            if node.target is enter_context and node.next.target is exit_context and node.next.args[0] is node:
                each.erase_node(node.next)
                each.erase_node(node)

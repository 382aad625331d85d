"""A captured module as plain data: a record for each node, with all that a reader may ask of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, argument_text, bodies_of, nodes_in, qualified_name
from graphwright.ops import cond, for_loop, is_region, loop_parts, while_loop
from graphwright.runtime import GraphModule, entry_points_of, guards_of, is_guard, summed_up
from graphwright.viz.measuring import Measured, noted_value, value_text

_LONGEST = 2000  # characters of one argument that are kept


@dataclass(frozen=True, slots=True)
class Body:
    """A graph inside of a node: the identity of the graph, and what it is called there."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one node; what is empty stays out of the page.

    id: its name, behind that of the graph it is in: `for_loop/body/add`. graph: that graph, "" for the outermost one.
    call: the function, method or class of module that it calls. stands_for: for the input of a body, what comes in.
    stack: the modules that it is in, outermost first, each as (path, class); module_call: the number of the call of the
        innermost one, from 0.
    value: shapes and dtypes. place: file, line, function and text in the user's program.
    flops, read, written (bytes), parameters, runs, seconds: None where it was not measured.
    """

    id: str
    graph: str
    op: str
    name: str
    call: str
    target: str
    args: tuple[tuple[str, str], ...] = ()
    inputs: tuple[str, ...] = ()
    stands_for: str = ""
    stack: tuple[tuple[str, str], ...] = ()
    value: str = ""
    place: tuple[str, int, str, str] | None = None
    details: tuple[tuple[str, str], ...] = ()
    guards: tuple[str, ...] = ()
    is_guard: bool = False
    bodies: tuple[Body, ...] = ()
    module_call: int = 0
    flops: int | None = None
    read: int | None = None
    written: int | None = None
    parameters: int | None = None
    runs: int | None = None
    seconds: float | None = None

    def plain(self) -> dict[str, Any]:
        """The record for JSON, without what is empty."""
        found = {name: getattr(self, name) for name in _FIELDS}
        shown = {name: value for name, value in found.items() if value or (value == 0 and value is not False)}
        if self.bodies:
            shown["bodies"] = [{"id": body.id, "label": body.label} for body in self.bodies]
        return {name: value for name, value in shown.items() if value != ""}


_FIELDS = tuple(each.name for each in fields(Record))


@dataclass(frozen=True, slots=True)
class Description:
    """A captured module as data: records in the order of the program, generated code, and the line of each node."""

    records: dict[str, Record]
    code: str = ""
    lines: dict[str, int] = field(default_factory=dict)
    guards: tuple[str, ...] = ()


def describe(gm: GraphModule, measured: Measured, with_code: bool = True) -> Description:
    """Describe a captured module, the bodies of its branches and loops, and the captured modules that it calls.

    >>> from graphwright import symbolic_trace
    >>> found = describe(symbolic_trace(lambda x: x.relu() + 1), Measured())
    >>> [(record.id, record.call, record.inputs) for record in found.records.values()]
    [('x', 'input', ()), ('relu', 'relu', ('x',)), ('add', 'add', ('relu',)), ('output', 'output', ('add',))]
    """
    writer = _Writer(measured)
    entries = entry_points_of(gm)
    graphs: dict[str, Graph] = {}
    for name, entry in entries.items():
        if entry.graph not in graphs.values():
            graphs[name] = entry.graph
    for name, graph in graphs.items():
        writer.write(gm, graph, "" if name == "forward" or len(graphs) == 1 else f"{name}()")
    code = gm.recompile() if with_code else None
    lines = {} if code is None else _lines_of(code.lines, writer.ids)
    guards = (str(guard) for graph in graphs.values() for guard in summed_up(guards_of(graph)))
    return Description(
        {record.id: record for record in writer.records}, "" if code is None else code.src, lines, tuple(guards)
    )


class _Writer:
    """Writes the records of graphs, those inside of nodes after these."""

    def __init__(self, measured: Measured) -> None:
        self.records: list[Record] = []
        self.ids: dict[Node, str] = {}
        self._measured = measured
        self._open: list[nn.Module] = []  # captured modules that are being written: one may call itself

    def write(self, owner: nn.Module, graph: Graph, path: str, stands_for: tuple[str, ...] = ()) -> None:
        """Write the records of one graph."""
        self._open.append(owner)
        modules = dict(owner.named_modules())
        nodes = list(graph.nodes)
        prefix = f"{path}/" if path else ""
        self.ids.update({node: f"{prefix}{node.name}" for node in nodes})
        stacks = _stacks_of(nodes, modules)
        said = _guards_by_node(graph)
        inputs = iter(stands_for)
        for node in nodes:
            outer = next(inputs, "") if node.op == "placeholder" else ""
            self._write_node(node, path, modules, stacks[node], said.get(node, ()), outer, owner)
        self._open.pop()

    def _write_node(
        self,
        node: Node,
        path: str,
        modules: Mapping[str, nn.Module],
        stack: tuple[tuple[str, str], ...],
        said: Iterable[str],
        stands_for: str,
        owner: nn.Module,
    ) -> None:
        called = modules.get(str(node.target)) if node.op == "call_module" else None
        is_opened = isinstance(called, GraphModule) and called not in self._open
        own = self.ids[node]
        labels = _labels_of(node) if bodies_of(node) else []
        bodies = [Body(f"{own}/{label}", label) for label in labels] + [Body(f"{own}/graph", "graph")] * is_opened
        self.records.append(
            Record(
                own,
                path,
                node.op,
                node.name,
                _call_of(node, called),
                _target_of(node),
                tuple(_arguments(node)),
                tuple(self.ids[used] for used in node.all_input_nodes),
                stands_for,
                stack,
                self._measured.values.get(node) or noted_value(node),
                _place_of(node),
                tuple(_details(called)),
                tuple(said),
                is_guard(node),
                tuple(bodies),
                node.origin.call if node.origin is not None else 0,
                **self._costs_of(node),
            )
        )
        for body, graph, given in zip(bodies, bodies_of(node), _given(node), strict=False):
            self.write(owner, graph, body.id, tuple(self.ids.get(one, "") for one in given))
        if is_opened and isinstance(called, GraphModule):
            self.write(called, called.graph, f"{own}/graph", tuple(self.ids[one] for one in node.all_input_nodes))

    def _costs_of(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = {"seconds": self._measured.seconds.get(node)}
        if (cost := self._measured.costs.get(node)) is not None:
            found |= {"flops": cost.flops, "read": cost.bytes_read, "written": cost.bytes_written}
            found |= {"parameters": cost.parameters, "runs": cost.runs}
        return found


def _call_of(node: Node, called: nn.Module | None) -> str:
    """What a node calls, in one word."""
    if node.target in _WORDS:
        return _WORDS[node.target]
    if called is not None:
        return type(called).__name__
    if node.op in ("placeholder", "output", "get_attr"):
        return {"placeholder": "input", "output": "output", "get_attr": "attribute"}[node.op]
    if isinstance(node.target, str):
        return node.target.rpartition(".")[2]
    overload = getattr(node.target, "overloadpacket", node.target)  # torch.ops.aten.add.Tensor is `add`
    return str(getattr(overload, "__name__", "") or type(node.target).__name__)


_WORDS: dict[Any, str] = {cond: "if", while_loop: "while", for_loop: "for"}


def _target_of(node: Node) -> str:
    if isinstance(node.target, str):
        return node.target
    try:
        return qualified_name(node.target)
    except GraphError:
        return repr(node.target)


def _arguments(node: Node) -> Iterator[tuple[str, str]]:
    """The arguments as text: by position first, then by name. Graphs are shown as such, not written."""
    for i, value in enumerate(node.args):
        yield str(i), "(a graph)" if isinstance(value, Graph) else _short(argument_text(value))
    for name, value in node.kwargs.items():
        yield name, _short(argument_text(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _details(called: nn.Module | None) -> Iterator[tuple[str, str]]:
    """What a module is made with, and its own parameters and buffers."""
    if called is None or isinstance(called, GraphModule):
        return
    if said := called.extra_repr().strip():
        yield "options", _short(said)
    for name, tensor in [*called.named_parameters(), *called.named_buffers()]:
        yield name, value_text(tensor)


def _place_of(node: Node) -> tuple[str, int, str, str] | None:
    origin = node.origin
    return None if origin is None else (origin.file, origin.line, origin.function, origin.source)


# ---- bodies


def _labels_of(node: Node) -> list[str]:
    """Name the graphs among the arguments of a node after the parameters that take them."""
    try:
        names = [*inspect.signature(node.target).parameters] if callable(node.target) else []
    except (TypeError, ValueError):
        names = []
    places = [i for i, value in enumerate(node.args) if isinstance(value, Graph)]
    return [names[i] if i < len(names) else f"body {i}" for i in places]


def _given(node: Node) -> list[list[Any]]:
    """For each body of a node, the values that its inputs stand for."""
    if not is_region(node):
        return [[] for _ in bodies_of(node)]
    if node.target is cond:
        return [list(node.args[3] if len(node.args) > 3 else ())] * 2
    parts = loop_parts(node)
    held = [*parts.carried, *parts.operands]
    return [[*nodes_in((parts.subject,)), None][:1] + held] if node.target is for_loop else [held, held]


# ---- modules and guards


def _stacks_of(nodes: list[Node], modules: Mapping[str, nn.Module]) -> dict[Node, tuple[tuple[str, str], ...]]:
    """The modules that each node is in. What has no place of its own stands with what reads it first."""
    stacks: dict[Node, tuple[tuple[str, str], ...]] = {}
    for node in reversed(nodes):
        own = _own_stack(node, modules)
        if own is None:
            first = next((user for user in node.users if user in stacks), None)
            own = stacks[first] if first is not None else ()
        stacks[node] = own
    return stacks


def _own_stack(node: Node, modules: Mapping[str, nn.Module]) -> tuple[tuple[str, str], ...] | None:
    """The modules whose `forward` a node is part of, without the module that it calls; None where nobody knows."""
    if node.op in ("placeholder", "output"):
        return ()
    noted = node.meta.get("nn_module_stack")
    if noted:
        stack = [(str(path), _class_name(kind)) for path, kind in noted.values()]
        return tuple((path, kind) for path, kind in stack if path and (node.op != "call_module" or path != node.target))
    if node.origin is not None:
        return tuple((path, _class_name(kind)) for path, kind in node.origin.stack)
    if node.op != "call_module":
        return None
    parts = str(node.target).split(".")
    paths = [".".join(parts[:i]) for i in range(1, len(parts))]
    return tuple((path, type(modules[path]).__name__) for path in paths if path in modules)


def _class_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def _guards_by_node(graph: Graph) -> dict[Node, list[str]]:
    """What the capture took for granted of each value: the guards that read it, and those of a guard node itself."""
    said: dict[Node, list[str]] = {}
    for guard in guards_of(graph):
        if guard.node is None:
            continue
        for node in (guard.node, *_about(guard.name, guard.node)):
            said.setdefault(node, []).append(guard.text)
    return said


def _about(name: str, guard: Node) -> list[Node]:
    """The values that a guard reads; of one that is about an input of that name, this."""
    value = guard.kwargs.get(name) if name else None
    return [*nodes_in((value,))] if value is not None else guard.all_input_nodes


# ---- generated code


def _lines_of(lines: Mapping[int, Node], ids: Mapping[Node, str]) -> dict[str, int]:
    """The line of the generated code that computes each node: its own, or the one that it is written inside of."""
    found: dict[Node, int] = {}
    for line, node in lines.items():
        found.setdefault(node, line)
    for node in reversed(list(ids)):
        if node not in found and len(node.users) == 1 and (user := next(iter(node.users))) in found:
            found[node] = found[user]
    return {ids[node]: line for node, line in found.items() if node in ids}

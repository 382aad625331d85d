"""Stages of a program: modules with the names of the whole, and how what one gives comes to the others."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.analysis import Effects, format_columns
from graphwright.errors import PassError
from graphwright.ir import Graph, Node, map_arg, nodes_in
from graphwright.ops import unpack, write_attribute
from graphwright.runtime import GraphModule, graph_of, part_module


@dataclass(frozen=True, slots=True)
class Link:
    """Where an input of a stage comes from: value `name` of stage `stage`, or input `name` of the program: None."""

    name: str
    stage: int | None

    def __str__(self) -> str:
        return self.name if self.stage is None else f"{self.stage}.{self.name}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its module, which takes `inputs` in this order and gives `outputs`, one as it is, more as a tuple.

    The last one gives what the program gives, and `outputs` is empty. `parameters` are elements, `cost` is what the
    split was balanced by, 0 where it was not.
    """

    name: str
    module: GraphModule
    inputs: tuple[Link, ...]
    outputs: tuple[str, ...]
    nodes: int
    parameters: int
    cost: float = 0.0

    @property
    def writes(self) -> tuple[str, ...]:
        """The inputs that it may write to in place: another stage that is given the same sees that in one process only.

        >>> from graphwright import split, symbolic_trace
        >>> stages = split(symbolic_trace(lambda x: (y := x + 1).relu_() + y), parts=2)
        >>> [stage.writes for stage in stages]
        [(), ()]
        >>> split(symbolic_trace(lambda x: (x + 1).relu_().neg_()), at=["neg_"])[1].writes
        ('relu_',)
        """
        effects = Effects(self.module)
        nodes = graph_of(self.module).nodes
        written = {place.name for node in nodes for place in effects.writes(node) if place.kind == "input"}
        inputs = [node for node in nodes if node.op == "placeholder"]
        return tuple([link.name for link, node in zip(self.inputs, inputs, strict=True) if node.target in written])


@dataclass(frozen=True, slots=True)
class Tied:
    """A parameter or buffer that several stages have: its names in the order of the stages, the first is the owner."""

    names: tuple[str, ...]
    stages: tuple[int, ...]

    @property
    def owner(self) -> int:
        """The first stage that has it."""
        return self.stages[0]


@dataclass(frozen=True, slots=True)
class Split:
    """A program in stages. `module` runs them one after the other; printed, it is a table.

    `tied` are the tensors that several stages have. In one process they are one tensor; where stages go to different
    ones, gradients of the copies have to be added up, and the owner is the one to save.
    """

    stages: tuple[Stage, ...]
    tied: tuple[Tied, ...]
    module: GraphModule

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __getitem__(self, index: int) -> Stage:
        return self.stages[index]

    def __str__(self) -> str:
        rows = [
            (stage.name, str(stage.nodes), f"{stage.parameters:,}", f"{stage.cost:,.6g}",
             " ".join(map(str, stage.inputs)), " ".join(stage.outputs))
            for stage in self.stages
        ]  # fmt: skip
        lines = format_columns(("stage", "nodes", "parameters", "cost", "inputs", "outputs"), rows)
        for tied in self.tied:
            names = " is ".join(dict.fromkeys(tied.names))
            lines.append(f"tied: {names}, in stages {', '.join(map(str, tied.stages))}, owned by {tied.owner}")
        return "\n".join(lines)


def make_stages(gm: nn.Module, graph: Graph, stage_of: Mapping[Node, int], costs: Sequence[float], name: str) -> Split:
    """Make the stages of a graph, given the stage of each node that is no input, attribute or output."""
    count = len(costs)
    _check_written_attributes(stage_of)
    works = [_Work() for _ in range(count)]
    last = count - 1
    output = graph.output_node()
    for argument in graph.placeholders():  # those of the program come first, in their order
        for reader in {stage_of.get(user, last) for user in argument.users}:
            works[reader].values[argument] = works[reader].add_input(argument, None)
    for node in graph.nodes:
        index = last if node is output else stage_of.get(node)
        if index is None:
            continue
        work = works[index]
        for used in (*nodes_in(node._args), *nodes_in(node._kwargs)):
            if used in work.values:
                continue
            if used._op == "get_attr":
                work.values[used] = work.graph.node_copy(used)
                continue
            source = stage_of.get(used)
            work.values[used] = work.add_input(used, source)
            if source is not None:
                works[source].outputs[used] = None
        if node is not output:
            work.values[node] = work.graph.node_copy(node, work.values.__getitem__)
            work.count += 1
    stages = []
    for i, work in enumerate(works):
        if i == last:
            work.graph.output(map_arg(output.args[0], work.values.__getitem__), output.type)
        else:
            given = [work.values[node] for node in work.outputs]
            work.graph.output(given[0] if len(given) == 1 else tuple(given))
        if all(source is None for source in work.inputs.values()):  # what others make has no default
            for used in itertools.takewhile(lambda used: used.args, reversed(work.inputs)):  # nor what `**options` get
                work.values[used].args = used.args
        work.graph.constants = graph.constants
        module = part_module(gm, work.graph, f"{name}Stage{i}")
        parameters = sum(parameter.numel() for parameter in module.parameters())
        inputs = tuple([Link(used.name, source) for used, source in work.inputs.items()])
        outputs = tuple([node.name for node in work.outputs]) if i != last else ()
        stages.append(Stage(f"stage_{i}", module, inputs, outputs, work.count, parameters, costs[i]))
    return Split(tuple(stages), tuple(_tied(stages)), _chain(graph, works, stages, name))


class _Work:
    """A stage that is being made."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[Node, Node] = {}  # nodes of the whole -> of the stage
        self.inputs: dict[Node, int | None] = {}
        self.outputs: dict[Node, None] = {}
        self.count = 0
        self._last: Node | None = None

    def add_input(self, used: Node, source: int | None) -> Node:
        """A new input, behind the others and before all else."""
        self.inputs[used] = source
        name = used.name
        first = self._last.next if self._last is not None else next(iter(self.graph.nodes), None)
        if first is None or first.op == "root":
            made = self.graph.create_node("placeholder", name, (), {}, name, used.type)
        else:
            with self.graph.inserting_before(first):
                made = self.graph.create_node("placeholder", name, (), {}, name, used.type)
        made.target = made.name
        if used._meta is not None:
            made._meta = used._meta.copy()
        self._last = made
        return made


def _chain(graph: Graph, works: Sequence[_Work], stages: Sequence[Stage], name: str) -> GraphModule:
    """A module that runs stages one after the other."""
    whole = Graph()
    values = {node: whole.node_copy(node) for node in graph.nodes if node._op == "placeholder"}
    call: Any = None
    for stage, work in zip(stages, works, strict=True):
        call = whole.create_node("call_module", stage.name, tuple([values[used] for used in work.inputs]))
        count = len(work.outputs)
        items = call if count < 2 else whole.call_function(unpack, (call, count))
        for i, node in enumerate(work.outputs):
            values[node] = items if count < 2 else whole.call_function(operator.getitem, (items, i), name=node.name)
    whole.output(call)
    root = nn.Module()
    for stage in stages:
        root.add_module(stage.name, stage.module)
    root.training = stages[0].module.training
    return part_module(root, whole, f"{name}Stages")


def _tied(stages: Sequence[Stage]) -> Iterator[Tied]:
    found: dict[int, list[tuple[str, int]]] = {}
    for i, stage in enumerate(stages):
        for tensors in (stage.module.named_parameters(), stage.module.named_buffers()):
            for name, tensor in tensors:
                found.setdefault(id(tensor), []).append((name, i))
    for places in found.values():
        if len(places) > 1:
            yield Tied(tuple([name for name, _ in places]), tuple([stage for _, stage in places]))


def _check_written_attributes(stage_of: Mapping[Node, int]) -> None:
    """Refuse that one stage writes an attribute which another one reads or writes."""
    where: dict[str, set[int]] = {}
    written: dict[str, Node] = {}
    for node, stage in stage_of.items():
        if node._target is write_attribute:
            path = str(node.args[0])
            written[path] = node
            where.setdefault(path, set()).add(stage)
    if not written:
        return
    for node, stage in stage_of.items():
        for used in node.all_input_nodes:
            if used._op == "get_attr" and used._target in written:
                where[str(used._target)].add(stage)
    for path, node in written.items():
        if len(where[path]) > 1:
            raise PassError(
                f"one stage would write {path!r}, and another one use it",
                at=node.origin,
                fix="cut where both are on one side",
            )

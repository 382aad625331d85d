"""The program of one stage: what it is given unpacked, its part of the graph, and what goes on from it packed."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from graphwright.distributed.crossings import Constant, Crossings, Device, Form, Leaf, Nested, Remade
from graphwright.distributed.results import Result
from graphwright.errors import PassError
from graphwright.ir import Graph, Node
from graphwright.runtime import GraphModule, expect, expect_state, part_module


def number_to_tensor(number: bool | int | float, dtype: torch.dtype, device: Any = "cpu") -> Tensor:
    """A number as a tensor without dimensions, on the way to another process. Raises PassError for another kind.

    >>> number_to_tensor(3, torch.int64)
    tensor(3)
    """
    kind = bool if dtype is torch.bool else int if dtype is torch.int64 else float
    if type(number) is not kind:
        raise PassError(
            f"a number that goes to another stage was a {kind.__name__} for the example; now it is {number!r}",
            fix="make the stages with an example like these inputs",
        )
    return torch.tensor(number, dtype=dtype, device=device)


def put_numbers_on(module: GraphModule, device: torch.device) -> None:
    """Have a stage make the tensors for numbers on its device."""
    for node in module.graph.find_nodes(op="call_function", target=number_to_tensor):
        node.kwargs = {"device": device}


def stage_program(crossings: Crossings, index: int, result: Result, name: str) -> GraphModule:
    """Make the module of a stage: tensors come in, one argument each, and a tuple of tensors goes out.

    The first takes what the program takes, the last gives what is wanted of what the program returns.
    """
    return _StageProgram(crossings, index).module(result, name)


def _take_any_device(node: Node) -> None:
    """Have a guard of a capture on the meta device, which is no place to run, take inputs on any device."""
    if node.target is expect_state:
        where, *facts = node.args
        node.args = (where, *[fact for fact in facts if fact[2] != torch.device("meta")])


class _StageProgram:
    """A stage that is being made."""

    def __init__(self, crossings: Crossings, index: int) -> None:
        self._crossings, self._index = crossings, index
        self._graph = Graph()
        self._values: dict[Node, Any] = {}  # nodes of the whole -> what has their value here
        self._given: dict[Any, Node] = {}  # leaves -> the tensors that came in
        self._cloned: dict[Any, Node] = {}

    def module(self, result: Result, name: str) -> GraphModule:
        """The whole stage."""
        crossings, index, graph = self._crossings, self._index, self._graph
        self._take()
        for node in crossings.graph.nodes:
            is_own = crossings.stage_of.get(node) == index and node.op != "placeholder"
            if is_own and node.op not in ("get_attr", "output"):
                self._values[node] = graph.node_copy(node, self._value)
                _take_any_device(self._values[node])
        self._check()
        if index == len(crossings.split) - 1:
            graph.output(result.write(graph, self._value))
        else:
            graph.output(tuple([self._sent(leaf) for leaf in crossings.carried[index].values()]))
        graph.constants = crossings.graph.constants
        return part_module(crossings.split[index].module, graph, name)

    def _take(self) -> None:
        """Make the inputs, and of them what the stage reads."""
        crossings, index, graph = self._crossings, self._index, self._graph
        if index == 0:
            for node in crossings.graph.nodes:
                if node.op == "placeholder":
                    self._values[node] = graph.node_copy(node)
            return
        for leaf in crossings.carried[index - 1].values():
            name = f"sent_{leaf.name}" if leaf.node.op == "placeholder" else leaf.name
            made = graph.create_node("placeholder", name, (), {}, name)
            made.target = made.name
            self._given[leaf.key] = made
        # A schedule gives the named inputs of the program to every stage of a process, for the first of them to read.
        graph.create_node("placeholder", "**inputs", (), {}, "inputs")
        for key in crossings.cloned[index]:
            self._cloned[key] = graph.call_method("clone", (self._given[key],))
        for node, form in crossings.forms[index].items():
            self._values[node] = self._made(form)

    def _made(self, form: Form) -> Any:
        """What a value is made of here."""
        graph = self._graph
        if isinstance(form, Leaf):
            tensor = self._tensor(form)
            return tensor if form.number is None else graph.call_method("item", (tensor,))
        if isinstance(form, Constant):
            return form.value
        if isinstance(form, Device):
            return graph.call_function(getattr, (next(iter(self._given.values())), "device"))
        if isinstance(form, Remade):
            return graph.node_copy(form.node, self._value)
        assert isinstance(form, Nested)
        if form.kind is dict:
            return {key: self._made(item) for key, item in form.items.items()}
        return form.kind([self._made(item) for item in form.items])

    def _tensor(self, leaf: Leaf) -> Node:
        """What came in for a leaf, as it is after what the stage writes to it."""
        return self._cloned.get(leaf.key, self._given[leaf.key])

    def _value(self, node: Node) -> Any:
        if node not in self._values:
            assert node.op == "get_attr", node
            self._values[node] = self._graph.node_copy(node)
        return self._values[node]

    def _part(self, node: Node, path: tuple[Any, ...]) -> Any:
        value = self._value(node)
        for key in path:
            value = self._graph.call_function(operator.getitem, (value, key))
        return value

    def _check(self) -> None:
        """Check what the other stages take for granted of values of this one."""
        for check in self._crossings.checks:
            if self._crossings.stage_of[check.node] == self._index:
                value = self._part(check.node, check.path)
                if check.is_length:
                    value = self._graph.call_function(len, (value,))
                self._graph.call_function(expect, (value, check.value, f"{check.node.name}, which other stages know"))

    def _sent(self, leaf: Leaf) -> Any:
        """What goes on to the next stage for a leaf."""
        graph = self._graph
        if self._crossings.stage_of[leaf.node] != self._index:
            return self._tensor(leaf)
        value = self._part(leaf.node, leaf.path)
        if leaf.number is not None:
            return graph.call_function(number_to_tensor, (value, leaf.number))
        return value if leaf.is_dense else graph.call_method("contiguous", (value,))

"""Shapes, dtypes and devices of all values of a captured module, kept up to date while it is edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from graphwright.analysis.randomness import same_randomness
from graphwright.analysis.shapes.evaluation import Evaluation
from graphwright.analysis.shapes.fake_modules import without_log
from graphwright.analysis.shapes.stand_ins import StandIns
from graphwright.analysis.shapes.value_facts import Gap, gap_in, public_part
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node
from graphwright.runtime import as_captured, call_of, graph_of


class Shapes:
    """What the nodes of a captured module give for example inputs, without running it on them.

    `shapes[node]` is the TensorMetadata of a tensor, or the value's nested containers with these in place of tensors;
    None for what has no tensors and for what cannot be told without data (`why(node)` says why). Nodes in the bodies
    of branches and loops are asked in the same way; where data would decide these, each body runs once.

    After edits of the graph, the next question runs what was edited, and what depends on it as far as something else
    comes of it. Where that has to do with what a node changes that another one gave, such as a list or the shape of a
    tensor, everything runs again. Modules are taken to stay what they are: `invalidate(node)` says that a node calls
    something else.

    Asking raises GraphError for nodes of other graphs, and for a node that fails with these inputs, and what reads it.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x @ x.t()).relu())
    >>> x, t, matmul, relu, _ = gm.graph.nodes
    >>> shapes = Shapes(gm, torch.ones(2, 3))
    >>> tuple(shapes[relu].shape)
    (2, 2)
    >>> matmul.args = (t, x)
    >>> tuple(shapes[relu].shape), shapes.device(relu)
    ((3, 3), device(type='cpu'))
    """

    def __init__(self, gm: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> None:
        gm = as_captured(gm)
        self.graph = graph_of(gm)
        self._example = call_of(args, kwargs)
        self._parts: dict[Graph, Evaluation] = {}
        self._runner = StandIns(gm, self._stand_in_for)
        self._root = Evaluation(self.graph, self._runner, self._parts)
        self._grad = torch.is_grad_enabled()
        self._is_new = True

    def __getitem__(self, node: Node) -> Any:
        return public_part(self._described(node), "metadata")

    def device(self, node: Node) -> Any:
        """The device of a tensor, or the value's nested containers with devices in place of tensors; None if unknown.

        Raises as asking for its shape does.
        """
        return public_part(self._described(node), "device")

    def value(self, node: Node) -> Any:
        """What a node gives on fake tensors: a fake tensor, a number, a container of such; None if unknown.

        Values inside of transforms such as `vmap` are not kept. Raises as asking for its shape does.
        """
        self._described(node)
        part = self._parts.get(node.graph)
        value = None if part is None else part.values.get(node)  # no part: it does not run with these inputs
        return None if gap_in(value) is not None else value

    def known_value(self, node: Node) -> Any:
        """What a node gives on fake tensors; None as well where it fails, as a side of a branch may that is not taken.

        Raises GraphError for nodes of other graphs.
        """
        return None if gap_in(self._found(node)) is not None else self.value(node)

    def may_run(self, node: Node) -> bool:
        """Tell whether a node may run with these inputs: not on a side of a branch of which they take the other one."""
        self._update()
        part = self._parts.get(node.graph)
        return part is not None and part.may_run()

    def why(self, node: Node) -> str:
        """Say why the shape of a node is not known, empty where it is: where that began, and what was missing."""
        self._update()
        part = self._parts.get(node.graph)
        if part is None or node not in part.described:
            return "it does not run with these inputs"
        gap = gap_in(part.described[node])
        return "" if gap is None else f"{gap.node.name}: {gap.reason}"

    def invalidate(self, node: Node) -> None:
        """Say that a node does something else though the graph was not edited: its module or attribute changed."""
        self._runner.forget()
        part = self._parts.get(node.graph)
        if part is not None:
            part.invalidate(node)

    @property
    def count(self) -> int:
        """How many nodes ran so far."""
        return self._root.count + sum(part.count for part in self._parts.values() if part is not self._root)

    def _described(self, node: Node) -> Any:
        """What describes the value of a node. Raises GraphError where it fails."""
        described = self._found(node)
        gap = gap_in(described)
        if gap is not None and gap.error is not None:
            raise GraphError(
                f"{gap.node.name} fails with these inputs: {gap.reason}", at=gap.node.origin
            ) from gap.error
        return described

    def _found(self, node: Node) -> Any:
        if not isinstance(node, Node) or node._erased:
            raise GraphError(f"{node!r} is no node of the module", fix="ask for one of its graph, or of a body in it")
        self._update()
        part = self._parts.get(node.graph)
        if part is None and node.graph not in self.graph.all_graphs():
            raise GraphError(f"{node.name} is a node of another graph", at=node.origin)
        return None if part is None else part.described.get(node)

    def _update(self) -> None:
        if self._is_new or self._root.is_stale():
            with without_log(), same_randomness(), torch.set_grad_enabled(self._grad), self._runner.mode:
                self._root.run(self._inputs)
            self._is_new = False

    def _stand_in_for(self, body: Graph, node: Node) -> Callable[..., Any]:
        return self._parts[node.graph].stand_in_for(body, node)

    def _inputs(self) -> Callable[[Node], Any]:
        """The values of the placeholders, made anew: the program may change them."""
        args, kwargs = self._example
        graph = self.graph
        if graph._writer is not None and not kwargs:
            args = graph.process_inputs(*args)  # type: ignore[attr-defined]
        runner = self._runner
        runner.begin()
        args, kwargs = runner.inputs(args, kwargs)
        runner.args_iter, runner._kwargs = iter(args), dict(kwargs)
        found: dict[Node, Any] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                try:
                    found[node] = runner.placeholder(node.target, node.args, {})
                except GraphError as error:
                    found[node] = Gap(node, error.message)
        return found.__getitem__

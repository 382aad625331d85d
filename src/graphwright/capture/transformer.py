"""Rebuilding a graph by running it on proxies."""

from __future__ import annotations

from typing import Any

from graphwright.capture.proxy import Proxy
from graphwright.capture.recording import GraphAppendingTracer
from graphwright.capture.tracer import Tracer
from graphwright.ir import Argument, Graph, Node, Target, map_aggregate
from graphwright.runtime import GraphModule, Interpreter

__all__ = ["Transformer"]


class Transformer(Interpreter):
    """An Interpreter whose values are proxies: what its methods return is recorded in a new graph.

    Override a method to change how an operation is written.

    >>> import torch
    >>> from graphwright import symbolic_trace
    >>> class Swap(Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(torch.neg if target is torch.relu else target, args, kwargs)
    >>> print(Swap(symbolic_trace(lambda x: torch.relu(x))).transform().code.strip())
    def forward(self, x):
        neg = torch.neg(x);  x = None
        return neg
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=self.graph._tracer_cls)
        self.tracer: Tracer | GraphAppendingTracer = GraphAppendingTracer(self.new_graph)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Make the placeholder in the new graph."""
        node = self.new_graph.placeholder(str(target), default_value=args[0] if args else ...)
        return Proxy(node, self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Record the read of an attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a method."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a submodule."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        """Record one node; what it becomes keeps its meta and origin."""
        result = super().run_node(n)
        if isinstance(result, Proxy) and result.node._meta is None:
            if n._meta is not None:
                result.node._meta = dict(n._meta)
            result.node._origin = n._origin
            if result.node.type is None:
                result.node.type = n.type
        return result

    def transform(self) -> GraphModule:
        """Run the graph, and return a module with the graph that was recorded meanwhile."""
        result = self.run()
        if result is not None or self.graph.find_nodes(op="output"):
            output = self.graph.find_nodes(op="output")
            made = self.new_graph.output(map_aggregate(result, lambda v: v.node if isinstance(v, Proxy) else v))
            if output:
                made.type = output[0].type
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)

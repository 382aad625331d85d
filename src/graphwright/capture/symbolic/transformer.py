"""Rebuilding a graph by running it on proxies."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.symbolic.tracer import Tracer
from graphwright.ir import Argument, Graph, Node, Target, map_aggregate
from graphwright.runtime import GraphModule, Interpreter, make_graph_module


class TransformerTracer(Tracer):
    """Records into a new graph; every module is a leaf."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Answer yes: a transformation sees calls of modules as they are in its graph."""
        return True


class Transformer(Interpreter):
    """An Interpreter whose values are proxies: what its methods return is recorded in a new graph.

    Override a method to change how an operation is written. All nodes that it records for one node keep the meta and
    the place in the user's program of that node; inputs and the output keep their types.

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
        self.new_graph._writer = self.graph._writer
        self.tracer: Any = TransformerTracer(self.new_graph)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Make the placeholder in the new graph."""
        _check(target)
        node = self.new_graph.placeholder(target, default_value=args[0] if args else ...)  # type: ignore[arg-type]
        return Proxy(node, self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Record the read of an attribute."""
        _check(target)
        return self.tracer.create_proxy("get_attr", target, args, kwargs)  # type: ignore[no-any-return]

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a method."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a submodule."""
        _check(target)
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        """Record one node; the nodes made for it keep its meta and origin."""
        graph = self.new_graph
        last = graph._root._prev
        result = super().run_node(n)
        made = last._next
        while made is not graph._root:
            if made._meta is None:
                if n._meta is not None:
                    made._meta = dict(n._meta)
                made._origin = n._origin
            made = made._next
        if n._op == "placeholder" and isinstance(result, Proxy) and result.node.type is None:
            result.node.type = n.type
        return result

    def body(self, body: Graph, n: Node) -> Graph:
        """Run the body of a branch, loop or transform, and return the graph that was recorded meanwhile."""
        outer = self.new_graph
        self.new_graph = self.tracer.graph = Graph(tracer_cls=body._tracer_cls)
        try:
            inputs = body.placeholders()
            self._write_output(body, self.run_body(body, *inputs))
            return self.new_graph
        finally:
            self.new_graph = self.tracer.graph = outer

    def transform(self) -> GraphModule:
        """Run the graph, and return a module with the graph that was recorded meanwhile."""
        self._write_output(self.graph, self.run(enable_io_processing=False))
        return make_graph_module(self.module, self.new_graph)

    def _write_output(self, graph: Graph, result: Any) -> None:
        outputs = graph.find_nodes(op="output")
        if result is not None or outputs:
            made = self.new_graph.output(map_aggregate(result, lambda v: v.node if isinstance(v, Proxy) else v))
            for output in outputs:
                made.type, made._origin = output.type, output._origin
                made._meta = None if output._meta is None else dict(output._meta)


def _check(target: Target) -> None:
    if not isinstance(target, str):
        raise AssertionError(f"Expected target to be str, got {type(target)}")

"""Make the programs and graphs that are measured.

`chain` and `chain_graph` grow with a number of nodes; the networks come from models.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from implementations import Implementation

NODE_COUNTS = (1_000, 10_000, 100_000)

_FUNCTIONS = (torch.relu, torch.neg, torch.tanh, torch.sigmoid)


def chain(nodes: int) -> Callable[[Any, Any], Any]:
    """Return a function whose capture has that many operations: operators, functions and methods in turn."""
    relu, sigmoid = torch.relu, torch.sigmoid

    def forward(x, y):  # without annotations: here they would be strings, which torch.fx cannot pickle
        for _ in range(nodes // 5):
            x = x + 1.0
            x = relu(x)
            x = x * y
            x = x.tanh()
            x = sigmoid(x)
        return x

    return forward


def chain_graph(implementation: Implementation, nodes: int, fan_out: bool = False) -> tuple[Any, Any, list[Any]]:
    """Return a graph of that many calls, its placeholder and its calls.

    Each call reads the one before it, or, with `fan_out`, all of them read the placeholder.
    """
    graph = implementation.Graph()
    placeholder = value = graph.placeholder("x")
    calls = []
    for index in range(nodes):
        value = graph.call_function(_FUNCTIONS[index % 4], (placeholder if fan_out else value,))
        calls.append(value)
    graph.output(value)
    return graph, placeholder, calls


def created_graph(implementation: Implementation, nodes: int) -> Any:
    """Return a graph built by nothing but `create_node`."""
    graph = implementation.Graph()
    value = graph.placeholder("x")
    create_node, function = graph.create_node, torch.relu
    for _ in range(nodes):
        value = create_node("call_function", function, (value,), {})
    graph.output(value)
    return graph


def with_names(graph: Any) -> Any:
    """Return the graph with every name made: an implementation may put that off until somebody asks."""
    for node in graph.nodes:
        node.name  # noqa: B018
    return graph


def captured(implementation: Implementation, program: Any) -> Any:
    """Capture a program up to a compiled forward, with nothing left for the first call."""
    module = implementation.symbolic_trace(program)
    module.code  # noqa: B018
    module.forward  # noqa: B018  (an implementation may compile it when somebody looks at it)
    return module

"""Branches and loops as targets without errors, effects and attributes see them."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from graphwright.ir import Graph, Node
from graphwright.ops import delete_attribute, is_impure, raise_error, set_attribute, write_variable

_WRITES = (set_attribute, delete_attribute, write_variable)


def kept_by(node: Node, args: tuple[Any, ...]) -> str | None:
    """The attribute, variable, or list or dict of a module that a node writes to: no target keeps it for the next call.

    `args` is what the node is called with. None for all other nodes.
    """
    if node.op == "call_function" and node.target in _WRITES:
        return str(args[1])
    held = node.args[0] if args and isinstance(args[0], list | dict | set) else None
    while isinstance(held, Node) and held.target is operator.getitem:
        held = held.args[0]
    return str(held.target) if isinstance(held, Node) and held.op == "get_attr" and is_impure(node) else None


def raising_side(branch: Node) -> tuple[Node, int] | None:
    """The node that raises an error on one side of a branch, and which side that is: 0 where its condition holds.

    None where no side raises, and for a branch that is none of a graph.
    """
    for side, body in enumerate(branch.args[1:3]):
        raising = [inner for inner in body.nodes if inner.target is raise_error] if isinstance(body, Graph) else []
        if raising:
            return raising[0], side
    return None


def does_more(body: Graph) -> bool:
    """Tell whether a body does more than to compute values: then it matters how often it runs.

    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(torch.rand, (3,)))
    >>> does_more(graph), does_more(Graph())
    (True, False)
    """
    return any(inner.op.startswith("call") and is_impure(inner) for inner in body.all_nodes())


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Run something while torch.export watches, and leave no trace of it in what that records."""
    mode = torch._guards.detect_fake_mode()
    env = None if mode is None else mode.shape_env
    unseen = contextlib.nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()
    with disable_proxy_modes_tracing(), unseen:
        yield

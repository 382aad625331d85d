"""Captured modules as text for people: classes with the generated `forward`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node


def class_text(
    module: nn.Module,
    name: str,
    options: dict[str, Any],
    code_of: Callable[[nn.Module, dict[str, Any]], str | None],
) -> str:
    """Write a module as a class with its code, and the captured modules directly below it as classes inside.

    `code_of(module, options)` gives the code, None for a module that has none.
    """
    code = (code_of(module, options) or "").lstrip("\n").rstrip()
    pieces = [_indented(code)] if code else []
    for child_name, child in module.named_children():
        if code_of(child, options) is not None:
            pieces.append(_indented(class_text(child, child_name, options, code_of).rstrip("\n")) + "\n")
    body = "\n".join(piece.rstrip("\n") + "\n" for piece in pieces) or "    pass\n"
    return f"class {name or 'GraphModule'}(torch.nn.Module):\n{body}"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line.strip() else "\n" for line in text.splitlines())


class _LazyText:
    """Text that is made when somebody looks: a log record that nobody prints costs nothing."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    def __str__(self) -> str:
        return self._make()


def lazy_graph_text(name: str, gm: Any, maybe_id: int | None = None, **kwargs: Any) -> Any:
    """Return an object whose `str` is a module's readable code under a title, for logging.

    >>> import graphwright
    >>> print(str(lazy_graph_text("before fusion", graphwright.symbolic_trace(lambda x: x + 1))).splitlines()[1])
     ===== before fusion =====
    """

    def make() -> str:
        title = name if maybe_id is None else f"{name} {maybe_id}"
        options = {"print_output": False, **kwargs}
        return graph_text(f"===== {title} =====\n", gm.forward.__code__.co_filename, gm.print_readable(**options))

    return _LazyText(make)


def graph_text(name: str, filename: str, graph_str: str) -> str:
    """Put a title and a file name above the text of a graph, for logging.

    >>> graph_text("before", "model.py", "graph():")
    'TRACED GRAPH\\n before model.py graph():\\n'
    """
    return f"TRACED GRAPH\n {name} {filename} {graph_str}\n"


def node_context(node: Node, num_nodes: int = 2) -> str:
    """Write a node and those before it, `num_nodes` in all, a line each."""
    lines: list[str] = []
    root = node.graph._root
    while node is not root and len(lines) < num_nodes:
        lines.append(str(node.format_node()))  # type: ignore[attr-defined]
        node = node.prev
    return "\n".join(reversed(lines))


def first_module_stack(graph: Graph) -> dict[str, Any] | None:
    """Return `nn_module_stack` of the first called function that has one, else None."""
    for node in graph.nodes:
        if node.op == "call_function" and "nn_module_stack" in node.meta:
            return node.meta["nn_module_stack"]  # type: ignore[no-any-return]
    return None

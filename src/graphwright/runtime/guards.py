"""Guards: what a capture took for granted, checked when the captured module runs.

A guard is a node like any other, so it is printed, run, moved and erased like any other: `expect(value, True,
"model.py:3: if x.dim() == 3:")` raises GuardError when the value is another.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from graphwright.errors import GuardError
from graphwright.ir import Graph, Node

__all__ = ["Guard", "expect", "expect_tensors", "expect_values", "guards_of"]


def expect(value: Any, captured: Any, where: str) -> None:
    """Raise GuardError unless a value is what it was when the program was captured.

    >>> expect(3 > 2, True, "model.py:3: if n > 2:")
    """
    if value is not captured and value != captured:
        raise GuardError(
            f"the program was captured where this was {captured!r}; now it is {value!r}",
            at=where,
            fix="capture again with these inputs as the example",
        )


def expect_values(where: str, captured: dict[str, Any], **values: Any) -> None:
    """Raise GuardError unless arguments have the values that they had when the program was captured.

    >>> expect_values("Model.forward", {"mask": None}, mask=None)
    """
    for name, value in values.items():
        wanted = captured[name]
        if value is not wanted and (type(value) is not type(wanted) or value != wanted):
            raise GuardError(
                f"argument {name!r} was {_brief(wanted)} when the program was captured; now it is {_brief(value)}",
                at=where,
                fix=f"capture again with an example that passes {name}",
            )


def expect_tensors(where: str, captured: dict[str, tuple[Any, int]], **values: Any) -> None:
    """Raise GuardError unless tensors have the dtype and the rank that they had when the program was captured.

    >>> import torch
    >>> expect_tensors("Model.forward", {"x": (torch.float32, 2)}, x=torch.ones(2, 3))
    """
    for name, value in values.items():
        dtype, rank = captured[name]
        if value.dtype != dtype or value.dim() != rank:
            raise GuardError(
                f"argument {name!r} was a {dtype} tensor of {rank} dimensions when the program was captured; "
                f"now it is a {value.dtype} tensor of {value.dim()}",
                at=where,
                fix="capture again with an example of this dtype and rank",
            )


def _brief(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else type(value).__name__


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One thing that a capture took for granted, and the node that checks it."""

    text: str
    node: Node

    def __str__(self) -> str:
        return self.text


def guards_of(graph: Graph) -> list[Guard]:
    """List the guards of a graph, in the order in which they are checked."""
    found = []
    for node in graph.nodes:
        if node.target is expect:
            value, captured, where = node.args
            found.append(Guard(f"{where} [{value} was {captured!r}]", node))
        elif node.target is expect_values:
            where, captured = node.args
            found.extend(Guard(f"{where}: {name} is {_brief(value)}", node) for name, value in captured.items())
        elif node.target is expect_tensors:
            where, captured = node.args
            found.extend(
                Guard(f"{where}: {name} is a {dtype} tensor of {rank} dimensions", node)
                for name, (dtype, rank) in captured.items()
            )
    return found

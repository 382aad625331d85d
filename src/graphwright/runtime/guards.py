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


def expect_values(where: str, **pairs: tuple[Any, Any]) -> None:
    """Raise GuardError unless arguments, each paired with its value at capture, have these values.

    >>> expect_values("Model.forward", mask=(None, None), causal=(True, True))
    """
    for name, (value, captured) in pairs.items():
        if value is not captured and (type(value) is not type(captured) or value != captured):
            raise GuardError(
                f"argument {name!r} was {_brief(captured)} when the program was captured; now it is {_brief(value)}",
                at=where,
                fix=f"capture again with an example that passes {name}",
            )


def expect_tensors(where: str, **kinds: tuple[Any, Any, int]) -> None:
    """Raise GuardError unless tensors, each with its dtype and rank at capture, have these.

    >>> import torch
    >>> expect_tensors("Model.forward", x=(torch.ones(2, 3), torch.float32, 2))
    """
    for name, (value, dtype, rank) in kinds.items():
        if value.dtype != dtype or value.dim() != rank:
            raise GuardError(
                f"argument {name!r} was a {dtype} tensor of {rank} dimensions when the program was captured; "
                f"now it is a {value.dtype} tensor of {value.dim()}",
                at=where,
                fix="capture again with an example of this dtype and rank",
            )


def _brief(value: Any) -> str:
    shown_whole = value is None or isinstance(value, bool | int | float | str | dict | list)
    return repr(value) if shown_whole else type(value).__name__


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One thing that a capture took for granted, and the node that checks it.

    `what` is taken for granted, `at` the user's line or the name of the program.
    """

    text: str
    node: Node
    what: str = ""
    at: str = ""

    def __str__(self) -> str:
        return self.text


def guards_of(graph: Graph) -> list[Guard]:
    """List the guards of a graph, in the order in which they are checked."""
    found = []
    for node in graph.all_nodes():
        if node.target is expect:
            value, captured, where = node.args
            what = f"{value} was {captured!r}"
            found.append(Guard(f"{where} [{what}]", node, what, str(where)))
        elif node.target is expect_values:
            found += [_of_input(node, name, _brief(captured)) for name, (_, captured) in node.kwargs.items()]
        elif node.target is expect_tensors:
            found += [
                _of_input(node, name, f"a {dtype} tensor of {rank} dimensions")
                for name, (_, dtype, rank) in node.kwargs.items()
            ]
    return found


def _of_input(node: Node, name: str, kind: str) -> Guard:
    return Guard(f"{node.args[0]}: {name} is {kind}", node, f"{name} is {kind}", str(node.args[0]))

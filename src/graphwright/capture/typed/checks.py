"""Checks of a capture that took one way: captured again, and on other inputs, it has to be the same program.

Where only the way of the example is captured, other inputs may need another. Both the graphs and the values tell: each
check input is captured, too, and what the two modules compute is compared with the original.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import nn

from graphwright.errors import CaptureError, GraphError, TraceCheckError
from graphwright.ir import Graph
from graphwright.runtime import Entry, GraphModule, graph_of

Call = tuple[tuple[Any, ...], dict[str, Any]]
_MOST_LINES = 40


def keeping_regions(is_leaf: Callable[[nn.Module, str], bool]) -> Callable[[nn.Module, str], bool]:
    """Have captured modules with branches or loops stay one node: only the way of the example is taken elsewhere."""

    def keeps(module: nn.Module, path: str) -> bool:
        return is_leaf(module, path) or (bool(path) and isinstance(module, GraphModule) and _has_regions(module))

    return keeps


def _has_regions(module: GraphModule) -> bool:
    try:
        return graph_of(module).has_bodies
    except GraphError:  # one graph for each of several captures: it has to choose
        return True


def check_outputs(entries: Iterable[Entry], name: str) -> None:
    """Raise CaptureError for a program that returns nothing: none of what it computes would be in the result."""
    for entry in entries:
        outputs = entry.graph.find_nodes(op="output")
        if not outputs or outputs[0].args == (None,):
            raise CaptureError(f"the function returned nothing: {name}", fix="return what it computes")


def read_check_inputs(given: Iterable[Any] | None, read: Callable[[Any], Call]) -> list[Call]:
    """The check inputs, each as (args, kwargs)."""
    return [] if given is None else [read(each) for each in given]


def check_capture(
    root: nn.Module | Callable[..., Any],
    module: GraphModule,
    graph: Graph,
    calls: Sequence[Call],
    capture: Callable[[Call], Graph],
    tolerance: float,
    name: str,
) -> None:
    """Compare a captured module with what its program does on these calls, of which the first is the example's.

    Raises TraceCheckError where capturing another time, or for another call, gives another graph, or where values
    differ by more than the tolerance.
    """
    from graphwright.analysis import verify  # a room that captures do not need

    found: list[str] = []
    for i, call in enumerate(calls):
        what = "the same inputs" if i == 0 else f"check input {i}"
        different = _difference(graph, capture(call))
        if different:
            found.append(f"captured again with {what}, the program is another:\n{different}")
    mode: Literal["train", "eval"] = "train" if isinstance(root, nn.Module) and root.training else "eval"
    report = verify(root, module, list(calls), modes=(mode,), rtol=tolerance, atol=tolerance)
    if not report.ok:
        found.append(f"the captured module gives other values:\n{_indented(str(report).splitlines())}")
    if found:
        raise TraceCheckError(name, "\n".join(found))


def _difference(one: Graph, other: Graph) -> str:
    """The lines in which the text of two graphs differs; empty where it does not."""
    lines = [
        line
        for line in difflib.unified_diff(str(one).splitlines(), str(other).splitlines(), lineterm="", n=1)
        if not line.startswith(("---", "+++", "@@"))
    ]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"... {len(lines) - _MOST_LINES} more lines"]
    return _indented(lines)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)

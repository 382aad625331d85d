"""What is said about an error that comes out of generated code."""

from __future__ import annotations

import operator
import sys
import traceback
from collections.abc import Mapping
from types import FunctionType, TracebackType
from typing import Any

from graphwright.codegen import PythonCode
from graphwright.errors import GraphError, GuardError
from graphwright.ir import Graph, Node, lint, nodes_in
from graphwright.runtime.objects import array_facts, attribute_names, attributes_of, layer_facts


def note_origin(error: Exception, function: FunctionType, code: PythonCode) -> None:
    """Add the user's line to an error that passed through a generated function, to be printed below its message."""
    add_note = getattr(error, "add_note", None)  # Python 3.11 and later
    trace = error.__traceback__
    while trace is not None and add_note is not None:
        if trace.tb_frame.f_code is function.__code__:
            node = code.lines.get(trace.tb_lineno)
            origin = None if node is None else node.origin
            if origin is not None:
                note = f"in the captured program: {origin}"
                if note not in getattr(error, "__notes__", ()):
                    add_note(note)
        trace = trace.tb_next


def raise_misfit(error: Exception, function: FunctionType, code: PythonCode, graph: Graph) -> None:
    """Raise GuardError where what failed was to open an argument: it is of another form than the example's.

    Raises GraphError where a value was used before its node: edits have left the graph in the wrong order.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not function.__code__:
        trace = trace.tb_next
    if trace is None or trace.tb_next is not None:
        return
    if isinstance(error, UnboundLocalError):
        try:
            lint(graph)
        except GraphError as wrong:
            raise wrong from error
    if not isinstance(error, _OPENING_FAILS):
        return
    node = code.lines.get(trace.tb_lineno)
    if node is not None and node.origin is None and node.target not in _OPEN:  # a check of what it opens
        node = next(
            (each for each in nodes_in((node.args, node.kwargs)) if _fails(each, trace.tb_frame.f_locals)), node
        )
    while node is not None and node.op == "call_function" and node.target in _OPEN and node.origin is None:
        node = node.args[0] if node.args and isinstance(node.args[0], Node) else None
    if node is None or node.op != "placeholder":
        return
    value = trace.tb_frame.f_locals.get(node.name)
    kind = type(value).__name__
    form = f"{kind} of length {len(value)}" if isinstance(value, list | tuple | dict | set) else kind
    raise GuardError(
        f"argument {node.name!r} was of another form when the program was captured; now it is {form} ({error!r})",
        at=function.__qualname__,
        fix="capture again with an example of this kind",
    ) from error


def _fails(node: Node, held: Mapping[str, Any]) -> bool:
    """Tell whether what opens an argument raises an error."""
    try:
        _opened(node, held)
    except _OPENING_FAILS:
        return True
    return False


def _opened(node: Node, held: Mapping[str, Any]) -> Any:
    """The part of an argument that a node gives; None where it does more than to open one."""
    if node.op == "placeholder":
        return held.get(node.name)
    if node.op != "call_function" or node.target not in _OPEN:
        return None
    return node.target(*(_opened(arg, held) if isinstance(arg, Node) else arg for arg in node.args))


_OPENING_FAILS = (TypeError, KeyError, IndexError, AttributeError)
_OPEN = (
    len,
    list,
    tuple,
    frozenset,
    operator.getitem,
    getattr,
    attribute_names,
    attributes_of,
    array_facts,
    layer_facts,
)


def print_failure(error: Exception, function: FunctionType, source: str) -> None:
    """Print where in a generated function an error was raised, if it was raised there and in nothing it calls.

    The error itself goes on; this is for people who see the message alone, in a log.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code is not function.__code__:
        return
    lines = source.splitlines()
    here = trace.tb_lineno
    first, last = max(here - 3, 0), min(here + 2, len(lines))
    shown = [*lines[first:here], f"{'~' * len(lines[here - 1])} <--- HERE", *lines[here:last]]
    text = "".join(traceback.format_exception(error))
    where = f"Call using an FX-traced Module, line {here} of the traced Module's generated forward function:"
    print(text, where, *shown, "", sep="\n", file=sys.stderr)

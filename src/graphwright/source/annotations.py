"""What is written beside the parameters of a function: its annotations, as values, for its graph."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any

from graphwright.ir import Graph


def annotate(graph: Graph, function: Callable[..., Any]) -> None:
    """Give parameters and output of a graph the types that the function it was made from says they have.

    >>> import graphwright
    >>> import torch
    >>> def f(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    ...     return x * n
    >>> gm = graphwright.trace(f, (torch.ones(2),))
    >>> [node.type for node in gm.graph.placeholders()], gm.graph.output_node().type
    ([<class 'torch.Tensor'>, <class 'int'>], <class 'torch.Tensor'>)
    """
    known = annotations_of(function)
    if not known:
        return
    for node in graph.placeholders():
        node.type = known.get(str(node.target).lstrip("*"))
    for node in graph.find_nodes(op="output"):
        node.type = known.get("return")


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, evaluated where they are strings; those that cannot be are left out."""
    function = inspect.unwrap(function)
    raw = getattr(function, "__annotations__", None) or {}
    if not any(isinstance(value, str) for value in raw.values()):
        return dict(raw)
    try:
        return typing.get_type_hints(_without_defaults(function))
    except Exception:  # a name that exists only for type checkers
        names = getattr(function, "__globals__", {})
        return {name: known for name, value in raw.items() if (known := _evaluated(value, names)) is not _UNKNOWN}


def _without_defaults(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose annotations are those of another: before Python 3.11, hints follow from a default of None."""
    if type(function) is not FunctionType:
        return function
    bare = FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    bare.__annotations__ = function.__annotations__
    if hasattr(function, "__type_params__"):
        bare.__type_params__ = function.__type_params__  # type: ignore[attr-defined]
    return bare


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation, evaluated if it is a string; _UNKNOWN where that cannot be."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except Exception:
        return _UNKNOWN


_UNKNOWN = object()

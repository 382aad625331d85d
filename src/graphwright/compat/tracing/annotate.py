"""Giving a value of the program a type."""

from __future__ import annotations

from typing import Any

from graphwright.capture import Proxy

__all__ = ["annotate"]


def annotate(val: Any, type: Any) -> Any:
    """Note a type on the node of a value; other values are answered as they are.

    Raises RuntimeError for a value that has a type already.

    >>> import graphwright
    >>> gm = graphwright.symbolic_trace(lambda x: annotate(x + 1, int))
    >>> [node.type for node in gm.graph.nodes]
    [None, <class 'int'>, None]
    """
    if isinstance(val, Proxy):
        if val.node.type is not None:
            raise RuntimeError(
                f"Tried to annotate a value that already had a type on it! Existing type is {val.node.type} and new "
                f"type is {type}. A parameter of a function takes its type from the signature"
            )
        val.node.type = type
    return val

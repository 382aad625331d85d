"""What kind of statement the line of the user's program is that a node comes from."""

from __future__ import annotations

from graphwright.ir import Node


def is_from_if(node: Node) -> bool:
    """Tell whether a node comes from an `if` statement."""
    return _begins(node, "if ", "elif ")


def is_from_for(node: Node) -> bool:
    """Tell whether a node comes from a `for` statement."""
    return _begins(node, "for ")


def is_from_assert(node: Node) -> bool:
    """Tell whether a node comes from an `assert` statement."""
    return _begins(node, "assert ", "assert(")


def is_from_return(node: Node) -> bool:
    """Tell whether a node comes from a `return` statement."""
    return _begins(node, "return ")


def _begins(node: Node, *words: str) -> bool:
    return node.origin is not None and node.origin.source.startswith(words)

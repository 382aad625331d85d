"""The types of items, from the types of their containers."""

from __future__ import annotations

import operator
from typing import Any, get_args, get_origin, get_type_hints

from graphwright.ir import Graph

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph: Graph) -> None:
    """Give `x[i]` a type where `x` has one that says what its items are: a tuple, a list or a NamedTuple.

    Types that are there stay, and so do items of which nothing is known.

    >>> from graphwright.ir import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x", type_expr=tuple[int, str])
    >>> item = graph.call_function(operator.getitem, (x, 1))
    >>> annotate_getitem_nodes(graph)
    >>> item.type
    <class 'str'>
    """
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        if node.type is None and len(node.args) == 2:
            container, index = node.args
            node.type = _item_type(getattr(container, "type", None), index)


def _item_type(container: Any, index: Any) -> Any:
    arguments = get_args(container)
    if get_origin(container) is list:
        return arguments[0] if isinstance(index, int) else None
    if get_origin(container) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return arguments[0] if isinstance(index, int) else None
    is_class = issubclass(type(container), type)  # `tuple[int]` says that it is one before Python 3.11
    if is_class and issubclass(container, tuple) and hasattr(container, "_fields"):
        hints = get_type_hints(container)
        arguments = tuple(hints.get(field) for field in container._fields)
    elif get_origin(container) is not tuple:
        return None
    return arguments[index] if isinstance(index, int) and -len(arguments) <= index < len(arguments) else None

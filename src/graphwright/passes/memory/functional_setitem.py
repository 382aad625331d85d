"""`x[index] = value` as operations that give a new value."""

from __future__ import annotations

import operator
from typing import Any

import torch

from graphwright.ir import Graph, Node
from graphwright.passes.support.tensor_facts import dtype_of, gives_tensor, is_number, sure_rank


def functional_setitem(graph: Graph, x: Node, index: Any, value: Any) -> Node | None:
    """Write what `x` is after `x[index] = value`, at the insert point; None where that is not known to be possible.

    For numbers and slices that is a scatter for each dimension; for one tensor as an index, `index_put`.

    >>> graph = Graph()
    >>> functional_setitem(graph, graph.placeholder("x"), (slice(None), 0), 1.0).target
    'select_scatter'
    """
    if isinstance(index, Node) and not is_number(index):
        if not gives_tensor(index) or not _is_number(value):
            return None
        return graph.call_method("index_put", (x, (index,), graph.call_method("new_full", (x, (), value))))
    places = _places(index)
    dtype = dtype_of(x)
    if places is None or not _may_fit(x, places, value) or (dtype is not None and dtype.is_complex):
        return None  # torch's scatters have no derivatives for complex numbers
    parents: list[tuple[Node, int, Any]] = []
    part = x
    for dim, place in places:
        parents.append((part, dim, place))
        part = _part(graph, part, dim, place)
    if _is_number(value):
        new = graph.call_function(torch.full_like, (part, value))
    else:
        new = graph.call_method("expand_as", (graph.call_method("type_as", (value, part)), part))
    for parent, dim, place in reversed(parents):
        if isinstance(place, slice):
            new = graph.call_method("slice_scatter", (parent, new, dim, place.start, place.stop, place.step or 1))
        else:
            new = graph.call_method("select_scatter", (parent, new, dim, place))
    return new if parents else None


def _is_number(value: object) -> bool:
    return is_number(value) or type(value) is bool


def _places(index: Any) -> list[tuple[int, Any]] | None:
    """The dimensions that an index chooses from, with what it takes there; None for other indices.

    Each is counted as it is after those before it have been taken.
    """
    parts = index if isinstance(index, tuple) else (index,)
    from_the_end = bool(parts) and parts[0] is Ellipsis
    parts = parts[1:] if from_the_end else parts[:-1] if parts and parts[-1] is Ellipsis else parts
    places = []
    dim = -len(parts) if from_the_end else 0
    for part in parts:
        if isinstance(part, slice):
            ends = (part.start, part.stop, part.step)
            if not all(end is None or is_number(end) for end in ends) or isinstance(part.step, Node):
                return None
            if part != slice(None):
                places.append((dim, part))
            dim += 1
        elif is_number(part) and not isinstance(part, float):
            places.append((dim, part))
            dim += from_the_end
        else:
            return None
    return places


def _may_fit(x: Node, places: list[tuple[int, Any]], value: Any) -> bool:
    """Tell whether the value is certain to be expanded to the part that it is written to."""
    if _is_number(value):
        return True
    of_value, of_x = sure_rank(value), sure_rank(x)
    taken = sum(not isinstance(place, slice) for _, place in places)
    return of_value is not None and of_x is not None and of_value <= of_x - taken


def _part(graph: Graph, x: Node, dim: int, place: Any) -> Node:
    if not isinstance(place, slice):
        return graph.call_method("select", (x, dim, place))
    whole = slice(None)
    index: tuple[Any, ...] = (*[whole] * dim, place) if dim >= 0 else (Ellipsis, place, *[whole] * (-1 - dim))
    return graph.call_function(operator.getitem, (x, index))

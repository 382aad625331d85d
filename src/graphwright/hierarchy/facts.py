"""Facts: sizes, dtypes and devices of values, whether they are None, and attributes that nothing writes.

What may be asked again wherever the value or the module is, instead of being handed over. A capture asks for a size
once and uses the answer everywhere. Where modules are functions of their own, each asks for itself: so that equal
layers stay equal, and a layer is not handed the sizes of what it is handed.
"""

from __future__ import annotations

import operator
from collections.abc import Collection

from graphwright.ir import Graph, Node

Facts = dict[Node, tuple[Node, ...]]  # each with the values, and the facts, that it is found by

_METHODS = {"size", "dim", "ndimension", "numel", "nelement", "is_floating_point", "is_complex", "element_size"}
_ATTRIBUTES = {"dtype", "device", "shape", "ndim", "layout"}
_ARITHMETIC = {
    operator.add, operator.sub, operator.mul, operator.neg, operator.eq, operator.ne, operator.lt, operator.le,
    operator.gt, operator.ge, operator.not_,
}  # fmt: skip
_DIVISIONS = {operator.floordiv, operator.mod}  # which raise for zero
# What may give a value another size while it stays the value.
_RESHAPES = {"resize_", "resize_as_", "set_", "t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_"}
_NUMBERS = (bool, int, float)


def facts_of(graph: Graph, written: Collection[str] = ()) -> Facts:
    """The nodes of a graph that ask for sizes and the like, or compute with such; each with what it computes with.

    `written` are the paths of attributes that the program writes: they are no facts. Sizes are none where the program
    changes the size of a value in place.

    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> rows = graph.call_method("size", (x, 0))
    >>> twice = graph.call_function(operator.mul, (rows, 2))
    >>> facts_of(graph)
    {size: (x,), mul: (size,)}
    """
    are_sizes_fixed = not any(_may_resize(node) for node in graph.all_nodes())
    found: Facts = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            if not any(_overlap(str(node.target), path) for path in written):
                found[node] = ()
        elif are_sizes_fixed and _asks(node):
            found[node] = (node.args[0],)
        elif node.op == "call_function" and not node.kwargs and _computes(node, found):
            found[node] = tuple(node.all_input_nodes)
    return found


def _may_resize(node: Node) -> bool:
    return (node.op == "call_method" and node.target in _RESHAPES) or "out" in node.kwargs


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _asks(node: Node) -> bool:
    args = node.args
    if not args or not isinstance(args[0], Node) or node.kwargs:
        return False
    if node.target in (operator.is_, operator.is_not):
        return args[1] is None
    if any(type(other) not in (int, str) for other in args[1:]):
        return False
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and node.target is getattr and args[1] in _ATTRIBUTES


def _computes(node: Node, known: Facts) -> bool:
    if type(node.target).__hash__ is None or node.target not in (_ARITHMETIC | _DIVISIONS):
        return False
    if node.target in _DIVISIONS and (type(node.args[1]) is not int or node.args[1] == 0):
        return False
    return all(arg in known if isinstance(arg, Node) else type(arg) in _NUMBERS for arg in node.args) and any(
        isinstance(arg, Node) for arg in node.args
    )


def leaves_of(fact: Node, facts: Facts) -> list[Node]:
    """The values that a fact is about, and the reads of attributes that it is found by."""
    if not facts.get(fact):
        return [fact]
    return list(dict.fromkeys(leaf for used in facts[fact] for leaf in leaves_of(used, facts)))

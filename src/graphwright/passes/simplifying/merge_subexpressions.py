"""Operations that compute the same, inside and outside of branches and loops, computed once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import PYTHON_OPERATORS, add_operand, call_of, gives_fresh_value, is_impure, is_region
from graphwright.passes.support.bodies import may_write, module_of, own_bodies
from graphwright.runtime import graph_of


@dataclass(frozen=True, slots=True)
class MergeSubexpressions:
    """Compute common subexpressions once; those of a body may be found before the branch or loop that it belongs to.

    Pure operations are merged, in whatever way they are spelled, and not in programs that write in place. Of two
    values that are merged one at least is read only by operations that make values of their own: the program never
    gives back one tensor where it gave two. Operators and functions in `banned` are left alone. Returns the number of
    operations that went.

    >>> import operator
    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x + 1).relu() * (x + 1))
    >>> MergeSubexpressions().run(gm)
    1
    >>> print(gm.code.strip())
    def forward(self, x):
        add = x + 1;  x = None
        relu = add.relu()
        mul = relu * add;  relu = add = None
        return mul
    """

    banned: Collection[Any] = ()

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        graph = graph_of(gm)
        if may_write(graph.nodes, gm):
            return 0
        return _merge(graph, {}, {}, (), gm, self.banned)


_Path = tuple[tuple[Node, Graph], ...]  # the regions that one is inside of, each with the body


def _merge(
    graph: Graph,
    around: dict[Any, Node],
    values: dict[Node, Node],
    path: _Path,
    gm: nn.Module,
    banned: Collection[Any],
) -> int:
    """Merge operations of a graph with each other and with those around it.

    `around` has the known operations by what they compute; `values` says for inputs of a body which value of the
    graphs around they are.
    """
    known = dict(around)
    find = module_of(gm)
    count = 0
    for node in list(graph.nodes):
        if node.op in ("placeholder", "output"):
            continue
        if is_region(node) and own_bodies(node):
            for body in own_bodies(node):
                inside = dict(values)
                inputs, operands = body.placeholders(), node.args[3]
                if operands:
                    for placeholder, operand in zip(inputs[-len(operands) :], operands, strict=True):
                        if isinstance(operand, Node):
                            inside[placeholder] = values.get(operand, operand)
                count += _merge(body, known, inside, (*path, (node, body)), gm, banned)
            continue
        if _is_banned(node, banned) or is_impure(node, find(node), in_any_mode=True):
            continue
        key = _key(node, values)
        if key is None:
            continue
        same = known.get(key)
        if same is None or same._erased:
            known[key] = node
            continue
        if node.op != "get_attr" and not (_is_private(node, find) or _is_private(same, find)):
            continue
        here = _brought_inside(same, path, values)
        node.replace_all_uses_with(here)
        graph.erase_node(node)
        count += 1
    return count


def _is_banned(node: Node, banned: Collection[Any]) -> bool:
    return any(other in (node.target, getattr(node.target, "overloadpacket", None)) for other in banned)


def _brought_inside(value: Node, path: _Path, values: dict[Node, Node]) -> Node:
    """What stands for a value of a graph around in the innermost body."""
    here = value
    for region, body in path:
        if region.graph is here.graph:
            here = add_operand(region, here)[body]
            values[here] = value
    return here


def _is_private(node: Node, find: Any) -> bool:
    return all(user.op != "output" and gives_fresh_value(user, find) for user in node.users)


def _key(node: Node, values: dict[Node, Node]) -> Any:
    """What tells operations apart, in whatever spelling; None where an argument has no hash."""

    def spelled(value: Any) -> Any:
        if isinstance(value, Node):
            return "node", id(values.get(value, value))
        if isinstance(value, tuple | list):
            return type(value), tuple([spelled(item) for item in value])
        if isinstance(value, dict):
            return "dict", tuple([(key, spelled(item)) for key, item in value.items()])
        if isinstance(value, slice):
            return "slice", spelled(value.start), spelled(value.stop), spelled(value.step)
        return type(value), repr(value) if isinstance(value, float) else value

    call = call_of(node) if node.op in ("call_function", "call_method") else None
    key: Any
    if call is None or node.target in PYTHON_OPERATORS:  # `x + y` of numbers is no tensor, as `torch.add` is
        key = (node.op, node.target, spelled(node.args), spelled(node.kwargs))
    else:
        arguments = {name: spelled(value) for name, value in call.arguments.items()}
        exchanged = [arguments.pop(name) for name in call.commutative or ()]
        key = (call.key, tuple(sorted(exchanged, key=str)), tuple(sorted(arguments.items())))
    try:
        hash(key)
    except TypeError:
        return None
    return key

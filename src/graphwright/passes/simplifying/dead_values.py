"""What nothing needs, inside branches and loops too: operations, values that they carry or give, operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import (
    LoopParts,
    cond,
    drop_operands,
    is_impure,
    is_loop,
    is_region,
    is_scratch_write,
    keep_carried,
    loop_parts,
    module_called,
    while_loop,
)
from graphwright.passes.support.bodies import (
    ends_by_raising,
    items_of,
    module_of,
    own_bodies,
    substitute,
)
from graphwright.runtime import graph_of

IsImpure = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class RemoveDeadValues:
    """Erase what nothing reads and what has no effect, in bodies too, and shorten branches and loops to what is needed.

    A branch gives, and a loop carries, only values that something reads; what a loop carries and never changes
    becomes an operand; operands that no body reads go. A branch or loop whose values nobody reads and that has no
    effect goes altogether. Modules are seen in the mode that they are in, training or evaluation. Returns the number of
    changes. `Graph.eliminate_dead_code` does the same.

    >>> import operator
    >>> from graphwright import Graph, GraphModule
    >>> from graphwright.ops import for_loop
    >>> graph, body = Graph(), Graph()
    >>> i, used, unused = (body.placeholder(name) for name in ("i", "used", "unused"))
    >>> _ = body.output((body.call_method("mul", (used, i)), body.call_method("add", (unused, used))))
    >>> x = graph.placeholder("x")
    >>> loop = graph.call_function(for_loop, (range(3), body, (x, 0), ()))
    >>> _ = graph.output(graph.call_function(operator.getitem, (loop, 0)))
    >>> gm = GraphModule(nn.Module(), graph)
    >>> RemoveDeadValues().run(gm)
    1
    >>> print(body)
    graph():
        %i : [num_users=1] = placeholder[target=i]
        %used : [num_users=1] = placeholder[target=used]
        %mul : [num_users=1] = call_method[target=mul](args = (%used, %i), kwargs = {})
        return (mul,)
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        return remove_dead_values(graph_of(gm), _is_seen(module_of(gm)))


def eliminate_dead_code(graph: Graph, is_impure_node: IsImpure | None = None) -> bool:
    """Erase nodes that nothing reads and that have no effect beyond their value; answer whether any went.

    In-place operations, random ones, checks and functions of unknown effect stay; of those in place, only what writes
    to a fresh value that nothing else reads goes. `is_impure_node` decides instead, where given. Bodies of branches and
    loops are seen to as well, with the values that they give, carry or take and that nothing needs. Modules are seen in
    the mode that they are in: of one in evaluation goes, too, what it would do in training.
    """
    return remove_dead_values(graph, is_impure_node or _is_seen(module_called)) > 0


def _is_seen(find: Callable[[Node], nn.Module | None]) -> IsImpure:
    """Whether a node has an effect that something notices, where `find` gives the modules that nodes call."""
    return lambda node: is_impure(node, find(node)) and not is_scratch_write(node, find)


def remove_dead_values(graph: Graph, impure: IsImpure) -> int:
    """Erase from a graph and its bodies what nothing needs, until nothing more goes; return the number of changes."""
    if not graph.has_bodies:  # one walk from the end finds them all
        return _erase_unread(graph, impure)
    count = 0
    while changes := _erase_unread(graph, impure) + sum(_shorten(node, impure) for node in _regions(graph)):
        count += changes
    return count


def _regions(graph: Graph) -> Iterator[Node]:
    for body in reversed(list(graph.all_graphs())):
        yield from (node for node in body.nodes if is_region(node) and own_bodies(node))


def _erase_unread(graph: Graph, impure: IsImpure) -> int:
    count = 0
    for body in list(graph.all_graphs()):
        if body is not graph and ends_by_raising(body):
            continue
        for node in reversed(body.nodes):
            if node.users or (body is not graph and node.op in ("placeholder", "output")):
                continue
            if not _acts(node, impure):
                body.erase_node(node)
                count += 1
    return count


def _acts(node: Node, impure: IsImpure) -> bool:
    """Tell whether a node, or one inside it, has an effect."""
    if impure(node):
        return True
    if not is_region(node):
        return False
    inner = (inner for body in own_bodies(node) for inner in body.nodes)
    return any(_acts(other, impure) for other in inner if other.op not in ("placeholder", "output"))


def _shorten(node: Node, impure: IsImpure) -> int:
    items = items_of(node)
    count = 0
    if items is not None and node.users:
        count += _drop_results(node, items) if node.target is cond else 0
    if is_loop(node) and items is not None and not ends_by_raising(loop_parts(node).body):
        count += _drop_carried(node, items, impure)
    return count + drop_operands(node)


# ---- branches


def _drop_results(node: Node, items: dict[int, list[Node]]) -> int:
    bodies = [body for body in own_bodies(node) if not ends_by_raising(body)]
    values = [body.output_node().args[0] for body in bodies]
    if len({len(value) if isinstance(value, tuple | list) else -1 for value in values}) != 1 or not values:
        return 0
    if not isinstance(values[0], tuple | list) or len(items) == len(values[0]):
        return 0
    kept = sorted(items)
    for body, value in zip(bodies, values, strict=True):
        body.output_node().args = (tuple([value[i] for i in kept]),)
    for new, old in enumerate(kept):
        for taker in items[old]:
            taker.args = (node, new)
    return len(values[0]) - len(kept)


# ---- loops


def _drop_carried(node: Node, items: dict[int, list[Node]], impure: IsImpure) -> int:
    parts = loop_parts(node)
    inputs = parts.body.placeholders()[0 if node.target is while_loop else 1 :][: len(parts.carried)]
    live = _live(node, parts, inputs, set(items), impure)
    same = [i for i in sorted(live) if parts.given[i] is inputs[i]]
    for i in same:  # never changes: an operand
        for taker in items.get(i, ()):
            substitute(taker, parts.carried[i])
            taker.graph.erase_node(taker)
    kept = [i for i in sorted(live) if i not in same]
    if len(kept) == len(parts.carried):
        return 0
    keep_carried(node, kept, same)
    return len(parts.carried) - len(kept)


def _live(node: Node, parts: LoopParts, inputs: list[Node], wanted: set[int], impure: IsImpure) -> set[int]:
    """The carried values that the items wanted, the end of the loop or something with an effect depend on."""
    always = [inner for inner in parts.body.nodes if inner.op not in ("placeholder", "output") and _acts(inner, impure)]
    always += list(nodes_in(parts.stop))
    live = set(wanted)
    if node.target is while_loop:
        live |= {i for i, inner in enumerate(parts.subject.placeholders()[: len(parts.carried)]) if inner.users}
    while True:
        needed: set[Node] = set()
        waiting = [*always, *nodes_in([parts.given[i] for i in live])]
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += value.all_input_nodes
        more = {i for i, placeholder in enumerate(inputs) if placeholder in needed}
        if more <= live:
            return live
        live |= more

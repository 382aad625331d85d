"""Which stretches of a graph may be run again in backward, and putting each into a checkpoint."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from graphwright.analysis import Effects, Place
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import enter_context, exit_context, is_region, transformed
from graphwright.runtime import graph_of, is_guard

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"


class Segments:
    """The stretches of a graph that may be run again: they write to nothing but values of their own.

    `weights` says for each node how much memory it keeps for backward, `crossing` how much a value takes.
    """

    def __init__(self, gm: nn.Module, weights: Mapping[Node, int], crossing: Mapping[Node, int]) -> None:
        self._gm, self._weights, self._crossing = gm, weights, crossing
        self._effects = Effects(gm)
        nodes = list(graph_of(gm).all_nodes())
        self._number = {node: i for i, node in enumerate(nodes)}
        self._writes = {node: self._effects.writes(node) for node in nodes if node.op.startswith("call")}
        self._total = sum(weights.values())
        self._no_cut: set[Node] = set()  # nodes before which a segment may not begin
        graphs = self._opened(graph_of(gm))
        self._stretches = [each for graph in graphs for each in self._find(list(graph.nodes)) if len(each) > 1]

    def _opened(self, graph: Graph) -> Iterator[Graph]:
        """A graph, and the bodies of branches and loops that keep too much to be run again as a whole."""
        yield graph
        for node in graph.nodes if graph.has_bodies else ():
            if self._is_opened(node):
                for body in bodies_of(node):
                    yield from self._opened(body)

    def _is_opened(self, node: Node) -> bool:
        if not is_region(node):
            return False
        inner = (inner for body in bodies_of(node) for inner in body.all_nodes())
        return 3 * sum(self._weights.get(each, 0) for each in inner) > self._total

    def split(self, count: int) -> list[list[Node]]:
        """Split what may be run again into about so many segments that keep about as much, where little crosses."""
        total = self._total
        target = max(1.0, total / count)
        found = []
        for stretch in self._stretches:
            own = sum(self._weights.get(node, 0) for node in stretch)
            if own * 50 >= total:
                found += self._split(stretch, max(1, round(own / target)))
        return [segment for segment in found if len(segment) > 1 and _results(segment) and self._is_left_alone(segment)]

    # ---- stretches

    def _find(self, nodes: Sequence[Node]) -> Iterator[list[Node]]:
        stretch: list[Node] = []
        open_blocks = 0
        for node in nodes:
            if node.op == "get_attr":  # stays outside, without ending a stretch
                continue
            open_blocks += node.target is enter_context
            if not open_blocks and self._may_repeat(node, stretch):
                stretch.append(node)
            else:
                yield stretch
                stretch = []
            open_blocks -= node.target is exit_context
        yield stretch

    def _may_repeat(self, node: Node, stretch: list[Node]) -> bool:
        if not node.op.startswith("call") or is_guard(node):
            return False
        if (node.target is transformed and node.args[0] == _CHECKPOINT) or self._is_opened(node):
            return False
        for inner in (node, *(inner for body in bodies_of(node) for inner in body.all_nodes())):
            if inner.op == "call_module" and _keeps_statistics(self._gm.get_submodule(str(inner.target))):
                return False
        written = [place for place in self._writes[node] if place.kind != "random"]
        made = {each.name: each for each in stretch}
        if any(place.kind != "value" or place.name not in made for place in written):
            return False
        first = min((self._number[made[place.name]] for place in written), default=self._number[node])
        self._no_cut.update(each for each in (*stretch, node) if self._number[each] > first)
        return True

    def _is_left_alone(self, segment: Sequence[Node]) -> bool:
        """Tell whether nothing writes to what a segment reads once it has run: run again, it would read that."""
        inside = set(segment)
        read = {used for node in segment for used in node.all_input_nodes if used not in inside}
        memory: set[Place] = set().union(*(self._effects.memory(used) for used in read)) if read else set()
        for node, written in self._writes.items():
            is_before = node.graph is segment[0].graph and node < segment[0]
            is_later = not (is_before or node in inside or bodies_of(node) or _is_torch_block(node))
            if is_later and any(self._may_meet(one, other) for one in written for other in memory):
                return False
        return True

    def _may_meet(self, written: Place, read: Place) -> bool:
        """Tell whether a write may concern a value; what is not known reaches those of the graph that it is given."""
        return self._effects.may_be_same(written, read) and not (written.kind == "unknown" and read.kind == "value")

    # ---- cutting

    def _split(self, stretch: list[Node], count: int) -> list[list[Node]]:
        weights = [self._weights.get(node, 0) for node in stretch]
        share, cuts, done, start = sum(weights) / count, [0], 0.0, 0
        for turn in range(1, count):
            low, high = share * (turn - 0.4), share * (turn + 0.4)
            best: tuple[int, int] | None = None
            for i in range(start, len(stretch)):
                if done > high:
                    break
                if done >= low and i > cuts[-1] and stretch[i] not in self._no_cut:
                    cost = self._cost(stretch, i)
                    best = min(best, (cost, i)) if best is not None else (cost, i)
                done += weights[i]
                start = i + 1
            if best is not None:
                cuts.append(best[1])
        return [stretch[a:b] for a, b in zip(cuts, [*cuts[1:], len(stretch)], strict=True)]

    def _cost(self, stretch: list[Node], place: int) -> int:
        """How much memory goes across a cut."""
        first = stretch[place]
        before = stretch[:place]
        return sum(self._crossing.get(node, 0) for node in before if any(not user < first for user in node.users))


def _results(segment: Sequence[Node]) -> list[Node]:
    """The nodes of a segment that others read; a check that may raise has none."""
    inside = set(segment)
    return [node for node in segment if any(user not in inside for user in node.users)]


def put_in_checkpoint(segment: Sequence[Node], owner: nn.Module) -> Node:
    """Put nodes that follow one another into the body of a checkpoint; return its node."""
    graph, inside = segment[0].graph, set(segment)
    inputs = list(dict.fromkeys(used for node in segment for used in node.all_input_nodes if used not in inside))
    results = _results(segment)
    body = Graph(owning_module=owner)
    values = {used: body.create_node("placeholder", used.name, (), {}, used.name) for used in inputs}
    for placeholder in values.values():
        placeholder.target = placeholder.name
    for node in segment:
        values[node] = body.node_copy(node, values.__getitem__)
    given = [values[node] for node in results]
    body.output(given[0] if len(given) == 1 else tuple(given))
    with graph.inserting_after(segment[-1]):
        made = graph.call_function(
            transformed, (_CHECKPOINT, body, tuple(inputs), (), {"use_reentrant": False}), name="checkpoint"
        )
    made.origin = results[-1].origin
    place = made
    renamed = []
    for i, node in enumerate(results):
        value = made
        if len(results) > 1:
            with graph.inserting_after(place):
                value = place = graph.call_function(operator.getitem, (made, i))
            value.origin = node.origin
        if node._meta is not None:
            value.meta.update(node.meta)
        node.replace_all_uses_with(value, lambda user: user not in inside)
        renamed.append((value, node.name))
    for node in reversed(segment):
        graph.erase_node(node)
    for value, name in renamed:
        value.name = name
    return made


def _is_torch_block(node: Node) -> bool:
    """Tell whether a node enters or leaves a `with` block of torch's, such as `no_grad`: that writes to no value."""
    entered = node.args[0] if node.target is exit_context else node
    if not isinstance(entered, Node) or entered.target is not enter_context:
        return False
    return str(getattr(entered.args[0], "__module__", "")).partition(".")[0] == "torch"


def _keeps_statistics(module: nn.Module) -> bool:
    """Tell whether a module counts, in training, how often it ran: batch norms do."""
    norms = (one for one in module.modules() if isinstance(one, nn.modules.batchnorm._NormBase))
    return any(norm.track_running_stats for norm in norms)

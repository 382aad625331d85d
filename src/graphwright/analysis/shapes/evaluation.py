"""Values without data for the nodes of one graph, kept up to date: after an edit, what depends on it is run again.

A graph in which nodes change what other nodes gave before - the shape of a tensor, a list - is run again as a whole
where what was edited has to do with something of that kind.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from graphwright.analysis.shapes.fake_regions import run_loop
from graphwright.analysis.shapes.stand_ins import Facts, StandIns
from graphwright.analysis.shapes.surroundings import Surroundings, ambient_state, is_marker
from graphwright.analysis.shapes.value_facts import Gap, describe_value, gap_in, is_mutable, is_same
from graphwright.analysis.values import tensors_in
from graphwright.ir import EditLog, Graph, Node, bodies_of
from graphwright.ops import (
    cond,
    is_impure,
    is_region,
    raise_error,
    read_variable,
    transformed,
    unpack,
    while_loop,
    write_attribute,
    write_variable,
)
from graphwright.runtime import is_guard

Fetch = Callable[[Node], Any]  # the value of a placeholder

_LIMITS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
_UNDECIDED = (FakeTensor, Gap)
_CHECKPOINT = "torch.utils.checkpoint.checkpoint"


class _Missing(Exception):
    """The body of a branch, loop or transform gave nothing."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(gap.reason)
        self.gap = gap


class Evaluation:
    """The values of the nodes of one graph for given inputs, and what describes them, in `values` and `described`.

    `parts` holds the evaluations of all graphs, the bodies of branches and loops included; `count` is how many nodes
    ran so far.
    """

    def __init__(self, graph: Graph, runner: StandIns, parts: dict[Graph, Evaluation]) -> None:
        self.graph = graph
        self.values: dict[Node, Any] = {}
        self.described: dict[Node, Any] = {}
        self.count = 0
        self.around: tuple[Evaluation, Node] | None = None  # of a body, where its branch, loop or transform is
        self._runner, self._parts = runner, parts
        self._log = EditLog(graph)
        self._inside: dict[Node, list[Graph]] = {}  # the bodies that ran for a node
        self._given: Any = None  # what describes the inputs of the last run
        self._ambient: Any = None
        self._changers: set[Node] = set()  # nodes that change what others gave: these run in order, with all others
        self._markers: set[Node] = set()
        parts[graph] = self

    # ---- running

    def run(self, inputs: Callable[[], Fetch], given: Any = ()) -> Any:
        """Run what has to be run, and return what the graph gives.

        `inputs` makes what gives the values of placeholders. `given` describes these: where it is as before and
        nothing was edited, nothing runs.
        """
        ambient, dirty = ambient_state(), self._dirty()
        is_new = self._ambient is None or ambient != self._ambient
        is_other = self._given is None or not is_same(given, self._given)
        if dirty is None or is_new or (self._changers and is_other):
            self._run_all(inputs)
        elif dirty or is_other:
            placeholders = self.graph.placeholders() if is_other else ()
            self._run_some({*dirty, *placeholders}, inputs)
        self._given, self._ambient = given, ambient
        for node in self.graph.find_nodes(op="call_function", target=raise_error, sort=False):
            if isinstance(self.values.get(node), Gap):
                return self.values[node]
        last = self.graph._root.prev
        return self.values.get(last) if last.op == "output" else None

    def forget_values(self) -> None:
        """Let go of the values, not of what describes them: they belong to the transform that gave them."""
        self.values.clear()
        self._ambient = None

    def invalidate(self, node: Node) -> None:
        """Have a node run again."""
        self._log.note(node)

    def may_run(self) -> bool:
        """Tell whether these inputs may come here: not to a side of a branch of which they take the other one."""
        if self.around is None:
            return True
        outer, node = self.around
        pred = node.args[0]
        if isinstance(pred, Node):
            pred = outer.values.get(pred)
        takes_other = (
            node.target is cond
            and isinstance(pred, bool)
            and node.args[1] is not node.args[2]
            and node.args[1 if pred else 2] is not self.graph
        )
        return not takes_other and outer.may_run()

    def is_stale(self) -> bool:
        """Tell whether the graph or a body in it was edited since the last run."""
        return self._log.has_edits or any(map(self._is_stale_inside, self._inside))

    def _is_stale_inside(self, node: Node) -> bool:
        return any(self._parts[body].is_stale() for body in self._inside[node])

    def _dirty(self) -> set[Node] | None:
        """The nodes to run again; None for all."""
        touched = self._log.take()
        if touched is None or any(node in self._markers or is_marker(node) for node in touched):
            return None
        if not self._changers.isdisjoint(touched):
            return None
        dirty = set(filter(self._is_stale_inside, self._inside))
        for node in touched:
            if node._erased:
                dirty.discard(node)
                self._drop(node)
            else:
                dirty.add(node)
        return dirty

    def _drop(self, node: Node) -> None:
        self.values.pop(node, None)
        self.described.pop(node, None)
        self._drop_bodies(node)

    def _drop_bodies(self, node: Node) -> None:
        for body in self._inside.pop(node, ()):
            self._parts.pop(body, None)

    def _run_all(self, inputs: Callable[[], Fetch]) -> None:
        for node in [*self._inside]:
            self._drop(node)
        self.values.clear()
        self.described.clear()
        self._changers.clear()
        fetch = inputs()
        self._markers = set(filter(is_marker, self.graph.nodes))
        with Surroundings(self._markers, self.values, self._runner) as surroundings:
            for node in self.graph.nodes:
                surroundings.go_to(node)
                self._run_node(node, fetch)

    def _run_some(self, dirty: Iterable[Node], inputs: Callable[[], Fetch]) -> None:
        if not self._run_apart(dirty, inputs):
            self._run_all(inputs)

    def _run_apart(self, dirty: Iterable[Node], inputs: Callable[[], Fetch]) -> bool:
        """Run nodes and what depends on them; tell whether that has nothing to do with what nodes change."""
        waiting = list(dirty)
        heapq.heapify(waiting)
        queued = set(waiting)
        fetch: Fetch | None = None
        with Surroundings(self._markers, self.values, self._runner) as surroundings:
            while waiting:
                node = heapq.heappop(waiting)
                queued.discard(node)
                if node.op == "placeholder" and fetch is None:
                    fetch = inputs()
                surroundings.go_to(node)
                if self._changers and self._meets_changes(node):
                    return False
                is_other = self._run_node(node, fetch)
                if self._changers and (node in self._changers or is_mutable(self.values.get(node))):
                    return False
                for user in node.users if is_other else ():
                    if user not in queued:
                        queued.add(user)
                        heapq.heappush(waiting, user)
        return True

    def _meets_changes(self, node: Node) -> bool:
        """Tell whether a node changes what others gave, or reads what is changed in the course of the program."""
        runner = self._runner
        if node in self._changers or (node.target is read_variable and runner.written):
            return True
        if node.op == "get_attr":
            path = str(node.target)
            return any(type(name) is str and f"{path}.".startswith(f"{name}.") for name in runner.written)
        read = [self.values.get(used) for used in node.all_input_nodes]
        return any(map(is_mutable, read)) or any(id(tensor) in runner.changed for tensor in tensors_in(read))

    # ---- one node

    def _run_node(self, node: Node, fetch: Fetch | None) -> bool:
        """Run a node; tell whether something else came of it than before."""
        self.count += 1
        if node not in self._markers:
            self.values[node] = self._value(node, fetch)
        before, after = self.described.get(node, self), describe_value(self.values.get(node))
        self.described[node] = after
        return not is_same(before, after)

    def _value(self, node: Node, fetch: Fetch | None) -> Any:
        if node.op == "placeholder":
            assert fetch is not None
            return fetch(node)
        read = [self.values.get(used) for used in node.all_input_nodes]
        gap = gap_in(read)
        if gap is not None and not _takes_gaps(node, read):
            self._drop_bodies(node)
            return gap
        try:
            watched = self._watched(node, read)
            value = self._call(node)
        except _Missing as missing:
            return missing.gap
        except _LIMITS as error:
            return Gap(node, f"{type(error).__name__}: {error}")
        except Exception as error:
            return Gap(node, str(error), error)
        for tensor, facts in watched:
            if _facts(tensor) != facts:
                self._changers.add(node)
                self._runner.changed.setdefault(id(tensor), (tensor, facts))
        return value

    def _watched(self, node: Node, read: list[Any]) -> list[tuple[Tensor, Facts]]:
        """The tensors that a node may change, as they are now; what changes something else is one of the changers."""
        if node.op in ("get_attr", "output") or is_guard(node) or is_region(node):
            return []
        module = self._runner.fetch_attr(str(node.target)) if node.op == "call_module" else None
        if not is_impure(node, module):
            return []
        if node.target in (write_attribute, write_variable) or any(map(is_mutable, read)):
            self._changers.add(node)
        tensors = tensors_in(read)
        tensors += [tensor._base for tensor in tensors if tensor._base is not None]
        return [(tensor, _facts(tensor)) for tensor in tensors]

    def _call(self, node: Node) -> Any:
        if node.target in (print, breakpoint):
            return None
        bodies = bodies_of(node) if self.graph.has_bodies else []
        runner = self._runner
        outer, runner.env = runner.env, self.values
        try:
            if not bodies:
                return runner.run_node(node)
            for body in self._inside.get(node, ()):
                if body not in bodies:
                    self._parts.pop(body, None)
            self._inside[node] = bodies
            args, kwargs = runner.fetch_args_kwargs_from_env(node)
            return self._call_with_bodies(node, args, kwargs)
        finally:
            runner.env = outer
            if any(body in self._parts and self._parts[body]._changers for body in bodies):
                self._changers.add(node)

    def _call_with_bodies(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.target is cond:
            return _either(*args)
        if is_region(node):
            gap = gap_in(args[0]) if node.target is not while_loop else None
            return gap if gap is not None else run_loop(node.target, args, _UNDECIDED)
        if _is_checkpoint(node):
            return args[1](*args[2], *kwargs.values(), *args[3])
        return self._runner.call_function(node.target, args, kwargs)

    # ---- bodies

    def stand_in_for(self, body: Graph, node: Node) -> Callable[..., Any]:
        """A function that runs a body of one of the nodes."""
        part = self._parts.get(body) or Evaluation(body, self._runner, self._parts)
        part.around = self, node
        keeps_values = is_region(node) or _is_checkpoint(node)

        def run(*inputs: Any) -> Any:
            def fetch() -> Fetch:
                placeholders = body.placeholders()
                return dict(zip(placeholders, inputs, strict=True)).__getitem__

            value = part.run(fetch, [describe_value(value) for value in inputs])
            if not keeps_values:
                part.forget_values()
            gap = value if isinstance(value, Gap) else None if keeps_values else gap_in(value)
            if gap is not None:
                raise _Missing(gap)
            return value

        return run


def _either(pred: Any, true: Callable[..., Any], false: Callable[..., Any], operands: Any) -> Any:
    """What a branch gives: where it is not decided, what its true side does, or the other one where that fails."""
    taken, other = (true, false) if isinstance(pred, _UNDECIDED) or pred else (false, true)
    if any(map(is_mutable, operands)):
        return taken(*operands)
    found: list[Any] = []
    for body in (taken, other):
        try:
            found.append(body(*operands))
        except _Missing as missing:
            found.append(missing.gap)
    is_open = isinstance(pred, _UNDECIDED) and isinstance(found[0], Gap)
    return found[1] if is_open and not isinstance(found[1], Gap) else found[0]


def _is_checkpoint(node: Node) -> bool:
    return node.target is transformed and node.args[0] == _CHECKPOINT


def _takes_gaps(node: Node, read: list[Any]) -> bool:
    """Tell whether a node may be given values that cannot be told: it hands them on, or does without."""
    if node.op == "output" or is_region(node) or _is_checkpoint(node):
        return True
    return node.target in (operator.getitem, unpack) and not any(isinstance(value, Gap) for value in read)


def _facts(tensor: Tensor) -> Facts:
    return tensor.shape, tensor.stride(), tensor.requires_grad, tensor.dtype

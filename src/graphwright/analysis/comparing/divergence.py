"""Where in a graph two runs part: at which module, or between which two.

Both sides run with hooks on the modules that the graph calls. The first of them that reads or returns something else
on the two sides, together with the last one before it that did not, encloses the nodes to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.analysis.values import Fact, Tolerance, compare_facts, facts_of
from graphwright.ir import Graph, Node, nodes_in


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a submodule: its path, how often it was called before, what it read and what it returned."""

    path: str
    index: int
    read: list[Fact]
    returned: list[Fact]


@contextmanager
def recorded_calls(root: nn.Module, paths: Iterable[str]) -> Iterator[list[ModuleCall]]:
    """Record the calls of the submodules at these paths while the block lasts, those aside that `root` lacks."""
    calls: list[ModuleCall] = []
    counts: Counter[str] = Counter()
    entered: dict[str, list[list[Fact]]] = {}

    def before(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            entered.setdefault(path, []).append(facts_of((args, kwargs), path))

        return hook

    def after(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            calls.append(ModuleCall(path, counts[path], entered[path].pop(), facts_of(output, path)))
            counts[path] += 1

        return hook

    known = dict(root.named_modules(remove_duplicate=False))
    handles = []
    for path in paths:
        if path in known:
            handles.append(known[path].register_forward_pre_hook(before(path), with_kwargs=True))
            handles.append(known[path].register_forward_hook(after(path), with_kwargs=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def describe_divergence(
    graph: Graph, original: list[ModuleCall], captured: list[ModuleCall], tolerance: Tolerance
) -> str:
    """Say between which nodes of the captured graph the two runs part."""
    before = {(call.path, call.index): call for call in original}
    nodes = _call_nodes(graph)
    last: Node | None = None
    for call in captured:
        other, node = before.get((call.path, call.index)), nodes.get((call.path, call.index))
        if other is None or node is None:
            continue
        if compare_facts(other.read, call.read, tolerance)[0]:
            return _between(last, node)
        if compare_facts(other.returned, call.returned, tolerance)[0]:
            return f"first at module {call.path!r}: it reads the same and returns something else{_place(node)}"
        last = node
    return _between(last, graph.output_node())


def describe_node(node: Node) -> str:
    """Say that a node is the first to compute something else."""
    if node.op == "call_module":
        return f"first at module {node.target!r}: it returns what the original never computes{_place(node)}"
    return f"first at node {node.name!r}: the original never computes what it gives{_place(node)}"


def _call_nodes(graph: Graph) -> dict[tuple[str, int], Node]:
    """The n-th node that calls a path, by (path, n)."""
    counts: Counter[str] = Counter()
    found: dict[tuple[str, int], Node] = {}
    for node in graph.all_nodes():
        if node.op != "call_module":
            continue
        found[node.target, counts[node.target]] = node
        counts[node.target] += 1
    return found


def _between(last: Node | None, node: Node) -> str:
    """Name the nodes that lead from the last module that agreed to the one that reads something else."""
    start = f"after module {last.target!r}" if last is not None else "from the start"
    end = "what is returned" if node.op == "output" else f"what module {node.target!r} reads"
    suspects = [suspect for suspect in _leading_to(node) if last is None or suspect > last]
    names = ", ".join(f"{suspect.name}{_place(suspect)}" for suspect in suspects[:5])
    more = f" and {len(suspects) - 5} more" if len(suspects) > 5 else ""
    return f"first {start}, in {end}: look at {names or 'its arguments'}{more}"


def _leading_to(node: Node) -> list[Node]:
    """The operations that a node reads from without a module call between, in graph order."""
    found: dict[Node, None] = {}
    waiting = list(nodes_in((node.args, dict(node.kwargs))))
    while waiting:
        read = waiting.pop()
        if read not in found and read.op in ("call_function", "call_method"):
            found[read] = None
            waiting.extend(nodes_in((read.args, dict(read.kwargs))))
    return sorted(found)


def _place(node: Node) -> str:
    return f" ({node.origin})" if node.origin is not None else ""

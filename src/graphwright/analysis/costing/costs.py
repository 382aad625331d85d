"""What a captured module costs: floating-point operations, parameters and bytes, per node and per module.

The graph runs once, node by node, under torch's own count of operations (`torch.utils.flop_counter`), so that a node
counts what the operators behind it count, a module of torch.nn included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from graphwright.analysis.module_state import undisturbed
from graphwright.analysis.report import format_columns
from graphwright.analysis.values import copied_inputs, tensors_in
from graphwright.ir import Node
from graphwright.ops import is_region
from graphwright.runtime import Interpreter, call_of, captured_for, read_attribute


@dataclass(frozen=True, slots=True)
class Cost:
    """What one node or module costs.

    name: of the node, or the dotted path of the module, "" for the whole program.
    kind: what the node calls, or the class of the module.
    module: the dotted path of the module whose `forward` the node is part of.
    flops: floating-point operations, two for a multiplication that is added to a sum, as torch counts them.
    parameters: elements of parameters that it reads, each tensor once.
    bytes_read, bytes_written: of tensors; a view of what is there reads and writes nothing, nor does a branch or loop
        besides the nodes inside of it.
    runs: how often it ran: nodes in the body of a loop more than once, those on a way that was not taken never.
    """

    name: str
    kind: str
    module: str
    flops: int = 0
    parameters: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    runs: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class CostReport:
    """The costs of a program: `nodes` in the order of the graph, and `modules` of the original tree, outer ones first.

    The costs of a module are those of all nodes inside of it; `total` is the whole program's. Printed, it is a table
    of the modules.
    """

    nodes: tuple[Cost, ...]
    modules: tuple[Cost, ...]

    @property
    def total(self) -> Cost:
        """What the whole program costs."""
        return self.modules[0]

    def __getitem__(self, name: str) -> Cost:
        for cost in (*self.modules, *self.nodes):
            if cost.name == name:
                return cost
        raise KeyError(f"no module and no node is called {name!r}")

    def __str__(self) -> str:
        header = ("module", "class", "flops", "parameters", "bytes read", "bytes written")
        rows = [
            (cost.name or "(all)", cost.kind, f"{cost.flops:,}", f"{cost.parameters:,}", f"{cost.bytes_read:,}",
             f"{cost.bytes_written:,}")
            for cost in self.modules
        ]  # fmt: skip
        return "\n".join(format_columns(header, rows))


def costs(gm_or_model: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> CostReport:
    """Run a captured module once on these inputs, and report what each node and module costs.

    A model that is not captured is captured for them. Nothing is left changed: the run is without gradients, and what
    the program writes is put back. Raises GraphError where `kwargs` are none.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> report = costs(model, torch.ones(3, 4))
    >>> report.total.flops, report.total.parameters, report["2"].flops
    (288, 58, 96)
    """
    given, named = call_of(args, kwargs)
    return count(captured_for(gm_or_model, given, named), given, named).report()


def count(gm: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CostCounter:
    """Run a captured module once and count for each node."""
    counter = CostCounter(gm)
    with undisturbed(gm), counter.mode:
        given, named = copied_inputs((args, kwargs))
        counter.run(*given, **named)
    return counter


class _Flops(FlopCounterMode):
    """Counts operations in the whole, not for each module: torch cannot tell modules that get a parameter."""

    def __init__(self) -> None:
        super().__init__(display=False)
        self.mod_tracker = _NoModules()


class _NoModules(ModuleTracker):
    """Tells no module: its hooks fail where gradients are off and an input of a module needs one."""

    def __init__(self) -> None:
        self.parents = {"Global"}

    def __enter__(self) -> _NoModules:
        return self

    def __exit__(self, *args: object) -> None:
        return None


FREE = ("placeholder", "output", "get_attr")


class CostCounter(Interpreter):
    """Runs a graph and counts for each node."""

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.mode = _Flops()
        self.flops: dict[Node, int] = {}
        self.read: dict[Node, int] = {}
        self.written: dict[Node, int] = {}
        self.runs: dict[Node, int] = {}
        self.parameters: dict[Node, dict[int, int]] = {}  # by id: how many elements
        self.shapes: dict[Node, tuple[tuple[int, ...], ...]] = {}  # of the tensors in the value of each node
        self._inside = [0]  # what the nodes in bodies have counted so far, for each region that is running

    def run_node(self, n: Node) -> Any:
        """Run one node and count what it does."""
        before = self.mode.get_total_flops()
        self._inside.append(0)
        given = [] if n.op in FREE else list(tensors_in([self.env[used] for used in n.all_input_nodes]))
        versions = [tensor._version for tensor in given]
        value = super().run_node(n)
        inside = self._inside.pop()
        flops = self.mode.get_total_flops() - before
        self._inside[-1] += flops
        self._add(self.flops, n, flops - inside)
        self._add(self.runs, n, 1)
        self.shapes[n] = tuple(tuple(tensor.shape) for tensor in tensors_in(value))
        if n.op not in FREE and not is_region(n):  # of which the nodes inside are counted
            known = {_memory(tensor) for tensor in given}
            made = [tensor for tensor in tensors_in(value) if _memory(tensor) not in known]
            made += [tensor for tensor, version in zip(given, versions, strict=True) if tensor._version != version]
            self._count_bytes(n, given, made)
        return value

    def _count_bytes(self, node: Node, given: list[Tensor], made: list[Tensor]) -> None:
        held = list(self._held(node))
        self.parameters.setdefault(node, {}).update({id(one): one.numel() for one in held if _is_parameter(one)})
        if made:
            self._add(self.written, node, sum(map(_bytes, made)))
            self._add(self.read, node, sum(map(_bytes, [*given, *held])))

    def _held(self, node: Node) -> Iterator[Tensor]:
        """The parameters and buffers that a node reads besides its inputs; of attributes that are inputs, those."""
        if node.op == "call_module":
            module = self.submodules[str(node.target)]
            yield from module.parameters()
            yield from module.buffers()
        for used in node.all_input_nodes:
            if used.op == "get_attr" and isinstance(one := read_attribute(self.module, str(used.target)), nn.Parameter):
                self.parameters.setdefault(node, {})[id(one)] = one.numel()

    @staticmethod
    def _add(counts: dict[Node, int], node: Node, count: int) -> None:
        counts[node] = counts.get(node, 0) + count

    def report(self) -> CostReport:
        """What all nodes and modules cost."""
        found = {node: self.cost(node) for node in self.graph.all_nodes() if node.op not in FREE}
        return CostReport(tuple(found.values()), tuple(_of_modules(self.module, found, self.parameters)))

    def cost(self, node: Node) -> Cost:
        """What a node cost."""
        origin = node.origin
        module = origin.module if origin is not None else ""
        kind = getattr(node.target, "__name__", str(node.target))
        if node.op == "call_module":
            module, kind = str(node.target), type(self.submodules[str(node.target)]).__name__
        return Cost(
            node.name, kind, module, self.flops.get(node, 0), sum(self.parameters.get(node, {}).values()),
            self.read.get(node, 0), self.written.get(node, 0), self.runs.get(node, 0),
        )  # fmt: skip


def _of_modules(gm: nn.Module, found: dict[Node, Cost], parameters: dict[Node, dict[int, int]]) -> Iterator[Cost]:
    """The costs of each module that has nodes inside, the whole program first."""
    inside: dict[str, list[Node]] = {"": []}
    for node, cost in found.items():
        inside[""].append(node)
        path = cost.module
        while path:
            inside.setdefault(path, []).append(node)
            path = path.rpartition(".")[0]
    kinds = {path: type(module).__name__ for path, module in gm.named_modules(remove_duplicate=False)}
    for path in [*[path for path in kinds if path in inside], *[path for path in inside if path not in kinds]]:
        each = [found[node] for node in inside[path]]
        read: dict[int, int] = {}  # a parameter that several nodes read counts once
        for node in inside[path]:
            read.update(parameters.get(node, {}))
        yield Cost(
            path,
            kinds.get(path, ""),
            path.rpartition(".")[0],
            sum(cost.flops for cost in each),
            sum(read.values()),
            sum(cost.bytes_read for cost in each),
            sum(cost.bytes_written for cost in each),
            max((cost.runs for cost in each), default=0),
        )


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)


def _memory(tensor: Tensor) -> Any:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

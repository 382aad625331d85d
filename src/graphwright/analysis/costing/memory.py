"""How much memory a captured module takes, predicted without running it: after each node, and at its peak."""

from __future__ import annotations

import copy
import functools
import linecache
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from graphwright.analysis.costing.storages import Storages
from graphwright.analysis.module_state import variables_kept
from graphwright.analysis.report import format_columns
from graphwright.analysis.shapes.fake_modules import with_fake_tensors
from graphwright.analysis.shapes.fake_regions import is_raised_by_program, run_on_fake
from graphwright.analysis.values import tensors_in
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node
from graphwright.runtime import Interpreter, call_of, captured_for, graph_of, read_attribute


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What memory there is while and after a node runs, in bytes; in the body of a loop, the most of all rounds.

    name: of the node. kind: what it calls, or the class of the module. module: the dotted path of the module whose
        `forward` it is part of.
    kept: how much more there is after it than before, negative where it is the last to use something.
    inside: how much more there was at most while it ran: what a module or operator makes for itself counts.
    live: how much there is after it.
    node: the node itself.
    """

    name: str
    kind: str
    module: str
    kept: int = 0
    inside: int = 0
    live: int = 0
    node: Node | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The memory that a call of a program takes, in bytes: `nodes` in the order in which they first run.

    Parameters, buffers and inputs are there before and count in `held` alone.

    peak: the most that there is on the way, in backward too, where that was asked for.
    peak_node: the node that runs then; "" where it is backward, or nothing takes any.
    after_forward: what there is when the module returns: its outputs, and what is saved for backward.
    gradients: of the parameters, which are there after backward.
    Printed, it is a table of the nodes that take or free memory.
    """

    nodes: tuple[MemoryUse, ...]
    peak: int
    peak_node: str
    after_forward: int
    gradients: int
    held: int

    def __getitem__(self, name: str) -> MemoryUse:
        for use in self.nodes:
            if use.name == name:
                return use
        raise KeyError(f"no node that runs is called {name!r}")

    def __str__(self) -> str:
        header = ("node", "kind", "module", "kept", "inside", "live")
        rows = [
            (use.name, use.kind, use.module, f"{use.kept:,}", f"{use.inside:,}", f"{use.live:,}")
            for use in self.nodes
            if use.kept or use.inside
        ]
        where = f" at {self.peak_node}" if self.peak_node else " in backward"
        return "\n".join([*format_columns(header, rows), f"peak {self.peak:,} bytes{where}"])


def memory(
    gm_or_model: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None, *, backward: bool = False
) -> MemoryReport:
    """Predict the memory that a call of a captured module takes; nothing is computed, and nothing changes.

    The module runs on tensors without data, and the storages that live are counted: views share one, and what operators
    of torch make inside of modules is seen. Only what a kernel keeps to itself is not. The peak is the one of the
    generated code; for the nodes, the module runs node by node, each value freed after its last use. Without `backward`
    the run is without gradients; with it, the sum of what the program returns is differentiated, so that saved
    activations stay until then. Where data decides branches or loops, each body runs about once. Raises GraphError
    where an operation cannot do without data. A model that is not captured is captured for the call.

    >>> from graphwright import trace
    >>> x = torch.ones(8, 16)
    >>> gm = trace(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)), (x,))
    >>> memory(gm, (x,)).peak, memory(gm, (x,), backward=True).after_forward
    (4096, 2176)
    """
    given = call_of(args, kwargs)
    gm = captured_for(gm_or_model, *given)
    run = _Run(gm, given)
    try:
        with variables_kept(gm), run.mode, run.storages, torch.set_grad_enabled(backward):
            result = run.run(*run.given[0], **run.given[1])
            run.settle()
        after_forward = run.storages.live
        try:
            forward, peak = _peaks_of_code(gm, given, backward)
        except (DataDependentOutputException, DynamicOutputShapeException):  # more than branches depends on data
            forward = peak = run.storages.peak
            if backward:
                with run.mode, run.storages:
                    _differentiate(result)
                peak = run.storages.peak
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(
            f"the program does not run without data: {str(error).partition(chr(10))[0]}",
            at=None if run.running is None else run.running.origin,
            fix="give inputs with which it runs; where sizes depend on data, its memory has to be measured",
        ) from error
    names = dict(zip(run.graph.all_nodes(), graph_of(gm).all_nodes(), strict=True))
    return MemoryReport(
        tuple(_named(use, names[node], gm) for node, use in run.uses.items()),
        peak,
        names[run.peak_node].name if run.peak_node is not None and peak == forward else "",
        after_forward,
        _bytes([one for one in gm.parameters() if one.requires_grad]) if backward else 0,
        _bytes(run.held),
    )


def peak_memory(
    gm_or_model: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None, *, backward: bool = False
) -> int:
    """Predict the peak that `memory` reports, without the nodes: in less than half of the time. Raises as it does.

    >>> from graphwright import trace
    >>> x = torch.ones(8, 16)
    >>> peak_memory(trace(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)), (x,)), x)
    4096
    """
    given = call_of(args, kwargs)
    gm = captured_for(gm_or_model, *given)
    try:
        return _peaks_of_code(gm, given, backward)[1]
    except GraphError:
        raise
    except Exception:  # says more about what it is that cannot do without data
        return memory(gm, *given, backward=backward).peak


class _Run(Interpreter):
    """Runs a copy of a module on fake tensors and notes what memory there is."""

    def __init__(self, gm: nn.Module, given: Any) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        super().__init__(with_fake_tensors(gm, self.mode))
        self.extra_traceback = False
        self.given = _on_fake(given, self.mode)
        self.held = [*self.module.parameters(), *self.module.buffers(), *tensors_in(self.given)]
        self.storages = Storages(self.held)
        self.uses: dict[Node, MemoryUse] = {}
        self.running: Node | None = None
        self.peak = 0
        self.peak_node: Node | None = None
        self._finished: tuple[Node, int] | None = None  # the last node that ran, and what there was before it

    def run_node(self, n: Node) -> Any:
        """Run one node and note what memory there is meanwhile."""
        self.settle()
        self.running = n
        storages = self.storages
        before, outer_peak = storages.live, storages.peak
        storages.peak = before
        self.uses.setdefault(n, MemoryUse("", "", ""))
        value = super().run_node(n)
        highest = storages.peak
        storages.peak = max(highest, outer_peak)
        if highest > self.peak:
            self.peak, self.peak_node = highest, n
        use = self.uses[n]
        self.uses[n] = replace(use, inside=max(use.inside, highest - before))
        self.settle()
        self._finished = n, before
        return value

    def settle(self) -> None:
        """Note what there is after the last node, now that what nothing reads any more is gone."""
        if self._finished is not None:
            node, before = self._finished
            use, live = self.uses[node], self.storages.live
            self.uses[node] = replace(
                use, kept=max(use.kept, live - before) if use.live else live - before, live=max(use.live, live)
            )
            self._finished = None

    def body(self, body: Graph, n: Node) -> Any:
        """Run all bodies node by node."""
        return functools.partial(self.run_body, body)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; a branch or loop that data decides goes one way through each of its bodies."""
        return run_on_fake(super().call_function, target, args, kwargs)


def _peaks_of_code(gm: nn.Module, given: Any, backward: bool) -> tuple[int, int]:
    """The peaks of forward and of the whole run of the generated code, which frees values at the end of a statement."""
    denied: set[Any] = set()  # where yes leads to an error of the program's
    while True:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        module, (args, kwargs) = with_fake_tensors(gm, mode), _on_fake(given, mode)
        held = [*module.parameters(), *module.buffers(), *tensors_in((args, kwargs))]
        storages = _Deciding(held, denied)
        try:
            with variables_kept(gm), mode, storages, torch.set_grad_enabled(backward):
                result = module(*args, **kwargs)
                forward = storages.peak
                if backward:
                    _differentiate(result)
                return forward, storages.peak
        except Exception as error:
            line = next((line for line in reversed(storages.asked) if line not in denied), None)
            if line is None or not is_raised_by_program(error):
                raise
            denied.add(line)


class _Deciding(Storages):
    """Answers what code asks of the data of truth values: yes, but each `while` ends after one round.

    It is no for the lines `denied`. What is run again in backward asks again, and gets the same answers.
    """

    def __init__(self, known: Iterable[Tensor], denied: Container[Any]) -> None:
        super().__init__(known)
        self._denied = denied
        self.asked: Counter[Any] = Counter()  # the lines that asked, and how often

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.ops.aten._local_scalar_dense.default and args[0].dtype is torch.bool:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_TORCH):
                frame = frame.f_back
            line = frame.f_code, frame.f_lineno
            self.asked[line] += 1
            if line in self._denied:
                return False
            if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("while "):
                return self.asked[line] % 2 == 1
            return self.asked[line] <= _PATIENCE
        return super().__torch_dispatch__(function, types, args, kwargs)


_PATIENCE = 256  # a loop that ends where something is not so would go on for ever
_TORCH = str(Path(torch.__file__).parent)


def _on_fake(value: Any, mode: FakeTensorMode) -> Any:
    """Copy what a call is given, with fake tensors in place of tensors."""
    return copy.deepcopy(value, {id(tensor): mode.from_tensor(tensor) for tensor in tensors_in(value)})


def _differentiate(result: Any) -> None:
    wanted = [tensor for tensor in tensors_in(result) if tensor.requires_grad and tensor.is_floating_point()]
    if not wanted:
        raise GraphError("the program returns nothing that has gradients", fix="leave out backward=True")
    total = torch.stack([tensor.sum() for tensor in wanted]).sum() if len(wanted) > 1 else wanted[0].sum()
    total.backward()


def _named(use: MemoryUse, node: Node, gm: nn.Module) -> MemoryUse:
    origin = node.origin
    module, kind = origin.module if origin is not None else "", getattr(node.target, "__name__", str(node.target))
    if node.op == "call_module":
        module, kind = str(node.target), type(read_attribute(gm, str(node.target))).__name__
    return replace(use, name=node.name, kind=kind, module=module, node=node)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Of the storages of tensors, each once."""
    strided = [tensor for tensor in tensors if tensor.layout is torch.strided]
    return sum({tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in strided}.values())

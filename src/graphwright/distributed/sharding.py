"""What fully_shard wraps: units of a program, as large as the memory of a process allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from graphwright.analysis import format_columns
from graphwright.analysis import memory as memory_of
from graphwright.errors import PassError
from graphwright.hierarchy import as_flat
from graphwright.passes import Split, Stage, split
from graphwright.runtime import GraphModule, as_captured


@dataclass(frozen=True, slots=True)
class ShardUnit:
    """A part of a program whose parameters are gathered and freed together; `bytes` are those of its parameters.

    is_wrapped: whether `fully_shard` wraps it itself. What has parameters that another unit has, too, stays with the
    root, which gathers these once.
    """

    name: str
    module: GraphModule
    bytes: int
    is_wrapped: bool


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Units to wrap by `fully_shard`, and `module`, the program that runs them one after the other, to wrap at last.

    `apply(mesh)` does both. Bytes are those of one process: state is its part of parameters, gradients and optimizer,
    `gathered` what is whole at one time, `activations` what forward keeps for backward. Printed, it is a table.
    """

    units: tuple[ShardUnit, ...]
    module: GraphModule
    processes: int
    state: int
    gathered: int
    activations: int

    @property
    def peak(self) -> int:
        """Bytes that a process needs at most, as predicted."""
        return self.state + self.gathered + self.activations

    def __iter__(self) -> Iterator[ShardUnit]:
        return iter(self.units)

    def __str__(self) -> str:
        rows = [(unit.name, f"{unit.bytes:,}", "itself" if unit.is_wrapped else "with the root") for unit in self.units]
        lines = format_columns(("unit", "bytes", "wrapped"), rows)
        return "\n".join(
            [
                *lines,
                f"{self.processes} processes, each: state {self.state:,} + gathered {self.gathered:,}"
                f" + activations {self.activations:,} = {self.peak:,} bytes",
            ]
        )

    def apply(self, mesh: DeviceMesh | None = None, **options: Any) -> GraphModule:
        """Wrap the units and then the whole by `fully_shard(module, mesh=mesh, **options)`; return the whole."""
        from torch.distributed.fsdp import fully_shard

        for unit in self.units:
            if unit.is_wrapped:
                fully_shard(unit.module, mesh=mesh, **options)
        fully_shard(self.module, mesh=mesh, **options)
        return self.module


def shard_plan(
    gm: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    memory: int | None = None,
    processes: DeviceMesh | int = 1,
    at: Iterable[str] | None = None,
    optimizer: float = 2.0,
) -> ShardPlan:
    """Cut a captured module into units for `fully_shard`, the fewest with which a process stays within `memory` bytes.

    A layer of a flat capture is no call, so that hooks on it would not run: the units are stages of `split`, or begin
    at the modules that `at` names. Nothing runs: `args` and `kwargs`, example inputs of one process, say what
    activations take. `optimizer` is how many bytes of state there are for one of a parameter, 2 for Adam. While one
    unit computes, the next is gathered: at most two are whole, and the gradients of one.

    The captured module keeps its parameters, which the units share under their names. Raises PassError where no number
    of units stays within the memory, with the least that would do.

    >>> import torch
    >>> from graphwright import trace
    >>> model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
    >>> x = torch.ones(4, 64)
    >>> print(shard_plan(trace(model, x), x, memory=180_000, processes=8))
    unit     bytes   wrapped
    stage_0  33,280  itself
    stage_1  33,280  itself
    stage_2  33,280  itself
    stage_3  33,280  itself
    8 processes, each: state 66,560 + gathered 99,840 + activations 8,192 = 174,592 bytes
    """
    gm = as_flat(as_captured(gm))
    given = args if isinstance(args, tuple) else (args,)
    count = processes if isinstance(processes, int) else processes.size()
    kept = memory_of(gm, given, kwargs, backward=True).after_forward
    whole = sum(parameter.numel() * parameter.element_size() for parameter in gm.parameters())
    state = int(whole * (2 + optimizer)) // count

    def plan_of(cut: Split | None) -> ShardPlan:
        units = tuple(_units(cut)) if cut is not None else ()
        rest = whole - sum(unit.bytes for unit in units if unit.is_wrapped)
        most = max([unit.bytes for unit in units if unit.is_wrapped], default=0)
        module = gm if cut is None else cut.module
        assert isinstance(module, GraphModule)
        return ShardPlan(units, module, count, state, 3 * most + 2 * rest, kept)

    if at is not None:
        plans: Iterable[ShardPlan] = [plan_of(split(gm, at=at))]
    else:
        plans = _finer(gm, plan_of)
    best: ShardPlan | None = None
    for plan in plans:
        best = plan if best is None or plan.peak < best.peak else best
        if memory is None or plan.peak <= memory:
            return plan
    assert best is not None
    raise PassError(
        f"no cut keeps a process within {memory:,} bytes: the least is {best.peak:,}, of which {best.state:,} are its"
        f" part of parameters, gradients and optimizer, {best.gathered:,} gathered, {best.activations:,} activations",
        fix="use more processes, smaller batches, or InsertCheckpoints for the activations",
    )


def _finer(gm: nn.Module, plan_of: Any) -> Iterator[ShardPlan]:
    """Plans of ever more units, until there are no more places to cut."""
    yield plan_of(None)
    parts = 2
    while True:
        try:
            cut = split(gm, parts=parts, balance="params")
        except PassError:
            return
        yield plan_of(cut)
        parts += max(1, parts // 4)
        if parts > 512:
            return


def _units(cut: Split) -> Iterator[ShardUnit]:
    shared = {stage for tied in cut.tied for stage in tied.stages}
    for i, stage in enumerate(cut):
        yield ShardUnit(stage.name, stage.module, _bytes(stage), i not in shared and _bytes(stage) > 0)


def _bytes(stage: Stage) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in stage.module.parameters())

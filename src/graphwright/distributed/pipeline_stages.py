"""The stages of a program, as the processes take them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

from graphwright.analysis import format_columns
from graphwright.distributed.checkpoints import Checkpoint, copy_with, load_module, names_of
from graphwright.distributed.expectations import Inputs, Outputs
from graphwright.distributed.stage_programs import put_numbers_on
from graphwright.distributed.tied_gradients import add_up
from graphwright.errors import PassError
from graphwright.passes import Tied
from graphwright.runtime import GraphModule


@dataclass(frozen=True, slots=True)
class PipelinePart:
    """One stage: its module, and what goes into it and out of it.

    `inputs` are the names of what the stage before sends, or of the program's inputs for the first, `outputs` of what
    goes on to the next, `relayed` of those outputs that this stage only passes on. `takes` and `gives` are like the
    tensors of a microbatch that come in, those given by position for the first, and go out; they have no data.
    """

    module: GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    relayed: tuple[str, ...]
    takes: tuple[Tensor, ...]
    gives: tuple[Tensor, ...]


class Stages:
    """A program in stages for torch.distributed.pipelining. Printed, it is a table.

    `stages[i]` is the i-th `PipelinePart`. `tied` are the parameters and buffers that several stages have; `notes` say
    what is not the same in microbatches as in one batch.
    """

    def __init__(
        self, gm: nn.Module, parts: list[PipelinePart], tied: tuple[Tied, ...], inputs: Inputs, microbatches: int
    ) -> None:
        self.tied, self.microbatches = tied, microbatches
        self._parts, self._inputs = parts, inputs
        self._names = names_of(gm)
        self._checkpoint: tuple[Checkpoint, Mapping[str, Tensor]] | None = None
        self._made: dict[int, PipelineStage] = {}  # of this process

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[PipelinePart]:
        return iter(self._parts)

    def __getitem__(self, index: int) -> PipelinePart:
        return self._parts[index]

    def __str__(self) -> str:
        rows = []
        for i, part in enumerate(self._parts):
            count = sum(parameter.numel() for parameter in part.module.parameters())
            sent = sum(tensor.numel() * tensor.element_size() for tensor in part.gives) if part.outputs else 0
            rows.append((str(i), f"{count:,}", f"{sent:,}", " ".join(part.outputs), " ".join(part.relayed)))
        lines = format_columns(("stage", "parameters", "bytes sent", "sends", "passes on"), rows)
        for tied in self.tied:
            lines.append(f"tied: {' is '.join(dict.fromkeys(tied.names))}, in stages {_listed(tied.stages)}")
        return "\n".join([*lines, *self.notes])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a step in microbatches does otherwise than one on the whole batch."""
        norms = [
            name
            for part in self._parts
            for name, module in part.module.named_modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
            and (module.training or not module.track_running_stats)
        ]
        return (f"batch norms see single microbatches: {', '.join(dict.fromkeys(norms))}",) if norms else ()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the stages one after the other in this process, on one microbatch, and give what the last one gives."""
        value = self._parts[0].module(*args, **kwargs)
        for part in self._parts[1:]:
            value = part.module(*value)
        return value

    def load(
        self,
        checkpoint: str | os.PathLike[str],
        rank: int | None = None,
        *,
        device: torch.device | str = "cpu",
        values: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Read parameters and buffers of stages from safetensors, each stage its own and nothing else.

        `checkpoint` is a file, an index of shards (`model.safetensors.index.json`) or a folder with one of these. With
        `rank` that stage is read now; without, each stage when `stage` makes it, on its device. `values` are tensors
        that the checkpoint does not have, by name, such as buffers that no state_dict holds.

        The captured module stays as it is; only the stages get tensors of their own. Raises LoadError, for all stages
        and before anything is read, where the checkpoint lacks a name or has another shape.
        """
        opened = Checkpoint.open(checkpoint)
        for i, part in enumerate(self._parts):
            opened.check(part.module, self._names, values or {}, i)
        if rank is None:
            self._checkpoint = opened, values or {}
        else:
            self._load(self._known(rank), opened, values or {}, torch.device(device))

    def _load(self, index: int, checkpoint: Checkpoint, values: Mapping[str, Tensor], device: torch.device) -> None:
        part = self._parts[index]
        module = load_module(part.module, checkpoint, self._names, values, device)
        self._parts[index] = replace(part, module=module)

    def stage(
        self, rank: int, device: torch.device | str = "cpu", group: torch.distributed.ProcessGroup | None = None
    ) -> PipelineStage:
        """Make the stage of a process: number `rank`, its module on `device`; for a schedule of `group`.

        Where a process has several stages, as Interleaved1F1B wants, call it for each: `stage(rank)` and
        `stage(rank + world_size)`. Raises PassError, before any process waits for another, where there is no such
        stage, where the group has more processes than there are stages, and where parameters are on the meta device.
        """
        index, device = self._known(rank), torch.device(device)
        if not torch.distributed.is_initialized():
            raise PassError("there is no process group", fix="call torch.distributed.init_process_group first")
        size = torch.distributed.get_world_size(group)
        if size > len(self._parts):
            raise PassError(
                f"there are {len(self._parts)} stages for {size} processes: ranks from {len(self._parts)} on would have"
                " none",
                fix="make as many stages as there are processes, or pass a group of fewer",
            )
        if self._checkpoint is not None:
            self._load(index, *self._checkpoint, device)
        part = self._parts[index]
        missing = [name for name, tensor in _tensors(part.module) if tensor.is_meta]
        if missing:
            raise PassError(
                f"stage {index} has no data for {_listed(missing)}", fix="load a checkpoint: stages.load(path)"
            )
        module = self._own(index).to(device)
        self._parts[index] = part = replace(part, module=module)
        put_numbers_on(module, device)
        if index == 0:
            module.register_forward_pre_hook(self._inputs, with_kwargs=True)
        if part.outputs:
            module.register_forward_hook(Outputs(part.outputs, part.gives))
        made = PipelineStage(
            module, index, len(self._parts), device, input_args=part.takes, output_args=part.gives, group=group
        )
        self._made[index] = made
        return made

    def _own(self, index: int) -> GraphModule:
        """A stage without parameters in common with other stages of this process: a schedule scales those of each."""
        module = self._parts[index].module
        others = [made.submod for other, made in self._made.items() if other != index]
        taken = {id(parameter) for other in others for parameter in other.parameters()}
        shared = {
            id(parameter): nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
            for parameter in module.parameters()
            if id(parameter) in taken
        }
        return copy_with(module, shared) if shared else module

    def reduce_tied_gradients(self) -> None:
        """Add up the gradients of parameters that several stages have; every process of the group calls it.

        After it all copies have the whole gradient, and equal optimizers keep them equal. Call it between a step of the
        schedule and one of the optimizer.
        """
        add_up(self.tied, {index: stage.submod for index, stage in self._made.items()}, self._group())

    def _group(self) -> torch.distributed.ProcessGroup | None:
        stage = next(iter(self._made.values()), None)
        return None if stage is None else stage.group

    def _known(self, index: int) -> int:
        if not 0 <= index < len(self._parts):
            raise PassError(
                f"there is no stage {index}: the program has {len(self._parts)}",
                fix=f"start {len(self._parts)} processes, or make more stages",
            )
        return index


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _listed(names: Any) -> str:
    names = list(map(str, names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

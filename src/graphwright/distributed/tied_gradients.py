"""Gradients of parameters that several stages have: the copies' are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphwright.passes import Tied


def add_up(tied: Iterable[Tied], modules: Mapping[int, nn.Module], group: dist.ProcessGroup | None = None) -> None:
    """Give all copies of each parameter the sum of their gradients.

    `modules` are the stages of this process by number. Stage i is on rank i modulo the size of the group, as schedules
    have it. The first rank that has a copy adds up, so that only ranks that have one take part.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for each in tied:
        ranks = list(dict.fromkeys(stage % size for stage in each.stages))
        if rank not in ranks:
            continue
        mine = [
            modules[stage].get_parameter(name)
            for name, stage in zip(each.names, each.stages, strict=True)
            if stage in modules and _has_parameter(modules[stage], name)
        ]
        copies = [parameter for parameter in {id(one): one for one in mine}.values() if parameter.requires_grad]
        if copies and (len(ranks) > 1 or len(copies) > 1):
            total = _sum([copy.grad for copy in copies], copies[0])
            total = _over_ranks(total, ranks, rank, group)
            for copy in copies:
                copy.grad = total.clone() if copy is not copies[0] else total


def _has_parameter(module: nn.Module, name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    return attribute in module.get_submodule(owner)._parameters


def _sum(gradients: list[Tensor | None], like: Tensor) -> Tensor:
    total = torch.zeros_like(like)
    for gradient in gradients:
        if gradient is not None:
            total += gradient
    return total


def _over_ranks(total: Tensor, ranks: list[int], rank: int, group: dist.ProcessGroup | None) -> Tensor:
    """The sum over these ranks, of which this process is one."""
    places = ranks if group is None else [dist.get_global_rank(group, each) for each in ranks]
    if rank != ranks[0]:
        dist.send(total, dst=places[0], group=group)
        dist.recv(total, src=places[0], group=group)
        return total
    for place in places[1:]:
        other = torch.empty_like(total)
        dist.recv(other, src=place, group=group)
        total += other
    for place in places[1:]:
        dist.send(total, dst=place, group=group)
    return total

"""Removing channels from a captured module: smaller parameters, and a graph that fits them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from graphwright.analysis import ChannelGroup, undisturbed
from graphwright.errors import PassError
from graphwright.passes.parts.fitting import Fitting
from graphwright.passes.parts.removed_channels import Removed
from graphwright.passes.support.module_numbers import renew_values
from graphwright.runtime import GraphModule, graph_of, read_attribute


def prune(
    gm: GraphModule, group: ChannelGroup | Mapping[ChannelGroup, Iterable[int]], indices: Iterable[int] = ()
) -> GraphModule:
    """Remove channels of a group, by their numbers, or of several groups, given as a dict; return a new module.

    The group is one that `channel_groups` found in this captured module. In the result its parameters lack the elements
    that go with these channels, its layers have the sizes of their parameters, and the graph has the numbers that fit:
    of a `view`, a `split`, a slice. It computes what the original does with these channels ignored by all that read
    them, except for what a group has `notes` of, such as a norm over all channels, which is then over those left; a
    number computed from a size stays what it was. It is run on the example of the groups, and compared in shape at
    every operation; then it is returned. It has tensors of its own, and the original is not changed.

    Raises PassError where a group cannot be pruned, with the operator that ties it; where nothing would be left of it;
    where the graph has changed since the groups were found; and where an operation does not fit.

    >>> from graphwright import trace
    >>> from graphwright.analysis import channel_groups
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.ones(3, 4)
    >>> gm = trace(model, x)
    >>> pruned = prune(gm, channel_groups(gm, x)["0"], [0, 3, 5])
    >>> pruned[0], pruned(x).shape
    (Linear(in_features=4, out_features=5, bias=True), torch.Size([3, 2]))
    """
    wanted = dict(group) if isinstance(group, Mapping) else {group: indices}
    others = [type(each).__name__ for each in wanted if not isinstance(each, ChannelGroup)]
    if others:
        fix = "take one of those of the module: analysis.channel_groups(gm, args)"
        raise PassError(f"a {others[0]} is no group of channels", fix=fix)
    removed = set()
    for each, numbers in wanted.items():
        removed |= _checked(gm, each, list(numbers))
    if not removed:
        raise PassError("no channel is to be removed", fix="pass the numbers of channels: prune(gm, group, [0, 3])")
    source = next(iter(wanted)).source
    known = source.known
    gone = Removed(known.atoms, removed)
    pruned = copy.deepcopy(gm)
    _shrink(pruned, known.slots, known.tensor, gone)
    fitting = Fitting(pruned, graph_of(gm), known, gone)
    with undisturbed(pruned):
        fitting.run(*source.args, **source.kwargs)
    graph_of(pruned).lint()
    return pruned


def _checked(gm: nn.Module, group: ChannelGroup, numbers: list[int]) -> set[int]:
    """The atoms of the channels to remove."""
    if group.source.gm is not gm:
        raise PassError(
            f"the group of {group.name} is one of another module", fix="find the groups of this one: channel_groups"
        )
    if group.source.version != graph_of(gm).version:
        raise PassError("the graph has changed since its groups were found", fix="find them again: channel_groups")
    if group.reason is not None:
        raise PassError(f"the channels of {group.name} cannot be pruned: {group.reason}", fix="choose another group")
    if any(isinstance(number, bool) or getattr(number, "dtype", None) == torch.bool for number in numbers):
        raise PassError(
            f"the channels of {group.name} are given by a mask", fix="pass their numbers: mask.nonzero().flatten()"
        )
    for number in numbers:
        if not -len(group) <= number < len(group):
            raise PassError(f"{group.name} has no channel {number}, but {len(group)}", fix="count from 0")
    places = {int(number) % len(group) for number in numbers}
    if len(places) == len(group):
        raise PassError(f"nothing would be left of {group.name}", fix="leave one channel at least")
    return {group.atoms[place] for place in places}


def _shrink(pruned: nn.Module, slots: Mapping[int, Any], tensor_of: Any, gone: Removed) -> None:
    """Give a copy the smaller tensors, and its layers their sizes."""
    touched: dict[str, None] = {}
    for key, found in slots.items():
        tensor = tensor_of(key)
        smaller = tensor.detach()
        for slot in found:
            kept = gone.kept(slot.channels)
            if len(kept) < len(slot.channels):
                smaller = smaller.index_select(slot.dim, torch.tensor(kept, device=smaller.device))
        if smaller.shape == tensor.shape:
            continue
        if not smaller.numel():
            raise PassError(f"nothing would be left of {found[0].names[0]}", fix="leave one channel at least")
        made: Any = smaller.clone()
        if isinstance(tensor, nn.Parameter):
            made = nn.Parameter(made, tensor.requires_grad)
        for name in found[0].names:
            owner, _, field = name.rpartition(".")
            module = read_attribute(pruned, owner) if owner else pruned
            (module._parameters if field in module._parameters else module._buffers)[field] = made
            touched[owner] = None
    for path in touched:
        layer: Any = read_attribute(pruned, path) if path else pruned
        before = dict(layer.__dict__)
        _resize(layer)
        now = layer.__dict__
        renew_values(pruned, path, {name: now[name] for name in now if now[name] is not before.get(name)})


def _resize(module: Any) -> None:
    """Give a layer the sizes of its parameters."""
    weight: Any = getattr(module, "weight", None)
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = weight.shape
    elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        if module.groups > 1 and weight.shape[1] == 1 and module.groups == module.in_channels:
            module.groups = weight.shape[0] // (module.out_channels // module.in_channels)
        module.out_channels, module.in_channels = weight.shape[0], weight.shape[1] * module.groups
    elif isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        module.in_channels, module.out_channels = weight.shape[:2]
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        held: Any = weight if weight is not None else module.running_mean
        module.num_features = held.numel()
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        module.normalized_shape = tuple(weight.shape)
    elif isinstance(module, nn.GroupNorm):
        module.num_channels = len(weight)
    elif isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = weight.shape
    elif isinstance(module, nn.PReLU):
        module.num_parameters = len(weight)

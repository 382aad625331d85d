"""Which layers tensor parallelism splits, and how: found from the channels that go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from graphwright.analysis import ChannelGroup, Shapes, channel_groups, format_columns
from graphwright.distributed.checkpoints import copy_with
from graphwright.errors import GraphError, PassError
from graphwright.hierarchy import as_flat
from graphwright.ir import Node
from graphwright.runtime import as_captured, graph_of


@dataclass(frozen=True, slots=True)
class Refusal:
    """A layer, or layers that could only be split together, left whole; why, and the user's line that calls them."""

    modules: tuple[str, ...]
    reason: str
    at: str = ""

    def __str__(self) -> str:
        return f"{', '.join(self.modules)}: {self.reason}" + (f"\n  at {self.at}" if self.at else "")


class TensorParallelPlan(dict[str, ParallelStyle]):
    """Styles by the paths of modules, as `parallelize_module` takes them. Printed, it is a table with the refusals."""

    def __init__(self, styles: Mapping[str, ParallelStyle], refusals: tuple[Refusal, ...]) -> None:
        super().__init__(styles)
        self.refusals = refusals

    def __str__(self) -> str:
        rows = [(path, type(style).__name__) for path, style in self.items()]
        return "\n".join(
            [*format_columns(("module", "style"), rows), *[f"left whole: {each}" for each in self.refusals]]
        )


def tensor_parallel_plan(
    gm: nn.Module,
    mesh: DeviceMesh | int,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    partial: bool = False,
) -> TensorParallelPlan:
    """Tell how the linear layers of a captured module are split over the processes of a mesh of one dimension.

    The channels between two layers are found as for `prune`: those of the first layers go to the processes in equal
    parts (ColwiseParallel), and the layers that read them add up what comes of their parts (RowwiseParallel). Heads
    stay whole. A layer of which the program gives back what it computes is split and put together again, and so is an
    embedding. The program then runs once without data with its part of the channels, which has to fit.

    `mesh` is a DeviceMesh, or how many processes it would have; `args` and `kwargs` are example inputs, on which the
    program runs once. The plan is for `parallelize_module(gm, mesh, plan)`; `refusals` are the layers left whole, with
    reasons. Raises PassError for heads, or other channels, that do not divide by the processes, and for a program that
    does not run with a part of them; with `partial` these are refusals, too.

    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    >>> x = torch.ones(2, 4)
    >>> print(tensor_parallel_plan(trace(model, x), 2, x))
    module  style
    0       ColwiseParallel
    2       RowwiseParallel
    """
    if isinstance(mesh, DeviceMesh) and mesh.ndim != 1:
        raise PassError(f"the mesh has {mesh.ndim} dimensions", fix='pass one of them: mesh["tp"]')
    gm = as_flat(as_captured(gm))
    given = args if isinstance(args, tuple) else (args,)
    planning = _Planning(gm, mesh if isinstance(mesh, int) else mesh.size(), given, dict(kwargs or {}), partial)
    return planning.plan()


@dataclass(frozen=True, slots=True)
class _Pair:
    """Layers that give channels, and layers that read them."""

    first: tuple[str, ...]
    second: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        return (*self.first, *self.second)


class _Planning:
    """A plan that is being made."""

    def __init__(self, gm: nn.Module, count: int, args: tuple[Any, ...], kwargs: dict[str, Any], partial: bool) -> None:
        self._gm, self._count, self._given, self._partial = gm, count, (args, kwargs), partial
        self._calls: dict[str, list[Node]] = {}
        for node in graph_of(gm).all_nodes():
            if node.op == "call_module":
                self._calls.setdefault(str(node.target), []).append(node)
        self._names = {name: names for names in _all_names(gm).values() for name in names}
        self._read = {str(node.target) for node in graph_of(gm).all_nodes() if node.op == "get_attr"}
        self._refusals: list[Refusal] = []

    def plan(self) -> TensorParallelPlan:
        """Make the plan."""
        args, kwargs = self._given
        groups = list(channel_groups(self._gm, args, kwargs))
        pairs: list[_Pair] = []
        taken: set[str] = set()
        for group in groups:
            pair = self._pair(group, taken)
            if pair is not None:
                pairs.append(pair)
                taken.update(pair.modules)
        pairs = self._fitting(pairs)
        styles: dict[str, ParallelStyle] = {}
        for pair in pairs:
            styles.update({path: ColwiseParallel() for path in pair.first})
            styles.update({path: RowwiseParallel() for path in pair.second})
        for path, style in self._alone(groups):
            styles.setdefault(path, style)
        kept = [each for each in self._refusals if not all(path in styles for path in each.modules)]
        last = {each.modules: each for each in kept}  # heads are looked at behind the places within them
        return TensorParallelPlan(dict(sorted(styles.items(), key=self._place)), tuple(last.values()))

    def _place(self, item: tuple[str, Any]) -> int:
        return list(self._calls).index(item[0])

    # ---- pairs

    def _pair(self, group: ChannelGroup, taken: set[str]) -> _Pair | None:
        """The layers that share the channels of a group, where it can be split."""
        first = [self._linear(name, dim) for name, dim in _members(group, 0)]
        second = [self._linear(name, dim) for name, dim in _members(group, 1)]
        pair = _Pair(tuple(filter(None, first)), tuple(filter(None, second)))
        if not pair.first or not pair.second:
            self._note_others(group)
            return None
        order = _order(group)
        if order is None and self._has_blocks(group):
            return None  # places within heads: the heads are a group of their own
        why = self._why_whole(group, pair, taken)
        if order is None:
            why = why or "its channels do not lie one part behind the other, as those of several layers made one"
        if why:
            self._refuse(pair.modules, why)
            return None
        if group.size % self._count:
            is_heads = any(len(each) > 1 for member in group.members for each in member.positions)
            self._fail(
                pair, f"{group.size} {'heads' if is_heads else 'channels'} do not divide by {self._count} processes"
            )
            return None
        return pair

    def _note_others(self, group: ChannelGroup) -> None:
        """Refuse what could be split, were its layers linear ones."""
        owners = {member.name.rpartition(".")[0]: None for member in group.members if self._is_matrix(member.name)}
        kinds = {type(self._gm.get_submodule(path)): None for path in owners}
        if len(owners) > 1 and nn.Linear not in kinds and not (group.reason or group.notes):
            names = " and ".join(kind.__name__ for kind in kinds)
            self._refuse(tuple(owners), f"{names} is not torch.nn.Linear, which parallelize_module splits")

    def _is_matrix(self, name: str) -> bool:
        path, _, attribute = name.rpartition(".")
        module = self._gm.get_submodule(path)
        return not isinstance(module, nn.Embedding) and getattr(module, attribute).dim() > 1

    def _has_blocks(self, group: ChannelGroup) -> bool:
        """Tell whether another group of the same layers has their channels in blocks."""
        places = {(member.name, member.dim) for member in group.members}
        first = group.members[0]
        return any(
            other is not group
            and places <= {(member.name, member.dim) for member in other.members}
            and _order(other) is not None
            for other in group.source.of(first.name, first.dim)
        )

    def _why_whole(self, group: ChannelGroup, pair: _Pair, taken: set[str]) -> str:
        if group.reason:
            return group.reason
        if group.notes:
            return group.notes[0].replace(" over it", " over all its channels")
        own = {f"{path}.{name}" for path in pair.first for name in ("weight", "bias")}
        own |= {f"{path}.weight" for path in pair.second}
        others = [str(member) for member in group.members if not own & set(member.names)]
        if others:
            return f"{others[0]} has its channels, too, and is no part of a linear layer"
        for path in pair.modules:
            if path in taken:
                return f"{path} is split along its other dimension"
            why = self._why_no_layer(path)
            if why:
                return why
        return ""

    def _why_no_layer(self, path: str) -> str:
        if path not in self._calls:
            return f"{path} is not called as a module"
        for name in (f"{path}.weight", f"{path}.bias"):
            if len(self._names.get(name, ())) > 1:
                return f"{name} is {' and '.join(other for other in self._names[name] if other != name)}, too"
            if name in self._read:
                return f"the program reads {name} itself"
        return ""

    def _linear(self, name: str, dim: int) -> str:
        """The path of the linear layer that has this weight, "" for everything else."""
        path, _, attribute = name.rpartition(".")
        module = self._gm.get_submodule(path) if attribute == "weight" else None
        return path if type(module) is nn.Linear else ""

    # ---- alone

    def _alone(self, groups: list[ChannelGroup]) -> Iterator[tuple[str, ParallelStyle]]:
        """Layers that are split, and what they give is put together behind each."""
        for group in groups:
            layers = [name.rpartition(".")[0] for name, _ in _members(group, 0) if name.endswith(".weight")]
            if len(layers) != 1 or _members(group, 1) or group.size % self._count or self._why_no_layer(layers[0]):
                continue
            module = self._gm.get_submodule(layers[0])
            is_only = len(group.source.of(f"{layers[0]}.weight")) == 1
            if type(module) is nn.Linear and group.reason and is_only and _order(group) is not None:
                yield layers[0], ColwiseParallel(output_layouts=Replicate())
            elif type(module) is nn.Embedding and module.max_norm is None and not module.sparse:
                yield layers[0], RowwiseParallel(input_layouts=Replicate())

    # ---- running with a part

    def _fitting(self, pairs: list[_Pair]) -> list[_Pair]:
        """Those pairs with a part of whose channels the program runs."""
        args, kwargs = self._given
        before = Shapes(self._gm, args, kwargs)
        while pairs:
            found = _misfit(self._gm, self._part(pairs), pairs, before, args, kwargs)
            if found is None:
                return pairs
            node, why = found
            pair = max(pairs, key=lambda pair: max(_common(path, _module_of(node)) for path in pair.modules))
            self._fail(pair, f"with one of {self._count} parts of the channels {node.name} does not fit: {why}", node)
            pairs = [each for each in pairs if each is not pair]
        return pairs

    def _part(self, pairs: list[_Pair]) -> nn.Module:
        """The program of one process: views of a part of the weights in place of the whole ones."""
        parts: dict[int, Any] = {}
        for pair in pairs:
            for path in pair.first:
                layer = self._gm.get_submodule(path)
                for tensor in (layer.weight, layer.bias):
                    if isinstance(tensor, nn.Parameter):
                        parts[id(tensor)] = _narrow(tensor, 0, self._count)
            for path in pair.second:
                weight = self._gm.get_submodule(path).weight
                assert isinstance(weight, nn.Parameter)
                parts[id(weight)] = _narrow(weight, 1, self._count)
        made: nn.Module = copy_with(self._gm, parts)
        return made

    # ---- refusals

    def _refuse(self, modules: tuple[str, ...], reason: str, node: Node | None = None) -> None:
        node = node or next(iter(self._calls.get(modules[0], ())), None)
        at = "" if node is None or node.origin is None else str(node.origin)
        self._refusals.append(Refusal(modules, reason, at))

    def _fail(self, pair: _Pair, reason: str, node: Node | None = None) -> None:
        self._refuse(pair.modules, reason, node)
        if not self._partial:
            refusal = self._refusals[-1]
            raise PassError(
                f"{', '.join(refusal.modules)}: {reason}",
                at=refusal.at or None,
                fix="use a mesh of fewer processes, or leave these layers whole: partial=True",
            )


def _misfit(
    gm: nn.Module, part: nn.Module, pairs: list[_Pair], before: Shapes, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Node, str] | None:
    """The first node that does not run with a part of the channels, or gives something else behind them."""
    after = Shapes(part, args, kwargs)
    ends = {path for pair in pairs for path in pair.second}
    for node, its in zip(graph_of(gm).nodes, graph_of(part).nodes, strict=True):
        is_end = node.op == "output" or (node.op == "call_module" and node.target in ends)
        try:
            found = after[its]
        except GraphError as error:
            return node, error.message
        if is_end and str(found) != str(before[node]):
            return node, "what it gives has another shape"
    return None


def _narrow(tensor: nn.Parameter, dim: int, count: int) -> nn.Parameter:
    return nn.Parameter(tensor.detach().narrow(dim, 0, tensor.shape[dim] // count), tensor.requires_grad)


def _members(group: ChannelGroup, dim: int) -> list[tuple[str, int]]:
    return [(member.name, member.dim) for member in group.members if member.dim == dim]


def _order(group: ChannelGroup) -> list[int] | None:
    """An order of the channels in which they lie one behind the other in all members, each of one size."""
    order = sorted(range(group.size), key=lambda channel: group.members[0].positions[channel])
    for member in group.members:
        flat = [position for channel in order for position in member.positions[channel]]
        if flat != list(range(len(flat))) or len({len(each) for each in member.positions}) > 1:
            return None
        if len(flat) != _size(group, member.names[0], member.dim):
            return None
    return order


def _size(group: ChannelGroup, name: str, dim: int) -> int:
    path, _, attribute = name.rpartition(".")
    tensor = getattr(group.source.gm.get_submodule(path), attribute)
    assert isinstance(tensor, torch.Tensor)
    return tensor.shape[dim]


def _all_names(gm: nn.Module) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, parameter in gm.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return found


def _module_of(node: Node) -> str:
    return str(node.target) if node.op == "call_module" else node.origin.module if node.origin is not None else ""


def _common(one: str, other: str) -> int:
    """How many parts of two paths are the same from the front."""
    count = 0
    for a, b in zip(one.split("."), other.split("."), strict=False):
        if a != b:
            break
        count += 1
    return count

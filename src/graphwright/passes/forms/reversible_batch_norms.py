"""Transformations that fold batch norms into layers, and can be undone."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.errors import PassError, TrainingModeError
from graphwright.ir import Node
from graphwright.passes.forms.reversible import ReversibleTransformation
from graphwright.passes.fusion.fold_batch_norm import fold_batch_norm, scale_and_shift
from graphwright.passes.support.bodies import may_write, nodes_between, plain_graphs
from graphwright.passes.support.module_slots import Slot, call_with, is_own, like_now, take_out
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import ModuleCalls
from graphwright.passes.support.tensor_facts import sure_rank
from graphwright.runtime import GraphModule, expect, graph_of

_BEFORE = "_replaced"  # the attribute of a folded layer that has what it stands for
_GUARD = "guard_of_fold"  # on nodes that check the rank


@dataclass(frozen=True, slots=True)
class _Pair:
    """A layer and a batch norm that one layer stands for."""

    first: Slot
    second: Slot
    name: str  # of the node that called the first
    meta: dict[str, Any]
    origin: Any
    next: str  # the name of the node that came after it
    names: tuple[str, ...]  # by which the second got its input


class _FuseBatchNorm(ReversibleTransformation):
    """Folds pairs of modules that are called one after the other, nothing else reading the value between."""

    preserves_computation = True

    @abstractmethod
    def _is_pair(self, first: nn.Module | None, second: nn.Module | None) -> bool:
        """Tell whether one module can stand for two."""

    @abstractmethod
    def _folded(self, first: Any, second: Any) -> Any:
        """The module that stands for two."""

    def _guard(self, call: Node) -> None:
        """Check at run time what the fold takes for granted."""

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Fold the batch norms. Raises TrainingModeError, with nothing changed, where one is in training mode."""
        calls, ownership = ModuleCalls(graph_module), Ownership(graph_module)
        pairs = []
        for graph in plain_graphs(graph_of(graph_module)):
            effects = ownership.effects(graph)
            for node in graph.nodes:
                before = calls.input(node) if calls.module(node) is not None else None
                first, second = calls.module(before), calls.module(node)
                if not isinstance(before, Node) or list(before.users) != [node] or not self._is_pair(first, second):
                    continue
                modules = [each for each in (first, second) if each is not None]
                own = all(is_own(each, graph_module, calls) and _BEFORE not in vars(each) for each in modules)
                together = effects.are_together(before, node)
                if own and together and not may_write(nodes_between(before, node), graph_module):
                    pairs.append((before, node))
        pairs = _disjoint(pairs)
        for pair in pairs:
            _refuse_training(pair, calls)
        for before, node in pairs:
            self._fold(before, node, graph_module)
        return graph_module

    def _fold(self, before: Node, node: Node, gm: GraphModule) -> None:
        first, second = gm.get_submodule(str(before.target)), gm.get_submodule(str(node.target))
        folded = self._folded(first, second)
        stays = before if isinstance(second, nn.modules.batchnorm._BatchNorm) else node
        path, gone = str(stays.target), str((node if stays is before else before).target)
        owner, _, name = path.rpartition(".")
        kept = Slot(path, gm.get_submodule(path), ())
        gm.get_submodule(owner)._modules[name] = folded
        away = take_out(gm, gone)
        slots = (kept, away) if stays is before else (away, kept)
        folded.__dict__[_BEFORE] = _Pair(
            *slots, before.name, dict(before.meta), before.origin, before.next.name,
            tuple(node.kwargs),
        )  # fmt: skip
        node.target, node.args, node.kwargs = path, before.args, before.kwargs
        before.graph.erase_node(before)
        self.mark_as_transformed(node)
        self._guard(node)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Give back the layers and batch norms.

        Raises PassError, with nothing changed, where a folded layer was trained since: what it has learned cannot be
        told apart.
        """
        nodes = self.get_transformed_nodes(graph_module)
        for node in nodes:
            folded = graph_module.get_submodule(str(node.target))
            pair = folded.__dict__[_BEFORE]
            if not _is_same(folded, self._folded(pair.first.module, pair.second.module)):
                raise PassError(
                    f"{node.target} was trained after the batch norm was folded into it: it cannot be taken out",
                    at=node.origin,
                    fix="undo the fold before training, or keep a copy of the module",
                )
        for node in reversed(nodes):  # the last one first: their places are noted
            self._unfold(node, graph_module)
        return graph_module

    def _unfold(self, node: Node, gm: GraphModule) -> None:
        graph = node.graph
        folded = gm.get_submodule(str(node.target))
        pair: _Pair = folded.__dict__[_BEFORE]
        for user in [user for used in node.all_input_nodes for user in used.users]:
            if user.meta.get(_GUARD) == str(node.target):
                for check in list(user.users):
                    graph.erase_node(check)
                graph.erase_node(user)
        for slot in (pair.first, pair.second):
            if slot.order:
                slot.put_back(gm, like_now(slot.module, folded))
            else:
                owner, _, name = slot.path.rpartition(".")
                gm.get_submodule(owner)._modules[name] = like_now(slot.module, folded)
        place = _node_between(node, pair.next)
        with graph.inserting_before(place):
            before = graph.create_node("call_module", pair.first.path, node.args, node.kwargs, pair.name)
        before.name = pair.name if not _is_taken(before, pair.name) else before.name
        before.origin = pair.origin
        before.meta.update(pair.meta)
        node.target = pair.second.path
        call_with(node, before, pair.names)
        self.mark_as_restored(node)


def _disjoint(pairs: list[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    taken: set[Node] = set()
    kept = []
    for pair in pairs:
        if taken.isdisjoint(pair):
            taken.update(pair)
            kept.append(pair)
    return kept


def _refuse_training(pair: tuple[Node, Node], calls: ModuleCalls) -> None:
    for node in pair:
        module = calls.module(node)
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            raise TrainingModeError(
                f"batch norm {node.target!r} is in training mode: it normalizes by the statistics of each batch, which "
                "no weights can absorb",
                at=node.origin,
                fix="call gm.eval() first",
            )


def _node_between(node: Node, name: str) -> Node:
    """The node of this name that comes after all that a node reads, and not after itself; else itself."""
    last = max(node.all_input_nodes, default=None)
    place = node
    while place.prev is not last and place.prev.op not in ("root", "placeholder"):
        place = place.prev
        if place.name == name:
            return place
    return node


def _is_taken(node: Node, name: str) -> bool:
    return any(other.name == name for other in node.graph.nodes if other is not node)


def _is_same(now: nn.Module, before: nn.Module) -> bool:
    """Tell whether a layer has the weights that it was made with; one that was moved or cast since counts as such."""
    for mine, its in zip(now.parameters(), before.parameters(), strict=True):
        if mine.device == its.device and mine.dtype == its.dtype and not torch.equal(mine, its):
            return False
    return True


def _has_statistics(norm: nn.Module) -> bool:
    return norm._buffers.get("running_mean") is not None and norm._buffers.get("running_var") is not None


def _with_weights(layer: Any, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    """A layer of the same settings with other weights."""
    made = copy.copy(layer)
    trained = layer.weight.requires_grad
    made._parameters = {
        "weight": nn.Parameter(weight, requires_grad=trained), "bias": nn.Parameter(bias, requires_grad=trained),
    }  # fmt: skip
    return made


class FuseBatchNorm2dInConv2d(_FuseBatchNorm):
    """Fold each batch norm in two dimensions into the convolution before it, for evaluation.

    Left alone: convolutions whose value has other readers, modules that are called or registered more than once, tied
    weights, hooks, subclasses, batch norms without statistics. `FuseConvBatchNorm` does more and does not go back.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval())
    >>> len(FuseBatchNorm2dInConv2d()(gm).state_dict())
    2
    >>> len(FuseBatchNorm2dInConv2d()(gm, reverse=True).state_dict())
    7
    """

    def _is_pair(self, first: nn.Module | None, second: nn.Module | None) -> bool:
        pair = type(first) is nn.Conv2d and type(second) is nn.BatchNorm2d
        return pair and first.out_channels == second.num_features and _has_statistics(second)  # type: ignore[union-attr, arg-type]

    def _folded(self, first: Any, second: Any) -> Any:
        return _with_weights(first, *fold_batch_norm(first.weight, first.bias, second))


class FuseBatchNorm1dInLinear(_FuseBatchNorm):
    """Fold each batch norm in one dimension into the linear layer before or after it, for evaluation.

    Only for inputs of two dimensions does a batch norm normalize what the layer computes with; where the graph does
    not say that there are two, it is checked when the module runs. Left alone is what `FuseBatchNorm2dInConv2d` leaves.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4)).eval())
    >>> len(FuseBatchNorm1dInLinear()(gm).state_dict())
    2
    >>> len(FuseBatchNorm1dInLinear()(gm, reverse=True).state_dict())
    7
    """

    def _is_pair(self, first: nn.Module | None, second: nn.Module | None) -> bool:
        if type(first) is nn.Linear and type(second) is nn.BatchNorm1d:
            return first.out_features == second.num_features and _has_statistics(second)
        if type(first) is nn.BatchNorm1d and type(second) is nn.Linear:
            return second.in_features == first.num_features and _has_statistics(first)
        return False

    def _folded(self, first: Any, second: Any) -> Any:
        if isinstance(first, nn.Linear):
            return _with_weights(first, *fold_batch_norm(first.weight, first.bias, second))
        scale, shift = scale_and_shift(first)
        weight = second.weight.detach().to(scale.dtype)
        bias = weight @ shift
        if second.bias is not None:
            bias = bias + second.bias.detach().to(scale.dtype)
        return _with_weights(second, (weight * scale).to(second.weight.dtype), bias.to(second.weight.dtype))

    def _guard(self, call: Node) -> None:
        graph, (x,) = call.graph, call.all_input_nodes
        if sure_rank(x) == 2:
            return
        with graph.inserting_before(call):
            dim = graph.call_method("dim", (x,))
            graph.call_function(expect, (dim, 2, f"batch norm, folded into {call.target!r} for inputs of 2 dimensions"))
        dim.meta[_GUARD] = str(call.target)

"""Join activations, and in training batch norms, to the layers before them: torch.ao's fused modules.

Tools of quantization look for these: a fused module gets one observer at its end, as the fused kernel has one output.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.errors import PassError
from graphwright.ir import Node
from graphwright.ops import call_of, is_region, is_untouched
from graphwright.passes.fusion.fuse_conv_add import fuse_conv_add
from graphwright.passes.fusion.fuse_conv_batch_norm import FuseConvBatchNorm
from graphwright.passes.support.bodies import may_write, nodes_between
from graphwright.passes.support.submodules import ModuleCalls, graphs_in
from graphwright.runtime import GraphModule


@dataclass(frozen=True, slots=True)
class FuseActivations:
    """Join layers, batch norms and activations to the modules of `torch.ao.nn.intrinsic`.

    For inference, batch norms are folded into the layers before them, as `FuseConvBatchNorm` does, and what is left
    becomes `ConvReLU1d` to `3d`, `LinearReLU`, `BNReLU2d` and `3d`. With `training`, batch norms stay themselves:
    `ConvBn1d` to `3d`, `ConvBnReLU1d` to `3d`, `LinearBn1d`. With `onednn`, also `LinearLeakyReLU` and `LinearTanh`,
    and for inference `ConvAdd2d` and `ConvAddReLU2d`, where the value of a convolution is added to another. Activations
    count in all spellings. A fused module is a container of the modules that were there, so that their parameters stay
    the very objects, below names with a number: `conv.0.weight`. Returns the number of operations that went into
    others.

    The table is that of torch.ao's FX mode; a ReLU behind a batch norm that was folded joins, too, which it does not
    there behind linear layers, and such batch norms are folded into transposed convolutions rather than joined to it.

    Left alone: values with other readers, subclasses, hooks, parametrizations, and layers with something between that
    writes in place. Raises TrainingModeError, without `training`, where a batch norm is in training mode, and PassError
    where this torch has no such modules.

    >>> from graphwright import symbolic_trace
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    >>> gm = symbolic_trace(nn.Sequential(*model[:3]))
    >>> FuseActivations(training=True).run(gm), type(gm.get_submodule("0")).__name__
    (2, 'ConvBnReLU2d')
    >>> gm = symbolic_trace(nn.Sequential(*model[:3]).eval())
    >>> FuseActivations().run(gm), type(gm.get_submodule("0")).__name__
    (2, 'ConvReLU2d')
    """

    training: bool = False
    onednn: bool = False

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of changes."""
        fused = _fused_modules()
        table = self._table(fused)
        count = 0 if self.training else FuseConvBatchNorm(relu=False, into_next=False).run(gm)
        calls = ModuleCalls(gm)
        if self.onednn and not self.training:
            count += fuse_conv_add(gm, calls, fused)
        groups: dict[Any, list[_Chain]] = {}  # the same modules may follow each other in many places
        for chain in _chains(gm, table, calls):
            groups.setdefault(chain.identity, []).append(chain)
            count += len(chain.nodes) - 1
        for group in groups.values():
            _fuse(group, table, calls)
        return count

    def _table(self, fused: Any) -> Mapping[tuple[type[nn.Module], ...], type[nn.Module]]:
        """The fused class for each sequence of classes."""
        table: dict[tuple[type[nn.Module], ...], type[nn.Module]] = {(nn.Linear, nn.ReLU): fused.LinearReLU}
        for n in (1, 2, 3):
            conv, norm = getattr(nn, f"Conv{n}d"), getattr(nn, f"BatchNorm{n}d")
            table[conv, nn.ReLU] = getattr(fused, f"ConvReLU{n}d")
            if n > 1:
                table[norm, nn.ReLU] = getattr(fused, f"BNReLU{n}d")
            if self.training:
                table[conv, norm] = getattr(fused, f"ConvBn{n}d")
                table[conv, norm, nn.ReLU] = getattr(fused, f"ConvBnReLU{n}d")
        if self.training:
            table[nn.Linear, nn.BatchNorm1d] = fused.LinearBn1d
        if self.onednn:
            table[nn.Linear, nn.LeakyReLU] = fused.LinearLeakyReLU
            table[nn.Linear, nn.Tanh] = fused.LinearTanh
        return table


def _fused_modules() -> Any:
    try:
        return importlib.import_module("torch.ao.nn.intrinsic")
    except ImportError:
        raise PassError("this version of torch has no torch.ao.nn.intrinsic", fix="use FuseConvReLU") from None


# ---- finding


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation of a chain: a module, or a function that a module of this class stands for."""

    node: Node
    kind: type[nn.Module]
    module: nn.Module | None = None
    settings: tuple[tuple[str, Any], ...] = ()  # of the module to be made

    @property
    def writes(self) -> bool:
        """Whether the operation writes to what it reads."""
        return bool(vars(self.module).get("inplace") if self.module is not None else dict(self.settings).get("inplace"))

    @property
    def made(self) -> nn.Module:
        """The module, a new one in the place of a function."""
        return self.module if self.module is not None else self.kind(**dict(self.settings))


@dataclass(frozen=True, slots=True)
class _Chain:
    """Operations of which each reads the one before it, and nobody else does."""

    steps: tuple[_Step, ...]

    @property
    def nodes(self) -> list[Node]:
        return [step.node for step in self.steps]

    @property
    def kinds(self) -> tuple[type[nn.Module], ...]:
        return tuple([step.kind for step in self.steps])

    @property
    def identity(self) -> Any:
        """What two chains share that can be one module."""
        return tuple([(step.kind, step.settings if step.module is None else id(step.module)) for step in self.steps])


def _chains(gm: GraphModule, table: Iterable[tuple[type[nn.Module], ...]], calls: ModuleCalls) -> list[_Chain]:
    """The sequences of the table in a module, the longest that end in a node, from the end to the start."""
    known = set(table)
    found: list[_Chain] = []
    for graph in graphs_in(gm):
        taken: set[Node] = set()
        for node in reversed(list(graph.nodes)):
            chain = None if node in taken else _longest(node, known, calls, gm)
            if chain is not None:
                taken.update(chain.nodes)
                found.append(chain)
    return found


def _longest(node: Node, known: set[tuple[type[nn.Module], ...]], calls: ModuleCalls, gm: GraphModule) -> _Chain | None:
    steps: list[_Step] = []
    best = None
    while len(steps) < 3 and (step := _step(node, calls)) is not None:
        steps.insert(0, step)
        chain = _Chain(tuple(steps))
        if chain.kinds in known and _is_closed(chain, calls, gm) and _fits(chain):
            best = chain
        read = node.all_input_nodes
        if len(read) != 1 or not _is_only_reader(step, read[0]):
            break
        node = read[0]
    return best


def _is_only_reader(step: _Step, value: Node) -> bool:
    """Tell whether an operation alone reads a value, or all others read what it has written to it."""
    others = [user for user in value.users if user is not step.node]
    return not others or (step.writes and all(user > step.node for user in others))


_FUNCTIONS = {"relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "tanh": nn.Tanh}


def _step(node: Node, calls: ModuleCalls) -> _Step | None:
    if node.op == "call_module":
        module = calls.module(node)
        return _Step(node, type(module), module) if module is not None and is_untouched(module) else None
    call = call_of(node) if node.op in ("call_function", "call_method") else None
    kind = None if call is None else _FUNCTIONS.get(call.key)
    if call is None or kind is None or len(node.all_input_nodes) != 1 or call.writes not in ((), ("input",)):
        return None
    settings = {name: value for name, value in call.arguments.items() if name != "input"}
    if kind is not nn.Tanh:
        settings["inplace"] = bool(call.writes)
    elif call.writes:
        return None
    return _Step(node, kind, None, tuple(settings.items()))


def _is_closed(chain: _Chain, calls: ModuleCalls, gm: GraphModule) -> bool:
    """Tell whether nothing happens between the operations that could tell when they are done."""
    between = nodes_between(chain.nodes[0], chain.nodes[-1], chain.nodes)
    norms = [step.module for step in chain.steps if isinstance(step.module, nn.modules.batchnorm._BatchNorm)]
    if any(calls.is_read(norm) for norm in norms):
        return False
    if norms and any(is_region(node) or calls.find(node) in norms for node in between):
        return False
    return not may_write(between, gm)


def _fits(chain: _Chain) -> bool:
    """Tell whether a batch norm has as many channels as the layer before it gives."""
    layer, norm = chain.steps[0].module, chain.steps[1].module
    if not isinstance(norm, nn.modules.batchnorm._BatchNorm):
        return True
    assert layer is not None
    channels = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    return bool(channels == norm.num_features)


# ---- editing


def _fuse(
    group: Sequence[_Chain], table: Mapping[tuple[type[nn.Module], ...], type[nn.Module]], calls: ModuleCalls
) -> None:
    """Put one fused module in the place of chains of the same modules."""
    first = group[0]
    fused = table[first.kinds](*[step.made for step in first.steps])
    fused.training = first.steps[0].made.training  # and not `train`, which would reach the modules inside
    calls.replace([chain.nodes[0] for chain in group], fused, "fused")
    for chain in group:
        node, *others = chain.nodes
        node.meta.update({key: others[-1].meta[key] for key in ("tensor_meta", "val") if key in others[-1].meta})
        for other in reversed(others):
            other.replace_all_uses_with(node, lambda user: user not in others)  # noqa: B023 - called at once
            calls.erase(other)

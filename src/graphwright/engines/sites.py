"""Where in a program other kernels may compute: linear layers and convolutions, with what belongs to them."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.analysis import Shapes
from graphwright.engines.alternatives import Convolution, Linear, Site
from graphwright.ir import Node
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import GraphModule

__all__ = ["Finder", "FloatLayers", "Found", "Searched"]


@dataclass(frozen=True, slots=True)
class Found:
    """A site in a graph: what it is, the nodes that it takes the place of, and what it reads.

    last: the node whose value it gives. Of several linear layers `members` are these, and each gives a part.
    """

    site: Site
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    members: tuple[Found, ...] = ()

    @property
    def last(self) -> Node:
        """The node whose value the site gives."""
        return self.nodes[-1]


@dataclass(frozen=True, slots=True)
class Searched:
    """A specialized program in which sites are looked for.

    tensors: those that may be packed, by path. counters: by the path of a running statistic, that of what tells when it
    is written to.
    """

    gm: GraphModule
    shapes: Shapes
    tensors: Mapping[str, Tensor]
    counters: Mapping[str, str]


class Finder(Protocol):
    """Says where in a program other kernels may compute: data that copies share."""

    def prepare(self, program: Searched) -> None:
        """Edit a program before sites are looked for."""

    def find(self, program: Searched) -> list[Found]:
        """The sites of a program."""

    def finish(self, gm: GraphModule) -> None:
        """Edit a program after kernels were put into it."""


@dataclass(frozen=True, slots=True)
class FloatLayers:
    """Finds linear layers and convolutions in single precision."""

    def prepare(self, program: Searched) -> None:
        """Leave the program as it is."""

    def find(self, program: Searched) -> list[Found]:
        """The sites of a program."""
        finding = _Finding(program.gm, program.shapes, program.tensors, program.counters)
        found = [site for node in program.gm.graph.all_nodes() for site in [finding.site(node)] if site is not None]
        return found + finding.merged(found)

    def finish(self, gm: GraphModule) -> None:
        """Leave the program as it is."""


class _Finding:
    """Looks for sites in one program."""

    def __init__(
        self, gm: GraphModule, shapes: Shapes, tensors: Mapping[str, Tensor], counters: Mapping[str, str]
    ) -> None:
        self._shapes, self._tensors, self._counters = shapes, tensors, counters
        self._calls = Calls(gm)
        self._effects: dict[Any, GraphEffects] = {}

    def site(self, node: Node) -> Found | None:
        """The site that begins at a node."""
        if node.op != "call_function" or node.target not in (F.linear, torch.conv2d):
            return None
        found = self._linear(node) if node.target is F.linear else self._convolution(node)
        return None if found is None else self._with_activation(found)

    # ---- what a site begins with

    def _linear(self, node: Node) -> Found | None:
        given = _given(node, ("input", "weight", "bias"))
        shape, weight, bias = self._shape(given["input"]), self._path(given["weight"]), self._path(given["bias"])
        if not shape or weight is None or (bias is None and given["bias"] is not None):
            return None
        sizes = self._tensors[weight].shape
        if len(sizes) != 2 or shape[-1] != sizes[1]:
            return None
        site = Linear((weight,), () if bias is None else (bias,), shape, sizes[0])
        return Found(site, (node,), (given["input"],))

    def _convolution(self, node: Node) -> Found | None:
        given = _given(node, ("input", "weight", "bias", "stride", "padding", "dilation", "groups"))
        shape, weight, bias = self._shape(given["input"]), self._path(given["weight"]), self._path(given["bias"])
        if shape is None or len(shape) != 4 or weight is None or (bias is None and given["bias"] is not None):
            return None
        numbers = [_pair(given[name], default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
        groups = 1 if given["groups"] is None else given["groups"]
        if None in numbers or type(groups) is not int:
            return None
        stride, padding, dilation = (number or () for number in numbers)
        sizes = tuple(self._tensors[weight].shape)
        site = Convolution(weight, bias, (), (), 0.0, shape, sizes, stride, padding, dilation, groups)
        return self._with_sum(self._with_norm(Found(site, (node,), (given["input"],))))

    # ---- what it goes on with

    def _with_norm(self, found: Found) -> Found:
        node = _only_user(found.last)
        if node is None or node.op != "call_function" or node.target is not F.batch_norm:
            return found
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = _given(node, names)
        paths = tuple([self._path(given[name]) for name in names[1:5]])
        is_known = paths[0] is not None and paths[1] is not None
        is_known = is_known and all(
            (path is None) is (given[name] is None) for path, name in zip(paths, names[1:5], strict=True)
        )
        epsilon = 1e-5 if given["eps"] is None else given["eps"]
        if not is_known or given["training"] not in (None, False) or type(epsilon) is not float:
            return found
        counters = tuple(dict.fromkeys(self._counters.get(str(path), "") for path in paths[:2]))
        if given["input"] is not found.last or "" in counters:
            return found
        assert isinstance(found.site, Convolution)
        site = replace(found.site, norm=paths, counters=counters, epsilon=epsilon)
        return replace(found, site=site, nodes=(*found.nodes, node))

    def _with_sum(self, found: Found) -> Found:
        node = _only_user(found.last)
        if node is None or not _is_sum(node):
            return found
        other = node.args[1] if node.args[0] is found.last else node.args[0]
        shape = self._shape(other)
        if other is found.last or shape is None or shape != self._shape(found.last) or shape != self._shape(node):
            return found
        if _is_written(node) and node.args[0] is not found.last:
            return found  # the other one is written to
        effects = self._effects_of(node)
        first = found.nodes[0]
        if effects.writer_of(found.inputs[0], between=(first, node)) or not effects.are_together(first, node):
            return found
        assert isinstance(found.site, Convolution)
        site = replace(found.site, is_added=True)
        return replace(found, site=site, nodes=(*found.nodes, node), inputs=(*found.inputs, other))

    def _with_activation(self, found: Found) -> Found:
        node = _only_user(found.last)
        name = None if node is None else _activation(node)
        if node is None or name is None or node.args[0] is not found.last:
            return found
        assert isinstance(found.site, Linear | Convolution)
        return replace(found, site=replace(found.site, activation=name), nodes=(*found.nodes, node))

    # ---- several in one

    def merged(self, found: Collection[Found]) -> list[Found]:
        """Linear layers that read the same value, each group as one."""
        groups: dict[Any, list[Found]] = {}
        for each in found:
            if isinstance(each.site, Linear) and each.site.activation is None:
                groups.setdefault((each.inputs[0], bool(each.site.biases)), []).append(each)
        merged = []
        for members in groups.values():
            effects, first = self._effects_of(members[0].last), members[0].last
            together = [
                each
                for each in members
                if effects.writer_of(each.inputs[0], between=(first, each.last)) is None
                and effects.are_together(first, each.last)
                and each.last.graph is first.graph
            ]
            if len(together) > 1:
                merged.append(_as_one(together))
        return merged

    # ---- what is known of values

    def _effects_of(self, node: Node) -> GraphEffects:
        if node.graph not in self._effects:
            self._effects[node.graph] = GraphEffects(node.graph, self._calls)
        return self._effects[node.graph]

    def _shape(self, node: Any) -> tuple[int, ...] | None:
        """The sizes of a tensor of single precision on the processor."""
        value = self._shapes.value(node) if type(node) is Node else None
        if not isinstance(value, Tensor) or value.dtype is not torch.float32 or value.device.type != "cpu":
            return None
        sizes = tuple(value.shape)
        return sizes if all(type(size) is int and size > 0 for size in sizes) else None

    def _path(self, node: Any) -> str | None:
        """The path of a tensor of the program of single precision on the processor."""
        path = str(node.target) if type(node) is Node and node.op == "get_attr" else None
        tensor = None if path is None else self._tensors.get(path)
        if tensor is None or tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
            return None
        return path if tensor.layout is torch.strided else None


def _as_one(members: list[Found]) -> Found:
    sites = [each.site for each in members if isinstance(each.site, Linear)]
    weights = tuple([path for site in sites for path in site.weights])
    biases = tuple([path for site in sites for path in site.biases])
    site = Linear(weights, biases, sites[0].shape, sum(site.outputs for site in sites))
    return Found(site, (members[0].last,), members[0].inputs, tuple(members))


def _given(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a call by the names of its parameters; None for those that are left out."""
    given: dict[str, Any] = dict.fromkeys(names)
    given.update(zip(names, node.args, strict=False))
    given.update(node.kwargs)
    return given


def _pair(value: Any, default: int) -> tuple[int, ...] | None:
    value = default if value is None else value
    if type(value) is int:
        return value, value
    items = tuple(value) if isinstance(value, tuple | list) else ()
    if len(items) == 1:
        items = items * 2
    return items if len(items) == 2 and all(type(item) is int for item in items) else None


def _only_user(node: Node) -> Node | None:
    """The one operation that reads a value, once, in its own graph."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    if user.graph is not node.graph or user.op not in ("call_function", "call_method"):
        return None
    return user if sum(used is node for used in user.args) == 1 and node not in user.kwargs.values() else None


_SUMS = (operator.add, operator.iadd, torch.add, torch.Tensor.add, torch.Tensor.add_)


def _is_sum(node: Node) -> bool:
    if len(node.args) != 2 or node.kwargs or not all(type(arg) is Node for arg in node.args):
        return False
    return node.target in ("add", "add_") if node.op == "call_method" else node.target in _SUMS


def _is_written(node: Node) -> bool:
    return node.target in ("add_", operator.iadd, torch.Tensor.add_)


_NAMES: dict[Any, str] = {
    torch.relu: "relu", torch.relu_: "relu", F.relu: "relu", "relu": "relu", "relu_": "relu",
    torch._C._nn.silu: "silu", torch._C._nn.silu_: "silu",
    torch._C._nn.hardswish: "hardswish", torch._C._nn.hardswish_: "hardswish",
    torch._C._nn.hardsigmoid: "hardsigmoid", torch._C._nn.hardsigmoid_: "hardsigmoid",
    torch.sigmoid: "sigmoid", torch.sigmoid_: "sigmoid", F.sigmoid: "sigmoid", "sigmoid": "sigmoid",
    torch.tanh: "tanh", torch.tanh_: "tanh", F.tanh: "tanh", "tanh": "tanh",
}  # fmt: skip


def _activation(node: Node) -> str | None:
    """The name of the activation that a node calls."""
    if type(node.target).__hash__ is None:
        return None
    if node.target is F.gelu:
        how = _given(node, ("input", "approximate"))["approximate"]
        return {None: "gelu", "none": "gelu", "tanh": "gelu_tanh"}.get(how)
    if node.target is F.relu6:
        return "relu6"
    if node.target is F.hardtanh:
        given = _given(node, ("input", "min_val", "max_val", "inplace"))
        return "relu6" if (given["min_val"], given["max_val"]) == (0.0, 6.0) else None
    name = _NAMES.get(node.target)
    return name if name is not None and len(node.args) == 1 and not node.kwargs else None

"""Where in a program other kernels may compute: linear layers and convolutions, with what belongs to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.analysis import Shapes
from graphwright.engines.alternatives import Convolution, Linear, Site
from graphwright.engines.reading import activation_after, arguments_of, is_sum, is_written_sum, only_user
from graphwright.ir import Node
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import GraphModule


@dataclass(frozen=True, slots=True)
class Found:
    """A site in a graph: what it is, the nodes that it takes the place of, and what it reads.

    last: the node whose value it gives. Of several linear layers `members` are these; each gives a part of the vectors,
    of a size in `parts`, with one of `activations` after it.
    """

    site: Site
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    members: tuple[Found, ...] = ()
    parts: tuple[int, ...] = ()
    activations: tuple[str | None, ...] = ()

    @property
    def last(self) -> Node:
        """The node whose value the site gives."""
        return self.nodes[-1]


@dataclass(frozen=True, slots=True)
class Searched:
    """A specialized program in which sites are looked for.

    tensors: those that may be packed, by path. counters: by the path of a running statistic, that of what tells when it
    is written to. others: what is known of its values at other sizes of its inputs, where it is for these, too.
    is_open: whether it is for whatever calls, of which what is known are examples: in others, tensors have other sizes
    and ranks.
    """

    gm: GraphModule
    shapes: Shapes
    tensors: Mapping[str, Tensor]
    counters: Mapping[str, str]
    others: tuple[Shapes, ...] = ()
    is_open: bool = False

    def are_of_one_shape(self, *values: Node) -> bool:
        """Tell whether values are tensors of one shape, at all sizes of inputs that the program is for."""
        return not self.is_open and all(_is_one_shape(shapes, values) for shapes in (self.shapes, *self.others))

    def of_rows(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape to compute rows for, of what linear layers read: none that is a matrix where others may be none."""
        return (1, *shape) if self.is_open and len(shape) == 2 else shape

    def is_of_one_size(self, value: Node) -> bool:
        """Tell whether a tensor has one shape, at all sizes of inputs that the program is for."""
        expected = _shape_in(self.shapes, value)
        return not self.is_open and all(_shape_in(shapes, value) == expected for shapes in self.others)

    def shape_of(self, node: Any, dtype: torch.dtype = torch.float32) -> tuple[int, ...] | None:
        """The sizes of a tensor of a dtype on the processor, where it has elements."""
        value = self.shapes.known_value(node) if type(node) is Node else None
        if not isinstance(value, Tensor) or value.dtype is not dtype or value.device.type != "cpu":
            return None
        sizes = tuple(value.shape)
        return sizes if all(type(size) is int and size > 0 for size in sizes) else None

    def path_of(self, node: Any) -> str | None:
        """The path of a tensor of the program on the processor."""
        path = str(node.target) if type(node) is Node and node.op == "get_attr" else None
        tensor = None if path is None else self.tensors.get(path)
        return path if tensor is not None and tensor.device.type == "cpu" and tensor.layout is torch.strided else None

    def added_to(self, found: Found) -> tuple[Node, Node] | None:
        """The sum that alone reads what a site gives, where that may belong to the site, and the other value in it."""
        node = only_user(found.last)
        if node is None or not is_sum(node):
            return None
        other: Any = node.args[1] if node.args[0] is found.last else node.args[0]
        if other is found.last or self.shape_of(other) is None:
            return None
        if not self.are_of_one_shape(other, found.last, node):
            return None
        is_other_written = is_written_sum(node) and node.args[0] is not found.last
        return None if is_other_written else (node, other)


def _is_one_shape(shapes: Shapes, values: Sequence[Node]) -> bool:
    found = [_shape_in(shapes, value) for value in values]
    return found[0] is not None and all(shape == found[0] for shape in found)


def _shape_in(shapes: Shapes, value: Node) -> Any:
    return getattr(shapes.known_value(value), "shape", None)


class Finder(Protocol):
    """Says where in a program other kernels may compute: data that copies share."""

    def prepare(self, program: Searched, besides: Collection[Node]) -> None:
        """Edit a program before sites are looked for, besides of some nodes."""

    def find(self, program: Searched) -> list[Found]:
        """The sites of a program."""

    def finish(self, gm: GraphModule) -> None:
        """Edit a program after kernels were put into it."""


@dataclass(frozen=True, slots=True)
class FloatLayers:
    """Finds linear layers and convolutions in single precision."""

    def prepare(self, program: Searched, besides: Collection[Node]) -> None:
        """Leave the program as it is."""

    def find(self, program: Searched) -> list[Found]:
        """The sites of a program."""
        finding = _Finding(program)
        found = [site for node in program.gm.graph.all_nodes() for site in [finding.site(node)] if site is not None]
        return found + finding.merged(found)

    def finish(self, gm: GraphModule) -> None:
        """Leave the program as it is."""


class _Finding:
    """Looks for sites in one program."""

    def __init__(self, program: Searched) -> None:
        self._program, self._tensors, self._counters = program, program.tensors, program.counters
        self._calls = Calls(program.gm)
        self._effects: dict[Any, GraphEffects] = {}
        self._images = _images(program)

    def site(self, node: Node) -> Found | None:
        """The site that begins at a node."""
        if node.op != "call_function" or node.target not in (F.linear, torch.conv2d):
            return None
        if self._program.is_open and node.target is torch.conv2d:
            return None
        found = self._linear(node) if node.target is F.linear else self._convolution(node)
        return None if found is None else self._with_activation(found)

    # ---- what a site begins with

    def _linear(self, node: Node) -> Found | None:
        given = arguments_of(node, ("input", "weight", "bias"))
        shape, weight, bias = (
            self._program.shape_of(given["input"]),
            self._path(given["weight"]),
            self._path(given["bias"]),
        )
        if not shape or weight is None or (bias is None and given["bias"] is not None):
            return None
        sizes = self._tensors[weight].shape
        if len(sizes) != 2 or shape[-1] != sizes[1]:
            return None
        is_open = not self._program.is_of_one_size(given["input"])
        shape = self._program.of_rows(shape)
        site = Linear((weight,), () if bias is None else (bias,), shape, sizes[0], is_open=is_open)
        return Found(site, (node,), (given["input"],))

    def _convolution(self, node: Node) -> Found | None:
        given = arguments_of(node, ("input", "weight", "bias", "stride", "padding", "dilation", "groups"))
        shape, weight, bias = (
            self._program.shape_of(given["input"]),
            self._path(given["weight"]),
            self._path(given["bias"]),
        )
        if shape is None or len(shape) != 4 or weight is None or (bias is None and given["bias"] is not None):
            return None
        numbers = [_pair(given[name], default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
        groups = 1 if given["groups"] is None else given["groups"]
        if None in numbers or type(groups) is not int:
            return None
        stride, padding, dilation = (number or () for number in numbers)
        sizes = tuple(self._tensors[weight].shape)
        is_open = not self._program.is_of_one_size(given["input"])
        site = Convolution(
            weight, bias, (), (), 0.0, shape, sizes, stride, padding, dilation, groups,
            is_open=is_open, is_first=given["input"] not in self._images,
        )  # fmt: skip
        return self._with_sum(self._with_norm(Found(site, (node,), (given["input"],))))

    # ---- what it goes on with

    def _with_norm(self, found: Found) -> Found:
        node = only_user(found.last)
        if node is None or node.op != "call_function" or node.target is not F.batch_norm:
            return found
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = arguments_of(node, names)
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
        added = self._program.added_to(found)
        if added is None:
            return found
        node, other = added
        effects = self._effects_of(node)
        first = found.nodes[0]
        if effects.writer_of(found.inputs[0], between=(first, node)) or not effects.are_together(first, node):
            return found
        assert isinstance(found.site, Convolution)
        site = replace(found.site, is_added=True)
        return replace(found, site=site, nodes=(*found.nodes, node), inputs=(*found.inputs, other))

    def _with_activation(self, found: Found) -> Found:
        activation = activation_after(found.last)
        if activation is None:
            return found
        node, name = activation
        assert isinstance(found.site, Linear | Convolution)
        return replace(found, site=replace(found.site, activation=name), nodes=(*found.nodes, node))

    # ---- several in one

    def merged(self, found: Collection[Found]) -> list[Found]:
        """Linear layers that read the same value, each group as one."""
        groups: dict[Any, list[Found]] = {}
        for each in found:
            if isinstance(each.site, Linear):
                groups.setdefault((each.inputs[0], bool(each.site.biases)), []).append(each)
        alike = [together(members, self._effects_of(members[0].last)) for members in groups.values()]
        return [_as_one(members) for members in alike if len(members) > 1]

    # ---- what is known of values

    def _effects_of(self, node: Node) -> GraphEffects:
        if node.graph not in self._effects:
            self._effects[node.graph] = GraphEffects(node.graph, self._calls)
        return self._effects[node.graph]

    def _path(self, node: Any) -> str | None:
        """The path of a tensor of the program of single precision."""
        path = self._program.path_of(node)
        return path if path is not None and self._tensors[path].dtype is torch.float32 else None


def together(members: Sequence[Found], effects: GraphEffects) -> list[Found]:
    """Those of some sites that read the same value which may be computed where the first one is."""
    first = members[0].nodes[0]
    return [
        each
        for each in members
        if effects.writer_of(each.inputs[0], between=(first, each.last)) is None
        and each.last.graph is first.graph
        and effects.are_together(first, each.last)
    ]


def _images(program: Searched) -> set[Node]:
    """The values of four dimensions that convolutions give, or what is computed of these."""
    found: set[Node] = set()
    for node in program.gm.graph.all_nodes():
        follows = node.target is torch.conv2d or not found.isdisjoint(node.all_input_nodes)
        if follows and node.op != "output" and len(_shape_in(program.shapes, node) or ()) == 4:
            found.add(node)
    return found


def _as_one(members: list[Found]) -> Found:
    sites = [each.site for each in members if isinstance(each.site, Linear)]
    weights = tuple([path for site in sites for path in site.weights])
    biases = tuple([path for site in sites for path in site.biases])
    parts = tuple([site.outputs for site in sites])
    site = Linear(weights, biases, sites[0].shape, sum(parts), is_open=sites[0].is_open)
    activations = tuple([site.activation for site in sites])
    return Found(site, members[0].nodes[:1], members[0].inputs, tuple(members), parts, activations)


def _pair(value: Any, default: int) -> tuple[int, ...] | None:
    value = default if value is None else value
    if type(value) is int:
        return value, value
    items = tuple(value) if isinstance(value, tuple | list) else ()
    if len(items) == 1:
        items = items * 2
    return items if len(items) == 2 and all(type(item) is int for item in items) else None

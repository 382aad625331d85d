"""Where quantized layers are in a specialized program, with the sums, activations and conversions around them."""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch

from graphwright.engines import (
    Found,
    Searched,
    Site,
    activation_after,
    arguments_of,
    only_user,
    together,
)
from graphwright.ir import Node
from graphwright.ops import gives_fresh_value
from graphwright.passes import substitute
from graphwright.quantization.layer_functions import quantized_conv, quantized_conv_transpose, quantized_linear
from graphwright.quantization.lowering.computing import has_onednn
from graphwright.quantization.lowering.convolutions import Convolution, TransposedConvolution
from graphwright.quantization.lowering.integers import Steps, is_quantize, quantized
from graphwright.quantization.lowering.linears import Linear
from graphwright.quantization.lowering.moving import Moving
from graphwright.quantization.lowering.recurrent import Recurrent
from graphwright.quantization.lowering.rounding_alone import Conversion
from graphwright.quantization.recurrent_functions import (
    quantized_gru,
    quantized_gru_cell,
    quantized_lstm,
    quantized_lstm_cell,
)
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import GraphModule

_BINARY = torch.ops.onednn.qconv2d_pointwise.binary
_ONEDNN = (
    (_BINARY, torch.ops.onednn.qconv_pointwise.default, torch.ops.onednn.qlinear_pointwise.default)
    if has_onednn()
    else ()
)


@dataclass(frozen=True, slots=True)
class QuantizedLayers:
    """Finds quantized layers, and conversions that belong to none."""

    def prepare(self, program: Searched, besides: Collection[Node]) -> None:
        """Keep integers between layers, where it is known what lies between."""
        if not program.is_open:
            Moving(program, besides).run()

    def find(self, program: Searched) -> list[Found]:
        """The sites of a program."""
        finding = _Finding(program)
        found = [site for node in program.gm.graph.all_nodes() for site in [finding.layer(node)] if site is not None]
        apart = finding.conversions({node for each in found for node in each.nodes})
        return [*found, *apart, *finding.merged(found)]

    def finish(self, gm: GraphModule) -> None:
        """Have sums written into values that nobody reads any more."""
        for graph in gm.graph.all_graphs():
            order = {node: i for i, node in enumerate(graph.nodes)}
            for node in list(graph.nodes):
                copy = node.args[6] if node.op == "call_function" and node.target is _BINARY else None
                if type(copy) is Node and copy.target is torch.clone and _is_dead(copy, order):
                    copy.replace_all_uses_with(copy.args[0])
                    graph.erase_node(copy)


def _is_dead(copy: Node, order: dict[Node, int]) -> bool:
    """Tell whether nobody but a copy reads a value from there on, which a kernel of oneDNN has made."""
    value = copy.args[0]
    if type(value) is not Node or value.op != "call_function" or not any(value.target is one for one in _ONEDNN):
        return False
    others = [user for user in value.users if user is not copy]
    if any(user.graph is not copy.graph or order[user] > order[copy] for user in others):
        return False
    return all(_is_read(user) for user in others)


def _is_read(user: Node) -> bool:
    """Tell whether an operation only reads a value, and gives one of its own."""
    if user.op == "output":
        return False
    is_kernel = any(user.target is one for one in _ONEDNN) or user.target is torch._int_mm
    return is_kernel or gives_fresh_value(user, lambda node: None)


_RECURRENT = {
    quantized_lstm: ("lstm", False),
    quantized_gru: ("gru", False),
    quantized_lstm_cell: ("lstm", True),
    quantized_gru_cell: ("gru", True),
}
_Start = tuple[tuple[Node, ...], tuple[Node, ...], tuple[int, ...], Steps | None, tuple[str, str, str | None]]


class _Finding:
    """Looks for sites in one program."""

    def __init__(self, program: Searched) -> None:
        self._program, self._tensors, self._gm = program, program.tensors, program.gm
        self._moving = Moving(program, ())
        self._effects: dict[Any, GraphEffects] = {}

    def layer(self, node: Node) -> Found | None:
        """The site of a layer."""
        is_call = node.op == "call_function" and type(node.target).__hash__ is not None
        make = _LAYERS.get(node.target) if is_call else None
        if self._program.is_open and make is not _Finding._linear:
            return None
        found: Found | None = None if make is None else make(self, node)
        if found is None:
            return None
        if isinstance(found.site, Recurrent):
            return found
        found = self._with_sum(found) if isinstance(found.site, Convolution) else found
        found = self._with_output(self._with_activation(found))
        return found if self._are_together(found) else None

    def conversions(self, taken: Collection[Node]) -> list[Found]:
        """Conversions that belong to no layer; the same integers are taken back to floats once."""
        found, first = [], dict[Any, Node]()
        for node in list(self._gm.graph.all_nodes()):
            if node in taken or node.op != "call_function":
                continue
            pair = self._moving.source(node)
            if pair is not None and not self._effects_of(node).writer_of(node):
                other = first.setdefault((pair, node.graph), node)
                if other is not node:
                    substitute(node, other)
                    node.graph.erase_node(node)
                    continue
            site = self._conversion(node, pair)
            if site is not None:
                found.append(site)
        return found

    def _conversion(self, node: Node, pair: tuple[Node, Steps] | None) -> Found | None:
        target = quantized(node) if is_quantize(node) else pair
        shape = (
            None
            if target is None
            else self._program.shape_of(target[0], torch.float32 if is_quantize(node) else target[1].dtype)
        )
        if target is None or shape is None:
            return None
        return Found(Conversion(shape, target[1], pair is not None), (node,), (target[0],))

    # ---- what a site begins with

    def _linear(self, node: Node) -> Found | None:
        given = arguments_of(node, ("input", "weight", "scale", "bias", "activation"))
        start = self._start(node, given)
        if start is None:
            return None
        nodes, inputs, shape, steps, paths = start
        weight, scale = self._tensors[paths[0]], self._tensors[paths[1]]
        groups = scale.shape[1] if scale.dim() == 2 else 1
        bits = 4 if weight.dtype is torch.uint8 else 8
        range_of = "float" if given["activation"] is None else given["activation"]
        path, of_scale, of_bias = paths
        biases = () if of_bias is None else (of_bias,)
        shape = self._program.of_rows(shape)
        site = Linear((path,), (of_scale,), biases, shape, weight.shape[0], groups, bits, range_of, steps)
        return Found(site, nodes, inputs)

    def _convolution(self, node: Node) -> Found | None:
        names = ("input", "weight", "scale", "bias", "stride", "padding", "dilation", "groups")
        given = arguments_of(node, names)
        start, result = self._start(node, given), self._program.shape_of(node)
        if start is None or result is None:
            return None
        nodes, inputs, shape, steps, paths = start
        sizes = tuple(self._tensors[paths[0]].shape)
        if len(sizes) != len(shape):
            return None
        numbers = _numbers_of(given, sizes[2:])
        groups = 1 if given["groups"] is None else given["groups"]
        if numbers is None or type(groups) is not int:
            return None
        stride, padding, dilation = numbers
        site = Convolution(*paths, shape, sizes, result, stride, padding, dilation, groups, steps)
        return Found(site, nodes, inputs)

    def _transposed(self, node: Node) -> Found | None:
        names = ("input", "weight", "scale", "bias", "stride", "padding", "output_padding", "groups", "dilation")
        given = arguments_of(node, names)
        start = self._start(node, given)
        if start is None:
            return None
        nodes, inputs, shape, steps, paths = start
        defaults = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
        settings = tuple(
            [_hashable(default if given[name] is None else given[name]) for name, default in defaults.items()]
        )
        sizes = tuple(self._tensors[paths[0]].shape)
        if None in settings or len(sizes) != len(shape):
            return None
        return Found(TransposedConvolution(*paths, shape, sizes, settings, steps), nodes, inputs)

    def _recurrent(self, node: Node) -> Found | None:
        """A recurrent layer or cell, whose states are tensors of the program, or none."""
        function, (x, hx) = node.target, node.args
        states = () if hx is None else tuple(hx) if isinstance(hx, tuple | list) else (hx,)
        settings = {name: value for name, value in node.kwargs.items() if type(value) is not Node}
        paths = {name: self._program.path_of(value) for name, value in node.kwargs.items() if name not in settings}
        sizes = [self._program.shape_of(value) for value in (x, *states)]
        kind, is_cell = _RECURRENT[function]
        if None in sizes or None in paths.values() or len(states) not in (0, 2 if kind == "lstm" else 1):
            return None
        rows = next(self._tensors[str(path)].shape[0] for name, path in paths.items() if name.startswith("weight_hh"))
        named = tuple([(name, str(path)) for name, path in paths.items()])
        given = {"num_layers": 1, "bidirectional": False, "batch_first": False, "activation": "float", **settings}
        shape, *others = (tuple(size or ()) for size in sizes)
        return Found(
            Recurrent(function, kind, is_cell, named, shape, tuple(others), rows, **given), (node,), (x, *states)
        )

    def _start(self, node: Node, given: dict[str, Any]) -> _Start | None:
        """The nodes that a layer begins with, what it reads, of which sizes and as what, and where its tensors are."""
        weight, scale, bias = (self._program.path_of(given[name]) for name in ("weight", "scale", "bias"))
        if weight is None or scale is None or (bias is None and given["bias"] is not None):
            return None
        paths = weight, scale, bias
        read, pair = given["input"], self._own_source(given["input"])
        if pair is not None:
            shape = self._program.shape_of(pair[0], pair[1].dtype)
            return None if shape is None else ((read, node), (pair[0],), shape, pair[1], paths)
        shape = self._program.shape_of(read)
        return None if shape is None else ((node,), (read,), shape, None, paths)

    def _own_source(self, node: Any) -> tuple[Node, Steps] | None:
        """The integers behind floats that one operation reads."""
        return self._moving.source(node) if type(node) is Node and len(node.users) == 1 else None

    # ---- what it goes on with

    def _with_sum(self, found: Found) -> Found:
        added = self._program.added_to(found)
        if added is None:
            return found
        (node, other), site = added, found.site
        assert isinstance(site, Convolution)
        pair = self._own_source(other)
        if pair is not None and other > found.last:
            site = replace(site, is_added=True, added=pair[1])
            return Found(site, (*found.nodes, other, node), (*found.inputs, pair[0]))
        return Found(replace(site, is_added=True), (*found.nodes, node), (*found.inputs, other))

    def _with_activation(self, found: Found) -> Found:
        activation = activation_after(found.last)
        if activation is None:
            return found
        node, name = activation
        return replace(found, site=_changed(found.site, activation=name), nodes=(*found.nodes, node))

    def _with_output(self, found: Found) -> Found:
        node = only_user(found.last)
        target = quantized(node) if node is not None and is_quantize(node) else None
        if node is None or target is None or target[0] is not found.last:
            return found
        return replace(found, site=_changed(found.site, output=target[1]), nodes=(*found.nodes, node))

    def _are_together(self, found: Found) -> bool:
        """Tell whether nothing that happens between the operations of a site changes what they compute."""
        first, last, effects = found.nodes[0], found.last, self._effects_of(found.last)
        if not effects.are_together(*found.nodes):
            return False
        return not any(effects.writer_of(used, between=(first, last)) for used in found.inputs if used is not first)

    # ---- several in one

    def merged(self, found: Collection[Found]) -> list[Found]:
        """Linear layers that read the same value and give floats, each group as one."""
        groups: dict[Any, list[Found]] = {}
        for each in found:
            site = each.site
            if isinstance(site, Linear) and site.output is None:
                alike = (site.groups, site.bits, site.range_of, site.input, bool(site.biases))
                groups.setdefault((each.inputs[0], *alike), []).append(each)
        members = [together(group, self._effects_of(group[0].last)) for group in groups.values()]
        return [_as_one(group) for group in members if len(group) > 1]

    # ---- what is known of values

    def _effects_of(self, node: Node) -> GraphEffects:
        if node.graph not in self._effects:
            self._effects[node.graph] = GraphEffects(node.graph, Calls(self._gm))
        return self._effects[node.graph]


_LAYERS: dict[Any, Any] = {
    quantized_linear: _Finding._linear,
    quantized_conv: _Finding._convolution,
    quantized_conv_transpose: _Finding._transposed,
    **dict.fromkeys(_RECURRENT, _Finding._recurrent),
}


def _as_one(members: list[Found]) -> Found:
    sites = [each.site for each in members if isinstance(each.site, Linear)]
    weights, scales, biases = (
        tuple([path for site in sites for path in paths(site)]) for paths in (_WEIGHTS, _SCALES, _BIASES)
    )
    parts = tuple([site.outputs for site in sites])
    activations = tuple([site.activation for site in sites])
    site = replace(sites[0], weights=weights, scales=scales, biases=biases, outputs=sum(parts), activation=None)
    return Found(site, members[0].nodes[:1], members[0].inputs, tuple(members), parts, activations)


_WEIGHTS, _SCALES, _BIASES = (operator.attrgetter(name) for name in ("weights", "scales", "biases"))


def _changed(site: Site, **fields: Any) -> Site:
    assert isinstance(site, Convolution | Linear | TransposedConvolution)
    return replace(site, **fields)


def _hashable(value: Any) -> Any:
    """A number, or a tuple of numbers; None for anything else."""
    if type(value) is int:
        return value
    items = tuple(value) if isinstance(value, tuple | list) else (None,)
    return items if all(type(item) is int for item in items) else None


def _numbers_of(given: dict[str, Any], sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Stride, padding and dilation, each a number for each dimension; None where they are not known."""
    stride, dilation = (_each(given[name], 1, len(sizes)) for name in ("stride", "dilation"))
    padding = given["padding"]
    if dilation is not None and padding == "same":
        around = [each * (size - 1) for each, size in zip(dilation, sizes, strict=True)]
        padding = None if any(each % 2 for each in around) else tuple([each // 2 for each in around])
        if padding is None:
            return None
    padding = _each(0 if padding == "valid" else padding, 0, len(sizes))
    return None if stride is None or padding is None or dilation is None else (stride, padding, dilation)


def _each(value: Any, default: int, count: int) -> tuple[int, ...] | None:
    value = _hashable(default if value is None else value)
    items = (value,) * count if type(value) is int else value
    items = items * count if items is not None and len(items) == 1 else items
    return items if items is not None and len(items) == count else None

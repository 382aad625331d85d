"""Operations on what integers stand for, as operations on the integers: reshaping, padding, max pooling, joining.

`op(dequantize(q))` becomes `dequantize(op(q))` where that is exactly the same, so that values stay integers between
layers. Then each operation that reads floats gets a `dequantize` of its own, next to it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.engines import Searched, activation_of, arguments_of, reads_sizes
from graphwright.ir import Node
from graphwright.ops import is_inplace, operator_of
from graphwright.passes import substitute
from graphwright.quantization.affine import dequantize
from graphwright.quantization.lowering.bytes_of_images import max_pool_of_integers
from graphwright.quantization.lowering.integers import Steps, dequantized, is_dequantize, is_quantize, quantized
from graphwright.rewrite import Calls, GraphEffects

_POOLS = {"max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3}


class Moving:
    """Edits one specialized program, besides of some nodes."""

    def __init__(self, program: Searched, besides: Collection[Node]) -> None:
        self._program, self._besides = program, set(besides)

    def run(self) -> None:
        """Keep integers as far as can be, and have one `dequantize` for each operation that reads floats."""
        for graph in self._program.gm.graph.all_graphs():
            self._effects = GraphEffects(graph, Calls(self._program.gm))
            for node in list(graph.nodes):
                if node not in self._besides and node.op in ("call_function", "call_method"):
                    self._move(node)
            written: dict[Any, Node] = {}
            for node in list(graph.nodes):
                if node not in self._besides:
                    self._write_once(node, written)
            for node in list(graph.nodes):
                if is_dequantize(node) and self.source(node) is not None and not self._is_written(node):
                    self._split(node)

    def source(self, node: Any) -> tuple[Node, Steps] | None:
        """The integers of which a node gives what they stand for; None for other nodes."""
        if not is_dequantize(node) or node in self._besides or not node.args:
            return None
        value = self._program.shapes.known_value(node.args[0])
        return dequantized(node, value.dtype) if isinstance(value, Tensor) and value.device.type == "cpu" else None

    def _is_written(self, node: Node, but: Node | None = None) -> bool:
        return self._effects.has_writers and self._effects.writer_of(node, but) is not None

    # ---- operations on integers

    def _move(self, node: Node) -> None:
        if is_quantize(node):
            self._cancel(node)
            return
        if reads_sizes(node):
            self._read_sizes(node)
            return
        inputs = [used for used in node.all_input_nodes if not self._is_size(used)]
        read = [self.source(used) for used in inputs]
        pairs = [pair for pair in read if pair is not None]
        if not pairs or len(pairs) != len(read) or len({steps for _, steps in pairs}) != 1:
            return
        if any(self._is_written(used, node) for used in inputs) or self._is_written(node, node):
            return
        if is_inplace(node) and any(len(used.users) > 1 for used in inputs):
            return
        steps = pairs[0][1]
        made = self._on_integers(node, dict(zip(inputs, [q for q, _ in pairs], strict=True)), steps)
        if made is not None:
            made.origin = node.origin
            with node.graph.inserting_before(node):
                floats = node.graph.call_function(dequantize, (made, steps.scale, steps.zero_point))
            self._replace(node, floats)

    def _read_sizes(self, node: Node) -> None:
        """Read sizes of integers, which are made before what they stand for."""
        used, *_ = node.args
        pair = self.source(used)
        if pair is None or type(used) is not Node:
            return
        node.replace_input_with(used, pair[0])
        if not used.users:
            used.graph.erase_node(used)

    def _replace(self, node: Node, value: Node) -> None:
        value.origin = node.origin
        read = node.all_input_nodes
        substitute(node, value)
        node.graph.erase_node(node)
        for used in read:
            if not used.users and is_dequantize(used):
                used.graph.erase_node(used)

    def _cancel(self, node: Node) -> None:
        """`quantize(dequantize(q))` is `q`, where both are about the same."""
        target = quantized(node)
        read = None if target is None else self.source(target[0])
        if target is None or read is None or read[1] != target[1] or self._is_written(target[0]):
            return
        substitute(node, read[0])
        node.graph.erase_node(node)
        if not target[0].users:
            target[0].graph.erase_node(target[0])

    def _on_integers(self, node: Node, by_value: dict[Node, Node], steps: Steps) -> Node | None:
        """The operation on the integers of what it reads; None where there is none that gives the same."""
        value, known = self._program.shapes.known_value(node), operator_of(node)
        if not isinstance(value, Tensor) or known is None:
            return None
        key, graph, read = known.key, node.graph, [*by_value.values()]
        with graph.inserting_before(node):
            if (known.shape_only or key == "getitem") and len(read) == 1 and not is_inplace(node):
                return self._same(node, by_value)
            if key == "cat":
                return self._same(node, by_value)
            if activation_of(node) == "relu":
                return graph.call_function(torch.clamp_min, (read[0], steps.zero_point))
            if key in _POOLS:
                return self._pooled(node, read[0], _POOLS[key])
            return self._padded(node, read[0], steps) if key == "pad" else None

    def _same(self, node: Node, by_value: dict[Node, Node]) -> Node:
        """The same operation, of the integers."""
        return node.graph.node_copy(node, lambda used: by_value.get(used, used))

    def _is_size(self, node: Node) -> bool:
        """Tell whether a node gives a number, or some, such as those that a value is viewed by."""
        value = self._program.shapes.known_value(node)
        items = value if isinstance(value, tuple | list) else (value,)
        return bool(items) and all(type(item) is int for item in items)

    def _pooled(self, node: Node, read: Node, dims: int) -> Node | None:
        names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        given = arguments_of(node, names)
        kernel = _numbers(given["kernel_size"], dims)
        stride = kernel if given["stride"] in (None, (), []) else _numbers(given["stride"], dims)
        padding = _numbers(0 if given["padding"] is None else given["padding"], dims)
        dilation = _numbers(1 if given["dilation"] is None else given["dilation"], dims)
        is_ceil = given["ceil_mode"] or False
        if None in (kernel, stride, padding, dilation) or given["return_indices"] or type(is_ceil) is not bool:
            return None
        args = (read, kernel, stride, padding, dilation, is_ceil)
        return node.graph.call_function(max_pool_of_integers, args)

    def _padded(self, node: Node, read: Node, steps: Steps) -> Node | None:
        given = arguments_of(node, ("input", "pad", "mode", "value"))
        sizes = given["pad"]
        is_plain = isinstance(sizes, tuple | list) and all(
            type(size) is int or (type(size) is Node and self._is_size(size)) for size in sizes
        )
        if not is_plain or given["mode"] not in (None, "constant") or given["value"] not in (None, 0, 0.0):
            return None
        return node.graph.call_function(F.pad, (read, tuple(sizes), "constant", steps.zero_point))

    # ---- one for each reader

    def _write_once(self, node: Node, written: dict[Any, Node]) -> None:
        """Write a value as the same integers once."""
        target = quantized(node) if is_quantize(node) else None
        if target is None or self._is_written(target[0]):
            return
        first = written.setdefault(target, node)
        if first is not node:
            substitute(node, first)
            node.graph.erase_node(node)

    def _split(self, node: Node) -> None:
        """Give each operation that reads a value a `dequantize` of its own, right before it."""
        users = [user for user in node.users if user.graph is node.graph and user not in self._besides]
        for user in users:
            if user.op == "output" or user.prev is node:
                continue
            with node.graph.inserting_before(user):
                made = node.graph.call_function(dequantize, node.args, node.kwargs)
            made.origin = node.origin
            user.replace_input_with(node, made)
        if not node.users:
            node.graph.erase_node(node)


def _numbers(value: Any, count: int) -> tuple[int, ...] | None:
    items = (value,) * count if type(value) is int else tuple(value) if isinstance(value, tuple | list) else ()
    items = items * count if len(items) == 1 else items
    return items if len(items) == count and all(type(item) is int for item in items) else None

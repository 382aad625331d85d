"""Results of operations as the program gets them: tensors as proxies, containers made again around them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.utils.hooks import RemovableHandle

from graphwright.capture.calls.facts import expect_structure
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.ops import unpack
from graphwright.runtime import expect
from graphwright.source import user_frame
from graphwright.values import leaves, sequence

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.source import NamesInside

_NUMBERS = (int, float, bool)
_KINDS = (type(None), str, torch.dtype, torch.device, torch.layout, torch.Size, type)
_TOLD = (str, bytes, torch.dtype, torch.layout)  # what an operation tells of tensors: the example's, and guarded


def given_items(
    recorder: TypedCapture,
    value: Any,
    node: Node,
    names: Sequence[str] = (),
    inside: NamesInside | None = None,
    gives_data: bool = False,
) -> Any:
    """Give a result of an operation to the program.

    Each item gets a node at once; those that nothing uses are erased at the end. `names` are what the program calls
    the items, and `inside` what it calls theirs, where it takes them apart, too.
    """
    if isinstance(value, torch.Tensor):
        return TensorProxy.make(recorder, value, node)
    if type(value) in _NUMBERS:
        return recorder.numbers.of_node(node, value if recorder.examples.is_real else UNKNOWN, type(value))
    if gives_data and node.target is not unpack and expect_structure(recorder, node, value):
        node = _taken_apart(recorder, node, len(value))
    if isinstance(value, tuple | list):
        called = [*names, *[""] * len(value)]
        is_of_run = [gives_data or isinstance(item, _TOLD + _NUMBERS) or holds_tensors(item) for item in value]
        nodes = [recorder.item_node(node, i, called[i]) if is_of_run[i] else None for i in range(len(value))]
        items = []
        for i, (item, made) in enumerate(zip(value, nodes, strict=True)):
            inner, further = (inside or {}).get(i, ((), None))
            if made is not None and inner and isinstance(item, tuple | list) and len(inner) == len(item):
                made = _taken_apart(recorder, made, len(item))
            items.append(item if made is None else given_items(recorder, item, made, inner, further, gives_data))
        kind = type(value)
        if kind is list or kind is tuple:
            return kind(items)
        whole = sequence(kind, items)
        return recorder.transforms.know_whole(whole, lambda: node) if node.target is not unpack else whole
    if isinstance(value, dict):
        return type(value)(
            (key, given_items(recorder, item, recorder.item_node(node, key), gives_data=gives_data))
            for key, item in value.items()
        )
    is_object = isinstance(value, numpy.ndarray | numpy.generic | RemovableHandle)
    if is_object or (gives_data and not isinstance(value, _KINDS)):
        return _object(recorder, value, node)
    if isinstance(value, _TOLD):
        recorder.node("call_function", expect, (node, value, recorder.where() or ""), {}, name="guard")
    return value


def holds_tensors(value: Any) -> bool:
    """Tell whether there is a tensor in a nested value."""
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves(value))


def _taken_apart(recorder: TypedCapture, node: Node, count: int) -> Node:
    return recorder.node("call_function", unpack, (node, count), {}, "unpack")


def _object(recorder: TypedCapture, value: Any, node: Node) -> ObjectProxy:
    """Give an object outside of torch to the program, whose functions get it through the runtime from then on."""
    recorder.has_objects = True
    recorder.questions.staging.convert_all(recorder.questions.staging.convertible(user_frame(sys._getframe(1))))
    return ObjectProxy(recorder, value, node)

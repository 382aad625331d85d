"""What values are for: numbers that are computed with, whole numbers, masks, and numbers with a mask's among them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis.effects.writes import written_values
from graphwright.analysis.shapes.shapes import Shapes
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, bodies_of, nodes_in
from graphwright.ops import Call, functional_call, is_region, loop_parts, module_called
from graphwright.ops import cond as branch
from graphwright.runtime import graph_of, read_attribute

FILL = -1e4  # numbers up to this one are taken for those that a mask puts in the place of what does not count


@dataclass(frozen=True, slots=True)
class ValueFact:
    """What is known of a value without its data.

    dtype, shape: of a tensor; None for what is none, and for what cannot be told without data.
    is_mask: a tensor of truths; or of numbers that come of such, of whole numbers and of constants alone, and among
        which are fill values: -inf, `finfo.min`, -1e9.
    is_masked: a tensor of numbers that are computed with, among which fill values may stand: scores behind
        `masked_fill`, or with such a mask added.
    of_data: whether it comes of floating inputs, parameters or buffers.
    """

    dtype: torch.dtype | None
    shape: tuple[int, ...] | None
    is_mask: bool = False
    is_masked: bool = False
    of_data: bool = False

    @property
    def is_floating(self) -> bool:
        """Whether it is a tensor of floating numbers."""
        return self.dtype is not None and self.dtype.is_floating_point

    @property
    def is_whole(self) -> bool:
        """Whether it is a tensor of whole numbers or truths: ids, positions, counts."""
        return self.dtype is not None and not (self.dtype.is_floating_point or self.dtype.is_complex)

    @property
    def has_plain_numbers(self) -> bool:
        """Whether its numbers say how large values are there: floating, and no mask's among them."""
        return self.is_floating and self.of_data and not (self.is_mask or self.is_masked)


class ValueFacts:
    """The facts of all values of a captured module for example inputs; see `value_facts`."""

    def __init__(self, shapes: Shapes, uses: Mapping[Node, _Use]) -> None:
        self._shapes, self._uses = shapes, uses

    def __getitem__(self, node: Node) -> ValueFact:
        if node not in self._uses:
            raise GraphError(f"{node.name} is no node of the module as it was", fix="ask value_facts again after edits")
        value, use = self._shapes.known_value(node), self._uses[node]
        if not isinstance(value, Tensor):
            return ValueFact(None, None, of_data=use.of_data)
        is_truth = value.dtype is torch.bool
        filled = use.filled and value.dtype.is_floating_point
        return ValueFact(
            value.dtype, tuple(value.shape), is_truth or (filled and not use.of_data), filled and use.of_data,
            use.of_data,
        )  # fmt: skip


def value_facts(gm: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> ValueFacts:
    """Tell of each value of a captured module what it is for: `facts[node]`, in the bodies of branches and loops too.

    Nothing runs on the inputs, and nothing is noted on nodes. Inputs and buffers are looked at: floating ones that hold
    nothing but zeros and fill values are masks. What a mask does is followed through the operations that keep it;
    `softmax`, matrix products and the like end it. Facts are of the graph as it is now. No dtype is known of what fails
    with these inputs, as the side of a branch may that is not taken.

    >>> from graphwright import trace
    >>> def attend(scores, allowed):
    ...     return scores.masked_fill(allowed == 0, -1e9).softmax(-1)
    >>> example = torch.randn(2, 2), torch.ones(2, 2, dtype=torch.int64)
    >>> gm = trace(attend, example)
    >>> facts = value_facts(gm, example)
    >>> for node in list(gm.graph.nodes)[:-1]:
    ...     print(node.name, facts[node].is_whole, facts[node].is_mask, facts[node].is_masked)
    scores False False False
    allowed True False False
    eq True True False
    masked_fill False False True
    softmax False False False
    """
    given = args if isinstance(args, tuple) else (args,)
    shapes = Shapes(gm, given, kwargs)
    found = _Uses(gm, shapes)
    found.note_inputs(given, dict(kwargs or {}))
    found.find()
    return ValueFacts(shapes, found.of)


@dataclass(slots=True)
class _Use:
    """What a value, or what is in it, may hold: facts only ever become true."""

    of_data: bool = False
    filled: bool = False

    def join(self, other: _Use) -> bool:
        """Take over what is true of another value; tell whether that was news."""
        news = (other.of_data and not self.of_data) or (other.filled and not self.filled)
        self.of_data |= other.of_data
        self.filled |= other.filled
        return news


# Operations behind which what a mask has put there is still there, among their numbers.
_KEEP = frozenset({
    "add", "sub", "mul", "div", "neg", "maximum", "minimum", "max", "min", "clamp", "where", "masked_fill", "copy",
    "to", "type", "type_as", "view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "mT", "movedim",
    "swapaxes", "expand", "expand_as", "squeeze", "unsqueeze", "getitem", "setitem", "index", "index_put", "select",
    "narrow", "gather", "index_select", "scatter", "index_fill", "masked_scatter", "cat", "concat", "stack", "repeat",
    "repeat_interleave", "tile", "contiguous", "clone", "detach", "split", "chunk", "unbind", "tensor_split", "triu",
    "tril", "dropout", "log_softmax", "flip", "roll", "pad", "atleast_2d", "broadcast_to", "lift_fresh", "fill",
    "full", "full_like", "new_full", "tensor", "scalar_tensor", "zeros_like", "sum_to_size",
})  # fmt: skip
_NO_NUMBERS_OF = frozenset({"zeros_like", "ones_like", "full_like", "empty_like", "new_full", "new_zeros", "new_ones",
                            "new_tensor", "new_empty", "rand_like", "randn_like"})  # fmt: skip
_NO_TENSORS = (bool, int, float, torch.dtype, torch.device, torch.Size)
_FACTORS = frozenset({"mul", "div"})


class _Uses:
    """Follows masks through the graphs of a module until nothing new comes of it."""

    def __init__(self, gm: nn.Module, shapes: Shapes) -> None:
        self._gm, self._shapes, self._graph = gm, shapes, graph_of(gm)
        self.of: dict[Node, _Use] = {node: _Use() for node in self._graph.all_nodes()}
        self._calls = {node: None if is_region(node) else functional_call(node) for node in self.of}
        self._items: dict[Node, dict[int, _Use]] = {}  # of branches and loops that give several values
        self._news = False

    def note_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Look at inputs and attributes for masks."""
        inputs = self._graph.placeholders()
        values = dict(zip(inputs, args, strict=False))
        values.update({node: kwargs[str(node.target)] for node in inputs if node.target in kwargs})
        for node in self.of:
            if node.op == "get_attr":
                self._note(node, _use_of_value(read_attribute(self._gm, str(node.target))))
            elif node in inputs:
                self._note(node, _use_of_value(values[node]) if node in values else _Use(of_data=True))

    def find(self) -> None:
        """Go over the nodes until nothing is new."""
        self._news = True
        while self._news:
            self._news = False
            for node in self.of:
                if is_region(node):
                    self._region(node)
                elif node.op.startswith("call"):
                    self._call(node)

    def _note(self, node: Node, use: _Use) -> None:
        self._news |= self.of[node].join(use)

    def _joined(self, value: Any) -> _Use:
        joined = _Use(filled=_is_fill(value))
        for used in nodes_in(value):
            joined.join(self.of[used])
            joined.filled |= _is_fill(self._shapes.known_value(used))
        return joined

    def _call(self, node: Node) -> None:
        call, module = self._calls[node], module_called(node)
        read = self._joined((node.args, dict(node.kwargs)))
        if module is not None and any(each.is_floating_point() for each in module.parameters()):
            read.of_data = True
        key = "" if call is None else call.key
        if node.target is operator.getitem and node.args[0] in self._items:
            self._note(node, self._items[node.args[0]].get(node.args[1], read))
            return
        if key in _NO_NUMBERS_OF or isinstance(self._shapes.known_value(node), _NO_TENSORS):
            read.of_data = False
        read.filled = self._is_filled(call) if call is not None and key in _KEEP else False
        self._note(node, read)
        for written in written_values(node, module_called, self._calls.get):
            self._note(written, read)

    def _is_filled(self, call: Call) -> bool:
        """Tell whether fill values may be among the numbers that an operation gives."""
        arguments = dict(call.arguments)
        for name in ("mask", "condition", "index", "size", "dim"):
            arguments.pop(name, None)
        tensors = [value for value in arguments.values() if nodes_in(value)]
        if call.key in _FACTORS:  # (1 - mask) * -1e9 is one, a large factor of other numbers is none
            of_data = self._joined(tensors).of_data
            return self._joined(tensors).filled or (not of_data and any(map(_is_large, arguments.values())))
        if call.key == "clamp" and isinstance(arguments.get("min"), int | float) and arguments["min"] > FILL:
            return False
        return self._joined(list(arguments.values())).filled

    # ---- branches and loops

    def _region(self, node: Node) -> None:
        bodies = bodies_of(node)
        if not bodies or any(callable(arg) for arg in node.args):
            self._note(node, self._joined((node.args, dict(node.kwargs))))
        elif node.target is branch:
            for body in bodies:
                self._feed(body, node.args[3])
                self._take(node, _given(body))
        else:
            parts = loop_parts(node)
            for body in bodies:
                for carried in (parts.carried, parts.given):
                    self._feed(body, (*carried, *parts.operands), parts.subject)
            for carried in (parts.carried, parts.given):
                self._take(node, carried)

    def _feed(self, body: Graph, values: Sequence[Any], item_of: Any = None) -> None:
        """Give values to the last inputs of a body; the one before them, if there is one, is the item of a loop."""
        inputs = body.placeholders()
        count = len(inputs) - len(values)
        for placeholder, value in zip(inputs, (*[item_of] * count, *values), strict=True):
            self._note(placeholder, self._joined(value))

    def _take(self, node: Node, values: Any) -> None:
        """Take what a body gives for what a branch or loop gives, item by item."""
        if isinstance(values, tuple | list):
            items = self._items.setdefault(node, {})
            for i, value in enumerate(values):
                self._news |= items.setdefault(i, _Use()).join(self._joined(value))
        self._note(node, self._joined(values))


def _given(body: Graph) -> Any:
    last = body.find_nodes(op="output")
    return last[0].args[0] if last else ()


def _use_of_value(value: Any) -> _Use:
    """What is seen of an input or attribute itself."""
    joined = _Use()
    for tensor in _tensors(value):
        if tensor.is_floating_point() and not tensor.is_meta:
            joined.join(_Use(filled=True) if _is_mask(tensor) else _Use(of_data=True))
    return joined


def _is_mask(tensor: Tensor) -> bool:
    """Tell whether a tensor holds nothing but zeros and fill values, and one of these at least."""
    if tensor.is_quantized or tensor.layout is not torch.strided or isinstance(tensor, nn.Parameter):
        return False
    low = tensor <= FILL
    return bool(low.any()) and bool((low | (tensor == 0)).all())


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _is_fill(value: Any) -> bool:
    return any(type(item) is float and item <= FILL for item in _numbers(value))


def _is_large(value: Any) -> bool:
    return any(abs(item) >= -FILL for item in _numbers(value))


def _numbers(value: Any) -> list[float]:
    if type(value) in (int, float):
        return [float(value)]
    if isinstance(value, dict):
        value = list(value.values())
    return [number for item in value for number in _numbers(item)] if isinstance(value, tuple | list) else []

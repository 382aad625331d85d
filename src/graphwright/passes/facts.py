"""What is certain of the values of a captured module, and where one may stand in the place of another.

Certain is what the program itself says (a cast, the dimensions of a permutation), what a guard checks, and what
`ShapeProp` has noted in `node.meta`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import Call, kind_of, operator_of, sources_of
from graphwright.rewrite import Calls, Effects
from graphwright.runtime import expect_tensors, is_guard

__all__ = ["Facts"]

_NOTES = ("tensor_meta", "val", "example_value")
_KEEP_BOTH = frozenset({
    "permute", "transpose", "t", "mT", "movedim", "contiguous", "relu", "neg", "dropout", "clone", "detach",
    "narrow", "flip", "roll",
})  # fmt: skip
_KEEP_DTYPE = _KEEP_BOTH | {
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "select", "repeat", "numpy_T",
}  # fmt: skip
_KEEP_RANK = _KEEP_BOTH | {"to", "type", "sigmoid", "tanh", "exp", "gelu", "silu", "softmax"}
# As many as the result has dimensions.
_SIZES = {
    "view": "size",
    "reshape": "shape",
    "permute": "dims",
    "expand": "size",
}
_FAR = 64  # so many operations are looked at
_ARITHMETIC = frozenset({"add", "sub", "mul"})
# What tells a value from another one with the same elements.
_IDENTITY = frozenset({"grad", "grad_fn", "is_leaf", "requires_grad", "retains_grad", "output_nr", "_version", "data"})
_LAYOUT = frozenset({
    "stride", "is_contiguous", "storage_offset", "data_ptr", "untyped_storage", "storage", "as_strided", "layout",
})  # fmt: skip
# What gives tensors without gaps in the order of their dimensions, wherever the elements of their inputs lie.
_CONTIGUOUS = frozenset({"linear", "mm", "bmm", "addmm", "baddbmm", "nn.Linear"})
_SPREADING = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})
_NO_TENSORS = frozenset({"size", "dim", "numel", "item", "dtype", "device"})


class Facts:
    """What is certain of the values of one captured module. Made once for a run of a pass, while it edits the graph."""

    def __init__(self, gm: nn.Module) -> None:
        self.calls = Calls(gm)
        self._effects: dict[Graph, Effects] = {}
        self._guarded: dict[Graph, dict[Node, tuple[torch.dtype, int]]] = {}

    def call(self, value: Any) -> Call | None:
        """The call that a value is the result of, in canonical form."""
        is_call = isinstance(value, Node) and value.op not in ("placeholder", "get_attr", "output")
        return self.calls.of(value) if is_call else None

    # ---- of one value

    def dtype(self, value: Any) -> torch.dtype | None:
        """The dtype of a value, if it is certainly a tensor of one.

        >>> from graphwright import symbolic_trace
        >>> gm = symbolic_trace(lambda x: x.double().t() + x)
        >>> facts = Facts(gm)
        >>> [facts.dtype(node) for node in gm.graph.nodes]
        [None, torch.float64, torch.float64, None, None]
        """
        for _ in range(64):  # so far back along what keeps a dtype
            if not isinstance(value, Node):
                return None
            noted = self._noted(value, "dtype")
            if noted is None and value.op == "placeholder":
                noted = self._guard(value)[0]
            if isinstance(noted, torch.dtype):
                return noted
            call = self.call(value)
            if call is None:
                return None
            arguments = call.arguments
            dtype = arguments.get("dtype")
            if call.key in ("to", "type") and isinstance(dtype, torch.dtype):
                return dtype
            if call.key in _ARITHMETIC:
                return self._dtype_of_arithmetic(arguments)
            if call.key not in _KEEP_DTYPE or dtype is not None:
                return None
            value = arguments.get("input")
        return None

    def rank(self, value: Any) -> int | None:
        """How many dimensions a tensor certainly has."""
        for _ in range(64):
            if not isinstance(value, Node):
                return None
            shape = self._noted(value, "shape")
            if shape is not None:
                return len(shape)
            if value.op == "placeholder":
                return self._guard(value)[1]
            call = self.call(value)
            if call is None:
                return None
            sizes = call.arguments.get(_SIZES.get(call.key, ""))
            if isinstance(sizes, tuple):
                return len(sizes)
            if call.key not in _KEEP_RANK:
                return None
            value = call.arguments.get("input")
        return None

    def shape(self, value: Any) -> tuple[int, ...] | None:
        """The sizes of a tensor, where they are certain."""
        shape = self._noted(value, "shape") if isinstance(value, Node) else None
        return tuple(shape) if shape is not None and all(type(size) is int for size in shape) else None

    def memory_format(self, value: Any) -> torch.memory_format | None:
        """In which known order the elements of a tensor lie, where that is certain."""
        if not isinstance(value, Node):
            return None
        call = self.call(value)
        if call is not None and call.key in _CONTIGUOUS:
            return torch.contiguous_format
        if call is not None and call.key == "contiguous":
            noted = call.arguments["memory_format"]
        else:
            noted = self._noted(value, "memory_format")
        return noted if isinstance(noted, torch.memory_format) else None

    def is_number(self, value: Any) -> bool:
        """Tell whether a value is certainly a whole number of Python's: a size, or what is computed from sizes."""
        return type(value) is int or (isinstance(value, Node) and kind_of(value) == "int")

    def _noted(self, node: Node, name: str) -> Any:
        meta = node._meta or {}
        return next((getattr(meta[key], name) for key in _NOTES if hasattr(meta.get(key), name)), None)

    def _guard(self, node: Node) -> tuple[torch.dtype | None, int | None]:
        graph = node.graph
        if graph not in self._guarded:
            guards = graph.find_nodes(op="call_function", target=expect_tensors)
            kinds = [kind for guard in guards for kind in guard.kwargs.values()]
            self._guarded[graph] = {kind[0]: (kind[1], kind[2]) for kind in kinds if len(kind) == 3}
        return self._guarded[graph].get(node, (None, None))

    def _dtype_of_arithmetic(self, arguments: Any) -> torch.dtype | None:
        """The dtype of a tensor and a number, where that is the tensor's."""
        pair = arguments.get("input"), arguments.get("other")
        numbers = [value for value in pair if type(value) in (int, float)]
        tensors = [value for value in pair if isinstance(value, Node)]
        if len(numbers) != 1 or len(tensors) != 1:
            return None
        dtype = self.dtype(tensors[0])
        return dtype if dtype is not None and keeps_dtype(dtype, numbers[0]) else None

    # ---- of two

    def effects(self, graph: Graph) -> Effects:
        """What the operations of a graph do besides computing values."""
        if graph not in self._effects:
            self._effects[graph] = Effects(graph, self.calls)
        return self._effects[graph]

    def is_written(self, *values: Node) -> bool:
        """Tell whether one of some values of a graph may be written to in place."""
        return any(self.effects(value.graph).writer_of(value) is not None for value in values)

    def is_untouched_between(self, first: Node, last: Node, *values: Any) -> bool:
        """Tell whether what the first node has read may as well be read by the last one.

        Both are inside the same `with` blocks, and none of the values is written to between the two.
        """
        effects = self.effects(last.graph)
        nodes = [value for value in values if isinstance(value, Node)]
        is_written = any(effects.writer_of(value, between=(first, last)) is not None for value in nodes)
        return not is_written and effects.are_together(first, last)

    def may_stand_for(
        self, value: Any, root: Node, *, is_copy: bool | None = None, same_layout: bool = True
    ) -> bool | str:
        """Tell whether a value may stand in the place of another with equal elements, a copy of it or a view on it.

        Not where the program or its caller could tell: one of them is written to or asked who it is; the copy is given
        back and the value is an input, an attribute or given back, too; or the value may lie in memory in another way
        than the copy, and somebody may look: without `same_layout`, the copy has an order of its own even where the
        value has no gaps. `is_copy` says whether it is a copy where its operator may also give a view. What is written
        to, the engine sees to. Returns True or the reason.
        """
        if not isinstance(value, Node):
            return True
        if self._is_asked(root, _IDENTITY):
            return f"somebody asks which tensor {root.name} is"
        if is_copy is None:
            is_copy = root in self._sources(root)
        if self._is_given_back_twice(value, root, is_copy):
            return f"{root.name} is given back, and {value.name} has another owner"
        is_alike = not is_copy or (same_layout and self._is_dense(value))
        if not (is_alike or self._is_layout_hidden(root, at_once=same_layout and not self._is_spread(value))):
            return f"{value.name} may lie in memory in another way than {root.name}"
        return True

    def may_be_kept(self, value: Node) -> bool:
        """Tell whether every call may read one tensor in the place of a value that it made for itself so far.

        Not where it is written to, given back, or asked who it is or where it lies.
        """
        return not (self.is_written(value) or self._is_given_back(value) or self._is_asked(value, _IDENTITY | _LAYOUT))

    def _is_asked(self, value: Node, questions: frozenset[str]) -> bool:
        operators = [operator_of(user, self.calls.module(user)) for user in value.users]
        return any(each is not None and (each.acts or each.key in questions) for each in operators)

    def _is_given_back_twice(self, value: Node, root: Node, is_copy: bool) -> bool:
        if not is_copy:
            given = [node for output in root.graph.find_nodes(op="output") for node in nodes_in(output.args)]
            return root in given and (value in given or value.op in ("placeholder", "get_attr"))
        if not self._is_given_back(root):
            return False
        sources = self._sources(value)
        return any(source is None or self._is_given_back(source, but=root) for source in sources)

    def _is_given_back(self, node: Node, but: Node | None = None) -> bool:
        """Tell whether a value, or what may share its memory, is given back by its graph; `but` by way of one node."""
        seen = {node, but}
        waiting = [node]
        while waiting:
            for user in waiting.pop().users:
                if user.op == "output":
                    return True
                if user not in seen and not is_guard(user) and self._sources(user) != {user}:
                    seen.add(user)
                    waiting.append(user)
        return False

    def _sources(self, node: Node) -> set[Node | None]:
        return sources_of(node, self.calls.module)

    def _is_dense(self, value: Node) -> bool:
        """Tell whether the elements certainly lie in memory without gaps, as those of a copy would."""
        shape, stride = self._noted(value, "shape"), self._noted(value, "stride")
        if shape is not None and isinstance(stride, tuple) and len(stride) == len(shape):
            return _lies_densely(shape, stride)
        return value.op not in ("placeholder", "get_attr") and self._sources(value) == {value}

    def _is_spread(self, value: Any) -> bool:
        """Tell whether one element in memory may be several of a value: there its dimensions have no order."""
        for _ in range(_FAR):
            if value.op in ("placeholder", "get_attr") or self._sources(value) == {value}:
                return False
            call = self.call(value)
            value = None if call is None or call.key in _SPREADING else call.arguments.get("input")
            if not isinstance(value, Node):
                return True
        return True

    def _is_layout_hidden(self, node: Node, at_once: bool) -> bool:
        """Tell whether nobody sees where in memory the elements of a value lie, in what is computed from it either.

        With `at_once`, it is enough that what reads it makes values of its own.
        """
        seen: set[Node] = set()
        waiting = [node]
        while waiting:
            for user in waiting.pop().users:
                operator = operator_of(user, self.calls.module(user))
                if is_guard(user) or (operator is not None and operator.key in _CONTIGUOUS | _NO_TENSORS):
                    continue
                if user.op == "output" or operator is None or operator.key in _LAYOUT or len(seen) > _FAR:
                    return False
                if self._sources(user) != {user}:
                    return False
                if user not in seen and not at_once:
                    seen.add(user)
                    waiting.append(user)
        return True


def keeps_dtype(dtype: torch.dtype, number: Any) -> bool:
    """Tell whether arithmetic with a number gives a tensor of the same dtype.

    >>> keeps_dtype(torch.float16, 2), keeps_dtype(torch.int8, 2), keeps_dtype(torch.int8, 2.0)
    (True, True, False)
    """
    if dtype.is_floating_point or dtype.is_complex:
        return type(number) in (int, float)
    return type(number) is int and dtype is not torch.bool


def _lies_densely(shape: Any, stride: Any) -> bool:
    """Tell whether sizes and strides leave no gaps and share no elements."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True

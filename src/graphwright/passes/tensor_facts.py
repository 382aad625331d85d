"""What is certain of the tensors of a graph without running it: ranks, numbers, which layouts are seen."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.ops import call_of, unpack
from graphwright.runtime import expect_tensors, read_attribute

__all__ = [
    "dtype_of", "forgets_layout", "is_number", "is_viewed_after_moving", "last_size", "rank_of", "rank_root",
    "shape_and_dtype",
]  # fmt: skip

_DEEPEST = 48  # operations that are looked through


def shape_and_dtype(value: object) -> tuple[Any, Any] | None:
    """The shape and dtype of a tensor: of an attribute as it is, of others as `ShapeProp` noted it; None if unknown.

    >>> from graphwright import Graph
    >>> print(shape_and_dtype(Graph().placeholder("x")))
    None
    """
    if not isinstance(value, Node):
        return None
    owner = value.graph.owning_module
    if value.op == "get_attr" and owner is not None:
        tensor = read_attribute(owner, str(value.target))
        return (tensor.shape, tensor.dtype) if isinstance(tensor, torch.Tensor) else None
    meta: Any = value.meta.get("tensor_meta")
    return (meta.shape, meta.dtype) if hasattr(meta, "dtype") else None


def dtype_of(node: object) -> torch.dtype | None:
    """The dtype of a tensor, where the graph says it.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> dtype_of(graph.call_method("exp", (graph.call_method("float", (graph.placeholder("x"),)),)))
    torch.float32
    """
    for _ in range(_DEEPEST):
        known = shape_and_dtype(node)
        if known is not None:
            return known[1]  # type: ignore[no-any-return]
        if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
            break
        call = call_of(node)
        if call is None or (call.key not in _KEEP_DTYPE and call.key != "to"):
            break
        if call.key == "to" and call.arguments.get("dtype") is not None:
            dtype = call.arguments["dtype"]
            return dtype if isinstance(dtype, torch.dtype) else None
        node = call.arguments["input"]
    return None


def last_size(node: object, depth: int = 0) -> int | None:
    """The size of the last dimension, where the graph says it.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> last_size(graph.call_method("relu", (graph.call_method("view", (graph.placeholder("x"), -1, 8)),)))
    8
    """
    if not isinstance(node, Node) or depth > _DEEPEST:
        return None
    known = shape_and_dtype(node)
    if known is not None:
        return int(known[0][-1]) if len(known[0]) else None
    if node.op == "call_module":
        module = _module(node)
        if isinstance(module, nn.Linear | nn.Embedding):
            return module.out_features if isinstance(module, nn.Linear) else module.embedding_dim
        return last_size(node.args[0], depth + 1) if isinstance(module, _KEEP_RANK_MODULES) and node.args else None
    call = call_of(node) if node.op in ("call_function", "call_method") else None
    if call is None:
        return None
    arguments = call.arguments
    if call.key in _SAYS_RANK and call.key != "permute":
        sizes = arguments.get(_SAYS_RANK[call.key])
        last = sizes[-1] if isinstance(sizes, tuple) and sizes else None
        return last if type(last) is int and last > 0 else None
    if call.key in _ELEMENTWISE:  # of sizes that are broadcast, all but 1 are the same
        sizes = [last_size(value, depth + 1) for value in arguments.values() if isinstance(value, Node)]
        return next((size for size in sizes if size is not None and size > 1), None)
    return last_size(arguments.get("input"), depth + 1) if call.key in _KEEP_RANK - {"linear"} else None


# ---- ranks

_ELEMENTWISE = frozenset({"add", "sub", "mul", "div", "where", "masked_fill", "maximum", "minimum"})
_KEEP_RANK = frozenset({
    "contiguous", "to", "type", "type_as", "dropout", "softmax", "neg", "relu", "gelu", "silu", "tanh", "sigmoid",
    "exp", "clone", "detach", "layer_norm", "rms_norm", "linear", "normalize", "flip", "roll", "pow", "rsqrt",
    "sqrt", "log", "clamp", "abs", "cos", "sin", "cumsum",
})  # fmt: skip
_KEEP_RANK_MODULES = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.modules.dropout._DropoutNd, nn.GELU, nn.ReLU)
_KEEP_DTYPE = _KEEP_RANK - {"to", "type", "type_as", "softmax", "cumsum", "linear"} | {"view", "reshape", "transpose"}
_SAYS_RANK = {"view": "size", "reshape": "shape", "expand": "size", "permute": "dims"}


def rank_of(node: object) -> tuple[int, bool]:
    """How many dimensions a value has at the least, as far as the graph says, and whether it has exactly as many.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> rank_of(graph.call_method("neg", (graph.call_method("view", (x, 2, -1, 3)),))), rank_of(x)
    ((3, True), (0, False))
    """
    return _Ranks().of(node, 0)


_UNKNOWN = (0, False)


class _Ranks:
    def __init__(self) -> None:
        self._known: dict[Node, tuple[int, bool]] = {}

    def of(self, node: object, depth: int) -> tuple[int, bool]:
        if not isinstance(node, Node):
            return 0, is_number(node)
        if depth > _DEEPEST:
            return _UNKNOWN
        if node not in self._known:
            known = shape_and_dtype(node)
            self._known[node] = (len(known[0]), True) if known is not None else self._make(node, depth + 1)
        return self._known[node]

    def _make(self, node: Node, depth: int) -> tuple[int, bool]:
        if node.op == "placeholder":
            return max((_guarded_rank(user, node) for user in node.users), default=_UNKNOWN)
        if node.op == "call_module":
            kept = isinstance(_module(node), _KEEP_RANK_MODULES) and len(node.args) == 1
            return self.of(node.args[0], depth) if kept else _UNKNOWN
        call = call_of(node) if node.op in ("call_function", "call_method") else None
        if call is None:
            return _UNKNOWN
        key, arguments = call.key, call.arguments
        if key == "getitem":
            return self._of_item(arguments["input"], arguments["index"], depth)
        if key in _SAYS_RANK:
            sizes = arguments.get(_SAYS_RANK[key])
            return (len(sizes), True) if isinstance(sizes, tuple) else _UNKNOWN
        if key in ("bmm", "baddbmm"):
            return 3, True
        if key in _ELEMENTWISE:
            ranks = [self.of(value, depth) for value in arguments.values()]
            return max(rank for rank, _ in ranks), all(is_exact for _, is_exact in ranks)
        least, is_exact = self.of(arguments.get("input"), depth)
        if key in ("transpose", "mT"):
            two = key == "mT" or arguments.get("dim0") != arguments.get("dim1")
            return max(2 * two, least), is_exact
        if key == "unsqueeze":
            return least + 1, is_exact
        return (least, is_exact) if key in _KEEP_RANK else _UNKNOWN

    def _of_item(self, owner: object, index: object, depth: int) -> tuple[int, bool]:
        if isinstance(owner, Node) and type(index) is int:
            source = owner.args[0] if owner.target is unpack else owner
            call = call_of(source) if isinstance(source, Node) and source.op != "placeholder" else None
            if call is not None and call.key in ("unbind", "split", "chunk"):
                least, is_exact = self.of(call.arguments["input"], depth)
                return max(0, least - (call.key == "unbind")), is_exact
        parts = index if isinstance(index, tuple) else (index,)
        if not all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts):
            return _UNKNOWN
        least, is_exact = self.of(owner, depth)
        taken = sum(type(part) in (int, slice) for part in parts)
        gone = sum(type(part) is int for part in parts)
        return max(taken, least) - gone + sum(part is None for part in parts), is_exact


def _guarded_rank(guard: Node, tensor: Node) -> tuple[int, bool]:
    if guard.target is not expect_tensors:
        return _UNKNOWN
    ranks = [fact[2] for fact in guard.kwargs.values() if isinstance(fact, tuple) and fact[0] is tensor]
    return max(((rank, True) for rank in ranks if type(rank) is int), default=_UNKNOWN)


def rank_root(node: Node) -> Node:
    """The value farthest back that has as many dimensions as this one, for certain."""
    for _ in range(_DEEPEST):
        before = None
        if node.op == "call_module" and isinstance(_module(node), _KEEP_RANK_MODULES) and len(node.args) == 1:
            before = node.args[0]
        elif node.op in ("call_function", "call_method") and (call := call_of(node)) is not None:
            kept = call.key in _KEEP_RANK or call.key in ("transpose", "mT")
            scaled = call.key in ("mul", "div") and is_number(call.arguments.get("other"))
            before = call.arguments.get("input") if kept or scaled else None
        if not isinstance(before, Node):
            break
        node = before
    return node


def _module(node: Node) -> nn.Module | None:
    owner = node.graph.owning_module
    return None if owner is None else owner.get_submodule(str(node.target))


# ---- numbers

_ARITHMETIC = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.pow, operator.neg,
})  # fmt: skip


def is_number(value: object) -> bool:
    """Tell whether a value is a number, or a node that gives one for certain: a size, and what is computed from it.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> is_number(2.0), is_number(x), is_number(graph.call_function(math.sqrt, (graph.call_method("size", (x, 1)),)))
    (True, False, True)
    """
    if not isinstance(value, Node):
        return type(value) in (int, float)
    if value.op == "call_method" and value.target in ("size", "dim", "numel"):
        return value.target != "size" or len(value.args) + len(value.kwargs) == 2
    if value.op != "call_function":
        return False
    if value.target in (math.sqrt, float, int, len, math.pow):
        return True
    if value.target is operator.getitem:
        sizes = value.args[0]
        shape = isinstance(sizes, Node) and (call := call_of(sizes)) is not None and call.key == "size"
        return shape and type(value.args[1]) is int
    return value.target in _ARITHMETIC and all(is_number(arg) for arg in value.args)


# ---- layouts

_ANY_LAYOUT = frozenset({"contiguous", "linear", "matmul", "bmm", "size", "dim"})
_MOVED = frozenset({"transpose", "permute", "mT"})


def forgets_layout(node: Node, moved: bool = False) -> bool:
    """Tell whether nothing can see in which order the elements of a value lie in memory: all its readers copy it.

    A `reshape` copies what has been transposed; of another value it may be a view.
    """
    return all(_is_any_layout(user, moved) for user in node.users)


def _is_any_layout(user: Node, moved: bool) -> bool:
    if user.op == "call_module":
        return type(_module(user)) is nn.Linear
    if user.op not in ("call_function", "call_method") or (call := call_of(user)) is None:
        return False
    if call.key in _MOVED:
        return not moved and forgets_layout(user, moved=True)
    return call.key in _ANY_LAYOUT or (moved and call.key in ("reshape", "flatten"))


def is_viewed_after_moving(node: Node, moved: bool = False, depth: int = 4) -> bool:
    """Tell whether a reader may take a `view` that a value has only because its dimensions lie in a certain order."""
    for user in node.users if depth else ():
        call = call_of(user) if user.op in ("call_function", "call_method") else None
        if call is None:
            continue
        if call.key in ("view", "view_as", "as_strided") and moved:
            return True
        if (call.key in _MOVED or call.key in _ELEMENTWISE or call.key in _KEEP_RANK) and is_viewed_after_moving(
            user, moved or call.key in _MOVED, depth - 1
        ):
            return True
    return False

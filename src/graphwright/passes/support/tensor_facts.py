"""What is certain of single values of a captured module: their dtype, dimensions and sizes, and what is a number.

Certain is what the program itself says (a cast, the dimensions of a permutation), what a guard checks, and what
`ShapeProp` has noted in `node.meta`.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.ops import Call, functional_call, kind_of, module_called, unpack
from graphwright.runtime import expect_tensors, read_attribute

_FAR = 64  # so many operations are looked through
_NOTES = ("tensor_meta", "val", "example_value")


def is_version_read(value: Node) -> bool:
    """Tell whether the program asks how often a tensor was written to, as autograd counts it: `x._version`."""
    return any(user.target is getattr and user.args[1:] == ("_version",) for user in value.users)


def noted(value: object, name: str) -> Any:
    """What passes have noted of a value under a name that tensors have: "dtype", "shape", "stride"; None for nothing.

    >>> from graphwright import Graph
    >>> print(noted(Graph().placeholder("x"), "shape"))
    None
    """
    meta = (value._meta if isinstance(value, Node) else None) or {}
    return next((getattr(meta[key], name) for key in _NOTES if hasattr(meta.get(key), name)), None)


def shape_and_dtype(value: object) -> tuple[Any, Any] | None:
    """The shape and dtype of a tensor: of an attribute as it is, of others as they are noted; None if unknown.

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
    shape, dtype = noted(value, "shape"), noted(value, "dtype")
    return None if shape is None or dtype is None else (shape, dtype)


def _guarded(value: Node, fact: int) -> Any:
    """What a guard checks of an input: 1 for the dtype, 2 for the number of dimensions."""
    for guard in value.users if value.op == "placeholder" else ():
        if guard.target is expect_tensors:
            kinds = [kind for kind in guard.kwargs.values() if isinstance(kind, tuple) and kind[0] is value]
            known = [kind[fact] for kind in kinds if len(kind) > fact and not isinstance(kind[fact], tuple | None)]
            if known:
                return known[0]
    return None


def made_by(value: object) -> Call | None:
    """The call that a value is the result of, in canonical form; None for inputs, attributes and what is not known."""
    return functional_call(value) if isinstance(value, Node) else None


# ---- dtypes

_ARITHMETIC = frozenset({"add", "sub", "mul"})
_LIMITED = frozenset({"pow", "clamp"})  # by numbers or tensors
_KEEP_BOTH = frozenset({  # the dtype, and how many dimensions there are
    "permute", "transpose", "t", "mT", "movedim", "contiguous", "relu", "neg", "dropout", "clone", "detach",
    "narrow", "flip", "roll",
})  # fmt: skip
_KEEP_DTYPE = _KEEP_BOTH | {
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "select", "repeat", "numpy_T",
}  # fmt: skip
_FUNCTIONS = frozenset({  # of whole numbers these give fractions, and of narrow ones, under autocast, wider ones
    "gelu", "silu", "tanh", "sigmoid", "exp", "layer_norm", "rms_norm", "normalize", "rsqrt", "sqrt", "log", "abs",
    "cos", "sin",
})  # fmt: skip


def dtype_of(value: object) -> torch.dtype | None:
    """The dtype of a value, if it is certainly a tensor of one.

    >>> from graphwright import symbolic_trace
    >>> [dtype_of(node) for node in symbolic_trace(lambda x: x.double().t() + x).graph.nodes]
    [None, torch.float64, torch.float64, None, None]
    """
    numbers: list[Any] = []
    is_wide = False
    for _ in range(_FAR):
        dtype = _dtype_said(value)
        if dtype is not None:
            kept = all(keeps_dtype(dtype, number) for number in numbers)
            return dtype if kept and (not is_wide or dtype in (torch.float32, torch.float64)) else None
        call = made_by(value)
        if call is None:
            return None
        is_wide = is_wide or call.key in _FUNCTIONS | _LIMITED
        if call.key in _ARITHMETIC:
            pair = call.arguments.get("input"), call.arguments.get("other")
            numbers += [each for each in pair if not isinstance(each, Node)]
            tensors = [each for each in pair if isinstance(each, Node)]
            value = tensors[0] if len(tensors) == 1 else None
        elif call.key in _LIMITED:
            value = call.arguments.get("input") if _is_only_tensor(call) else None
        elif call.key in ("to", "type") and isinstance(call.arguments.get("dtype"), Node):
            value = _with_dtype(call.arguments["dtype"])
        elif call.key in _KEEP_DTYPE | _FUNCTIONS | {"to"} and not _is_cast(call):
            value = call.arguments.get("input")
        else:
            return None
    return None


def _is_only_tensor(call: Call) -> bool:
    return all(is_number(each) or each is None for name, each in call.arguments.items() if name != "input")


def _is_cast(call: Call) -> bool:
    return call.arguments.get("dtype") is not None or call.arguments.get("other") is not None


def _dtype_said(value: object) -> torch.dtype | None:
    """The dtype that a note, a guard or a cast says."""
    if not isinstance(value, Node):
        return None
    dtype = noted(value, "dtype") or _guarded(value, 1)
    if not isinstance(dtype, torch.dtype):
        call = made_by(value)
        dtype = call.arguments.get("dtype") if call is not None and call.key in ("to", "type") else None
    return dtype if isinstance(dtype, torch.dtype) else None


def dtype_named(value: object) -> torch.dtype | None:
    """The dtype that an argument is: one itself, or that of a tensor whose dtype is known; None for any other.

    >>> from graphwright import symbolic_trace
    >>> [dtype_named(node) for node in symbolic_trace(lambda x: x.double().dtype).graph.nodes]
    [None, None, torch.float64, None]
    """
    return value if isinstance(value, torch.dtype) else dtype_of(_with_dtype(value))


def _with_dtype(value: object) -> object:
    """What has the dtype that a node reads; None for other values."""
    reads = isinstance(value, Node) and value.target is getattr and value.args[1:] == ("dtype",)
    return value.args[0] if isinstance(value, Node) and reads else None


def keeps_dtype(dtype: torch.dtype, number: Any) -> bool:
    """Tell whether arithmetic with a number gives a tensor of the same dtype.

    >>> keeps_dtype(torch.float16, 2), keeps_dtype(torch.int8, 2), keeps_dtype(torch.int8, 2.0)
    (True, True, False)
    """
    if dtype.is_floating_point or dtype.is_complex:
        return type(number) in (int, float)
    return type(number) is int and dtype is not torch.bool


# ---- dimensions and sizes

_ELEMENTWISE = _LIMITED | {"add", "sub", "mul", "div", "where", "masked_fill", "maximum", "minimum"}
_KEEP_RANK = _KEEP_BOTH | _FUNCTIONS | {
    "to", "type", "type_as", "softmax", "linear", "cumsum", "nn.Linear", "nn.LayerNorm", "nn.RMSNorm", "nn.Identity",
}  # fmt: skip
_SIZES = {"view": "size", "reshape": "shape", "expand": "size", "permute": "dims"}  # as many as there are dimensions
_MOVED = frozenset({"permute", "transpose", "t", "mT", "movedim"})


def rank_of(value: object) -> tuple[int, bool]:
    """How many dimensions a value has at the least, as far as the graph says, and whether it has exactly as many.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> rank_of(graph.call_method("neg", (graph.call_method("view", (x, 2, -1, 3)),))), rank_of(x)
    ((3, True), (0, False))
    """
    return _Ranks().of(value, 0)


def sure_rank(value: object) -> int | None:
    """How many dimensions a tensor certainly has."""
    rank, is_exact = rank_of(value)
    return rank if isinstance(value, Node) and is_exact else None


def shape_of(value: object) -> tuple[int, ...] | None:
    """The sizes of a tensor that are noted, where all are numbers."""
    shape = noted(value, "shape")
    return tuple(shape) if shape is not None and all(type(size) is int for size in shape) else None


_UNKNOWN = (0, False)


class _Ranks:
    def __init__(self) -> None:
        self._known: dict[Node, tuple[int, bool]] = {}

    def of(self, value: object, depth: int) -> tuple[int, bool]:
        if not isinstance(value, Node) or is_number(value):
            return 0, not isinstance(value, tuple | list)
        if depth > _FAR:
            return _UNKNOWN
        if value not in self._known:
            known = shape_and_dtype(value)
            self._known[value] = (len(known[0]), True) if known is not None else self._make(value, depth + 1)
        return self._known[value]

    def _make(self, node: Node, depth: int) -> tuple[int, bool]:
        guarded = _guarded(node, 2)
        if type(guarded) is int:
            return guarded, True
        call = made_by(node)
        if call is None:
            return _UNKNOWN
        key, arguments = call.key, call.arguments
        if key == "getitem":
            return self._of_item(arguments["input"], arguments["index"], depth)
        if key in _SIZES:
            sizes = arguments.get(_SIZES[key])
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
            call = made_by(owner.args[0] if owner.target is unpack else owner)
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


def rank_root(node: Node) -> Node:
    """The value farthest back that has as many dimensions as this one, for certain."""
    for _ in range(_FAR):
        call = made_by(node)
        before = None
        if call is not None:
            scaled = call.key in ("mul", "div") and is_number(call.arguments.get("other"))
            before = call.arguments.get("input") if call.key in _KEEP_RANK or scaled else None
        if not isinstance(before, Node):
            break
        node = before
    return node


def last_size(value: object) -> int | None:
    """The size of the last dimension, where the graph says it.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> last_size(graph.call_method("relu", (graph.call_method("view", (graph.placeholder("x"), -1, 8)),)))
    8
    """
    return _last_size(value, 0)


def _last_size(value: object, depth: int) -> int | None:
    call = made_by(value)
    known = shape_and_dtype(value)
    if known is not None:
        last = known[0][-1] if len(known[0]) else None
        return last if type(last) is int else None
    if call is None or not isinstance(value, Node) or depth > _FAR:
        return None
    arguments = call.arguments
    if call.key in ("nn.Linear", "nn.Embedding"):
        module: Any = module_called(value)
        return int(module.out_features if call.key == "nn.Linear" else module.embedding_dim)
    if call.key in _SIZES and call.key != "permute":
        sizes = arguments.get(_SIZES[call.key])
        last = sizes[-1] if isinstance(sizes, tuple) and sizes else None
        return last if type(last) is int and last > 0 else None
    if call.key in _ELEMENTWISE:  # of sizes that are broadcast, all but 1 are the same
        found = [_last_size(each, depth + 1) for each in arguments.values() if isinstance(each, Node)]
        return next((size for size in found if size is not None and size > 1), None)
    kept = call.key in _KEEP_RANK - _MOVED - {"linear", "narrow"}
    return _last_size(arguments.get("input"), depth + 1) if kept else None


# ---- numbers and tensors

_NUMBERS = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.pow, operator.neg,
})  # fmt: skip


def is_whole_number(value: object) -> bool:
    """Tell whether a value is certainly a whole number of Python's: a size, or what is computed from sizes."""
    return type(value) is int or (isinstance(value, Node) and kind_of(value) == "int")


def is_number(value: object) -> bool:
    """Tell whether a value is a number, or a node that gives one for certain: a size, and what is computed from it.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> is_number(2.0), is_number(x), is_number(graph.call_function(math.sqrt, (graph.call_method("size", (x, 1)),)))
    (True, False, True)
    """
    seen: set[Node] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if type(each) in (int, float) or is_whole_number(each):
            continue
        if not isinstance(each, Node) or each.op != "call_function" or len(seen) > _FAR:
            return False
        if each.target in _NUMBERS:
            waiting += [] if each in seen else each.args
            seen.add(each)
        elif each.target not in (math.sqrt, float, int, len, math.pow):
            return False
    return True


_NO_TENSOR = frozenset({"size", "dim", "numel", "stride", "item", "tolist", "dtype", "device", "layout", "getitem"})
_OF_NUMBERS_TOO = _ARITHMETIC | {"div", "pow", "neg", "floor_divide", "remainder", "positive", "abs"}
_SEVERAL = frozenset({"unbind", "split", "chunk", "tensor_split", "var_mean", "std_mean", "topk", "sort", "max", "min",
                      "nonzero", "meshgrid", "unique", "concat"})  # fmt: skip
_ONE_TENSOR = (
    nn.modules.conv._ConvNd | nn.modules.batchnorm._NormBase | nn.Linear | nn.LayerNorm | nn.GroupNorm | nn.Embedding
    | nn.modules.pooling._AvgPoolNd
)  # fmt: skip


def gives_tensor(value: object, depth: int = 16) -> bool:
    """Tell whether a node certainly gives one tensor, rather than a number or a list.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> gives_tensor(graph.call_method("relu", (x,))), gives_tensor(graph.call_method("size", (x, 0))), gives_tensor(x)
    (True, False, False)
    """
    if not isinstance(value, Node) or not depth or is_number(value):
        return False
    if shape_and_dtype(value) is not None or rank_of(value)[0]:
        return True
    if value.op == "call_module" and isinstance(module_called(value), _ONE_TENSOR):
        return True
    call = made_by(value)
    if call is None or call.key in _NO_TENSOR or "." in call.key:
        return False
    if call.key in _OF_NUMBERS_TOO:
        return any(gives_tensor(each, depth - 1) for each in call.arguments.values())
    return all(output in (0, None) for output, _ in call.operator.aliases) and call.key not in _SEVERAL

"""Operations of one kind after each other, done as one: casts, transpositions, views, concatenations, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.capture import Proxy
from graphwright.ir import Node
from graphwright.ops import Call
from graphwright.passes.support.layouts import memory_format_of
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.tensor_facts import dtype_of, made_by, sure_rank
from graphwright.rewrite import Match, Rule, rewrite, rule


@dataclass(frozen=True, slots=True)
class CollapseChains:
    """Make one operation of two of a kind that follow each other, or none where the second undoes the first.

    - casts, where the first one loses nothing: `x.double().half()` of single precision;
    - `permute`, `transpose`, `t`, `mT`, `T`, of known rank or undoing each other;
    - `view` and `reshape` of what was viewed, reshaped, flattened, squeezed or unsqueezed; `squeeze` of `unsqueeze`;
    - `cat` of `cat` along the same dimension, where the inner one joins tensors of one dtype;
    - `clamp` of `clamp` with limits that are numbers of one type and leave something between them.

    The dtype and rank have to be known: from the program, a guard, or what `ShapeProp` has noted. Left alone are chains
    with a write or the edge of a `with` block in them, values in the middle that others read, and chains after which a
    value would be seen to share its memory, or lie in it, in another way. Returns the number of operations that went.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: torch.cat([x.permute(0, 2, 1).transpose(1, 2).clamp(0).clamp(max=6)] * 2))
    >>> CollapseChains().run(gm)
    2
    >>> print(gm.code.strip())
    def forward(self, x):
        clamp_2 = torch.clamp(x, 0, 6);  x = None
        cat = torch.cat([clamp_2, clamp_2]);  clamp_2 = None
        return cat
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        ownership = Ownership(gm)
        return rewrite(
            gm,
            [
                *_casts(ownership),
                *_transpositions(ownership),
                *_views(ownership),
                _cats(ownership),
                *_limits(ownership),
            ],
        ).count


def _inner(match: Match, *keys: str) -> Call | None:
    """The call that gave x, if it is one of these operators, writes nothing and only the root reads its value."""
    call = made_by(match.x)
    is_link = call is not None and call.key in keys and not call.writes and list(match.x.users) == [match.roots[0]]
    return call if is_link else None


def _is_undisturbed(ownership: Ownership, match: Match) -> bool:
    return ownership.is_untouched_between(match.x, match.roots[0], match.x, *match.x.all_input_nodes)


def _value(match: Match, node: Node) -> Any:
    """A value of the graph, for a replacement that is being written."""
    return Proxy(node, match.tracer)


# ---- casts

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# What has room for every value of a dtype.
_WIDER: dict[torch.dtype, tuple[torch.dtype, ...]] = {
    torch.float16: (torch.float32, torch.float64),
    torch.bfloat16: (torch.float32, torch.float64),
    torch.float32: (torch.float64,),
    torch.bool: (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.uint8: (torch.int16, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int8: (torch.int16, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int16: (torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int32: (torch.int64, torch.float64),
}


def _casts(ownership: Ownership) -> list[Rule]:
    def source(match: Match) -> Any:
        """What is cast twice, if the first time loses nothing."""
        inner = _inner(match, "to")
        if inner is None or not _is_plain_cast(inner) or not isinstance(match.dtype, torch.dtype):
            return None
        x, middle = inner.arguments["input"], inner.arguments["dtype"]
        dtype = dtype_of(x)
        is_exact = dtype is not None and middle in _WIDER.get(dtype, ())
        # A fraction and a number below zero are cast to whole numbers as each device likes.
        is_safe = middle in _INTEGERS or match.dtype not in _INTEGERS or match.dtype == dtype
        is_double = middle != match.dtype
        return x if is_exact and is_safe and is_double and _is_undisturbed(ownership, match) else None

    def goes_back(match: Match) -> bool | str:
        x = source(match)
        if x is None or dtype_of(x) != match.dtype:
            return False
        return ownership.may_stand_for(x, match.roots[0], is_copy=True)

    def goes_on(match: Match) -> bool:
        x = source(match)
        return x is not None and dtype_of(x) != match.dtype

    def pattern(x: Any, dtype: Any) -> Any:
        return x.to(dtype=dtype)

    def read(match: Match) -> Any:
        return match.x.all_input_nodes[0]

    return [
        rule(pattern, read, where=goes_back, name="cast_and_back"),
        rule(pattern, lambda dtype, match: _value(match, read(match)).to(dtype), where=goes_on, name="cast_of_cast"),
    ]


def _is_plain_cast(call: Call) -> bool:
    """Tell whether a call of `to` changes nothing but the dtype."""
    others = {name: value for name, value in call.arguments.items() if name not in ("input", "dtype")}
    return isinstance(call.arguments.get("dtype"), torch.dtype) and all(
        value in (None, False) or value is torch.preserve_format for value in others.values()
    )


# ---- transpositions

_TURNS = ("permute", "transpose", "t", "mT", "numpy_T")


def _transpositions(ownership: Ownership) -> list[Rule]:
    def order(match: Match) -> tuple[int, ...] | None:
        """The dimensions of the chain's input, in the order of its result; none at all for one that undoes itself."""
        inner, outer = _inner(match, *_TURNS), made_by(match.roots[0])
        if inner is None or outer is None or not _is_undisturbed(ownership, match):
            return None
        if _swapped(inner) is not None and _swapped(inner) == _swapped(outer):
            return ()
        rank = sure_rank(match.roots[0]) or sure_rank(inner.arguments["input"])
        first, second = _order(inner, rank), _order(outer, rank)
        if first is None or second is None:
            return None
        joined = tuple([first[dim] for dim in second])
        return () if joined == tuple(range(len(joined))) else joined

    def undoes_itself(match: Match) -> bool | str:
        return order(match) == () and ownership.may_stand_for(match.x.all_input_nodes[0], match.roots[0])

    def is_one(match: Match) -> bool:
        return bool(order(match))

    def joined(match: Match) -> Any:
        return torch.permute(_value(match, match.x.all_input_nodes[0]), order(match) or ())

    patterns: list[Callable[..., Any]] = [
        lambda x, dims: torch.permute(x, dims),
        lambda x, one, other: torch.transpose(x, one, other),
        lambda x: x.t(),
        lambda x: x.mT,
        lambda x: x.T,
    ]
    back = [
        rule(each, lambda match: match.x.all_input_nodes[0], where=undoes_itself, name="transpose_and_back")
        for each in patterns
    ]
    return back + [rule(each, joined, where=is_one, name="transpose_of_transpose") for each in patterns]


def _swapped(call: Call) -> Any:
    """What a call swaps, whatever the rank: equal ones undo each other."""
    if call.key == "mT":
        return frozenset((-2, -1))
    if call.key == "transpose":
        pair = call.arguments["dim0"], call.arguments["dim1"]
        return frozenset(pair) if all(type(dim) is int for dim in pair) else None
    return call.key if call.key in ("t", "numpy_T") else None


def _order(call: Call, rank: int | None) -> tuple[int, ...] | None:
    """The dimensions of the input, in the order of the result."""
    if call.key == "permute":
        dims = call.arguments["dims"]
        is_plain = isinstance(dims, tuple) and all(type(dim) is int for dim in dims)
        return tuple([dim % len(dims) for dim in dims]) if is_plain else None
    if rank is None or rank < 2:
        return None
    dims = list(range(rank))
    if call.key == "numpy_T" or (call.key == "t" and rank == 2):
        return tuple(reversed(dims))
    swapped = _swapped(call)
    if not isinstance(swapped, frozenset) or not swapped:
        return None
    one, other = min(swapped) % rank, max(swapped) % rank
    dims[one], dims[other] = dims[other], dims[one]
    return tuple(dims)


# ---- views

_VIEWS = ("view", "unsqueeze", "squeeze", "unflatten")
_MAYBE_COPIES = ("reshape", "flatten", "ravel")


def _views(ownership: Ownership) -> list[Rule]:
    def is_of_view(match: Match) -> bool:
        inner = _inner(match, *_VIEWS)
        is_link = inner is not None and "dtype" not in inner.arguments
        return is_link and not _reads(match.size, match.x) and _is_undisturbed(ownership, match)

    def is_of_reshape(match: Match) -> bool | str:
        """Only where nobody can tell whether the value has memory of its own: now it may share that of the input."""
        inner, root = _inner(match, *_MAYBE_COPIES), match.roots[0]
        if inner is None or _reads(match.size, match.x) or not _is_undisturbed(ownership, match):
            return False
        x = inner.arguments["input"]
        if memory_format_of(x) is torch.contiguous_format:
            return True
        if ownership.is_written(x, root):
            return f"{x} or {root} is written to"
        return ownership.may_stand_for(x, root, is_copy=True, same_layout=False)

    def comes_back(match: Match) -> bool | str:
        inner = _inner(match, "unsqueeze")
        is_back = inner is not None and (inner.arguments["dim"],) == match.dim and _is_undisturbed(ownership, match)
        return is_back and ownership.may_stand_for(match.x.all_input_nodes[0], match.roots[0])

    def view(x: Any, size: Any) -> Any:
        return torch.ops.aten.view.default(x, size)

    def reshape(x: Any, size: Any) -> Any:
        return torch.reshape(x, size)

    def reshaped(size: Any, match: Match) -> Any:
        return _value(match, match.x.all_input_nodes[0]).reshape(size)

    def viewed(size: Any, match: Match) -> Any:
        return _value(match, match.x.all_input_nodes[0]).view(size)

    return [
        rule(view, viewed, where=is_of_view, name="view_of_view"),
        rule(reshape, reshaped, where=is_of_view, name="reshape_of_view"),
        rule(view, reshaped, where=is_of_reshape, name="view_of_reshape"),
        rule(reshape, reshaped, where=is_of_reshape, name="reshape_of_reshape"),
        rule(
            lambda x, dim: torch.squeeze(x, dim),
            lambda match: match.x.all_input_nodes[0],
            where=comes_back,
            name="unsqueeze_and_squeeze",
        ),
    ]


def _reads(value: Any, node: Node) -> bool:
    return value is node or (isinstance(value, tuple | list) and any(_reads(item, node) for item in value))


# ---- concatenations


def _cats(ownership: Ownership) -> Rule:
    def inner_ones(match: Match) -> list[Node]:
        if not isinstance(match.tensors, tuple | list):
            return []
        return [node for node in dict.fromkeys(match.tensors) if _is_inner_cat(ownership, node, match)]

    def flat(match: Match) -> Any:
        inner = inner_ones(match)
        parts: list[Any] = []
        for node in match.tensors:
            call = made_by(node) if node in inner else None
            parts += [node] if call is None else call.arguments["tensors"]
        return torch.cat([_value(match, node) for node in parts], match.dim)

    return rule(
        lambda tensors, dim: torch.cat(tensors, dim),
        flat,
        where=lambda match: bool(inner_ones(match)),
        name="cat_of_cat",
    )


def _is_inner_cat(ownership: Ownership, node: Any, match: Match) -> bool:
    call, root = made_by(node), match.roots[0]
    if call is None or call.key != "cat" or call.writes or list(node.users) != [root]:
        return False
    tensors, dim, rank = call.arguments["tensors"], call.arguments["dim"], sure_rank(root) or sure_rank(node)
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Node) for tensor in tensors):
        return False
    if type(dim) is not int or type(match.dim) is not int:
        return False
    if dim != match.dim and not (rank and dim % rank == match.dim % rank):
        return False
    dtypes = {dtype_of(tensor) for tensor in tensors}
    is_of_one_dtype = len(dtypes) == 1 and (None not in dtypes or len(set(tensors)) == 1)
    return is_of_one_dtype and ownership.is_untouched_between(node, root, node, *tensors)


# ---- limits


def _limits(ownership: Ownership) -> list[Rule]:
    def joined(match: Match) -> tuple[Any, Any] | None:
        inner, outer = _inner(match, "clamp", "clamp_min", "clamp_max"), made_by(match.roots[0])
        if inner is None or outer is None or not _is_undisturbed(ownership, match):
            return None
        limits = [call.arguments.get(name) for call in (inner, outer) for name in ("min", "max")]
        kinds = {type(limit) for limit in limits if limit is not None}
        if kinds not in ({int}, {float}) or any(limit != limit for limit in limits):
            return None
        lows, highs = ([limit for limit in side if limit is not None] for side in (limits[::2], limits[1::2]))
        low, high = max(lows, default=None), min(highs, default=None)
        return None if low is not None and high is not None and low > high else (low, high)

    def clamped(match: Match) -> Any:
        low, high = joined(match) or (None, None)
        return torch.clamp(_value(match, match.x.all_input_nodes[0]), low, high)

    patterns: list[Callable[..., Any]] = [
        lambda x, low, high: torch.clamp(x, low, high),
        lambda x, low: torch.clamp_min(x, low),
        lambda x, high: torch.clamp_max(x, high),
    ]
    return [
        rule(each, clamped, where=lambda match: joined(match) is not None, name="clamp_of_clamp") for each in patterns
    ]

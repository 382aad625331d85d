"""Take out operations that give what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Node
from graphwright.passes.support.layouts import memory_format_of
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.tensor_facts import dtype_of, made_by, shape_of, sure_rank
from graphwright.rewrite import Match, Rule, mod, rewrite, rule
from graphwright.runtime import read_attribute


@dataclass(frozen=True, slots=True)
class RemoveNoOps:
    """Take out what changes nothing: identities, dropout that drops nothing, casts to the dtype that is there already.

    - `nn.Identity`; dropout of any kind with `p=0` or `training=False`, as a module or a function;
    - `contiguous` of what is contiguous already; a cast of a value to its own dtype;
    - `view`, `reshape`, `expand` to the shape that a value has, `permute` and `transpose` that move no dimension,
      `flatten` of one dimension, `x[:]`, `cat` of one tensor.

    inference: also take out dropout that is switched off by the training flag, which modules have and graphs read: for
        programs that will not be trained again. Flags that are on stay.

    Dtypes and shapes count where the program says them, a guard checks them, or `ShapeProp` has noted them. Left alone
    are subclasses, modules with hooks, and copies and views that may be told from what they are made of: where one of
    the two is written to in place, or given back by the program beside the other. Returns the number of operations
    that went.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Dropout(0.5)).eval())
    >>> RemoveNoOps().run(gm), RemoveNoOps(inference=True).run(gm)
    (1, 1)
    >>> [node.target for node in gm.graph.nodes]
    ['input', '0', 'output']
    """

    inference: bool = False

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        return rewrite(gm, _rules(Ownership(gm), self.inference)).count


def _rules(ownership: Ownership, inference: bool) -> list[Rule]:
    def is_off(match: Match) -> bool:
        return _is_off(match, inference)

    def is_copy_of(condition: Callable[[Match], bool]) -> Callable[[Match], bool | str]:
        return lambda match: condition(match) and ownership.may_stand_for(match.x, match.roots[0])

    def to_input(pattern: Any, condition: Callable[[Match], bool]) -> Rule:
        return rule(pattern, lambda x: x, where=is_copy_of(condition), name=condition.__name__.strip("_"))

    def drop(pattern: Any) -> Rule:
        return rule(pattern, lambda x: x, where=is_off, name="dropout", same_value=True)

    identity = rule(lambda x: _IDENTITY(x), lambda x: x, name="identity", same_value=True)
    dropouts = [drop(_dropout(function, inplace)) for function in _DROPOUTS for inplace in (False, True)]
    return [
        identity,
        drop(lambda x: _FEATURE_ALPHA(x)),
        *dropouts,
        to_input(lambda x, format: x.contiguous(memory_format=format), _is_contiguous),
        to_input(lambda x, dtype: x.to(dtype=dtype), _has_dtype),
        to_input(lambda x, dtype: x.type(dtype), _has_dtype),
        to_input(lambda x, size: torch.ops.aten.view.default(x, size), _has_shape),
        to_input(lambda x, size: torch.reshape(x, size), _has_shape),
        to_input(lambda x, size: torch.ops.aten.expand.default(x, size), _is_expanded),
        to_input(lambda x, dims: torch.permute(x, dims), _keeps_order),
        to_input(lambda x, one, other: torch.transpose(x, one, other), _swaps_nothing),
        to_input(lambda x, one, other: torch.flatten(x, one, other), _is_one_dimension),
        to_input(lambda x, index: x[index], _takes_all),
        rule(
            lambda x, dim: torch.cat([x], dim),
            lambda x: x,
            where=lambda match: ownership.may_stand_for(match.x, match.roots[0], same_layout=False),
            name="cat_of_one_tensor",
        ),
    ]


# ---- identity and dropout: they give the very value

_IDENTITY = mod(nn.Identity)
_FEATURE_ALPHA = mod(nn.FeatureAlphaDropout, "drop")
_DROPOUTS = (F.dropout, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)


def _dropout(function: Any, inplace: bool) -> Callable[..., Any]:
    return lambda x, p, training: function(x, p, training, inplace)


def _is_off(match: Match, inference: bool) -> bool:
    """Tell whether dropout drops nothing, for good or as long as nobody trains."""
    root = match.roots[0]
    if root.op == "call_module":
        module = read_attribute(match.module, str(root.target))
        return module.p == 0 or (inference and not module.training)
    p, training = match.p, match.training
    if isinstance(training, Node):
        is_flag = training.op == "get_attr" and str(training.target).rpartition(".")[2] == "training"
        training = not (inference and is_flag and read_attribute(match.module, str(training.target)) is False)
    return training is False or (type(p) in (int, float) and p == 0)


# ---- copies and views


def _is_contiguous(match: Match) -> bool:
    wanted = match["format"]
    call = made_by(match.x)
    if call is not None and call.key == "contiguous" and call.arguments["memory_format"] == wanted:
        return True
    return isinstance(wanted, torch.memory_format) and memory_format_of(match.x) is wanted


def _has_dtype(match: Match) -> bool:
    dtype = match.dtype
    if isinstance(dtype, Node):
        call = made_by(dtype)
        if call is None or call.key != "dtype":
            return False
        source = call.arguments["input"]
        return source is match.x or (dtype_of(source) is not None and dtype_of(source) == dtype_of(match.x))
    return isinstance(dtype, torch.dtype) and dtype_of(match.x) == dtype


def _has_shape(match: Match) -> bool:
    x, size = match.x, match.size
    if isinstance(size, Node):
        call = made_by(size)
        return call is not None and call.key == "size" and call.arguments.get("dim") is None and _of(call) is x
    if not isinstance(size, tuple | list) or sure_rank(x) != len(size):
        return False
    open_ones = [wanted for i, wanted in enumerate(size) if not _is_size(wanted, x, i)]
    return not open_ones or open_ones == [-1]


def _is_size(value: Any, x: Node, dim: int) -> bool:
    """Tell whether a value is the size of a tensor in a dimension."""
    shape, rank = shape_of(x), sure_rank(x)
    if type(value) is int:
        return shape is not None and shape[dim] == value
    call = made_by(value)
    if call is None or rank is None:
        return False
    if call.key == "getitem":
        sizes, at = made_by(call.arguments["input"]), call.arguments["index"]
        is_item = sizes is not None and sizes.key == "size" and sizes.arguments.get("dim") is None
        return is_item and _of(sizes) is x and type(at) is int and at % rank == dim
    at = call.arguments.get("dim")
    return call.key == "size" and type(at) is int and _of(call) is x and at % rank == dim


def _of(call: Any) -> Any:
    return call.arguments["input"]


def _is_expanded(match: Match) -> bool:
    size = match.size
    if isinstance(size, tuple | list) and all(type(wanted) is int and wanted == -1 for wanted in size):
        return True
    return _has_shape(match)


def _keeps_order(match: Match) -> bool:
    dims = match.dims
    is_plain = isinstance(dims, tuple | list) and all(type(dim) is int for dim in dims)
    return is_plain and [dim % len(dims) for dim in dims] == list(range(len(dims)))


def _swaps_nothing(match: Match) -> bool:
    one, other, rank = match.one, match.other, sure_rank(match.x)
    if type(one) is not int or type(other) is not int:
        return False
    return one == other or (rank is not None and rank > 0 and one % rank == other % rank)


def _is_one_dimension(match: Match) -> bool:
    # Of a tensor without dimensions, `flatten` makes one of one.
    return _swaps_nothing(match) and ((sure_rank(match.x) or 0) > 0 or match.one not in (0, -1))


def _takes_all(match: Match) -> bool:
    index = match["index"]
    items = index if isinstance(index, tuple) else (index,)
    is_whole = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in items)
    return bool(items) and is_whole and dtype_of(match.x) is not None

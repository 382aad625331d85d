"""Layer norms and RMS norms that are written out, as the operations that PyTorch has for them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Graph, Node
from graphwright.passes.support.layouts import is_viewed_after_moving
from graphwright.passes.support.module_numbers import take_numbers
from graphwright.passes.support.tensor_facts import (
    dtype_named,
    dtype_of,
    is_number,
    last_size,
    shape_and_dtype,
    sure_rank,
)
from graphwright.rewrite import Any as AnyValue
from graphwright.rewrite import Match, Rule, maybe, one_of, rewrite, rule


@dataclass(frozen=True, slots=True)
class RecognizeNorms:
    """Write layer norms and RMS norms that are spelled out as `F.layer_norm` and `F.rms_norm`.

    Found are norms over the last dimension with the biased variance and `eps` added to it, before the root, in the
    spellings of programs: `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)`, divided by `torch.sqrt`, the
    variance by `var` or by its definition, computed in float32 from a narrower `x`. Casts around a norm stay as they
    are. Weights and biases join where they are known to be a row of the norm's size and dtype; others stay products
    and sums beside it. Returns the number of norms found, and of weights and biases that joined.

    Left alone: the unbiased variance, `eps` added to the deviation, other dimensions, statistics that something else
    reads, too; results whose order in memory is seen by a `view`. The results agree up to rounding; of half precision
    they are rounded less, since the operations sum in float32.

    Source: Ba et al., arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    >>> RecognizeNorms().run(gm)
    1
    >>> print(gm.code.strip())
    def forward(self, x):
        size = x.size(-1)
        rms_norm = torch.nn.functional.rms_norm(x, (size,), eps = 1e-06);  x = size = None
        return rms_norm
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        take_numbers(gm)
        return rewrite(gm, _rules()).count


Anything: Any = AnyValue  # stands where torch's functions want numbers and dtypes


# ---- the norms themselves


def _square(x: Any) -> Any:
    return one_of(torch.square, lambda x: x.pow(2), lambda x: x.pow(2.0), lambda x: x * x)(x)


def _mean(x: Any) -> Any:
    return x.mean(Anything("dim"), keepdim=True)


def _over_root(x: Any, variance: Any) -> Any:
    """x over the root of the variance and eps."""
    return one_of(
        lambda x, y: x * torch.rsqrt(y),
        lambda x, y: x / torch.sqrt(y),
        lambda x, y: x * y.pow(-0.5),
        lambda x, y: x / y.pow(0.5),
        lambda x, y: x * (1 / torch.sqrt(y)),
    )(x, variance + Anything("eps"))


def _written_rms_norm(x: Any) -> Any:
    return _over_root(x, _mean(_square(x)))


def _written_rms_norm_of_wide(x: Any) -> Any:
    """The mean in float32, of an input that may be narrower."""
    return _over_root(x, _mean(_square(x.to(dtype=torch.float32))))


def _written_layer_norm(x: Any) -> Any:
    def both(x: Any) -> Any:
        return torch.var_mean(x, dim=-1, correction=0, keepdim=True)

    def center(x: Any) -> Any:
        return one_of(lambda x: x - _mean(x), lambda x: x - both(x)[1])(x)

    variance = one_of(
        lambda x: x.var(Anything("dim"), correction=0, keepdim=True),
        lambda x: _mean(_square(center(x))),
        lambda x: both(x)[0],
    )
    return _over_root(center(x), variance(x))


def _is_norm(match: Match) -> bool | str:
    x, dim = match.x, match.values.get("dim", -1)
    dims = (dim,) if type(dim) is int else dim
    rank = sure_rank(x)
    if dims != (-1,) and (rank is None or dims != (rank - 1,)):
        return "it is not known to be over the last dimension"
    if not isinstance(x, Node) or not is_number(match.eps):
        return "eps is not known to be a number"
    inside = set(match.nodes)
    for node in match.nodes:
        if node not in match.roots and not inside.issuperset(node.users) and not _is_cast(node):
            return f"{node.name} is read by others, too"
    return "its order in memory is seen" if is_viewed_after_moving(match.roots[0]) else True


def _is_cast(node: Node) -> bool:
    return node.target in ("to", "float")


def _is_norm_of_wide(match: Match) -> bool | str:
    if dtype_of(match.x) not in (torch.float32, torch.float16, torch.bfloat16):
        return "the input may be wider than float32: run ShapeProp first"
    return _is_norm(match)


def _shape(graph: Graph, x: Node) -> tuple[Any]:
    size = last_size(x)
    return (graph.call_method("size", (x, -1)) if size is None else size,)


def _rms_norm(match: Match) -> Node:
    graph = match.roots[0].graph
    return graph.call_function(F.rms_norm, (match.x, _shape(graph, match.x)), {"eps": match.eps})


def _rms_norm_of_wide(match: Match) -> Node:
    graph = match.roots[0].graph
    x = match.x
    if dtype_of(x) is not torch.float32:
        x = graph.call_method("to", (x, torch.float32))
    return graph.call_function(F.rms_norm, (x, _shape(graph, match.x)), {"eps": match.eps})


def _layer_norm(match: Match) -> Node:
    graph = match.roots[0].graph
    return graph.call_function(F.layer_norm, (match.x, _shape(graph, match.x)), {"eps": match.eps})


# ---- weights and biases


def _same(x: Any) -> Any:
    """A cast to the dtype that the value has."""
    return maybe(lambda x: x.to(dtype=Anything("dtype")))(x)


def _weighted_rms_norm(x: Any, row: Any) -> Any:
    return _same(F.rms_norm(x, Anything("shape"), None, Anything("eps"))) * row


def _weighted_layer_norm(x: Any, row: Any) -> Any:
    return _same(F.layer_norm(x, Anything("shape"), None, None, Anything("eps"))) * row


def _biased_layer_norm(x: Any, row: Any) -> Any:
    return F.layer_norm(x, Anything("shape"), Anything("weight"), None, Anything("eps")) + row


def _fits(match: Match) -> bool | str:
    """Tell whether a weight or bias is a row of the norm's size and dtype, and casts between do nothing."""
    dtype, row = dtype_of(match.x), shape_and_dtype(match.row)
    if row is None or tuple(row[0]) != match.shape:
        return "the weight or bias is not known to be a row of the norm's size"
    if (
        dtype is None
        or row[1] is not dtype
        or any(dtype_named(cast) is not dtype for cast in match.values.get("dtype", ()))
    ):
        return "the weight or bias is not known to have the norm's dtype"
    if any(len(node.users) > 1 for node in match.nodes if node not in match.roots):
        return "the norm is read by others, too"
    return True


def _weight_joins_rms_norm(match: Match) -> Node:
    return match.roots[0].graph.call_function(
        F.rms_norm, (match.x, match.shape), {"weight": match.row, "eps": match.eps}
    )


def _weight_joins_layer_norm(match: Match) -> Node:
    return match.roots[0].graph.call_function(
        F.layer_norm, (match.x, match.shape), {"weight": match.row, "eps": match.eps}
    )


def _bias_joins_layer_norm(match: Match) -> Node:
    return match.roots[0].graph.call_function(
        F.layer_norm, (match.x, match.shape), {"weight": match.weight, "bias": match.row, "eps": match.eps}
    )


@functools.cache
def _rules() -> tuple[Rule, ...]:
    return (
        rule(_written_layer_norm, _layer_norm, where=_is_norm),
        rule(_written_rms_norm, _rms_norm, where=_is_norm),
        rule(_written_rms_norm_of_wide, _rms_norm_of_wide, where=_is_norm_of_wide),
        rule(_weighted_rms_norm, _weight_joins_rms_norm, where=_fits),
        rule(_weighted_layer_norm, _weight_joins_layer_norm, where=_fits),
        rule(_biased_layer_norm, _bias_joins_layer_norm, where=_fits),
    )

"""Attention that is written out, as the one operation that PyTorch has for it."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Graph, Node
from graphwright.passes.fusion.attention_plan import AttentionPlan, plan_attention
from graphwright.passes.support.layouts import forgets_layout
from graphwright.passes.support.module_numbers import take_numbers
from graphwright.passes.support.tensor_facts import shape_and_dtype
from graphwright.rewrite import Any as AnyValue
from graphwright.rewrite import Match, maybe, mod, one_of, repeat, rewrite, rule


@dataclass(frozen=True, slots=True)
class UseScaledDotProductAttention:
    """Write softmax(q @ k.T * scale + mask) @ v as `F.scaled_dot_product_attention`, however it is spelled.

    Found are products by matmul, `@`, bmm, baddbmm and einsum; scales on the scores, the queries or the keys; masks
    that are added, filled in or chosen with `where`, several of them; a mask that is added if it is not None; softmax
    in another dtype and cast back; dropout as a module or function, which follows the training flag as before. Returns
    the number of attentions.

    Left alone: attention weights that something else reads, too; scales that are tensors; masks whose shape and dtype
    are not known, for which `ShapeProp` has to be run first, and those that would make the scores larger; queries and
    values whose dtypes are not known to be one. With `fill=False` also masks that are filled in: for a query none of
    whose keys is left, `F.scaled_dot_product_attention` gives zeros, and the program gave NaN (filled with -inf) or
    the mean of all values (with a large negative number).

    The results agree up to rounding. With dropout the same random numbers are drawn on a CPU, where other devices have
    kernels that draw their own. Kernels for attention have no second derivative.

    Source: Dao et al., arXiv:2205.14135, for the kernels.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda q, k, v: torch.bmm((torch.bmm(q, k.mT) / 8.0).softmax(-1), v))
    >>> UseScaledDotProductAttention().run(gm)
    1
    >>> [node.name for node in gm.graph.nodes]
    ['q', 'k', 'v', 'scaled_dot_product_attention', 'contiguous', 'output']
    """

    fill: bool = True

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""

        def is_attention(match: Match) -> bool | str:
            plan = plan_attention(match)
            if isinstance(plan, str):
                return plan
            return bool(self.fill or not (plan.fills or plan.keeps)) or "the scores are filled in"

        take_numbers(gm)
        return rewrite(gm, rule(_written_out, _operation, where=is_attention, name=type(self).__name__)).count


# ---- the pattern

Anything: Any = AnyValue  # stands where torch's functions want numbers and dtypes


def _scaled(x: Any) -> Any:
    return one_of(lambda x: x * Anything("factor"), lambda x: x / Anything("divisor"))(x)


def _scaled_query(q: Any) -> Any:
    return one_of(lambda q: q * Anything("q_factor"), lambda q: q / Anything("q_divisor"))(q)


def _scaled_key(k: Any) -> Any:
    return one_of(lambda k: k * Anything("k_factor"), lambda k: k / Anything("k_divisor"))(k)


def _transposed(k: Any) -> Any:
    return one_of(
        lambda k: k.mT,
        lambda k: k.transpose(Anything("dim0"), Anything("dim1")),
        lambda k: k.permute(Anything("dims")),
        torch.t,
        name="turn",
    )(k)


def _on_scores(scores: Any, other: Any, is_given: Any, is_none: Any, optional: Any) -> Any:
    """What may happen to the scores: another scale, a mask, one that may be None, a cast."""
    return one_of(
        _scaled,
        lambda s: s + Anything("mask"),
        lambda s: s.masked_fill(Anything("fill"), Anything("value")),
        lambda s: s.where(Anything("keep"), Anything("value")),
        lambda s: other.where(Anything("fill"), s),
        lambda s: s.to(dtype=Anything("wide")),
        lambda s: s + optional if is_given else s,
        lambda s: s if is_none else s + optional,
    )(scores)


def _on_weights(weights: Any) -> Any:
    """What may happen to the weights: a cast, dropout."""
    return one_of(
        mod(nn.Dropout, "drop"),
        lambda w: F.dropout(w, Anything("p"), Anything("training")),
        lambda w: w.to(dtype=Anything("dtype")),
        lambda w: w.type(Anything("dtype")),
        lambda w: w.type_as(Anything("like")),
    )(weights)


def _first_product(q: Any, k: Any, bias: Any) -> Any:
    turned = maybe(_transposed)(k)
    return one_of(
        lambda q, k: torch.matmul(q, turned),
        lambda q, k: torch.bmm(q, turned),
        lambda q, k: bias.baddbmm(q, turned, beta=Anything("beta"), alpha=Anything("alpha")),
        lambda q, k: torch.einsum(Anything("equation"), q, k),
        name="first",
    )(q, k)


def _written_out(q: Any, k: Any, v: Any, bias: Any, other: Any, is_given: Any, is_none: Any, optional: Any) -> Any:
    on_scores = repeat(lambda s: _on_scores(s, other, is_given, is_none, optional), 0)
    scores = _first_product(maybe(_scaled_query)(q), maybe(_scaled_key)(k), bias)
    weights = F.softmax(on_scores(scores), Anything("dim"), dtype=Anything("soft"))
    return one_of(torch.matmul, torch.bmm, lambda w, v: torch.einsum(Anything("equation_2"), w, v), name="second")(
        repeat(_on_weights, 0)(weights), v
    )


# ---- the replacement


def _operation(match: Match) -> Node:
    """Write the one operation."""
    plan = plan_attention(match)
    assert isinstance(plan, AttentionPlan)
    graph = match.roots[0].graph
    q, k, v = (match.values[name] for name in "qkv")
    layouts = plan.layouts
    q = _permuted(graph, q, layouts.q)
    k = _permuted(graph, k, layouts.k) if plan.is_turned else graph.call_method("transpose", (k, -2, -1))
    v = _permuted(graph, v, layouts.v)
    options: dict[str, Any] = {}
    mask = _mask(graph, plan, match.values["q"])
    if mask is not None:
        options["attn_mask"] = mask
    if plan.dropout is not None:
        options["dropout_p"] = _probability(graph, *plan.dropout)
    options["scale"] = _scale(graph, plan)
    result = graph.call_function(F.scaled_dot_product_attention, (q, k, v), options)
    result = _permuted(graph, result, layouts.out)
    return result if forgets_layout(match.roots[0]) else graph.call_method("contiguous", (result,))


def _permuted(graph: Graph, value: Node, order: tuple[int, ...] | None) -> Node:
    return value if order is None else graph.call_method("permute", (value, *order))


def _scale(graph: Graph, plan: AttentionPlan) -> Any:
    scale: Any = 1.0
    for function, values in ((operator.mul, plan.factors), (operator.truediv, plan.divisors)):
        for value in values:
            if isinstance(scale, Node) or isinstance(value, Node):
                is_one = scale == 1.0 and function is operator.mul
                scale = value if is_one else graph.call_function(function, (scale, value))
            else:
                scale = function(scale, value)
    return scale


def _probability(graph: Graph, p: Any, training: Any) -> Any:
    """The probability if in training, else 0."""
    if training is True:
        return p
    flag = graph.create_node("get_attr", f"{training}.training") if isinstance(training, str) else training
    return graph.call_function(operator.mul, (p, flag))


def _mask(graph: Graph, plan: AttentionPlan, like: Node) -> Node | None:
    """One mask for all: what is added, -inf where a key is not seen; or where it is seen."""
    added: Node | None = None
    for mask in plan.masks:
        given = _as_matrix(graph, mask)
        if not _dtype(mask).is_floating_point:
            given = graph.call_method("type_as", (given, like))
        added = given if added is None else graph.call_function(operator.add, (added, given))
    seen: Node | None = None
    for mask in (*plan.keeps, *plan.fills):
        given = _as_matrix(graph, mask)
        if mask in plan.fills:
            given = graph.call_function(operator.invert, (given,))
        seen = given if seen is None else graph.call_function(operator.and_, (seen, given))
    if added is None or seen is None:
        return seen if added is None else added
    return graph.call_function(torch.where, (seen, added, -math.inf))


def _as_matrix(graph: Graph, mask: Node) -> Node:
    known = shape_and_dtype(mask)
    return mask if known is None or len(known[0]) > 1 else graph.call_method("unsqueeze", (mask, 0))


def _dtype(mask: Node) -> torch.dtype:
    known = shape_and_dtype(mask)
    assert known is not None
    dtype: torch.dtype = known[1]
    return dtype

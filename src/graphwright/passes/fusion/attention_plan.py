"""What a match of written-out attention does, and whether the one operation for it can do the same."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.ops import call_of, module_called
from graphwright.passes.support.tensor_facts import is_number, rank_of, rank_root, shape_and_dtype
from graphwright.rewrite import Match

_SCORE_NAMES = (
    "factor", "divisor", "mask", "fill", "value", "keep", "other", "wide", "is_given", "is_none", "optional",
)  # fmt: skip
_WEIGHT_NAMES = ("drop", "p", "training", "dtype", "like")
_FAR_BELOW = -1e4  # what is filled in by this or less has no weight beside other scores


class Layouts(NamedTuple):
    """How the queries, keys and values have to be permuted, and how the result; None where they are right."""

    q: tuple[int, ...] | None = None
    k: tuple[int, ...] | None = None
    v: tuple[int, ...] | None = None
    out: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """An attention that can be replaced: what goes into the one operation."""

    factors: tuple[Any, ...]
    divisors: tuple[Any, ...]
    masks: tuple[Node, ...]  # added to the scores
    fills: tuple[Node, ...]  # where one of these holds, a key is not seen
    keeps: tuple[Node, ...]  # where one of these does not hold, it is not
    is_turned: bool  # whether the keys are given as (..., keys, features)
    dropout: tuple[Any, Any] | None  # the probability, and the training flag or the path of the module that has it
    layouts: Layouts


def plan_attention(match: Match) -> AttentionPlan | str:
    """Read off a match what it does, or say why it cannot be replaced."""
    found = match.values
    layouts = Layouts()
    if "equation" in found or "equation_2" in found:
        read = einsum_layouts(found.get("equation"), found.get("equation_2"))
        if read is None:
            return "the equations are not those of an attention"
        layouts = read
    scales = _Scales(match)
    masks = _Masks(match)
    dropout = _dropout(match)
    is_turned = bool(found.get("turn")) or "equation" in found
    why = (
        _why_seen(match)
        or _why_other_softmax(match)
        or (_why_other_turn(match) if found.get("turn") else None)
        or scales.why
        or masks.why
        or (dropout if isinstance(dropout, str) else None)
        or _why_other_ranks(match, is_turned)
        or _why_other_dtypes(match, bool(masks.masks or masks.fills or masks.keeps))
        or masks.why_other_shapes()
    )
    if why:
        return why
    assert not isinstance(dropout, str)
    return AttentionPlan(
        tuple(scales.factors), tuple(scales.divisors), tuple(masks.masks), tuple(masks.fills), tuple(masks.keeps),
        is_turned, dropout, layouts,
    )  # fmt: skip


# ---- what a match has


def _links(found: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """What was bound in each link of a chain, in the order of the program."""
    count = len(found[names[0]])
    links = [{name: found[name][i] for name in names if found[name][i] is not None} for i in range(count)]
    return links[::-1]


def _first_product(match: Match) -> Node:
    return next(node for step, node in match.steps.items() if getattr(step, "name", "") == "first")


def _why_seen(match: Match) -> str | None:
    first = _first_product(match)
    for node in match.nodes:
        if node >= first and node not in match.roots and len(node.users) > 1:
            return f"{node.name} is read by others, too"
    return None


def _why_other_softmax(match: Match) -> str | None:
    dim = match.values["dim"]
    first = _first_product(match)
    rank, is_exact = rank_of(first)
    if "equation" in match.values:
        rank, is_exact = len(match.values["equation"].split("->")[1].replace(" ", "")), True
    if dim == -1 or (type(dim) is int and is_exact and dim == rank - 1):
        return None
    return "the softmax is not known to be over the keys"


def _why_other_turn(match: Match) -> str | None:
    """Say why the keys were not just transposed to (..., features, keys)."""
    found = match.values
    two = [found[name][0] for name in ("dim0", "dim1") if found.get(name) and found[name][0] is not None]
    dims = found["dims"][0] if found.get("dims") else None
    if dims is not None:
        kept = tuple(range(len(dims) - 2)) if isinstance(dims, tuple) else ()
        if isinstance(dims, tuple) and dims in ((*kept, len(dims) - 1, len(dims) - 2), (*kept, -1, -2)):
            return None
    elif two:
        rank, is_exact = rank_of(found["k"])
        if all(type(dim) is int for dim in two):
            last = {dim - rank if dim >= 0 else dim for dim in two} if is_exact else set(two)
            if last == {-1, -2}:
                return None
    else:  # mT, t()
        return None
    return "other dimensions of the keys are swapped"


class _Scales:
    """The numbers that the scores are multiplied with and divided by."""

    def __init__(self, match: Match) -> None:
        found = match.values
        self.factors = [*found.get("q_factor", ()), *found.get("k_factor", ())]
        self.divisors = [*found.get("q_divisor", ()), *found.get("k_divisor", ())]
        if "alpha" in found:
            self.factors.append(found["alpha"])
        for step in _links(found, _SCORE_NAMES):
            self.factors += [step["factor"]] if "factor" in step else []
            self.divisors += [step["divisor"]] if "divisor" in step else []
        self.factors = [factor for factor in self.factors if factor is not None]
        self.divisors = [divisor for divisor in self.divisors if divisor is not None]
        known = all(map(is_number, (*self.factors, *self.divisors))) and 0 not in self.divisors
        self.why = None if known else "the scale is not known to be a number"


class _Masks:
    """What hides keys: added to the scores, or filled in."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self.masks: list[Any] = []
        self.fills: list[Any] = []
        self.keeps: list[Any] = []
        self._optional: Any = None  # the mask that may be None
        self.why = self._read(match.values)

    def _read(self, found: Mapping[str, Any]) -> str | None:
        if "alpha" in found:
            if found["beta"] != 1:
                return "the bias of baddbmm is scaled"
            self.masks.append(found["bias"])
        for step in _links(found, _SCORE_NAMES):
            if "mask" in step:
                self.masks.append(step["mask"])
            elif "optional" in step:
                self._optional = step["optional"]
                if not _tells_of_none(step.get("is_given", step.get("is_none")), self._optional, "is_none" in step):
                    return "a mask is added on a condition"
                self.masks.append(self._optional)
            elif "fill" in step or "keep" in step:
                if not _is_far_below(step.get("value", step.get("other"))):
                    return "the scores are filled with something else than a large negative number"
                (self.fills if "fill" in step else self.keeps).append(step.get("fill", step.get("keep")))
            elif "wide" not in step and (self.masks or self.fills or self.keeps):
                return "the scores are scaled after they were masked"
        every = (*self.masks, *self.fills, *self.keeps)
        if self._optional is not None and len(every) > 1:
            return f"the mask {self._optional.name} may be None, and there are others"
        return None if all(isinstance(mask, Node) for mask in every) else "a mask is a number"

    def why_other_shapes(self) -> str | None:
        """Say why the masks cannot be given to the one operation."""
        scores, queries = shape_and_dtype(_first_product(self._match)), shape_and_dtype(self._match.values["q"])
        for mask in (*self.masks, *self.fills, *self.keeps):
            known = shape_and_dtype(mask)
            if known is None or scores is None or queries is None:
                return f"the shape of the mask {mask.name} is not known: run ShapeProp first"
            shape, dtype = known
            if not shape or not _fits(shape, scores[0]):
                return f"the mask {mask.name} has the shape {tuple(shape)}, and the scores {tuple(scores[0])}"
            if mask is self._optional and (len(shape) < 2 or not dtype.is_floating_point):
                return f"the mask {mask.name} may be None, and would have to be converted"
            if mask not in self.masks:
                if dtype is not torch.bool:
                    return f"the mask {mask.name} is {dtype}"
            elif dtype.is_complex or (dtype.is_floating_point and dtype not in (queries[1], torch.float32)):
                return f"the mask {mask.name} is {dtype}, and the queries are {queries[1]}"
        return None


def _tells_of_none(asked: object, mask: object, is_none: bool) -> bool:
    """Tell whether a condition is that the mask is None, or that it is not."""
    while isinstance(asked, Node) and asked.target is operator.not_:
        asked, is_none = asked.args[0], not is_none
    if not isinstance(asked, Node) or not isinstance(mask, Node) or asked.op != "call_function":
        return False
    return asked.target is (operator.is_ if is_none else operator.is_not) and asked.args == (mask, None)


def _fits(shape: Sequence[int], scores: Sequence[int]) -> bool:
    """Tell whether adding a mask of this shape leaves the shape of the scores."""
    pairs = zip(reversed(shape), reversed(scores), strict=False)
    return len(shape) <= len(scores) and all(one in (1, other) for one, other in pairs)


def _is_far_below(value: object) -> bool:
    """Tell whether a value is a number so low that softmax gives nothing there."""
    if isinstance(value, Node):
        if value.target is getattr and value.op == "call_function":
            owner, name = value.args[:2]
            return name == "min" and isinstance(owner, Node) and owner.target == torch.finfo
        call = call_of(value) if value.op in ("call_function", "call_method") else None
        constant = {"full": "fill_value", "tensor": "data", "scalar_tensor": "s"}.get(call.key if call else "")
        return call is not None and constant is not None and _is_far_below(call.arguments.get(constant))
    return type(value) in (int, float) and value <= _FAR_BELOW  # type: ignore[operator]


def _dropout(match: Match) -> tuple[Any, Any] | str | None:
    drops: list[tuple[Any, Any]] = []
    for step in _links(match.values, _WEIGHT_NAMES):
        if "drop" in step:
            drops.append((step["drop"].p, match.paths["drop"]))
        elif "p" in step:
            drops.append((step["p"], step["training"]))
    called = sum(node.op == "call_module" and _is_dropout(node) for node in match.nodes)
    if called != sum(isinstance(flag, str) for _, flag in drops):
        return "a dropout module is as its training flag stands now"
    drops = [(p, flag) for p, flag in drops if p != 0 and flag is not False]
    if len(drops) > 1:
        return "there is dropout twice"
    for p, flag in drops:
        if not (is_number(p) or isinstance(p, Node)) or not (flag is True or isinstance(flag, str) or _is_flag(flag)):
            return "the dropout is not known to have a number and a flag"
    return drops[0] if drops else None


def _is_dropout(node: Node) -> bool:
    return isinstance(module_called(node), nn.modules.dropout._DropoutNd)


def _is_flag(value: object) -> bool:
    return isinstance(value, Node) and value.op == "get_attr" and str(value.target).split(".")[-1] == "training"


# ---- what has to be known of tensors


def _why_other_ranks(match: Match, is_turned: bool) -> str | None:
    """Say why queries, keys and values might not be matrices, or stacks of them."""
    found = match.values
    if "equation" in found or _first_product(match).target is torch.bmm:
        return None
    keys = found["k"]
    is_swapped = is_turned and found.get("turn") != [torch.t]  # which shows that they have two dimensions
    if rank_of(keys)[0] < 2 and not is_swapped:
        return "the keys are not known to be matrices: run ShapeProp first"
    root = rank_root(keys)
    for name in ("q", "v"):
        if rank_of(found[name])[0] < 2 and rank_root(found[name]) is not root:
            return f"{found[name].name} is not known to be a matrix: run ShapeProp first"
    return None


def _why_other_dtypes(match: Match, is_masked: bool) -> str | None:
    """Say why queries and values might have different dtypes, which the one operation refuses."""
    found = match.values
    known = [shape_and_dtype(value) for value in (found["q"], found["k"], found["v"], match.roots[0])]
    dtypes = {each[1] for each in known if each is not None}
    if len(dtypes) > 1:
        return f"queries, keys, values and the result have different dtypes: {', '.join(map(str, dtypes))}"
    if None not in known:
        return None
    if is_masked:
        return "the dtypes of queries and values are not known: run ShapeProp first"
    casts = [step for step in _links(found, _WEIGHT_NAMES) if "dtype" in step or "like" in step]
    wide = any("wide" in step for step in _links(found, _SCORE_NAMES)) or found["soft"] is not None
    if not casts and not wide:
        return None
    back = casts[-1] if casts else {}
    like = back.get("like", _whose_dtype(back.get("dtype")))
    if isinstance(like, Node) and like in (found["q"], found["k"], _first_product(match)):
        return None
    return "the dtypes of queries and values are not known: run ShapeProp first"


def _whose_dtype(dtype: object) -> object:
    """The tensor that a dtype is read from."""
    call = call_of(dtype) if isinstance(dtype, Node) and dtype.op != "placeholder" else None
    return call.arguments["input"] if call is not None and call.key == "dtype" else None


# ---- einsum


def einsum_layouts(first: object, second: object) -> Layouts | None:
    """How what two equations read and give has to be permuted for an attention; None if they are none.

    >>> einsum_layouts("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd")
    Layouts(q=(0, 2, 1, 3), k=(0, 2, 1, 3), v=(0, 2, 1, 3), out=(0, 2, 1, 3))
    >>> einsum_layouts("...id,...jd->...ij", "...ij,...jd->...id")
    Layouts(q=None, k=None, v=None, out=None)
    """
    read = [_terms(equation) for equation in (first, second)]
    if read[0] is None or read[1] is None:
        return None
    (q, k, scores), (weights, v, out) = read[0], read[1]
    if len(scores) < 2 or len(weights) != len(scores):
        return None
    batch, i, j = scores[:-2], scores[-2], scores[-1]
    features = set(q) - set(scores)
    others, rows, columns = weights[:-2], weights[-2], weights[-1]
    made = set(out) - set(weights)
    if len(features) != 1 or len(made) != 1:
        return None
    (d,), (e,) = features, made
    orders = (
        _order(q, batch + i + d), _order(k, batch + j + d), _order(v, others + columns + e),
        _order(others + rows + e, out),
    )  # fmt: skip
    if any(order == () for order in orders):
        return None
    return Layouts(*orders)


def _terms(equation: object) -> tuple[str, str, str] | None:
    if not isinstance(equation, str):
        return None
    text = equation.replace(" ", "").replace("...", "@")
    given, arrow, out = text.partition("->")
    terms = given.split(",")
    if not arrow or len(terms) != 2 or any(len(set(term)) != len(term) for term in (*terms, out)):
        return None
    return terms[0], terms[1], out


def _order(given: str, wanted: str) -> tuple[int, ...] | None:
    """How dimensions are permuted to the wanted order: None if they are in it, () if they cannot be."""
    if given == wanted:
        return None
    if set(given) != set(wanted) or "@" in given:
        return ()
    return tuple([given.index(letter) for letter in wanted])

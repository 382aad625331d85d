"""What operators do to channels, one rule per operator.

A rule gets what is known, the node, its arguments by name with the values that they have on the example, and the value
that it gave; it says which dimensions are one and returns those of the result. An operator without a rule lets no
channel of what it reads go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from graphwright.analysis.channels.atoms import Channels
from graphwright.analysis.channels.values import Dims, Knowledge, untracked
from graphwright.ir import Node

# (what is known, the node, arguments as they stand in the graph, the same with values, the result)
Rule = Callable[[Knowledge, Node, Mapping[str, Any], Mapping[str, Any], Any], Any]
RULES: dict[str, Rule] = {}


def _rule(*keys: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(keys, rule))
        return rule

    return add


# ---- element by element


@_rule(
    *("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "lerp", "where"),
    *("masked_fill", "addcmul", "addcdiv", "atan2", "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min"),
    *("clamp_max", "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "hardtanh"),
    *("leaky_relu", "elu", "celu", "selu", "mish", "softplus", "softsign", "logsigmoid", "exp", "expm1", "log"),
    *("log1p", "sqrt", "rsqrt", "abs", "neg", "reciprocal", "square", "sin", "cos", "erf", "sign", "floor", "ceil"),
    *(
        "round",
        "dropout",
        "alpha_dropout",
        "type",
        "float",
        "half",
        "double",
        "bfloat16",
        "contiguous",
    ),
    *("clone", "detach", "bitwise_and", "bitwise_or", "logical_and", "logical_or", "logical_not"),
    *("nan_to_num", "nn.Identity", "positive", "requires_grad_", "copy", "zeros_like", "ones_like", "isnan", "isinf"),
)
def _elementwise(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    tensors = [(known.of(given[name]), value.shape) for name, value in values.items() if isinstance(value, Tensor)]
    if isinstance(out, Tensor):
        return known.broadcast(tensors, node)
    known.fix_all([dims for dims, _ in tensors], f"{node.name} picks elements of it")
    return untracked(out)


@_rule("to", "type_as")
def _cast(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    """The dtype may be that of another tensor, of whatever shape."""
    return known.of(given["input"])


@_rule("softmax", "log_softmax", "normalize", "cumsum")
def _over_one(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    dim = values.get("dim")
    over = dims if not isinstance(dim, int) else (dims[dim],)
    for channels in over:
        known.atoms.note(channels, f"{node.name} is computed over it")
    return dims


@_rule("mean", "sum", "amax", "amin", "var", "std", "norm", "prod", "all", "any", "max", "min", "logsumexp")
def _reduced(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    if isinstance(values.get("other"), Tensor):
        return _elementwise(known, node, given, values, out)
    dims: Dims = known.of(given["input"])
    if not isinstance(out, Tensor):
        known.fix_all(dims, f"{node.name} picks elements of it")
        return untracked(out)
    dim = values.get("dim")
    picked = range(len(dims)) if dim is None or dim == () else [dim] if isinstance(dim, int) else list(dim)
    places = {each % len(dims) for each in picked}
    for place in places:
        known.atoms.note(dims[place], f"{node.name} is computed over it")
    kept = [None if i in places else channels for i, channels in enumerate(dims)]
    if len(kept) == out.dim():
        return tuple(kept)
    return tuple([channels for i, channels in enumerate(kept) if i not in places])


# ---- space


def _pool(space: int) -> Rule:
    """What changes the size of the last dimensions, which may have no channels."""

    def rule(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
        dims: Dims = known.of(given["input"])
        count = space or len(dims) - 2
        known.fix_all(dims[-count:], f"{node.name} changes its size")
        if not isinstance(out, Tensor):
            known.fix_all(dims, f"{node.name} gives several values")
            return untracked(out)
        return (*dims[:-count], *[None] * count)

    return rule


for _space in (1, 2, 3):
    for _kind in ("max", "avg", "adaptive_avg", "adaptive_max", "lp"):
        RULES[f"{_kind}_pool{_space}d"] = _pool(_space)
RULES["interpolate"] = RULES["upsample"] = _pool(0)


@_rule("pad")
def _pad(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    result: list[Channels | None] = []
    for i, channels in enumerate(dims):
        touched = _is_padded(values["pad"], len(dims), i)
        if touched:
            known.atoms.fix(channels, f"{node.name} pads it")
        result.append(None if touched else channels)
    return tuple(result)


def _is_padded(pad: Any, rank: int, dim: int) -> bool:
    place = 2 * (rank - 1 - dim)
    return place < len(pad) and any(int(size) != 0 for size in pad[place : place + 2])


@_rule("roll", "flip")
def _moved(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    moved = values.get("dims")
    places = range(len(dims)) if moved is None or moved == () else [moved] if isinstance(moved, int) else list(moved)
    for place in places:
        known.atoms.fix(dims[place], f"{node.name} moves its elements")
    return dims


# ---- products


@_rule("matmul", "mm", "bmm", "mv", "dot")
def _matmul(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    names = [name for name, value in values.items() if isinstance(value, Tensor)]
    (one, left), (other, right) = [(known.of(given[name]), values[name].shape) for name in names[:2]]
    if len(left) < 2 or len(right) < 2:
        known.fix_all([one, other], f"{node.name} multiplies vectors")
        return untracked(out)
    _contracted(known, node, one[-1], other[-2])
    batch = known.broadcast([(one[:-2], left[:-2]), (other[:-2], right[:-2])], node)
    return (*batch, one[-2], other[-1])


@_rule("addmm", "baddbmm")
def _addmm(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    one, other = [name for name, value in values.items() if isinstance(value, Tensor) and name != "input"]
    left, right = known.of(given[one]), known.of(given[other])
    _contracted(known, node, left[-1], right[-2])
    batch = known.broadcast([(left[:-2], values[one].shape[:-2]), (right[:-2], values[other].shape[:-2])], node)
    product = (*batch, left[-2], right[-1])
    return known.broadcast([(known.of(given["input"]), values["input"].shape), (product, out.shape)], node)


@_rule("einsum")
def _einsum(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    """Dimensions of one letter are one."""
    dims, operands = known.of(given["operands"]), values["operands"]
    terms = _letters(values["equation"], [value.dim() for value in operands])
    if terms is None:
        known.fix_all(dims, f"{node.name} takes a diagonal of it")
        return untracked(out)
    *read, kept = terms
    wide: dict[str | int, list[Channels | None]] = {}
    for letters, one, value in zip(read, dims, operands, strict=True):
        for letter, channels, size in zip(letters, one, value.shape, strict=True):
            wide.setdefault(letter, []).extend([] if size == 1 else [channels])
    joined: dict[str | int, Channels | None] = {}
    for letter, every in wide.items():
        joined[letter] = every[0] if every else None
        for channels in every[1:]:
            _contracted(known, node, joined[letter], channels)
            joined[letter] = joined[letter] or channels
        if len(every) == 1 and letter not in kept:
            known.atoms.note(joined[letter], f"{node.name} is computed over it")
    return tuple([joined[letter] for letter in kept])


def _letters(equation: Any, ranks: list[int]) -> list[list[str | int]] | None:
    """The letters of each operand, and of the result; dimensions under `...` are numbers. None: one comes twice."""
    given, arrow, result = str(equation).replace(" ", "").partition("->")
    terms = given.split(",")
    most = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0)
    if not arrow:
        single = sorted(letter for letter in {*given} - {*",."} if given.count(letter) == 1)
        result = "".join(["..." if most else "", *single])
    spelled: list[list[str | int]] = []
    for term, rank in zip((*terms, result), (*ranks, most + len(result) - 3), strict=True):
        before, dots, after = term.partition("...")
        under = range(rank - len(before) - len(after) if dots else 0, 0, -1)
        spelled.append([*before, *under, *after])
    return None if any(len({*letters}) < len(letters) for letters in spelled) else spelled


def _contracted(known: Knowledge, node: Node, one: Channels | None, other: Channels | None) -> None:
    if one is not None or other is not None:
        known.same(one, other, node)


@_rule("scaled_dot_product_attention")
def _attention(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    query, key, value = (known.of(given[name]) for name in ("query", "key", "value"))
    shapes = [values[name].shape for name in ("query", "key", "value")]
    _contracted(known, node, query[-1], key[-1])
    if values.get("scale") is None:
        known.atoms.note(query[-1], f"{node.name} scales by its size")
    _contracted(known, node, key[-2], value[-2])
    if values.get("enable_gqa"):
        batch = _grouped_heads(known, node, query, key, value, shapes)
    else:
        heads = [(dims[:-2], shape[:-2]) for dims, shape in zip((query, key, value), shapes, strict=True)]
        batch = known.broadcast(heads, node)
    mask = values.get("attn_mask")
    if isinstance(mask, Tensor):
        whole = (*batch, query[-2], key[-2])
        sizes = (*out.shape[:-2], shapes[0][-2], shapes[1][-2])
        known.broadcast([(whole, sizes), (known.of(given["attn_mask"]), mask.shape)], node)
    return (*batch, query[-2], value[-1])


def _grouped_heads(known: Knowledge, node: Node, query: Dims, key: Dims, value: Dims, shapes: list[torch.Size]) -> Dims:
    """Several heads of the query to each of the others: that one and these go together."""
    few = known.same(key[-3], value[-3], node) if key[-3] is not None or value[-3] is not None else None
    many = query[-3]
    outer = [(dims[:-3], shape[:-3]) for dims, shape in zip((query, key, value), shapes, strict=True)]
    batch = known.broadcast(outer, node)
    if many is None or few is None:
        known.fix_all([many, few], f"{node.name} combines it with something that no parameter makes")
    else:
        each = len(many) // len(few)
        for i, atom in enumerate(many.atoms):
            known.atoms.join(few.atoms[i // each], atom)
    return (*batch, many)


# ---- layers


@_rule("linear")
def _linear(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    weight, bias = known.of(given["weight"]), known.of(given.get("bias"))
    return linear(known, node, known.of(given["input"]), weight, bias)


def linear(known: Knowledge, node: Node, dims: Dims, weight: Dims, bias: Dims | None) -> Dims:
    """`x @ weight.t() + bias`."""
    _contracted(known, node, dims[-1], weight[1])
    if bias:
        known.same(weight[0], bias[0], node)
    return (*dims[:-1], weight[0])


@_rule("conv1d", "conv2d", "conv3d")
def _convolution(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    weight, bias = known.of(given["weight"]), known.of(given.get("bias"))
    groups = values.get("groups", 1)
    if groups != 1:
        known.fix_all([known.of(given["input"]), weight], f"{node.name} has a number of groups in its call")
    return convolution(known, node, known.of(given["input"]), weight, bias, 1, values["weight"].shape)


def convolution(
    known: Knowledge, node: Node, dims: Dims, weight: Dims, bias: Dims | None, groups: int, shape: torch.Size
) -> Dims:
    """A convolution: of groups, the same places of each go together; where a group is one channel, that goes."""
    space = len(shape) - 2
    source = dims[-space - 1]
    out = weight[0]
    if bias:
        known.same(out, bias[0], node)
    known.drop_slots(weight[2:])
    if groups == 1:
        _contracted(known, node, source, weight[1])
    elif source is None or out is None:
        known.fix_all([source, out], f"{node.name} combines it with something that no parameter makes")
    elif shape[1] == 1:  # depthwise
        each_gives = len(out) // len(source)
        for i, atom in enumerate(out.atoms):
            known.atoms.join(atom, source.atoms[i // each_gives])
    else:
        inner = shape[1]
        for i, atom in enumerate(source.atoms):
            known.atoms.join(atom, source.atoms[i % inner])
        if weight[1] is not None:
            known.atoms.unify(weight[1], Channels(source.atoms[:inner]))
        each_gives = len(out) // groups
        for i, atom in enumerate(out.atoms):
            known.atoms.join(atom, out.atoms[i % each_gives])
    return (*dims[: -space - 1], out, *[None] * space)


def transposed(
    known: Knowledge, node: Node, dims: Dims, weight: Dims, bias: Dims | None, groups: int, shape: torch.Size
) -> Dims:
    """A transposed convolution."""
    space = len(shape) - 2
    source, out = dims[-space - 1], weight[1]
    if groups != 1:
        known.fix_all([source, weight, bias], f"{node.name} is a transposed convolution of groups")
        return (*dims[: -space - 1], *[None] * (space + 1))
    known.drop_slots(weight[2:])
    _contracted(known, node, source, weight[0])
    if bias:
        known.same(out, bias[0], node)
    return (*dims[: -space - 1], out, *[None] * space)


@_rule("layer_norm", "rms_norm")
def _layer_norm(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    count = len(values["normalized_shape"])
    tensors = [known.of(given.get(name)) for name in ("weight", "bias") if isinstance(values.get(name), Tensor)]
    return normalized(known, node, known.of(given["input"]), count, tensors)


def normalized(known: Knowledge, node: Node, dims: Dims, count: int, tensors: list[Dims]) -> Dims:
    """A norm over the last dimensions."""
    result = list(dims)
    for i in range(1, count + 1):
        for tensor in tensors:
            if result[-i] is not None or tensor[-i] is not None:
                result[-i] = known.same(result[-i], tensor[-i], node)
        known.atoms.note(result[-i], f"{node.name} is computed over it")
    return tuple(result)


@_rule("batch_norm")
def _batch_norm(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    names = [name for name in ("running_mean", "running_var", "weight", "bias") if values.get(name) is not None]
    return per_channel(known, node, known.of(given["input"]), [known.of(given[name]) for name in names])


@_rule("group_norm")
def _group_norm(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    tensors = [known.of(given[name]) for name in ("weight", "bias") if values.get(name) is not None]
    return grouped(known, node, known.of(given["input"]), values["num_groups"], tensors)


def per_channel(known: Knowledge, node: Node, dims: Dims, tensors: list[Dims]) -> Dims:
    """Each channel, the second dimension, has its own of everything."""
    channels = dims[1]
    for tensor in tensors:
        if channels is not None or tensor[0] is not None:
            channels = known.same(channels, tensor[0], node)
    return (dims[0], channels, *dims[2:])


def grouped(known: Knowledge, node: Node, dims: Dims, groups: int, tensors: list[Dims]) -> Dims:
    """A norm over groups of channels. As many of each group go as of the others: the same places of each."""
    result = per_channel(known, node, dims, tensors)
    channels = result[1]
    if channels is not None:
        each = len(channels) // groups
        for i, atom in enumerate(channels.atoms):
            known.atoms.join(channels.atoms[i % each], atom)
        known.atoms.note(channels, f"{node.name} is computed over it")
    return result


@_rule("embedding")
def _embedding(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    return embedding(known, node, known.of(given["input"]), known.of(given["weight"]), out)


def embedding(known: Knowledge, node: Node, index: Dims, weight: Dims, out: Tensor) -> Dims:
    """Rows of a table."""
    known.fix_all(index, f"{node.name} takes its elements as numbers")
    known.atoms.fix(weight[0], f"{node.name} looks up its elements by number")
    return (*[None] * (out.dim() - 1), weight[1])

"""What becomes of channels where values are reshaped, cut and joined: rules of the kind of operator_rules.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from graphwright.analysis.channels.atoms import Channels
from graphwright.analysis.channels.operator_rules import Rule
from graphwright.analysis.channels.values import Dims, Knowledge, untracked
from graphwright.ir import Node

LAYOUTS: dict[str, Rule] = {}


def _rule(*keys: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        LAYOUTS.update(dict.fromkeys(keys, rule))
        return rule

    return add


@_rule("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel", "view_as", "reshape_as")
def _reshape(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    if not isinstance(values["input"], Tensor) or values["input"].dtype != out.dtype:
        known.fix_all(known.of(given["input"]), f"{node.name} reads it as another type")
        return untracked(out)
    return reshaped(known, node, known.of(given["input"]), values["input"].shape, out.shape)


def reshaped(known: Knowledge, node: Node, dims: Dims, before: Sequence[int], after: Sequence[int]) -> Dims:
    """Dimensions after a reshape: runs of them of the same number of elements, merged and split where channels are."""
    result: list[Channels | None] = [None] * len(after)
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == 1 or after[j] == 1:
            i, j = (i + 1, j) if before[i] == 1 else (i, j + 1)
            continue
        left, right = [i], [j]
        have, want = before[i], after[j]
        while have != want:
            if have < want:
                i += 1
                have *= before[i]
                left.append(i)
            else:
                j += 1
                want *= after[j]
                right.append(j)
        i, j = i + 1, j + 1
        left = [place for place in left if before[place] != 1]
        right = [place for place in right if after[place] != 1]
        flat = known.atoms.merge([dims[place] for place in left], [before[place] for place in left])
        if flat is None:
            continue
        parts = [flat] if len(right) == 1 else known.atoms.split(flat, [after[place] for place in right])
        for place, channels in zip(right, parts, strict=True):
            result[place] = channels
    return tuple(result)


@_rule("permute")
def _permute(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    return tuple([dims[place] for place in values["dims"]])


@_rule("transpose", "swapaxes", "swapdims")
def _transpose(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims = list(known.of(given["input"]))
    one, other = values["dim0"], values["dim1"]
    dims[one], dims[other] = dims[other], dims[one]
    return tuple(dims)


@_rule("t", "mT", "numpy_T")
def _turned(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    return (*dims[:-2], *reversed(dims[-2:]))


@_rule("movedim")
def _movedim(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    source, target = values["source"], values["destination"]
    pairs = [(source, target)] if isinstance(source, int) else list(zip(source, target, strict=True))
    rank = len(dims)
    moved = {to % rank: dims[place % rank] for place, to in pairs}
    rest = iter([each for i, each in enumerate(dims) if i not in {place % rank for place, _ in pairs}])
    return tuple([moved[i] if i in moved else next(rest) for i in range(rank)])


@_rule("expand", "broadcast_to", "expand_as")
def _expand(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    return (*[None] * (out.dim() - len(dims)), *dims)


@_rule("repeat", "tile", "repeat_interleave")
def _repeat(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    shape = values["input"].shape
    result: list[Channels | None] = [None] * (out.dim() - len(dims))
    for channels, before, after in zip(dims, shape, out.shape[out.dim() - len(dims) :], strict=True):
        if before != after:
            known.atoms.fix(channels, f"{node.name} repeats it")
        result.append(channels if before == after else None)
    return tuple(result)


@_rule("cat")
def _cat(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    parts, tensors = known.of(given["tensors"]), values["tensors"]
    if not isinstance(given["tensors"], tuple | list):
        known.fix_all(parts, f"{node.name} joins as many as there are")
        return untracked(out)
    place = values["dim"] % out.dim()
    result: list[Channels | None] = []
    for i in range(out.dim()):
        each = [dims[i] for dims in parts]
        if i == place:
            result.append(_joined(known, node, each, [tensor.shape[i] for tensor in tensors]))
            continue
        joined = each[0]
        for channels in each[1:]:
            if joined is not None or channels is not None:
                joined = known.same(joined, channels, node)
        result.append(joined)
    return tuple(result)


def _joined(known: Knowledge, node: Node, parts: list[Channels | None], sizes: list[int]) -> Channels | None:
    if all(channels is None for channels in parts):
        return None
    atoms: list[int] = []
    for channels, size in zip(parts, sizes, strict=True):
        if channels is None:
            channels = known.atoms.new(size)
            known.atoms.fix(channels, f"{node.name} joins what no parameter makes")
        atoms += channels.atoms
    return Channels(tuple(atoms), any(channels is not None and channels.mixed for channels in parts))


@_rule("stack")
def _stack(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    parts = known.of(given["tensors"])
    tensors = values["tensors"]
    joined = list(known.broadcast([(d, t.shape) for d, t in zip(parts, tensors, strict=True)], node))
    joined.insert(values["dim"] % out.dim(), None)
    return tuple(joined)


@_rule("chunk", "split", "tensor_split", "split_with_sizes")
def _pieces(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    owner = "tensor" if "tensor" in given else "input"
    dims: Dims = known.of(given[owner])
    place = values.get("dim", 0) % len(dims)
    channels = dims[place]
    if not known.are_of_channels([arg for name, arg in given.items() if name != owner]):
        known.atoms.fix(channels, f"{node.name} takes pieces of it that depend on the inputs")
    pieces, begin = [], 0
    for item in out:
        end = begin + item.shape[place]
        part = None if channels is None else Channels(channels.atoms[begin:end], channels.mixed)
        pieces.append((*dims[:place], part, *dims[place + 1 :]))
        begin = end
    return pieces


@_rule("unbind")
def _unbind(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    place = values.get("dim", 0) % len(dims)
    known.atoms.fix(dims[place], f"{node.name} takes its elements one by one")
    return [(*dims[:place], *dims[place + 1 :])] * len(out)


@_rule("select")
def _select(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    place = values["dim"] % len(dims)
    known.atoms.fix(dims[place], f"{node.name} takes an element of it by number")
    return (*dims[:place], *dims[place + 1 :])


@_rule("getitem")
def _getitem(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    owner, index = values["input"], values["index"]
    dims = known.of(given["input"])
    if not isinstance(owner, Tensor):
        return dims[index] if isinstance(dims, list | dict) and not isinstance(index, slice) else untracked(out)
    known.fix_all(known.of(given["index"]), f"{node.name} takes its elements as numbers")
    items = list(index) if isinstance(index, tuple | list) and not _is_list_of_numbers(index) else [index]
    taken = sum(1 for item in items if item is not None and item is not Ellipsis)
    if any(item is Ellipsis for item in items):
        place = next(i for i, item in enumerate(items) if item is Ellipsis)
        items[place : place + 1] = [slice(None)] * (len(dims) - taken)
    else:
        items += [slice(None)] * (len(dims) - taken)
    result: list[Channels | None] = []
    tensors = [i for i, item in enumerate(items) if not isinstance(item, int | slice) and item is not None]
    if len(tensors) > 1:
        known.fix_all(dims, f"{node.name} picks elements of it")
        return untracked(out)
    rest = iter(dims)
    for item in items:
        if item is None:
            result.append(None)
            continue
        channels = next(rest)
        if isinstance(item, slice):
            if channels is not None and item != slice(None):
                if not known.are_of_channels(given["index"]):
                    known.atoms.fix(channels, f"{node.name} takes a piece of it that depends on the inputs")
                channels = Channels(channels.atoms[item], channels.mixed)
            result.append(channels)
        elif isinstance(item, int) and not isinstance(item, bool):
            known.atoms.fix(channels, f"{node.name} takes an element of it by number")
        else:
            known.atoms.fix(channels, f"{node.name} picks elements of it")
            result += [None] * (item.dim() if isinstance(item, Tensor) else 1)
    if len(result) != out.dim():
        known.fix_all(dims, f"{node.name} picks elements of it")
        return untracked(out)
    return tuple(result)


def _is_list_of_numbers(index: Any) -> bool:
    return isinstance(index, list) and all(isinstance(item, int) for item in index)


@_rule("narrow")
def _narrow(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    dims: Dims = known.of(given["input"])
    place = values["dim"] % len(dims)
    known.atoms.fix(dims[place], f"{node.name} takes a piece of it by number")
    return (*dims[:place], None, *dims[place + 1 :])


@_rule("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "empty_like", "rand_like", "randn_like")
def _made(known: Knowledge, node: Node, given: Mapping[str, Any], values: Mapping[str, Any], out: Any) -> Any:
    """Something new, of which only the kind comes from a value; a size of its that has channels does not fit."""
    return untracked(out)

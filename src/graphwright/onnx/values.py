"""What bodies give and take, as tensors: numbers, None on one side, containers of them, and how they come back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.interop import as_number_tensor, as_truth, is_symbolic
from graphwright.ir import Node


@dataclasses.dataclass(frozen=True)
class Maybe:
    """A tensor that is None unless `present`, a tensor of bool without dimensions, holds."""

    present: torch.Tensor
    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True)
class IsNone:
    """The answer to whether a value is None that one side of a branch gave as None."""

    value: Maybe
    wanted: bool


for _kind in (Maybe, IsNone):
    torch.export.register_dataclass(_kind)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a value is for the program: "tensor", "int", "float", "bool", "maybe" a tensor, or a "constant".

    `like` is a tensor of its shape and dtype, or the constant.
    """

    name: str
    like: Any = None

    @property
    def is_constant(self) -> bool:
        return self.name == "constant"


def kind_of(value: Any) -> Kind:
    """The kind of a value.

    >>> kind_of(2).name, kind_of("a")
    ('int', Kind(name='constant', like='a'))
    """
    if isinstance(value, torch.Tensor):
        return Kind("tensor", value)
    if isinstance(value, Maybe):
        return Kind("maybe", value.tensor)
    for name, kinds in _NUMBERS:
        if isinstance(value, kinds):
            return Kind(name, value)
    return Kind("constant", value)


_NUMBERS = (
    ("bool", (bool, torch.SymBool)),
    ("int", (int, torch.SymInt)),
    ("float", (float, torch.SymFloat)),
)
_ORDER = ("bool", "int", "float")


def joined(one: Any, other: Any, node: Node, has_changes: bool = False) -> Kind:
    """The kind of a value that is the one or the other. Raises ExportError where no tensor can be both.

    Two equal numbers are a constant, unless it `has_changes`: the number of one iteration and of the next.
    """
    a, b = kind_of(one), kind_of(other)
    if a.is_constant and b.is_constant and (one is other or _equal(one, other)):
        return a
    if {a.name, b.name} <= {*_ORDER}:
        if not has_changes and type(one) is type(other) and _equal(one, other):
            return Kind("constant", one)
        name = max(a.name, b.name, key=_ORDER.index)
        return Kind(name)
    given = [kind for kind, value in ((a, one), (b, other)) if value is not None]
    is_optional = len(given) < 2 or "maybe" in (a.name, b.name)
    if is_optional and given and all(kind.name in ("tensor", "maybe") for kind in given):
        return Kind("maybe", given[0].like)
    if a.name == b.name == "tensor":
        return a
    tensor, number = (a, b) if a.name == "tensor" else (b, a)
    if tensor.name == "tensor" and number.name in _ORDER and tensor.like.dim() == 0:
        return tensor
    raise ExportError(
        f"{node.name} is {_said(one)} on one way through the program and {_said(other)} on another, "
        "which ONNX cannot say",
        at=node.origin,
        fix="give both tensors of one rank and dtype, or both numbers",
    )


def _equal(one: Any, other: Any) -> bool:
    if is_symbolic(one) or is_symbolic(other):
        return one is other
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False


def _said(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dim()} dimensions of {value.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"


def flatten(value: Any) -> tuple[list[Any], Any]:
    """The leaves of a value, and how they are nested. What may be None is one leaf."""
    return pytree.tree_flatten(value, is_leaf=lambda leaf: isinstance(leaf, Maybe))


def packed(value: Any, kind: Kind) -> list[torch.Tensor]:
    """The tensors that stand for a value of a kind."""
    if kind.is_constant:
        return []
    if kind.name == "maybe":
        if isinstance(value, Maybe):
            return [value.present, value.tensor]
        if value is None:
            return [as_number_tensor(False), _placeholder(kind.like)]
        return [as_number_tensor(True), value]
    if kind.name == "tensor":
        if isinstance(value, torch.Tensor):
            return [value]
        return [as_number_tensor(value).to(kind.like.dtype)]
    if kind.name == "bool":
        return [as_truth(value)]
    return [as_number_tensor(value).to(torch.int64 if kind.name == "int" else torch.float64)]


def _placeholder(like: torch.Tensor) -> torch.Tensor:
    """A tensor in the place of None: of a size that only a run knows it has one."""
    return torch.zeros([size if isinstance(size, int) else 1 for size in like.shape], dtype=like.dtype)


def opened(tensors: Sequence[torch.Tensor], kinds: Sequence[Kind]) -> list[Any]:
    """The values of kinds that tensors stand for, as the program has them."""
    left, values = iter(tensors), []
    for kind in kinds:
        if kind.is_constant:
            values.append(kind.like)
        elif kind.name == "maybe":
            values.append(Maybe(next(left), next(left)))
        else:
            tensor = next(left)
            values.append(tensor.item() if kind.name == "int" else tensor)
    return values

"""Kinds of values that a program keeps: what an attribute is before a call must go with what it is after one."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from graphwright.capture.state.symbols import symbol_of
from graphwright.values import Kind, NumberKind, Policy, RecordKind, TensorKind

__all__ = ["ATTRIBUTE", "PLAIN", "Grows", "is_same"]


@dataclasses.dataclass(frozen=True, slots=True)
class Grows(Kind):
    """A dict or list to which the program adds: what it may hold."""

    held: Kind
    is_assumed: bool = False  # because it holds tensors, as a cache does; not because a pass has shown it

    @classmethod
    def dict_of(cls, items: dict[Any, Kind], is_assumed: bool = False) -> Grows:
        """A dict of which a call may find any of these keys."""
        return cls(RecordKind(dict, items, frozenset(items)), is_assumed)


class Plain(Kind):
    """A dict that was assumed to grow, and which the program uses as one that does not."""

    __slots__ = ()


PLAIN = Plain()


def is_same(a: Any, b: Any) -> bool:
    """Tell whether a value is what it was."""
    if a is b:
        return True
    known, now = symbol_of(a), symbol_of(b)
    if known is not None or now is not None:
        return known is not None and now is not None and known.key == now.key
    if type(a) is not type(b) or isinstance(a, torch.Tensor):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    return isinstance(a, int | float | str | bytes | complex | torch.dtype | torch.device) and bool(a == b)


# An attribute keeps its layout, joins int and float, and may be None at times; where calls leave it in kinds that have
# nothing in common, nothing may read it before it is written.
ATTRIBUTE = Policy(
    (int, float), (TensorKind, NumberKind, RecordKind), compares_layout=True, mixes=True, is_same=is_same
)

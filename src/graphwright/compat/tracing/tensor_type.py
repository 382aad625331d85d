"""Types of tensors, as annotations of values: a shape whose sizes may be unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class _Dynamic:
    """The type of what is not known until the program runs: a size, or a whole tensor."""

    __name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dynamic)

    def __hash__(self) -> int:
        return hash(_Dynamic)

    def __str__(self) -> str:
        return "Dyn"

    __repr__ = __str__


Dyn = _Dynamic()


class TensorType:
    """The type of tensors of one shape: a size is a number, or `Dyn` where it is not known.

    >>> TensorType((1, Dyn, 3))
    TensorType[(1, Dyn, 3)]
    >>> is_consistent(TensorType((1, Dyn)), TensorType((1, 2)))
    True
    """

    def __init__(self, dim: Sequence[Any]) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        sizes = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        return TensorType(tuple(sizes))


def is_consistent(t1: object, t2: object) -> bool:
    """Tell whether two types agree wherever both are known."""
    if t1 == t2 or Dyn in (t1, t2):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        sizes, others = t1.__args__, t2.__args__
        return len(sizes) == len(others) and all(map(is_consistent, sizes, others))
    return False


def is_more_precise(t1: object, t2: object) -> bool:
    """Tell whether the first type says all that the second one does; equal types do."""
    if t1 == t2 or t2 == Dyn:
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        sizes, others = t1.__args__, t2.__args__
        return len(sizes) == len(others) and all(map(is_more_precise, sizes, others))
    return False

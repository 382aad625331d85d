"""What `functools` caches keep of tensors: a captured program computes it anew, so nobody else may write to it."""

from __future__ import annotations

import functools
import gc
import operator
from collections.abc import Iterator
from typing import Any

import torch

from graphwright.values import leaves

_CACHE = type(functools.lru_cache(len))
AS_GIVEN: Any = object()
_WRITTEN: Any = object()
_VERSION = operator.attrgetter("_version")


class Kept:
    """The tensors that a cache keeps, as the function behind it gave them.

    What is met first is compared with what the function computes now; later, it counts how often it was written to.

    >>> ones = functools.lru_cache(lambda count: torch.ones(count))
    >>> kept = Kept(ones)
    >>> ones(3).shape, kept.content is AS_GIVEN
    (torch.Size([3]), True)
    >>> ones(3).zero_().shape, kept.content is AS_GIVEN
    (torch.Size([3]), False)
    """

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        # By the id of what is kept: itself, its tensors, and how often these were written to.
        self._known: dict[int, tuple[Any, list[torch.Tensor], list[int]]] = {}

    @property
    def content(self) -> Any:
        """AS_GIVEN, or something else where one of them was written to."""
        known: dict[int, tuple[Any, list[torch.Tensor], list[int]]] = {}
        for key, value in _entries(self.cache):
            row = self._known.get(id(value))
            if row is None:
                tensors = _tensors(value)
                if torch._C._len_torch_dispatch_stack():  # what it computes would be none of its values
                    continue
                row = value, tensors, [*map(_VERSION, tensors)]
                args, named = _arguments(key, self.cache.cache_parameters()["typed"])
                if tensors and not _are_equal(tensors, _tensors(self.cache.__wrapped__(*args, **named))):
                    return _WRITTEN
            elif [*map(_VERSION, row[1])] != row[2]:
                return _WRITTEN
            known[id(value)] = row
        self._known = known
        return AS_GIVEN


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value of which it is known how often they were written to."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor) and not leaf.is_inference()]


def _are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    if [(one.dtype, one.shape) for one in some] != [(one.dtype, one.shape) for one in others]:
        return False
    return all(a.equal(b) or bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(some, others, strict=True))


def _entries(cache: Any) -> Iterator[tuple[Any, Any]]:
    """The keys of a cache, and what it keeps for each."""
    held = gc.get_referents(cache)
    table = next((each for each in held if type(each) is dict and each is not vars(cache)), {})
    if cache.cache_parameters()["maxsize"] is None:
        yield from table.items()
        return
    keys = {id(key) for key in table}
    place = 0
    while place < len(held) and held[place] is not table:
        if id(held[place]) in keys:
            yield held[place], held[place + 1]
            place += 1  # what is kept may be a key itself
        place += 1


def _arguments(key: Any, is_typed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call of which a cache made a key."""
    if type(key) is not tuple:
        return (key,), {}
    mark = next((place for place, part in enumerate(key) if type(part) is object), None)
    if mark is None:
        return key[: len(key) // 2] if is_typed else key, {}
    count = (len(key) - 2 * mark - 1) // 3 if is_typed else (len(key) - mark - 1) // 2
    pairs = key[mark + 1 : mark + 1 + 2 * count]
    return key[:mark], dict(zip(pairs[::2], pairs[1::2], strict=True))

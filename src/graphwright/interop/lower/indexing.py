"""Items and slices of tensors at places that only a run knows."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from graphwright.interop.lower.items import Items, rows_read
from graphwright.interop.lower.numbers import as_number_tensor
from graphwright.ir import Node


def item_of(tensor: torch.Tensor, index: Any) -> Any:
    """`tensor[index]`; a number that only a run knows selects by a tensor.

    >>> item_of(torch.arange(6).reshape(2, 3), (slice(None), 1))
    tensor([1, 4])
    """
    parts = _parts(tensor, index)
    if not any(_is_open(part) for part in parts):
        return tensor[index]
    dim, rest = 0, []
    for part in parts:
        if isinstance(part, torch.SymInt):
            tensor = tensor.index_select(dim, _place(part, tensor, dim))
            part = 0
        elif isinstance(part, slice) and _is_open(part):
            tensor, part = _sliced(tensor, dim, part), slice(None)
        rest.append(part)
        dim += _takes(part)
    return tensor[tuple(rest)]


def set_item(tensor: Any, index: Any, item: Any) -> Any:
    """`tensor[index] = item`, at a number that only a run knows by a tensor; NotImplemented for what is no tensor."""
    if not isinstance(tensor, torch.Tensor):
        return NotImplemented
    if isinstance(item, bool | int | float):
        item = torch.full((), item, dtype=tensor.dtype)  # and no constant, which bodies cannot hold
    parts = list(_parts(tensor, index))
    dim = 0
    for i, part in enumerate(parts):
        if isinstance(part, torch.SymInt):
            place = _place(part, tensor, dim)
            row = tensor.index_select(dim, place)
            set_item(row, (*parts[:i], 0, *parts[i + 1 :]), item)
            tensor.index_copy_(dim, place, row)
            return None
        if isinstance(part, slice) and _is_open(part):
            start, stop = _bounds(tensor, dim, part)
            places = torch.arange(start, stop, part.step or 1)
            rows = tensor.index_select(dim, places)
            set_item(rows, (*parts[:i], slice(None), *parts[i + 1 :]), item)
            tensor.index_copy_(dim, places, rows)
            return None
        dim += _takes(part)
    tensor[index] = item
    return None


@dataclasses.dataclass
class _Copy:
    """An item of a tensor, and both as they were when it was last the same in both; how it is read and written."""

    item: torch.Tensor
    tensor: torch.Tensor
    read: Callable[[], torch.Tensor]
    write: Callable[[torch.Tensor], object]

    def __post_init__(self) -> None:
        self.note()

    def note(self) -> None:
        """It is the same in both."""
        self.versions = self.item._version, self.tensor._version


class Copies:
    """The items that a run has read at places which only a run knows: eager has views there, and targets copies.

    What is written to one in place is written to the tensor, too, and what is written to that is read again.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Copy] = {}  # by the id of the item

    def read(self, tensor: torch.Tensor, index: Any) -> Any:
        """`tensor[index]`."""
        item = item_of(tensor, index)
        if any(_is_open(part) for part in _parts(tensor, index)):
            self._add(item, tensor, lambda: item_of(tensor, index), lambda value: set_item(tensor, index, value))
        return item

    def next_item(self, items: Items, number: torch.Tensor) -> Any:
        """The item of a number."""
        item = items.at(number)
        for part, rows, place in rows_read(items, number, item):
            self._add(part, rows.tensor, functools.partial(rows.at, place), functools.partial(rows.put, place))
        return item

    def _add(self, item: torch.Tensor, *how: Any) -> None:
        self._known[id(item)] = _Copy(item, *how)

    @contextlib.contextmanager
    def views(self, values: dict[Node, Any], node: Node) -> Iterator[None]:
        """Have the items among these values be views while a node runs that uses them."""
        for used in node.all_input_nodes if self._known else ():
            copy = self._known.get(id(values.get(used)))
            if copy is not None and copy.versions[1] != copy.tensor._version:
                values[used] = item = copy.read()
                self._add(item, copy.tensor, copy.read, copy.write)
        yield
        for copy in self._known.values():
            if copy.item._version != copy.versions[0]:
                copy.write(copy.item)
                copy.note()


def _parts(tensor: torch.Tensor, index: Any) -> Sequence[Any]:
    """The parts of an index, with `...` written out."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(part is ... for part in parts):
        return parts
    at = next(i for i, part in enumerate(parts) if part is ...)
    missing = tensor.dim() - sum(_takes(part) for part in parts if part is not ...)
    return (*parts[:at], *[slice(None)] * missing, *parts[at + 1 :])


def _takes(part: Any) -> int:
    """How many dimensions of a tensor a part of an index is for."""
    if part is None or isinstance(part, bool):
        return 0
    return part.dim() if isinstance(part, torch.Tensor) and part.dtype == torch.bool else 1


def _is_open(part: Any) -> bool:
    if isinstance(part, slice):
        ends = (part.start, part.stop)
        return any(isinstance(end, torch.SymInt) and bool(free_unbacked_symbols(end)) for end in ends)
    return isinstance(part, torch.SymInt)


def _place(number: torch.SymInt, tensor: torch.Tensor, dim: int) -> torch.Tensor:
    place = as_number_tensor(number)
    if not statically_known_true(number >= 0):
        place = torch.where(place < 0, place + tensor.shape[dim], place)
    return place.reshape(1)


def _sliced(tensor: torch.Tensor, dim: int, part: slice) -> torch.Tensor:
    if part.step in (None, 1) and part.start is not None and part.stop is not None:
        facts = (part.stop - part.start == 1, part.start >= 0, part.stop <= tensor.shape[dim])
        if all(map(statically_known_true, facts)):
            return tensor.index_select(dim, as_number_tensor(part.start).reshape(1))
    start, stop = _bounds(tensor, dim, part)
    places = (slice(None),) * dim
    at = (*places, slice(start, stop, part.step))
    return tensor[at]


def _bounds(tensor: torch.Tensor, dim: int, part: slice) -> tuple[Any, Any]:
    """Where a slice starts and stops, between 0 and the size, as numbers of which torch knows that."""
    size = tensor.shape[dim]
    start = 0 if part.start is None else _bound(part.start, size, 0)
    if part.stop is None:
        return start, size
    return start, _bound(part.stop, size, start)


def _bound(end: Any, size: Any, least: Any) -> Any:
    if isinstance(end, int) and end == 0:
        return 0
    place = as_number_tensor(end)
    place = torch.where(place < 0, place + size, place)
    place = torch.minimum(torch.maximum(place, as_number_tensor(least)), as_number_tensor(size))
    number = place.item()
    torch._check(number >= least)
    torch._check(number <= size)
    return number

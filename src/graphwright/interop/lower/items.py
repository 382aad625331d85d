"""What a loop goes over, where only a run knows how often: how many items there are, and which one is next."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import torch

from graphwright.errors import ExportError
from graphwright.interop.lower.numbers import as_number_tensor, is_symbolic


@runtime_checkable
class Items(Protocol):
    """So many items, one of which is had by its number: a tensor without dimensions."""

    @property
    def length(self) -> Any: ...

    def at(self, number: torch.Tensor) -> Any:
        """The item of a number."""


@dataclasses.dataclass(frozen=True)
class Counted:
    """The numbers of a `range`.

    >>> Counted(5, 1, -2).length, Counted(5, 1, -2).at(torch.tensor(1))
    (2, 3)
    """

    start: Any
    stop: Any
    step: int = 1

    @property
    def length(self) -> Any:
        """How many there are: none where the end comes before the start."""
        between = self.stop - self.start if self.step > 0 else self.start - self.stop
        count = (between + abs(self.step) - 1) // abs(self.step)
        return torch.sym_max(count, 0)

    def at(self, number: torch.Tensor) -> Any:
        """The number at a place, as a number."""
        value = (number * self.step + as_number_tensor(self.start)).item()
        if self.step == 1:  # and no more is known of it
            torch._check(value >= self.start)
            torch._check(value < self.stop)
        return value


@dataclasses.dataclass(frozen=True)
class Rows:
    """The parts of a tensor along a dimension; with `numbers`, each as a number.

    >>> Rows(torch.arange(6).reshape(2, 3), 1).at(torch.tensor(2))
    tensor([2, 5])
    """

    tensor: torch.Tensor
    dim: int = 0
    numbers: bool = False

    @property
    def length(self) -> Any:
        """The size of the dimension."""
        return self.tensor.shape[self.dim]

    def at(self, number: torch.Tensor) -> Any:
        """One part, without the dimension."""
        part = self.tensor.index_select(self.dim, number.reshape(1)).squeeze(self.dim)
        if not self.numbers:
            return part
        return part if part.dtype in (torch.bool, torch.float64) else _number(part)

    def put(self, number: torch.Tensor, part: torch.Tensor) -> None:
        """Write one part in place."""
        self.tensor.index_copy_(self.dim, number.reshape(1), part.unsqueeze(self.dim))

    def __getitem__(self, index: Any) -> Any:
        number = as_number_tensor(index)
        return self.at(torch.where(number < 0, number + self.length, number))


def _number(part: torch.Tensor) -> Any:
    return part.to(torch.float64) if part.dtype.is_floating_point else part.item()


@dataclasses.dataclass(frozen=True)
class _Stacked(Rows):
    """Tensors of a list, one on the other: copies."""

    def put(self, number: torch.Tensor, part: torch.Tensor) -> None:
        """Raise ExportError: what is written here, the tensors of the list would not get."""
        raise ExportError(
            "a loop writes in place to the tensors of a list that it goes over, as often as data says",
            fix="go over the rows of one tensor",
        )


@dataclasses.dataclass(frozen=True)
class Collected(Rows):
    """The tensors that the iterations of a loop gave, one on the other; `kind` is what each was for the program."""

    kind: type = torch.Tensor

    def at(self, number: torch.Tensor) -> Any:
        """What one iteration gave."""
        part = super().at(number)
        return part.item() if issubclass(self.kind, int) and not issubclass(self.kind, bool) else part


@dataclasses.dataclass(frozen=True)
class Zipped:
    """Items of several sources at a time, as many as the shortest has."""

    sources: tuple[Items, ...]

    @property
    def length(self) -> Any:
        """The least of the lengths."""
        return functools.reduce(torch.sym_min, [source.length for source in self.sources])

    def at(self, number: torch.Tensor) -> Any:
        """One of each, as a tuple."""
        return tuple([source.at(number) for source in self.sources])


@dataclasses.dataclass(frozen=True)
class _Endless:
    """The numbers from a start on, for `enumerate`: as many as there are of what it goes with."""

    start: Any
    length: Any

    def at(self, number: torch.Tensor) -> Any:
        return (number + as_number_tensor(self.start)).item()


@dataclasses.dataclass(frozen=True)
class _Reversed:
    source: Items

    @property
    def length(self) -> Any:
        return self.source.length

    def at(self, number: torch.Tensor) -> Any:
        return self.source.at(as_number_tensor(self.length) - 1 - number)


def rows_read(items: Any, number: torch.Tensor, item: Any) -> Iterator[tuple[torch.Tensor, Rows, torch.Tensor]]:
    """The tensors in the item of a number, each with the rows that it is one of, and its place there."""
    if isinstance(items, _Reversed):
        yield from rows_read(items.source, as_number_tensor(items.length) - 1 - number, item)
    elif isinstance(items, Zipped):
        for source, part in zip(items.sources, item, strict=True):
            yield from rows_read(source, number, part)
    elif isinstance(items, Rows) and isinstance(item, torch.Tensor):
        yield item, items, number


def item_sources(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """What `range`, `zip`, `enumerate` and `reversed` give where only a run knows how much; else NotImplemented.

    A strict `zip` has sources that are equally long: torch.export is told so.

    >>> item_sources(zip, ([1], [2]))
    NotImplemented
    >>> item_sources(enumerate, (torch.ones(3, 2),)).length
    3
    """
    if target is range and any(map(is_symbolic, args)):
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        return NotImplemented if is_symbolic(step) else Counted(start, stop, step)
    if not any(isinstance(arg, Items | torch.Tensor) for arg in args):
        return NotImplemented
    if target is enumerate:
        source = as_items(args[0])
        start = args[1] if len(args) > 1 else kwargs.get("start", 0)
        return Zipped((_Endless(start, source.length), source))
    if target is zip:
        sources = tuple([as_items(arg) for arg in args])
        for source in sources[1:] if kwargs.get("strict") else ():
            torch._check(source.length == sources[0].length)
        return Zipped(sources)
    return _Reversed(as_items(args[0])) if target is reversed else NotImplemented


def as_items(value: Any) -> Items:
    """What a loop goes over, as items. Raises ExportError where they cannot be had by number."""
    if isinstance(value, torch.Tensor):
        return Rows(value)
    if isinstance(value, range):
        return Counted(value.start, value.stop, value.step)
    if isinstance(value, Items):
        return value
    if isinstance(value, list | tuple) and value:
        return _Known(tuple(value)) if not _is_stackable(value) else _Stacked(torch.stack(list(value)))
    raise ExportError(
        f"a loop goes over a {type(value).__name__} as often as data says",
        fix="go over the rows of a tensor, or over a range",
    )


def _is_stackable(values: Sequence[Any]) -> bool:
    first = values[0]
    return isinstance(first, torch.Tensor) and all(
        isinstance(value, torch.Tensor) and value.dtype == first.dtype and value.dim() == first.dim()
        for value in values
    )


@dataclasses.dataclass(frozen=True)
class _Known:
    """Numbers of a list, as a tensor that holds them."""

    values: tuple[Any, ...]

    @property
    def length(self) -> Any:
        return len(self.values)

    def at(self, number: torch.Tensor) -> Any:
        if not all(isinstance(value, int | float) for value in self.values):
            kind = type(self.values[0]).__name__
            raise ExportError(
                f"a loop goes over a list of {kind} as often as data says", fix="make a tensor of the list first"
            )
        return Rows(torch.tensor(self.values), numbers=True).at(number)


for _kind in (Counted, Rows, _Stacked, Collected, Zipped, _Endless, _Reversed):
    torch.export.register_dataclass(_kind)  # so that a region takes the tensors in them

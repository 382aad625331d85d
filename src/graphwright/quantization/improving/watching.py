"""Calibration data run through a program again, with something that looks at layers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from graphwright.engines import Call
from graphwright.ir import Node
from graphwright.passes import install
from graphwright.quantization.programs.state import Onlooker, as_it_was, fresh
from graphwright.quantization.sites import after
from graphwright.runtime import GraphModule

_Item = TypeVar("_Item")
Batches = Iterable[Call]
See = Callable[[Tensor, Tensor], "Tensor | None"]


class _Watch(Onlooker):
    """Calls a function with the input and the output of a layer; what it gives takes the place of the output."""

    def __init__(self, see: See) -> None:
        super().__init__()
        self.see = see

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        given = self.see(x, y)
        return y if given is None else given


@contextlib.contextmanager
def watching(gm: GraphModule, functions: Mapping[Node, See]) -> Iterator[None]:
    """For a while, have functions see the input and the output of calls of layers, see `_Watch`."""
    made: list[tuple[Node, Node]] = []
    for node, see in functions.items():
        path = install(gm, _Watch(see), f"watches.{node.name}")
        with node.graph.inserting_before(after(node)):
            watch = node.graph.call_module(path, (node.args[0], node))
        node.replace_all_uses_with(watch, lambda user, watch=watch: user is not watch)  # type: ignore[misc]
        made.append((node, watch))
    gm.recompile()
    try:
        yield
    finally:
        for node, watch in made:
            watch.replace_all_uses_with(node)
            watch.graph.erase_node(watch)
        if made:
            del gm.watches
        gm.recompile()


_ENOUGH, _FEWEST = 8192, 2  # numbers that were seen of a value, and batches


class Sampled:
    """What is estimated from some of the data; counts the numbers that were seen."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def has_enough(self) -> bool:
        """Whether more data would tell little."""
        return self.count >= _ENOUGH


def run_until_enough(gm: GraphModule, batches: Batches, seen: Collection[Sampled]) -> None:
    """Run a program on the first batches, until enough was seen of each: few of large ones, all of small ones."""

    def needed() -> Iterator[Call]:
        for i, call in enumerate(batches):
            if i >= _FEWEST and all(each.has_enough for each in seen):
                return
            yield call

    run_batches(gm, needed())


def run_batches(gm: GraphModule, batches: Batches) -> int:
    """Run a program on batches without gradients, from the state that it has and leaving that; gives how many."""
    count = 0
    with torch.no_grad(), as_it_was(gm, gm):
        for call in batches:
            args, kwargs = fresh(call)
            gm(*args, **kwargs)
            count += 1
    return count


def in_chunks(items: Iterable[_Item], bytes_of: Callable[[_Item], int], most: int) -> Iterator[list[_Item]]:
    """Items in lists whose memory is at most so many bytes together; one that is larger is alone.

    >>> list(in_chunks([3, 2, 2, 9, 1], lambda item: item, 5))
    [[3, 2], [2], [9], [1]]
    """
    chunk: list[_Item] = []
    used = 0
    for item in items:
        size = bytes_of(item)
        if chunk and used + size > most:
            yield chunk
            chunk, used = [], 0
        chunk.append(item)
        used += size
    if chunk:
        yield chunk

"""What exported loops go over, and lists that they fill: rows of tensors, by a number that only a run knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from graphwright.errors import ExportError
from graphwright.ir import Node
from graphwright.ops import loop_parts

__all__ = [
    "COLLECTED", "Range", "Several", "item_of", "length_of", "lists_filled", "made_empty", "rows_of", "several_of",
    "with_row",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """A `range` whose length only a run knows; one that never ends has no `stop`."""

    start: Any
    stop: Any
    step: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Several:
    """What `zip` and `enumerate` go over: tensors, by their rows, ranges, and others of these."""

    parts: tuple[Any, ...]


def several_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Several | None:
    """What a `zip` or `enumerate` goes over, where that is as long as only a run knows."""
    is_known = not any(isinstance(arg, torch.Tensor | Range | Several) for arg in args)
    if is_known or kwargs.get("strict"):
        return None
    if target is zip:
        return Several(args)
    return Several((Range(kwargs.get("start", (*args[1:], 0)[0]), None), args[0]))


def length_of(items: Any, node: Node) -> Any:
    """How many items there are. Raises ExportError for what only Python can go over."""
    if isinstance(items, torch.Tensor):
        return items.shape[0]
    if isinstance(items, Range) and items.step == 1:
        return None if items.stop is None else torch.sym_max(items.stop - items.start, 0)
    if not isinstance(items, Several):
        raise ExportError(
            f"{node.name} goes over a {type(items).__name__} among others, which torch.while_loop cannot say",
            at=node.origin,
            fix="go over tensors and ranges alone",
        )
    lengths = [length for part in items.parts if (length := length_of(part, node)) is not None]
    shortest = lengths[0]
    for length in lengths[1:]:
        shortest = torch.sym_min(shortest, length)
    return shortest


def rows_of(items: Any) -> list[torch.Tensor]:
    """The tensors whose rows are items, or parts of them."""
    if isinstance(items, Several):
        return [tensor for part in items.parts for tensor in rows_of(part)]
    return [items] if isinstance(items, torch.Tensor) else []


def item_of(items: Any, tensors: Iterator[Any], number: torch.Tensor) -> Any:
    """The item of one number; `tensors` are those of `rows_of`, as they are known there."""
    if isinstance(items, torch.Tensor):
        return next(tensors).index_select(0, number.reshape(1)).squeeze(0)
    if isinstance(items, Several):
        return tuple([item_of(part, tensors, _counted(part, number)) for part in items.parts])
    return number.item()


def _counted(part: Any, number: torch.Tensor) -> torch.Tensor:
    return number + part.start if isinstance(part, Range) else number


# ---- lists


def lists_filled(node: Node, operands: Sequence[Any]) -> list[list[Any]]:
    """The empty lists that a loop adds one item to in each iteration, and that are stacked or joined after it."""
    _, body, _, given, _ = loop_parts(node)
    inputs = body.find_nodes(op="placeholder")[-len(given) :] if given else []
    triples = zip(given, inputs, operands, strict=True)
    return [
        value for made, held, value in triples if type(value) is list and not value and _is_filled(made, held, node)
    ]


def _is_filled(made: Any, held: Node, loop: Node) -> bool:
    adds = [user for user in held.users if user.target == "append" and user.args[0] is held]
    others = [user for user in made.users if user is not loop]
    are_joined = all(user.target in COLLECTED and user.args[:1] == (made,) for user in others)
    return len(held.users) == len(adds) == 1 and not adds[0].users and are_joined and held not in adds[0].args[1:]


def made_empty(lists: list[list[Any]], numbers: Range, run: Callable[[], Any]) -> list[torch.Tensor]:
    """A tensor for each list, with a row for each item of it: `run` adds an item, of which the shape is looked at."""
    mode = torch._guards.detect_fake_mode()
    env = None if mode is None else mode.shape_env
    with disable_proxy_modes_tracing():
        if env is None:
            run()
        else:
            with env.ignore_fresh_unbacked_symbols():
                run()
    items = [held.pop() for held in lists]
    count = torch.sym_max(numbers.stop - numbers.start, 0)
    return [torch.zeros((count, *item.shape), dtype=item.dtype, device=item.device) for item in items]


def with_row(tensor: torch.Tensor, value: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """A tensor with another row at a number."""
    return tensor.index_copy(0, number.reshape(1), value.unsqueeze(0))


def _stacked(rows: torch.Tensor, dim: int = 0) -> torch.Tensor:
    torch._check(rows.shape[0] > 0)
    return rows.movedim(0, dim)


def _joined(rows: torch.Tensor, dim: int = 0) -> torch.Tensor:
    torch._check(rows.shape[0] > 0)
    dim = dim % (rows.dim() - 1)
    return rows.movedim(0, dim).flatten(dim, dim + 1)


# What is done with such a list, done with a tensor of its items.
COLLECTED: dict[Any, Callable[..., Any]] = {
    torch.stack: _stacked,
    torch.cat: _joined,
    torch.concat: _joined,
    len: lambda rows: rows.shape[0],
}

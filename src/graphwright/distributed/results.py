"""What the last stage gives: the tensors of what the program returns, or those that are wanted."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphwright.errors import PassError, UnknownNameError
from graphwright.ir import Graph, Node

Output = str | int | tuple[Any, ...] | list[Any] | None
_Step = tuple[str, Any]  # "item" or "attribute", and which


@dataclass(frozen=True, slots=True)
class Result:
    """Which tensors of the result of a program its last stage gives, each as the steps that lead to it.

    One tensor is given as it is, several as a tuple. `examples` are like them, without data. One without dimensions,
    such as a loss, is given one dimension: a schedule puts the results of microbatches one behind the other.
    """

    argument: Any
    paths: tuple[tuple[_Step, ...], ...]
    examples: tuple[Tensor, ...]
    is_one: bool

    @staticmethod
    def of(argument: Any, value: Any, output: Output) -> Result:
        """Read which tensors are wanted. `argument` is what the output node returns, `value` that for the example.

        Raises UnknownNameError for an output that is not there, PassError for one that is no tensor.
        """
        if output is None:
            paths = [path for path, _ in _tensors(value, ())]
            if not paths:
                raise PassError("the program returns no tensor, which a last stage has to give")
            is_one = len(paths) == 1
        else:
            wanted = list(output) if isinstance(output, list | tuple) else [output]
            is_one = not isinstance(output, list | tuple)
            paths = [_found(value, each) for each in wanted]
        return Result(argument, tuple(paths), tuple([_example(value, path) for path in paths]), is_one)

    def write(self, graph: Graph, value_of: Callable[[Node], Any]) -> Any:
        """Write what leads to the tensors into a graph, and say what it returns."""
        found = [self._one(graph, path, value_of) for path in self.paths]
        found = [
            each if example.dim() else graph.call_method("reshape", (each, 1))
            for each, example in zip(found, self.examples, strict=True)
        ]
        return found[0] if self.is_one else tuple(found)

    @property
    def gives(self) -> tuple[Tensor, ...]:
        """What the last stage gives, without data."""
        return tuple([each if each.dim() else each.reshape(1) for each in self.examples])

    def _one(self, graph: Graph, path: tuple[_Step, ...], value_of: Callable[[Node], Any]) -> Any:
        value: Any = self.argument
        for kind, key in path:
            if isinstance(value, Node):
                target = operator.getitem if kind == "item" else getattr
                node = value_of(value) if value.graph is not graph else value
                value = graph.call_function(target, (node, key))
            else:
                value = value[key] if kind == "item" else getattr(value, key)
        return value_of(value) if isinstance(value, Node) and value.graph is not graph else value


def _tensors(value: Any, path: tuple[_Step, ...]) -> Iterator[tuple[tuple[_Step, ...], Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    else:
        for step, item in _items(value):
            yield from _tensors(item, (*path, step))


def _example(value: Any, path: tuple[_Step, ...]) -> Tensor:
    """A tensor without data like the one at a path."""
    for kind, key in path:
        value = value[key] if kind == "item" else getattr(value, key)
    return torch.empty_like(value, device="meta").requires_grad_(value.requires_grad)


def _items(value: Any) -> Iterator[tuple[_Step, Any]]:
    if isinstance(value, Mapping):
        yield from ((("item", key), item) for key, item in value.items())
    elif isinstance(value, tuple | list):
        yield from ((("item", i), item) for i, item in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        yield from ((("attribute", name), getattr(value, name)) for name in names)


def _found(value: Any, wanted: Any) -> tuple[_Step, ...]:
    """The steps to one wanted tensor: a key, a number, or the name of an attribute."""
    if isinstance(value, Tensor) and wanted == 0:
        return ()
    items = dict(_items(value))
    step: _Step = ("item", wanted) if ("item", wanted) in items else ("attribute", wanted)
    if step not in items and isinstance(wanted, str) and hasattr(value, wanted):
        items[step] = getattr(value, wanted)
    if step not in items:
        there = ", ".join(repr(key) for _, key in items) or "one tensor: 0"
        raise UnknownNameError(f"the program returns nothing called {wanted!r}", fix=f"there are {there}")
    if not isinstance(items[step], Tensor):
        inner = [path for path, _ in _tensors(items[step], (step,))]
        if len(inner) == 1:
            return inner[0]
        raise PassError(
            f"output {wanted!r} is a {type(items[step]).__name__}, and a stage gives tensors",
            fix="leave out output= for all tensors in the order of the result",
        )
    return (step,)

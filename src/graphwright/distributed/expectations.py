"""What stages are made for, checked before anything is sent: the shapes of inputs, and of what goes on."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from graphwright.analysis import tensors_in
from graphwright.distributed.crossings import Crossings
from graphwright.errors import GuardError
from graphwright.ir import Node

_Kinds = list[tuple[tuple[int, ...], Any]]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The tensors in each input of the first stage, as shapes and dtypes. Called as a hook before a module runs."""

    kinds: Mapping[str, _Kinds]

    @staticmethod
    def of(inputs: Iterable[Node], crossings: Crossings) -> Inputs:
        """Read what the inputs of the example were, by the names of parameters."""
        return Inputs({str(node.target).lstrip("*"): _kinds(crossings.value(node)) for node in inputs})

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            _compare(name, self.kinds.get(name, []), _kinds(value), "microbatches")


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a stage sends, as names, shapes and dtypes. Called as a hook after a module ran."""

    names: tuple[str, ...]
    examples: tuple[Tensor, ...]

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        for name, example, value in zip(self.names, self.examples, result, strict=True):
            _compare(name, _kinds(example), _kinds(value), "values")
            if value.requires_grad and not example.requires_grad:
                raise GuardError(
                    f"{name} needs a gradient now, which no stage was made to send back",
                    fix="make the stages after requires_grad is set",
                )


def _kinds(value: Any) -> _Kinds:
    return [(tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(value)]


def _compare(name: str, wanted: _Kinds, found: _Kinds, what: str) -> None:
    if wanted != found:
        was, now = (", ".join(f"{dtype}{shape}" for shape, dtype in each) or "no tensor" for each in (wanted, found))
        raise GuardError(
            f"the stages were made for {what} with {was} in {name}; now it is {now}",
            fix="make the stages with an example like these inputs, and as many microbatches as the schedule has",
        )

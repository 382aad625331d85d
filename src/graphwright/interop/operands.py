"""What torch's operators for branches and loops take and give: tensors, where a program has numbers."""

from __future__ import annotations

from typing import Any

import torch

from graphwright.errors import GuardError
from graphwright.interop.lower.numbers import as_number_tensor, as_truth

NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def as_tensor(value: Any) -> torch.Tensor:
    """A number as a tensor from which `item()` takes it back exactly; tensors as they are.

    >>> as_tensor(2), as_tensor(0.1).item()
    (tensor(2), 0.1)
    """
    return value if isinstance(value, torch.Tensor) else as_number_tensor(value)


def number_as_tensor(value: Any, name: str) -> torch.Tensor:
    """An input that is a number by default, as a tensor. Raises GuardError for another value.

    >>> number_as_tensor(2, "limit")
    tensor(2)
    """
    if isinstance(value, NUMBERS):
        return as_tensor(value)
    raise GuardError(
        f"argument {name!r} is a number for the branches and loops of this module; now it is a {type(value).__name__}",
        fix="make the module of a capture whose input is annotated, or without a number as its default",
    )


def as_bool(value: Any) -> torch.Tensor:
    """What an `if` asks of a tensor or a number, as a tensor of no dimensions.

    >>> as_bool(torch.ones(1, 1)), as_bool([])
    (tensor(True), tensor(False))
    """
    return as_truth(value if isinstance(value, (torch.Tensor, *NUMBERS)) else bool(value))


def number_of_rows(value: Any, where: str) -> int:
    """Say how often a loop over the rows of a tensor goes round. Raises GuardError for what is no tensor.

    >>> number_of_rows(torch.ones(3, 2), "model.py:3: for row in x:")
    3
    """
    if not isinstance(value, torch.Tensor):
        raise GuardError(
            f"a loop goes over the rows of a tensor; now it is a {type(value).__name__}",
            at=where,
            fix="stack the items into one tensor before the loop, or keep the loop in a leaf function",
        )
    return value.shape[0] if value.dim() else len(value)


def kept(value: Any) -> None:
    """Have torch.fx keep a branch or loop that does something, though nobody may read what it gives."""

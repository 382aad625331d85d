"""What a demonstration is about: a model, calls to make on it, and a change to make to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.runtime import GraphModule

Call = tuple[tuple[Any, ...], dict[str, Any]]  # args and kwargs


@dataclass(frozen=True, slots=True)
class Effect:
    """What the change did to the results: lines to print, and whether it is as small as it should be."""

    lines: tuple[str, ...]
    claim: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Subject:
    """One model to demonstrate on.

    `calls` are named; the first is the one to capture with. `part` is the path of the submodule to show.
    `transform` edits a captured module in place and counts its changes, `compare` tells what that did.
    """

    name: str
    about: tuple[str, ...]
    model: nn.Module
    calls: dict[str, Call]
    part: str
    package: str  # the name under which the transformed model is written
    change: str  # what `transform` does, in words
    transform: Callable[[GraphModule], int]
    compare: Callable[[nn.Module, nn.Module], Effect]
    hidden: tuple[str, ...] = ()  # modules that cannot be imported here and must look as if they were not installed

"""Modules with graphs of other systems: read as captured modules where something is only looked at or returned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.ir import Graph


@dataclasses.dataclass(frozen=True, eq=False)
class ForeignModules:
    """What this library knows of the modules of another system.

    `read` makes a captured module of one; `note_back(module, graph)` gives the nodes of a module what was noted on
    those of the graph that was read of it; `name` is that of the public function which reads.
    """

    is_one: Callable[[Any], bool]
    read: Callable[[Any], nn.Module]
    note_back: Callable[[Any, Graph], None]
    name: str


_known: list[ForeignModules] = []


def read_foreign(modules: ForeignModules) -> None:
    """Have modules of another system read where something is only looked at or returned."""
    _known.append(modules)


def as_captured(module: Any) -> Any:
    """The captured module that one of another system is; every other module as it is.

    >>> linear = nn.Linear(1, 1)
    >>> as_captured(linear) is linear
    True
    """
    return next((each.read(module) for each in _known if each.is_one(module)), module)


def note_back(module: Any, graph: Graph) -> None:
    """Give the nodes of a module of another system what was noted on those of the graph that was read of it."""
    for each in _known:
        if each.is_one(module):
            each.note_back(module, graph)


def how_to_read(module: Any) -> str:
    """What to call to get a captured module of one of another system; "" for every other module."""
    return next((f"gm = graphwright.{each.name}(module)" for each in _known if each.is_one(module)), "")


# ---- torch.jit.script

_writers: list[Callable[[Any], None]] = []


def write_scripts(write: Callable[[Any], None]) -> None:
    """Have a function change captured modules, which are copies, so that torch.jit.script reads them."""
    _writers.append(write)


def prepared_for_script(module: Any) -> Any:
    """A captured module, changed so that torch.jit.script reads it."""
    for write in _writers:
        write(module)
    return module

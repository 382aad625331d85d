"""What a loop carries: values of the program with slots in them for what changes from one iteration to the next."""

from __future__ import annotations

import dataclasses
from typing import Any

from graphwright.capture.proxies.contents import held_parts
from graphwright.capture.proxies.unbound import BoundIfRun, Ran
from graphwright.values import Container, Given, Kind, Slot, Template


@dataclasses.dataclass(eq=False)
class Carried(Slot):
    """A value that a loop carries: what it is before the loop, an example of it, and what an iteration leaves."""

    initial: Any
    sample: Kind
    name: str
    after: Any = None
    last: Any = None  # what the last iteration of the example leaves
    of: tuple[Any, ...] = ()  # the list that a list of the run is a copy of
    is_flag: bool = False  # whether it tells how the loop is left, which is a bool in every call


@dataclasses.dataclass(eq=False)
class Born(Template):
    """A variable that has its first value in the loop: what it is before, and what an iteration leaves."""

    entry: Any
    after: Any
    name: str
    last: Any = None  # what the last iteration of the example leaves

    def filled(self, given: Given) -> Any:
        """What an iteration finds."""
        return self.entry


def note(template: Any, value: Any) -> None:
    """Note what an iteration of the example leaves for each slot."""
    if isinstance(template, Carried | Born):
        template.last = value
    elif isinstance(template, Ran):
        note(template.value, value.value() if type(value) is BoundIfRun else value)
    elif isinstance(template, Container):
        held = held_parts(value) or {}
        for key, item in template.items.items():
            note(item, held.get(key))


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two states of a value are the same, containers by what they hold."""
    if one is other:
        return True
    mine, its = held_parts(one), held_parts(other)
    if type(one) is set and type(other) is set:
        return one == other
    if mine is None or its is None or type(one) is not type(other) or list(mine) != list(its):
        return False
    return all(is_same(mine[key], its[key]) for key in mine)

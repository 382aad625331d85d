"""What stands in the way of a capture, each with the user's line and what to do about it."""

from __future__ import annotations

import dataclasses
import os
import re
import traceback
from collections.abc import Iterable
from typing import Literal

from graphwright.errors import GraphwrightError, Place
from graphwright.runtime import ReportEntry
from graphwright.source import place_of, user_frame

Category = Literal["data", "paths", "attribute", "value", "argument", "failure", "guard", "fork", "opaque"]


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing in a program that a capture stops at, or that limits what is captured.

    `at` is "file.py:3", `source` that line's text. These categories block a capture: "data" (Python asks for the data
    of a tensor), "paths" (more ends than `max_paths`), "attribute" (a write that would be lost), "value" (what cannot
    be written into a graph), "argument" (an input of an unsupported kind), "failure" (whatever else raises). These do
    not: "guard" (taken for granted), "fork" (two ends), "opaque" (not looked into).
    """

    category: Category
    text: str
    at: str
    source: str
    fix: str

    @property
    def is_blocking(self) -> bool:
        """Whether `trace` refuses the program for this."""
        return self.category not in ("guard", "fork", "opaque")

    def __str__(self) -> str:
        lines = [f"{self.category}: {self.text}"]
        if self.at:
            lines.append(f"  at {self.at}" + (f": {self.source}" if self.source else ""))
        return "\n".join([*lines, f"  fix: {self.fix}"])


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `doctor` found. True in a condition exactly when `trace` captures the program; `str` gives a text.

    Not `is_complete`: an obstacle could not be passed by, and what the program does after it was not looked at.
    """

    program: str
    obstacles: tuple[Obstacle, ...]
    is_complete: bool = True

    @property
    def ok(self) -> bool:
        """Tell whether `trace` captures the program."""
        return not self.blocking

    @property
    def blocking(self) -> tuple[Obstacle, ...]:
        """The obstacles for which `trace` refuses the program."""
        return tuple([obstacle for obstacle in self.obstacles if obstacle.is_blocking])

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        blocking = self.blocking
        notes = len(self.obstacles) - len(blocking)
        if not blocking:
            head = f"{self.program} can be captured"
        else:
            head = f"{self.program} cannot be captured yet: {len(blocking)} obstacle{'s' if len(blocking) > 1 else ''}"
        lines = [head + (f", {notes} note{'s' if notes > 1 else ''}" if notes else "")]
        for number, obstacle in enumerate(self.obstacles, 1):
            lines.append(f"{number}. " + str(obstacle).replace("\n", "\n   "))
        if not self.is_complete:
            lines.append("What comes after the last failure was not looked at: remove it, then ask again.")
        return "\n".join(lines)


class Obstacles:
    """Collects the obstacles that a capture meets while it goes on behind each, the way that the example takes."""

    def __init__(self, entry: str) -> None:
        self._entry = entry  # the place of the program itself, for what has none of its own
        self._found: dict[Obstacle, None] = {}

    def note(self, category: Category, error: GraphwrightError) -> None:
        """Note an obstacle, once."""
        self.add(category, error.message, error.at, error.fix or _FIXES[category])

    def add(self, category: Category, text: str, at: Place | str | None = None, fix: str = "") -> None:
        """Note an obstacle in words, once."""
        place, source = split_place(str(at or "")) or split_place(self._entry) or ("", "")
        self._found[Obstacle(category, text, place, source, fix or _FIXES[category])] = None

    def add_entry(self, entry: ReportEntry) -> None:
        """Note what a capture reports, once a line."""
        if entry.kind not in ("guard", "fork", "opaque"):
            return
        place = split_place(entry.at)
        known = {(obstacle.category, obstacle.at, obstacle.source) for obstacle in self._found}
        if place is None or (entry.kind, *place) not in known:
            self.add(entry.kind, entry.text, entry.at)  # type: ignore[arg-type]

    def note_failure(self, error: BaseException) -> None:
        """Note what a program raised, at the innermost line of its own."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if user_frame(frame) is frame]
        at = ""
        if frames:
            place = place_of(frames[-1].f_code, frames[-1].f_lasti)
            at = f"{frames[-1].f_code.co_filename}:{place.line}: {place.source}"
        if isinstance(error, GraphwrightError):  # before the program runs it is about what it is given
            self.add("failure" if frames else "argument", error.message, error.at or at, error.fix or "")
        else:
            self.add("failure", f"{type(error).__name__}: {error}", at)

    def all(self) -> Iterable[Obstacle]:
        """The obstacles in the order in which they were met, those that do not block last."""
        return sorted(self._found, key=lambda obstacle: not obstacle.is_blocking)


def split_place(place: str) -> tuple[str, str] | None:
    """Split "dir/file.py:3: source" and "dir/file.py:3 in f: source" into "file.py:3" and "source".

    >>> split_place("/tmp/model.py:3 in Model.forward: return x")
    ('model.py:3', 'return x')
    """
    found = re.match(r"(.*?):(\d+)(?: in [^:]+)?(?:: (.*))?$", place, re.DOTALL)
    return found and (f"{os.path.basename(found[1])}:{found[2]}", found[3] or "")


def fix_of(reason: str) -> str:
    """What to do about a program that has too many ends, given why it has."""
    return next((fix for part, fix in _FIXES_OF_PATHS.items() if part in reason), _FIXES_OF_PATHS[""])


_FIXES_OF_PATHS = {
    "other parts of the program see it": "return the container from the function whose loop fills it",
    "items of different kinds": "put what is of another kind into a container of its own",
    "": "use torch.where, or write the branches so that both give the same kinds of values",
}
_FIXES: dict[Category, str] = {
    "data": "use torch.where, or keep the value a tensor",
    "paths": "write the branches so that both sides give the same kinds of values, or raise max_paths",
    "attribute": "return the value instead, or write in place: self.buffer.copy_(value)",
    "value": "pass tensors, numbers, or tuples, lists, dicts and dataclasses of them",
    "argument": "pass tensors, numbers, strings, or tuples, lists, dicts and dataclasses of them",
    "failure": "where the program itself runs with these inputs, keep what fails as one node: leaf_functions=[...]",
    "guard": "none is needed where calls agree; else capture with another example",
    "fork": "none is needed; where both sides give the same kinds of values there is one end",
    "opaque": "none is needed; leave it out of leaf_functions to have it looked into",
}

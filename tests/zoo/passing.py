"""The list of what the open models pass, and what a new run of the judge changes in it.

A line of `passing.txt` is the name of a model and the levels that it passes; levels that do not apply are not listed.
"""

from __future__ import annotations

import json
from pathlib import Path

LEVELS = ("L0", "L1", "L2", "L3", "L4", "L5")
PASSING = Path(__file__).with_name("passing.txt")

Levels = dict[str, tuple[str, ...]]


def read_passing(path: Path) -> Levels:
    """Read the list: model -> the levels it passes."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {name: tuple(levels) for name, *levels in rows}


def write_passing(path: Path, passing: Levels) -> None:
    """Write the list, sorted by model; a model that passes nothing is left out."""
    lines = [" ".join((name, *levels)) for name, levels in sorted(passing.items()) if levels]
    path.write_text("".join(f"{line}\n" for line in lines))


def read_results(path: Path) -> Levels:
    """Read what the judge wrote, a line of JSON for each model that it judged."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["model"]: tuple(level for level in LEVELS if row.get(level) == "pass") for row in rows}


def missing(levels: Levels, among: Levels) -> list[str]:
    """List, as `model: levels`, what `levels` has and `among` has not."""
    found = []
    for name, passed in sorted(levels.items()):
        gone = [level for level in passed if level not in among.get(name, ())]
        if gone:
            found.append(f"{name}: {' '.join(gone)}")
    return found


def together(one: Levels, other: Levels) -> Levels:
    """Join two lists: what a model passes in either."""
    return {
        name: tuple(level for level in LEVELS if level in one.get(name, ()) or level in other.get(name, ()))
        for name in {**one, **other}
    }

"""The reference: a page for the names of the package and one for each room with names of its own, by mkdocstrings.

`python -m tests.reference_pages` writes them; tests/test_reference.py compares them with the names that there are.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import graphwright
from graphwright.loading import PUBLIC

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
# What each room is for. Rooms that are not here have no names for users but those that the package has.
ROOMS = {
    "analysis": "Facts about programs, changing nothing.",
    "distributed": "Stages for pipelines, plans for sharded and parallel layers.",
    "engines": "Code that runs faster, found by measuring.",
    "errors": "Every exception of the library.",
    "hierarchy": "Captures module by module, and their source.",
    "ir": "Graphs, nodes, and their texts.",
    "onnx": "Captured modules as ONNX models.",
    "passes": "Changes of captured modules.",
    "quantization": "Layers that compute with integers.",
    "rewrite": "Rules and patterns.",
    "script": "What programs for `script` may say.",
    "viz": "Programs as pages and drawings.",
}


def public_rows() -> list[tuple[str, str]]:
    """The names of the package, each with where it is defined for mkdocstrings."""
    pairs = [(room, *each.partition("=")[::2]) for room, names in PUBLIC.items() for each in names.split()]
    rows = [(public or name, f"graphwright.{room}.{name}") for room, name, public in pairs]
    return sorted([*rows, ("graph", "graphwright.runtime.graph_of")], key=lambda row: row[0].lower())


def room_rows(room: str) -> list[tuple[str, str]]:
    """The names of a room that the package does not have, and that say in a docstring what they are."""
    module = importlib.import_module(f"graphwright.{room}")
    mine = [name for name in module.__all__ if f"graphwright.{room}.{name}" not in dict(map(reversed, public_rows()))]
    return [(name, f"graphwright.{room}.{name}") for name in sorted(mine, key=str.lower) if told(getattr(module, name))]


def told(value: Any) -> bool:
    """Tell whether a name is a function or class: those have docstrings, constants do not.

    Before Python 3.11, Any is no class, and `Callable[[int], int]` says that it is one.
    """
    return inspect.isroutine(value) or issubclass(type(value), type) or value is Any


def page(title: str, text: str, rows: list[tuple[str, str]]) -> str:
    """The Markdown of a page."""
    options = '    options:\n      heading: "{0}"\n      toc_label: "{0}"\n'
    blocks = [f"::: {path}\n{options.format(name)}" for name, path in rows]
    return "\n".join([f"# {title}\n\n{text} Written from the docstrings.\n", *blocks])


def pages() -> dict[str, str]:
    """The pages by their file names."""
    found = {"graphwright.md": page("graphwright", (graphwright.__doc__ or "").strip(), public_rows())}
    for room, text in ROOMS.items():
        if rows := room_rows(room):
            found[f"{room}.md"] = page(f"graphwright.{room}", text, rows)
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)

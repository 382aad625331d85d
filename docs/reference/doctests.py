"""Doctests of docstrings as blocks of code: an extension of griffe, which reads the source for mkdocstrings."""

from __future__ import annotations

import itertools
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts what stands from `>>>` to the next empty line between fences."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring with its doctests as blocks; those that only an empty line parts are one."""
    done: list[str] = []
    for is_empty, group in itertools.groupby(text.splitlines(), key=lambda line: not line.strip()):
        lines = [*group]
        start = next((i for i, line in enumerate(lines) if line.lstrip().startswith(">>>")), None)
        if is_empty or start is None:
            done += lines
            continue
        margin = len(lines[start]) - len(lines[start].lstrip())
        done += [*lines[:start], "", "```pycon", *(line[margin:] for line in lines[start:]), "```"]
    return "\n".join(done).replace("```\n\n\n```pycon\n", "\n")

"""A captured module in a line, and as a notebook shows it."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphwright.runtime.entries import Entry

__all__ = ["as_html", "described"]


def described(name: str, entries: Iterable[Entry]) -> str:
    """Say in one line what a captured module is: `<Net captured: forward, 12 nodes>`."""
    parts = [f"{entry.name}, {sum(len(graph.nodes) for graph in entry.graph.all_graphs())} nodes" for entry in entries]
    return f"<{name} captured: {'; '.join(parts)}>"


def as_html(line: str, tree: str, code: str) -> str:
    """Write a captured module as HTML: a line, and its code and modules to be opened.

    >>> as_html("<Net>", "Net()", "x < 1").count("&lt;")
    2
    """
    return f"<div><b>{html.escape(line)}</b>{_opened('code', code, True)}{_opened('modules', tree, False)}</div>"


def _opened(title: str, text: str, is_open: bool) -> str:
    style = "max-height: 30em; overflow: auto"
    return (
        f"<details{' open' if is_open else ''}><summary>{title}</summary>"
        f'<pre style="{style}">{html.escape(text.strip(chr(10)))}</pre></details>'
    )

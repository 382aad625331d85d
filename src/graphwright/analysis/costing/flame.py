"""A profile as a picture: modules stand on the modules that they are in, as wide as their time."""

from __future__ import annotations

import html
from collections.abc import Iterable

_STYLE = (
    "body{font:12px system-ui;margin:1em}div{display:flex;flex-direction:column;min-width:0;flex-shrink:0}"
    "section{display:flex}b{font-weight:400;overflow:hidden;white-space:nowrap;padding:2px 3px;border-radius:2px;"
    "border:1px solid #fff;box-sizing:border-box;background:#fdba74;color:#111}b.node{background:#fde68a}"
)


def flame_page(title: str, nodes: Iterable[tuple[str, str, float]]) -> str:
    """One HTML file that needs nothing else, of nodes: the path of the module, the name, and microseconds.

    A pointer that rests on a box tells its whole name, its time and its share.

    >>> page = flame_page("net", [("blocks.0", "add", 30.0), ("", "relu", 10.0)])
    >>> "blocks.0.add: 30.0 us, 75.0%" in page, "blocks: 30.0 us, 75.0%" in page
    (True, True)
    """
    rows = [([*module.split("."), name] if module else [name], time) for module, name, time in nodes]
    total = sum(time for _, time in rows) or 1.0
    body = _box(title, "", rows, total, total)
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<body>{body}</body>"
    )


def _box(name: str, path: str, rows: list[tuple[list[str], float]], around: float, total: float) -> str:
    """A box as wide as its share of the one around it, and the boxes of what is inside of it below."""
    time = sum(each for _, each in rows)
    inner: dict[str, list[tuple[list[str], float]]] = {}
    for parts, each in rows:
        if parts:
            inner.setdefault(parts[0], []).append((parts[1:], each))
    told = html.escape(f"{path or name}: {time:,.1f} us, {time / total:.1%}", quote=True)
    boxes = "".join(
        _box(part, f"{path}.{part}" if path else part, held, time or 1.0, total) for part, held in inner.items()
    )
    kind = "" if inner else " class=node"
    return (
        f'<div style="width:{100 * time / around:.4f}%"><b{kind} title="{told}">{html.escape(name)}</b>'
        f"<section>{boxes}</section></div>"
    )

"""A captured module in a line, as text, and as a notebook shows it."""

from __future__ import annotations

import html
from typing import Any

from torch import nn

from graphwright.errors import on_screen
from graphwright.runtime.entries import entry_points_of, is_readable
from graphwright.runtime.reporting.folding import folded


def in_a_line(module: Any) -> str:
    """Say in one line what a captured module is: `<Net captured: forward, 12 nodes>`, or as torch.fx does."""
    if not is_readable(module):
        return _modules(module)
    parts = [
        f"{name}, {sum(len(graph.nodes) for graph in entry.graph.all_graphs())} nodes"
        for name, entry in entry_points_of(module).items()
    ]
    return f"<{type(module).__name__} captured: {'; '.join(parts)}>"


def as_text(module: Any) -> str:
    """Write the modules and the code of a captured module, equal layers once."""
    code = _code(module)
    hint = "# To see more debug info, please use `graph_module.print_readable()`"
    return f"{_modules(module)}\n{folded(code) if is_readable(module) else code}\n{hint}"


def as_html(module: Any) -> str:
    """Write a captured module as HTML: a line, and its code and modules to be opened."""
    line = in_a_line(module).partition("\n")[0]
    code, modules = folded(_code(module)), _modules(module)
    return f"<div><b>{html.escape(line)}</b>{_opened('code', code, True)}{_opened('modules', modules, False)}</div>"


def _code(module: Any) -> str:
    """The source of all entry points, whatever the program itself calls `code`."""
    owner = next(kind for kind in type(module).__mro__ if kind.__name__ == "GraphModule" and "code" in vars(kind))
    return str(vars(owner)["code"].__get__(module, owner))


def _modules(module: Any) -> str:
    return on_screen(nn.Module.__repr__(module))


def _opened(title: str, text: str, is_open: bool) -> str:
    style = "max-height: 30em; overflow: auto"
    return (
        f"<details{' open' if is_open else ''}><summary>{title}</summary>"
        f'<pre style="{style}">{html.escape(text.strip(chr(10)))}</pre></details>'
    )

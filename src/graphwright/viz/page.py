"""One HTML file of a page's parts: its style, its scripts and the data, which it reads as JSON.

The file may load nothing and run nothing but its own scripts: its content security policy has their hash. What a
program says goes into the JSON alone, in which no `<` is left, and the scripts put it into the page as text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
from importlib import resources
from typing import Any

# In this order: each may use what stands in those before it, and functions of all of them.
SCRIPTS = (
    "data.js", "tree.js", "text.js", "colors.js", "layout.js", "draw.js", "pane.js", "search.js", "inspector.js",
    "code.js", "flame.js", "changes.js", "keyboard.js", "app.js",
)  # fmt: skip
_LAYOUT = ("vendor/dagre/dagre.min.js",)


def write_page(title: str, content: dict[str, Any]) -> bytes:
    """Put a page together, in UTF-8.

    >>> b"</script><b>" in write_page("</script><b>", {"name": "</script><b>"})
    False
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _read("page/page.html")
    for name, text in (
        ("policy", f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"),
        ("title", html.escape(title)),
        ("style", _read("page/page.css")),
        ("script", script),
        ("data", _json(content)),  # last: nothing is looked for in what a program says
    ):
        page = page.replace(f"<!-- {name} -->", text)
    return page.encode("utf-8", "xmlcharrefreplace")


def _json(content: dict[str, Any]) -> str:
    """JSON that ends no element and begins no comment."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


@functools.cache
def _script() -> str:
    """The scripts as one, which shows nothing to the page but the function that starts it."""
    parts = "\n".join(f"// ---- {name}\n{_read(f'page/{name}')}" for name in SCRIPTS)
    return f'{"".join(map(_read, _LAYOUT))}\n(() => {{\n"use strict";\n{parts}\n}})();\n'


@functools.cache
def _read(path: str) -> str:
    return resources.files("graphwright.viz").joinpath(path).read_text("utf-8")

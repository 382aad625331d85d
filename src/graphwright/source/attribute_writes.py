"""Where in its source a class writes an attribute of its own instances, and a function a variable."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator
from types import CodeType, FunctionType

from torch import nn

from graphwright.source.source_files import source_of
from graphwright.source.syntax import walk


def place_of_write(kind: type, name: str) -> str | None:
    """Find the line of a method, not the constructor, that assigns or else uses `self.<name>`: "file.py:3: text".

    None where the source does not tell.
    """
    uses: list[tuple[bool, str]] = []
    for base in kind.__mro__:
        if base is nn.Module:
            break
        for method in vars(base).values():
            function = inspect.unwrap(method) if callable(method) else None
            if isinstance(function, FunctionType) and function.__name__ != "__init__":
                uses += _uses(function, name)
    writes = [place for is_write, place in uses if is_write]
    return next(iter([*writes, *[place for _, place in uses]]), None)


def _uses(function: FunctionType, name: str) -> Iterator[tuple[bool, str]]:
    code = function.__code__
    if name not in code.co_names:
        return
    source = source_of(code.co_filename)
    for definition in source.definitions(code.co_name, code.co_firstlineno):
        for part in walk(definition):
            if isinstance(part, ast.Attribute) and _is_own(part, name, code.co_varnames[:1]):
                place = f"{os.path.basename(code.co_filename)}:{part.lineno}: {source.line(part.lineno)}"
                yield isinstance(part.ctx, ast.Store), place


def place_of_name(code: CodeType, name: str) -> str | None:
    """Find the line of a function that assigns or else uses a variable, or an attribute: "file.py:3: text"."""
    source = source_of(code.co_filename)
    found: list[tuple[bool, int]] = []
    for definition in source.definitions(code.co_name, code.co_firstlineno):
        for part in walk(definition):
            if isinstance(part, ast.Name | ast.Attribute) and name == getattr(part, "id", getattr(part, "attr", "")):
                found.append((not isinstance(part.ctx, ast.Store), part.lineno))
    if not found:
        return None
    line = min(found)[1]
    return f"{os.path.basename(code.co_filename)}:{line}: {source.line(line)}"


def _is_own(node: ast.Attribute, name: str, owner: tuple[str, ...]) -> bool:
    return node.attr == name and isinstance(node.value, ast.Name) and node.value.id in owner

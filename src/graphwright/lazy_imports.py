"""Names of a room that are loaded when they are first asked for: what captures do without costs them nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_imports"]


def lazy_imports(room: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Give the `__getattr__` of a room which reads in `modules` what module, below the room, a name is found in.

    >>> read = lazy_imports("importlib", {"files": "resources"})
    >>> read("files").__module__.partition(".")[0]
    'importlib'
    >>> read("nothing")
    Traceback (most recent call last):
    AttributeError: module 'importlib' has no attribute 'nothing'
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{room}.{modules[name]}"), name)
        setattr(sys.modules[room], name, value)  # asked once
        return value

    return __getattr__

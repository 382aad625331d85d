"""Modules and names that a program tries to import and does not find: `try: import apex` with a handler.

That they are missing is taken for granted. Whether one is there is known when the capture ends: an import may succeed.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from graphwright.runtime import ABSENT, Found
from graphwright.source import catches, codes_of, mentions

_SEEKS = frozenset({"import_module", "__import__", "find_spec"})  # whatever they are called on, by a name


class MissingModules:
    """What the functions of one program may look for in vain."""

    def __init__(self) -> None:
        self._sought: dict[tuple[str, str], None] = {}  # modules, and names that are taken out of them

    def paths(
        self, code: CodeType, names: dict[str, Any], name: str, level: int, taken: tuple[str, ...]
    ) -> Sequence[str]:
        """The modules that an import of a function leads through, the one that it names last."""
        package = str(names.get("__package__") or names.get("__name__"))
        full = importlib.util.resolve_name("." * level + name, package) if level else name
        if _may_go_on_without(code, name):
            self._sought.update({(full, each): None for each in ("", *taken)})
        return [*itertools.accumulate(full.split("."), "{}.{}".format)]

    def found(self) -> dict[tuple[int, str], Found]:
        """What is missing now, as it is taken for granted."""
        missing: dict[tuple[int, str], Found] = {}
        for path, name in self._sought:
            module = sys.modules.get(path)
            if path not in sys.modules and not _can_be_found(path):
                missing[id(sys.modules), path] = Found.of(f"the module {path!r}", sys.modules, path, ABSENT)
            elif name and type(module) is ModuleType and _lacks(module, name):
                subject = f"the name {name!r} of {path}"
                missing[id(vars(module)), name] = Found.of(subject, vars(module), name, ABSENT)
        return missing


def _lacks(module: ModuleType, name: str) -> bool:
    """Tell whether a module has no such name, and makes none when it is asked."""
    held = vars(module)
    is_there = name in held or name == "*" or "__getattr__" in held
    return not is_there and not _can_be_found(f"{module.__name__}.{name}")


def _can_be_found(path: str) -> bool:
    """Tell whether a module could be imported that nobody has imported; where that is not known, yes."""
    owner = path.rpartition(".")[0]
    if path in sys.modules or (owner and owner not in sys.modules):
        return path in sys.modules or _can_be_found(owner)
    try:
        return importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:  # its owner is no package
        return False
    except Exception:  # what finds modules may be anybody's
        return True


def _may_go_on_without(code: CodeType, name: str) -> bool:
    """Tell whether a function that imports a module may do something else where it is missing."""
    if any(name in part.co_names for part in codes_of(code)):  # an `import` statement
        return catches(code)
    return any(path[-1] in _SEEKS or path == ("sys", "modules") for path in mentions(code).paths)

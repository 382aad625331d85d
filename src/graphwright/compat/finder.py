"""Modules made from the table of paths, when somebody imports them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from graphwright.compat.paths import FILES, FOLDERS, PATHS, PICKLED
from graphwright.lazy_imports import lazy_imports

__all__ = ["install", "load", "show_paths"]

_PACKAGE = __name__.partition(".")[0]
_SAME = {**FILES, **PICKLED}
_OWNERS = {"jit": "torch.jit", "ao.": "torch.ao"}  # of names, by how their paths begin


class _CallableModule(ModuleType):
    """The module `graphwright.graph`, which is also the function that gives the graph of a captured module."""

    def __call__(self, module: Any) -> Any:
        return importlib.import_module(f"{_PACKAGE}.runtime").graph_of(module)


class _TableFinder(MetaPathFinder, Loader):
    """Finds the paths of the tables; asked only after the files of the package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, below = fullname.partition(".")
        if package != _PACKAGE or not (below in PATHS or below in _SAME or _is_folder(below)):
            return None
        return ModuleSpec(fullname, self, is_package=_is_folder(below))

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _CallableModule(spec.name) if spec.name == f"{_PACKAGE}.graph" else None

    def exec_module(self, module: ModuleType) -> None:
        path = module.__name__.partition(".")[2]
        if path in _SAME:  # a module may put another one in its place while it is executed
            sys.modules[module.__name__] = importlib.import_module(f"{_PACKAGE}.{_SAME[path]}")
            return
        owner = next((torchs for ours, torchs in _OWNERS.items() if path.startswith(ours)), "torch.fx")
        module.__doc__ = f"{owner}'s names under `{module.__name__}`; see `{_PACKAGE}.compat`."
        _fill(module, PATHS.get(path, {}))


def _fill(module: ModuleType, row: dict[str, str]) -> None:
    """Give a module the names of its row."""
    for room, names in row.items():
        source = importlib.import_module(f"{_PACKAGE}.{room}")
        for entry in names.split():
            name, _, old = entry.partition("=")
            setattr(module, old or name, getattr(source, name))


def _is_folder(path: str) -> bool:
    return any(other.startswith(f"{path}.") for other in PATHS)


def install() -> None:
    """Let Python import the paths of the tables. Doing it again changes nothing."""
    if not any(isinstance(finder, _TableFinder) for finder in sys.meta_path):
        sys.meta_path.append(_TableFinder())


def show_paths(room: str) -> None:
    """Make torch.fx's paths to files of a room, which was just loaded, attributes at once.

    What is there already is left alone: a public name of the room, or what was shown before.
    """
    for path, file in _SAME.items():
        module = sys.modules.get(f"{_PACKAGE}.{file}")
        above, _, name = path.rpartition(".")
        if above.partition(".")[0] == room and module is not None:
            sys.modules.setdefault(f"{_PACKAGE}.{path}", module)
            vars(sys.modules[f"{_PACKAGE}.{above}"]).setdefault(name, module)
    for path, row in FOLDERS.items():
        if path.partition(".")[0] == room:
            below = f"{_PACKAGE}.{path}"
            vars(sys.modules[below]).setdefault("__getattr__", lazy_imports(below, row))


def load(name: str) -> ModuleType:
    """Import what a tool reads as an attribute of the package, `fx.passes`, without having imported it.

    Raises AttributeError for a name that is no path of the table and no room.
    """
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"{_PACKAGE}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{_PACKAGE}.{name}":
                raise
    raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")

"""What the code of a function mentions of the world around it: global names, attributes, variables of other functions.

Python tells nobody that a global variable is read. What a code object may read and write stands in its instructions.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType

from graphwright.source.code_table import by_code
from graphwright.source.frames import STANDS_FOR_TORCH, is_internal
from graphwright.source.function_parts import codes_of, names_in, texts_in
from graphwright.source.steps import imports_of, rebound_in, steps_of


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Mentions:
    """What a function and those inside it mention.

    `paths` are global names with the attributes that are read or assigned of them right away: `("config", "SCALE")`.
    `attributes` are those that are read of anything, `stored` the global names that are assigned, `written` the
    attributes that are. `free` are the variables of the functions around it, `rebound` those that it assigns. `texts`
    are the names that it has as strings, where it may look something up by these: `getattr(config, "scale")`. `imports`
    are the modules that it imports when it runs, each with how many packages up and the names that it takes out of it.
    """

    paths: frozenset[tuple[str, ...]]
    attributes: frozenset[str]
    stored: frozenset[str]
    written: frozenset[str]
    free: frozenset[str]
    rebound: frozenset[str]
    texts: frozenset[str]
    imports: frozenset[tuple[str, int, tuple[str, ...]]]


DISPATCHERS = frozenset({  # of Python's own: functions that choose another one by the class of an argument
    functools.singledispatch(len).__code__,  # type: ignore[attr-defined]
    functools.singledispatchmethod(len).__get__(None, object).__code__,
})  # fmt: skip
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_READS = ("LOAD_ATTR", "LOAD_METHOD")
_LOOKS_UP = frozenset({"getattr", "hasattr", "setattr", "vars", "globals", "__dict__", "attrgetter"})
_COPIES = ("COPY", "DUP_TOP")  # of what an augmented assignment reads and writes


@by_code
def mentions(code: CodeType) -> Mentions:
    """Read what a function mentions, once.

    >>> found = mentions((lambda x: x * math.pi).__code__)
    >>> sorted(found.paths)
    [('math',), ('math', 'pi')]
    """
    paths: set[tuple[str, ...]] = set()
    attributes: set[str] = set()
    stored: set[str] = set()
    written: set[str] = set()
    rebound: set[str] = set()
    free = frozenset(code.co_freevars)
    for part in codes_of(code):
        path: tuple[str, ...] = ()
        for kind, name, _ in steps_of(part):
            if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
                path = (name,)
                paths.add(path)
            elif kind in _READS:
                attributes.add(name)
                if path:
                    path = (*path, name)
                    paths.add(path)
            elif kind not in _COPIES:
                if kind in ("STORE_ATTR", "DELETE_ATTR") and path:
                    paths.add((*path, name))
                path = ()
                if kind in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    stored.add(name)
                elif kind in ("STORE_ATTR", "DELETE_ATTR"):
                    written.add(name)
        if free:
            rebound.update(rebound_in(part))
    imports = frozenset(found for part in codes_of(code) for found in _imports(part))
    looks_up = not _LOOKS_UP.isdisjoint(names_in(code))
    texts = frozenset(filter(str.isidentifier, texts_in(code)) if looks_up else ())
    return Mentions(
        frozenset(paths),
        frozenset(attributes),
        frozenset(stored),
        frozenset(written),
        free,
        free & rebound,
        texts,
        imports,
    )


@by_code
def stored_globals(code: CodeType) -> frozenset[str]:
    """The global variables that a function assigns: this is asked of many functions, most of which assign none."""
    parts = [part for part in codes_of(code) if _STORE_GLOBAL in part.co_code[::2]]
    return frozenset(name for part in parts for kind, name, _ in steps_of(part) if kind == "STORE_GLOBAL")


def catches(code: CodeType) -> bool:
    """Tell whether a function has a handler for exceptions of some class, or suppresses them.

    >>> catches(catches.__code__), catches(os.path.exists.__code__)
    (False, True)
    """
    return not _MATCHES.isdisjoint(code.co_code[::2]) or "suppress" in code.co_names


_MATCHES = frozenset(dis.opmap[name] for name in ("CHECK_EXC_MATCH", "JUMP_IF_NOT_EXC_MATCH") if name in dis.opmap)


def _imports(code: CodeType) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """The modules that code imports, by statements or by names that it has as strings."""
    yield from imports_of(code)
    if not _IMPORTERS.isdisjoint(code.co_names):
        for const in code.co_consts:
            if isinstance(const, str) and all(map(str.isidentifier, const.split("."))):
                yield const, 0, ()


_IMPORTERS = frozenset({"import_module", "__import__", "find_spec", "modules"})


def _folders() -> tuple[str, ...]:
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    found.add(os.path.join(os.path.dirname(os.__file__)))
    return tuple(os.path.join(folder, "") for folder in found if folder)


_FOLDERS = _folders()


@functools.lru_cache(4096)
def is_installed(filename: str) -> bool:
    """Tell whether a file belongs to Python itself or to an installed package, rather than to the user's own program.

    >>> is_installed(os.__file__), is_installed(os.path.join(os.sep, "home", "me", "train.py"))
    (True, False)
    """
    return filename.startswith((*_FOLDERS, "<frozen"))


_LIBRARY = sysconfig.get_paths()["stdlib"]


@functools.lru_cache(1024)
def is_of_library(filename: str) -> bool:
    """Tell whether a file belongs to Python's own library.

    >>> is_of_library(os.__file__), is_of_library("<frozen os>"), is_of_library(functools.__name__)
    (True, True, False)
    """
    return filename.startswith("<frozen ") or (filename.startswith(_LIBRARY) and "site-packages" not in filename)


def is_foreign_file(filename: str) -> bool:
    """Tell whether a file is no part of the user's program: Python's, an installed package's, torch's or ours."""
    return is_installed(filename) or is_internal(filename) or filename == STANDS_FOR_TORCH


def is_foreign(code: CodeType) -> bool:
    """Tell whether code is no part of the user's program."""
    return is_foreign_file(code.co_filename)


def is_foreign_class(kind: type) -> bool:
    """Tell whether a class is no part of the user's program."""
    return _is_foreign_module(kind.__module__)


@functools.lru_cache(4096)
def _is_foreign_module(name: str) -> bool:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        return name == "builtins" or (module is not None and name != "__main__")
    return is_foreign_file(file)

"""How deep a capture goes: which modules are one node, which are entered, and which calls are of a leaf function."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from graphwright.errors import CaptureError, did_you_mean
from graphwright.ops import is_library_layer

IsLeaf = Callable[[nn.Module, str], bool]
Leaves = type[nn.Module] | str | Iterable[type[nn.Module] | str] | IsLeaf | None
LeafModules = Leaves | Mapping[str, Leaves]

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def leaf_predicate(leaf_modules: LeafModules) -> IsLeaf:
    """Turn what `trace` takes as `leaf_modules` into a predicate of (module, path). Raises CaptureError.

    >>> is_leaf = leaf_predicate({"head": None, "layers.*": "Sequential"})
    >>> is_leaf(nn.Linear(1, 1), "head.linear"), is_leaf(nn.Sequential(), "layers.1")
    (False, True)
    """
    if isinstance(leaf_modules, Mapping):
        return _by_subtree({key: leaf_predicate(value) for key, value in leaf_modules.items()})
    if leaf_modules is None:
        return lambda module, path: False
    if callable(leaf_modules) and not isinstance(leaf_modules, type):
        return leaf_modules
    chosen = (leaf_modules,) if isinstance(leaf_modules, str | type) else tuple(leaf_modules)
    classes = tuple(item for item in chosen if isinstance(item, type))
    names = {item for item in chosen if isinstance(item, str)}
    patterns = [name for name in names if _is_pattern(name)]
    unknown: list[Any] = [item for item in chosen if not isinstance(item, type | str)]
    if unknown:
        raise CaptureError(
            f"leaf_modules holds {unknown[0]!r}", fix="use classes, class names, dotted paths, patterns of paths"
        )

    of_class: dict[type, bool] = {}  # whether all modules of a class are leaves

    def is_leaf(module: nn.Module, path: str) -> bool:
        kind = type(module)
        known = of_class.get(kind)
        if known is None:
            is_named = isinstance(module, classes) or any(base.__name__ in names for base in kind.__mro__)
            known = of_class[kind] = is_named or is_layer(module)
        if known or path in names:
            return True
        return bool(patterns) and any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)

    return is_leaf


def check_leaf_names(leaf_modules: LeafModules, root: nn.Module | None) -> None:
    """Raise CaptureError for a name in `leaf_modules` that no module of a model has: no path, pattern or class.

    >>> check_leaf_names("lineer", nn.Sequential(nn.Linear(1, 1)))
    Traceback (most recent call last):
    graphwright.errors.CaptureError: leaf_modules names 'lineer', which no module of Sequential has
      fix: name a path, a pattern of paths or a class: did you mean 'Linear'?
    """
    if root is None:
        return
    if isinstance(leaf_modules, Mapping):
        asked = [key for key in leaf_modules if key]
    else:
        chosen = (leaf_modules,) if isinstance(leaf_modules, str) else leaf_modules
        asked = [item for item in chosen if isinstance(item, str)] if isinstance(chosen, tuple | list | set) else []
    if not asked:
        return
    modules = dict(root.named_modules(remove_duplicate=False))
    classes = {base.__name__ for module in modules.values() for base in type(module).__mro__} - {"object", "Module"}
    known = [path for path in modules if path] + ([] if isinstance(leaf_modules, Mapping) else sorted(classes))
    for name in asked:
        if name not in known and not any(fnmatch.fnmatchcase(path, name) for path in modules):
            raise CaptureError(
                f"leaf_modules names {name!r}, which no module of {type(root).__name__} has",
                fix=f"name a path, a pattern of paths or a class: {did_you_mean(name, known)}",
            )


def is_layer(module: nn.Module) -> bool:
    """Tell whether a module is one of torch.nn's own, but no container, or calls one function of a library."""
    home = type(module).__module__
    is_torchs = home.startswith(("torch.nn.", "torch.ao.nn.")) and not isinstance(module, _CONTAINERS)
    return is_torchs or is_library_layer(type(module))


def _by_subtree(choices: dict[str, IsLeaf]) -> IsLeaf:
    """The longest key that names a module, or one that it is in, decides; elsewhere layers are leaves."""
    keys = sorted(choices, key=lambda key: (len(key), not _is_pattern(key)), reverse=True)

    def is_leaf(module: nn.Module, path: str) -> bool:
        key = next((key for key in keys if _is_within(path, key)), None)
        return is_layer(module) if key is None else choices[key](module, path)

    return is_leaf


def _is_within(path: str, key: str) -> bool:
    if not _is_pattern(key):
        return not key or path == key or path.startswith(f"{key}.")
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:i]), key) for i in range(1, len(parts) + 1))


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


# ---- functions


def runs(function: Callable[..., Any]) -> Iterator[Any]:
    """What a call of something runs: itself, the function of a method or an object, what a `functools.partial` calls.

    >>> [*runs(functools.partial(functools.partial(len)))][1:]
    [<built-in function len>]
    """
    yield function
    if type(function) is MethodType:
        yield function.__func__
    elif isinstance(function, functools.partial):
        yield from runs(function.func)
    elif type(function) is not FunctionType and not isinstance(function, type | nn.Module):
        method = getattr(type(function), _CALL, None)
        if type(method) is FunctionType:
            yield method


_CALL = "__call__"


def called_with(function: Callable[..., Any], ids: frozenset[int]) -> functools.partial[Any] | None:
    """The one of these, by their ids, that a call of something runs, with what a partial gives it; else None."""
    if id(function) in ids:
        return functools.partial(function)
    if isinstance(function, functools.partial):
        inner = called_with(function.func, ids)
        return None if inner is None else functools.partial(inner, *function.args, **function.keywords)
    return functools.partial(function) if any(id(each) in ids for each in runs(function)) else None

"""The modules that generated code calls: found once, with one look at each call whether they still are what they were.

A call of a module looks for hooks before it runs the module's `forward`. Where no module of the program has a hook, all
of that is looked at at once, and the code calls these methods; else it calls the modules.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from itertools import repeat
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _torch_module

from graphwright.runtime.inside import HOOKS
from graphwright.runtime.unrolled import unrolled_checks
from graphwright.runtime.watching import Watched

_CALL, _IMPLEMENTATION = nn.Module._wrapped_call_impl, nn.Module._call_impl
_GLOBAL_HOOKS = [
    getattr(_torch_module, name)
    for name in (
        "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks"
    )
]  # fmt: skip
_OF_CALLS = ("forward", "_compiled_call_impl")  # attributes of a module that change what its call does
_LOOK_UP = nn.Module.__getattr__
_KNOWN = ("torch.nn.modules.", "graphwright.")
_IS, _ITEM, _FORWARD, _MODULES = operator.is_, operator.getitem, operator.attrgetter("forward"), repeat("_modules")
_tracing_state = torch._C._get_tracing_state


def modules_at(root: nn.Module, paths: Sequence[str]) -> list[Any]:
    """Look modules up as code does that names them: by attributes, and items of containers in their table.

    >>> modules_at(nn.Sequential(nn.ReLU()), ["0"])
    [ReLU()]
    """
    found = []
    for path in paths:
        module: Any = root
        for name in path.split("."):
            # By the table, so that torch.export sees the path in how it is read.
            is_item = not name.isidentifier() and name in getattr(module, "_modules", ())
            module = module._modules[name] if is_item else getattr(module, name)
        found.append(module)
    return found


def is_called_plainly(module: nn.Module) -> bool:
    """Tell whether calling a module runs the `forward` of its class: `compile`, too, gives a module a call of its own.

    >>> is_called_plainly(nn.ReLU())
    True
    """
    kind = type(module)
    if kind.__call__ is not _CALL or kind._call_impl is not _IMPLEMENTATION:
        return False
    return _is_python(kind) and not any(map(module.__dict__.__contains__, _OF_CALLS))


def _is_python(kind: type[nn.Module]) -> bool:
    """Tell whether the `forward` of a class is a function; that of a scripted module is found in other ways."""
    return type(inspect.getattr_static(kind, "forward", None)) is FunctionType


class Plainness:
    """Whether calling some modules is calling the `forward` of their classes: they are what they were, without hooks.

    >>> module = nn.ReLU()
    >>> plainness = Plainness([module])
    >>> plainness.holds(), module.register_forward_hook(print) is None, plainness.holds()
    (True, False, False)
    """

    __slots__ = ("_checks", "_classes", "_forwards", "_kinds", "_modules")

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = list({id(module): module for module in modules}.values())
        self._kinds = [*map(type, self._modules)]
        self._classes = [kind for kind in dict.fromkeys(self._kinds) if _is_python(kind)]
        self._forwards = [*map(_FORWARD, self._classes)]
        rows = [(module.__dict__, module, type(module)) for module in self._modules]
        are_python = all(map(_is_python, self._kinds))
        self._checks = unrolled_checks(_IS_NOT_PLAIN, rows) if are_python else [lambda: False]

    def watched(self) -> Watched:
        """What is looked at, short of the tables of hooks, and of what `calls_are_plain` is asked for."""
        states = [module.__dict__ for module in self._modules]
        return Watched(states, (), self._modules, self._kinds, self._classes, self._forwards)

    def holds(self) -> bool:
        """Tell whether it does now."""
        if not calls_are_plain():
            return False
        for check in self._checks:
            if not check():
                return False
        return [*map(_FORWARD, self._classes)] == self._forwards

    def is_outdated(self) -> bool:
        """Tell whether modules have got other classes, or these another `forward`."""
        return [*map(type, self._modules)] != self._kinds or [*map(_FORWARD, self._classes)] != self._forwards


def calls_are_plain() -> bool:
    """Tell whether the call of a module is torch's, and no hook is there for all modules."""
    return (
        nn.Module.__call__ is _CALL  # which others replace
        and nn.Module._call_impl is _IMPLEMENTATION
        and not any(_GLOBAL_HOOKS)
        and _tracing_state() is None
    )


# Whether a module, given its attributes, itself and its class, has hooks, is another one, or has a call of its own.
_IS_NOT_PLAIN = " or ".join(
    [*[f"{{0}}[{table!r}]" for table in HOOKS], *[f"{name!r} in {{0}}" for name in _OF_CALLS], "type({1}) is not {2}"]
)


class FoundModules:
    """The modules at some paths of one tree, as long as they are there."""

    __slots__ = ("_inside", "_tables", "_then", "modules", "table")

    def __init__(self, root: nn.Module, paths: Sequence[str]) -> None:
        self.table: Any = root.__dict__["_modules"]  # of the root, and not the root, which has this object
        self._inside: list[dict[str, Any]] = []  # the attributes of modules inside that have children
        self._tables: list[dict[str, Any]] = []  # of children: the root's first, then theirs, and what is to be in them
        found: dict[str, Any] = {"": root}
        walked: set[int] = set()
        # None where looking a module up may give something else than the table of its owner has.
        self.modules: list[nn.Module | None] = [self._find(path, found, walked) for path in paths]
        self._then = [dict(table) for table in self._tables]

    def _find(self, path: str, found: dict[str, Any], walked: set[int]) -> Any:
        if path in found:
            return found[path]
        above, _, name = path.rpartition(".")
        owner, found[path] = self._find(above, found, walked), None
        table = owner.__dict__["_modules"] if isinstance(owner, nn.Module) else None
        if isinstance(table, dict):  # that of a scripted module is something else
            if id(owner) not in walked:
                walked.add(id(owner))
                self._tables.append(table)
                if above:
                    self._inside.append(owner.__dict__)
            module = table.get(name)
            if isinstance(module, nn.Module) and _gives(owner, name):
                found[path] = module
        return found[path]

    def watched(self) -> Watched:
        """What `is_current` looks at, short of whether the root has the same `table`."""
        return Watched([*self._tables, *self._inside])

    def is_current(self, root: nn.Module) -> bool:
        """Tell whether these are the modules that are there now."""
        return (
            root.__dict__["_modules"] is self.table
            and self._tables == self._then
            and all(map(_IS, map(_ITEM, self._inside, _MODULES), self._tables[1:]))
        )


class Called:
    """The modules at some paths of one tree of modules, and at others, of which attributes are read.

    >>> root = nn.Sequential(nn.ReLU())
    >>> called = Called(root, ["0"])
    >>> called.modules()[0].__name__, root.append(nn.ReLU()) is root, called.is_current(root)
    ('forward', True, False)
    """

    __slots__ = ("_forwards", "_found", "_modules", "_plainness")

    def __init__(self, root: nn.Module, called: Sequence[str], read: Sequence[str] = ()) -> None:
        paths = [*called, *read]
        self._found: FoundModules | None = FoundModules(root, paths)
        modules = self._found.modules
        to_call = modules[: len(called)]
        plain = [module for module in to_call if module is not None and is_called_plainly(module)]
        self._plainness = Plainness(plain)
        self._modules: list[Any] = [
            _Late(root, path) if module is None else module for module, path in zip(modules, paths, strict=True)
        ]
        forwards = {id(module): MethodType(type(module).forward, module) for module in plain}
        self._forwards: list[Any] = [forwards.get(id(module), module) for module in self._modules[: len(called)]]
        self._forwards += self._modules[len(called) :]

    def is_current(self, root: nn.Module) -> bool:
        """Tell whether these are the modules that are there now."""
        return self._found is not None and self._found.is_current(root)

    def modules(self) -> Sequence[Any]:
        """What to call for each path, the module or its `forward` where that is the same; then what to read of."""
        if self._plainness.holds():
            return self._forwards
        if self._plainness.is_outdated():
            self._found = None  # the next call finds them anew
        return self._modules


def _gives(owner: nn.Module, name: str) -> bool:
    """Tell whether a module that is asked for a child gives what is in its table."""
    kind = type(owner)
    methods = kind.__getattr__, getattr(kind, "__getitem__", nn.Module.__getattr__)
    is_known = all(each is _LOOK_UP or getattr(each, "__module__", "").startswith(_KNOWN) for each in methods)
    is_hidden = name in owner.__dict__ or hasattr(kind, name)
    return is_known and not is_hidden and kind.__getattribute__ is object.__getattribute__


class _Late:
    """Stands for a module that is looked up when it is used: it is not there, or its owner's class has a say."""

    __slots__ = ("_path", "_root")

    def __init__(self, root: nn.Module, path: str) -> None:
        object.__setattr__(self, "_root", root)
        object.__setattr__(self, "_path", path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _now(self)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(_now(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_now(self), name, value)


def _now(late: _Late) -> Any:
    (module,) = modules_at(late._root, [late._path])
    return module

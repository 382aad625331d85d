"""Shells: stand-ins for the modules of a captured program.

A shell is an object of the same class as a module, with a `__dict__` of its own: its children are shells, its
parameters and buffers are the module's by identity, its lists, dicts and sets are copies. Whatever capture or
the captured program sets on a module, it sets on the shell; the user's modules are never written to, and threads that run
them notice nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from torch import nn

__all__ = ["Shells"]

_CONTAINERS = (list, dict, set, tuple)


class Shells:
    """The shells of one module tree.

    `call` is what runs instead of a module's own `__call__`: it gets the original module, a function that runs
    it (hooks and all), and the arguments.
    """

    def __init__(self, root: nn.Module, call: Callable[..., Any]) -> None:
        self._call = call
        self._of: dict[int, nn.Module] = {}
        self._original: dict[int, nn.Module] = {}
        self._paths: dict[int, str] = {}  # of originals and shells alike
        self._keep: list[Any] = []
        self.root_module = root
        self.root = self._shell(root)
        for path, module in _walk(root):
            shell = self._of[id(module)]
            self._paths[id(module)] = self._paths[id(shell)] = path
        for module in list(self._original.values()):
            self._fill(module, self._of[id(module)])

    def path(self, module: nn.Module) -> str | None:
        """The dotted path of a module or shell of this tree, None for a module outside of it."""
        return self._paths.get(id(module))

    def shell(self, module: nn.Module) -> nn.Module:
        """The shell of a module; modules outside the tree, and shells, are answered as they are."""
        return self._of.get(id(module), module)

    def original(self, shell: nn.Module) -> nn.Module:
        """The module behind a shell; other modules are answered as they are."""
        return self._original.get(id(shell), shell)

    def all(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """Iterate over (original, shell)."""
        for shell_id, module in self._original.items():
            shell = self._of[id(module)]
            assert id(shell) == shell_id
            yield module, shell

    def _shell(self, module: nn.Module) -> nn.Module:
        """Make the shell of a module and of everything below it, yet without its plain attributes."""
        known = self._of.get(id(module))
        if known is not None:
            return known
        shell: nn.Module = object.__new__(type(module))
        self._of[id(module)] = shell
        self._original[id(shell)] = module
        state = shell.__dict__
        state.update(module.__dict__)
        state["_modules"] = {name: None if child is None else self._shell(child) for name, child in module._modules.items()}
        state["_parameters"] = module._parameters.copy()
        state["_buffers"] = module._buffers.copy()
        run = functools.partial(nn.Module._call_impl, shell)
        state["_compiled_call_impl"] = functools.partial(self._call, module, run)
        return shell

    def _fill(self, module: nn.Module, shell: nn.Module) -> None:
        """Give a shell its own containers, with shells in place of modules, and methods bound to shells."""
        memo: dict[int, Any] = {}
        for name, value in module.__dict__.items():
            if name in _OWN_TABLES or value is None or isinstance(value, bool | int | float | str):
                continue
            mine = self._mapped(value, memo)
            if mine is not value:
                shell.__dict__[name] = mine

    def _mapped(self, value: Any, memo: dict[int, Any]) -> Any:
        kind = type(value)
        if kind is MethodType and id(value.__self__) in self._of:
            return MethodType(value.__func__, self._of[id(value.__self__)])
        if isinstance(value, nn.Module):
            return self._of.get(id(value), value)
        if kind not in _CONTAINERS:
            return value
        if id(value) in memo:
            return memo[id(value)]
        if kind is tuple:
            items = tuple([self._mapped(item, memo) for item in value])
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        mine: Any = kind()
        memo[id(value)] = mine
        self._keep.append(value)
        if kind is dict:
            for key, item in value.items():
                mine[key] = self._mapped(item, memo)
        elif kind is list:
            mine.extend([self._mapped(item, memo) for item in value])
        else:
            mine.update(value)
        return mine


# Replaced one by one when the shell is made; hooks are read, never written, during a call.
_OWN_TABLES = frozenset({"_modules", "_parameters", "_buffers", "_compiled_call_impl", "training"})


def _walk(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each module of a tree once, with its first path: `named_modules` without nested generators."""
    seen: set[int] = set()
    stack: list[tuple[str, nn.Module]] = [("", root)]
    while stack:
        path, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        prefix = f"{path}." if path else ""
        for name, child in reversed(module._modules.items()):
            if child is not None:
                stack.append((prefix + name, child))

"""Attributes of ours that step aside where the program has one of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from torch import nn

T = TypeVar("T")


class yielding(Generic[T]):
    """A property of a module that yields to what the module itself holds under its name, and may be assigned to.

    >>> class Tool(nn.Module):
    ...     @yielding
    ...     def report(self):
    ...         return "ours"
    >>> tool = Tool()
    >>> tool.report
    'ours'
    >>> tool.report = nn.Linear(1, 1)
    >>> tool.report
    Linear(in_features=1, out_features=1, bias=True)
    """

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, module: None, owner: type) -> yielding[T]: ...

    @overload
    def __get__(self, module: nn.Module, owner: type) -> T: ...

    def __get__(self, module: nn.Module | None, owner: type) -> Any:
        if module is None:
            return self
        for table in (module._modules, module._parameters, module._buffers):
            if self._name in table:
                return table[self._name]
        return self._read(module)

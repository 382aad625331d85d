"""Graphs that several modules have between them, each with the code that is made of it once."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from torch import nn
from torch.compiler import is_dynamo_compiling

from graphwright.codegen import PythonCode
from graphwright.ir import Graph
from graphwright.runtime.called import calls_are_plain
from graphwright.runtime.entries import Entry
from graphwright.runtime.inside import HOOKS
from graphwright.runtime.pickling import graph_to_record, record_to_graph


class SharedCode:
    """A graph, and its code as soon as one of the modules has it. Copies and pickles of these share it again.

    >>> import pickle
    >>> shared = SharedCode(Graph())
    >>> one, other = pickle.loads(pickle.dumps([shared, shared]))
    >>> one is other, one.graph is shared.graph
    (True, False)
    """

    __slots__ = ("code", "function", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.code: PythonCode | None = None
        self.function: FunctionType | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedCode:
        return SharedCode(copy.deepcopy(self.graph, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_record, (graph_to_record(self.graph),)


def _from_record(record: dict[str, Any]) -> SharedCode:
    return SharedCode(record_to_graph(record))


# ---- modules with several graphs, one for each way in which their program calls them

# The module that is being called, and which of its functions is asked for.
_asked: ContextVar[tuple[nn.Module, Callable[..., Any]] | None] = ContextVar("_asked", default=None)


def method_of(entries: Mapping[str, Entry], name: str) -> Callable[..., Any]:
    """The method for the function of an entry point: of a module with several graphs each is a call of the module."""
    entry = entries[name]
    assert entry.function is not None
    if entry.shared is None or len(entries) == 1:
        return entry.function
    return _answering_calls(entry.function) if name == "forward" else _as_call(entry.function)


def _as_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function a method that is a call of its module: hooks run, as around `forward`.

    The class must have a `forward` that is `_answering_calls`.

    >>> class Both(nn.Module):
    ...     forward = _answering_calls(lambda self, x: x + 1)
    ...     forward_2 = _as_call(lambda self, x: x * 10)
    >>> both = Both()
    >>> handle = both.register_forward_pre_hook(lambda module, args: (args[0] + 2,))
    >>> both(1), both.forward_2(1), both(1)
    (4, 30, 4)
    """

    @functools.wraps(function)
    def method(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not _has_hooks(module) and (is_dynamo_compiling() or calls_are_plain()):
            return function(module, *args, **kwargs)
        token = _asked.set((module, function))
        try:
            return module(*args, **kwargs)
        finally:
            _asked.reset(token)

    return method


def _answering_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function the `forward` of a class with methods that are calls: it is these where they are asked for."""

    @functools.wraps(function)
    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() and not _has_hooks(module):  # which knows no context variables
            return function(module, *args, **kwargs)
        asked = _asked.get()
        if asked is None or asked[0] is not module:
            return function(module, *args, **kwargs)
        _asked.set(None)
        return asked[1](module, *args, **kwargs)

    return forward


def _has_hooks(module: nn.Module) -> bool:
    return any(map(module.__dict__.__getitem__, HOOKS))

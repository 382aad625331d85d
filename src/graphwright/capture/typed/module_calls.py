"""What calls of modules got and gave, as nodes of the graph: noted on the way, and kept with the graph by names."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Graph, Node
from graphwright.runtime import keep_calls, names_of_values
from graphwright.source import CallSite, Scope, name_as_called, user_frame


def entered(scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scope:
    """Note with which values of the graph a module is called, and where; return its call."""
    scope.passed = tuple([_nodes(value) for value in args]), {name: _nodes(value) for name, value in kwargs.items()}
    frame = user_frame(sys._getframe(2))
    if frame is not None and scope.outer is not None:
        scope.site = CallSite(frame.f_code, frame.f_lasti, scope.outer)
    return scope


def given_by(scope: Scope, result: Any, wishes: dict[Node, str | None] | None, is_flat: bool) -> None:
    """Note which values of the graph the call gave. In a flat graph these are called as the caller's line does.

    `wishes` has the names that nodes were to have, where these are kept.
    """
    scope.given = _nodes(result)
    for node, name in name_as_called(scope, scope.given) if is_flat else ():
        if wishes is not None and node in wishes:
            wishes[node] = name


def _nodes(value: Any) -> Any:
    """The node of a value; of a tuple or list, those of its items; of a dict they are in a tuple; None for all else."""
    if type(value) is TensorProxy:
        return value.node_of()
    if type(value) is tuple or type(value) is list:
        return tuple([_nodes(item) for item in value])
    return (tuple(map(_nodes, value.values())),) if isinstance(value, dict) else None


def keep_module_calls(graph: Graph) -> None:
    """Keep with a graph what the calls of its program's modules got and gave, by the names of its values."""
    calls = {}
    for scope in scopes_of(graph):
        args, kwargs = scope.passed
        if args or kwargs or scope.given is not None:
            named = {**dict(zip(_parameters(scope.kind), args, strict=False)), **kwargs}
            calls[scope.key] = {
                "passed": {name: names_of_values(value) for name, value in named.items()},
                "given": names_of_values(scope.given),
            }
    keep_calls(graph, calls)


def scopes_of(graph: Graph) -> Iterator[Scope]:
    """The calls of modules in which the nodes of a graph were made, and those around them."""
    seen: set[int] = set()
    for node in graph.all_nodes_now():
        scope = getattr(node._origin, "scope", None)
        while scope is not None and id(scope) not in seen:
            seen.add(id(scope))
            yield scope
            scope = scope.outer


@functools.lru_cache(1024)
def _parameters(kind: type[nn.Module]) -> list[str]:
    """The names of the parameters of a module's `forward` that may be given by position."""
    try:
        found = list(inspect.signature(kind.forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [each.name for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]

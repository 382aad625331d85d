"""The values of a graph that a node may write to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.ir import Node, bodies_of, nodes_in
from graphwright.ops import (
    Call,
    call_of,
    enter_context,
    exit_context,
    is_impure,
    is_random,
    is_region,
    module_call,
    raise_error,
    set_attribute,
    unpack,
)
from graphwright.runtime import attribute_names, choose, is_guard

ModuleOf = Callable[[Node], "nn.Module | None"]
_WRITES_NOTHING = (enter_context, exit_context, unpack, raise_error, choose, attribute_names)


def written_values(
    node: Node, module_of: ModuleOf, find_call: Callable[[Node], Call | None] | None = None
) -> list[Node]:
    """The values that an operation may write to, each once; all that it reads, where it is not known.

    `module_of` gives the module that a call_module node calls; `find_call` the call that a node makes, where somebody
    keeps these.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x, y: x.add_(y).neg())
    >>> [written_values(node, lambda node: None) for node in gm.graph.nodes]
    [[], [], [x], [], []]
    """
    if node.op in ("placeholder", "get_attr", "output", "root") or is_guard(node):
        return []
    if is_region(node):
        inner = [inner for body in bodies_of(node) for inner in body.nodes]
        return node.all_input_nodes if any(written_values(each, module_of, find_call) for each in inner) else []
    module = module_of(node)
    if module is not None:
        writes_input = bool(vars(module).get("inplace")) or not type(module).__module__.startswith("torch.nn.")
        return node.all_input_nodes if writes_input and is_impure(node, module) else []
    call = find_call(node) if find_call is not None else _call(node, module)
    if call is not None:
        return list(dict.fromkeys(nodes_in([call.arguments.get(name) for name in call.writes])))
    if node.op == "call_function" and (
        any(node.target is target for target in _WRITES_NOTHING) or is_record(node.target)
    ):
        return []
    if node.target is set_attribute:
        return [value for value in node.args[:1] if isinstance(value, Node)]
    return node.all_input_nodes if is_impure(node) and not is_random(node) else []


def is_record(target: Any) -> bool:
    """Tell whether a target is a class whose objects hold what they are given: a dataclass, a named tuple, a dict."""
    return issubclass(type(target), type) and (
        dataclasses.is_dataclass(target) or issubclass(target, tuple | dict | list | set)
    )


def _call(node: Node, module: nn.Module | None) -> Call | None:
    return call_of(node) if module is None else module_call(node, module)

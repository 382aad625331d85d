"""Copies of inlined modules that have room for a form: what `optimize_for_inference` and `cuda_graph` begin with."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from graphwright.engines.inlining import Inlined
from graphwright.engines.reporting import ReportOfOptimized
from graphwright.errors import PassError
from graphwright.runtime import Entry, GraphModule, choose, entry_points_of

INLINED = "forward_inlined"


def staged(gm: GraphModule, is_saved: bool = False) -> GraphModule:
    """Copy an inlined module, with the inlined program as an entry point beside, and the `report` of optimized ones."""
    entries = entry_points_of(gm)
    entry = entries["forward"]
    assert isinstance(entry.form, Inlined)
    entry.form = dataclasses.replace(entry.form, is_saved=is_saved)
    entries[INLINED] = Entry(INLINED, entry.graph)
    entries[INLINED].form = entry.form
    kind: Any = type(gm)
    kind._extra = {**kind._extra, "report": ReportOfOptimized()}
    return copy.copy(gm)


def computes_gradients(module: GraphModule) -> bool:
    """Tell whether a program computes gradients by itself, which it cannot where nothing records them."""
    nodes = entry_points_of(module)["forward"].graph.all_nodes()
    return any(
        node.target in (torch.autograd.grad, torch.autograd.backward)
        or (node.op == "call_method" and node.target == "backward")
        for node in nodes
    )


Call = tuple[tuple[Any, ...], dict[str, Any]]


def call_of(example: Any) -> Call | None:
    """The call that an example stands for: a tensor, arguments, keyword arguments, or a pair of both; None for others.

    >>> call_of((1, 2)), call_of({"x": 1}), call_of(((1,), {"x": 2})), call_of("x")
    (((1, 2), {}), ((), {'x': 1}), ((1,), {'x': 2}), None)
    """
    if isinstance(example, Mapping):
        return ((), dict(example)) if all(isinstance(key, str) for key in example) else None
    if isinstance(example, tuple | list):
        if len(example) == 2 and type(example[0]) is tuple and type(example[1]) is dict:
            return call_of(example[1]) and (example[0], example[1])
        return tuple(example), {}
    return ((example,), {}) if isinstance(example, torch.Tensor) else None


def has_several(gm: GraphModule) -> bool:
    """Tell whether a module was captured for several examples, of which each call goes to one."""
    return any(node.target is choose for node in entry_points_of(gm)["forward"].graph.nodes)


def has_form(module: nn.Module) -> bool:
    """Tell whether a module is a captured one whose code is in another form already: inlined, optimized or lowered."""
    return isinstance(module, GraphModule) and any(entry.form for entry in entry_points_of(module).values())


def bound_values(module: nn.Module, graph: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The value of each parameter of a program."""
    try:
        given = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise PassError(f"the arguments are not those of the module: {error}", fix="give those of a call") from error
    given.apply_defaults()
    names = [str(node.target).lstrip("*") for node in graph.placeholders()]
    return [given.arguments[name] for name in names]

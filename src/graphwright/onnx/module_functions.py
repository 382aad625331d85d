"""Modules of a program as functions of a model: one for all that are alike, called with the weights of each."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.onnx.regions import Around
from graphwright.onnx.torch_private import call_operator
from graphwright.runtime import GraphModule, graph_of

DOMAIN = "graphwright.functions"


def is_asked_for(path: str, module: nn.Module, asked: Sequence[Any]) -> bool:
    """Tell whether a module is one of those asked for, by path, by class or by the name of its class.

    >>> is_asked_for("0", nn.Linear(1, 1), ["Linear"]), is_asked_for("0", nn.Linear(1, 1), [nn.ReLU, "0"])
    (True, True)
    """
    return any(
        isinstance(module, each) if isinstance(each, type) else each in (path, type(module).__name__) for each in asked
    )


def check_asked_for(module: GraphModule, asked: Sequence[Any]) -> None:
    """Raise ExportError where one that is asked for is none of the modules that a captured module calls."""
    calls = [node for node in graph_of(module).all_nodes() if node.op == "call_module"]
    called = {str(node.target): module.get_submodule(str(node.target)) for node in calls}
    for each in asked:
        if any(is_asked_for(path, leaf, [each]) for path, leaf in called.items()):
            continue
        name = each.__name__ if isinstance(each, type) else str(each)
        have = {path: one for path, one in module.named_modules() if path}
        inside = [path for path, one in have.items() if is_asked_for(path, one, [each])]
        around = [path for path in called for one in inside if one.startswith(f"{path}.")]
        near = difflib.get_close_matches(
            name, [*called, *(type(leaf).__name__ for leaf in called.values()), *have], cutoff=0.4
        )
        known = ", ".join(dict.fromkeys(near or list(called)[:3])) or "none"
        if around:
            why, fix = (
                f"which is inside of the leaf {around[0]!r}",
                f"ask for {around[0]!r}, or capture without this leaf",
            )
        elif inside:
            why = "whose parts the program has in its place"
            fix = f"capture it with leaf_modules={inside[:3]!r}, or export the module that is not captured"
        else:
            why, fix = f"and the module has none of the kind; near it: {known}", "name a path, a class or its name"
        raise ExportError(f"modules_as_functions names {name!r}, {why}", at=type(module).__name__, fix=fix)


def call_as_function(name: str, module: Callable[..., Any], around: Around) -> Any:
    """Call a module whose tensors come out of a function of the model; what else it gives is as in this run."""
    kept: list[Any] = []

    def body(*given: Any) -> tuple[torch.Tensor, ...]:
        with around.bound(given) as (args, kwargs):
            leaves, spec = pytree.tree_flatten(module(*args, **kwargs))
        kept[:] = leaves, spec
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return tuple([tensor.clone() if any(tensor is each for each in given) else tensor for tensor in tensors])

    given = iter(call_operator(name, body, around.values))
    leaves, spec = kept
    return pytree.tree_unflatten([next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec)


def keep_functions(model: ir.Model, bodies: Mapping[Any, ir.Function]) -> None:
    """Inline every function but those of modules, and make one of those that are alike."""
    opset = model.opset_imports[""]
    for identifier, function in bodies.items():  # torch.onnx has inlined them, where it saw that they are called
        function.opset_imports.setdefault("", opset)
        model.functions[identifier] = function
    InlinePass(criteria=lambda function: function.domain != DOMAIN)(model)
    first: dict[Any, ir.Function] = {}
    same: dict[Any, ir.Function] = {}
    for identifier, function in list(model.functions.items()):
        if function.domain == DOMAIN:
            same[identifier] = first.setdefault(_form(function), function)
    taken: dict[str, int] = {}
    for function in first.values():
        kind = function.name.partition("__")[0]
        taken[kind] = taken.get(kind, 0) + 1
        function.name = kind if taken[kind] == 1 else f"{kind}_{taken[kind]}"
    for node in model.graph.all_nodes():
        if node.domain == DOMAIN:
            node.op_type = same[node.op_identifier()].name
    kept = {id(function): function for function in same.values()}
    for identifier in list(model.functions):
        del model.functions[identifier]
    for function in kept.values():
        model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1
    RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]


def _form(function: ir.Function) -> Any:
    """What a function does, whatever its values are called."""
    numbers: dict[int, int] = {}

    def number(value: ir.Value | None) -> int:
        return -1 if value is None else numbers.setdefault(id(value), len(numbers))

    lines: list[Any] = [[number(value) for value in function.inputs]]
    for node in function:
        inputs = [number(value) for value in node.inputs]
        attributes = sorted((name, _written(attribute)) for name, attribute in node.attributes.items())
        lines.append((node.domain, node.op_type, inputs, attributes, [number(value) for value in node.outputs]))
    return repr([*lines, [number(value) for value in function.outputs]])


def _written(attribute: Any) -> str:
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.value
        return f"{tensor.dtype} {tensor.shape} {tensor.numpy().tolist()}"
    return str(attribute.value)

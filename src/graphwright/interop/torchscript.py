"""Captured programs in the form that torch.jit.script reads: its own kinds of checks, parameters and modules.

Guards become assertions on what TorchScript knows; those of Python's world, which it has not, are checked now. Modules
that no node calls are names of parameters and other modules, and nothing else.
"""

from __future__ import annotations

import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.codegen import WITHOUT_DEL
from graphwright.errors import ExportError
from graphwright.interop.number_limits import LIMITS, limits_of
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import is_loop, is_region
from graphwright.runtime import (
    GraphModule,
    entry_points_of,
    expect,
    expect_kinds,
    expect_outside,
    expect_state,
    expect_tensors,
    expect_values,
    forget_modules,
    is_guard,
)


def write_for_torchscript(module: GraphModule) -> None:
    """Change a captured module so that torch.jit.script reads it. Raises ExportError for what it cannot know."""
    for entry in entry_points_of(module).values():
        forget_modules(entry.graph)
        _write(module, entry.graph)


def _write(module: GraphModule, graph: Graph) -> None:
    graph.meta[WITHOUT_DEL] = True  # which TorchScript reads in a way of its own
    _use_known_types(graph)
    for node in [*graph.all_nodes()]:
        if is_guard(node):
            _assert(node)
        elif node.op == "call_method":
            _leave_defaults_out(node)
        elif is_region(node) and not is_loop(node):
            _may_be_none(node)
        elif node.op == "call_function" and node.target == torch.finfo:
            _use_limits(node)
        elif node.op == "call_function":
            _refuse_classes(node)
    for node in graph.placeholders():
        if str(node.target).startswith("*") and not node.users:
            graph.erase_node(node)  # TorchScript refuses what it would take
    called = {str(node.target) for node in graph.all_nodes() if node.op == "call_module"}
    read = {str(node.target) for node in graph.all_nodes() if node.op == "get_attr"}
    for name, child in [*module._modules.items()]:
        module._modules[name] = child and _part(child, name, called, read)


# ---- guards


def _assert(guard: Node) -> None:
    """Write a guard as assertions; one of what TorchScript does not have is checked now."""
    if guard.users or guard.target not in _CHECKS:
        raise _not_known(guard, f"the question {guard.name}, by which one of several captures is chosen")
    if guard.target is expect_outside:
        expect_outside(*guard.args)
    graph = guard.graph
    with graph.inserting_before(guard):
        for value, text, compare, *others in _CHECKS[guard.target](guard):
            holds = graph.call_function(compare, (value, *others))
            holds.origin = graph.call_function(torch._assert, (holds, text)).origin = guard.origin
    graph.erase_node(guard)


Check = tuple[Any, ...]  # a value, what to say where the check fails, a comparison, and what else that takes


def _of_value(guard: Node) -> Iterator[Check]:
    value, captured, where = guard.args
    yield from _equal(guard, value, captured, f"{where}: was {captured!r} when the program was captured")


def _of_values(guard: Node) -> Iterator[Check]:
    for name, (value, captured) in guard.kwargs.items():
        if not (isinstance(value, Node) and str(value.target).startswith("*") and not captured):
            yield from _equal(
                guard, value, captured, f"argument {name!r} was {captured!r} when the program was captured"
            )


def _of_state(guard: Node) -> Iterator[Check]:
    for subject, value, captured in guard.args[1:]:
        if isinstance(value, Node) and value.target is torch.is_autocast_enabled and value.args in _AUTOCAST:
            value.target, value.args = _AUTOCAST[value.args], ()
        yield from _equal(guard, value, captured, f"{subject} was {captured!r} when the program was captured")


_AUTOCAST: dict[Any, Callable[[], bool]] = {
    ("cpu",): torch.is_autocast_cpu_enabled,
    ("cuda",): torch.is_autocast_enabled,
}


def _of_tensors(guard: Node) -> Iterator[Check]:
    for name, (value, dtype, rank, *of_list) in guard.kwargs.items():
        if of_list:
            raise _not_known(guard, f"what is taken for granted of the list {name}")
        value, text = (
            _as_tensor(value),
            f"argument {name!r} was another kind of tensor when the program was captured",
        )
        if isinstance(dtype, tuple):  # of several
            read = guard.graph.call_function(getattr, (value, "dtype"))
            yield [*dtype], text, operator.contains, read
        elif dtype is not None:
            yield guard.graph.call_function(getattr, (value, "dtype")), text, operator.eq, dtype
        if rank is not None:
            yield guard.graph.call_method("dim", (value,)), text, operator.eq, rank


def _of_kinds(guard: Node) -> Iterator[Check]:
    for name, (value, kind) in guard.kwargs.items():
        if kind is Tensor:
            _as_tensor(value)
        elif kind in _PLAIN and value.op == "placeholder":
            value.type = kind  # which TorchScript checks
        else:
            raise _not_known(guard, f"that {name} is a {kind.__name__}")
    yield from ()


_UNWRAP: Any = vars(torch.jit)["_unwrap_optional"]


def _as_tensor(value: Any) -> Any:
    """A value that may be None for TorchScript, and is a tensor."""
    if not _is_optional(value.type):
        return value
    known = next((user for user in value.users if user.target is _UNWRAP), None)
    if known is None:
        graph = value.graph
        first = next(node for node in graph.nodes if node.op != "placeholder")
        with graph.inserting_before(first):
            known = graph.call_function(_UNWRAP, (value,))
        for user in [user for user in value.users if user is not known]:
            user.replace_input_with(value, known)
    return known


def _equal(guard: Node, value: Any, captured: Any, text: str) -> Iterator[Check]:
    if captured is None:
        yield value, text, operator.is_, None
    elif isinstance(captured, (*_PLAIN, torch.dtype, torch.device)):
        yield value, text, operator.eq, captured
    else:
        raise _not_known(guard, f"a comparison with a {type(captured).__name__}")


_PLAIN = (bool, int, float, str)
_CHECKS: dict[Any, Callable[[Node], Iterator[Check]]] = {
    expect: _of_value, expect_kinds: _of_kinds, expect_state: _of_state, expect_tensors: _of_tensors,
    expect_values: _of_values, expect_outside: lambda guard: iter(()),
}  # fmt: skip


def _not_known(node: Node, what: str) -> ExportError:
    return ExportError(
        f"TorchScript does not know {what}",
        at=node.origin or node.name,
        fix="capture the program for one example, and with tensors, tuples and dicts, as return_dict=False gives them",
    )


# ---- calls


def _leave_defaults_out(node: Node) -> None:
    """Leave out what a method of tensors is given by default: TorchScript has another signature of it."""
    method = getattr(Tensor, str(node.target), None)
    if isinstance(method, types.FunctionType) and node.kwargs:
        known = inspect.signature(method).parameters
        node.kwargs = {
            name: value for name, value in node.kwargs.items()
            if name not in known or isinstance(value, Node) or value != known[name].default
        }  # fmt: skip


def _refuse_classes(node: Node) -> None:
    kind = node.target
    if isinstance(kind, type) and kind.__module__ not in ("builtins", "torch"):
        raise _not_known(node, f"the class {kind.__qualname__}")


def _use_limits(node: Node) -> None:
    """Have what torch.finfo gives be numbers in a list."""
    node.target = limits_of
    for user in [*node.users]:
        if user.target is not getattr or user.args[1] not in LIMITS:
            raise _not_known(node, "torch.finfo")
        name, user.target, user.args = user.args[1], operator.getitem, (node, LIMITS.index(user.args[1]))
        if name == "bits":
            with node.graph.inserting_before(user):
                number = node.graph.call_function(user.target, user.args)
            user.target, user.args = int, (number,)


def _may_be_none(node: Node) -> None:
    """Have the result of a branch that is None on one side be a variable of its own: a tensor's cannot become None."""
    bodies = [body for body in bodies_of(node) if body.find_nodes(op="output")]
    results = [body.output_node().args[0] for body in bodies]
    if not any(result is None for result in results):
        return
    for body, result in zip(bodies, results, strict=True):
        if isinstance(result, Node) and result.op == "placeholder":
            with body.inserting_before(body.output_node()):
                body.output_node().args = (body.call_function(torch.jit.annotate, (Tensor | None, result)),)


# ---- parameters


def _use_known_types(graph: Graph) -> None:
    """Have only parameters, and a result, of types that TorchScript knows; what is a number by default stays one."""
    for node in graph.placeholders():
        if node.type is None and node.args and type(node.args[0]) in _PLAIN:
            node.type = type(node.args[0])
        elif _is_optional(node.type) if node.type is not None else node.args == (None,):
            node.type = node.type if node.type is not None and _is_known(node.type) else Tensor | None
        elif not _is_known(node.type):
            node.type = None
    for node in graph.find_nodes(op="output"):
        node.type = node.type if _is_known(node.type) else None


def _is_known(kind: Any) -> bool:
    if kind is None or kind is type(None) or kind is Tensor or kind in _PLAIN:
        return True
    origin = typing.get_origin(kind)
    if origin not in (list, tuple, dict, typing.Union, types.UnionType):
        return False
    return all(part is Ellipsis or _is_known(part) for part in typing.get_args(kind))


def _is_optional(kind: Any) -> bool:
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return is_union and type(None) in typing.get_args(kind)


# ---- modules


def _part(module: nn.Module, path: str, called: set[str], read: set[str]) -> nn.Module:
    """A module that nodes call, as it is; of another one, what they name of it."""
    if path in called:
        return module
    children = {name: child and _part(child, f"{path}.{name}", called, read) for name, child in module._modules.items()}
    is_list = isinstance(module, nn.ModuleList | nn.Sequential) and [*children] == [*map(str, range(len(children)))]
    part = nn.ModuleList() if is_list else nn.Module()
    part._modules.update(children)
    part._parameters.update(module._parameters)
    part._buffers.update(module._buffers)
    part._non_persistent_buffers_set.update(module._non_persistent_buffers_set)
    part.training = module.training
    for name in [each.rpartition(".")[2] for each in read if each.rpartition(".")[0] == path]:
        if not hasattr(part, name):
            setattr(part, name, getattr(module, name))
    return part

"""Calls of modules: layers of torch are one node, others are entered."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.runtime import GraphModule, graph_of, is_compiled
from graphwright.script.calls.inlining import inline, modifier_of
from graphwright.script.expressions.held_values import wrap
from graphwright.script.expressions.named_values import child
from graphwright.script.program.frames import Scope
from graphwright.script.program.values import Bound, Const, Group, ModuleRef, Value, constant
from graphwright.script.tensors import annotated_method_result
from graphwright.script.types import ANY, NONE, TENSOR, OptionalType, TupleType, Type, optional, resolved

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_STATES = TupleType((TENSOR, TENSOR))
_RESULTS: dict[type[nn.Module], Type] = {
    nn.LSTM: TupleType((TENSOR, _STATES)), nn.GRU: TupleType((TENSOR, TENSOR)), nn.RNN: TupleType((TENSOR, TENSOR)),
    nn.LSTMCell: _STATES, nn.MultiheadAttention: TupleType((TENSOR, optional(TENSOR))),
}  # fmt: skip


def call_module(
    c: Context, ref: ModuleRef, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str = ""
) -> Value:
    """Compile the call of a module."""
    module = ref.module
    forward: Any = module.__dict__.get("forward", getattr(type(module), "forward", None))
    is_whole = is_compiled(module) or isinstance(module, GraphModule) or modifier_of(forward) == "ignore"
    if is_whole or c.is_leaf(module, ref.path):
        return _whole(c, ref, args, kwargs, node, named, _result(module))
    has_backward_hooks = module._backward_hooks or module._backward_pre_hooks
    if has_backward_hooks or _calls_itself(type(module)):  # which is around what its forward does
        return _whole(c, ref, args, kwargs, node, named, annotated_method_result(type(module), "forward") or ANY)
    if type(module).forward is nn.Sequential.forward and len(args) == 1 and not kwargs and not _has_hooks(module):
        value = args[0]
        c.take_code(module, ref.path)
        c.take_items(module)
        children = list(module._modules)
        for i, name in enumerate(children):
            inside = wrap(c, module._modules[name], node, name)
            value = c.parts.call(c, inside, [value], {}, node, named if i == len(children) - 1 else "")
        return value
    if forward is nn.Module.forward:
        return c.problem(f"a {type(module).__name__} cannot be called", node, "call the modules in it")
    if _has_hooks(module):
        made = _compiled_with_hooks(c, ref, args, kwargs, node)
        return made if made is not None else _whole(c, ref, args, kwargs, node, named, ANY)
    return _enter(c, ref, forward, args, kwargs, node)


def _enter(
    c: Context, ref: ModuleRef, forward: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST
) -> Value:
    module = ref.module
    c.take_code(module, ref.path)
    c.surroundings.take_forward(module)
    outer = c.frame.scope
    scope = Scope(ref.path, type(module), c.calls_of[ref.path], (*outer.stack, (ref.path, type(module))))
    c.calls_of[ref.path] += 1
    if inspect.ismethod(forward) and forward.__self__ is module:
        forward = forward.__func__
    if not isinstance(forward, FunctionType):
        return c.problem(f"{type(module).__name__}.forward is no function of Python", node, "keep it as a leaf module")
    own = [] if "forward" in module.__dict__ and not inspect.ismethod(module.__dict__["forward"]) else [ref]
    return inline(c, forward, [*own, *args], kwargs, node, scope)


def _whole(
    c: Context, ref: ModuleRef, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str, kind: Type
) -> Value:
    """Call a module as one node, which runs it with its hooks."""
    module = ref.module
    tables = [table for inside in module.modules() for table in _hook_tables(inside)]
    hooks = [hook for table in tables for hook in table.values()]
    inner = [inside for inside in module.modules() if not is_compiled(inside)]
    kinds = [type(inside) for inside in inner if not type(inside).__module__.startswith("torch.nn.")]
    own = [function for kind in kinds for function in (kind.forward, *([kind.__call__] if _calls_itself(kind) else []))]
    if hooks or own:
        c.attributes.run([*hooks, *own])
    return c.make("call_module", ref.path, args, kind, node, kwargs, named=named)


def _calls_itself(kind: type[nn.Module]) -> bool:
    """Tell whether modules of a class have a `__call__` of their own."""
    return kind.__call__ is not nn.Module.__call__


def _hook_tables(module: nn.Module) -> tuple[dict[int, Any], ...]:
    return module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _compiled_with_hooks(
    c: Context, ref: ModuleRef, args: list[Value], kwargs: dict[str, Value], node: ast.AST
) -> Value | None:
    """Compile a module and the hooks that are registered on it; None, with nothing written, where that cannot be."""
    module, graph = ref.module, c.body.graph
    special = module._forward_hooks_with_kwargs, module._forward_pre_hooks_with_kwargs
    if any(special) or module._forward_hooks_always_called:
        return None
    problems, before, calls = len(c.problems), set(graph.nodes), c.calls_of[ref.path]
    forget = c.surroundings.keep()
    result = _with_hooks(c, ref, args, kwargs, node)
    if len(c.problems) == problems:
        return result
    del c.problems[problems:]
    forget()
    c.calls_of[ref.path] = calls
    for made in [made for made in reversed(graph.nodes) if made not in before and made.op != "placeholder"]:
        graph.erase_node(made)
    return None


def _with_hooks(c: Context, ref: ModuleRef, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> Value:
    """Call a module with the hooks that are registered on it, as torch calls them."""
    module = ref.module
    for hook in module._forward_pre_hooks.values():
        changed = c.parts.call(c, wrap(c, hook, node, "hook"), [ref, Group(tuple(args))], {}, node)
        if not _is_nothing(changed):
            args = list(changed.items) if isinstance(changed, Group) else [changed]
    result = _enter(c, ref, module.__dict__.get("forward", type(module).forward), args, kwargs, node)
    for hook in module._forward_hooks.values():
        changed = c.parts.call(c, wrap(c, hook, node, "hook"), [ref, Group(tuple(args)), result], {}, node)
        if not _is_nothing(changed):
            if isinstance(resolved(changed.type), OptionalType) or resolved(changed.type) is ANY:
                return c.problem("whether this hook returns None is not known before a run", node)
            result = changed
    return result


def _is_nothing(value: Value) -> bool:
    """Tell whether a hook returns None: nothing is changed."""
    return resolved(value.type) == NONE


def _result(module: nn.Module) -> Type:
    """What a module that is one node gives."""
    if isinstance(module, GraphModule):
        return _result_of_graph(module)
    for kind in type(module).__mro__:
        if kind in _RESULTS:
            return _RESULTS[kind]
    if getattr(module, "return_indices", False):
        return TupleType((TENSOR, TENSOR))
    return annotated_method_result(type(module), "forward") or TENSOR


def _result_of_graph(module: GraphModule) -> Type:
    """What a captured module gives, as far as its graph tells."""
    try:
        value = graph_of(module).output_node().args[0]
    except Exception:  # several captures in one
        return ANY
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return TupleType((ANY,) * len(value))
    kind = annotated_method_result(type(module), "forward")
    return kind if kind is not None else TENSOR


def module_items(c: Context, value: Value) -> list[Value] | None:
    """What going over a container of modules gives; None for what is none."""
    if isinstance(value, Bound) and isinstance(value.owner, ModuleRef):
        return None
    if not isinstance(value, ModuleRef):
        return None
    module, at = value.module, c.frame.statement
    if isinstance(module, nn.ModuleList | nn.Sequential | nn.ModuleDict):
        c.take_items(module)
    if isinstance(module, nn.ModuleList | nn.Sequential):
        return [wrap(c, inside, at, name) for name, inside in module._modules.items()]
    if isinstance(module, nn.ModuleDict):
        return [constant(name, fixed=True) for name in module._modules]
    if isinstance(module, nn.ParameterList):
        return [c.make("get_attr", c.path_of(value, str(i)), (), TENSOR, at) for i in range(len(module))]
    if isinstance(module, nn.ParameterDict):
        return [constant(name, fixed=True) for name in module]
    return None


_LISTED = {
    nn.Module.parameters: "named_parameters", nn.Module.named_parameters: "named_parameters",
    nn.Module.buffers: "named_buffers", nn.Module.named_buffers: "named_buffers",
    nn.Module.modules: "named_modules", nn.Module.named_modules: "named_modules",
}  # fmt: skip


def container_items(
    c: Context, owner: Value, method: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST
) -> Value | None:
    """What methods of modules give that list what a module holds; None for every other method."""
    name = str(getattr(method, "__name__", ""))
    if not isinstance(owner, ModuleRef) or getattr(type(owner.module), name, None) is not method:
        return None
    module = owner.module
    if name in ("keys", "values", "items", "children", "named_children") and not isinstance(module, nn.ParameterDict):
        c.take_length(module)
    if isinstance(module, nn.ModuleDict | nn.ParameterDict) and name in ("keys", "values", "items"):
        keys = list(module.keys())
        values = [child(c, owner, key, node) for key in keys] if name != "keys" else []
    elif method in (nn.Module.children, nn.Module.named_children):
        keys = list(module._modules)
        values = [wrap(c, module._modules[key], node, key) for key in keys]
    elif method in _LISTED:
        if not all(isinstance(value, Const) for value in (*args, *kwargs.values())):
            return c.problem(f"what {name} is given has to be known", node, "write it out")
        first = {"parameters": ("recurse",), "buffers": ("recurse",)}.get(name, ())
        given = {**dict(zip(first, args, strict=False)), **kwargs}
        if len(args) > len(first) or "prefix" in given or "memo" in given:
            return c.problem(f"{name} with a prefix cannot be scripted", node, "put the prefix before the names")
        options = {key: value.value for key, value in given.items()}  # type: ignore[attr-defined]
        found = dict(getattr(module, _LISTED[method])(**options))
        for inside in module.modules():
            for table in ("_modules", "_parameters", "_buffers"):
                c.take_items(inside, table)
        keys = list(found)
        if "modules" in name:
            values = [wrap(c, found[key], node, key) for key in keys]
        else:
            paths = [c.path_of(owner, key) for key in keys]
            c.premise("").setdefault("same", {}).update({path: path for path in paths})
            for path in paths:
                holder, _, tensor = path.rpartition(".")
                c.premise(holder).setdefault("is_none", {})[tensor] = False
            values = [c.make("get_attr", path, (), TENSOR, node) for path in paths]
    else:
        return None
    names = [constant(key, fixed=True) for key in keys]
    if name == "items" or name.startswith("named_"):
        return Group(tuple([Group(pair) for pair in zip(names, values, strict=True)]))
    return Group(tuple(names if name == "keys" else values))

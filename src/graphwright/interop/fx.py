"""torch.fx's GraphModules as captured modules, and captured modules as torch.fx's: the graph is copied, node by node.

Called modules and tensors are shared with the module that was given, as torch.fx shares them with what it traces; the
modules around them are others, so that replacing one leaves the given module alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch.fx
import torch.fx.node
from torch import nn
from torch.fx.graph import CodeGen as FxCodeGen
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from graphwright.codegen import BoxedCodeGen, CodeGen, PyTreeCodeGen, PyTreeInfo
from graphwright.errors import ExportError, GuardError
from graphwright.interop.fx_graphs import bodies_named, read_nodes
from graphwright.interop.fx_signatures import is_of_call, nest
from graphwright.interop.fx_writing import GraphWriter
from graphwright.interop.keeping import Guards, frozen_attributes, warn_of_frozen, with_guards
from graphwright.interop.modes import in_its_mode
from graphwright.interop.operator_form import in_operator_form
from graphwright.ir import Graph
from graphwright.runtime import (
    Bound,
    Entry,
    GraphModule,
    bound,
    captured_module,
    entry_points_of,
    expect,
    facts_of_modules,
    graph_of,
    is_conditional,
    is_readable,
)

_READABLE = "graphwright_signature"  # in the meta of torch.fx's modules: of what was captured, and is to be read
_HANDED_ON = "_user_preserved_attributes"  # in `meta`: what deep copies get, too


def to_fx(
    module: GraphModule, control_flow: Literal["error", "hop"] = "error", guards: Guards = "keep"
) -> torch.fx.GraphModule:
    """Give a captured module as a torch.fx.GraphModule: the same nodes, names, meta, modules and parameters.

    Guards are nodes that raise there, too, and stay when unused nodes are removed. What is taken for granted of modules
    is checked by a hook, and so is the mode, training or evaluation, where branches ask for it. With `guards="drop"`,
    all but the check of the mode is left out.

    With `control_flow="hop"`, branches on data become `torch.ops.higher_order.cond` and loops `while_loop`, with their
    bodies as GraphModules of the result; a warning names the objects that these have as constants, and that the program
    reads in each call. Raises ExportError, naming the user's line, for what torch.fx's graphs cannot say: writes of
    attributes and, without that, branches and loops on data.

    >>> import graphwright
    >>> print(to_fx(graphwright.symbolic_trace(lambda x: torch.relu(x) + 1)).graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%relu, 1), kwargs = {})
        return add
    """
    if control_flow not in ("error", "hop"):
        raise ValueError(f"control_flow is 'error' or 'hop', not {control_flow!r}")
    module = with_guards(module, guards)
    graph, modes = graph_of(module), dict[str, bool]()
    if graph.has_bodies:
        module, modes = in_its_mode(module)
        if control_flow == "hop":
            module, pinned = in_operator_form(module)
            modes |= {"": module.training} if pinned else {}
        graph = graph_of(module)
    taken = {*vars(module), *module._modules, *module._parameters, *module._buffers}
    writer = GraphWriter(graph, module, taken, control_flow == "hop")
    writer.graph.set_codegen(_fx_writer(graph))
    warn_of_frozen(frozen_attributes(module, writer.settings), "bodies of the torch.fx.GraphModule")
    result = torch.fx.GraphModule(nn.Module(), torch.fx.Graph(), type(module).__name__)
    _take_over(module, result, _called(graph.nodes), lambda inner, path: inner)
    for name in _attributes(graph.nodes):
        if not hasattr(result, name):
            setattr(result, name, graph.constants[name] if name in graph.constants else getattr(module, name))
    writer.hand_over(result)
    if is_conditional(graph) or modes:
        _Expected(graph, modes).look_at(result)
    result.meta.update(module.meta)
    if is_readable(module):
        result.meta[_READABLE] = entry_points_of(module)["forward"].signature
    result.graph = writer.graph
    return result


def from_fx(module: torch.fx.GraphModule) -> GraphModule:
    """Give a torch.fx.GraphModule as a captured module: the same nodes, names, meta, modules and parameters.

    Nothing is traced again. Calls that this library does not know are kept as calls. GraphModules inside become
    captured modules, too. Raises ExportError for a graph whose code is written in a way of its own.

    >>> gm = from_fx(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU())))
    >>> [node.name for node in gm.graph.nodes], [*gm.state_dict()]
    (['input_1', '_0', '_1', 'output'], ['0.weight', '0.bias'])
    """
    given: nn.Module = module
    if not isinstance(given, torch.fx.GraphModule):
        fix = "trace it by torch.fx first, or capture it here: graphwright.trace(model, args)"
        raise ExportError(f"a {type(given).__name__} is no torch.fx.GraphModule", fix=fix)
    return _from_fx(given, {})


def _from_fx(module: torch.fx.GraphModule, known: dict[int, nn.Module]) -> GraphModule:
    graph, writer = Graph(), module.graph._codegen
    read_nodes(module.graph.nodes, graph, module)
    if type(writer) is _PyTreeCodeGen and is_of_call(writer.pytree_info[1]):
        nest(graph, *writer.pytree_info)
    else:
        graph.set_codegen(_writer(writer))  # type: ignore[attr-defined]
    name = type(module).__name__
    if _READABLE in module.meta:
        made = captured_module(None, [Entry("forward", Graph(), module.meta[_READABLE])], name)
    else:
        made = GraphModule(nn.Module(), Graph(), name)
    known[id(module)] = made

    called = _called(module.graph.nodes)

    def converted(inner: nn.Module, path: str) -> nn.Module:
        if not isinstance(inner, torch.fx.GraphModule) or path not in called:
            return inner  # operators such as checkpoint's are given torch.fx's, and run them
        return known[id(inner)] if id(inner) in known else _from_fx(inner, known)

    _take_over(module, made, called, converted)
    for path in bodies_named(module.graph):
        made._modules.pop(path, None)  # which is in the graph now
    for attribute in _attributes(graph.all_nodes()):
        if not hasattr(made, attribute):
            setattr(made, attribute, getattr(module, attribute))
    made.meta.update({key: value for key, value in module.meta.items() if key not in (_READABLE, _HANDED_ON)})
    for number, hook in [*made._forward_pre_hooks.items()]:
        if isinstance(hook, _Expected):
            del made._forward_pre_hooks[number]
            graph.meta.update(hook.graph.meta)
            _expect_modes(graph, hook.modes)
    made.graph = graph
    graph.lint()
    return made


# ---- guards


def _expect_modes(graph: Graph, modes: Mapping[str, bool]) -> None:
    """Have a graph look at the training flags that have decided branches which it does not have."""
    after = graph.placeholders()
    with graph.inserting_before(after[-1].next if after else next(iter(graph.nodes))):
        for path, mode in modes.items():
            flag = graph.create_node("get_attr", f"{path}.training".lstrip("."), (), {})
            graph.call_function(expect, (flag, mode, "the mode that it was given to torch.fx in"))


class _Expected:
    """A pre-hook of torch.fx's module: what the capture took for granted of modules is looked at in each call.

    `modes` are the training flags, by path, that decide branches which torch.fx's graph does not have.
    """

    def __init__(self, graph: Graph, modes: dict[str, bool]) -> None:
        self.graph, self.modes = graph, modes
        self._bound: Bound | None = None

    def __call__(self, module: nn.Module, args: Any) -> None:
        for path, mode in self.modes.items():
            if module.get_submodule(path).training is not mode:
                raise GuardError(
                    f"{path or 'the module'} is in {'training' if not mode else 'evaluation'} mode; the program was "
                    f"given to torch.fx in {'training' if mode else 'evaluation'} mode, which decides its branches",
                    fix=f"give it to torch.fx in that mode: graphwright.to_fx(gm.{'eval' if mode else 'train'}())",
                )
        if not torch.compiler.is_compiling() and (self._bound is None or not self._bound.holds()):
            self._bound = bound(module, self.graph, facts_of_modules(self.graph))

    def look_at(self, module: torch.fx.GraphModule) -> None:
        """Look at each call of a module, and of its deep copies, to which torch.fx hands no hooks."""
        if not any(isinstance(hook, _Expected) for hook in module._forward_pre_hooks.values()):
            module.register_forward_pre_hook(self)
        if not hasattr(module, "_deepcopy_hooks"):  # older releases hand on what stands there
            module.meta[_HANDED_ON] = {"_forward_pre_hooks": module._forward_pre_hooks}
        elif self.look_at not in module._deepcopy_hooks:
            module._register_deepcopy_hook(self.look_at)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Expected:
        return type(self)(self.graph, self.modes)

    def __reduce__(self) -> Any:
        return type(self), (self.graph, self.modes)


# ---- modules


def _called(nodes: Iterable[Any]) -> set[str]:
    return {str(node.target) for node in nodes if node.op == "call_module"}


def _attributes(nodes: Iterable[Any]) -> list[str]:
    """What nodes read of the module itself."""
    return list(dict.fromkeys(str(node.target).partition(".")[0] for node in nodes if node.op == "get_attr"))


def _take_over(source: nn.Module, target: nn.Module, called: set[str], converted: Any) -> None:
    """Give a new module what another one has: the same tensors and called modules, in other containers."""
    known: dict[int, nn.Module] = {}

    def copied(module: nn.Module, path: str) -> nn.Module:
        module = converted(module, path)
        if path in called or not module._modules or isinstance(module, GraphModule | torch.fx.GraphModule):
            return module
        if id(module) not in known:
            other = known[id(module)] = object.__new__(type(module))
            other.__dict__.update(module.__dict__)
            fill(module, other, f"{path}.")
        return known[id(module)]

    def fill(module: nn.Module, other: nn.Module, prefix: str) -> None:
        for table in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
            other.__dict__[table] = module.__dict__[table].copy()
        inner = {name: child and copied(child, f"{prefix}{name}") for name, child in module._modules.items()}
        other.__dict__["_modules"] = type(module._modules)(inner)

    fill(source, target, "")
    target.training = source.training
    for table, value in nn.Module().__dict__.items():
        if "hooks" in table and isinstance(value, dict):  # of which some are called with keywords
            target.__dict__[table] = source.__dict__[table].copy()


# ---- code


_FxBoxedCodeGen: Any = getattr(torch.fx.graph, "_BoxedCodeGen", None)  # not in all releases


def _fx_writer(graph: Graph) -> FxCodeGen:
    boxed: dict[type, Any] = {} if _FxBoxedCodeGen is None else {BoxedCodeGen: _FxBoxedCodeGen}
    return _as_writer(graph._codegen, {CodeGen: FxCodeGen, **boxed, PyTreeCodeGen: _fx_pytree})  # type: ignore[attr-defined,no-any-return]


def _writer(writer: FxCodeGen) -> CodeGen:
    return _as_writer(writer, {FxCodeGen: CodeGen, _FxBoxedCodeGen: BoxedCodeGen, _PyTreeCodeGen: _pytree})  # type: ignore[no-any-return]


def _as_writer(writer: Any, others: dict[type, Callable[..., Any]]) -> Any:
    """What the other system has for what writes a graph as code."""
    make = others.get(type(writer))
    if make is None:
        raise ExportError(
            f"the graph is written as code by a {type(writer).__qualname__}, which the other system does not have",
            fix="give the graph an ordinary one before: graph.set_codegen(CodeGen())",
        )
    return make(*writer.pytree_info) if hasattr(writer, "pytree_info") else make()


def _fx_pytree(*info: Any) -> FxCodeGen:
    return _PyTreeCodeGen(_PyTreeInfo(*info))


def _pytree(*info: Any) -> CodeGen:
    return PyTreeCodeGen(PyTreeInfo(*info))

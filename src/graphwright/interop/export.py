"""Captured modules as torch.export's programs: branches and loops on data become torch's higher-order operators."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from graphwright.analysis import state_kept
from graphwright.capture import erase_unused, symbolic_trace
from graphwright.errors import ExportError, GraphwrightError
from graphwright.interop.calm import calmly, without_graphs
from graphwright.interop.export_regions import Exporting
from graphwright.interop.fx import from_fx
from graphwright.interop.fx_graphs import read_nodes
from graphwright.interop.fx_signatures import nest
from graphwright.interop.keeping import Guards, check_outside, frozen_attributes, warn_of_frozen, with_guards
from graphwright.interop.lower.appended_lists import collect_appended
from graphwright.interop.modes import without_idle_dropouts
from graphwright.interop.patience import TooComplicated, patience_for
from graphwright.ir import Graph, Node
from graphwright.runtime import GraphModule, graph_of


def save_export(program: ExportedProgram, path: str | os.PathLike[str]) -> None:
    """Write an exported program to a file, as `torch.export.save` does."""
    torch.export.save(program, path)


def to_export(
    module: GraphModule,
    args: tuple[Any, ...] | torch.Tensor,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    no_grad: bool = True,
    guards: Guards = "keep",
) -> ExportedProgram:
    """Export a captured module; `args` and `kwargs` are example inputs, a lone tensor counting as a tuple of one.

    Branches on data become `torch.ops.higher_order.cond`, loops `while_loop`. `dynamic_shapes` is as for
    `torch.export.export`; without it every size of a tensor is dynamic that no guard and no operation fixes, but
    for those that are 0 or 1 in the example, which torch.export fixes; where it refuses that, or sympy takes too long
    for such sizes, the first of each tensor stays open, or none, with a warning. Guards on sizes become conditions of
    the program; what is taken for granted of other inputs is what torch.export checks of them; `guards="drop"` leaves
    guards out. What is taken for granted of modules and global names is checked now, and a warning names the
    numbers and objects that are constants of the exported program, and that the captured one reads of its modules
    in each call. With `no_grad` what is computed is not differentiable, as loops need it. Raises ExportError, with
    the user's line, for what the operators cannot say.

    >>> import graphwright
    >>> gm = graphwright.trace(lambda x: x * 2 if x.sum() > 0 else x, torch.ones(3))
    >>> to_export(gm, torch.ones(3)).module()(-torch.ones(5))
    tensor([-1., -1., -1., -1., -1.])
    """
    given, named = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    module = without_idle_dropouts(with_guards(module, guards))
    check_outside(module)
    choices = _open_sizes(module, given, named) if dynamic_shapes is None else {"asked for": dynamic_shapes}
    with torch.set_grad_enabled(torch.is_grad_enabled() and not no_grad):
        exported = _exported(module, given, named, choices)
    lost = [name for name, value in exported.constants.items() if isinstance(value, torch.Tensor) and is_fake(value)]
    if lost:
        raise ExportError(
            f"torch.export has lost how {len(lost)} values are computed, and made them constants",
            at=type(module).__name__,
            fix="keep what differentiates or transforms inside the program in a leaf function",
        )
    warn_of_frozen(frozen_attributes(module, graph_of(module).all_nodes()), "the exported program")
    return exported


def _exported(
    module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any], choices: Mapping[str, Any]
) -> ExportedProgram:
    """Export a program with the first dynamic shapes of some that torch.export takes; their words are for a warning."""
    refusal: tuple[ExportError, Exception] | None = None
    *_, last = choices
    for words, dynamic_shapes in choices.items():
        runs: list[Exporting] = []
        patience = None if words == last else patience_for(graph_of(module))
        try:
            with patience or contextlib.nullcontext(), state_kept(module, module), calmly(), without_graphs():
                exported = torch.export.export(
                    _program(module, runs), args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
                )
        except ExportError:
            raise
        except Exception as error:
            cause = next((each for each in (error.__cause__, error.__context__) if isinstance(each, ExportError)), None)
            if cause is not None:
                raise cause from error
            refusal = refusal or (_said_by_torch(error, runs[-1].node if runs else None), error)
        else:
            if refusal is not None:
                text = f"{refusal[0].message}\n  so {words} open"
                warnings.warn(text, UserWarning, stacklevel=3)
            return exported
    assert refusal is not None
    raise refusal[0] from refusal[1]


def _said_by_torch(error: Exception, node: Node | None) -> ExportError:
    kind = "" if isinstance(error, TooComplicated) else f"{type(error).__name__}: "
    reason = f"{kind}{str(error).strip().partition(chr(10))[0]}"
    return ExportError(
        f"torch.export cannot take the program: {reason}",
        at=None if node is None else node.origin or node.name,
        fix='capture it with target="export", keep that in a leaf function, or export another part of the model',
    )


def from_export(program: ExportedProgram, unflatten: bool = True) -> GraphModule:
    """Give a program of torch.export as a captured module: operators of ATen, its state_dict, and its checks of inputs.

    `torch.cond` and `while_loop` become branches and loops. With `unflatten` the modules of the original are there
    again, each a captured module of its own, where the program has no branches and loops; otherwise there is one graph.
    Raises ExportError for a module that is called several times and is another program each time.

    >>> exported = torch.export.export(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (torch.ones(1, 2),))
    >>> gm = from_export(exported)
    >>> [node.target for node in gm.graph.nodes if node.op == "call_module"], [*gm.state_dict()]
    (['0', '1'], ['0.weight', '0.bias'])
    >>> gm(torch.ones(1, 2)).shape
    torch.Size([1, 3])
    """
    given: object = program
    if not isinstance(given, torch.export.ExportedProgram):
        fix = "export it by torch.export first, or capture it here: graphwright.trace(model, args)"
        raise ExportError(f"a {type(given).__name__} is no program of torch.export", fix=fix)
    flat = program.module()
    assert isinstance(flat, torch.fx.GraphModule)
    # torch's unflattening removes operators with graphs whose results nobody reads, whatever they write
    has_regions = any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in flat.graph.nodes)
    gm = _unflattened(flat, program) if unflatten and not has_regions else from_fx(flat)
    gm.training = False
    if _write_checks(gm) and not _takes_modules(program):
        for table in [table for name, table in vars(gm).items() if name.startswith("_forward") and "hooks" in name]:
            table.clear()  # of torch.export's, which do nothing else
    else:
        for number, hook in flat._forward_pre_hooks.items():
            gm._forward_pre_hooks[number] = _of_module(hook, flat)  # it reads attributes of its own module
        gm._forward_pre_hooks_with_kwargs.update(flat._forward_pre_hooks_with_kwargs)
    erase_unused(graph_of(gm))
    return gm


def _write_checks(gm: GraphModule) -> bool:
    """Write what the module with torch.export's checks does into the graph, in the place of its call.

    Answers whether that was possible: there was such a module, whose code says no more than what sizes and numbers are.
    """
    graph = graph_of(gm)
    call = next((node for node in graph.nodes if node.op == "call_module" and node.target == _CHECKS), None)
    if call is None:
        return False
    names = [f"leaf_{i}" for i in range(len(call.args))]
    given = ", ".join(names)
    checks = eval(f"lambda checks: lambda {given}: checks({given})")(gm.get_submodule(_CHECKS).forward)
    try:
        traced = symbolic_trace(checks)
    except GraphwrightError:
        return False
    with graph.inserting_before(call):
        graph.graph_copy(traced.graph, dict(zip(traced.graph.placeholders(), call.args, strict=True)))
    graph.erase_node(call)
    gm.delete_submodule(_CHECKS)
    return True


_CHECKS = "_guards_fn"


def _takes_modules(program: ExportedProgram) -> bool:
    """Tell whether inputs of a program are modules, which torch's hooks register for a call."""
    return any(isinstance(each, nn.Module) for each in pytree.tree_leaves(program.example_inputs))


def _of_module(hook: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    return lambda _, *given: hook(module, *given)


def _unflattened(flat: torch.fx.GraphModule, program: ExportedProgram) -> GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch's own use of pytrees
        nested = torch.export.unflatten(program)
    gm = _captured(nested, type(flat).__name__)
    graph = graph_of(gm)
    if _CHECKS in flat._modules:
        gm._modules[_CHECKS] = flat._modules[_CHECKS]
        leaves = graph.placeholders()
        with graph.inserting_after(leaves[-1]) if leaves else graph.inserting_before():
            graph.create_node("call_module", _CHECKS, tuple(leaves))
    nest(graph, *flat.graph._codegen.pytree_info)  # type: ignore[attr-defined]
    return gm


def _captured(module: nn.Module, name: str, wanted: frozenset[str] = frozenset()) -> GraphModule:
    """A module of an unflattened program as a captured one, and so those inside it; `wanted` are paths named around."""
    graph, made = Graph(), GraphModule(nn.Module(), Graph(), name)
    read_nodes(module.graph.nodes, graph, module)  # type: ignore[union-attr, arg-type]
    for table in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
        made.__dict__[table] = module.__dict__[table].copy()
    named = {str(node.target) for node in graph.all_nodes() if node.op in ("call_module", "get_attr")} | wanted
    for path, child in module.named_children():
        if hasattr(child, "_call_modules"):
            raise ExportError(
                f"{path} is called several times, and is another program each time",
                fix="take one graph for all of it: from_export(program, unflatten=False)",
            )
        if isinstance(getattr(child, "graph", None), torch.fx.Graph):
            kind = str(getattr(child, "_ty", None) or type(child).__name__).rpartition(".")[2]
            inside = frozenset(each.removeprefix(f"{path}.") for each in named if each.startswith(f"{path}."))
            child = _captured(child, kind, inside)
        if child._parameters or child._buffers or any(f"{each}.".startswith(f"{path}.") for each in named):
            made._modules[path] = child  # and not the body of a branch, which is in the graph now
    for read in graph.find_nodes(op="get_attr"):
        constant = str(read.target)
        if "." not in constant and not hasattr(made, constant):
            setattr(made, constant, getattr(module, constant))
    made.graph = graph
    return made


def _program(module: GraphModule, runs: list[Exporting]) -> nn.Module:
    """The module as torch.export runs it: its graph node by node, branches and loops as operators."""
    signature = inspect.signature(module.forward)
    program = copy.copy(module)
    graph_of(module)  # refuses several entry points
    collect_appended(program)

    def forward(*args: Any, **kwargs: Any) -> Any:
        runs.append(Exporting(program))  # whose tensors torch.export replaces
        return runs[-1].run(*args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    program.__dict__["forward"] = forward
    return program


def _open_sizes(module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Dynamic shapes with all sizes of tensors open that the program lets be so, with the first ones, or with none."""
    bound = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)

    def opened(first: Any, others: Any) -> Any:
        return pytree.tree_map(
            lambda leaf: [first, *[others] * leaf.dim()][: leaf.dim()] if isinstance(leaf, torch.Tensor) else None,
            bound,
        )

    return {
        "all sizes are": opened(Dim.AUTO, Dim.AUTO),
        "the first size of each tensor is": opened(Dim.AUTO, Dim.STATIC),
        "no size is": opened(Dim.STATIC, Dim.STATIC),
    }

"""Captured modules as torch.export's programs: branches and loops on data become torch's higher-order operators."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.interop.export_regions import Exporting
from graphwright.runtime import GraphModule, graph_of

__all__ = ["to_export"]


def to_export(
    module: GraphModule,
    args: tuple[Any, ...] | torch.Tensor,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    no_grad: bool = True,
) -> ExportedProgram:
    """Export a captured module; `args` and `kwargs` are example inputs, a lone tensor counting as a tuple of one.

    Branches on data become `torch.ops.higher_order.cond`, loops `while_loop`. `dynamic_shapes` is as for
    `torch.export.export`; without it every size of a tensor is dynamic that no guard and no operation fixes. Guards on
    sizes become conditions of the program; what is taken for granted of other inputs is what torch.export checks of
    them. With `no_grad` what is computed is not differentiable, as loops need it. Raises ExportError, with the user's
    line, for what the operators cannot say.

    >>> import graphwright
    >>> gm = graphwright.trace(lambda x: x * 2 if x.sum() > 0 else x, torch.ones(3))
    >>> to_export(gm, torch.ones(3)).module()(-torch.ones(5))
    tensor([-1., -1., -1., -1., -1.])
    """
    given, named = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    if dynamic_shapes is None:
        dynamic_shapes = _all_dynamic(module, given, named)
    runs: list[Exporting] = []
    program = _program(module, runs)
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not no_grad):
            exported = torch.export.export(program, given, named, dynamic_shapes=dynamic_shapes, strict=False)
    except ExportError:
        raise
    except Exception as error:
        cause = next((each for each in (error.__cause__, error.__context__) if isinstance(each, ExportError)), None)
        if cause is not None:
            raise cause from error
        node = runs[-1].node if runs else None
        raise ExportError(
            f"torch.export cannot take the program: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
            at=None if node is None else node.origin or node.name,
            fix='capture it with target="export", keep that in a leaf function, or export another part of the model',
        ) from error
    lost = [name for name, value in exported.constants.items() if isinstance(value, torch.Tensor) and is_fake(value)]
    if lost:
        raise ExportError(
            f"torch.export has lost how {len(lost)} values are computed, and made them constants",
            at=type(module).__name__,
            fix="keep what differentiates or transforms inside the program in a leaf function",
        )
    return exported


def _program(module: GraphModule, runs: list[Exporting]) -> nn.Module:
    """The module as torch.export runs it: its graph node by node, branches and loops as operators."""
    signature = inspect.signature(module.forward)
    program = copy.copy(module)
    graph_of(module)  # refuses several entry points

    def forward(*args: Any, **kwargs: Any) -> Any:
        runs.append(Exporting(program))  # whose tensors torch.export replaces
        return runs[-1].run(*args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    program.__dict__["forward"] = forward
    return program


def _all_dynamic(module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Say of every size of every tensor that it is dynamic where the program lets it be."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return pytree.tree_map(_sizes, dict(bound))


def _sizes(leaf: Any) -> Any:
    return [Dim.AUTO] * leaf.dim() if isinstance(leaf, torch.Tensor) else None

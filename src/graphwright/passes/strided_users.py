"""Whether what reads a value cares in which order its elements lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.ops import functional_form, gives_fresh_value, is_inplace, is_region, operator_of

__all__ = ["reads_any_layout", "reshape_views"]

ModuleOf = Callable[[Node], "nn.Module | None"]

# What asks for strides or memory, or takes a tensor as its memory lies.
_ASKS = frozenset({
    "stride", "is_contiguous", "storage_offset", "data_ptr", "untyped_storage", "storage", "as_strided", "view_as",
    "numpy", "_base", "_is_view", "is_set_to", "view_as_real", "view_as_complex", "builtins.getattr", "layout", "data",
    "__array__", "__dlpack__", "_version", "storage_type", "dim_order",
})  # fmt: skip


def reads_any_layout(value: Node, module_of: ModuleOf) -> bool:
    """Tell whether nobody can see that a value has other strides than it had, or shares its memory with others.

    That is so where it is only read by known operations that compute values of their own, and where its views are;
    `view` of sizes counts, as `reshape_views` makes it a `reshape`. Not so where the program gives the value back.
    """
    return all(_is_harmless(user, module_of) for user in _readers(value, module_of))


def reshape_views(value: Node, module_of: ModuleOf) -> None:
    """Make `view` of a value, and of its views, `reshape`: the same for those that can be viewed, and a copy else."""
    for user in list(_readers(value, module_of)):
        if _is_view_of_sizes(user):
            user.target = "reshape"


def _readers(value: Node, module_of: ModuleOf) -> Iterator[Node]:
    """What reads a value or a view of it."""
    waiting, seen = [value], {value}
    while waiting:
        for user in waiting.pop().users:
            if user in seen:
                continue
            seen.add(user)
            yield user
            if user.op != "output" and not gives_fresh_value(user, module_of):
                waiting.append(user)


def _is_harmless(user: Node, module_of: ModuleOf) -> bool:
    if user.op == "output" or is_region(user):
        return False
    if user.op == "call_module":
        module = module_of(user)
        form = None if module is None else functional_form(module)
        return form is not None and not form.values.get("inplace")
    operator = operator_of(user)
    if operator is None or operator.acts or operator.key in _ASKS or is_inplace(user):
        return False
    return operator.key != "view" or _is_view_of_sizes(user)


def _is_view_of_sizes(user: Node) -> bool:
    return (
        user.op == "call_method"
        and user.target == "view"
        and not user.kwargs
        and not any(isinstance(arg, torch.dtype) for arg in user.args)
    )

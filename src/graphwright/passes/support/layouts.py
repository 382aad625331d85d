"""In which order the elements of a tensor lie in memory, and whether what reads it can see that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from graphwright.ir import Node
from graphwright.ops import (
    functional_form,
    gives_fresh_value,
    is_inplace,
    is_region,
    module_called,
    operator_of,
    sources_of,
)
from graphwright.passes.support.tensor_facts import made_by, noted
from graphwright.runtime import is_guard

_FAR = 64  # so many operations are looked at
# What asks for strides or memory, or takes a tensor as its memory lies.
ASKING_FOR_LAYOUT = frozenset({
    "stride", "is_contiguous", "storage_offset", "data_ptr", "untyped_storage", "storage", "as_strided", "view_as",
    "numpy", "_base", "_is_view", "is_set_to", "view_as_real", "view_as_complex", "builtins.getattr", "layout", "data",
    "__array__", "__dlpack__", "_version", "storage_type", "dim_order",
})  # fmt: skip
# What gives tensors without gaps in the order of their dimensions, wherever the elements of their inputs lie.
_CONTIGUOUS = frozenset({"linear", "mm", "bmm", "addmm", "baddbmm", "nn.Linear"})
_NO_TENSORS = frozenset({"size", "dim", "numel", "item", "dtype", "device"})
_MOVED = frozenset({"transpose", "permute", "mT"})
_SPREADING = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})
_IN_THE_SAME_ORDER = frozenset({  # as what they read
    "add", "sub", "mul", "div", "where", "masked_fill", "maximum", "minimum", "to", "type", "type_as", "dropout",
    "softmax", "neg", "relu", "gelu", "silu", "tanh", "sigmoid", "exp", "clone", "detach", "layer_norm", "rms_norm",
    "normalize", "flip", "roll", "pow", "rsqrt", "sqrt", "log", "clamp", "abs", "cos", "sin", "cumsum",
})  # fmt: skip


# ---- how a value lies


def memory_format_of(value: object) -> torch.memory_format | None:
    """In which known order the elements of a tensor lie, where that is certain.

    >>> from graphwright import symbolic_trace
    >>> [memory_format_of(node) for node in symbolic_trace(lambda x: x.bmm(x).mT).graph.nodes]
    [None, torch.contiguous_format, None, None]
    """
    call = made_by(value)
    if call is not None and call.key in _CONTIGUOUS:
        return torch.contiguous_format
    known = call.arguments["memory_format"] if call is not None and call.key == "contiguous" else None
    known = known or noted(value, "memory_format")
    return known if isinstance(known, torch.memory_format) else None


def is_dense(value: Node) -> bool:
    """Tell whether the elements certainly lie in memory without gaps, as those of a copy would."""
    shape, stride = noted(value, "shape"), noted(value, "stride")
    if shape is not None and isinstance(stride, tuple) and len(stride) == len(shape):
        return _lies_densely(shape, stride)
    return value.op not in ("placeholder", "get_attr") and _is_new(value)


def is_spread(value: Any) -> bool:
    """Tell whether one element in memory may be several of a value: there its dimensions have no order."""
    for _ in range(_FAR):
        if value.op in ("placeholder", "get_attr") or _is_new(value):
            return False
        call = made_by(value)
        value = None if call is None or call.key in _SPREADING else call.arguments.get("input")
        if not isinstance(value, Node):
            return True
    return True


def _is_new(value: Node) -> bool:
    return sources_of(value, module_called) == {value}


def _lies_densely(shape: Any, stride: Any) -> bool:
    """Tell whether sizes and strides leave no gaps and share no elements."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


# ---- who sees it


def is_layout_hidden(value: Node, at_once: bool = False) -> bool:
    """Tell whether nobody sees where in memory the elements of a value lie, in what is computed from it either.

    With `at_once`, it is enough that what reads it makes values of its own.
    """
    seen: set[Node] = set()
    waiting = [value]
    while waiting:
        for user in waiting.pop().users:
            operator = operator_of(user)
            if is_guard(user) or (operator is not None and operator.key in _CONTIGUOUS | _NO_TENSORS):
                continue
            if user.op == "output" or operator is None or operator.key in ASKING_FOR_LAYOUT or len(seen) > _FAR:
                return False
            if not _is_new(user):
                return False
            if user not in seen and not at_once:
                seen.add(user)
                waiting.append(user)
    return True


def forgets_layout(value: Node, moved: bool = False) -> bool:
    """Tell whether all that reads a value, or its transposition, copies it: its order in memory is lost at once.

    A `reshape` copies what has been transposed; of another value it may be a view.
    """
    return all(_copies(user, moved) for user in value.users)


def _copies(user: Node, moved: bool) -> bool:
    operator = operator_of(user)
    key = None if operator is None else operator.key
    if key in _MOVED:
        return not moved and forgets_layout(user, moved=True)
    return key in _CONTIGUOUS | _NO_TENSORS | {"contiguous", "matmul"} or (moved and key in ("reshape", "flatten"))


def is_viewed_after_moving(value: Node, moved: bool = False, depth: int = 4) -> bool:
    """Tell whether a reader may take a `view` that a value has only because its dimensions lie in a certain order."""
    for user in value.users if depth else ():
        operator = operator_of(user)
        key = None if operator is None else operator.key
        if key in ("view", "view_as", "as_strided") and moved:
            return True
        if key in _MOVED | _IN_THE_SAME_ORDER and is_viewed_after_moving(user, moved or key in _MOVED, depth - 1):
            return True
    return False


def reads_any_layout(value: Node) -> bool:
    """Tell whether nobody can see that a value has other strides than it had, or shares its memory with others.

    That is so where it is only read by known operations that compute values of their own, and where its views are;
    `view` of sizes counts, as `reshape_views` makes it a `reshape`. Not so where the program gives the value back.
    """
    return all(_is_harmless(user) for user in _readers(value))


def reshape_views(value: Node) -> None:
    """Make `view` of a value, and of its views, `reshape`: the same for those that can be viewed, and a copy else."""
    for user in list(_readers(value)):
        if _is_view_of_sizes(user):
            user.target = "reshape"


def _readers(value: Node) -> Iterator[Node]:
    """What reads a value or a view of it."""
    waiting, seen = [value], {value}
    while waiting:
        for user in waiting.pop().users:
            if user in seen:
                continue
            seen.add(user)
            yield user
            if user.op != "output" and not gives_fresh_value(user, module_called):
                waiting.append(user)


def _is_harmless(user: Node) -> bool:
    if user.op == "output" or is_region(user):
        return False
    if user.op == "call_module":
        module = module_called(user)
        form = None if module is None else functional_form(module)
        return form is not None and not form.values.get("inplace")
    operator = operator_of(user)
    if operator is None or operator.acts or operator.key in ASKING_FOR_LAYOUT or is_inplace(user):
        return False
    return operator.key != "view" or _is_view_of_sizes(user)


def _is_view_of_sizes(user: Node) -> bool:
    return (
        user.op == "call_method"
        and user.target == "view"
        and not user.kwargs
        and not any(isinstance(arg, torch.dtype) for arg in user.args)
    )

"""A captured module whose code has another form than its graph, with the program as it stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from graphwright.runtime.entries import Entry, Form
from graphwright.runtime.graph_module import GraphModule, _adopt, _instance_class, _state
from graphwright.runtime.members.attributes import free_path
from graphwright.runtime.members.shells import Shells
from graphwright.runtime.state import State

__all__ = ["in_form"]


def in_form(module: GraphModule, form: Callable[[str], Form], beside: str) -> GraphModule:
    """Copy a captured module, and have a form write the code of each of its entry points.

    The copy has a second tree of the same modules, and shares their parameters and buffers. Its entry point `forward`
    is there as it stands, too, under the name `forward_{beside}`, which the form is made with.
    """
    kind = type(module)
    copied = cast(
        GraphModule, Shells(module, root_class=_instance_class(kind.__name__, kind.__bases__, kind._extra)).root
    )
    copied.__dict__.pop("_compiled_call_impl", None)  # of the other module
    before = _state(module)
    state = State(before.graph, before.is_readable, before.original, dict(before.meta), before.hooks.copy())
    state.is_lazy = before.is_lazy
    memo: dict[int, object] = {}
    for name, entry in before.entries.items():
        made = state.entries[name] = entry.__deepcopy__(memo)
        other = free_path(module, f"{name}_{beside}")
        state.entries[other] = Entry(other, made.graph, made.signature)
        made.form = form(other)
    _adopt(copied, state)
    return copied

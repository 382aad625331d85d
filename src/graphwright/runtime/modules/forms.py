"""A captured module whose code has another form than its graph, with the program as it stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from graphwright.runtime.entries import Entry, Form
from graphwright.runtime.graph_module import GraphModule, _adopt, _instance_class, _state
from graphwright.runtime.members.attributes import free_path
from graphwright.runtime.members.shells import Shells
from graphwright.runtime.state import State

NOTED_BY_FORMS = frozenset({"optimized_for_inference"})


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


def without_forms(module: GraphModule) -> GraphModule:
    """Copy a captured module, with the code of its graphs as they stand; modules in forms have others beside these.

    The copy shares parameters and buffers. What forms have noted in `meta` of the module is not in it.
    """
    kind, before = type(module), _state(module)
    copied = cast(GraphModule, Shells(module, root_class=_instance_class(kind.__name__, kind.__bases__, {})).root)
    copied.__dict__.pop("_compiled_call_impl", None)
    meta = {name: value for name, value in before.meta.items() if name not in NOTED_BY_FORMS}
    state = State(before.graph, before.is_readable, before.original, meta, before.hooks.copy())
    state.is_lazy = before.is_lazy
    forms = {name: entry.form for name, entry in before.entries.items() if entry.form is not None}
    others = {form.beside for form in forms.values()}
    first = {form.beside: name for name, form in reversed(forms.items())}  # others are forms of the same program
    memo: dict[int, object] = {}
    for name, entry in before.entries.items():
        if name not in others and (name not in forms or first[forms[name].beside] == name):
            state.entries[name] = entry.__deepcopy__(memo)
            state.entries[name].form = None
    _adopt(copied, state)
    return copied

"""Contexts of torch that set what it keeps for the process, entered by a program: regions of the graph.

`with sdpa_kernel(SDPBackend.MATH):` changes no operation that a capture sees, and what a run gives. All contexts of a
few modules of torch are such, those of a newer torch too; a program that makes one has it recorded where it enters and
leaves it. Those of grad mode, autocast and inference mode are seen otherwise, and with examples those of hooks and
levels too (`calls/ambient.py`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend

from graphwright.capture.calls.ambient import entered
from graphwright.capture.outside.overheard import Heard, overhear, overhear_class
from graphwright.ops import enter_context, exit_context

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node

_ANOMALY = frozenset({"detect_anomaly", "set_detect_anomaly"})
# The modules whose contexts these are, with all of torch.backends.
_MODULES = (
    *("torch.autograd", "torch.autograd.anomaly_mode", "torch.autograd.forward_ad", "torch.autograd.grad_mode"),
    *("torch.autograd.graph", "torch.nn.attention", "torch.sparse"),
)
_SEEN_OTHERWISE = frozenset({"enable_grad", "inference_mode", "no_grad", "set_grad_enabled"})
# Those that a capture with examples sees by what they change; older releases do not tell of hooks.
_OF_HOOKS = frozenset({"save_on_cpu", "saved_tensors_hooks"})
_TELLS_HOOKS = hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
WITHOUT_EXAMPLES = frozenset({"allow_mutation_on_saved_tensors", "dual_level", *(_OF_HOOKS if _TELLS_HOOKS else ())})
_OF_QUESTIONS = {"is_anomaly_enabled": _ANOMALY, "is_anomaly_check_nan_enabled": _ANOMALY}
# Those which set it when they are made.
_SETTING = frozenset({"enforce_grad_layout_policy", "set_detect_anomaly", "set_multithreading_enabled"})


class Entered(contextlib.ContextDecorator):
    """A context that the program has made: what it does is done while the program is captured, too.

    Unless another is given, of which that is done instead.
    """

    def __init__(self, call: Heard, context: contextlib.AbstractContextManager[Any] | None = None) -> None:
        self._recorder = recorder = call.recorder
        self._args = (call.function, *[_argument(recorder, arg) for arg in call.args])
        self._kwargs = {key: _argument(recorder, value) for key, value in call.kwargs.items()}
        self._node: Node | None = None
        self._context = call.original() if context is None else context
        if call.function.__name__ in _SETTING:
            self._enter()
            if recorder.typed is not None:
                recorder.plan.undo.append(self._leave)

    def _enter(self) -> None:
        if self._recorder.typed is not None:
            self._recorder.ambient.notice()
        name = self._args[0].__name__
        self._node = entered(self._recorder, self._args, self._kwargs, name)

    def _leave(self) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)
            self._context = None

    def __enter__(self) -> Any:
        if self._node is None:
            self._enter()
        return self._context.__enter__()

    def __exit__(self, *error: Any) -> Any:
        context, self._context = self._context, None
        is_ended = context.__exit__(*error)
        if self._recorder.pending is None:
            self._recorder.node("call_function", exit_context, (self._node,), {})
        return is_ended


def _argument(recorder: TypedCapture, value: Any) -> Any:
    """An argument of a context: backends of attention are made again of their numbers."""
    if isinstance(value, list | tuple | range | set | frozenset):
        return [_argument(recorder, item) for item in value]
    if isinstance(value, SDPBackend):
        return recorder.node("call_function", SDPBackend, (value.value,), {}, name="backend")
    return recorder.argument(value)


def is_set_around(recorder: TypedCapture, function: Callable[..., Any]) -> bool:
    """Tell whether what a function of torch asks for was set by the program: it is inside of such a context."""
    names = _OF_QUESTIONS.get(function.__name__, frozenset())
    nodes = [node for region in recorder.region.all() for node in region.graph.nodes] if names else []
    return any(
        node.target is enter_context
        and node.args[0].__name__ in names
        and not any(user.target is exit_context for user in node.users)
        for node in nodes
    )


def _made(call: Heard) -> Any:
    if call.recorder.typed is not None and is_seen_with_examples(call.function):
        return call.original()
    given = [arg for arg in (*call.args, *call.kwargs.values()) if isinstance(arg, FunctionType | MethodType)]
    if call.recorder.typed is not None and given and call.function.__name__ not in _OF_HOOKS:
        what = f"the program gives a function to {call.function.__name__}, which would call it while it is captured"
        fix = "enter it outside of the program, or keep the function that enters it as one node: leaf_functions=[...]"
        raise call.refused(what, fix)
    return Entered(call)


def is_seen_with_examples(original: Any) -> bool:
    """Tell whether a capture with examples sees what a context does, and need not hear that it is made."""
    return id(original) in _seen


_seen: set[int] = set()


@functools.cache
def watch_contexts() -> None:
    """Have it heard where a program makes one of these contexts."""
    for path in [*_MODULES, *(path for path in sys.modules if path.startswith("torch.backends"))]:
        module: Any = sys.modules.get(path)
        module = vars(module).get("m", module)  # of a module with properties, itself
        for name in contexts_of(module):
            made = vars(module)[name]
            if isinstance(made, type):
                overhear_class(module, name, _made, {})
            else:
                overhear(module, (name,), _made)
            if name in WITHOUT_EXAMPLES:
                _seen.add(id(made))


_MANAGER = contextlib.contextmanager(lambda: iter(())).__code__


def contexts_of(module: ModuleType) -> list[str]:
    """The names in a module of what makes contexts: classes of torch's, and functions made by `contextmanager`."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type | FunctionType)
        and name not in _SEEN_OTHERWISE
        and (hasattr(value, "__exit__") if isinstance(value, type) else value.__code__ is _MANAGER)
        and value.__module__.startswith((*_MODULES, "torch.backends"))
    ]

"""Contexts of torch that set what it keeps for the process, entered by a program: regions of the graph.

`with sdpa_kernel(SDPBackend.MATH):` changes no operation that a capture sees, and what a run gives. Each such context
is in a table below; a program that makes one has it recorded where it enters and leaves it. Those of grad mode,
autocast and inference mode are seen otherwise, and with examples those of hooks and levels too (`calls/ambient.py`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn.attention import SDPBackend

from graphwright.capture.outside.overheard import Heard, overhear, overhear_class
from graphwright.ops import enter_context, exit_context

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node

__all__ = ["CONTEXTS", "Entered", "is_seen_with_examples", "watch_contexts"]

_ANOMALY = frozenset({"detect_anomaly", "set_detect_anomaly"})
# By module: the functions and classes that make contexts.
CONTEXTS: dict[str, tuple[str, ...]] = {
    "torch.nn.attention": ("sdpa_kernel",),
    "torch.backends.cuda": ("sdp_kernel",),
    "torch.backends.cudnn": ("flags",),
    "torch.backends.mkldnn": ("flags",),
    "torch.autograd": ("detect_anomaly", "set_detect_anomaly", "set_multithreading_enabled"),
    "torch.autograd.anomaly_mode": ("detect_anomaly", "set_detect_anomaly"),
    "torch.autograd.graph": ("disable_saved_tensors_hooks",),
    "torch.autograd.grad_mode": ("set_multithreading_enabled",),
    "torch.sparse": ("check_sparse_tensor_invariants",),
}
# Those that a capture with examples sees by what they change.
WITHOUT_EXAMPLES: dict[str, tuple[str, ...]] = {
    "torch.autograd.forward_ad": ("dual_level",),
    "torch.autograd.graph": ("saved_tensors_hooks", "save_on_cpu"),
}
_OF_QUESTIONS = {"is_anomaly_enabled": _ANOMALY, "is_anomaly_check_nan_enabled": _ANOMALY}
_SETTING = frozenset({"set_detect_anomaly", "set_multithreading_enabled"})  # which set it when they are made


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
        self._node = self._recorder.node("call_function", enter_context, self._args, self._kwargs, name=name)

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
    is_seen = call.recorder.typed is not None and is_seen_with_examples(call.function)
    return call.original() if is_seen else Entered(call)


def is_seen_with_examples(original: Any) -> bool:
    """Tell whether a capture with examples sees what a context does, and need not hear that it is made."""
    return id(original) in _seen


_seen: set[int] = set()


@functools.cache
def watch_contexts() -> None:
    """Have it heard where a program makes one of these contexts."""
    for table in (CONTEXTS, WITHOUT_EXAMPLES):
        for path, names in table.items():
            module: Any = sys.modules.get(path)
            module = getattr(module, "m", module)  # of a module with properties, itself
            for name in names:
                made = getattr(module, name, None)  # which an older torch may lack
                if isinstance(made, type):
                    overhear_class(module, name, _made, {})
                elif made is not None:
                    overhear(module, (name,), _made)
                if table is WITHOUT_EXAMPLES:
                    _seen.add(id(made))

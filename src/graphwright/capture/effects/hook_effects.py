"""What the user's forward hooks change: it is put back, since a hook runs on examples while the program is captured.

The hooks of a layer that is one node run again whenever the captured program runs. Those that write to modules of the
program are the exception: what they write, the program may read, so that such a layer is entered.

A program may register hooks itself. Those that it leaves on a module are there in its next call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.effects.branch_state import State
from graphwright.capture.effects.class_uses import written_by
from graphwright.capture.state.plan import Restart
from graphwright.errors import CaptureError
from graphwright.runtime import HOOKS, inside_of
from graphwright.source import content_of

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.runtime import Shells


def hooks_of(module: nn.Module) -> list[Any]:
    """List the hooks on the forward of a module."""
    return [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def contained(
    recorder: TypedCapture, module: nn.Module, path: str, run: Callable[..., Any], may_enter: bool = True
) -> Callable[..., Any]:
    """Call a layer on examples without what its hooks change; one whose hooks write to the program is entered.

    Unless it `may_enter` none of them: then the program must not read what they wrote.
    """
    hooks = hooks_of(module)
    if not hooks or not path:
        return run

    @functools.wraps(run, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            effects = HookEffects(hooks)
        try:
            return run(*args, **kwargs)
        finally:
            with torch._C.DisableTorchFunction():
                is_changed = effects.put_back()
            if is_changed and recorder.shells is not None and any(_reaches(recorder.shells, hook) for hook in hooks):
                if may_enter:
                    restart = recorder.plan.enter(path, "whose hooks write to the program's modules")
                    raise recorder.questions.restart(restart)
                _expect_unread(recorder, recorder.shells, hooks, path)

    return call


_OF_FORWARD = ("_forward_pre_hooks", "_forward_hooks")
_FLAGS = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")

# Hooks that were registered: the path of the module, the table, the key in it, the hook, and the flags that it has.
Left = tuple[str, str, int, Callable[..., Any], tuple[str, ...]]


def hooks_left(shells: Shells) -> list[Left]:
    """List the hooks on modules of the program that it has registered; and those that it has removed of the others."""
    found = []
    for module, shell, path in shells.all():
        before, now = module.__dict__, shell.__dict__
        for table in HOOKS if shell is not module else ():
            for key, hook in now[table].items():
                if key not in before[table]:
                    found.append((path, table, key, hook, tuple([flag for flag in _FLAGS if key in now.get(flag, ())])))
    return found


def kinds_of(left: Sequence[Left]) -> list[tuple[str, str, object]]:
    """Where hooks are and what they run, which is the same in another run of the program."""
    return [(path, table, getattr(hook, "__code__", hook)) for path, table, _, hook, _ in left]


def expect_plain(recorder: TypedCapture, left: Sequence[Left], first: int, is_remembered: bool) -> None:
    """Refuse hooks that the program leaves and that its next call cannot be captured with.

    first: the key of the first that it could register. is_remembered: whether an attribute tells calls that find the
    hooks from the one that registers them.
    """
    for path, table, key, hook, _ in left:
        is_plain = table in _OF_FORWARD and all(isinstance(value, _PLAIN) for value in _known_to(hook))
        if key >= first and is_remembered and is_plain:
            continue
        what, fix = "leaves a hook on", "remove the hook in the call that registers it"
        if key < first:
            what, fix = "removes a hook of", "remove it outside of the forward"
        error = CaptureError(
            f"the program {what} {f'self.{path}' if path else 'itself'}, so that its next call does something else",
            fix=f"{fix}, or call the model once before it is captured",
        )
        recorder.questions.refusals.refuse(error, "failure")


_PLAIN = (str, int, float, bool, type, type(None), FunctionType)


def install(shells: Shells, left: Sequence[Left]) -> None:
    """Put hooks on the modules of a program that an earlier call has left there."""

    def put(module: nn.Module, shell: nn.Module, path: str) -> None:
        for where, table, key, hook, flags in left:
            if where == path:
                shell.__dict__[table][key] = hook
                for flag in flags:
                    shell.__dict__[flag][key] = True

    shells.each(put)


def writes_later(recorder: TypedCapture, owner: nn.Module, path: str, function: Callable[..., Any]) -> frozenset[str]:
    """The attributes of a module that a function writes which the program does not call itself.

    From here on only what the program reads of them counts as read.
    """
    names, later = written_by(type(owner), function), recorder.plan.written_later
    found = {(path, name) for name in names} - later
    if found:
        later |= found
        raise recorder.questions.restart(Restart("torch is given a function that writes attributes"))
    return names


def _expect_unread(recorder: TypedCapture, shells: Shells, hooks: list[Any], layer: str) -> None:
    """Have the capture refuse a program that reads what hooks of a layer have written which it cannot look into."""
    for hook in hooks:
        owner = hook.__self__ if isinstance(hook, MethodType) else None
        path = shells.path(owner) if isinstance(owner, nn.Module) else None
        if path is not None:
            names = writes_later(recorder, hook.__self__, path, hook.__func__)
            recorder.at_end.append(functools.partial(_check_unread, recorder, path, names, layer, recorder.where()))


def _check_unread(recorder: TypedCapture, path: str, names: frozenset[str], layer: str, at: str | None) -> None:
    read = names & recorder.ledger.module(path).get("values", {}).keys()
    if read:
        raise CaptureError(
            f"the program reads {min(read)!r}, which a hook of {layer} writes; hooks on its backward keep it one node",
            at=at,
            fix="have the program itself keep what the layer gives",
        )


class HookEffects:
    """What hooks could change, as it was; modules, which the capture itself keeps, only `with_modules`.

    Handles that the program has remove hooks from the tables of the modules themselves.
    """

    def __init__(self, hooks: list[Any], with_modules: bool = True, tables: Sequence[dict[int, Any]] = ()) -> None:
        self._state = State((), (), ())
        for table in tables:
            self._state.watch(table)
        for value in (value for hook in hooks for value in _known_to(hook)):
            if with_modules or not isinstance(value, nn.Module):
                self._state.watch(value)
        self._before = self._state.read()

    def put_back(self) -> bool:
        """Put everything back; tell whether anything had changed."""
        is_changed = self._state.has_changed(self._before)
        self._state.restore()
        return is_changed


def _known_to(hook: Callable[..., Any]) -> Iterator[Any]:
    """Iterate over what a hook is, is bound to or called with, closes over, or may find in its global variables."""
    if isinstance(hook, functools.partial):
        yield from (*hook.args, *hook.keywords.values())
        yield from _known_to(hook.func)
        return
    inner: Any = hook.__func__ if isinstance(hook, MethodType) else hook
    yield getattr(hook, "__self__", None)
    if not isinstance(inner, FunctionType | BuiltinFunctionType | type):  # an object that can be called
        yield from (inner, *inside_of(inner).values())
        inner = getattr(type(inner), "__call__", None)  # noqa: B004 - its function
    if isinstance(inner, FunctionType):
        yield from map(content_of, inner.__closure__ or ())
        for name in inner.__code__.co_names:
            if type(inner.__globals__.get(name)) in (list, dict, set):
                yield inner.__globals__[name]


def _reaches(shells: Shells, hook: Callable[..., Any]) -> bool:
    """Tell whether a hook knows a module of the program."""
    return any(isinstance(value, nn.Module) and shells.path(value) is not None for value in _known_to(hook))

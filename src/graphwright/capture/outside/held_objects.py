"""Plain objects that a program holds: what a program writes to them is refused, or said, and never left in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.effects.hook_effects import HookEffects, hooks_of
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.errors import CaptureError

if TYPE_CHECKING:
    from graphwright.runtime import Shells

__all__ = ["HeldObjects"]

_DEPTH = 3
_MODULE_TABLES = frozenset({*nn.Module().__dict__, "_compiled_call_impl", "_apply"})
_ATOMS = frozenset({int, float, bool, str, bytes, complex, type(None), type})


class HeldObjects:
    """What the objects in the attributes of modules, and the one that a function belongs to, hold as a pass starts."""

    def __init__(self, shells: Shells | None, function: Callable[..., Any]) -> None:
        self._found: list[tuple[str, Any, Any]] = []
        self._seen: set[int] = set()
        hooks = [] if shells is None else [hook for module, _ in shells.all() for hook in hooks_of(module)]
        self._hooks = HookEffects(hooks, with_modules=False)
        owner = getattr(function, "__self__", function)
        if is_plain_object(owner):
            self._note(type(owner).__name__, owner, 0)
        if shells is None:
            return
        for module, shell in shells.all():
            path = shells.path(module)
            for name, value in shell.__dict__.items():
                if name not in _MODULE_TABLES and type(value) not in _ATOMS and is_plain_object(value):
                    self._note(f"{path}.{name}" if path else name, value, 0)

    def _note(self, path: str, value: Any, depth: int) -> None:
        if id(value) in self._seen or depth > _DEPTH:
            return
        self._seen.add(id(value))
        if type(value) in (list, dict):
            self._found.append((path, value, value.copy()))
        elif is_plain_object(value):
            self._found.append((path, value, dict(vars(value))))
            for name, item in vars(value).items():
                if type(item) not in _ATOMS:
                    self._note(f"{path}.{name}", item, depth + 1)

    def put_back(self) -> list[tuple[str, bool]]:
        """Put back what was there; list what had changed, and whether values of the program were put there."""
        changed = [("what is outside of the program, in a hook", False)] if self._hooks.put_back() else []
        for path, value, before in self._found:
            now = value if type(value) in (list, dict) else vars(value)
            for name, old, new in _differences(before, now):
                changed.append((f"{path}.{name}" if now is not value else path, holds_values(new) or holds_values(old)))
            if type(value) is list:
                value[:] = before
            else:
                now.clear()
                now.update(before)
        return changed

    def finish(self) -> None:
        """Put back what was there. Raises CaptureError where the program has put values of its own in place of it."""
        for path, is_value in self.put_back():
            if is_value:
                raise CaptureError(
                    f"the program writes to {path}, of an object that it holds; the captured program could not",
                    fix="keep it in an attribute of a module, or pass the object as an argument",
                )
            warn_tracer(f"the program changes {path}, not in a module; the captured program does not")


def _differences(before: Any, now: Any) -> list[tuple[Any, Any, Any]]:
    """List (key, before, now) of what differs."""
    if isinstance(before, list):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    keys = [*before, *[key for key in now if key not in before]]
    return [(key, before.get(key), now.get(key)) for key in keys if not _is_same(before.get(key), now.get(key))]


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and type(a) in _ATOMS and bool(a == b))

"""What hooks of a program hold: what the program writes to it is said, and never left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphwright.capture.effects.hook_effects import HookEffects, hooks_of
from graphwright.capture.state.tracer_warnings import warn_tracer

if TYPE_CHECKING:
    from graphwright.runtime import Shells

__all__ = ["HeldObjects"]


class HeldObjects:
    """What the hooks of modules hold as a pass starts."""

    def __init__(self, shells: Shells | None) -> None:
        hooks = [] if shells is None else [hook for module, *_ in shells.all() for hook in hooks_of(module)]
        self._hooks = HookEffects(hooks, with_modules=False)

    def put_back(self) -> bool:
        """Put back what was there; tell whether something had changed."""
        return self._hooks.put_back()

    def finish(self) -> None:
        """Put back what was there, with a TracerWarning."""
        if self.put_back():
            warn_tracer("the program changes what is outside of the program, in a hook; the captured program does not")

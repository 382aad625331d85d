"""Functions that a captured module calls when its graph is edited or when it is copied."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(slots=True, eq=False)
class Hooks:
    """Lists of functions to call, in order.

    `create(node)`, `erase(node)`, `replace(old, new_name, user)`, `deepcopy(copied_module)`.

    >>> hooks = Hooks()
    >>> register(hooks.create, print)
    >>> hooks.copy().create == [print], hooks.copy().create is hooks.create
    (True, False)
    """

    create: list[Callable[..., Any]] = dataclasses.field(default_factory=list)
    erase: list[Callable[..., Any]] = dataclasses.field(default_factory=list)
    replace: list[Callable[..., Any]] = dataclasses.field(default_factory=list)
    deepcopy: list[Callable[..., Any]] = dataclasses.field(default_factory=list)

    def copy(self) -> Hooks:
        """Return lists of their own of the same functions."""
        return Hooks([*self.create], [*self.erase], [*self.replace], [*self.deepcopy])


def register(hooks: list[Callable[..., Any]], hook: Callable[..., Any]) -> None:
    """Add a function to a list. Raises AssertionError for what is no function."""
    if not callable(hook):
        raise AssertionError(f"a hook must be a callable, not {type(hook).__name__}")
    hooks.append(hook)

"""Where a node comes from in the user's program."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """A place in the user's program: where the operation is written and in which module it ran.

    `line` is where the operation stands, `statement` the first line of the statement around it and `source` that
    statement's text (its first line); `target` is the variable that the statement assigns the operation's value to,
    "" where there is none. `module` is the dotted path of the module whose forward ran ("" for the root),
    `module_type` its class, and `call` counts the calls of that module, from 0. `column` and `end_column` delimit the
    expression where Python tells (3.11 and later), counted from 0.
    """

    file: str
    line: int
    function: str
    source: str
    statement: int = 0
    target: str = ""
    module: str = ""
    module_type: type | None = None
    call: int = 0
    column: int | None = None
    end_column: int | None = None
    stack: tuple[tuple[str, type], ...] = ()  # (path, class) of the modules being called, outermost first

    def resolve(self) -> Origin:
        """Return itself: captures store cheaper things that resolve to an Origin at first use."""
        return self

    def initial_meta(self) -> dict[str, Any]:
        """The meta that a node of this origin starts with: its module stack, in torch.fx's form."""
        return {"nn_module_stack": {path: (path, kind) for path, kind in self.stack}} if self.stack else {}

    def __str__(self) -> str:
        text = f": {self.source}" if self.source else ""
        return f"{self.file}:{self.line} in {self.function}{text}"

"""How many torch calls of a program became nodes of its graph, and how many are hidden in them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(eq=False)
class Calls:
    """The calls of one capture: those that became nodes, and those hidden in calls that were not looked into."""

    recorded: int = 0
    hidden: int = 0

    def copy(self) -> Calls:
        """The numbers as they are now."""
        return Calls(self.recorded, self.hidden)

    def add(self, later: Calls, earlier: Calls) -> None:
        """Count what was counted between two moments of another capture."""
        self.recorded += later.recorded - earlier.recorded
        self.hidden += later.hidden - earlier.hidden

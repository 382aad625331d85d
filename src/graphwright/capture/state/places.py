"""What the plan knows a question by: where it is asked, in which call of which module."""

from __future__ import annotations

from typing import Any, TypeAlias

# The file, line and column of the question, the path of the module and the number of its call; or a mark of its own.
Place: TypeAlias = tuple[Any, ...]

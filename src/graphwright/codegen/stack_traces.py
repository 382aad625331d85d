"""The user's stack, as text, read for the line that a node comes from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)\n\s*(\S.*)', re.MULTILINE)


@dataclasses.dataclass
class ParsedStackTrace:
    """One call of a stack: file, line, function, and the text of the line."""

    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        """Write it on one line."""
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


def parse_stack_trace(
    stack_trace: str, filter_fn: Callable[[str, str, str], bool] | None = None
) -> ParsedStackTrace | None:
    """Return the innermost call of a stack that `filter_fn(file, function, code)` accepts, None where there is none.

    >>> parse_stack_trace('  File "model.py", line 7, in forward\\n    y = f(x)\\n').get_summary_str()
    'File: model.py:7 in forward, code: y = f(x)'
    """
    for file, line, function, code in reversed(_FRAME.findall(stack_trace)):
        if filter_fn is None or filter_fn(file, function, code):
            return ParsedStackTrace(file, line, function, code.rstrip())
    return None

"""The Python functions that a call enters, counted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["frames"]


def frames(call: Callable[[], Any]) -> Counter[str]:
    """The names of the Python functions that a call enters."""
    seen: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen

"""The one place that changes what other code sees, and undoes it.

Libraries ask `torch.compiler.is_exporting()` and `is_compiling()` to choose code that can be traced.
Where the honest answer, no, leads to a program that cannot be captured, the capturing thread,
and only it, is answered yes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

__all__ = ["exporting"]

_thread = threading.local()
_lock = threading.Lock()
_users = 0
_FLAGS = ("_is_compiling_flag", "_is_exporting_flag")


class _ThreadFlag:
    """Stands where torch.compiler keeps a bool: true in threads that are inside `exporting()`, else as before."""

    def __init__(self, before: bool) -> None:
        self.before = before

    def __bool__(self) -> bool:
        return getattr(_thread, "depth", 0) > 0 or bool(self.before)

    def __or__(self, other: object) -> bool:
        return bool(self) or bool(other)

    __ror__ = __or__

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Answer `torch.compiler.is_exporting()` and `is_compiling()` with yes in this thread while the block lasts.

    >>> with exporting():
    ...     bool(torch.compiler.is_exporting())
    True
    >>> torch.compiler.is_exporting()
    False
    """
    global _users
    with _lock:
        if _users == 0:
            for flag in _FLAGS:
                if hasattr(torch.compiler, flag):  # an older torch lacks some: nobody asks there
                    setattr(torch.compiler, flag, _ThreadFlag(getattr(torch.compiler, flag)))
        _users += 1
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        yield
    finally:
        _thread.depth -= 1
        with _lock:
            _users -= 1
            if _users == 0:
                for flag in _FLAGS:
                    standing = getattr(torch.compiler, flag, None)
                    if isinstance(standing, _ThreadFlag):
                        setattr(torch.compiler, flag, standing.before)

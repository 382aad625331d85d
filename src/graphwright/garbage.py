"""How often Python's garbage collector goes over all objects while much is made that stays."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

__all__ = ["rare_collections"]

_lock = threading.Lock()
_RARE = (10_000, 1_000, 1_000)  # young collections of more objects take three times as long for each: caches
_thresholds: list[tuple[int, int, int]] = []  # those from before, and once more for each capture


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Have Python's garbage collector look only at what is new, and seldom, while the block lasts: in all threads.

    What a capture makes stays. The collector takes that for a reason to go over all objects again, torch's included,
    each time that there are a quarter more: half of what a long capture would cost. Cycles are still found within
    10,000 objects. Whoever sets other thresholds meanwhile, or has them turned off, is left alone.

    >>> before = gc.get_threshold()
    >>> with rare_collections():
    ...     gc.get_threshold()
    (10000, 1000, 1000)
    >>> gc.get_threshold() == before
    True
    """
    with _lock:
        before = _thresholds[0] if _thresholds else gc.get_threshold()
        if not _thresholds and 0 < before[0] < _RARE[0]:
            gc.set_threshold(*_RARE)
        _thresholds.append(before)
    try:
        yield
    finally:
        with _lock:
            before = _thresholds.pop()
            if not _thresholds and gc.get_threshold() == _RARE:
                gc.set_threshold(*before)

"""Whether it pays to look for calls that may be copied.

To look at a call, and to listen to the program until a copy is made, takes up to twice as long as the capture of what
runs meanwhile; a copy takes a third of it. What is counted is operations, which is what a capture costs.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from graphwright.capture.state.members import Make

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

FEWEST = 3  # modules made alike, from which on it is worth looking for calls alike
_LEAST = 24  # operations that may be copied, for which it is
_SMALLEST = 4  # operations of a call
_MOST_BETWEEN = 3  # of so many operations of a call there may be one between it and the next
_MOST_HEARD = 8  # of so many operations one may be listened to and not followed by one that is copied
_MOST_TRIES = 2  # calls of modules made alike that are looked at in vain before they are left alone
_MOST_LOOKS = 6  # calls of any modules that are


class CopyBudget:
    """What one pass of a capture spends on copies, and what it gains, by what the modules called are made of."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._met: collections.Counter[Make] = collections.Counter()
        self._tries: collections.Counter[Make] = collections.Counter()  # looks since one of theirs was copied
        self._looks = 0  # of any, since one was
        self._last: dict[Make, tuple[int, int]] = {}  # operations that the last call recorded, and all up to its end
        self._heard = self._copied = 0  # operations
        self._unwritten = 0  # operations of copies that are one node each
        self._since: int | None = None  # those that were recorded when it began to listen

    def _now(self) -> int:
        return len(self._recorder.root.graph.nodes) + self._unwritten

    def begin(self, make: Make) -> tuple[int, int]:
        """Count a call that begins: give how many of its kind came before, and how many operations of any."""
        self._met[make] += 1
        return self._met[make] - 1, self._now()

    def end(self, make: Make, before: int) -> None:
        """Count a call that ends, before which so many operations were recorded."""
        now = self._now()
        self._last[make] = now - before, now

    def listen(self, is_on: bool) -> None:
        """Count what is recorded from now on as listened to, or not."""
        now = self._now()
        if self._since is not None:
            self._heard += now - self._since
        self._since = now if is_on else None

    def looked(self, make: Make, may_be_copied: bool) -> None:
        """Count a call that was looked at."""
        assert self._recorder.members is not None
        self._tries[make] += 1
        self._looks += 1
        if not may_be_copied:
            self._recorder.members.in_vain[make] += 1

    def copied(self, make: Make, count: int, before: int) -> None:
        """Count a call that was copied, of so many operations, before which so many had been recorded."""
        self._tries[make] = self._looks = 0
        self._copied += count
        self._unwritten += count - (self._now() - before)

    def pays(self, make: Make, left: int) -> bool:
        """Tell whether copies may be had of the calls that are left, and are enough of the program."""
        assert self._recorder.members is not None
        if max(self._tries[make], self._recorder.members.in_vain[make]) >= _MOST_TRIES or self._looks >= _MOST_LOOKS:
            return False
        now, (count, end) = self._now(), self._last.get(make, (0, 0))
        if count < _SMALLEST or count * left < _LEAST or (now - end) * _MOST_BETWEEN > count:
            return False
        heard = self._heard + (0 if self._since is None else now - self._since)
        return (heard - 2 * self._copied) * _MOST_HEARD <= now

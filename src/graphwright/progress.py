"""A bar for what takes longer than a second: in terminals and notebooks, silent elsewhere.

A thread of its own draws it, which does nothing in the first second: what is captured, converted or measured meanwhile
does not notice.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from graphwright.settings import config

__all__ = ["Bar", "followed", "shown", "showing"]

_DELAY, _EVERY = 1.0, 0.1  # seconds
_running: list[Bar] = []  # one at a time: what runs inside of another one changes its text

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Bar:
    """What is known of something that is running: its title, what it is at, and how much of it is done.

    total: of how many steps it is, 0 where nobody knows.
    """

    def __init__(self, title: str) -> None:
        self.title, self.note = title, ""
        self.done, self.total = 0, 0
        self._ended = threading.Event()

    def step(self, note: str = "") -> None:
        """One more step is done, or it is at something else."""
        self.done += 1
        self.note = note or self.note

    def end(self) -> None:
        """It has ended: nothing is drawn any more."""
        self._ended.set()

    def draw(self) -> None:
        """Draw until it has ended. Runs in a thread of its own."""
        if self._ended.wait(_DELAY):
            return
        import rich.console
        import rich.progress as rich_progress

        columns = (
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(bar_width=24),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("{task.fields[note]}", markup=False),
        )
        with rich_progress.Progress(
            *columns, console=rich.console.Console(stderr=True), transient=True, auto_refresh=False
        ) as drawn:
            task = drawn.add_task(self.title, total=None, note="")
            while not self._ended.wait(_EVERY):
                drawn.update(task, total=self.total or None, completed=self.done, note=self.note, refresh=True)


@contextmanager
def showing(title: str, show: bool | None = None) -> Iterator[Bar]:
    """Show a bar while a block runs; `show` says whether, None: as the settings say.

    >>> with showing("counting") as bar:
    ...     bar.step("one")
    """
    if _running:
        yield _running[-1]
        return
    bar = Bar(title)
    if not _is_shown(show):
        yield bar
        return
    _running.append(bar)
    thread = threading.Thread(target=bar.draw, name="graphwright-progress", daemon=True)
    thread.start()
    try:
        yield bar
    finally:
        _running.remove(bar)
        bar.end()
        thread.join()


def shown(title: str) -> Callable[[F], F]:
    """Have a function show a bar while it runs; its `progress=` says whether."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def showing_it(*args: Any, **kwargs: Any) -> Any:
            with showing(title, kwargs.get("progress")):
                return function(*args, **kwargs)

        return showing_it  # type: ignore[return-value]

    return decorate


def followed(items: Iterable[T], note: str) -> Iterator[T]:
    """Go over items, each a step of the bar that is shown, if one is.

    >>> list(followed([1, 2], "batch"))
    [1, 2]
    """
    bar = _running[-1] if _running else None
    total = len(items) if isinstance(items, Sized) else 0
    for number, item in enumerate(items, start=1):
        if bar is not None:
            bar.total, bar.done = total, number - 1
            bar.note = f"{note} {number}" + (f" of {total}" if total else "")
        yield item
    if bar is not None:
        bar.total = bar.done = 0


def _is_shown(show: bool | None) -> bool:
    if show is None:
        show = config.progress
    if show is None:
        return _is_watched()
    return show and _has_rich()


def _is_watched() -> bool:
    """Tell whether somebody looks: standard error is a terminal, or this is a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_notebook = type(shell).__name__ == "ZMQInteractiveShell"
    return (is_notebook or bool(getattr(sys.stderr, "isatty", bool)())) and _has_rich()


def _has_rich() -> bool:
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return False
    return True

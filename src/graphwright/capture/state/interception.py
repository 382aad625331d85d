"""The one place that changes what other code sees, and undoes it.

Libraries ask `torch.compiler.is_exporting()` and `is_compiling()` to choose code that can be traced.
Where the honest answer, no, leads to a program that cannot be captured, the capturing thread,
and only it, is answered yes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

import torch

from graphwright.capture.state.leaf_modules import runs

_T = TypeVar("_T")

_thread = threading.local()
_lock = threading.Lock()
_users: set[ExportFlags] = set()
_FLAGS = ("_is_compiling_flag", "_is_exporting_flag")


class _ThreadFlag:
    """Stands where torch.compiler keeps a bool: true in threads that are inside `exporting()`, else as before."""

    def __init__(self, before: bool) -> None:
        self.before = before

    def __bool__(self) -> bool:
        return bool(_export_users()) or bool(self.before)

    def __or__(self, other: bool) -> bool:
        return bool(self) or bool(other)

    __ror__ = __or__

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))


class ExportFlags:
    """Answers `torch.compiler.is_exporting()` and `is_compiling()` with yes in this thread, from `enter` to `leave`.

    To leave twice, or without having entered, does no harm.

    >>> flags = ExportFlags()
    >>> flags.enter()
    >>> bool(torch.compiler.is_compiling())
    True
    >>> flags.leave()
    >>> torch.compiler.is_compiling()
    False
    """

    def enter(self) -> None:
        """Answer yes in this thread."""
        with _lock:
            _users.add(self)
            for flag in _FLAGS:
                known = getattr(torch.compiler, flag, None)  # an older torch lacks some: nobody asks there
                if isinstance(known, bool):
                    setattr(torch.compiler, flag, _ThreadFlag(known))
        _thread.export_users = (*_export_users(), self)

    def leave(self) -> None:
        """Answer as before; the last to leave puts torch's own flags back."""
        _thread.export_users = tuple([user for user in _export_users() if user is not self])
        with _lock:
            _users.discard(self)
            for flag in _FLAGS:
                standing = getattr(torch.compiler, flag, None)
                if not _users and isinstance(standing, _ThreadFlag):
                    setattr(torch.compiler, flag, standing.before)


def _export_users() -> tuple[ExportFlags, ...]:
    return getattr(_thread, "export_users", ())


_MISSING = object()


Entry = tuple[dict[str, Any], str, Any, Any]  # the globals of a module, a name there, what it means, what it is to mean
_standing: dict[int, set[StandIns]] = {}  # the captures for which a value stands somewhere, by its id


def stands_for(original: Any, stand_in: Any) -> None:
    """Note what a stand-in stands for, which it does for ever."""
    _originals.setdefault(id(stand_in), (original, stand_in))


def original_of(function: Any) -> Any:
    """What a stand-in stands for; other functions are answered as they are."""
    known = _originals.get(id(function))
    return function if known is None else known[0]


_originals: dict[int, tuple[Any, Any]] = {}  # id of a stand-in -> what it stands for, itself


class StandIns:
    """Puts values under names of modules from `enter` to `leave`, shared by the captures that do so at once.

    Other threads that run meanwhile see them too: they must do there what the originals do. What stands there is no
    longer the original, is left alone. To leave twice, or without having entered, does no harm.

    >>> import math
    >>> three = StandIns([(vars(math), "pi", math.pi, 3)])
    >>> three.enter()
    >>> math.pi
    3
    >>> three.leave()
    >>> math.pi == 3
    False
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = entries if isinstance(entries, list) else [*entries]

    def enter(self) -> None:
        """Put the values there."""
        with _lock:
            _standing.setdefault(id(self._entries), set()).add(self)
            for names, name, original, value in self._entries:
                if names.get(name, _MISSING) is original:
                    names[name] = value

    def leave(self) -> None:
        """Put back what was there, as the last that leaves; what somebody defined anew meanwhile stays."""
        with _lock:
            users = _standing.get(id(self._entries), set())
            users.discard(self)
            if users:
                return
            for names, name, original, value in self._entries:
                if names.get(name) is value:
                    names[name] = original
            _standing.pop(id(self._entries), None)


_held: dict[tuple[int, str], list[Any]] = {}  # (globals, name) -> [how many captures, what was there, stand-in]


@contextlib.contextmanager
def standing_in(entries: Iterable[tuple[dict[str, Any], str, Any]]) -> Iterator[None]:
    """Put values under names of modules while the block lasts, shared by the captures that do so at once.

    Other threads that run meanwhile see the stand-ins too: these must do for them what the originals do.

    >>> import math
    >>> with standing_in([(vars(math), "pi", 3)]):
    ...     math.pi
    3
    >>> math.pi == 3
    False
    """
    held: list[tuple[dict[str, Any], str]] = []
    try:
        with _lock:
            for names, name, value in entries:
                standing = _held.get((id(names), name))
                if standing is not None:
                    standing[0] += 1
                else:
                    _held[id(names), name] = [1, names.get(name, _MISSING), value]
                    names[name] = value
                held.append((names, name))
        yield
    finally:
        with _lock:
            for names, name in held:
                standing = _held[id(names), name]
                standing[0] -= 1
                if standing[0] == 0:
                    _, before, value = _held.pop((id(names), name))
                    if names.get(name) is value:  # else somebody defined it anew meanwhile
                        if before is _MISSING:
                            del names[name]
                        else:
                            names[name] = before


_Runs = Callable[[Callable[[], Any]], Any]


class Runner(Protocol):
    """What runs the operations of a program: on examples."""

    watch: Hearing | None

    def listen(self, quietly: _Runs | None = None, loudly: _Runs | None = None) -> None:
        """Have operations be run by `quietly`, and what may be the program's in there by `loudly`."""


class Hearing:
    """A profiler that hears what the program does, and nothing of what torch and the capture do for it.

    Python tells a profiler of each call, so that these would take twice the time. around: the profiler that hears the
    program where this one is off. The examples of the capture know, while this is on, how to run what is not to be
    heard, and in there what is.
    """

    __slots__ = ("_around", "_examples", "is_over", "profile")

    def __init__(self, examples: Runner, profile: Callable[..., Any], around: Hearing | None = None) -> None:
        self._examples, self.profile, self._around = examples, profile, around
        self.is_over = False  # it is not to be put on again by itself

    def on(self) -> None:
        """Start to hear, or go on."""
        sys.setprofile(self.profile)
        self._examples.listen(quietly=self.unheard)

    def off(self) -> None:
        """Stop, if it is this one that hears."""
        if sys.getprofile() == self.profile:
            self._give_way()

    def _give_way(self) -> None:
        if self._around is not None:
            self._around.on()
        else:
            sys.setprofile(None)
            self._examples.listen()

    def unheard(self, run: Callable[[], _T]) -> _T:
        """Run what is nothing of the program."""
        if sys.getprofile() != self.profile:
            return run()
        self._mute()
        try:
            return run()
        finally:
            if sys.getprofile() is None:  # else another one was put on
                (self._give_way if self.is_over else self.on)()

    def _mute(self) -> None:
        sys.setprofile(None)
        self._examples.listen(loudly=self._heard_within)

    def _heard_within(self, run: Callable[[], _T]) -> _T:
        """Run what may be the program's after all, in the middle of what is not."""
        if self.is_over:
            return run()
        self.on()
        try:
            return run()
        finally:
            if sys.getprofile() == self.profile:
                self._mute()


@contextlib.contextmanager
def watching(
    examples: Runner,
    functions: tuple[Any, ...],
    called: Callable[[FrameType], None],
    names: frozenset[str] = frozenset(),
    entered: Callable[[FrameType], None] = lambda frame: None,
    any_entered: Callable[[FrameType], None] | None = None,
) -> Iterator[None]:
    """Tell, in this thread, when the program calls one of these functions, by the frame that calls it.

    And when code that mentions one of `names` is entered, or any code, by its own frame. What `called` and `entered`
    raise is raised in the function that calls. A profiler of the user's is put back afterwards.
    """
    before = sys.getprofile()
    examples.watch = Hearing(examples, _Watch(functions, called, names, entered, any_entered, before))
    examples.watch.on()
    try:
        yield
    finally:
        examples.watch = None
        examples.listen()
        sys.setprofile(before)


class _Watch:
    """What Python tells of calls while a capture watches for some of them."""

    def __init__(
        self,
        functions: tuple[Any, ...],
        called: Callable[[FrameType], None],
        names: frozenset[str],
        entered: Callable[[FrameType], None],
        any_entered: Callable[[FrameType], None] | None,
        before: Any,
    ) -> None:
        self.functions, self.called, self.before = functions, called, before
        self.names, self.entered, self.any_entered = names, entered, any_entered
        called_by = itertools.chain.from_iterable(map(runs, functions))
        self.codes = {code for each in called_by if (code := getattr(each, "__code__", None)) is not None}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if self.codes and frame.f_code in self.codes and frame.f_back is not None:
                self.called(frame.f_back)
                return
            if self.names and not self.names.isdisjoint(_mentioned(frame.f_code)):
                self.entered(frame)
            if self.any_entered is not None:
                self.any_entered(frame)
        elif event == "c_call" and argument in self.functions:
            self.called(frame)


def is_watch(profile: Callable[..., Any] | None) -> bool:
    """Tell whether a profiler is what captures watch calls with, or there is none: no user's is on, or waits."""
    while type(profile) is _Watch:
        profile = profile.before
    return profile is None


@functools.lru_cache(4096)
def _mentioned(code: CodeType) -> frozenset[str]:
    """The names and texts in a code object."""
    return frozenset([*code.co_names, *[const for const in code.co_consts if isinstance(const, str)]])


_stances: list[Any] = []  # that of torch.compile while captures want none, and one more entry for each of these


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Have functions of `torch.compile` run as they were written: in all threads, where they give the same, slower.

    >>> with uncompiled():
    ...     torch.compile(lambda x: x + 1)(torch.ones(1))
    tensor([2.])
    """
    with _lock:
        if not _stances:
            _stances.append(torch.compiler.set_stance("force_eager"))
        _stances.append(None)
    try:
        yield
    finally:
        with _lock:
            _stances.pop()
            if len(_stances) == 1:
                _stances.pop().__exit__(None, None, None)


_wanted: dict[int, list[Callable[[logging.LogRecord], bool]]] = {}  # by thread: what it asks of its logs
_handlers: list[Any] = []  # `Logger.handle`, while another one stands there


def _handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    handle = _handlers[0] if _handlers else logging.Logger.handle
    if all(is_wanted(record) for is_wanted in _wanted.get(threading.get_ident(), ())):
        handle(logger, record)


class FilteredLogs:
    """Drops logs of this thread that are not wanted, of whatever logger, from `enter` to `leave`.

    >>> logs = FilteredLogs(lambda record: record.levelname != "ERROR")
    >>> logs.enter()
    >>> logging.getLogger("example").error("not seen")
    >>> logs.leave()
    """

    def __init__(self, is_wanted: Callable[[logging.LogRecord], bool]) -> None:
        self._is_wanted, self._thread = is_wanted, threading.get_ident()

    def enter(self) -> None:
        """Start to look at the logs of this thread."""
        with _lock:
            if not _handlers:
                _handlers.append(logging.Logger.handle)
                logging.Logger.handle = _handle  # type: ignore[method-assign, assignment]
            _wanted.setdefault(self._thread, []).append(self._is_wanted)

    def leave(self) -> None:
        """Look at them no more; a second time does no harm, nor without having started."""
        _filter_no_more(self._thread, self._is_wanted)


def _filter_no_more(thread: int, is_wanted: Callable[[logging.LogRecord], bool]) -> None:
    with _lock:
        asked = _wanted.get(thread, [])
        if is_wanted in asked:
            asked.remove(is_wanted)
        if not asked:
            _wanted.pop(thread, None)
        if not _wanted and _handlers:
            logging.Logger.handle = _handlers[0]  # type: ignore[method-assign]
            _handlers.clear()


class Unreported:
    """Keeps off the log, in this thread, what torch reports there of operations that fail on example values.

    Such a failure is no news: the capture tries another way, or raises it.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._logger = logging.getLogger("torch._subclasses.fake_tensor")

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a report is another thread's."""
        return record.thread != self._thread

    def enter(self) -> None:
        """Start to keep reports off."""
        self._logger.addFilter(self)

    def leave(self) -> None:
        """Let them through again; a second time does no harm."""
        self._logger.removeFilter(self)

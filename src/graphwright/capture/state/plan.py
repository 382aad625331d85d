"""What a capture has learned so far, for its next start.

A capture that meets a question which it cannot answer as it is going notes here what to do about it, and starts again:
the functions that asked are converted, a branch that could not be joined forks, one that cannot be captured is
guarded.
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import os
import sys
import time
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, TextIO

from graphwright.capture.state.calls import Calls
from graphwright.capture.state.obstacles import Obstacles
from graphwright.errors import CaptureError
from graphwright.runtime import CaptureFacts, ReportEntry
from graphwright.source import qualname_of
from graphwright.values import OptionalKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place

_MOST_PASSES = 200

Way = Literal["wait", "fork", "guard", "follow", "region", "peel", "unroll", "attempt"]


class Restart(BaseException):
    """Start again: the plan has changed. A BaseException, so that a model's own `except` does not swallow it.

    `why` says what changed, `at` is the user's line that led to it.
    """

    def __init__(self, why: str, at: str = "") -> None:
        super().__init__(why)
        self.why, self.at = why, at


@dataclasses.dataclass(eq=False)
class Log:
    """How the captures of one program went so far, failed ones included."""

    passes: int = 0
    restarts: list[ReportEntry] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.perf_counter)
    told: set[tuple[str, str]] = dataclasses.field(default_factory=set)  # lines that have logged or warned, and what
    left_out: list[ReportEntry] = dataclasses.field(default_factory=list)
    said: list[ReportEntry] = dataclasses.field(default_factory=list)
    # Where people read what a program prints, whatever it puts in the place of these meanwhile.
    out: TextIO = dataclasses.field(default_factory=lambda: sys.stdout)
    errors: TextIO = dataclasses.field(default_factory=lambda: sys.stderr)

    def note(self, why: str, at: object = "") -> None:
        """Note why there is one more pass."""
        self.restarts.append(ReportEntry("restart", why, str(at or "")))

    def note_told(self, what: str, at: str) -> None:
        """Note that a line logs or warns, which is no part of the graph."""
        entry = ReportEntry("left out", what, at)
        if entry not in self.left_out:
            self.left_out.append(entry)

    def note_said(self, what: str, at: str) -> None:
        """Note that a value of the outside, which changes unseen, is the capture's for ever."""
        entry = ReportEntry("said", what, at)
        if entry not in self.said:
            self.said.append(entry)

    def facts(self, attempt: str, paths: int, calls: Calls | None, place: str) -> CaptureFacts:
        """The facts of the capture that held, of the program that is defined at a place; no `calls`: none is hidden."""
        seconds = time.perf_counter() - self.started
        return CaptureFacts(
            attempt, self.passes, paths, seconds, None if calls is None else calls.recorded,
            0 if calls is None else calls.hidden, tuple(self.restarts), place,
            tuple(self.left_out), tuple(self.said),
        )  # fmt: skip


class Conversions(set[CodeType]):
    """The functions to convert. `waiting` are the lines of the branches that are joined where their function ends."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: set[tuple[str, int]] = set()


@dataclasses.dataclass(eq=False)
class Plan:
    """The functions to convert, what to do at single questions, and the answers to give at forks."""

    control_flow: str = "stage"
    max_paths: int = 8
    static: frozenset[str] = frozenset()  # inputs whose numbers and sizes are the example's
    dynamic: frozenset[str] = frozenset()  # bools among the inputs that a call may change
    leaves: tuple[Any, ...] = ()  # functions that are recorded as one node
    enters_libraries: bool = False  # whether those of libraries are not, where a call of one is one operation
    converted: Conversions = dataclasses.field(default_factory=Conversions)
    is_one_of_several: bool = False  # whether calls choose among several captures, by their inputs
    leaves_copies: bool = False  # whether a call of a module that is a copy of another may stay one node
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)  # attributes that the program writes: their kinds
    changed: set[Any] = dataclasses.field(default_factory=set)  # the dicts and sets among them that a run has changed
    left: dict[Any, Any] = dataclasses.field(default_factory=dict)  # the kinds of what first calls have left in them
    groups: dict[Any, int] = dataclasses.field(default_factory=dict)  # by place, which one has
    groups_known: int = 0  # how many of these there are of runs that came to their end
    at_first: dict[Any, Any] = dataclasses.field(default_factory=dict)  # those that are None, [] or False before that
    told_by_kind: set[Place] = dataclasses.field(default_factory=set)  # where the kind of what is there tells that
    is_set_together: bool | None = None  # whether calls find all or nothing of what one has left; None: not tried
    before_class: dict[Any, Any] = dataclasses.field(
        default_factory=dict
    )  # those that objects come to have in the place of a value of their class, and that value
    alike_places: dict[Any, bool] = dataclasses.field(
        default_factory=dict
    )  # pairs of places of that state that may hold one object: whether that matters
    missing: dict[Any, int | None] = dataclasses.field(
        default_factory=dict
    )  # those of them that a call may find missing: with which others, None where it does not ask
    missing_buffers: dict[Any, bool] = dataclasses.field(default_factory=dict)  # the buffers of these: do they persist
    hooks_left: dict[int, list[Any]] = dataclasses.field(
        default_factory=dict
    )  # those that a call leaves on modules which makes some of these, by their number
    in_place: set[tuple[str, str]] = dataclasses.field(
        default_factory=set
    )  # attributes that branches write: as they are
    written_later: set[tuple[str, str]] = dataclasses.field(
        default_factory=set
    )  # attributes that methods write which torch is given to call
    generators: dict[int, Any] = dataclasses.field(default_factory=dict)  # that the program can reach, by id
    closing: set[tuple[str, int, str]] = dataclasses.field(default_factory=set)  # variables that hold some of them
    overheard: dict[Any, Any] = dataclasses.field(default_factory=dict)  # stand-ins under names of the program's own
    cached: int = 0  # how many functions that run are behind a `functools` cache
    sets: set[str] = dataclasses.field(default_factory=set)  # getters of what this pass has set for the process
    undo: list[Callable[[], Any]] = dataclasses.field(default_factory=list)  # puts that back
    sets_torch_state: bool = False  # whether functions of the program may set the state of torch's own generator
    put_back: Callable[[], None] | None = None  # puts the process's random states back to where they were at first
    locates_draws: bool = False  # whether to look for the line that draws random numbers of Python's
    is_uncompiled: bool = False  # whether functions of torch.compile are to run as they were written
    ways: dict[Any, Way] = dataclasses.field(default_factory=dict)
    reasons: dict[Any, str] = dataclasses.field(default_factory=dict)  # why the ways are what they are
    has_rests: bool = False  # whether both sides of some branch have what follows it
    outlined: set[Any] = dataclasses.field(default_factory=set)  # functions (their code) and modules (their path)
    entered: set[str | type] = dataclasses.field(default_factory=set)  # modules and autograd functions, no nodes
    answers: tuple[bool, ...] = ()
    looks_into_arguments: bool = False  # whether objects and containers may hold tensors that may be None
    guards_starts: bool = False  # whether calls that start with None in an attribute go the example's way
    paths: int = 0
    passes: int = 0
    fixed: set[Any] = dataclasses.field(default_factory=set)  # where sizes are read that are to be the example's
    asked_texts: set[Any] = dataclasses.field(default_factory=set)  # where texts are made whose numbers are guarded
    sees_tables: bool = False  # whether the program looks at attributes in tables, which tell nobody
    walks_tables: bool = False  # whether it may go over all that is there
    items_grow: bool = False  # whether lists that are items of lists get longer
    further_keys: set[str] = dataclasses.field(default_factory=set)  # that dicts get which are items of lists
    told_apart: set[type] = dataclasses.field(default_factory=set)  # of inputs: which of them are one object matters
    outside: set[str] = dataclasses.field(default_factory=set)  # inputs that the program finds outside of it, too
    one_sided: set[str] = dataclasses.field(default_factory=set)  # variables without a value on some paths
    log: Log = dataclasses.field(default_factory=Log)  # of a symbolic trace
    obstacles: Obstacles | None = None  # collects what stands in the way, instead of stopping there
    ungathered: set[CodeType] = dataclasses.field(default_factory=set)  # generators whose values are taken one by one
    cached_results: list[Any] = dataclasses.field(default_factory=list)  # what functions behind a cache gave
    is_remembered: bool = False  # whether it is what an earlier capture has learned: there are no further passes
    scalars: frozenset[str] = frozenset()  # inputs that are numbers of NumPy's: symbolic unless that is an obstacle

    @functools.cached_property
    def leaf_ids(self) -> frozenset[int]:
        """The ids of the leaves; of methods, those of their functions."""
        return frozenset(id(each) for leaf in self.leaves for each in (leaf, getattr(leaf, "__func__", leaf)))

    def add_leaf(self, function: Callable[..., Any]) -> None:
        """Record one more function as one node."""
        self.leaves = (*self.leaves, function)
        self.__dict__.pop("leaf_ids", None)

    def start(self, answers: tuple[bool, ...]) -> None:
        """Count one more run of the program, which is to answer its forks so."""
        self.answers = answers
        self.sets.clear()
        self.cached = 0
        self.cached_results.clear()
        self.paths += 1
        self.passes += 1
        if self.passes > _MOST_PASSES:
            raise CaptureError(f"the capture did not come to an end in {_MOST_PASSES} passes")

    def convert(self, codes: set[CodeType]) -> Restart:
        """Have functions converted."""
        self.converted |= codes
        names = sorted(qualname_of(code).rpartition("<locals>.")[2] for code in codes)
        return Restart(f"converted {', '.join(names)}")

    def change(self, place: Place | None, way: Way, why: str) -> Restart:
        """Have one question answered another way.

        Raises CaptureError where it is answered so already: the next pass would come here again.
        """
        if self.ways.get(place) == way:
            at = _line(*place[:2]) if place and place[0] != "attribute" else None
            raise CaptureError(f"this cannot be captured: {why}", at=at, fix="write the program so that this is not so")
        if way == "guard" and (restart := self.set_together(why)) is not None:
            return restart
        self.ways[place] = way
        self.has_rests = self.has_rests or way in ("wait", "fork")
        self.reasons[place] = why
        return Restart(f"{_WAYS[way]}: {why}", _line(*place[:2]) if place and place[0] != "attribute" else "")

    def set_together(self, why: str) -> Restart | None:
        """Have calls find all or nothing of what a first one sets, if that was not tried yet."""
        if not (self.at_first or self.told_by_kind) or self.is_set_together is not None:
            return None
        self.is_set_together = True
        self.kept |= {
            place: OptionalKind(self.left[place]) for place, before in self.at_first.items() if type(before) is list
        }
        return Restart(f"what a first call sets is there in all others: {why}")

    def wait(self, place: Place, why: str) -> Restart:
        """Have the sides of a branch joined where its function ends, with what comes before that on both of them."""
        self.converted.waiting.add(place[:2])
        return self.change(place, "wait", why)

    def enter(self, what: str | type, why: str) -> Restart:
        """Have a module, or an autograd function, that would be one node looked into."""
        self.entered.add(what)
        return Restart(f"entered {what if isinstance(what, str) else what.__qualname__}, {why}")

    def outline(self, what: CodeType | str, name: str, why: str) -> Restart:
        """Have a function or module recorded as one node."""
        self.outlined.add(what)
        return Restart(f"kept {name} as one node: {why}")


_WAYS: dict[Way, str] = {
    "wait": "captured the rest of the function on both sides",
    "fork": "forked", "guard": "answered from the example under a guard", "follow": "followed the example",
    "region": "made a loop of the graph", "peel": "took the first iterations out of a loop",
    "unroll": "unrolled a loop", "attempt": "made a `try` of the graph",
}  # fmt: skip


def _line(file: str, number: int) -> str:
    return f"{os.path.basename(file)}:{number}: {linecache.getline(file, number).strip()}"

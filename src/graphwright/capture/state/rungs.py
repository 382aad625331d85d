"""The rungs of the ladder on which the questions of a capture are answered, as others see them.

What a method does is said where it is defined, in the file that its class names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

if TYPE_CHECKING:
    from graphwright.capture.state.obstacles import Category
    from graphwright.capture.state.places import Place
    from graphwright.errors import CaptureError
    from graphwright.ir import Argument, Target
    from graphwright.source import CallSite


class HasTruth(Protocol):
    """A value of the program whose truth Python may ask for: a number, a tensor, an object, a proxy."""

    def __bool__(self) -> bool: ...


class Computed(Protocol):
    """What is behind a number of the program: a `Symbol`. The key tells it from others."""

    key: tuple[Any, ...]
    is_data: bool


Condition: TypeAlias = HasTruth | Sized  # what a program may branch on: Python asks its truth, or its length
QuestionSubject: TypeAlias = Computed | HasTruth  # what decides a branch on a value
Raisable: TypeAlias = BaseException | type[BaseException]  # what `raise` takes


class Subjects(Protocol):
    """What tells the values apart that Python asks about: typed/same_values.py."""

    def subject_of(self, test: HasTruth) -> Any: ...
    def key_of(self, subject: QuestionSubject) -> Any: ...
    def opposite(self, subject: QuestionSubject) -> Any: ...
    def is_data(self, subject: QuestionSubject) -> bool: ...


class Facts(Protocol):
    """What follows from the truth of a condition: ladder/know.py."""

    def note_parts(self, result: Any, parts: list[Any], is_and: bool) -> None: ...
    def facts(self, subject: QuestionSubject, value: bool) -> dict[Any, bool]: ...
    def note_decider(self, value: Any, place: Place | None) -> None: ...
    def decider(self, subject: QuestionSubject) -> Any: ...


class Knowledge(Protocol):
    """The truths that hold where the capture is, by the keys of what they are about: ladder/know.py."""

    @property
    def conditions(self) -> Facts:
        """What follows from them."""

    def learn(self, subject: QuestionSubject, truth: bool) -> None: ...


class Staging(Protocol):
    """Looks for the functions of one capture that are to be converted: ladder/stage.py."""

    def stage(self, frame: FrameType | None) -> None: ...
    def convert_all(self, codes: set[CodeType]) -> None: ...
    def leaf_called(self, frame: FrameType) -> None: ...
    def convertible(self, frame: FrameType | None) -> set[CodeType]: ...
    def convertible_at(self, error: BaseException) -> set[CodeType]: ...
    def converted(self, function: Callable[..., Any]) -> Any: ...
    def conversion(self, function: Callable[..., Any]) -> Any: ...
    def gathering(self, function: Callable[..., Any]) -> Any: ...
    def anticipate(self, function: Callable[..., Any]) -> None: ...
    def convert_called(self, function: Callable[..., Any]) -> bool:
        """Have a function of the program converted that gets objects outside of torch; True where it was not before."""


class Forking(Protocol):
    """The forks of one run of a program: ladder/fork.py."""

    forks: list[Any]

    def fork(self, subject: QuestionSubject, place: tuple[Any, ...] | None) -> bool: ...
    def follows_start(self) -> bool: ...
    def differ(self, place: tuple[Any, ...] | None, why: str, can_wait: bool) -> BaseException: ...
    def too_many_paths(self) -> BaseException: ...


class Refusals(Protocol):
    """What one capture cannot do, and the last ways around it: ladder/refuse.py."""

    def refuse(self, error: CaptureError, category: Category) -> None: ...
    def refuse_data(self, subject: QuestionSubject, name: str = "", answer: Callable[[], Any] | None = None) -> Any: ...
    def outline(self, frame: FrameType | None, why: str) -> BaseException | None: ...
    def unroll_around(self, why: str) -> BaseException | None: ...
    def helper_that_draws(self, frame: FrameType | None) -> BaseException | None: ...
    def cached_draw(self, op: str, target: Target) -> None: ...
    def refuse_draw(self, site: CallSite, moved: torch.Generator | Iterator[Any] | None = None) -> None: ...
    def failed_path(self, error: Exception) -> BaseException: ...
    def given_up(
        self, error: BaseException, place: tuple[Any, ...] | None, is_other_way: bool = False
    ) -> BaseException: ...


class Raises(Protocol):
    """The exceptions that the program of one capture raises: ladder/raising.py."""

    def raising(self, error: Raisable, cause: Raisable | None = None) -> BaseException: ...
    def is_left_by_it(self) -> bool: ...
    def is_caught_outside(self, frame: FrameType | None = None, is_known: bool = False) -> bool: ...
    def write_raise(self, error: Raisable, cause: Raisable | None = None) -> None: ...
    def end_side(self, error: Raisable, is_taken: bool, cause: Raisable | None = None) -> None: ...
    def is_raised_by_user(self, error: Exception) -> bool: ...
    def is_certain(self, error: Any) -> bool: ...


class Messages(Protocol):
    """The messages of one capture: ladder/messages.py."""

    def telling(self) -> AbstractContextManager[None]: ...
    def is_in_message(self) -> bool: ...
    def is_shown(self, frame: FrameType) -> bool: ...
    def received(self, error: BaseException) -> BaseException: ...
    def is_called_for_error(self, asking: FrameType | None) -> bool: ...
    def message(self, value: Any) -> Argument: ...


class Loops(Protocol):
    """The loops of one capture: flow/loops.py."""

    going_over: list[Any]  # what loops that are run plainly go over, and read again for the next item

    def each(
        self,
        iterable: Iterable[Any],
        body: Callable[[Any], Any],
        names: tuple[str, ...],
        private: tuple[str, ...],
        asks_how: bool,
        target: str,
        is_alone: bool = False,
    ) -> Any: ...
    def repeat(
        self,
        test: Callable[[], Any],
        body: Callable[[], Any],
        names: tuple[str, ...],
        private: tuple[str, ...],
        asks_how: bool,
    ) -> Any: ...

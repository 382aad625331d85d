"""The rungs of the ladder on which the questions of a capture are answered, as others see them."""

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
    """What tells the values apart that Python asks about."""

    def subject_of(self, test: HasTruth) -> Any:
        """What decides a branch on a value: the symbol behind a number, else the value itself."""

    def key_of(self, subject: QuestionSubject) -> Any:
        """What tells a value from others."""

    def opposite(self, subject: QuestionSubject) -> Any:
        """What tells the value whose negation a value is from others; None for what is no negation."""

    def is_data(self, subject: QuestionSubject) -> bool:
        """Tell whether a value depends on the data of tensors, rather than on sizes and flags."""


class Facts(Protocol):
    """What follows from the truth of a condition."""

    def note_parts(self, result: Any, parts: list[Any], is_and: bool) -> None:
        """Note what a condition is made of, with `and` or with `or`."""

    def facts(self, subject: QuestionSubject, value: bool) -> dict[Any, bool]:
        """What is known where a condition has this truth, by the keys of what it says something about."""

    def note_decider(self, value: Any, place: Place | None) -> None:
        """Note that a branch on a size or flag, at a place, has given a value."""

    def decider(self, subject: QuestionSubject) -> Any:
        """The place of a branch on a size or flag that has given a value, or the opposite of it; None without one."""


class Knowledge(Protocol):
    """The truths that hold where the capture is, by the keys of what they are about."""

    @property
    def conditions(self) -> Facts:
        """What follows from them."""

    def learn(self, subject: QuestionSubject, truth: bool) -> None:
        """Note that a condition has this truth from here on."""


class Staging(Protocol):
    """Looks for the functions of one capture that are to be converted."""

    def stage(self, frame: FrameType | None) -> None:
        """Start again with the function of a frame converted, where that can be and is not done."""

    def convert_all(self, codes: set[CodeType]) -> None:
        """Start again with these functions converted, if there are any."""

    def leaf_called(self, frame: FrameType) -> None:
        """A function that is to be one node was called by a frame whose calls do not come through the runtime."""

    def convertible(self, frame: FrameType | None) -> set[CodeType]:
        """The functions to convert so that this frame's one is: it and its callers up to the nearest module call."""

    def convertible_at(self, error: BaseException) -> set[CodeType]:
        """The functions to convert so that the one is in which an error was raised."""

    def converted(self, function: Callable[..., Any]) -> Any:
        """What to call in place of a function."""

    def conversion(self, function: Callable[..., Any]) -> Any:
        """The conversion of a function that has asked; other functions are answered as they are."""

    def gathering(self, function: Callable[..., Any]) -> Any:
        """What gathers what a generator function gives that has asked; None for other functions."""

    def anticipate(self, function: Callable[..., Any]) -> None:
        """In a program that has asked before, have a function that may ask converted before it does."""

    def convert_called(self, function: Callable[..., Any]) -> bool:
        """Have a function of the program converted that gets objects outside of torch; True where it was not before."""


class Forking(Protocol):
    """The forks of one run of a program."""

    forks: list[Any]

    def fork(self, subject: QuestionSubject, place: tuple[Any, ...] | None) -> bool:
        """Answer with what the plan says for this fork; the capture is made again for the other answer."""

    def follows_start(self) -> bool:
        """Whether this is a call that starts with None in an attribute and is to go the example's way."""

    def differ(self, place: tuple[Any, ...] | None, why: str, can_wait: bool) -> BaseException:
        """The sides of a branch cannot be joined: have what comes after it be part of both, or have it fork."""

    def too_many_paths(self) -> BaseException:
        """What to do where the program forks too often."""


class Refusals(Protocol):
    """What one capture cannot do, and the last ways around it."""

    def refuse(self, error: CaptureError, category: Category) -> None:
        """Raise an error. Where all obstacles are wanted, note it: the caller then goes on as well as it can."""

    def refuse_data(self, subject: QuestionSubject, name: str = "", answer: Callable[[], Any] | None = None) -> Any:
        """Refuse a question of data. Where all obstacles are wanted, note it and give what `answer` does."""

    def outline(self, frame: FrameType | None, why: str) -> BaseException | None:
        """Have the innermost function or module around a frame that can be cut out become one node."""

    def unroll_around(self, why: str) -> BaseException | None:
        """Have a loop around what is captured run plainly, under a guard where a size decides."""

    def helper_that_draws(self, frame: FrameType | None) -> BaseException | None:
        """Why the capture is to start again, if the function that draws is a helper which had better stay one node."""

    def cached_draw(self, op: str, target: Target) -> None:
        """Refuse a draw in a function behind a `functools` cache: it draws once, a graph would do so in each call."""

    def refuse_draw(self, site: CallSite, moved: torch.Generator | Iterator[Any] | None = None) -> None:
        """Python or NumPy draw a random number: take the other side of a branch on a flag or size, or refuse."""

    def failed_path(self, error: Exception) -> BaseException:
        """What to do where a path that the example does not take raises: an answer of size is the example's."""

    def given_up(
        self, error: BaseException, place: tuple[Any, ...] | None, is_other_way: bool = False
    ) -> BaseException:
        """What to do where a side of a branch on data cannot be captured."""


class Raises(Protocol):
    """The exceptions that the program of one capture raises."""

    def raising(self, error: Raisable, cause: Raisable | None = None) -> BaseException:
        """Let an exception be raised, or, on a side of a branch, write it into the graph and end the side."""

    def is_left_by_it(self) -> bool:
        """Tell whether what the running frame raises leaves a `with` of the program, which may end it."""

    def is_caught_outside(self, frame: FrameType | None = None, is_known: bool = False) -> bool:
        """Tell whether a handler of the program may catch what a frame, by default the running one, raises."""

    def write_raise(self, error: Raisable, cause: Raisable | None = None) -> None:
        """Write into the graph that an exception is raised."""

    def is_raised_by_user(self, error: Exception) -> bool:
        """Tell whether the program itself raised an exception, on a path that it forked into."""

    def reads_unassigned(self, error: BaseException) -> bool:
        """Tell whether the program read a variable that this way through it does not assign, but another one does."""


class Messages(Protocol):
    """The messages of one capture."""

    def telling(self) -> AbstractContextManager[None]:
        """While it lasts, functions are called for a text in a message: what they make is a text of the run."""

    def is_in_message(self) -> bool:
        """Tell whether the text of a number is asked for by a message, where it decides nothing."""

    def is_shown(self, frame: FrameType) -> bool:
        """Tell whether a text that a line makes is shown to people: printed, logged, warned of or raised."""

    def received(self, error: BaseException) -> BaseException:
        """An error that a handler of the program gets: its texts are values of the run, for it may look at them."""

    def is_called_for_error(self, asking: FrameType | None) -> bool:
        """Tell whether a `raise` statement calls the function that asks: what that asks is the example's."""

    def message(self, value: Any) -> Argument:
        """Write a message: its numbers are those of a run."""


class Loops(Protocol):
    """The loops of one capture."""

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
    ) -> Any:
        """`for item in iterable`; returns whether it was left. `is_alone`: nothing but the loop has the iterable."""

    def repeat(
        self,
        test: Callable[[], Any],
        body: Callable[[], Any],
        names: tuple[str, ...],
        private: tuple[str, ...],
        asks_how: bool,
    ) -> Any:
        """`while test()`; returns whether it was left."""

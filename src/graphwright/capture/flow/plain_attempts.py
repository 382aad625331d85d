"""`try` statements run as Python runs them, by functions of their parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.capture.flow.deciding import branch
from graphwright.capture.state.parts import Handlers
from graphwright.capture.state.running import running
from graphwright.errors import GraphwrightError

if TYPE_CHECKING:
    from graphwright.capture.proxies.object_proxy import ObjectProxy
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.regions import Region
    from graphwright.capture.state.rungs import HasTruth, Raisable


def run_plainly(
    tried: Callable[[], Any],
    handlers: Handlers,
    orelse: Callable[[], Any] | None,
    names: tuple[str, ...],
    final: Any = None,
) -> Any:
    """`try: ... except ...: ... else: ... finally: ...`; returns whether it is left.

    What stops a capture is none of the program's errors: no handler gets it.
    """
    try:
        try:
            left = tried()
        except BaseException as error:
            if is_of_capture(error):
                raise
            for kinds, handler in handlers:
                if kinds is None or isinstance(error, kinds()):
                    recorder = running()
                    _see_unbound(recorder, error)
                    left = handler(error if recorder is None else recorder.questions.messages.received(error))
                    break
            else:
                raise
        else:
            left = either_leaves(left, orelse, names)
    except BaseException as error:
        if final is not None and final() and not is_of_capture(error):
            return True
        raise
    return left if final is None else either_leaves(final(), giving(left), names)


def _see_unbound(recorder: Capture | None, error: BaseException) -> None:
    """Have a loop run plainly, of which an iteration finds a variable without a value: the next may find it has one."""
    if recorder is not None and isinstance(error, NameError):
        restart = recorder.questions.refusals.unroll_around("it catches that a variable has no value")
        if restart is not None:
            raise recorder.questions.restart(restart)


def either_leaves(left: HasTruth, more: Callable[[], Any] | None, names: tuple[str, ...]) -> Any:
    """Whether a statement is left by a part of it, or else by another part."""
    if more is None or left is True:
        return left
    if left is None or left is False:
        return more()
    return branch(left, lambda: True, more, names)


def giving(value: Any) -> Callable[[], Any]:
    """A function that gives a value, and closes over nothing: variables that it closed over would be the program's."""

    def given(value: Any = value) -> Any:
        return value

    return given


def is_of_capture(error: BaseException) -> bool:
    """Tell whether an exception is how a capture goes on or stops, rather than one of the program."""
    return isinstance(error, GraphwrightError) or type(error).__module__.startswith("graphwright.capture")


def reaching(functions: Sequence[Callable[..., Any]]) -> Callable[[], Any]:
    """A function whose closure leads to the variables of the program that functions close over."""
    _gw_first, *others = functions
    _gw_others = reaching(others) if others else _gw_first

    def both() -> Any:
        return _gw_first, _gw_others

    return both


class MadeErrors:
    """The errors that the program makes, and what of: their own classes may keep something else in `args`."""

    def __init__(self) -> None:
        self.entered: list[Any] = []  # the contexts in which the program is that run code as it leaves them
        self._standing: dict[int, tuple[Any, Any]] = {}  # by id: errors raised as Python does, and what they stand for
        self._made: dict[int, tuple[Any, tuple[Any, ...]]] = {}

    def made(self, error: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note what an error is made of, and give it back."""
        if isinstance(type(error).__init__, FunctionType):
            try:
                bound = inspect.signature(type(error)).bind(*args, **kwargs)
            except (TypeError, ValueError):
                return error
            if not bound.kwargs:
                self._made[id(error)] = error, bound.args
        return error

    def standing_for(self, example: BaseException, error: ObjectProxy) -> Any:
        """Note that an error which is raised as Python does stands for one that only a run knows."""
        self._standing[id(example)] = example, error
        return example

    def original(self, error: Raisable) -> Any:
        """What an error that is raised as Python does stands for: mostly itself."""
        known = self._standing.get(id(error))
        return error if known is None else known[1]

    def args_of(self, error: BaseException) -> tuple[Any, ...]:
        """What to make an error of."""
        known = self._made.get(id(error))
        return error.args if known is None else known[1]


class PlainAttempts(MadeErrors):
    """The `try` statements of a program that is captured without values: what data decides forks."""

    are_open = False

    def __init__(self) -> None:
        super().__init__()
        self._entered: list[Any] = []  # the regions in which those were entered that may catch what is raised now

    def run(
        self,
        tried: Callable[[], Any],
        handlers: Handlers,
        orelse: Callable[[], Any] | None,
        final: Any,
        names: tuple[str, ...],
        raising: str,
    ) -> Any:
        """Run one as Python does."""
        recorder, depth = running(), len(self._entered)
        assert recorder is not None
        self._entered.append(recorder.region)

        def parted() -> Any:
            try:
                return tried()
            finally:
                if final is None:
                    del self._entered[depth:]

        def ended() -> Any:
            del self._entered[depth:]
            return final()

        return run_plainly(parted, handlers, orelse, names, None if final is None else ended)

    def catches_plainly(self) -> bool:
        """Tell whether a handler may look at what is raised where the capture is: untyped values say so themselves."""
        return False

    def catches_here(self, frame: FrameType | None) -> bool:
        """Tell whether it is known what catches: by the line alone."""
        return False

    def plain_catches(self, error: Raisable, region: Region) -> bool:
        """Tell whether the side that is being captured has entered one, which may catch what it raises."""
        return any(entered is region for entered in self._entered)

    def forks(self, error: Raisable) -> bool:
        """Tell whether one was entered before the branch whose side raises."""
        return bool(self._entered)

    def raised(self, error: Raisable) -> bool:
        """It is known by the line alone."""
        return False

    takes = raised

    def flush(self, region: Region) -> None:
        """Nothing is kept."""

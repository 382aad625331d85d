"""Random numbers of Python's and NumPy's: what draws them is found, for the graph would keep one number for ever.

Whether any were drawn is seen by the states of the generators, after a pass; so is it seen that items were taken of
an iterator that the program holds. Where, the next pass tells, which looks at them after every line of the program; a
draw of another thread is not found there. The function that draws is converted, so that its draws are nodes
(drawing.py), or stays one node if it has conditions and nothing to do with tensors; where neither can be, the program
is refused. What the program has moved is put back.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import random
import sys
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.effects.reach import how_far
from graphwright.capture.outside.drawing import GENERATORS
from graphwright.capture.outside.torch_generators import GeneratorProxy
from graphwright.source import CallSite, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


class PythonDraws:
    """The states of generators and iterators, to see whether a program draws from them."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        held = {**recorder.plan.generators, **recorder.callers.generators}
        self.known = held.keys()  # the ids of those that are looked at
        self._held = [*held.values()]  # the program's own
        for _, shell, _ in () if recorder.shells is None else recorder.shells.all():
            for value in shell.__dict__.values():
                kind: Any = type(value)
                if kind not in STATELESS and _has_state(kind):
                    self._held.append(value)
        self._put_back = [put_back for value in self._held for put_back in _putting_back(value)]
        if recorder.plan.put_back is None:
            recorder.plan.put_back = _putting_process_back()
        self._put_torch_back = _putting_back(torch.default_generator)[0]
        self._state = self._now()
        self._moved: Any = None  # of those that the program holds, the one that was found to have moved
        self._process_moved = False  # whether this thread moved a generator of the process
        self._last: tuple[FrameType, int] | None = None  # the line that runs

    def have_happened(self) -> bool:
        """Tell whether numbers were drawn since this was asked last."""
        before, self._state = self._state, self._now()
        if before == self._state:
            return False
        states = zip(self._held, before[1], self._state[1], strict=True)
        self._moved = next((value for value, then, now in states if then != now), None)
        return True

    def _now(self) -> Any:
        with torch._C.DisableTorchFunction():
            return _state(), [_state_of(value) for value in self._held]

    def put_back(self) -> None:
        """Put generators back to where they were: those of the process only if this thread is known to move them."""
        plan = self._recorder.plan
        while plan.undo:
            plan.undo[-1]()
            plan.undo.pop()
        with torch._C.DisableTorchFunction():
            for put_back in self._put_back:
                put_back()
            if self._recorder.plan.sets_torch_state:
                self._put_torch_back()
            if self._process_moved and self._recorder.plan.put_back is not None:
                self._recorder.plan.put_back()

    def failed(self) -> None:
        """The program raised an error: what has moved since was moved by it."""
        self._process_moved |= self._now()[0] != self._state[0]

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Look, while the block lasts, for the line that draws. What is one node may draw.

        No garbage is collected meanwhile: what that calls is called in any line, and what is raised there is lost.
        """
        before, collects = sys.gettrace(), gc.isenabled()
        self._recorder.examples.between = self._refuse, self.have_happened
        gc.disable()
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()
            self._last = None

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        is_operation = self._recorder.examples.is_running or user_frame(frame) is not frame
        is_library = frame.f_code.co_filename in _QUIET or frame.f_code.co_filename.startswith("<frozen ")
        return None if is_operation or is_library else self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._refuse(frame)
        self._last = frame, frame.f_lasti or 2  # what is at 0 stands for the function: source/positions.py
        return self._ran

    def _refuse(self, frame: FrameType | None = None) -> None:
        if self.have_happened() and self._last is not None:
            self._process_moved = self._moved is None
            drew, instruction = self._last
            questions, plan = self._recorder.questions, self._recorder.plan
            if plan.control_flow == "stage":
                codes = questions.staging.convertible(drew) | questions.staging.convertible(frame)
                restart = questions.refusals.helper_that_draws(drew)
                if restart is not None or codes - plan.converted:
                    raise questions.restart(restart or plan.convert(codes))
            site = CallSite(drew.f_code, instruction, self._recorder.scope)
            questions.refusals.refuse_draw(site, self._moved)


_QUIET = (random.__file__, weakref.__file__)  # what objects do when they go may happen anywhere


def _state() -> Any:
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), None if numpy is None else _plain(numpy.get_state(legacy=False))


def _putting_process_back() -> Callable[[], None]:
    numpy, state = sys.modules.get("numpy.random"), random.getstate()
    of_numpy = None if numpy is None else numpy.get_state(legacy=False)

    def put_back() -> None:
        random.setstate(state)
        if numpy is not None:
            numpy.set_state(of_numpy)

    return put_back


def has_state(value: Any) -> bool:
    """Tell whether a value that a program holds has a state to look at: a generator of numbers, or an iterator."""
    kind: Any = type(value)
    return kind not in STATELESS and _has_state(kind)


@functools.lru_cache(4096)
def _has_state(kind: type) -> bool:
    return (issubclass(kind, _GENERATORS) and kind is not GeneratorProxy) or _iterates(kind)


_GENERATORS = (*GENERATORS, torch._C.Generator)
STATELESS = frozenset({
    type(None), bool, int, float, str, bytes, tuple, list, dict, set, OrderedDict, FunctionType, BuiltinFunctionType,
    ModuleType, type, functools.partial,
})  # fmt: skip  # most of what there is


def _is_iterator(value: Any) -> bool:
    kind = type(value)
    return kind not in STATELESS and _iterates(kind)


def _iterates(kind: type) -> bool:
    return getattr(kind, "__next__", None) is not None and (kind is GeneratorType or kind.__module__ in _OF_ITERATORS)


_OF_ITERATORS = ("builtins", "itertools")


def held_stand_in(recorder: TypedCapture, value: Any, path: str) -> Any:
    """What stands for a generator of torch, or an iterator, of a module while it is captured; others are themselves."""
    if isinstance(value, torch.Generator):
        return GeneratorProxy.held(recorder, value, path)
    if not _is_iterator(value):
        return value
    try:
        with warnings.catch_warnings():  # Python 3.12 and 3.13 say that later ones cannot copy it
            warnings.simplefilter("ignore", DeprecationWarning)
            return copy.copy(value)
    except TypeError:
        return value


def _state_of(value: Any) -> Any:
    kind = type(value)
    if issubclass(kind, random.Random):
        return value.getstate()
    if issubclass(kind, torch._C.Generator):
        return torch._C.Generator.get_state(value).numpy().tobytes()
    if _is_iterator(value):
        return value.gi_frame and value.gi_frame.f_lasti if kind is GeneratorType else _reduced(value)
    return _plain(value.bit_generator.state if hasattr(value, "bit_generator") else value.get_state(legacy=False))


def _reduced(iterator: Iterator[Any]) -> Any:
    try:
        is_of_itertools = type(iterator).__module__ == "itertools"
        return repr(how_far(iterator) if is_of_itertools else iterator.__reduce__()[1:])
    except TypeError:
        return None


def _putting_back(value: Any) -> list[Callable[[], Any]]:
    kind = type(value)
    if issubclass(kind, random.Random):
        return [functools.partial(value.setstate, value.getstate())]
    with torch._C.DisableTorchFunction():
        if issubclass(kind, torch._C.Generator):
            return [functools.partial(torch._C.Generator.set_state, value, torch._C.Generator.get_state(value))]
        if _is_iterator(value):
            return []
        if hasattr(value, "bit_generator"):
            return [functools.partial(setattr, value.bit_generator, "state", value.bit_generator.state)]
        return [functools.partial(value.set_state, value.get_state(legacy=False))]


def _plain(value: Any) -> Any:
    """A state of NumPy's as what can be compared; without Python code of NumPy's, which would be looked at, too."""
    if isinstance(value, dict):
        return [_plain(item) for item in value.values()]
    return value.tobytes() if hasattr(value, "tobytes") else value

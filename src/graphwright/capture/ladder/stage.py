"""Stage: have the functions that ask converted, so that what they ask becomes a branch of the graph."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from graphwright.capture.calls.whole_calls import packs
from graphwright.capture.conversion.conversion import (
    NESTED,
    can_convert,
    can_gather,
    is_converted,
    may_ask,
    original_code,
)
from graphwright.capture.conversion.generators import gathers
from graphwright.capture.outside.outside_modules import is_outside_call
from graphwright.capture.outside.said import tells
from graphwright.capture.python.entering import converted_function, initializer
from graphwright.capture.state.running import BOUNDARIES, again
from graphwright.source import is_ours, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

# After so many passes, functions that may ask are converted when they are called, not when they have asked.
_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_PATIENT = 1


class Staging:
    """Looks for the functions of one capture that are to be converted."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def stage(self, frame: FrameType | None) -> None:
        """Start again with the function of a frame converted, where that can be and is not done."""
        if self._capture.pending is not None:
            raise again(self._capture.pending)
        if self._capture.plan.control_flow == "stage":
            self.convert_all(self.convertible(frame))

    def convert_all(self, codes: set[CodeType]) -> None:
        """Start again with these functions converted, if there are any."""
        if codes:
            raise self._capture.questions.restart(self._capture.plan.convert(codes))

    def leaf_called(self, frame: FrameType) -> None:
        """A function that is to be one node was called by a frame whose calls do not come through the runtime."""
        if user_frame(frame) is frame and not self._capture.examples.is_running:
            self.convert_all(self.convertible(frame))

    def convertible(self, frame: FrameType | None) -> set[CodeType]:
        """The functions to convert so that this frame's one is: it and its callers up to the nearest module call.

        None where that is done already, or cannot be.
        """
        codes: set[CodeType] = set()
        if frame is None or is_converted(frame.f_code):
            return codes
        shells = self._capture.shells
        while frame is not None and (frame.f_code not in BOUNDARIES or is_outside_call(frame, shells)):
            code = frame.f_code
            if not (code in BOUNDARIES or is_converted(code) or is_ours(code.co_filename) or code.co_name in NESTED):
                if not can_convert(code) and not (can_gather(code) and self._is_gathered(frame)):
                    return set()
                codes.add(code)
            frame = frame.f_back
        return codes if codes - self._capture.plan.converted else set()

    def convertible_at(self, error: BaseException) -> set[CodeType]:
        """The functions to convert so that the one is in which an error was raised."""
        every = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        frames = [frame for frame in every if user_frame(frame) is frame]
        return self.convertible(frames[-1]) if frames else set()

    def converted(self, function: Callable[..., Any]) -> Any:
        """What to call in place of a function."""
        self.anticipate(function)
        return converted_function(function, self._capture.plan.converted)

    def conversion(self, function: Callable[..., Any]) -> Any:
        """The conversion of a function that has asked; other functions are answered as they are."""
        return converted_function(function, self._capture.plan.converted)

    def gathering(self, function: Callable[..., Any]) -> Any:
        """What gathers what a generator function gives that has asked; None for other functions."""
        plan = self._capture.plan
        made = converted_function(function, plan.converted, gathers=True)
        is_banned = getattr(getattr(function, "__func__", function), "__code__", None) in plan.ungathered
        return None if made is function or is_banned else made

    def anticipate(self, function: Callable[..., Any]) -> None:
        """In a program that has asked before, have a function that may ask converted before it does.

        One with `*args` or `**kwargs` from the start where symbolic tracing calls it by other code, without the stars.
        """
        plan = self._capture.plan
        inner = function.__func__ if type(function) is MethodType else function
        inner = initializer(inner) if isinstance(inner, type) else inner
        if type(inner) is not FunctionType or inner.__code__ in plan.converted:
            return
        code = inner.__code__
        is_patient = self._capture.typed is not None or not code.co_flags & _STARS
        may_matter = ((plan.passes > _PATIENT or not is_patient) and may_ask(code)) or packs(code) or tells(inner)
        if may_matter and can_convert(code):
            plan.converted.add(code)

    def convert_called(self, function: Callable[..., Any]) -> bool:
        """Have a function of the program converted that gets objects outside of torch: what it calls gets them, too.

        True where it was not before.
        """
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        converted = self._capture.plan.converted
        if code is None or is_converted(code) or code in converted or is_ours(code.co_filename):
            return False
        if can_convert(code):
            converted.add(code)
            return True
        return False

    def _is_gathered(self, frame: FrameType) -> bool:
        """Tell whether what a generator gives is gathered by the function that goes over it."""
        outer = frame.f_back
        while outer is not None and (is_ours(outer.f_code.co_filename) or original_code(outer.f_code) is None):
            outer = outer.f_back  # parts of the function, too
        code = None if outer is None or frame.f_code in self._capture.plan.ungathered else original_code(outer.f_code)
        return code is not None and gathers(code, frame.f_code.co_name)

"""Outline: where a program cannot be traced, the innermost function or module that can be cut out is one node."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.conversion.conversion import NESTED, is_converted, original_code
from graphwright.capture.python.calls import call
from graphwright.capture.state.running import RUN
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_GENERATOR = 0x20  # a flag of code objects
_CALL = call.__code__


def outline(recorder: TypedCapture, frame: FrameType | None, why: str) -> BaseException | None:
    """Have the function that asks become one node, or the nearest one around it that a capture can cut out.

    Its callers are converted first, so that they call it through the runtime. None where only the program's own entry
    is left.
    """
    while frame is not None and frame.f_code is not RUN:
        is_part = frame.f_code.co_name in NESTED or bool(frame.f_code.co_flags & _GENERATOR)  # who made it runs on
        if user_frame(frame) is frame and not is_part and not _closes_over_values(recorder, frame):
            restart = _cut_out(recorder, frame, why)
            if restart is not None:
                return restart
        frame = frame.f_back
    return None


def _cut_out(recorder: TypedCapture, frame: FrameType, why: str) -> BaseException | None:
    """Start again with the function of this frame as one node; None where that cannot be, or was tried."""
    code = original_code(frame.f_code)
    if code is None:  # one side of a branch
        return None
    plan = recorder.plan
    module_call = type(recorder).call_module.__code__
    outer = frame.f_back
    while outer is not None and outer.f_code is not RUN:
        if outer.f_code is _CALL:
            return None if code in plan.outlined else plan.outline(code, code.co_name, why)
        if outer.f_code is module_call:
            path = outer.f_locals["path"]
            return None if not path or path in plan.outlined else plan.outline(path, path, why)
        if user_frame(outer) is outer:
            codes = recorder.questions.staging.convertible(outer)
            return plan.convert(codes) if codes and not is_converted(outer.f_code) else None
        outer = outer.f_back
    return None


def _closes_over_values(recorder: TypedCapture, frame: FrameType) -> bool:
    """Tell whether a function has values or modules of the program from around it: it cannot run elsewhere."""
    held = [frame.f_locals.get(name) for name in frame.f_code.co_freevars]
    shells = recorder.shells
    return any(map(holds_values, held)) or (shells is not None and any(map(shells.leads_to_module, held)))

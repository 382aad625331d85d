"""The warnings of a capture itself, given at the user's line that they are about."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.plan import Log


class TracerWarning(UserWarning):
    """The captured program may differ from the original with other data, or leaves out an effect of it."""


def warn_tracer(message: str, log: Log | None = None, frame: FrameType | None = None) -> None:
    """Give a TracerWarning where a frame is, or at the nearest line of the user's, once in the captures of a log."""
    if log is not None:
        if (message, "") in log.told:
            return
        log.told.add((message, ""))
    frame = frame or user_frame(sys._getframe(1))
    if frame is None:
        warnings.warn(message, TracerWarning, stacklevel=2)
    else:
        warn_at(frame, message, TracerWarning)


def warn_at(frame: FrameType, message: str | Warning, category: type[Warning], source: Any = None) -> None:
    """Give a warning as `warnings.warn` would in the line that a frame runs."""
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    place = frame.f_code.co_filename, frame.f_lineno, names.get("__name__")
    warnings.warn_explicit(message, category, *place, registry, source=source)

"""`sum(f(x))`, `list(f(x))` and `tuple(f(x))` of converted functions, where `f` may be a generator function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphwright.capture.conversion.generators import GATHERED
from graphwright.capture.python.calls import call
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.running import running


def gathered(gather: Callable[[Any], Any], function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """`gather(function(*args, **kwargs))`: a generator function that has asked runs as one that fills a list."""
    recorder = running()
    made = None
    if recorder is not None and (gather is sum or gather is list or gather is tuple):
        made = recorder.questions.staging.gathering(function)
    if recorder is None or made is None:
        return call(gather, call(function, *args, **kwargs))
    before = recorder.writes.count
    found = call(made, *args, **{GATHERED: []}, **kwargs)
    if gather is list:
        return found
    if gather is sum and recorder.writes.count != before:  # to what is added already, perhaps
        recorder.plan.ungathered.add(getattr(function, "__func__", function).__code__)
        raise recorder.questions.restart(Restart("a generator writes in place"))
    return call(gather, found)

"""Values that hold themselves: going over one runs too deep, and the error is to say so."""

from __future__ import annotations

from typing import Any

from graphwright.capture.proxies.objects import is_plain_object
from graphwright.errors import CaptureError


def error_of_cycle(error: Exception, at: str | None) -> CaptureError | None:
    """What to raise for an error, where it is that something holds itself; None for others."""
    kind = _class_of_cycle(error) if isinstance(error, RecursionError) else None
    if kind is None:
        return None
    return CaptureError(
        f"a {kind} of the program holds itself, however far inside: a graph can neither take nor make such a value",
        at=at,
        fix="refer to what is around by a name or an index, or keep what makes it as one node: leaf_functions",
    )


def _class_of_cycle(error: BaseException) -> str | None:
    """The class of what holds itself, where the functions that have run too deep were going over it; else None.

    Whoever goes over such a value has it, and what is in it, at each of the last steps.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in frames[:-_LAST_STEPS:-1]:
        for value in frame.f_locals.values():
            if _may_hold(value):
                found = _holds_itself(value)
                if found is not None:
                    return type(found).__name__
    return None


_LAST_STEPS = 40
_MOST = 10_000  # values that are looked at
_HOLDERS = (list, tuple, dict)


def _holds_itself(first: Any) -> Any:
    """The object, dict or list that a value leads to which leads to itself; None where there is none."""
    around: set[int] = set()  # what the value that is looked at is in
    done: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(first, False)]  # whether all that is in it has been looked at
    while waiting and len(done) < _MOST:
        value, is_over = waiting.pop()
        if is_over:
            around.discard(id(value))
            done.add(id(value))
        elif id(value) in around:
            path = [each for each, is_around in waiting if is_around]
            first = next(i for i, each in enumerate(path) if each is value)
            return min(path[first:], key=_rank)
        elif id(value) not in done:
            around.add(id(value))
            waiting += [(value, True), *[(each, False) for each in _inside(value) if _may_hold(each)]]
    return None


def _rank(value: Any) -> int:
    """What to name of a circle, whose values any step may be at: an object before a dict, that before a list."""
    return next((rank for rank, kind in enumerate((dict, list, tuple), 1) if isinstance(value, kind)), 0)


def _may_hold(value: Any) -> bool:
    is_ours = type(value).__module__.partition(".")[0] in ("graphwright", "torch")
    return isinstance(value, _HOLDERS) or (not is_ours and is_plain_object(value))


def _inside(value: Any) -> list[Any]:
    held = value if isinstance(value, _HOLDERS) else vars(value)
    return [*(held.values() if isinstance(held, dict) else held)]

"""Contexts of the program that may swallow an error, or do anything else as it leaves them: a graph cannot ask them."""

from __future__ import annotations

import ast
import contextlib
import dis
import itertools
from contextlib import AbstractContextManager
from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.unwritten import Since
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.state.running import refused, running
from graphwright.source import holds, is_internal, source_behind

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


def watched(context: AbstractContextManager[Any]) -> Any:
    """What a `with` block enters: the context, or one that does the same and is known to be entered."""
    recorder = running()
    return context if recorder is None or not _runs_code(context) else _Watched(recorder, context)


def check_contexts(recorder: Capture) -> None:
    """An error is about to be raised in the graph. Raises CaptureError where a context may swallow it."""
    entered: list[_Watched] = recorder.attempts.entered
    for each in reversed(entered):
        if _may_swallow(each.context):
            name = type(each.context).__name__
            message = f"data decides whether an error is raised that a context of the program, {name}, may swallow"
            raise refused(recorder, message, "write `try` and `except`")
        each.raised.append(recorder.region.place)


class _Watched:
    """A context that the program has entered; `raised` are the places of sides in it that end with an error.

    The graph leaves it as Python does on all other ways. Where that does anything, each of those sides is a path.
    """

    def __init__(self, recorder: Capture, context: AbstractContextManager[Any]) -> None:
        self._recorder, self.context = recorder, context
        self.raised: list[Any] = []

    def __enter__(self) -> Any:
        value = type(self.context).__enter__(self.context)
        self._recorder.attempts.entered.append(self)
        return value

    def __exit__(self, *error: Any) -> Any:
        recorder = self._recorder
        recorder.attempts.entered.remove(self)
        since = Since(recorder) if self.raised and recorder.pending is None else None
        left = type(self.context).__exit__(self.context, *error)
        if since is not None and recorder.pending is None and (since.has_acted() or since.has_changed()):
            why = f"leaving {type(self.context).__name__} does what an error must not leave out"
            raise recorder.questions.restart(recorder.plan.change(self.raised[0], "fork", why))
        return left


def _runs_code(context: AbstractContextManager[Any]) -> bool:
    """Tell whether a function that is not torch's runs where a context is left."""
    kind: type = type(context)
    code = context.gen.gi_code if isinstance(context, contextlib._GeneratorContextManager) else None  # type: ignore[attr-defined]
    is_of_torch = is_torch(kind) or (code is not None and is_internal(code.co_filename))
    return not is_of_torch and isinstance(getattr(kind, "__exit__", None), FunctionType)


def _may_swallow(context: AbstractContextManager[Any]) -> bool:
    """Tell whether leaving a context may end an error: its `__exit__` gives something, its `yield` has a handler."""
    kind: Any = type(context)
    leave = kind.__exit__
    if kind is contextlib.ExitStack:
        return False
    if isinstance(context, contextlib._GeneratorContextManager):
        generator: Any = context.gen
        code = generator.gi_code
        lines = [line for _, _, line in code.co_lines() if line is not None]
        return any(
            node.handlers and holds(node.body, ast.Yield)
            for node in (source_behind(code).handlers(lines[0], max(lines)) if lines else ())
        )
    steps = [step for step in dis.get_instructions(leave) if step.opname not in ("RESUME", "NOP", "CACHE")]
    return any(
        step.opname == "RETURN_VALUE" and (before.opname != "LOAD_CONST" or before.argval)
        for before, step in itertools.pairwise(steps)
    ) or any(step.opname == "RETURN_CONST" and step.argval for step in steps)

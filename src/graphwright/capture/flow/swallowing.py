"""Contexts of the program that may swallow an error: a graph cannot ask them whether they do."""

from __future__ import annotations

import ast
import contextlib
import dis
import itertools
from contextlib import AbstractContextManager
from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.state.running import refused, running
from graphwright.source import holds, source_behind

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


def watched(context: AbstractContextManager[Any]) -> Any:
    """What a `with` block enters: the context, or one that does the same and is known to be entered."""
    recorder = running()
    return context if recorder is None or not _may_swallow(context) else _Watched(recorder, context)


def check_contexts(recorder: Capture) -> None:
    """An error is about to be raised in the graph. Raises CaptureError where a context may swallow it."""
    if recorder.attempts.swallowing:
        name = type(recorder.attempts.swallowing[-1]).__name__
        message = f"data decides whether an error is raised that a context of the program, {name}, may swallow"
        raise refused(recorder, message, "write `try` and `except`")


class _Watched:
    def __init__(self, recorder: Capture, context: AbstractContextManager[Any]) -> None:
        self._entered, self._context = recorder.attempts.swallowing, context

    def __enter__(self) -> Any:
        value = type(self._context).__enter__(self._context)
        self._entered.append(self._context)
        return value

    def __exit__(self, *error: Any) -> Any:
        self._entered.pop()
        return type(self._context).__exit__(self._context, *error)


def _may_swallow(context: AbstractContextManager[Any]) -> bool:
    """Tell whether leaving a context may end an error: its `__exit__` gives something, its `yield` has a handler."""
    kind = type(context)
    leave = getattr(kind, "__exit__", None)
    if is_torch(kind) or not isinstance(leave, FunctionType) or kind is contextlib.ExitStack:
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

"""Functions of the program around a transform: those that it gives back, and what is known of the one it is given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.state.running import again
from graphwright.ir import Node
from graphwright.ops import TRANSFORMS

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


class Transformed:
    """What a transform makes of a function while a program is captured: a call of it is recorded.

    After the capture it is what torch makes.
    """

    def __init__(
        self, recorder: TypedCapture, name: str, function: Callable[..., Any], options: dict[str, Any]
    ) -> None:
        self._recorder, self._name, self._function, self._options = recorder, name, function, options
        if not isinstance(function, nn.Module):
            functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if not recorder.is_running or recorder.examples.is_running:
            return TRANSFORMS[self._name].function(self._function, **self._options)(*args, **kwargs)
        if recorder.pending is not None:
            raise again(recorder.pending)
        return recorder.transforms.record(self._name, self._function, self._options, args, kwargs)


class GivenFunction:
    """A function that an operation of the program gives: a call of it is recorded."""

    def __init__(self, recorder: TypedCapture, function: Callable[..., Any], node: Node) -> None:
        self._recorder, self._function, self._node = recorder, function, node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.record("call_method", "__call__", self._function, args, kwargs, (self._node,))


def parameters_of(function: Callable[..., Any], count: int) -> list[str]:
    """What a function calls its first inputs."""
    names: list[str] = []
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
    except (TypeError, ValueError):
        pass
    return [*names, *[f"input_{i}" for i in range(len(names), count)]][:count]


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code that a function of the program runs."""
    while True:
        if isinstance(function, nn.Module):
            function = function.forward
        elif isinstance(function, FunctionType):
            return function.__code__
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, Transformed):
            function = function._function
        else:
            return None

"""Optionals: who gets a tensor that is None on some ways through the program asks through the runtime, or it forks."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.conversion.conversion import can_convert, is_converted, may_look
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.uncertain import (
    ITERATORS,
    SEVERAL,
    fork_for,
    found_by,
    only_moves,
    stores,
    uncertain_in,
)
from graphwright.capture.python.entering import initializer
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.tensor_proxy import TensorProxy, is_uncertain
from graphwright.source import is_internal, user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


class Optionals:
    """Follows the tensors of one capture that may be None, or a bool, to the functions that may ask."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.are_there = False  # whether there is such a tensor
        self._in_iterator: TensorProxy | None = None  # one that an iterator may hold

    def note(self) -> None:
        """Note that there is such a tensor."""
        self.are_there = True

    def admit(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """See to it that a function which gets such a tensor asks through the runtime, or have it fork."""
        if isinstance(function, nn.Module):
            return  # call_module looks at what it calls
        given = (*args, *kwargs.values())
        found = self._found_in(given)
        if found is None or is_torch(function):
            return
        if only_moves(function, args):
            self._in_iterator = found  # if that is what it gives
            return
        if stores(function):
            self.hold(given)
            return
        code = _code_behind(function, found)
        if not (is_converted(code) or code in self._capture.plan.converted):
            if not can_convert(code):
                raise fork_for(found, "reaches what has no source")
            self._capture.plan.converted.add(code)  # the call that follows is one of the conversion

    def admit_module(self, shell: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The same for a module of the program: have it run the conversion of its forward."""
        capture, forward = self._capture, shell.forward
        self.admit(forward, args, kwargs)
        converted = capture.questions.staging.conversion(forward)
        if converted is not forward:
            if capture.states or capture.keeping is None:  # what a side of a branch sets is the side's
                raise capture.questions.restart(Restart(f"converted {type(shell).__name__}.forward"))
            capture.keeping.set_forward(shell, converted)

    def _found_in(self, given: tuple[Any, ...]) -> TensorProxy | None:
        """Such a tensor among arguments, or in what they hold."""
        found = next((leaf for leaf in leaves(given) if is_uncertain(leaf)), None)
        if found is not None:
            return found  # type: ignore[no-any-return]
        if any(isinstance(arg, ITERATORS) for arg in given):
            return self._in_iterator
        return uncertain_in([value for value in given if isinstance(value, SEVERAL)])

    def attribute_may_be_none(self, optional: TensorProxy, frame: FrameType) -> None:
        """Code that may ask whether an attribute is None is entered: have it ask through the runtime."""
        if user_frame(frame) is frame and not is_converted(frame.f_code) and not self._capture.examples.is_running:
            self.convert_for(optional, self._capture.questions.staging.convertible(frame))

    def hold(self, value: Any) -> None:
        """A value is put into an object or container: have functions looked at that may find None or a tensor there."""
        plan = self._capture.plan
        if self.are_there and not plan.looks_into_arguments and any(map(is_uncertain, leaves(value))):
            plan.looks_into_arguments = True
            raise self._capture.questions.restart(Restart("None or a tensor is kept where other functions find it"))

    def function_entered(self, frame: FrameType) -> None:
        """See to it that a function which finds such a value in what it is given asks through the runtime."""
        code = frame.f_code
        if is_internal(code.co_filename) or code.co_filename.startswith("<") or not self.are_there:
            return
        if self._capture.examples.is_running or is_converted(code) or not may_look(code):
            return
        found = uncertain_in(found_by(frame))
        if found is not None:
            self.convert_for(found, self._capture.questions.staging.convertible(frame))

    def convert_for(self, optional: TensorProxy, codes: set[CodeType]) -> None:
        """Have functions converted for such a tensor, or where there is none to convert, have it fork."""
        self._capture.questions.staging.convert_all(codes)
        raise fork_for(optional, "reaches what has no source")


def _code_behind(function: Callable[..., Any], optional: TensorProxy) -> CodeType:
    """The code that runs when a function, method, partial or class is called."""
    while not isinstance(function, FunctionType):
        function = getattr(function, "__func__", None) or getattr(function, "func", None) or initializer(function)
        if function is None:
            raise fork_for(optional, "is passed to C code")
    return function.__code__

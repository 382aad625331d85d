"""Dtypes that a program reads of a tensor and hands on: `y.to(x.dtype)`, `kind = x.dtype; ...; y.to(kind)`.

A dtype is one object for all tensors that have it, so that its value does not tell where it comes from. What the
function does with what it reads tells (`source/uses.py`): where that is to give it to calls of torch, the calls get the
node that reads it, and the program is not specialized to it; nor is it where that is to give it to functions that never
look at it. Any other use is asking: of a question that is known the answer is taken for granted (`dtype_questions.py`),
else the dtype.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections.abc import Callable
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.compared_dtypes import ComparedDtypes
from graphwright.capture.calls.dtype_questions import alike, is_read_at_the_call
from graphwright.capture.calls.facts import dtype_of, program_frame, take_dtype, whole_frame
from graphwright.capture.calls.kept_values import KeptValue, KeptValues
from graphwright.capture.conversion.calls_left import is_called_by_runtime
from graphwright.capture.conversion.conversion import is_converted, original_code
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import (
    Use,
    argument_for,
    argument_of,
    call_at,
    calls_the_same,
    code_called_by,
    function_of_call,
    ignores,
    looks_at_all,
    parameter_uses,
    uses_of,
    uses_of_argument,
)

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node, Target

# What functions of torch that are written in Python hand their arguments on to.
_HANDS_ON = getattr(torch.overrides.handle_torch_function, "__code__", None)


# What runs between the call of a module and its `forward`.
_CALLS = (nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__)
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # and runs on for others


@dataclasses.dataclass(slots=True, eq=False)
class _Handed:
    """The dtype of a tensor that a function gives to a call."""

    tensor: torch.Tensor  # of the program, or of its modules
    use: Use
    at: str
    is_reached: bool  # the call takes place, or nobody knows whether it does
    is_called: bool = False  # it has taken place, as seen in a converted function
    has_arrived: bool = False  # so that nothing depends on it, short of what torch makes of it
    caller: FrameType | None = None  # which will know by then what it calls, once
    outer: _Handed | None = None  # that of who called this function, which has it from there


class Dtypes:
    """The dtypes that the program of one capture has read and not handed on yet."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self.handed: dict[tuple[int, tuple[int, int]], _Handed] = {}  # by frame of the call, and place of the argument
        self.kept = KeptValues()
        self._compared = ComparedDtypes(recorder)

    def read(self, tensor: torch.Tensor, frame: FrameType | None, at: str) -> None:
        """Note that the program reads the dtype of a tensor, in a frame of its own."""
        if not isinstance(tensor, TensorProxy) and self._recorder.tensors.path(tensor) is None:
            return  # a constant, whose dtype is part of the program
        uses = () if frame is None else uses_of(frame.f_code, frame.f_lasti)
        while frame is not None and uses and all(use.is_returned for use in uses):
            frame, uses = _who_gets_result(frame)
        self._follow(tensor, uses, frame, at)

    def _follow(self, tensor: torch.Tensor, uses: tuple[Use, ...], frame: FrameType | None, at: str) -> None:
        """Note what a function does with the dtype of a tensor."""
        if len(uses) == 1 and uses[0].kept is not None and self._is_kept(tensor, uses[0].kept, frame, at):
            return
        others = self._compared.without_compared(uses, tensor, frame, at)
        told = [_as_good(use, tensor, frame) for use in others if use.argument is None]
        if frame is None or not uses or None in told:
            take_dtype(self._recorder, tensor, None, at)
            return
        for dtypes in told:
            take_dtype(self._recorder, tensor, dtypes, at)
        for use in others:
            if use.argument is None:
                continue
            assert use.call is not None
            is_seen = use.may_wait and is_converted(frame.f_code) and is_called_by_runtime(use.call)
            called = None if is_seen else function_of_call(use.call, frame)
            is_told_later = called is None and use.may_wait and not is_seen and not calls_the_same(use.call, frame)
            if is_told_later and use.may_recur:  # by several functions: it may be another one each time
                take_dtype(self._recorder, tensor, None, at)
            elif not ignores(called, use.call, use.argument):
                key = id(whole_frame(frame)), use.argument
                self._missed(self.handed.get(key))
                caller = frame if is_told_later else None
                handed = _Handed(tensor, use, at, is_reached=not is_seen, caller=caller)
                handed.has_arrived = _would_arrive(called, use)
                self.handed[key] = handed

    def let_keep(
        self, owner: Any, name: str, value: torch.dtype | torch.device, node: Callable[[], Node], ask: Callable[[], Any]
    ) -> bool:
        """Have an input keep a dtype or device that is read at the call; `ask`, where the program asks for it."""
        if not self.kept.may_keep(owner, name):
            return False
        self.kept.put(owner, name, KeptValue(value, node, lambda reader: ask()))
        return True

    def _is_kept(self, tensor: torch.Tensor, place: tuple[str, str], frame: FrameType | None, at: str) -> bool:
        """Have an object keep a dtype so that it tells which tensor's it is, where that can be."""
        if frame is None or self._recorder.region is not self._recorder.root:
            return False
        owner = frame.f_locals.get(place[0])
        keeping = self._recorder.keeping
        if not self.kept.may_keep(owner, place[1]) or (keeping is not None and id(owner) in keeping.kept_tables()):
            return False
        value = KeptValue(dtype_of(tensor), lambda: self.node_of(tensor), lambda reader: self.read(tensor, reader, at))
        self._recorder.keep.append(tensor)
        self.kept.expect(owner, place[1], value, frame)
        return True

    def given(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A converted function is about to call something. `put_into` tells whether torch gets what it hands on."""
        places = [(arg, index, None) for index, arg in enumerate(args)] + [(kwargs[name], 0, name) for name in kwargs]
        caller = sys._getframe(2)
        frame = program_frame(caller)
        for value, index, keyword in places:
            if type(value) is not torch.dtype:
                continue
            handed = None if frame is None else self._handed_at(frame, index, keyword)
            if handed is None:  # by another way than its variable: it may be any of them
                for each in self.handed.values():
                    each.is_reached |= dtype_of(each.tensor) == value
            elif frame is caller or not handed.is_called:  # else it is on its way, through the runtime
                if handed.is_called:
                    self._missed(handed)  # by the call before, at the same place
                use = handed.use
                handed.is_reached = handed.is_called = True
                assert use.call is not None and use.argument is not None
                handed.has_arrived = ignores(function, use.call, use.argument) or _would_arrive(function, use)

    def put_into(
        self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], is_method: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call of torch that the program makes, with nodes in place of dtypes that it has read."""
        if not any(type(arg) is torch.dtype for arg in (*args, *kwargs.values())):
            return args, kwargs
        frame = program_frame(sys._getframe(1), (_HANDS_ON, getattr(target, "__code__", None)))
        if frame is not None:
            args = tuple([self.node_given(arg, frame, i - is_method, None) or arg for i, arg in enumerate(args)])
            kwargs = {name: self.node_given(arg, frame, 0, name) or arg for name, arg in kwargs.items()}
        return args, kwargs

    def node_given(self, dtype: Any, frame: FrameType, index: int, keyword: str | None) -> Node | None:
        """The node that reads the dtype which a frame's call gives as an argument; None where it is a plain one."""
        tensor = self.tensor_given(dtype, frame, index, keyword)
        return None if tensor is None else self.node_of(tensor)

    def tensor_given(self, dtype: Any, frame: FrameType, index: int, keyword: str | None) -> torch.Tensor | None:
        """The tensor whose dtype a frame's call gives as an argument, which so has arrived; None for a plain dtype."""
        if type(dtype) is not torch.dtype or (index < 0 and keyword is None):
            return None
        handed = self._handed_at(frame, index, keyword)
        if handed is None or dtype_of(handed.tensor) != dtype:
            return None
        handed.has_arrived = True
        return handed.tensor

    def node_of(self, tensor: torch.Tensor) -> Node:
        """The node that reads the dtype of a tensor."""
        recorder, known = self._recorder, self._recorder.region.attributes
        key = "dtype", id(tensor)
        if key not in known:
            arguments: tuple[Any, ...] = (recorder.argument(tensor), "dtype")
            known[key] = recorder.node("call_function", getattr, arguments, {}, "dtype")
            recorder.keep.append(tensor)
        return known[key]

    def _handed_at(self, frame: FrameType, index: int, keyword: str | None) -> _Handed | None:
        """What is handed on at the place of an argument of the call that a frame makes."""
        given = argument_of(frame.f_code, frame.f_lasti, index, keyword)
        return None if given is None else self._handed_as(given, frame)

    def _handed_as(self, given: ast.expr, frame: FrameType) -> _Handed | None:
        """What is handed on by an argument in a frame, which may be what its function was handed as a parameter.

        What the function does with that parameter is followed then as if it had read the dtype itself: each call that
        it gives it to must take place, and be one of torch.
        """
        whole, place = whole_frame(frame), (given.lineno, given.col_offset)
        handed = self.handed.get((id(whole), place))
        if handed is not None and handed.outer is None:
            return handed
        if not isinstance(given, ast.Name) or looks_at_all(whole.f_code):
            return None
        outer = self._handed_by_caller(whole, given.id)
        if outer is None or (outer.use.may_wait and outer.use.may_recur):
            return None
        if handed is not None and handed.outer is outer:  # else of a frame before, which has gone
            return handed
        outer.has_arrived = True
        uses = parameter_uses(whole.f_code, whole.f_lineno, given.id)
        self._follow(outer.tensor, uses, whole, outer.at)
        for use in uses:
            inner = None if use.argument is None else self.handed.get((id(whole), use.argument))
            if inner is not None:
                inner.outer = outer
                inner.is_reached = True  # by what nobody has seen: it was not known that there is something to see
        return self.handed.get((id(whole), place))

    def _handed_by_caller(self, frame: FrameType, name: str) -> _Handed | None:
        """What a function that runs in a frame was handed as one of its parameters, by a call of the program."""
        caller, code = program_frame(frame.f_back, _CALLS), original_code(frame.f_code) or frame.f_code
        call = None if caller is None else call_at(caller.f_code, caller.f_lasti)
        if caller is None or call is None or code.co_flags & _PAUSES:
            return None
        called = function_of_call(call, caller)
        called = called.forward if isinstance(called, nn.Module) else called
        function = getattr(called, "__func__", called)
        if called is not None and getattr(function, "__code__", None) is not code:
            return None
        is_bound = isinstance(called, MethodType) or (called is None and code.co_varnames[:1] == ("self",))
        given = argument_for(code, call, name, is_bound)
        return None if given is None else self._handed_as(given, caller)

    def have_arrived(self) -> bool:
        """Tell whether all of them were handed on to calls of torch, or to who ignores them."""
        for handed in self.handed.values():
            if handed.caller is not None and not handed.has_arrived:
                assert handed.use.call is not None and handed.use.argument is not None
                called = function_of_call(handed.use.call, handed.caller)
                is_ignored = ignores(called, handed.use.call, handed.use.argument)
                handed.has_arrived = is_ignored or _would_arrive(called, handed.use)
            handed.caller = None if handed.has_arrived else handed.caller
        return all(handed.has_arrived for handed in self.handed.values())

    def end_call(self) -> bool:
        """Tell whether all were that functions handed on which have ended; what they did not get to is over."""
        self.handed = {key: handed for key, handed in self.handed.items() if handed.is_reached or handed.has_arrived}
        return self.have_arrived()

    def settle(self) -> None:
        """The program has ended: what did not arrive at a call of torch, on its way, was asked for somewhere."""
        self._compared.settle()
        self.have_arrived()
        for handed in self.handed.values():
            self._missed(handed)
        self.handed.clear()

    def _missed(self, handed: _Handed | None) -> None:
        if handed is not None and handed.is_reached and not handed.has_arrived:
            take_dtype(self._recorder, handed.tensor, None, handed.at)


def _as_good(use: Use, tensor: torch.Tensor, frame: FrameType | None) -> frozenset[torch.dtype] | None:
    """The dtypes for which a program that only asks for one gets the same answer."""
    return None if use.asked is None or frame is None else alike(use.asked, dtype_of(tensor), frame)


def _would_arrive(called: Any, use: Use) -> bool:
    """Tell whether all that a function does with what it gets, once, would be seen if it came to it."""
    assert use.call is not None and use.argument is not None
    uses = () if use.may_recur else uses_of_argument(called, use.call, use.argument)
    function = getattr(called, "__func__", called)
    is_known = bool(uses) and not function.__code__.co_flags & _PAUSES
    return is_known and all(is_read_at_the_call(each, function) for each in uses)


def _who_gets_result(frame: FrameType) -> tuple[FrameType | None, tuple[Use, ...]]:
    """The frame of who gets what a function returns that runs in a frame, and what that does with it.

    Where something between the two may keep the result, for calls that are not seen, nobody knows what is done with it.
    """
    whole = whole_frame(frame)
    caller, code = program_frame(whole.f_back), original_code(whole.f_code) or whole.f_code
    if caller is None:
        return None, ()
    if code.co_name == "<genexpr>":  # of which `next` takes one
        call = call_at(caller.f_code, caller.f_lasti)
        is_told = call is not None and function_of_call(call, caller) is next
    else:
        is_told = code_called_by(caller) is code
    return (caller, uses_of(caller.f_code, caller.f_lasti)) if is_told else (None, ())

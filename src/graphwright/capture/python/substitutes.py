"""What to call in place of a function of the program, as what kind of thing it is and what it is given say.

Asked after the table of `calls`, which knows single functions: leaves of the user's, draws of random numbers, functions
that take functions, modules, functions that take arrays, exceptions. None: call the function, or its conversion.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import operator
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.opaque import holds_values, record_foreign_call, record_leaf_function
from graphwright.capture.calls.refusals import is_misfit, is_refused_value
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.effects.branch_state import names_reached
from graphwright.capture.outside.drawing import is_draw, record_draw
from graphwright.capture.outside.outside_modules import call_outside
from graphwright.capture.outside.overheard import hear
from graphwright.capture.outside.said import tells_people
from graphwright.capture.outside.torch_generators import record_generator_call
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectMethod, ObjectProxy, holds_objects, is_foreign
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.python.messages import written
from graphwright.capture.state.leaf_modules import called_with
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import refused
from graphwright.capture.state.symbols import is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import is_foreign_file
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Substitute = Callable[..., Any] | None


def substitute(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Substitute:
    """What takes a call over; None where the function itself, or its conversion, is to be called."""
    if recorder.typed is None and _looks_for_proxies(function, args):
        return _taking(recorder.torch_function, function)
    plan = recorder.plan
    is_leaf = plan.leaves and (
        id(function) in plan.leaf_ids or id(getattr(function, "__func__", None)) in plan.leaf_ids
    )
    if is_leaf or (plan.outlined and _code_of(function) in plan.outlined):
        return _taking(record_leaf_function, with_examples(recorder), function)
    if plan.leaves and type(function) not in _THEMSELVES:
        leaf = called_with(function, plan.leaf_ids)
        if leaf is not None:
            taken = _taking(record_leaf_function, with_examples(recorder), leaf.func)
            return functools.partial(taken, *leaf.args, **leaf.keywords)
    kind = type(function)
    if kind is BuiltinFunctionType and type(getattr(function, "__self__", None)) is TensorProxy:
        return _by_arguments(recorder, function, args, kwargs)
    if (
        kind in _BOUND
        and function.__name__ in ("write", "writelines")
        and tells_people(recorder, getattr(function, "__self__", None))
    ):
        return functools.partial(written, recorder, function)
    stand_in = hear(function)
    if stand_in is not function:
        return stand_in  # type: ignore[no-any-return]
    if kind is ObjectProxy:
        return function  # type: ignore[no-any-return]
    if kind is not FunctionType and recorder.typed is not None:
        if is_draw(function):
            return _taking(record_draw, recorder.typed, function)
        if kind is BuiltinFunctionType and isinstance(function.__self__, torch._C.Generator):
            return _taking(record_generator_call, recorder.typed, function.__name__, function.__self__)
    by_type: Callable[..., Substitute] = _BY_TYPE.get(kind, _of_object)
    return recorder.transforms.handler(function) or by_type(recorder, function, args, kwargs)


_BOUND = frozenset({BuiltinFunctionType, MethodType})
_THEMSELVES = frozenset({FunctionType, MethodType, BuiltinFunctionType, type})  # what they call has their own id


def _looks_for_proxies(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Tell whether a function of torch would look into a list of which only a run knows what is in it."""
    if function is torch.tensor or function is torch.as_tensor:
        return any(isinstance(arg, Proxy) or is_growing(arg) for arg in args)
    return any(map(is_growing, args)) and is_torch(function)


def _taking(handle: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """Have something called with the arguments of a call, after these, as a tuple and a dict."""

    def taken(*args: Any, **kwargs: Any) -> Any:
        return handle(*first, args, kwargs)

    return taken


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    return getattr(getattr(function, "__func__", function), "__code__", None)


# ---- by type


def _of_method(recorder: Capture, function: MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Substitute:
    """A method that is written in Python. It may change its owner, which a side of a branch must know of."""
    owner = function.__self__
    if isinstance(owner, nn.Module):  # an object that no state knows has been made on the side
        for state in recorder.states:
            state.watch(owner, names_reached(function.__func__))
    return _by_arguments(recorder, function, args, kwargs)


def _of_class(recorder: Capture, function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Substitute:
    """A class; what an exception is made of is noted."""
    found = _by_arguments(recorder, function, args, kwargs)
    if found is None and issubclass(function, BaseException):
        return _taking(_error_made, recorder, function)
    return found


def _of_object(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Substitute:
    """Whatever else can be called: a module, a `functools.partial`, a compiled function, a class of another kind."""
    if isinstance(function, nn.Module):
        return _of_module(recorder, function, args, kwargs)
    if isinstance(function, type):
        return _of_class(recorder, function, args, kwargs)
    return _by_arguments(recorder, function, args, kwargs)


def _of_module(recorder: Capture, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Substitute:
    """A module: the shell of one of the captured program, or one from outside of it."""
    shells = recorder.shells
    if shells is None or shells.path(shell := shells.shell(module)) is None:
        return _taking(call_outside, module, recorder.questions.staging.conversion)
    return _by_arguments(recorder, shell, args, kwargs) or shell


def _error_made(recorder: Capture, kind: type[BaseException], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return recorder.attempts.made(recorder.questions.staging.converted(kind)(*args, **kwargs), args, kwargs)


# ---- by arguments


def _by_arguments(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Substitute:
    """Tell a function of what it is given: tensors that may be None, containers of the run, objects outside of torch.

    Functions that take arrays, and all that are not the program's and get such objects, are one node.
    """
    questions = recorder.questions
    if questions.optionals.are_there:
        recorder.examples.quiet(lambda: questions.optionals.admit(function, args, kwargs))
    for arg in args:
        if issubclass(type(arg), Holder):  # what it calls has to be told of it, too
            questions.staging.convert_called(function)
            break
    takes_arrays = is_foreign(function)
    if takes_arrays or (recorder.has_objects and holds_objects(args, kwargs) and not _only_moves(function)):
        if takes_arrays or not isinstance(function, FunctionType | MethodType) or is_torch(function):
            return _taking(_foreign_called, recorder, function)
        questions.staging.convert_called(function)
    return None


def _only_moves(function: Callable[..., Any]) -> bool:
    """Tell whether what a function of C is given is kept as it is: in containers of Python's, or attributes."""
    if type(function) is BuiltinFunctionType and function in _MOVING:
        return True
    owner = getattr(function, "__self__", None)
    return issubclass(type(owner), _CONTAINERS) or getattr(function, "__objclass__", None) in _CONTAINERS


_CONTAINERS = (list, dict, set, frozenset, tuple, deque, OrderedDict)
_MOVING = frozenset({
    setattr, getattr, operator.setitem, operator.getitem, operator.delitem, next, iter,
    heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop, heapq.heapreplace,
    bisect.insort, bisect.insort_left,
})  # fmt: skip


def _foreign_called(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call what takes arrays, or what takes a value outside of torch: one node where values of the program go in."""
    if isinstance(function, ObjectMethod) or not holds_values((args, kwargs)):
        return function(*args, **kwargs)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.Tensor) and type(function) is BuiltinFunctionType:
        return recorder.torch_function(getattr(torch.Tensor, function.__name__), (owner, *args), kwargs)
    return record_foreign_call(with_examples(recorder), function, args, kwargs)


def waited(recorder: Capture, acquire: Callable[..., bool], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`lock.acquire()`, which may wait for what a side that is captured does not do."""
    if args or kwargs:
        return NotImplemented
    if not acquire(timeout=_LONGEST_WAIT):
        message = f"the program waits for a lock, for more than {_LONGEST_WAIT} second"
        raise refused(recorder, message, "keep values in a list or a collections.deque")
    return True


LOCK = type(threading.Lock())
_LONGEST_WAIT = 1


# ---- errors


def is_refused(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether C++ refused values of the run, where it takes plain numbers: the graph need not."""
    return is_refused_value(error) or (
        is_misfit(error) and any(isinstance(leaf, Proxy) for leaf in leaves((args, kwargs)))
    )


def may_be_refused(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Tell whether what is no function of Python's may take plain numbers where it takes none of the run."""
    if is_refused_value(error):
        return isinstance(function, type)
    kinds = FunctionType | MethodType
    is_of_python = isinstance(function, kinds) or isinstance(getattr(function, "__init__", None), kinds)
    if is_of_python or not isinstance(error, TypeError) or not any(map(is_symbolic, leaves((args, kwargs)))):
        return False
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return all(map(is_foreign_file, files))  # no function of the program's has run


_BY_TYPE: dict[type, Callable[..., Substitute]] = {
    FunctionType: _by_arguments, BuiltinFunctionType: _by_arguments, MethodType: _of_method, type: _of_class,
}  # fmt: skip

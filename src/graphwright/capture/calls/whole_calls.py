"""Calls that become one node as they are.

`MyFunction.apply(x)`, which has a backward of its own, functions that TorchScript has compiled, functional_call,
sequences that are packed.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.autograd_functions import is_apply
from graphwright.capture.calls.given_functions import closes_over_values, path_of, what_is_shared
from graphwright.capture.calls.opaque import holds_values, record_opaque
from graphwright.capture.effects.contents_before import ContentsBefore
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.proxies.objects import constructor_fields
from graphwright.capture.state.running import refused
from graphwright.capture.state.symbols import symbol_of
from graphwright.runtime import Shells, attributes_of, is_object
from graphwright.source import held_by
from graphwright.values import is_record, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphwright.capture.state.protocol import TypedCapture

# Written in Python over operators that only torch itself calls.
_PACKING = (
    torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence, torch.nn.utils.rnn.pack_sequence,
    torch.nn.utils.rnn.pad_sequence, torch.nn.utils.rnn.unpack_sequence, torch.nn.utils.rnn.unpad_sequence,
)  # fmt: skip
_PACKING_NAMES = frozenset(function.__name__ for function in _PACKING)
_SIGNATURE = inspect.signature(torch.func.functional_call)


def is_whole(function: Callable[..., Any]) -> bool:
    """Tell whether a function is the `apply` of an autograd function, or one that TorchScript has compiled."""
    return is_apply(function) or isinstance(function, torch._C.ScriptFunction)


def whole_call(recorder: TypedCapture, function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What to call in place of a function whose calls stay whole; None for others."""
    recording = None
    if type(function) is FunctionType:
        recording = _IN_PYTHON.get(function)
    elif type(function) is torch._C.ScriptFunction:
        recording = _scripted
    elif isinstance(getattr(function, "__self__", None), type) and is_apply(function):
        recording = _apply
    return None if recording is None else functools.partial(recording, recorder, function)


def packs(code: CodeType) -> bool:
    """Tell whether a function packs sequences: calls of that are to come through the runtime."""
    return not _PACKING_NAMES.isdisjoint(code.co_names)


def _packing(recorder: TypedCapture, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Record a call that packs or unpacks sequences."""
    if not holds_values((args, kwargs)):
        return function(*args, **kwargs)
    return recorder.record("call_function", function, function, args, kwargs)


def _scripted(recorder: TypedCapture, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Record a call of a function that TorchScript has compiled."""
    if not holds_values((args, kwargs)):
        return function(*args, **kwargs)
    return record_opaque(recorder, "call_function", function, function, args, kwargs)


def _apply(recorder: TypedCapture, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Record a call of an autograd function, or those of its forward where it takes or changes what no node can."""
    held, owner = list(leaves((args, kwargs))), function.__self__
    if not any(isinstance(leaf, torch.Tensor) or symbol_of(leaf) is not None for leaf in held):
        return function(*args, **kwargs)
    if owner in recorder.plan.entered or any(_has_no_node(recorder, leaf) for leaf in held):
        recorder.callers.follow(owner)
        return inline(function, args, kwargs)
    if closes_over_values(owner):
        recorder.questions.refusals.refuse_here(
            f"the methods of {owner.__name__} close over values of the program",
            "give them to its apply, and keep them in ctx",
        )

    def run(*args: Any, **kwargs: Any) -> Any:
        before = ContentsBefore((args, kwargs))
        result = function(*args, **kwargs)
        if before.is_changed():
            before.put_back()
            raise recorder.questions.restart(recorder.plan.enter(owner, "which changes what it is given"))
        return result

    return record_opaque(recorder, "call_function", function, run, args, kwargs)


def _has_no_node(recorder: TypedCapture, value: Any) -> bool:
    """Tell whether no node can be given a value: a module of nobody's, an object that the program made.

    Nor a function around such an object that has values of the program, or around what both may change.
    """
    if isinstance(value, nn.Module):
        return not path_of(recorder, value)
    if isinstance(value, functools.partial | FunctionType | MethodType):
        return _reaches_values(value) or (type(value) is FunctionType and what_is_shared(value) is not None)
    if type(value) is ObjectProxy:
        return False  # a node gives it
    return is_object(value) and not is_record(value) and constructor_fields(value) is None


def _reaches_values(value: Any, depth: int = 4) -> bool:
    """Tell whether a function has values of the program past the variables that it closes over."""
    if isinstance(value, functools.partial):
        held = [value.func, *value.args, *value.keywords.values()]
    elif type(value) is FunctionType:
        return depth > 0 and any(_reaches_values(each, depth - 1) for each in held_by(value).values())
    else:
        owner = value.__self__ if type(value) is MethodType else value
        held = [*attributes_of(owner).values()] if is_object(owner) else []
    return holds_values(held) or (depth > 0 and any(_reaches_values(each, depth - 1) for each in held))


def _functional_call(recorder: TypedCapture, function: FunctionType, /, *args: Any, **kwargs: Any) -> Any:
    """Record the call of a module with other parameters; a module of nobody's is run on a copy with these."""
    given = _SIGNATURE.bind(*args, **kwargs).arguments
    module, values, inputs = given.pop("module"), given.pop("parameter_and_buffer_dicts"), given.pop("args", None)
    shells = recorder.shells
    path = shells.path(module) if shells is not None else None
    if shells is None or path is None:
        copied = Shells(module).root  # it has the parameters that it is given for a while
        return inline(torch.func.functional_call, (copied, values, inputs), given)
    if not path:
        message = "functional_call of the module that is being captured, inside its own forward"
        raise refused(recorder, message)
    node = recorder.node("get_attr", path, (), {}, path.replace(".", "_"))
    stand_in = recorder.examples.module(shells.original(module))
    run = functools.partial(torch.func.functional_call, stand_in)
    return recorder.record("call_function", torch.func.functional_call, run, (values, inputs), given, (node,))


_IN_PYTHON: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.func.functional_call: _functional_call,
    **dict.fromkeys(_PACKING, _packing),
}


def inline(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call what is not recorded as a whole; the calls around it are known."""
    return function(*args, **kwargs)

"""What a program asks of a tensor's gradient: `x.requires_grad`, `x.is_leaf`, `x.grad is None`, `x.grad_fn`.

It changes from one call to the next: parameters are frozen, evaluation takes no gradients. So it is read where it is
asked, as a number of the run, and what it decides becomes a branch. What torch's own Python asks is not read by the
program: it chooses between ways that give the same.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.conversion.conversion import compares_with_flag, is_converted
from graphwright.capture.numbers.keys import is_fixed
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.state.running import refused
from graphwright.capture.state.symbols import UNKNOWN, as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.runtime import expect
from graphwright.source import is_internal, is_ours, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.symbols import Number

_ATTRIBUTES = frozenset({"requires_grad", "is_leaf", "retains_grad", "_version", "output_nr"})
_METHODS = frozenset({"is_inference"})
_MAY_BE_NONE = frozenset({"grad", "grad_fn"})
_ALL = _ATTRIBUTES | _METHODS | _MAY_BE_NONE
# Of these, two reads of a tensor that is not written to between them give the same.
_LASTS = frozenset({"requires_grad", "is_leaf", "is_inference", "grad_fn"})
_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})
_WANT_GRADIENT = _HOOKS | {"retain_grad"}
_FOR_EACH_ITEM = frozenset({"apply_", "map_", "map2_"})
_LAYERS = os.path.dirname(nn.modules.__file__)


class _Backward:
    """Stands for the example's `grad_fn`: that there is one is known, what it is follows from what came before."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        raise refused(
            self._recorder,
            f"the program looks into how a tensor was computed: grad_fn.{name}",
            "ask whether it is None only, or make the function that looks a leaf: leaf_functions=[...]",
        )


def _asking(frame: FrameType | None) -> FrameType | None:
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_asked_by_program(frame: FrameType | None) -> bool:
    """Tell whether the code that asks is the program's, rather than torch's own for its layers and functions."""
    frame = _asking(frame)
    if frame is None:
        return False
    filename = frame.f_code.co_filename
    return not is_internal(filename) and not filename.startswith(_LAYERS)


def is_read_at_the_call(name: str) -> bool:
    """Tell whether the program asks for something of this name that changes from call to call."""
    return name in _ALL and is_asked_by_program(sys._getframe(2))


def no_gradient(recorder: TypedCapture, tensor: torch.Tensor) -> Any:
    """What torch's own Python finds of a tensor that has no gradient, which it may have in a call: that is refused.

    `zero_grad()` has it set to None in any case.
    """
    frame = _asking(sys._getframe(1))
    if frame is not None and frame.f_code.co_name == "zero_grad" and frame.f_locals.get("set_to_none"):
        return True
    node = recorder.node("call_function", getattr, (recorder.argument(tensor), "grad"), {}, "grad")
    asked = recorder.node("call_function", operator.is_, (node, None), {}, "is_none")
    recorder.node("call_function", expect, (asked, True, recorder.where() or ""), {}, name="guard")
    return None


def read_at_the_call(recorder: TypedCapture, name: str, tensor: torch.Tensor) -> Any:
    """What a call finds there: a number of the program, or a tensor that may be None."""
    if name in _METHODS:
        node = recorder.node("call_method", name, (recorder.argument(tensor),), {}, name)
    else:
        node = recorder.node("call_function", getattr, (recorder.argument(tensor), name), {}, name)
    with torch._C.DisableTorchFunction():
        value = getattr(recorder.example(tensor), name)
        value = value() if name in _METHODS else value
    if name == "grad":
        return _gradient(recorder, tensor, node, value)
    key = None
    if name in _LASTS and isinstance(tensor, TensorProxy):
        key = name, id(tensor), *recorder.writes.stamp(tensor)
    if name == "grad_fn":
        return (
            None if _is_none(recorder, node, value is None, key) else ObjectProxy(recorder, _Backward(recorder), node)
        )
    recorder.keep.append(tensor)  # known by its id
    return _number(recorder, node, value, key)


def guard_gradients(recorder: TypedCapture, values: Iterable[Any], error: Exception) -> None:
    """Where an error is one of gradients, have the mode and what tensors want of them be as for the example."""
    if "grad" not in str(error):
        return
    read = [read_mode(recorder, torch.is_grad_enabled, torch.is_grad_enabled())]
    for tensor in values:
        if isinstance(tensor, torch.Tensor):
            read += [read_at_the_call(recorder, name, tensor) for name in ("requires_grad", "is_leaf")]
    for number in read:
        if (symbol := symbol_of(number)) is not None:
            recorder.questions.guards.guard(symbol)


def read_mode(recorder: TypedCapture, function: Callable[..., bool], value: bool) -> Any:
    """What a function of torch says of a mode, as a number of the program."""
    return _number(recorder, recorder.node("call_function", function, (), {}, function.__name__), value)


def _number(recorder: TypedCapture, node: Node, value: Number, key: tuple[Any, ...] | None = None) -> Any:
    """The number of the program that a node reads; one that was a key in an earlier pass is the example's."""
    recorder.keep.append(node)  # known by its id
    frame = user_frame(sys._getframe(1))
    if frame is not None and compares_with_flag(frame.f_code):
        recorder.questions.staging.stage(frame)
    numbers = recorder.numbers
    number = as_number(numbers.input_symbol(node, value) if key is None else numbers.read_symbol(node, value, key))
    number.node.site = recorder.site()
    return recorder.questions.guards.guard(number.node) if is_fixed(recorder, number.node) else number


def on_any_way(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Tensor, to be run on examples: one that wants a gradient, on a way that the example does not take.

    A function of the program that torch is to call runs on no example: what it does is not seen.
    """
    if name in _FOR_EACH_ITEM:
        return _given
    return functools.partial(_wanting_gradient, function, name) if name in _WANT_GRADIENT else function


def _wanting_gradient(function: Callable[..., Any], name: str, example: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    taken = example if example.requires_grad else example.detach().requires_grad_()
    return function(taken, _no_hook) if name in _HOOKS else function(taken, *args, **kwargs)


def _no_hook(gradient: torch.Tensor) -> None:
    """Stand for a hook, whose own call is the run's."""


def _given(example: torch.Tensor, *args: Any) -> torch.Tensor:
    return example


def _gradient(recorder: TypedCapture, tensor: torch.Tensor, node: Node, example: torch.Tensor | None) -> Any:
    """The gradient of a tensor: None, or one like it. Who asks does so through the runtime, or the program forks."""
    questions, frame = recorder.questions, user_frame(sys._getframe(1))
    questions.staging.stage(frame)
    place = questions.place()
    way = None if place is None else (*place, "grad")
    hint = UNKNOWN if recorder.examples.is_real else example is None
    forks = way is None or way in recorder.plan.ways or frame is None or not is_converted(frame.f_code)
    if forks and _is_none(recorder, node, hint):
        return None
    proxy = TensorProxy.make(recorder, recorder.examples.like(recorder.example(tensor).detach()), node)
    if not forks:
        proxy.optional, proxy.is_none = way, None if hint is UNKNOWN else hint
        questions.optionals.note()
    return proxy


def _is_none(recorder: TypedCapture, node: Node, hint: bool, key: tuple[Any, ...] | None = None) -> bool:
    """Tell whether a node gives None in a call: the program goes both ways."""
    asked = recorder.node("call_function", operator.is_, (node, None), {}, "is_none")
    recorder.keep.append(asked)  # known by its id
    symbol = recorder.numbers.of_node(asked, hint, bool).node
    symbol.key, symbol.is_data = key or symbol.key, hint is UNKNOWN
    return bool(recorder.questions.decide(symbol))

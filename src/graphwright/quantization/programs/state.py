"""State that a program writes: its own, and as it was after the program has run on data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from graphwright.analysis import ModuleState, tensors_in
from graphwright.capture import one_of_each_form
from graphwright.engines import Call, call_of, computes_gradients, has_several, writes_state
from graphwright.errors import QuantizationError
from graphwright.quantization.observers.observer import Observer
from graphwright.runtime import GraphModule


class Onlooker(nn.Module):
    """A module that is in a program for a while, and leaves nothing behind."""


_ONLOOKERS = Observer, Onlooker


@contextlib.contextmanager
def as_it_was(program: GraphModule, *modules: nn.Module) -> Iterator[None]:
    """Leave the state of modules as it is, whatever runs, where a program writes state; observers go on to learn."""
    states = [ModuleState(module) for module in modules] if writes_state(program, _ONLOOKERS) else []
    try:
        yield
    except RuntimeError as error:
        if not computes_gradients(program):
            raise
        raise QuantizationError(
            f"the program computes gradients, and integers have none: {error}",
            fix="quantize the layers alone, and compute the gradients outside of what is quantized",
        ) from error
    finally:
        seen = [each for module in modules for each in module.modules() if states and isinstance(each, Observer)]
        learned = [copy.deepcopy(each.__dict__) for each in seen]
        for state in states:
            state.restore()
        for each, now in zip(seen, learned, strict=True):
            each.__dict__.update(now)


def own_state(gm: GraphModule) -> None:
    """Give a program that writes state buffers of its own, in the place of those that it shares with the original."""
    if not writes_state(gm):
        return
    copies: dict[int, Tensor] = {}
    for module in gm.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = copies.setdefault(id(buffer), buffer.detach().clone())


def without_gradients(gm: GraphModule) -> None:
    """Give a program parameters that no gradient is wanted of, with the memory of those that it shares."""
    copies: dict[int, nn.Parameter] = {}
    for module in gm.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad:
                made = copies.setdefault(id(parameter), nn.Parameter(parameter.detach(), requires_grad=False))
                module._parameters[name] = made


def fresh(call: Call) -> Call:
    """Copy a call, so that what a program does to its arguments is not done to these: a cache grows, say."""
    tensors = {id(tensor): tensor.detach().clone() for tensor in tensors_in(call)}
    return copy.deepcopy(call, tensors)


def call_of_batch(batch: Any) -> Call:
    """The arguments of the call that a batch stands for. Raises QuantizationError for what stands for none."""
    call = call_of(batch)
    if call is not None:
        return call
    what = "mapping of other keys than names" if isinstance(batch, Mapping) else type(batch).__name__
    raise QuantizationError(
        f"a batch is a {what}", fix="give a tensor, a tuple of arguments or a dict of keyword arguments"
    )


def examples_of(model: Any, calls: Sequence[Call]) -> list[Call]:
    """The calls to prepare a module with: the first; of a module that was captured for several, one of each form."""
    return one_of_each_form(calls) if isinstance(model, GraphModule) and has_several(model) else [*calls[:1]]

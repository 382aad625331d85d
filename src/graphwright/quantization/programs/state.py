"""State that a program writes: its own, and as it was after the program has run on data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from graphwright.analysis import same_randomness, state_kept, tensors_in, writes_state
from graphwright.capture import one_of_each_form
from graphwright.engines import Call, call_of, computes_gradients, has_several
from graphwright.errors import QuantizationError
from graphwright.quantization.observers.observer import Observer
from graphwright.runtime import GraphModule


class Onlooker(nn.Module):
    """A module that is in a program for a while, and leaves nothing behind."""


_ONLOOKERS = Observer, Onlooker


@contextlib.contextmanager
def as_it_was(program: GraphModule, *modules: nn.Module) -> Iterator[Callable[[], None] | None]:
    """Leave random states, and those of modules that a program writes, as they are, whatever runs; observers learn.

    It gives what puts the state back meanwhile, where there is any.
    """
    seen: list[Observer] = []
    learned: list[dict[str, Any]] = []
    try:
        with same_randomness(), state_kept(program, *modules, aside=_ONLOOKERS) as put_back:
            try:
                yield put_back
            finally:
                seen += [each for one in modules for each in one.modules() if put_back and isinstance(each, Observer)]
                learned += [copy.deepcopy(each.__dict__) for each in seen]
    except RuntimeError as error:
        if not computes_gradients(program):
            raise
        raise QuantizationError(
            f"the program computes gradients, and integers have none: {error}",
            fix="quantize the layers alone, and compute the gradients outside of what is quantized",
        ) from error
    finally:
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

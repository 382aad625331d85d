"""Random numbers of a capture: drawn from generators of its own, and none of the process's is moved.

The generator of the process belongs to every thread. To save its state and put it back would make other threads draw
the same numbers twice: so that is done for operations alone that take no generator.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OwnDraws(TorchDispatchMode):
    """While it is entered, operations of this thread draw from generators of its own, the same numbers in each run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generators: dict[Any, torch.Generator] = {}

    def __torch_dispatch__(
        self,
        function: torch._ops.OpOverload,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in function.tags:
            if not _takes_generator(function):
                function = _with_generator(function)
            if not _takes_generator(function):  # `rand_like` of torch 2.6
                with torch.random.fork_rng(devices=()):
                    torch.default_generator.manual_seed(0)
                    return function(*args, **kwargs)
            kwargs["generator"] = self._generator(kwargs.get("generator"), args, kwargs)
        return function(*args, **kwargs)

    def _generator(
        self, known: torch.Generator | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Generator:
        """The generator that stands for one of the program's, or for that of the process."""
        if known is not None:
            if id(known) not in self._generators:
                self._generators[id(known)] = known.clone_state()
            return self._generators[id(known)]
        tensor = next((value for value in args if isinstance(value, torch.Tensor)), None)
        device = kwargs.get("device") or (torch.device("cpu") if tensor is None else tensor.device)
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(0)
        return self._generators[device]


@contextlib.contextmanager
def unmoved() -> Iterator[None]:
    """Have the process's generators be after the block what they were before it: what runs is not looked into."""
    state, of_numpy, of_torch = random.getstate(), numpy.random.get_state(), torch.default_generator.get_state()
    try:
        yield
    finally:
        with torch._C.DisableTorchFunction():
            if random.getstate() != state:
                random.setstate(state)
            if _numbers(numpy.random.get_state()) != _numbers(of_numpy):
                numpy.random.set_state(of_numpy)
            if not torch.equal(torch.default_generator.get_state(), of_torch):
                torch.default_generator.set_state(of_torch)


def _numbers(state: Any) -> tuple[Any, ...]:
    return state[1].tobytes(), *state[2:]


def _takes_generator(function: torch._ops.OpOverload) -> bool:
    return any(argument.name == "generator" for argument in function._schema.arguments)


def _with_generator(function: torch._ops.OpOverload) -> Any:
    """The overload of an operation that takes a generator, or the operation itself where there is none.

    `rand` and `rand.generator`, `randint.low` and `randint.low_generator`, `low_dtype` and `low_generator_dtype`.
    """
    first, _, rest = function._overloadname.partition("_")
    name = "_".join(part for part in ("" if first == "default" else first, "generator", rest) if part)
    return getattr(function.overloadpacket, name, function)

"""Operations on real values: they draw from generators of a capture's own, and what they write to is put back.

The generator of the process belongs to every thread. To save its state and put it back would make other threads draw
the same numbers twice: so that is done for operations alone that take no generator.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphwright.values import leaves


class WrittenOutside:
    """What tensors held that functions wrote to which are not looked into, short of stand-ins and what is made of them.

    >>> outside, inside = torch.zeros(2), torch.zeros(2)
    >>> written = WrittenOutside()
    >>> written.start([inside])
    >>> for tensor in (outside, inside):
    ...     written.before(torch.ops.aten.add_.Tensor, (tensor, 1), {})
    ...     _ = tensor.add_(1)
    >>> written.put_back()
    >>> outside, inside
    (tensor([0., 0.]), tensor([1., 1.]))
    """

    def __init__(self) -> None:
        self._inside: set[int] = set()  # storages
        self._before: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def start(self, inside: Any) -> None:
        """A function is about to be run, which may write to the tensors in this."""
        self._inside = {_storage(each) for each in _dense(inside)}

    def before(self, function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note what an operation is about to write to."""
        if not function._schema.is_mutable:
            return
        for i, argument in enumerate(function._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = kwargs.get(argument.name) if argument.kwarg_only or i >= len(args) else args[i]
            for each in _dense(given):
                self._note(each)

    def _note(self, tensor: torch.Tensor) -> None:
        place = _storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()
        if place[0] not in self._inside and place not in self._before:
            self._before[place] = tensor, tensor.detach().clone()

    def after(self, args: Any, result: Any) -> None:
        """Note what an operation has made, if that is no memory of what it was given."""
        given, made = ({_storage(each) for each in _dense(values)} for values in (args, result))
        self._inside |= made - given

    def put_back(self) -> None:
        """Have them hold what they held."""
        with torch._C.DisableTorchFunction():
            for tensor, before in reversed(self._before.values()):
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.copy_(before)
        self._before.clear()


class OwnDraws(TorchDispatchMode):
    """While it is entered, operations of this thread draw from generators of its own, the same numbers in each run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generators: dict[Any, torch.Generator] = {}
        self.written: WrittenOutside | None = None  # while something is run that is not looked into

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
        if self.written is None:
            return function(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self.written.before(function, args, kwargs)
            result = function(*args, **kwargs)
            self.written.after((args, kwargs), result)
        return result

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


def _dense(values: Any) -> Iterator[torch.Tensor]:
    return (each for each in leaves(values) if isinstance(each, torch.Tensor) and each.layout is torch.strided)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]

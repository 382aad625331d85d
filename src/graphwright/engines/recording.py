"""A recorded run: static tensors that are filled, kernels that are launched again, and copies of their results."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from graphwright.analysis import tensors_in
from graphwright.errors import PassError


class Recorder(Protocol):
    """What records the kernels that a function launches."""

    @property
    def kind(self) -> str:
        """The type of the devices whose kernels it records."""

    @property
    def is_there(self) -> bool:
        """Whether such a device is there."""

    def record(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Record what a function launches, which has run before: its results, and how to launch all of it again.

        Each launch reads the same memory, and leaves the results in the same tensors.
        """

    def place(self) -> Any:
        """Where work is launched now: work of two places is not in order by itself."""

    def wait_for(self, place: Any) -> None:
        """Have what is launched from now on run after what was launched at another place."""


class _Cuda:
    """Records kernels of CUDA devices, as graphs of CUDA."""

    __slots__ = ()
    kind = "cuda"

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return torch.cuda.is_available()

    def record(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Record on a stream of its own, with memory of its own."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = run()
        return results, graph.replay

    def place(self) -> Any:
        """The current stream."""
        return torch.cuda.current_stream()

    def wait_for(self, place: Any) -> None:
        """Have the current stream wait for another one."""
        torch.cuda.current_stream().wait_stream(place)

    def __reduce__(self) -> str:
        return "CUDA"


CUDA = _Cuda()


class Recording:
    """One recorded run of a function of tensors.

    inputs: the static tensors that it reads. weights: other tensors that it reads where they are, which are not to be
    moved as long as this is used.
    """

    __slots__ = ("_inputs", "_lock", "_place", "_recorder", "_replay", "_results", "_tensors", "_whole", "weights")

    def __init__(
        self, run: Callable[[], Any], inputs: Sequence[Tensor], weights: Sequence[Tensor], recorder: Recorder
    ) -> None:
        self._inputs, self.weights, self._recorder = list(inputs), list(weights), recorder
        self._lock = threading.Lock()
        self._results, self._replay = recorder.record(run)
        self._place = recorder.place()
        self._tensors = tensors_in(self._results)
        self._whole = _are_whole(self._tensors)
        _refuse_shared(self._tensors, self._inputs, self.weights)

    def __call__(self, given: Any) -> Any:
        """Run on other values of the inputs; the results are the caller's."""
        with self._lock, torch.no_grad():
            place = self._recorder.place()
            if place != self._place:
                self._recorder.wait_for(self._place)
            self._place = place
            for static, tensor in zip(self._inputs, tensors_in(given), strict=True):
                static.copy_(tensor)
            self._replay()
            copies = [tensor.clone() for tensor in self._tensors] if self._whole else _copied_storages(self._tensors)
        return copied_with(self._results, self._tensors, copies)


def copied_with(value: Any, tensors: Sequence[Tensor], others: Sequence[Tensor]) -> Any:
    """Copy a value, with other tensors in the place of its own.

    >>> x = torch.ones(2)
    >>> copied_with({"x": [x], "n": 1}, [x], [torch.zeros(2)])
    {'x': [tensor([0., 0.])], 'n': 1}
    """
    return copy.deepcopy(value, dict(zip(map(id, tensors), others, strict=True)))


def _refuse_shared(results: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Raise PassError where a result lies in the memory of what the program reads: the caller would get a copy."""
    for name, tensors in (("an argument", inputs), ("a weight", weights)):
        if {*map(_storage, results)} & {*map(_storage, tensors)}:
            raise PassError(
                f"a result of the program lies in the memory of {name}, and a recorded run would give a copy",
                fix="have the program return a tensor of its own: tensor.clone()",
            )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _are_whole(tensors: Sequence[Tensor]) -> bool:
    """Tell whether `clone` copies tensors as they are: each alone in its memory, without gaps and overlaps."""
    count = Counter(map(_storage, tensors))
    return all(count[_storage(tensor)] == 1 and tensor.clone().stride() == tensor.stride() for tensor in tensors)


def _copied_storages(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors with all the memory that they lie in: what shares memory does so in the copies."""
    storages: Mapping[int, Any] = {_storage(tensor): tensor.untyped_storage() for tensor in tensors}
    copies = {place: storage.clone() for place, storage in storages.items()}
    return [
        torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            copies[_storage(tensor)], tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        for tensor in tensors
    ]


@contextlib.contextmanager
def nothing_is_written_to(inputs: Sequence[Tensor]) -> Iterator[None]:
    """Raise PassError where one of these tensors is written to: it is a copy, and the caller's stays as it was."""
    versions = [tensor._version for tensor in inputs]
    yield
    if [tensor._version for tensor in inputs] != versions:
        raise PassError(
            "the program writes to its arguments, and a recorded run would write to copies of them",
            fix="have the program write to a copy: tensor.clone()",
        )

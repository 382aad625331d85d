"""How much memory tensors take while a program runs: each storage counts from when it is made to when it is gone."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Storages(TorchDispatchMode):
    """Counts the bytes of the storages that operators make while it is entered, not those of `known` tensors.

    `live` is how many there are now, `peak` how many there were at most since `peak` was last set.

    >>> with Storages() as storages:
    ...     x = torch.ones(256)
    ...     y = x.view(2, 128) + 1
    ...     del x
    >>> storages.live, storages.peak
    (1024, 2048)
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._seen: dict[int, weakref.ref[Any]] = {}
        for tensor in known:
            self._add(tensor, is_new=False)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf, is_new=True)
        return result

    def _add(self, tensor: Tensor, is_new: bool) -> None:
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes() if is_new else 0

        def gone(_: Any) -> None:
            self._seen.pop(key, None)
            self.live -= size

        self._seen[key] = weakref.ref(storage, gone)
        self.live += size
        self.peak = max(self.peak, self.live)

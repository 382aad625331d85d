"""Modules whose tensors are fake: they have shapes and dtypes and no values; and no log of where these fail."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections.abc import Iterator

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def with_fake_tensors(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Copy a module with its parameters and buffers as fake tensors of `mode`; the module itself stays as it is.

    >>> with_fake_tensors(nn.Linear(2, 3), FakeTensorMode()).weight.shape
    torch.Size([3, 2])
    """
    tensors = [*module.parameters(), *module.buffers()]
    fakes = {id(tensor): tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor) for tensor in tensors}
    return copy.deepcopy(module, fakes)  # what the memo has is not copied


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Without what torch logs, in this thread, of operations that fail on fake tensors: whoever asks is told."""
    thread = threading.get_ident()

    def is_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    _LOGGER.addFilter(is_elsewhere)
    try:
        yield
    finally:
        _LOGGER.removeFilter(is_elsewhere)


_LOGGER = logging.getLogger(FakeTensor.__module__)

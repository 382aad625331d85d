"""torch's exporters without what they print and warn of for their own work."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def calmly() -> Iterator[None]:
    """Without the warnings that torch's exporters have for their own work."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            for kind in (FutureWarning, DeprecationWarning, UserWarning):
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def without_graphs() -> contextlib.redirect_stderr[Any]:
    """Without the graphs that torch.export prints of what it cannot take; other threads print what they have to."""
    return contextlib.redirect_stderr(_OtherThreads())


class _OtherThreads(io.TextIOBase):
    """Standard error for all other threads."""

    def __init__(self) -> None:
        self._stream, self._thread = sys.stderr, threading.get_ident()

    def write(self, text: str) -> int:
        """Write what another thread has to say."""
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)


_LOGGERS = (
    "torch.onnx._internal.exporter._registration",
    "torch.fx.experimental.symbolic_shapes",
    "torch._export",
    "torch.export",
    "onnx_ir",
    "onnxscript",
)

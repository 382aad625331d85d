"""The random states of the process, left as they are by what the library itself runs."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def same_randomness() -> Iterator[None]:
    """Leave all random states as they were found."""
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    arrays = None if numpy is None else numpy.random.get_state()
    try:
        # Not before CUDA is in use: asking its random states would start it.
        with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(arrays)

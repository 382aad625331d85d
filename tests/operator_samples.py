"""Samples of the operators of PyTorch's own table, with nothing of them left open."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator
from typing import Any

import torch

SEED = 1234  # with which the table's own iterator draws each sample


def first_samples(operator: Any, dtype: torch.dtype, count: int | None) -> list[Any]:
    """Make the first samples of an operator of `op_db` for a CPU, all of them if `count` is None.

    `operator.sample_inputs` is part of a reference cycle with the generator that it goes over. Left half used, that is
    closed whenever garbage is collected, and sets the grad mode then, be it in the middle of a capture. So it is asked
    for directly here, and closed.
    """
    with contextlib.closing(_drawn(operator, dtype)) as samples:
        return list(itertools.islice(samples, count))


def _drawn(operator: Any, dtype: torch.dtype) -> Generator[Any, None, None]:
    from torch.testing._internal.common_utils import set_rng_seed

    samples = operator.sample_inputs_func(operator, "cpu", dtype, False)
    with contextlib.closing(samples) if hasattr(samples, "close") else contextlib.nullcontext():
        waiting = iter(samples)
        while True:
            set_rng_seed(SEED)
            try:
                yield next(waiting)
            except StopIteration:
                return

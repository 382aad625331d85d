"""Every function of torch.nn.functional, traced by its signature: all its parameters are proxies."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from tests.compat.agreement import Comparison, compare


def functionals(every: int = 1) -> Iterator[Comparison]:
    """Compare each function, allowing mutable operations and refusing them."""
    for name, function in list(_functions())[::every]:
        for check in (False, True):
            label = f"{name}, mutable refused" if check else name
            yield compare(label, function, check_mutable_operations=check)


def _functions() -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(F)):
        function = getattr(F, name)
        if name.startswith("_") or name[0].isupper() or not callable(function):
            continue
        try:
            inspect.signature(function)
        except ValueError:  # written in C without a signature
            continue
        yield name, function

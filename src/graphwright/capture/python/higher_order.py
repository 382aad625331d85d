"""`torch.cond`, `torch.while_loop`, `map` and `scan` of the program: captured as the Python that they stand for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from graphwright.capture.outside.overheard import Heard, overhear
from graphwright.capture.python.calls import call
from graphwright.ops import IN_PYTHON


def _act(python: Callable[..., Any], heard: Heard) -> Any:
    return call(python, *heard.args, **heard.kwargs)


_unwatched = {  # the modules of torch's that have them, and may not be imported yet
    "torch", "torch._higher_order_ops", "functorch.experimental.control_flow",
    *(function.__module__ for function in IN_PYTHON),
}  # fmt: skip


def watch_higher_order() -> None:
    """Have it heard of where a program calls them, in each module of torch's that has them and is imported."""
    for home in [home for home in _unwatched if home in sys.modules]:
        _unwatched.discard(home)
        for function, python in IN_PYTHON.items():
            if vars(sys.modules[home]).get(function.__name__) is function:
                overhear(sys.modules[home], (function.__name__,), functools.partial(_act, python))

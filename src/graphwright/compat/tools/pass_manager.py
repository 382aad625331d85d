"""Run functions one after the other on anything; what torch.fx had before passes gave PassResults."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from graphwright.compat.tools.pass_order import (
    Constraint,
    OrderedPasses,
    Pass,
    these_before_those_pass_constraint,
    this_before_that_pass_constraint,
    validate_pass_schedule_constraint,
)

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]

_log = logging.getLogger(__name__)
_validate_pass_schedule_constraint = validate_pass_schedule_constraint  # torch.fx's name for it


def inplace_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that changes its first argument return that argument.

    >>> inplace_wrapper(list.sort)([2, 1])
    [1, 2]
    """

    @wraps(fn)
    def wrapped(source: Any, *args: Any, **kwargs: Any) -> Any:
        fn(source, *args, **kwargs)
        return source

    return wrapped


def log_hook(fn: Callable[..., Any], level: int = logging.INFO) -> Callable[..., Any]:
    """Make a function write what it returned to the log."""

    @wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        _log.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return wrapped


def loop_pass(
    base_pass: Callable[[Any], Any], n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None
) -> Callable[[Any], Any]:
    """Repeat a pass on its own result: `n_iter` times, or as long as `predicate` holds of the result.

    >>> loop_pass(lambda x: x * 2, predicate=lambda x: x < 100)(1)
    128
    """
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def repeated(source: Any) -> Any:
        output = source
        if n_iter is not None:
            for _ in range(n_iter):
                output = base_pass(output)
        elif predicate is not None:
            while predicate(output):
                output = base_pass(output)
        return output

    return repeated


class PassManager(OrderedPasses):
    """Runs functions one after the other, each on what the one before it returned.

    >>> PassManager([lambda x: x + 1, lambda x: x * 2])(3)
    8
    """

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None) -> None:
        self.passes = passes or []
        self.constraints = constraints or []

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """Make a manager of these passes, without constraints."""
        return cls(passes)

    def remove_pass(self, _passes: list[str]) -> None:
        """Remove the passes of these names."""
        self.passes = [run for run in self.passes if run.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Put a pass in the place of all passes called like `_target`."""
        self.passes = [_replacement if run.__name__ == _target.__name__ else run for run in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Raise RuntimeError where the passes stand in an order that a constraint forbids."""
        self._validate()

    def __call__(self, source: Any) -> Any:
        self.validate()
        output = source
        for run in self.passes:
            output = run(output)
        return output

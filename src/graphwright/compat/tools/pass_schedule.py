"""Run passes that give PassResults: in an order that meets constraints, with checks, until nothing changes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.compat.tools.pass_order import (
    Constraint,
    OrderedPasses,
    topological_sort_passes,
)
from graphwright.passes import PassResult

__all__ = ["PassManager", "pass_result_wrapper"]


def pass_result_wrapper(fn: Callable[..., Any] | None) -> Callable[..., PassResult | None] | None:
    """Make a pass that returns nothing, or the module, give a PassResult; it then counts as having changed something.

    >>> pass_result_wrapper(lambda module: None)("module")
    PassResult(graph_module='module', modified=True)
    """
    if fn is None:
        return None

    def wrapped_fn(gm: Any) -> Any:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        if isinstance(result, PassResult):
            return result
        return PassResult(result, True) if isinstance(result, nn.Module) else None

    functools.update_wrapper(wrapped_fn, fn, updated=())
    if not inspect.isfunction(fn):
        wrapped_fn.__name__ = getattr(fn, "__name__", type(fn).__name__)
    return wrapped_fn


class PassManager(OrderedPasses):
    """Runs passes one after the other, the whole list up to `steps` times or until none of them changes anything.

    `constraints` say of two passes whether the first may come before the second; the passes are ordered to meet them.
    Checks added with `add_checks` look at the module after all passes of a step, or with `run_checks_after_each_pass`
    after each; `suppress_check_failures` ignores that they are there. A pass that fails raises an Exception that
    names it and the passes before it.

    >>> PassManager([lambda module: PassResult(module, False)])("module")
    PassResult(graph_module='module', modified=False)
    """

    passes: list[Callable[..., PassResult | None]]
    steps: int = 1

    def __init__(
        self,
        passes: list[Callable[..., PassResult | None]] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def validate_constraints(self) -> None:
        """Raise RuntimeError where the passes stand in an order that a constraint forbids."""
        self._validate()

    def solve_constraints(self) -> None:
        """Order the passes so that every constraint holds; raise RuntimeError where that is not possible."""
        self.passes = topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[..., Any]) -> None:
        """Set what looks at the module: a function of the module that raises if something is wrong.

        Raises TypeError for a function of more or fewer arguments.
        """
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        setattr(self, "check", check)  # noqa: B010 - an attribute of the instance hides the method

    def check(self, module: nn.Module) -> None:
        """Look at the module; does nothing until `add_checks`."""

    def __call__(self, module: nn.Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self._check(module)
        any_change = False
        for _ in range(self.steps):
            changed = False
            for i, run in enumerate(self.passes):
                name = _name(run)
                try:
                    result: Any = run(module)
                    if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                        raise TypeError(
                            f"The result of the pass {name} should be type PassResult. "
                            "Please wrap it with pass_result_wrapper()"
                        )
                    module = result.graph_module
                    changed = changed or result.modified
                    if self.run_checks_after_each_pass:
                        self._check(module)
                except Exception as error:
                    before = [_name(run) for run in self.passes[:i]]
                    raise Exception(
                        f"An error occurred when running the {name!r} pass after the following passes: {before}"
                    ) from error
            any_change = any_change or changed
            if not changed:
                break
        self._check(module)
        return PassResult(module, any_change)

    def _check(self, module: nn.Module) -> None:
        if not self.suppress_check_failures:
            self.check(module)


def _name(run: Any) -> str:
    return run.__name__ if inspect.isfunction(run) else str(getattr(run, "__name__", type(run).__name__))

"""Branches and loops on fake tensors, which have no data to decide them: shapes are those of one way through."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphwright.ops import cond, for_loop, raise_error, while_loop


def run_on_fake(call: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function by `call`; where a fake tensor would decide a branch or loop, run each body once.

    A branch then gives what its true side does, or where the program raises there, its false one; a loop what one more
    round does.
    """
    if target is cond and isinstance(args[0], FakeTensor):
        _, true, false, operands = args
        given = [result for side in (false, true) for result in _unless_raised(side, operands)]
        return given[-1] if given else true(*operands)
    if target in _TRUTHS and isinstance(args[0], FakeTensor):
        return torch.logical_not(args[0]) if target is operator.not_ else args[0].bool()
    if target is while_loop or target is for_loop:
        return run_loop(target, args)
    return call(target, args, kwargs)


_TRUTHS = (operator.not_, operator.truth, bool)


def _unless_raised(side: Callable[..., Any], operands: tuple[Any, ...]) -> list[Any]:
    """What a side of a branch gives; nothing where it ends with an error of the program's."""
    try:
        return [side(*operands)]
    except Exception as error:
        if not is_raised_by_program(error):
            raise
        return []


def is_raised_by_program(error: BaseException) -> bool:
    """Tell whether an error is that of a `raise` of the program's, in its graph or in the code made of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return code is raise_error.__code__ or (code is not None and code.co_filename.startswith("<graphwright "))


def run_loop(target: Any, args: tuple[Any, ...], undecided: Any = FakeTensor) -> tuple[Any, ...]:
    """Run a loop, whose bodies are functions, until its test says so or is one of the classes `undecided`.

    >>> run_loop(while_loop, (lambda n: n < 5, lambda n: (n * 2,), (1,), ()))
    (8,)
    """
    return _loop(undecided, target, *args)


def _loop(
    undecided: Any, target: Any, subject: Any, body: Any, carried: Any, operands: Any, breaks: bool = False
) -> tuple[Any, ...]:
    values = tuple(carried)
    if target is for_loop:
        for item in subject:
            stop, values = _round(body, (item, *values, *operands), breaks)
            if not isinstance(stop, undecided) and stop:
                break
        return values
    while True:
        holds = subject(*values, *operands)
        is_known = not isinstance(holds, undecided)
        if is_known and not holds:
            return values
        stop, values = _round(body, (*values, *operands), breaks)
        if not is_known or isinstance(stop, undecided) or stop:
            return values


def _round(body: Any, inputs: tuple[Any, ...], breaks: bool) -> tuple[Any, tuple[Any, ...]]:
    given = tuple(body(*inputs))
    return (given[0], given[1:]) if breaks else (False, given)

"""Several captures of one entry point: each call goes to the first whose guards hold.

What decides is asked before anything of a capture runs, by the questions of guards.py, so that nothing has to be
undone: a guard that fails inside a capture is an error, never the way to the next one.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from graphwright.errors import GuardError
from graphwright.ir import Graph, Node
from graphwright.ops import cond

_LONGEST = 60  # characters of a value in a message


def choose(
    where: str,
    misfits: Sequence[str],
    given: Sequence[Any] = (),
    more: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
    /,
    **optional: tuple[Any, ...],
) -> int:
    """Return the number, from 1, of the first capture that fits: the one whose misfit is empty.

    Raises GuardError where none does, saying why, with the example to add. The arguments of the call are there for
    that: `given` and `more` by position, the others by name, each with its default if it has one.

    >>> choose("Model.forward", ("argument 'mask' was None when the program was captured; now it is 1", ""))
    2
    """
    for number, misfit in enumerate(misfits, start=1):
        if not misfit:
            return number
    return _refuse(where, misfits, (*given, *more), {**_differing(optional), **(named or {})})


def refuse_call(where: str) -> NoReturn:
    """Raise GuardError: stands in a graph for a method that was not captured.

    >>> refuse_call("Model.forward")
    Traceback (most recent call last):
    graphwright.errors.GuardError: Model.forward was not captured
    ...
    """
    raise GuardError(
        f"{where} was not captured",
        at=where,
        fix=f"capture it, too: methods={{{where.rpartition('.')[2]!r}: (args, kwargs), ...}}",
    )


def captures_of(graph: Graph) -> list[Graph]:
    """The captures that a graph chooses from, in order; none where it is one capture itself."""
    found: list[Graph] = []
    while True:
        node = graph._root.prev
        value = node._args[0] if node._op == "output" and node._args else None
        if type(value) is not Node or value._target is not cond:
            break
        pred, capture, rest, _ = value._args
        if type(pred) is not Node or pred._target is not operator.eq or type(pred._args[0]) is not Node:
            break
        if not found and pred._args[0]._target is not choose:
            return []
        if pred._args[1] != len(found) + 1:
            break
        found.append(capture)
        graph = rest
    return [*found, graph] if found else []


def _differing(optional: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The arguments that are not the default."""
    return {name: pair[0] for name, pair in optional.items() if len(pair) == 1 or not _is_same(*pair)}


def _is_same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return type(value) is type(default) and not isinstance(value, torch.Tensor) and bool(value == default)


def _refuse(where: str, misfits: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    whys = [f"\n  capture {number}: {misfit}" for number, misfit in enumerate(misfits, start=1)]
    shown_args = "".join(f"{_written(arg)}, " for arg in args)
    shown = f"({shown_args.rstrip(' ') if len(args) == 1 else shown_args.removesuffix(', ')})"
    example = f"({shown}, {_written(kwargs)})"
    raise GuardError(
        f"no capture of {where} covers this call{''.join(whys)}",
        at=where,
        fix=f"capture again with one more example: examples=[..., {example}]",
    )


def _written(value: Any) -> str:
    """Write a value as source that makes one like it, or as its class where there is no such source."""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(map(str, value.shape)) or "()"
        if value.dtype == torch.get_default_dtype():
            return f"torch.rand({sizes})"
        return f"torch.zeros({sizes}, dtype={value.dtype})"
    if type(value) is tuple:
        return f"({''.join(f'{_written(item)}, ' for item in value).removesuffix(' ' if len(value) == 1 else ', ')})"
    if type(value) is list:
        return f"[{', '.join(map(_written, value))}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_written(item)}" for key, item in value.items()) + "}"
    if inspect.isroutine(value) or isinstance(value, type):
        return getattr(value, "__qualname__", "...")
    text = repr(value)
    return text if len(text) <= _LONGEST and not text.startswith("<") else f"{type(value).__name__}(...)"

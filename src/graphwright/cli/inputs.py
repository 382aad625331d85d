"""Example inputs from the command line: `1x3x224x224`, `ids=int64:2x16:0..30522`, `--kwarg use_cache=False`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphwright.cli.failures import BadInput, one_line

Call = tuple[tuple[Any, ...], dict[str, Any]]

_INPUT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?:(?P<file>@.+)|(?:(?P<dtype>[a-z]\w*):)?(?P<shape>\(\)|\d+(?:x\d+)*)"
    r"(?::(?P<low>-?[\d.e+-]+?)\.\.(?P<high>-?[\d.e+-]+))?)"
)
_FORM = "1x3x224x224, ids=int64:2x16:0..30522, scale=float32:() or x=@file.pt"


def read_call(inputs: Iterable[str], kwargs: Sequence[str], seed: int = 0) -> Call:
    """Read all inputs of a command: those without a name in their order, those with one by name."""
    generator = torch.Generator().manual_seed(seed)
    args: list[Any] = []
    named: dict[str, Any] = {}
    for text in inputs:
        name, value = read_input(text, generator)
        if name:
            named[name] = value
        else:
            args.append(value)
    for text in kwargs:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise BadInput(f"--kwarg {text!r} is not NAME=VALUE, as in use_cache=False")
        named[name] = _literal(value)
    return tuple(args), named


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def read_input(text: str, generator: torch.Generator | None = None) -> tuple[str, Any]:
    """Read one input: its name, "" for one by position, and a tensor of random values.

    Floating-point values are normal, or uniform in a range; whole numbers are 0 or 1, or in a range, its end excluded.
    `@file.pt` is what torch.save wrote there. Raises BadInput for what is no input.

    >>> name, x = read_input("ids=int64:2x16:5..9")
    >>> name, x.shape, x.dtype, bool(5 <= x.min() and x.max() < 9)
    ('ids', torch.Size([2, 16]), torch.int64, True)
    >>> read_input("3x4")[1].shape, read_input("bool:()")[1].dtype
    (torch.Size([3, 4]), torch.bool)
    """
    match = _INPUT.fullmatch(text)
    if match is None:
        raise BadInput(f"--input {text!r} is no input: write {_FORM}")
    if match["file"]:
        return match["name"] or "", _saved(Path(match["file"][1:]))
    dtype = getattr(torch, match["dtype"] or "float32", None)
    if not isinstance(dtype, torch.dtype):
        raise BadInput(f"--input {text!r}: torch has no dtype {match['dtype']!r}")
    shape = tuple(int(size) for size in match["shape"].split("x")) if match["shape"] != "()" else ()
    return match["name"] or "", _random(text, shape, dtype, (match["low"], match["high"]), generator)


def _random(
    text: str, shape: tuple[int, ...], dtype: torch.dtype, ends: tuple[str | None, str | None], generator: Any
) -> Tensor:
    try:
        low, high = (None if end is None else float(end) for end in ends)
    except ValueError:
        raise BadInput(f"--input {text!r}: a range is LOW..HIGH, as in 0..30522") from None
    if low is not None and high is not None and not (low < high and math.isfinite(high - low)):
        raise BadInput(f"--input {text!r}: the range {ends[0]}..{ends[1]} is empty")
    if dtype.is_complex or dtype.is_floating_point:
        if low is None or high is None:
            return torch.randn(shape, generator=generator).to(dtype)
        return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)
    start, end = (0, 2) if low is None or high is None else (math.ceil(low), math.ceil(high))
    return torch.randint(start, end, shape, generator=generator).to(dtype)


def _saved(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        raise BadInput(f"--input @{path}: {one_line(error)}") from error

"""Tensors as expressions that make them again with their values: a formula, as one would write it, or a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from graphwright.runtime.packaging.modules import Call, Expression

_MOST = 256  # numbers that are written one by one


def tensor_with_values(tensor: Tensor) -> Expression | None:
    """Write an expression that makes a tensor of these values, None where it would take too many numbers.

    >>> tensor_with_values(torch.zeros(2, 1000)), tensor_with_values(torch.arange(1000).reshape(1, 1000))
    ('torch.zeros(2, 1000)', 'torch.arange(1000).reshape(1, 1000)')
    >>> tensor_with_values(1e4 ** -(torch.arange(0, 512, 2).float() / 512))
    'torch.tensor(10000.0) ** -(torch.arange(0, 512, 2) / 512)'
    >>> tensor_with_values(torch.ones(90, 90, dtype=torch.bool).tril()), tensor_with_values(torch.randn(1000))
    ('torch.ones(90, 90, dtype=torch.bool).tril()', None)
    """
    is_plain = type(tensor) in (Tensor, torch.nn.Buffer) and tensor.layout is torch.strided
    if not is_plain or tensor.is_meta or tensor.is_quantized or tensor.is_complex():
        return None
    value = tensor.detach().cpu()
    for text, made in _formulas(value):
        if _is_same(made, value):
            return text
    return _numbers(value) if value.numel() <= _MOST else None


def _is_same(made: Tensor, value: Tensor) -> bool:
    """Tell whether two tensors are the same in each bit, but for those of NaN."""
    if made.shape != value.shape or made.dtype != value.dtype:
        return False
    if not torch.equal(made.nan_to_num(7.0), value.nan_to_num(7.0)) or not torch.equal(made.isnan(), value.isnan()):
        return False
    return not value.is_floating_point() or torch.equal(made.signbit(), value.signbit()) or bool(value.isnan().any())


def _formulas(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Expressions that may make a tensor, with what they make."""
    shape, dtype = tuple(value.shape), value.dtype
    sizes, kind = ", ".join(map(str, shape)) or "()", "" if dtype is torch.float32 else f", dtype={dtype}"
    if not value.numel():
        yield f"torch.empty({sizes}{kind})", value
        return
    yield f"torch.zeros({sizes}{kind})", torch.zeros(shape, dtype=dtype)
    yield f"torch.ones({sizes}{kind})", torch.ones(shape, dtype=dtype)
    if value.numel() == 1:
        return
    first = value.flatten()[0].item()
    whole = f"({sizes}{',' * (len(shape) == 1)})"
    yield f"torch.full({whole}, {_text(first, dtype)}{_unless_told(dtype)})", torch.full(shape, first, dtype=dtype)
    reshaped = "" if len(shape) == 1 else f".reshape({sizes})"
    for text, made in (*_ranges(value.flatten()), *_frequencies(value.flatten())):
        yield f"{text}{reshaped}", made.reshape(shape)
    if len(shape) > 1 and shape[-1] == shape[-2] and shape[-1] ** 2 == value.numel():
        reshaped = "" if len(shape) == 2 else f".reshape({sizes})"
        for text, made in _triangles(value.reshape(shape[-2:])):
            yield f"{text}{reshaped}", made.reshape(shape)


def _unless_told(dtype: torch.dtype) -> str:
    """The argument for a dtype, where a number in Python does not tell it."""
    return "" if dtype in (torch.float32, torch.int64, torch.bool) else f", dtype={dtype}"


def _ranges(row: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Whole numbers in even steps."""
    dtype = row.dtype
    if len(row) < 3 or dtype is torch.bool or (row != row.round()).any() or float(row.abs().max()) >= 2**24:
        return
    start, step = int(row[0]), int(row[1]) - int(row[0])
    stop = start + step * len(row)
    if step:
        bounds = str(stop) if (start, step) == (0, 1) else f"{start}, {stop}" + (f", {step}" if step != 1 else "")
        typed = "" if dtype is torch.int64 else f", dtype={dtype}"
        yield f"torch.arange({bounds}{typed})", torch.arange(start, stop, step).to(dtype)


def _triangles(square: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One number on one side of a diagonal, and zeros."""
    n, dtype = len(square), square.dtype
    for name, corner in (("tril", square[-1, 0].item()), ("triu", square[0, -1].item())):
        if corner == 1:
            text = f"torch.ones({n}, {n}{'' if dtype is torch.float32 else f', dtype={dtype}'})"
        else:
            text = f"torch.full(({n}, {n}), {_text(corner, dtype)}{_unless_told(dtype)})"
        for diagonal in (0, 1, -1):
            made = getattr(torch.full_like(square, corner), name)(diagonal)
            yield f"{text}.{name}({diagonal or ''})", made


def _frequencies(row: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Those of rotary embeddings: the powers of a base, from 1 downwards."""
    size = 2 * len(row)
    if row.dtype is not torch.float32 or float(row[0]) != 1.0 or not 0 < float(row[1]) < 1:
        return
    base = float(f"{float(row[1]) ** (-size / 2):.3g}")
    powers = torch.arange(0, size, 2) / size
    yield f"1.0 / {base} ** (torch.arange(0, {size}, 2) / {size})", 1.0 / base**powers
    yield f"torch.tensor({base}) ** -(torch.arange(0, {size}, 2) / {size})", torch.tensor(base) ** -powers


def _numbers(value: Tensor) -> Expression:
    """All numbers of a tensor, in its form."""
    dtype = value.dtype
    flags: tuple[tuple[str, Expression], ...] = (("dtype=", str(dtype)),) if _unless_told(dtype) else ()
    return Call("torch.tensor", (("", _nested(value, lambda item: _text(item, dtype))), *flags))


def _nested(value: Tensor, text: Callable[[Any], str]) -> Expression:
    if not value.dim():
        return text(value.item())
    return Call("", tuple(("", _nested(item, text)) for item in value), ("[", "]"))


def _text(number: Any, dtype: torch.dtype) -> str:
    """The shortest text of a number that is read as the same one of a dtype."""
    if isinstance(number, float):
        if number != number:
            return "torch.nan"
        if number in (float("inf"), float("-inf")):
            return "torch.inf" if number > 0 else "-torch.inf"
        if dtype is not torch.float64:
            shortest = float(str(numpy.float32(number)))
            number = shortest if abs(shortest) <= torch.finfo(dtype).max else number
    return repr(number)

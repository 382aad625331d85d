"""Random programs that ask for dtypes of what they compute, called with random dtypes and autocast: right or loud."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graphwright import trace
from graphwright.errors import GuardError

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# Of one value, or of two, which are floats mostly; `ids` are whole numbers, `mask` truths, `zero` has no dimension.
OPERATIONS = """
    {0} * 2 | {0} + 1.5 | {0} / 3 | {0}.float() | {0}.half() | {0}.double() | {0}.to(torch.bfloat16) | {0}.to({1}.dtype)
    {0}.type_as({1}) | {0}.relu() | {0}.exp() | {0}.int() | ({0} > 0) | torch.softmax({0}, -1) | F.gelu({0})
    torch.softmax({0}, -1, dtype=torch.float32) | {0}.sum(-1, keepdim=True) | {0}.mean(-1, keepdim=True)
    {0}.max(-1, keepdim=True)[0] | {0}.argmax(-1, keepdim=True) | {0}.norm(dim=-1, keepdim=True) | torch.zeros_like({0})
    {0}.new_ones(2, 3) | {0}.masked_fill(mask, 2.0) | {0}.masked_fill(mask, torch.finfo({0}.dtype).min)
    torch.finfo({0}.dtype).eps * {1} | torch.full((2, 3), 0.5, dtype={0}.dtype) | F.layer_norm({0}, {0}.shape[-1:])
    torch.view_as_real(torch.complex({0}.float(), {1}.float())).sum(-1) | {0}.quantile(0.5) | {0}.real
    {0} + {1} | {0} * {1} | {0} - {1} | {0} ** {1} | torch.where(mask, {0}, {1}) | torch.maximum({0}, {1}) | {0} + zero
    {0} + ids | {0} * number | torch.cat([{0}[..., :1], {1}[..., :1]], -1).sum(-1, keepdim=True) | {0}.lerp({1}, 0.3)
    torch.ones(2, 3, dtype=keep({0}).kind) | {1}.to(keep({0}).kind) | {0}[..., {1}.long().clamp(0, 0)[0]].sum(-1)
    F.linear({0}.expand(2, 3), weight) | F.linear({0}.expand(2, 3), weight.to({0}.dtype)) | {0}.clone().copy_({1})
"""
QUESTIONS = """
    {0}.dtype == torch.float16 | {0}.dtype != torch.bfloat16 | {0}.dtype in (torch.float16, torch.bfloat16)
    {0}.is_floating_point() | {0}.dtype == torch.float32 | {0}.dtype is torch.float64 | {0}.dtype.is_floating_point
    {0}.dtype not in [torch.float64] | torch.is_floating_point({0}) | {0}.element_size() == 2 | {0}.is_complex()
    {0}.dtype in {{torch.float32, torch.float64}} | {0}.dtype == {1}.dtype | str({0}.dtype) == 'torch.float32'
    keep({0}).kind == torch.float16
"""


class Kept:
    kind: torch.dtype


def keep(value: torch.Tensor) -> Kept:
    """An object that keeps the dtype of a value."""
    kept = Kept()
    kept.kind = value.dtype
    return kept


def lines_of(table: str) -> list[str]:
    return [each.strip() for line in table.strip().splitlines() for each in line.split(" | ")]


def program_of(draw: random.Random, name: str) -> Callable[..., Any]:
    values, lines = ["x", "y", "weight"], []
    for i in range(draw.randint(1, 6)):
        lines.append(f"v{i} = {draw.choice(lines_of(OPERATIONS)).format(draw.choice(values), draw.choice(values))}")
        values.append(f"v{i}")
    question = draw.choice(lines_of(QUESTIONS)).format(draw.choice(values[-3:]), draw.choice(values))
    lines += [f"answer = 2 if {question} else 3", f"return [{', '.join(values)}, answer]"]
    source = "def program(x, y, ids, mask, zero, weight, number):\n" + "".join(f"    {line}\n" for line in lines)
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    names: dict[str, Any] = {"torch": torch, "F": F, "keep": keep}
    exec(compile(source, name, "exec"), names)
    return names["program"]  # type: ignore[no-any-return]


def inputs_of(draw: random.Random) -> tuple[Any, ...]:
    torch.manual_seed(0)
    kinds = [draw.choice(FLOATS) if draw.random() < 0.6 else torch.float32 for _ in range(4)]
    kinds[1] = draw.choice([torch.int64, torch.bool]) if draw.random() < 0.1 else kinds[1]
    x, y, zero, weight = (torch.randn(sizes).to(kind) for sizes, kind in zip(SIZES, kinds, strict=True))
    return x, y, torch.arange(6).reshape(2, 3), torch.eye(2, 3) > 0, zero, weight, draw.choice([2, 2.5])


FAILS = RuntimeError, IndexError, TypeError
SIZES: list[tuple[int, ...]] = [(2, 3), (2, 3), (), (3, 3)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(20))
def test_a_random_program_is_right_or_loud(seed: int) -> None:
    for count in range(12):
        draw = random.Random(f"{seed} {count}")
        program, example = program_of(draw, f"<program {seed} {count}>"), inputs_of(draw)
        try:
            program(*example)
        except FAILS:
            continue
        gm = trace(program, example)
        for inputs in (example, *[inputs_of(draw) for _ in range(5)]):
            is_cast = inputs is not example and draw.random() < 0.3
            cast = torch.autocast("cpu", draw.choice([torch.bfloat16, torch.float16]), enabled=is_cast)
            try:
                with cast:
                    wanted = program(*inputs)
            except FAILS:
                with pytest.raises(FAILS), cast:
                    gm(*inputs)
                continue
            try:
                with cast:
                    given = gm(*inputs)
            except GuardError:
                assert inputs is not example
                continue
            torch.testing.assert_close(given, wanted, rtol=0, atol=0, equal_nan=True)

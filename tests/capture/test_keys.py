"""Sizes and numbers as keys of dicts and sets: the example says what they are, under a guard.

Those of dicts that are kept are keys of the run: test_kept_items.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, trace


def looked_up(x: Tensor) -> Tensor:
    return x * {2: 1.0, 3: 5.0}[x.shape[0]]


def looked_up_by_sizes(x: Tensor) -> Tensor:
    return x * {(2, 3): 2.0}.get(tuple(x.shape), 4.0)


def stored(x: Tensor) -> Any:
    seen = {}
    seen[x.shape[0] + 1] = x * 2
    return seen


def in_a_set(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] in {2, 4} else x


TABLES = {2: 0.5, 3: 0.25}


class Tables(nn.Module):
    """Two layers ask alike: one start is enough."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Scaled() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * TABLES[x.shape[0]]


@pytest.mark.parametrize("program", [looked_up, looked_up_by_sizes, stored, in_a_set])
def test_a_size_that_is_a_key_is_guarded(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(2, 3),))
    x = torch.randn(2, 3)
    torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)
    with pytest.raises(GuardError, match="was captured where this was 2; now it is 3"):
        gm(torch.ones(3, 3))


def test_layers_that_ask_alike_take_one_start() -> None:
    gm = trace(Tables(), (torch.ones(2, 3),))
    assert gm.report.facts.passes == 3
    for rows in (2, 3):
        assert torch.equal(gm(torch.ones(rows, 3)), Tables()(torch.ones(rows, 3)))
    with pytest.raises(KeyError):
        gm(torch.ones(4, 3))


def test_a_number_among_the_inputs_that_is_a_key_is_guarded() -> None:
    def program(x: Tensor, n: int, scale: float = 2.0) -> Tensor:
        return x * {3: 1.5, 4: 2.5}[n] * scale

    gm = trace(program, (torch.ones(2), 3))
    assert torch.equal(gm(torch.ones(5), 3, 4.0), torch.full((5,), 6.0))
    with pytest.raises(GuardError, match="argument 'n' was 3 when the program was captured; now it is 4"):
        gm(torch.ones(5), 4)


@functools.lru_cache(8)
def _planned(rows: int) -> tuple[int, int]:
    return rows // 2, rows - rows // 2


def plans(x: Tensor) -> Any:
    """As libraries do: a cache for numbers, and a way around it for what cannot be in one."""
    try:
        parts = _planned(x.shape[0])
    except TypeError:
        parts = _planned.__wrapped__(x.shape[0])
    return x[: parts[0]], x[parts[0] :]


def test_a_cache_that_the_program_goes_around_stays_out_of_it() -> None:
    gm = trace(plans, (torch.ones(4, 2),))
    assert not any("size" in guard.what for guard in gm.guards)
    for rows in (2, 5):
        torch.testing.assert_close(gm(torch.ones(rows, 2)), plans(torch.ones(rows, 2)))

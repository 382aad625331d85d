"""Random numbers of Python's and NumPy's are never kept in the graph."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from graphwright import CaptureError, GuardError, trace


def drawn(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    return x * random.uniform(1, 2)


def drawn_by_numpy(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x * float(np.random.rand())
    return x


def decided(x: torch.Tensor) -> torch.Tensor:
    return x if random.random() < 0.5 else x * 2


DRAWING = [
    pytest.param(drawn, "return x * random.uniform(1, 2)", id="a number"),
    pytest.param(drawn_by_numpy, "x = x * float(np.random.rand())", id="NumPy, on a side of a branch"),
    pytest.param(decided, "return x if random.random() < 0.5 else x * 2", id="a question"),
]


@pytest.mark.parametrize(("program", "line"), DRAWING)
def test_a_program_that_draws_is_refused_with_its_line(program: Callable[..., torch.Tensor], line: str) -> None:
    with pytest.raises(CaptureError, match="draws random numbers of Python's") as error:
        trace(program, (torch.ones(3),))
    assert str(error.value.at).endswith(line)


def test_what_is_one_node_may_draw() -> None:
    gm = trace(lambda x: drawn(x) + 1, (torch.ones(3),), leaf_functions=[drawn])
    random.seed(0)
    first = gm(torch.ones(3))
    random.seed(0)
    assert torch.equal(first, drawn(torch.ones(3)) + 1)


class Masks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = x * float(np.random.rand())
        return x + 1


def test_a_flag_that_leads_to_a_draw_is_guarded() -> None:
    gm = trace(Masks().eval(), (torch.ones(3),))
    assert torch.equal(gm(torch.ones(3)), 2 * torch.ones(3))
    with pytest.raises(GuardError):
        gm.train()(torch.ones(3))

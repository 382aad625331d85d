"""Which operations count as the same, and which must stay two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graphwright
from graphwright.passes import MergeSubexpressions

MERGED = {
    "method and function": lambda x: x.relu() * torch.relu(x),
    "functional": lambda x: F.relu(x) * torch.relu(x),
    "by position and by name": lambda x: x.sum(1) * torch.sum(x, dim=[1]),
    "defaults": lambda x: torch.flatten(x, 1) * x.flatten(1, -1),
    "order": lambda x: torch.add(x, x.exp()) * torch.add(x.exp(), x),
    "operators": lambda x: (x + 1) * (x + 1),
}
KEPT = {
    "another dimension": lambda x: x.sum(1) * x.sum(0),
    "order": lambda x: torch.sub(x, 1) * torch.sub(1, x),
    "numbers and tensors": lambda x, n: (n + 1) * torch.add(n, 1),
    "one and true": lambda x: torch.mul(x, 1) * torch.mul(x, True),
    "random": lambda x: F.dropout(x) * F.dropout(x),
}


@pytest.mark.parametrize("function", MERGED.values(), ids=MERGED.keys())
def test_the_same_in_other_words_is_computed_once(function: Any) -> None:
    gm = graphwright.symbolic_trace(function)
    assert MergeSubexpressions().run(gm) > 0
    x = torch.randn(3, 3)
    assert torch.equal(gm(x), function(x))


@pytest.mark.parametrize("function", KEPT.values(), ids=KEPT.keys())
def test_what_is_not_the_same_stays(function: Any) -> None:
    assert MergeSubexpressions().run(graphwright.symbolic_trace(function)) == 0


class Twice(nn.Module):
    """A layer called twice on the same value."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.layer(x)


@pytest.mark.parametrize(
    ("layer", "count"), [(nn.Dropout(), 0), (nn.BatchNorm1d(3), 0), (nn.Linear(3, 3), 1)], ids=repr
)
def test_layers_that_do_more_in_training_stay_though_in_evaluation(layer: nn.Module, count: int) -> None:
    model = Twice(layer).eval()
    gm = graphwright.trace(model, (torch.randn(4, 3),))
    assert MergeSubexpressions().run(gm) == count
    assert graphwright.verify(model, gm, [torch.randn(4, 3)], modes=("train", "eval")).ok

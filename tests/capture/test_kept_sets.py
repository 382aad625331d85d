"""Sets in attributes, to which a program adds from call to call."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright


class Seen(nn.Module):
    """Notes the sizes, numbers and texts that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()


def adds(self: Any, x: Tensor) -> Any:
    self.seen.add(x.shape[0])
    return x * len(self.seen)


def asks(self: Any, x: Tensor) -> Any:
    if x.shape[0] in self.seen:
        return x
    self.seen.add(x.shape[0])
    return x * 2


def adds_on_sides(self: Any, x: Tensor) -> Any:
    if x.sum() > 10:
        self.seen.add("big")
    else:
        self.seen.add("small")
    return x * len(self.seen) + ("big" in self.seen)


def adds_data(self: Any, x: Tensor) -> Any:
    self.seen.add(int(x.sum()))
    return x * len(self.seen)


def removes(self: Any, x: Tensor) -> Any:
    self.seen.update({"a", "b"})
    self.seen.discard("a")
    return x * len(self.seen) if self.seen else x


@pytest.mark.parametrize("forward", [adds, asks, adds_on_sides, adds_data, removes])
def test_sets_are_state(forward: Any) -> None:
    model: Any = type("Model", (Seen,), {"forward": forward})()
    eager = copy.deepcopy(model)
    gm = graphwright.trace(model, (torch.ones(2, 3),))
    assert model.seen == set()
    for rows in (2, 2, 3, 4, 3, 20):
        assert torch.equal(gm(torch.ones(rows, 3)), eager(torch.ones(rows, 3)))
        assert gm.seen == eager.seen


def test_a_set_that_grows_is_not_gone_over() -> None:
    def total(self: Any, x: Tensor) -> Any:
        self.seen.add(x.shape[0])
        return x * sum(self.seen)

    with pytest.raises(graphwright.CaptureError, match=r"goes over Model\.seen, to which it adds from call to call"):
        graphwright.trace(type("Model", (Seen,), {"forward": total})(), (torch.ones(2, 3),))


def test_a_set_that_only_might_grow_is_as_it_was() -> None:
    def total(self: Any, x: Tensor, more: bool = False) -> Any:
        if more:
            self.seen.add(1)
        return x + sum(self.seen)

    model: Any = type("Model", (Seen,), {"forward": total})()
    model.seen = {4, 5}
    gm = graphwright.trace(model, (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 10.0))

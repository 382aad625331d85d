"""Sizes that are compared as a whole are compared item by item: the comparison is one of the graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphwright import trace
from graphwright.ops import cond
from graphwright.runtime import expect_tensors


def checked(x: Tensor, y: Tensor) -> Tensor:
    if x.size() != (y.shape[0], 3):
        raise ValueError(f"sizes {x.size()} and {y.shape}")
    return x + y


def of_both(x: Tensor, y: Tensor) -> Tensor:
    if x.shape == y.shape:
        return x + y
    return x + y.sum()


def of_a_part(x: Tensor, y: Tensor) -> Any:
    return x * 2 if x.shape[:1] == (2,) and [x.shape[0], 1] != [y.shape[0], 2] else x, x.shape == (2, 3, 4)


def of_ends(x: Tensor, y: Tensor) -> Tensor:
    if x.shape[-1:] != y.shape[-1:]:
        x = x.sum(1, keepdim=True)
    return x + y.size()[1:][-1] if x.size()[1:] == y.size()[1:] else x + y


def of_tuples(x: Tensor, y: Tensor) -> Tensor:
    if tuple(x.shape) != tuple(y.shape):
        x = x.sum()
    return x + y if list(x.shape)[:1] == list(y.shape)[:1] else x - y


@pytest.mark.parametrize("program", [checked, of_both, of_a_part, of_ends, of_tuples])
def test_sizes_are_compared_when_the_program_runs(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(2, 3), torch.ones(2, 3)))
    assert all(guard.node is not None and guard.node.target is expect_tensors for guard in gm.guards)  # of ranks
    assert not gm.report.forks
    for one, other in (((4, 3), (4, 3)), ((4, 3), (1, 3)), ((2, 5), (2, 3)), ((2, 3), (2, 3))):
        inputs = torch.rand(one), torch.rand(other)
        try:
            expected: Any = program(*inputs)
        except (ValueError, RuntimeError) as raised:
            expected = raised
        if isinstance(expected, Exception):
            with pytest.raises(type(expected), match=re.escape(str(expected))):
                gm(*inputs)
        else:
            torch.testing.assert_close(gm(*inputs), expected)


class Noisy(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            noise = torch.distributions.Gumbel(torch.zeros(()), torch.ones(())).sample(x.shape)
            return x + noise
        return x * 2


def test_objects_of_torch_that_one_side_makes_are_its_own() -> None:
    gm = trace(Noisy(), (torch.ones(2, 3),))
    assert [guard.what for guard in gm.guards if "training" in guard.what] == [] and len(gm.report.forks) == 0
    x = torch.ones(4, 3)
    assert torch.equal(gm.eval()(x), x * 2)
    torch.manual_seed(0)
    drawn = gm.train()(x)
    torch.manual_seed(0)
    assert torch.equal(drawn, Noisy()(x))


class Decoder(torch.nn.Module):
    """What networks of images do: after each step up, sizes are made those of the value that is joined."""

    def __init__(self) -> None:
        super().__init__()
        self.ups = torch.nn.ModuleList(torch.nn.ConvTranspose2d(2, 2, 2, 2) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for _ in self.ups:
            skips.append(x)
            x = torch.nn.functional.max_pool2d(x, 2)
        for up, skip in zip(self.ups, reversed(skips), strict=True):
            x = up(x)
            if x.shape[-2:] != skip.shape[-2:]:
                x = torch.nn.functional.interpolate(x, size=skip.shape[-2:])
            x = x + skip
        return x


def test_a_step_of_a_loop_that_compares_sizes_is_written_once() -> None:
    decoder = Decoder()
    gm = trace(decoder, (torch.randn(1, 2, 32, 32),))
    resized = [node for node in gm.graph.all_nodes() if node.target is torch.nn.functional.interpolate]
    assert len(resized) == 4 and not gm.report.forks
    for size in (32, 33, 35, 47):
        x = torch.randn(2, 2, size, size)
        assert torch.equal(gm(x), decoder(x))


def unpacked(x: Tensor) -> Tensor:
    lengths = [-1 if -1 in shape else shape[0] * shape[-1] for shape in (x.shape[1:], x.shape)]
    unknown = sum(int(length == -1) for length in lengths)
    return x.reshape(-1) if unknown == 0 and x.nonzero().size(0) > -1 and not -3 > x.numel() else x


def shifted(x: Tensor) -> Tensor:
    return x if x.size(0) - 3 == -1 else x * 2


def test_sizes_are_never_negative_and_what_is_made_of_them_may_be() -> None:
    gm, other = trace(unpacked, (torch.ones(2, 3),)), trace(shifted, (torch.ones(2, 3),))
    assert [node.target for node in gm.graph.nodes if node.op != "placeholder"][-2:] == ["reshape", "output"]
    assert cond in {node.target for node in other.graph.nodes}
    for x in (torch.ones(2, 3), torch.ones(0, 4), torch.ones(5, 1)):
        assert torch.equal(gm(x), unpacked(x)) and torch.equal(other(x), shifted(x))

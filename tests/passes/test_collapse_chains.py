"""Chains become one operation where that gives the same numbers, gradients and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.passes.checks import body, check_pass, noted
from torch import Tensor, nn

from graphwright import rewrite, rule, symbolic_trace
from graphwright.passes import CollapseChains

X = torch.linspace(-2.0, 2.0, 24).view(2, 3, 4)
FLAT = X[0]


def out_of_a_block(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x.permute(0, 2, 1)
    return y.permute(2, 0, 1) * x.sum()


def written_between(x: Tensor) -> Tensor:
    y = x.exp()
    z = y.clamp(0.5)
    y.mul_(2)
    return z.clamp(max=3.0) + y


CHAINS: list[Any] = [
    pytest.param(lambda x: x.permute(2, 0, 1).permute(1, 0, 2) + 1,
                 ["permute_2 = torch.permute(x, (0, 2, 1))", "add = permute_2 + 1", "return add"], 1,
                 id="permutations"),
    pytest.param(lambda x: x.permute(2, 0, 1).permute(1, 2, 0) + 1, ["add = x + 1", "return add"], 1, id="and back"),
    pytest.param(lambda x: x.permute(0, 2, 1).transpose(-1, -2) + 1, ["add = x + 1", "return add"], 1,
                 id="in two spellings"),
    pytest.param(lambda x: x.transpose(0, 1).transpose(1, 0) + 1, ["add = x + 1", "return add"], 1,
                 id="a swap twice, of unknown rank"),
    pytest.param(lambda x: x.mT.transpose(-2, -1) + x.mT.mT, ["add = x + x", "return add"], 2, id="mT twice"),
    pytest.param(lambda x: x[0].t().t() + 1, None, 1, id="t twice"),
    pytest.param(lambda x: x.transpose(0, 1).transpose(1, 2) + 1, None, 0, id="two swaps of unknown rank"),
    pytest.param(lambda x: x.permute(0, 2, 1).transpose(0, 1).transpose(1, 2).permute(2, 1, 0) + 1, None, 3,
                 id="a long chain"),
    pytest.param(lambda x: x.permute(0, 2, 1).permute(0, 2, 1), None, 0, id="an input would be given back"),
    pytest.param(lambda x: (lambda y: (y.permute(0, 2, 1), y))(x.permute(2, 1, 0)), None, 0,
                 id="others read the middle"),
    pytest.param(out_of_a_block, None, 0, id="out of a block"),
    pytest.param(lambda x: x.view(6, 4).view(-1).view(4, 6) + 1,
                 ["view_4 = x.view((4, 6))", "add = view_4 + 1", "return add"], 2, id="views"),
    pytest.param(lambda x: x.unsqueeze(1).view(6, 4) + 1, None, 1, id="a view of unsqueeze"),
    pytest.param(lambda x: x.view(6, 4).reshape(24) + 1, None, 1, id="reshape of a view"),
    pytest.param(lambda x: (lambda y: y.view(y.size(1), -1))(x.view(6, 4)) + 1, None, 0, id="the size of the middle"),
    pytest.param(lambda x: F.linear(x.reshape(4, 6).reshape(6, 4), FLAT), None, 1, id="reshapes, and nobody looks"),
    pytest.param(lambda x: F.linear(x, FLAT).reshape(3, 6).reshape(6, 3), None, 1, id="reshapes of what is contiguous"),
    pytest.param(lambda x: x.reshape(6, 4).reshape(4, 6) + 1, None, 0, id="reshapes whose order is seen"),
    pytest.param(lambda x: x.contiguous().flatten(1).view(4, 6) + 1, None, 1, id="a view of flatten"),
    pytest.param(lambda x: x.reshape(6, 4).reshape(4, 6), None, 0, id="reshapes that are given back"),
    pytest.param(lambda x: x.mT.reshape(24).view(2, 4, 3).add_(1) + x.mT, None, 0, id="a copy that is written to"),
    pytest.param(lambda x: x.unsqueeze(-1).squeeze(-1) + x.unsqueeze(0).squeeze(0), ["add = x + x", "return add"], 2,
                 id="unsqueeze and squeeze"),
    pytest.param(lambda x: x.unsqueeze(0).squeeze(1) + 1, None, 0, id="squeeze elsewhere"),
    pytest.param(lambda x: x.squeeze(0).unsqueeze(0) + 1, None, 0, id="squeeze and unsqueeze"),
    pytest.param(lambda x: x.clamp(-1).clamp(max=1).clamp(0, 5) + 1,
                 ["clamp_4 = torch.clamp(x, 0, 1)", "add = clamp_4 + 1", "return add"], 2, id="limits"),
    pytest.param(lambda x: torch.clamp_min(torch.clamp_max(x, 1.5), -0.5) + 1, None, 1, id="one limit after the other"),
    pytest.param(lambda x: x.clamp(0, 1).clamp(1, 2) + 1, None, 1, id="limits that meet"),
    pytest.param(lambda x: x.clamp(0, 1).clamp(2, 3) + 1, None, 0, id="limits that do not meet"),
    pytest.param(lambda x: x.clamp(0).clamp(max=1.5) + 1, None, 0, id="limits of two types"),
    pytest.param(lambda x: x.clamp(x.mean()).clamp(max=1.5) + 1, None, 0, id="a limit that is computed"),
    pytest.param(lambda x: x.clamp(0.0).clamp_(max=1.5) + 1, None, 1, id="in place, where nobody sees"),
    pytest.param(written_between, None, 0, id="a write between"),
    pytest.param(lambda x: torch.cat([torch.cat([x, x], 1), x], 1), None, 1, id="cat of one value twice"),
    pytest.param(lambda x: torch.cat([torch.cat([x, x + 1], 1), x], 1), None, 0, id="cat of unknown dtypes"),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("program", "code", "count"), CHAINS)
def test_chains_of_unknown_tensors(program: Any, code: Any, count: int) -> None:
    gm = check_pass(CollapseChains(), program, [X], count)

    def again() -> Tensor:
        return X.mT.contiguous().mT  # which lies otherwise in memory

    try:
        expected = program(again())
    except RuntimeError:  # has no such view
        pass
    else:
        for one, other in zip(_tensors(gm(again())), _tensors(expected), strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()
    assert code is None or body(gm) == code


def _tensors(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


NOTED: list[Any] = [
    pytest.param(lambda x: x.transpose(0, 1).transpose(1, 2) + 1, 1, id="two swaps"),
    pytest.param(lambda x: x.reshape(6, 4).reshape(4, 6), 1, id="reshapes of what is contiguous"),
    pytest.param(lambda x: torch.cat([torch.cat([x, x + 1], 1), x], 1), 1, id="cat"),
    pytest.param(lambda x: torch.cat([x, torch.cat([x, x.exp()], -1), torch.cat([x.sin(), x], 2)], 2), 1, id="cats"),
    pytest.param(lambda x: torch.cat([torch.cat([x, x + 1], 1), torch.cat([x, x], 1)], 0), 0, id="along another one"),
    pytest.param(lambda x: torch.cat([torch.cat([x, x.double()], 1), x.double()], 1), 0, id="cat of two dtypes"),
    pytest.param(lambda x: torch.cat([torch.cat([x.int(), x.int()], 1), x.half()], 1), 1, id="promoted once"),
    pytest.param(lambda x: x.double().half() + 1, 1, id="casts"),
    pytest.param(lambda x: x.double().float() + 1, 1, id="a cast and back"),
    pytest.param(lambda x: x.double().float(), 0, id="a cast and back that is given back"),
    pytest.param(lambda x: x.half().float() + 1, 0, id="a cast that rounds"),
    pytest.param(lambda x: x.int().double().float() + 1, 1, id="of whole numbers"),
    pytest.param(lambda x: x.int().float().double() + 1, 0, id="of whole numbers that round"),
    pytest.param(lambda x: x.double().int() + 1, 0, id="to whole numbers"),
    pytest.param(lambda x: x.bool().int().float() + 1, 1, id="of booleans"),
    pytest.param(lambda x: x.double().to(torch.float16, copy=True) + 1, 0, id="a copy"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("program", "count"), NOTED)
def test_what_shape_propagation_has_noted_counts(program: Any, count: int) -> None:
    check_pass(CollapseChains(), program, [X], count, example=X)


DIMS = st.permutations([0, 1, 2])
STEPS = st.one_of(
    DIMS.map(lambda dims: lambda x: x.permute(*dims)),
    st.tuples(st.integers(-3, 2), st.integers(-3, 2)).map(lambda pair: lambda x: x.transpose(*pair)),
    st.just(lambda x: x.mT),
    st.just(lambda x: x.unsqueeze(1).squeeze(1)),
    st.just(lambda x: x.double()),
    st.just(lambda x: x.float()),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)).map(lambda pair: lambda x: x.clamp(*pair)),
    st.just(lambda x: x.reshape(x.size(0), -1).reshape(x.shape)),
)


@pytest.mark.slow
@given(st.lists(STEPS, min_size=1, max_size=7))
def test_random_chains(steps: list[Callable[[Any], Any]]) -> None:
    def program(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x + 1

    gm = noted(symbolic_trace(program), X)
    before = len(gm.graph.nodes)
    count = CollapseChains().run(gm)
    assert len(gm.graph.nodes) <= before - count
    gm.graph.lint()
    for x in (X, X.flip(0) * 9):
        assert torch.equal(gm(x), program(x)) and gm(x).stride() == program(x).stride()
    assert CollapseChains().run(gm) == 0


@pytest.mark.parametrize(
    ("broken", "program"),
    [
        pytest.param(
            rule(lambda x, a, b: torch.permute(torch.permute(x, a), b),
                 lambda x, a, b: torch.permute(x, [b[i] for i in a])),
            lambda x: x.permute(2, 0, 1).permute(1, 0, 2), id="joined the wrong way round",
        ),
        pytest.param(
            rule(lambda x, a, b: x.to(dtype=a).to(dtype=b), lambda x, a, b: x.to(dtype=b)),
            lambda x: x.int().float(), id="a cast that loses something",
        ),
        pytest.param(
            rule(lambda x, a, b, c, d: torch.clamp(torch.clamp(x, a, b), c, d),
                 lambda x, a, b, c, d: torch.clamp(x, max(a, c), min(b, d))),
            lambda x: x.clamp(0, 1).clamp(2, 3), id="limits that do not meet",
        ),
        pytest.param(
            rule(lambda x, a, b: torch.reshape(torch.reshape(x, a), b), lambda x, a, b: torch.reshape(x, b)),
            lambda x: x.mT.reshape(24).reshape(2, 4, 3).add_(1) + x.mT, id="a copy is lost",
        ),
    ],
)  # fmt: skip
def test_a_broken_twin_is_caught(broken: Any, program: Any) -> None:
    class Twin:
        def run(self, gm: nn.Module) -> int:
            return rewrite(gm, [broken]).count

    with pytest.raises(AssertionError):
        check_pass(Twin(), program, [X * 3], 1)

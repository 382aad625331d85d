"""What values are for: masks are found, followed through what keeps them, and lost where they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphError
from graphwright.analysis import ValueFacts, value_facts

X = torch.randn(2, 3, 3)
ALLOWED = torch.ones(2, 3, 3, dtype=torch.int64)
LOWEST = torch.finfo(torch.float32).min


def role(facts: ValueFacts, node: Any) -> str:
    fact = facts[node]
    if fact.is_mask:
        return "mask"
    return (
        "masked" if fact.is_masked else "whole" if fact.is_whole else "numbers" if fact.has_plain_numbers else "other"
    )


def result_role(program: Callable[..., Any], *args: Any) -> str:
    gm = graphwright.trace(program, args)
    facts = value_facts(gm, args)
    return role(facts, gm.graph.output_node().args[0])


def written_in_place(x: Tensor, m: Tensor) -> Tensor:
    x = x * 2
    x[m == 0] = -torch.inf
    return x.transpose(0, 1)


def extended(x: Tensor, m: Tensor) -> Tensor:
    return (1.0 - m.to(x.dtype)) * torch.finfo(x.dtype).min


def causal(x: Tensor, m: Tensor) -> Tensor:
    return torch.full((3, 3), -torch.inf).triu(1)[None].expand(2, -1, -1)


def only_sometimes(x: Tensor, m: Tensor) -> Tensor:
    if x.sum() > 1e9:
        x = x.masked_fill(m == 0, -1e9)
    return x


def in_a_loop(which: int) -> Callable[[Tensor, Tensor], Tensor]:
    def program(x: Tensor, m: Tensor) -> Tensor:
        mask = extended(x, m)
        i = 0
        while x.sum() < 1e9 and i < 3:
            x, mask, i = x.tanh() + 1, mask * 2, i + 1
        return (x, mask)[which]

    return program


CASES = [
    pytest.param(lambda x, m: x, "numbers", id="input"),
    pytest.param(lambda x, m: m, "whole", id="ids"),
    pytest.param(lambda x, m: m == 0, "mask", id="comparison"),
    pytest.param(lambda x, m: x.masked_fill(m == 0, -1e9), "masked", id="masked_fill"),
    pytest.param(lambda x, m: x.masked_fill(m == 0, 0.0), "numbers", id="masked_fill with zero"),
    pytest.param(lambda x, m: x.clone().masked_fill_(m == 0, LOWEST), "masked", id="masked_fill_"),
    pytest.param(written_in_place, "masked", id="setitem"),
    pytest.param(extended, "mask", id="(1 - mask) * lowest"),
    pytest.param(lambda x, m: x + extended(x, m), "masked", id="mask added"),
    pytest.param(lambda x, m: (x + extended(x, m)).softmax(-1), "numbers", id="softmax"),
    pytest.param(lambda x, m: (x + extended(x, m)) @ x, "numbers", id="product"),
    pytest.param(lambda x, m: (x + extended(x, m)).clamp(min=-100), "numbers", id="clamp"),
    pytest.param(lambda x, m: (m - 1) * 1e9 + x, "masked", id="(mask - 1) * large"),
    pytest.param(lambda x, m: x * 1e6, "numbers", id="large factor"),
    pytest.param(causal, "mask", id="causal"),
    pytest.param(lambda x, m: torch.where(m > 0, x, torch.tensor(-torch.inf)), "masked", id="where"),
    pytest.param(lambda x, m: torch.where(m > 0, 0.0, -torch.inf), "mask", id="where of numbers"),
    pytest.param(lambda x, m: torch.max(x, torch.tensor(LOWEST)), "masked", id="maximum with the lowest"),
    pytest.param(lambda x, m: m.float() / 2, "other", id="fractions of ids"),
    pytest.param(lambda x, m: torch.zeros_like(x) + 1, "other", id="constants"),
    pytest.param(only_sometimes, "masked", id="one side of a branch"),
    pytest.param(in_a_loop(0), "numbers", id="carried beside a mask"),
    pytest.param(in_a_loop(1), "mask", id="a mask that is carried"),
]


@pytest.mark.parametrize(("program", "expected"), CASES)
def test_roles(program: Callable[..., Any], expected: str) -> None:
    assert result_role(program, X, ALLOWED) == expected


class Biased(nn.Module):
    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.bias + 0


@pytest.mark.parametrize(
    ("example", "expected"),
    [(torch.zeros(3, 3).masked_fill(torch.eye(3) > 0, LOWEST), "mask"), (torch.zeros(3, 3), "numbers")],
)
def test_masks_that_come_from_outside(example: Tensor, expected: str) -> None:
    assert result_role(lambda x: x[None], example) == expected
    gm = graphwright.trace(Biased(example), (X,))
    assert role(value_facts(gm, X), gm.graph.output_node().args[0]) == expected


def test_layers_give_numbers() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)).eval()
    ids = torch.tensor([[1, 2]])
    gm = graphwright.trace(model, (ids,))
    facts = value_facts(gm, ids)
    roles = [role(facts, node) for node in gm.graph.nodes if node.op in ("placeholder", "call_module")]
    assert roles == ["whole", "numbers", "numbers"]
    assert all("tensor_meta" not in node.meta for node in gm.graph.nodes), "nothing is noted"
    other = graphwright.symbolic_trace(model)
    with pytest.raises(GraphError, match="no node of the module"):
        facts[next(iter(other.graph.nodes))]

"""Attention as one module: its projections are layers like others, where it can be opened; else its row says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright.analysis import Shapes
from graphwright.quantization import static_int8, weight_only_int8
from graphwright.quantization.attention import open_attention


class Attending(nn.Module):
    def __init__(self, needs_weights: bool = False, **options: Any) -> None:
        super().__init__()
        self.needs_weights = needs_weights
        self.attention = nn.MultiheadAttention(32, 4, **{"batch_first": True, **options})
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor, other: Tensor, padding: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        found, _ = self.attention(
            x, other, other, key_padding_mask=padding, attn_mask=mask, need_weights=self.needs_weights
        )
        return self.head(found)


class WithWeights(Attending):
    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        found, weights = self.attention(x, x, x)
        return self.head(found), weights


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.inside = nn.LSTM(32, 32, batch_first=True), nn.Sequential(nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(self.lstm(x)[0])


X, OTHER = torch.randn(3, 5, 32), torch.randn(3, 7, 32)
PADDING = torch.arange(7)[None] >= torch.tensor([7, 4, 0])[:, None]  # of the last text, all
MASK = torch.ones(5, 7, dtype=torch.bool).triu(3)
CASES = [
    pytest.param({}, (X, OTHER), id="other keys"),
    pytest.param({}, (X, X), id="itself"),
    pytest.param({"batch_first": False}, (X.transpose(0, 1), OTHER.transpose(0, 1), PADDING, MASK), id="batch second"),
    pytest.param({"bias": False}, (X, OTHER, None, MASK), id="no bias"),
    pytest.param({"kdim": 16, "vdim": 16}, (X, OTHER[..., :16], PADDING[:3]), id="other sizes"),
    pytest.param({}, (X, OTHER, PADDING), id="padding"),
    pytest.param({}, (X, OTHER, PADDING.float() * -9, MASK.float() * -3), id="masks that are added"),
    pytest.param({}, (X, OTHER, None, MASK.expand(12, 5, 7)), id="a mask for each head"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("needs_weights", [False, True])
@pytest.mark.parametrize(("options", "args"), CASES)
def test_what_is_opened_computes_the_same(options: dict[str, Any], args: tuple[Any, ...], needs_weights: bool) -> None:
    model = Attending(needs_weights, **options).eval()
    gm = graphwright.trace(model, args)
    assert open_attention(gm, Shapes(gm, args)) == 1
    gm.graph.lint()
    gm.recompile()
    torch.testing.assert_close(gm(*args), model(*args), equal_nan=True)
    assert type(model.attention) is nn.MultiheadAttention


def test_projections_are_quantized() -> None:
    model = Attending().eval()
    q = graphwright.quantize(model, static_int8(), [(X, OTHER)], engine=None)
    rows = [(row.path, row.decision) for row in q.quantization.rows if row.op == "linear"]
    names = [*(f"attention.{name}" for name in ("query", "key", "value", "out_proj")), "head"]
    assert rows == [(name, "static") for name in names]
    torch.testing.assert_close(q(X, OTHER), model(X, OTHER), atol=0.05, rtol=0.1)


CLOSED = [
    pytest.param(Attending(add_zero_attn=True), (X, X), "it adds keys and values of its own", id="zeros"),
    pytest.param(WithWeights(), (X,), "the weights of its attention are used", id="weights"),
    pytest.param(Attending(), (X[0], X[0]), "it is called with other values than batches", id="no batch"),
]


@pytest.mark.parametrize(("model", "args", "reason"), CLOSED)
def test_what_stays_one_module_says_why(model: nn.Module, args: tuple[Any, ...], reason: str) -> None:
    q = graphwright.quantize(model.eval(), weight_only_int8(), args=args, engine=None)
    row = q.quantization["attention"]
    assert row.decision == "float" and reason in row.reason


def test_layers_of_transformers_are_entered_and_those_inside_of_others_named() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    q = graphwright.quantize(encoder, weight_only_int8(), args=(X,), engine=None)
    assert [row.decision for row in q.quantization.rows if row.op == "linear"] == ["weight"] * 12
    torch.testing.assert_close(q(X), encoder(X), atol=0.05, rtol=0.1)
    held = graphwright.trace(Held().eval(), X, leaf_modules=nn.Sequential)
    rows = graphwright.quantize(held, weight_only_int8(), args=(X,), engine=None).quantization.rows
    assert [(row.path, row.decision) for row in rows] == [("lstm", "weight"), ("inside", "float")]
    assert "leaf_modules=None" in rows[1].reason

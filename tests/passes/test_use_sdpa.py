"""Written-out attention becomes one operation exactly where that computes the same."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

from graphwright import symbolic_trace, trace, verify
from graphwright.passes import ShapeProp, UseScaledDotProductAttention
from graphwright.passes.fusion import use_sdpa as module
from graphwright.passes.fusion.attention_plan import AttentionPlan, Layouts

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # the kernel takes the softmax block by block, in another order
RANDOM = torch.Generator().manual_seed(0)
Q, K, V = torch.randn(3, 2, 3, 5, 8, generator=RANDOM).unbind(0)
ADDED, SEEN = torch.randn(2, 1, 5, 5, generator=RANDOM), torch.ones(5, 5).tril() > 0
MANY = (torch.cat([Q[0], Q[1]]), torch.cat([K[0], K[1]]), torch.cat([V[0], V[1]]))
SPLIT = [x.transpose(1, 2).contiguous() for x in (Q, K, V)]  # (batch, places, heads, features)
HEADS = [x.transpose(1, 2) for x in SPLIT]  # as models make them: the kernel gives its result in this layout


def calls(gm: Any) -> list[str]:
    return [str(getattr(node.target, "__name__", node.target)) for node in gm.graph.all_nodes()]


def used(model: Any, args: tuple[Any, ...], modes: Any = ("train", "eval"), **options: Any) -> Any:
    """Capture, note shapes, run the pass; check values, gradients and that a second run finds nothing."""
    gm = symbolic_trace(model)
    ShapeProp(gm).propagate(*copy.deepcopy(args))
    count = UseScaledDotProductAttention(**options).run(gm)
    gm.graph.lint()
    report = verify(model, gm, [args], modes=modes, grads=True, **CLOSE)
    assert report.ok, f"{report}\n{gm.code}"
    assert UseScaledDotProductAttention(**options).run(gm) == 0
    return gm, count


def dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1)


CASES = [
    pytest.param(lambda q, k, v: (dot(q, k) / math.sqrt(8)).softmax(-1) @ v, (Q, K, V), id="matmul"),
    pytest.param(lambda q, k, v: torch.matmul(torch.softmax(dot(q, k), 3), v), (Q, K, V), id="no scale"),
    pytest.param(lambda q, k, v: dot(q * 0.3, k).softmax(-1) @ v, (Q, K, V), id="scaled queries"),
    pytest.param(lambda q, k, v: dot(q / 2, k * 0.5).softmax(-1) @ v, (Q, K, V), id="scaled queries and keys"),
    pytest.param(lambda q, k, v: (dot(q, k) * -0.3).softmax(-1) @ v, (Q, K, V), id="a negative scale"),
    pytest.param(lambda q, k, v: (dot(q, k) / q.size(-1) ** 0.5).softmax(-1) @ v, (Q, K, V), id="a computed scale"),
    pytest.param(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, (Q, K, V), id="mT"),
    pytest.param(lambda q, k, v: (q @ k.transpose(2, 3)).softmax(-1) @ v, (Q, K, V), id="dims from the front"),
    pytest.param(lambda q, k, v: (q @ k.permute(0, 1, 3, 2)).softmax(-1) @ v, (Q, K, V), id="permute"),
    pytest.param(lambda q, k, v: (q @ k).softmax(-1) @ v, (Q, K.mT, V), id="keys that come transposed"),
    pytest.param(lambda q, k, v: dot(q, k).softmax(-1) @ v, (Q, K[:1], V[:, :1]), id="broadcast"),
    pytest.param(lambda q, k, v: dot(q, k).softmax(-1) @ v, (Q[0, 0], K[0, 0], V[0, 0, :, :3]), id="matrices"),
    pytest.param(lambda q, k, v: torch.bmm((torch.bmm(q, k.mT) / 8.0).softmax(-1), v), MANY, id="bmm"),
    pytest.param(
        lambda q, k, v, m: torch.bmm(torch.baddbmm(m, q, k.mT, alpha=0.2).softmax(2), v), (*MANY, ADDED[0]),
        id="baddbmm",
    ),
    pytest.param(
        lambda q, k, v: torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v),
        (Q, K, V), id="einsum",
    ),
    pytest.param(
        lambda q, k, v: torch.einsum("bhqk,bkhd->bqhd", torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(3), v), SPLIT,
        id="einsum of another layout",
    ),
    pytest.param(
        lambda q, k, v: torch.einsum("...ij,...jd->...id", torch.einsum("...id,...jd->...ij", q, k).softmax(-1), v),
        (Q, K, V), id="einsum with dots",
    ),
    pytest.param(lambda q, k, v, m: (dot(q, k) * 0.3 + m).softmax(-1) @ v, (Q, K, V, ADDED), id="an added mask"),
    pytest.param(lambda q, k, v, m: (m + dot(q, k)).softmax(-1) @ v, (Q, K, V, ADDED[0, 0, 0]), id="a mask of rank 1"),
    pytest.param(lambda q, k, v, m: (dot(q, k) + m + m).softmax(-1) @ v, (Q, K, V, ADDED), id="two masks"),
    pytest.param(lambda q, k, v, m: (dot(q, k) + m).softmax(-1) @ v, (Q, K, V, SEEN), id="a bool that is added"),
    pytest.param(
        lambda q, k, v, m: dot(q, k).masked_fill(~m, -math.inf).softmax(-1) @ v, (Q, K, V, SEEN), id="masked_fill"
    ),
    pytest.param(
        lambda q, k, v, m: dot(q, k).masked_fill_(m == 0, -1e9).softmax(-1) @ v, (Q, K, V, SEEN), id="masked_fill_"
    ),
    pytest.param(
        lambda q, k, v, m: torch.where(m, dot(q, k) * 0.2, torch.finfo(torch.float32).min).softmax(-1) @ v,
        (Q, K, V, SEEN), id="where",
    ),
    pytest.param(
        lambda q, k, v, m: torch.where(~m, -1e5, dot(q, k)).softmax(-1) @ v, (Q, K, V, SEEN),
        id="where the other way round",
    ),
    pytest.param(
        lambda q, k, v, a, m: (dot(q, k).masked_fill(~m, -1e9) + a).masked_fill(~m, -1e9).softmax(-1) @ v,
        (Q, K, V, ADDED, SEEN), id="masks of all kinds",
    ),
    pytest.param(
        lambda q, k, v: F.softmax(dot(q, k), dim=-1, dtype=torch.float32).to(q.dtype) @ v, (Q, K, V), id="cast back"
    ),
    pytest.param(lambda q, k, v: F.softmax(dot(q, k).float(), dim=-1).type_as(q) @ v, (Q, K, V), id="float, type_as"),
    pytest.param(lambda q, k, v: F.dropout(dot(q, k).softmax(-1), 0.3) @ v, (Q, K, V), id="dropout that is always on"),
    pytest.param(lambda q, k, v: F.dropout(dot(q, k).softmax(-1), 0.3, False) @ v, (Q, K, V), id="dropout that is off"),
    pytest.param(lambda q, k, v: (dot(q, k).softmax(-1) @ v).view(-1, 8), HEADS, id="a view of the result"),
    pytest.param(lambda q, k, v: (dot(q, k).softmax(-1) @ v).transpose(1, 2).flatten(2), (Q, K, V), id="heads joined"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "args"), CASES)
def test_attention_is_one_operation(model: Any, args: Any) -> None:
    gm, count = used(model, tuple(args))
    assert count == 1
    assert "scaled_dot_product_attention" in calls(gm)
    assert not {"softmax", "matmul", "bmm", "einsum", "dropout"} & set(calls(gm))


UNTOUCHED = [
    pytest.param(lambda q, k, v: (lambda w: (w @ v, w))(dot(q, k).softmax(-1)), (Q, K, V), id="weights given back"),
    pytest.param(lambda q, k, v: (lambda s: (s.softmax(-1) @ v, s))(dot(q, k)), (Q, K, V), id="scores given back"),
    pytest.param(lambda q, k, v: dot(q, k).softmax(-2) @ v, (Q, K, V), id="softmax over the queries"),
    pytest.param(lambda q, k, v: dot(q, k).sigmoid() @ v, (Q, K, V), id="no softmax"),
    pytest.param(lambda q, k, v, s: (dot(q, k) * s).softmax(-1) @ v, (Q, K, V, torch.rand(5)), id="a tensor as scale"),
    pytest.param(lambda q, k, v, m: ((dot(q, k) + m) * 2).softmax(-1) @ v, (Q, K, V, ADDED), id="scaled at the end"),
    pytest.param(
        lambda q, k, v, m: (dot(q, k) + m).softmax(-1) @ v, (Q[:1], K[:1], V[:1], ADDED), id="a mask that is larger"
    ),
    pytest.param(
        lambda q, k, v, m: dot(q, k).masked_fill(~m, -3.0).softmax(-1) @ v, (Q, K, V, SEEN), id="filled with a little"
    ),
    pytest.param(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, (Q[0, 0, 0], K[0, 0], V[0, 0]), id="a vector"),
    pytest.param(
        lambda q, k, v: F.softmax(dot(q, k), dim=-1, dtype=torch.float64) @ v, (Q, K, V.double()), id="another dtype"
    ),
    pytest.param(lambda q, k, v: F.dropout(F.dropout(dot(q, k).softmax(-1))) @ v, (Q, K, V), id="dropout twice"),
    pytest.param(
        lambda q, k, v: torch.einsum("bhqk,bhqd->bhkd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v),
        (Q, K, V), id="another einsum",
    ),
    pytest.param(lambda q, k, v: (lambda s: (s, v.add_(1), s.softmax(-1) @ v)[::2])(dot(q, k)), (Q, K, V), id="seen"),
    pytest.param(
        lambda q, k, v: (lambda p: (lambda s: (p.mul_(2), s.softmax(-1) @ v)[1])(dot(p, k)))(q.exp()), (Q, K, V),
        id="queries written to in between",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "args"), UNTOUCHED)
def test_other_programs_stay(model: Any, args: Any) -> None:
    gm = symbolic_trace(model)
    ShapeProp(gm).propagate(*[arg.clone() for arg in args])
    code = gm.code
    assert UseScaledDotProductAttention().run(gm) == 0
    assert gm.code == code


def test_masks_need_shapes_and_fills_may_be_left() -> None:
    gm = symbolic_trace(lambda q, k, v, m: (dot(q, k) + m).softmax(-1) @ v)
    assert UseScaledDotProductAttention().run(gm) == 0
    _, count = used(lambda q, k, v, m: dot(q, k).masked_fill(m, -1e9).softmax(-1) @ v, (Q, K, V, ~SEEN), fill=False)
    assert count == 0


class Attention(nn.Module):
    """Heads from one layer, dropout as a module: nothing but the source says of which rank anything is."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.drop = nn.Linear(8, 24), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(x.size(0), x.size(1), 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.drop((q @ k.transpose(2, 3) * 0.5).softmax(-1))
        return (weights @ v).transpose(1, 2).flatten(2)


def test_ranks_are_read_off_the_program_and_dropout_follows_the_flag() -> None:
    model, x = Attention(), torch.randn(2, 5, 8)
    gm = trace(model, (x,))
    assert UseScaledDotProductAttention().run(gm) == 1
    assert "dropout_p=0.5 * self.drop.training" in gm.code
    assert "contiguous" not in gm.code
    report = verify(model, gm, [(x,), (x[:1, :3],)], modes=("train", "eval"), grads=True, **CLOSE)
    assert report.ok, report


class Single(nn.Module):
    """One head; queries from the same value as keys, or from another one."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.q(x) @ self.k(y).transpose(-2, -1)).softmax(-1) @ y


class Same(Single):
    """Queries, keys and values from one value."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x)


def test_a_rank_that_is_not_known_is_not_taken_for_granted() -> None:
    assert UseScaledDotProductAttention().run(symbolic_trace(Single())) == 0
    assert UseScaledDotProductAttention().run(symbolic_trace(Same())) == 1


def when_given(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    mask = None if (m > 0).all() else m
    scores = dot(q, k) * 0.3
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


def unless_none(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    mask = None if (m > 0).all() else m
    scores = dot(q, k) * 0.3
    scores = scores if mask is None else scores + mask
    return scores.softmax(-1) @ v


def given_twice(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    mask = None if (m > 0).all() else m
    scores = dot(q, k) * 0.3 + m
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


def on_another_condition(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    scores = dot(q, k) * 0.3
    if (m > 0).all():
        scores = scores + m
    return scores.softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "mask", "count"),
    [
        pytest.param(when_given, ADDED, 1, id="is not None"),
        pytest.param(unless_none, ADDED, 1, id="is None"),
        pytest.param(unless_none, SEEN.float()[0], 0, id="of rank 1"),
        pytest.param(when_given, SEEN, 0, id="to be converted"),
        pytest.param(given_twice, ADDED, 0, id="with another"),
        pytest.param(on_another_condition, ADDED, 0, id="on another condition"),
    ],
)
def test_a_mask_that_may_be_none(function: Any, mask: Tensor, count: int) -> None:
    gm = trace(function, (Q, K, V, mask))
    ShapeProp(gm).propagate(Q, K, V, mask)
    assert UseScaledDotProductAttention().run(gm) == count
    assert ("softmax" in calls(gm)) == (count == 0)
    assert verify(function, gm, [(Q, K, V, mask), (Q, K, V, torch.ones_like(mask))], grads=True, **CLOSE).ok


# ---- what the checks catch

TWINS = [
    pytest.param("_scale", lambda graph, plan: 1.0, "a negative scale", id="no scale"),
    pytest.param("_mask", lambda graph, plan, like: None, "an added mask", id="no mask"),
    pytest.param("_probability", lambda graph, p, training: 0.0, "dropout that is always on", id="no dropout"),
    pytest.param("forgets_layout", lambda node: True, "a view of the result", id="any layout"),
    pytest.param(
        "plan_attention", lambda match: AttentionPlan((), (), (), (), (), True, None, Layouts()),
        "keys that come transposed", id="no conditions",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wrong", "case"), TWINS)
def test_a_broken_twin_is_caught(name: str, wrong: Any, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, wrong)
    (model, args) = next(each.values for each in CASES if each.id == case)
    with pytest.raises((AssertionError, RuntimeError)):
        used(model, tuple(args))


# ---- models

WORDS = torch.arange(6).view(1, 6)
PADDED = torch.tensor([[1, 1, 1, 1, 0, 0]])
TINY = {"vocab_size": 50, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 2}


def _bert(library: Any) -> Any:
    config = library.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, **TINY
    )
    return library.BertModel(config), {"input_ids": WORDS, "attention_mask": PADDED}, 2


def _gpt2(library: Any) -> Any:
    config = library.GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=16, use_cache=False, **TINY)
    return library.GPT2Model(config), {"input_ids": WORDS}, 1


def _llama(library: Any) -> Any:
    config = library.LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=16,
        use_cache=False, **TINY,
    )  # fmt: skip
    return library.LlamaModel(config), {"input_ids": WORDS}, 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [_bert, _gpt2, _llama])
def test_models_of_transformers(make: Any) -> None:
    declare_torchvision()
    model, kwargs, layers = make(pytest.importorskip("transformers"))
    gm = trace(model, (), kwargs)
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given = [kwargs.get(str(node.target), node.args[0] if node.args else {}) for node in inputs]
    ShapeProp(gm).propagate(*given)
    assert UseScaledDotProductAttention().run(gm) >= layers
    others = [((), {**kwargs, "attention_mask": torch.ones_like(PADDED)})] if "attention_mask" in kwargs else []
    report = verify(model, gm, [((), kwargs), *others], modes=("train", "eval"), grads=True, **CLOSE)
    assert report.ok, report


@pytest.mark.slow
def test_a_model_of_timm() -> None:
    declare_torchvision()
    timm = pytest.importorskip("timm")
    from timm.layers import set_fused_attn

    set_fused_attn(False)
    try:
        model = timm.create_model("vit_tiny_patch16_224", depth=2, img_size=32, embed_dim=16, num_heads=2)
    finally:
        set_fused_attn(True)
    x = torch.randn(2, 3, 32, 32)
    gm = trace(model, (x,))
    assert UseScaledDotProductAttention().run(gm) == 2
    report = verify(model, gm, [(x,)], modes=("train", "eval"), grads=True, **CLOSE)
    assert report.ok, report

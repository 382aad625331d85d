"""Models of the zoo are quantized as they are, and stay what they were."""

from __future__ import annotations

import functools

import pytest
import torch
from tests.onnx.zoo import Model, models
from tests.zoo.judging import JUDGE

import graphwright
from graphwright.analysis import tensors_in
from graphwright.quantization import sqnr, static_int8

# Different families, each quantized in a few seconds.
SAMPLE = (
    *("hf/albert", "hf/chinese_clip", "hf/codegen", "hf/cvt", "hf/deberta_v2", "hf/falcon_mamba", "hf/gpt2_seqcls"),
    *("hf/hubert", "hf/mamba", "hf/mobilebert", "hf/phimoe", "hf/starcoder2", "hf/t5", "hf/wav2vec2"),
    *("timm/cspnext_tiny", "timm/ese_vovnet19b_slim_dw", "timm/hrnet_w18_small", "timm/legacy_seresnet18"),
    *("timm/crossvit_tiny_240", "tv/r2plus1d_18"),
)


@functools.cache
def sampled() -> dict[str, Model]:
    return {each.name: each for each in models(True, "")}


def outputs(module: torch.nn.Module, call: tuple[tuple[object, ...], dict[str, object]]) -> torch.Tensor:
    with torch.no_grad():
        given = module(*call[0], **call[1])
    return torch.cat([each.flatten().float() for each in tensors_in(given) if each.is_floating_point()])


@pytest.mark.slow
@pytest.mark.skipif(not JUDGE.exists(), reason="the models and their judge are not here")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_is_quantized_as_it_is(name: str) -> None:
    torch.manual_seed(0)
    each = sampled()[name]
    model, call = each.make().eval(), next(iter(each.calls().values()))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    batch = call[1] if call[1] and not call[0] else call[0]
    q = graphwright.quantize(model, static_int8(), [batch], args=call[0], kwargs=call[1], engine=None)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert sqnr(outputs(model, call), outputs(q, call)) > 25
    rows = q.quantization.rows
    assert any(row.decision == "static" for row in rows)
    assert all(row.reason for row in rows)

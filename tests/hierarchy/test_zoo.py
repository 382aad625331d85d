"""Models of the zoo, module by module: they compute what they did flat, at other sizes too, and flat again."""

from __future__ import annotations

import functools

import pytest
import torch
from tests.onnx.zoo import Model, models
from tests.zoo.judging import JUDGE

import graphwright
from graphwright.analysis import tensors_in
from graphwright.hierarchy.sketches import Sketches

# Forks, modules called twice, tuples of tuples, branches inside of layers, caches, random numbers, equal layers.
SAMPLE = (
    *("hf/albert", "hf/codegen", "hf/deberta_v2", "hf/falcon_mamba", "hf/hubert", "hf/mamba", "hf/phimoe", "hf/t5"),
    *("hf/wav2vec2", "timm/hrnet_w18_small", "timm/crossvit_tiny_240", "tv/r2plus1d_18"),
)


@functools.cache
def sampled() -> dict[str, Model]:
    return {each.name: each for each in models(True, "")}


def outputs(module: torch.nn.Module, call: tuple[tuple[object, ...], dict[str, object]]) -> list[torch.Tensor]:
    torch.manual_seed(1)
    with torch.no_grad():
        return [each.nan_to_num() for each in tensors_in(module(*call[0], **call[1]))]


def codes(nested: torch.nn.Module) -> dict[str, str]:
    return {path: each.code for path, each in nested.named_modules() if isinstance(each, graphwright.GraphModule)}


@pytest.mark.slow
@pytest.mark.skipif(not JUDGE.exists(), reason="the models and their judge are not here")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_is_the_same_module_by_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    each = sampled()[name]
    model, calls = each.make().eval(), each.calls()
    first, *others = [call for key, call in calls.items() if key in ("base", "values", "batch", "size")]
    flat = graphwright.trace(model, *first)
    nested = graphwright.unflatten(flat)
    again = graphwright.flatten(nested)
    with monkeypatch.context() as patch:  # as each call is if it is written for itself
        patch.setattr(Sketches, "of", lambda *args: None)
        one_by_one = graphwright.unflatten(flat)
    assert codes(nested) == codes(one_by_one)
    assert any(isinstance(module, graphwright.GraphModule) for module in list(nested.modules())[1:])
    for call in (first, *others):
        want = outputs(flat, call)
        for module in (nested, again):
            got = outputs(module, call)
            assert len(got) == len(want)
            assert all(map(torch.equal, got, want))

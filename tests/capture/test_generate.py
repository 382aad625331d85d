"""`generate` of language models runs on captured graphs alone, with and without a cache."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision

from graphwright import trace

TOKENS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 49, "pad_token_id": 0}


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=64, **TOKENS)
    )


def llama() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2, **TOKENS)
    return transformers.LlamaForCausalLM(config)


def calls_of(model: Any, ids: torch.Tensor, options: dict[str, Any]) -> list[Any]:
    """The calls of the forward that `generate` makes, as examples."""
    calls = []
    original = type(model).forward

    @functools.wraps(original)
    def noting(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, {name: copy.deepcopy(value) for name, value in kwargs.items()}))
        return original(model, *args, **kwargs)

    model.forward = noting
    model.generate(ids, **options)
    del model.forward
    return calls


MODELS = [gpt2, pytest.param(llama, marks=pytest.mark.slow)]


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("build", MODELS)
def test_generate_runs_captured(build: Any, use_cache: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_torchvision()
    torch.manual_seed(0)
    model = build().eval()
    options = {"max_new_tokens": 5, "do_sample": False, "use_cache": use_cache}
    prefill, decode, *_ = calls_of(model, torch.tensor([[5, 6, 7]]), options)
    gm = trace(model, examples=[prefill, decode])
    prompts = [torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6, 7, 8, 9], [1, 2, 3, 4, 5]])]
    expected = [model.generate(prompt, **options) for prompt in prompts]

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the original forward runs")

    monkeypatch.setattr(type(model), "forward", refuse)
    for prompt, wanted in zip(prompts, expected, strict=True):
        assert torch.equal(gm.generate(prompt, **options), wanted)

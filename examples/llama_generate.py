"""Generate tokens with a captured Llama of transformers: its own `generate`, a cache, and no forward of the library.

    python examples/llama_generate.py

`generate` calls the model in two ways: with a whole prompt and an empty cache, and then with one token at a time. Both
calls are examples of one capture; each later call goes to the one whose guards hold.
"""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import graphwright


def make_model() -> LlamaForCausalLM:
    """A small Llama with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def calls_of(model: Any, prompt: torch.Tensor, **settings: Any) -> list[Any]:
    """The calls of the forward that `generate` makes, each as it was before it ran."""
    calls: list[Any] = []
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append((args, copy.deepcopy(kwargs))), with_kwargs=True
    )
    model.generate(prompt, **settings)
    handle.remove()
    return calls


def main() -> None:
    """Capture, generate, change, generate, and say so."""
    model = make_model()
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    prefill, decode, *_ = calls_of(model, torch.tensor([[5, 6, 7]]), **settings)
    gm = graphwright.trace(model, examples=[prefill, decode])

    prompts = [torch.tensor([[5, 6, 7]]), torch.randint(1, 128, (2, 9)), torch.randint(1, 128, (3, 4))]
    wanted = [model.generate(prompt, **settings) for prompt in prompts]
    with mock.patch.object(LlamaForCausalLM, "forward", side_effect=AssertionError("the original forward runs")):
        given = [gm.generate(prompt, **settings) for prompt in prompts]
    assert all(torch.equal(one, other) for one, other in zip(wanted, given, strict=True))
    print(f"generate() with a cache: the same tokens for {len(prompts)} prompts")
    print(f"the first one: {given[0][0].tolist()}")


if __name__ == "__main__":
    main()

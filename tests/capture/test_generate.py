"""`generate` of language models runs on captured graphs alone, and is itself captured, as loops."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision

from graphwright import trace
from graphwright.ops import while_loop

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


def t5() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0, **TOKENS))


MODELS = [gpt2, pytest.param(llama, marks=pytest.mark.slow)]


@pytest.mark.sampled(2)
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


def token_of_some(model: Any, options: dict[str, Any]) -> int:
    """A token that a model generates for about half of all prompts."""
    given = model.generate(torch.randint(1, 49, (32, 4)), max_new_tokens=6, **options)[:, -6:-1]
    return min(range(1, 49), key=lambda token: abs(int((given == token).any(dim=1).sum()) - 16))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "options"),
    [
        pytest.param(gpt2, {}, id="gpt2"),
        pytest.param(gpt2, {"do_sample": True}, id="gpt2, sampled"),
        pytest.param(gpt2, {"num_beams": 2}, id="gpt2, beams"),
        pytest.param(llama, {}, id="llama"),
        pytest.param(t5, {}, id="t5"),
    ],
)
def test_a_program_that_generates_is_captured(build: Any, options: dict[str, Any]) -> None:
    """For other prompts, lengths and batches; it ends where all sequences have ended, as the original does."""
    declare_torchvision()
    torch.manual_seed(0)
    model = build().eval()
    is_sampled = "do_sample" in options
    model.generation_config.eos_token_id = list(range(1, 13)) if is_sampled else token_of_some(model, options)

    def program(ids: torch.Tensor) -> torch.Tensor:
        return model.generate(ids, max_new_tokens=6, **options)

    def seeded(function: Any, ids: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(int(ids.sum()))
        return function(ids)

    gm = trace(program, (torch.randint(1, 49, (2, 4)),))
    assert any(node.target is while_loop for node in gm.graph.all_nodes())
    for shape in ((2, 4), (2, 6), (1, 3), (3, 5)):
        ids = torch.randint(1, 49, shape)
        assert torch.equal(seeded(gm, ids), seeded(program, ids))
    ids = torch.tensor([[5, 6, 7, 8], [0, 0, 5, 6]])  # padded on the left
    assert torch.equal(seeded(gm, ids), seeded(program, ids))
    prompts = [torch.randint(1, 49, (1, 4)) for _ in range(16)]
    assert len({seeded(program, ids).shape[1] for ids in prompts}) > 1, "some end early"
    for ids in prompts:
        assert torch.equal(seeded(gm, ids), seeded(program, ids))

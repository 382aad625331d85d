"""Writes a Llama of transformers as one file of plain PyTorch, and checks that the file does what the library does.

    python examples/llama_by_hand.py [llama.py]

The model is captured module by module: its decoder layers are one class, however many there are. The file needs torch
and nothing else; its logits are compared with those of transformers on other lengths and batches, and what it writes
token by token with `generate()`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import graphwright


def make_model(layers: int = 8) -> LlamaForCausalLM:
    """A small Llama with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval()


def write(model: nn.Module) -> str:
    """The model as the text of a file."""
    nested = graphwright.trace(model, (torch.randint(1, 512, (2, 16)),), flat=False)
    return graphwright.source(nested, standalone=True, comments=False)


def load(text: str, model: nn.Module) -> Any:
    """The module of a file, with the weights of the model that it was written from."""
    scope: dict[str, Any] = {"__name__": "llama"}
    exec(compile(text, "llama.py", "exec"), scope)
    written = scope[type(model).__name__]()
    written.load_state_dict(model.state_dict())
    return written


@torch.no_grad()
def continued(module: Any, ids: torch.Tensor, count: int) -> torch.Tensor:
    """Tokens and the `count` most likely ones after them."""
    for _ in range(count):
        ids = torch.cat([ids, module(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids


def main() -> None:
    """Write, check, and say so."""
    model = make_model()
    text = write(model)
    written = load(text, model)
    for batch, length in ((2, 16), (1, 5), (4, 33)):
        ids = torch.randint(1, 512, (batch, length))
        with torch.no_grad():
            assert torch.equal(written(ids).logits, model(ids).logits)
    prompt = torch.randint(1, 512, (2, 6))
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    assert torch.equal(continued(written, prompt, 12), model.generate(prompt, **settings))
    lines = text.count("\n")
    classes = text.count("\nclass ")
    print(f"{lines} lines, {classes} classes, {len(model.model.layers)} layers: logits and generate() are equal")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
        print(f"written to {sys.argv[1]}")


if __name__ == "__main__":
    main()

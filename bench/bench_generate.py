"""Time `generate()` of a decoder of Hugging Face: captured, optimized, and with weights of integers, beside eager.

    python bench/bench_generate.py [--tokens 24] [--rounds 7] [--layers 6] [--width 768]

A Llama of random weights, with its own cache, gets a prompt of 32 tokens and gives more; every module is made for the
calls of `generate()` by one line. Interleaved rounds, CPU time, one thread. Takes two minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import graphwright
import models
from graphwright.quantization import dynamic_int8, weight_only_int4, weight_only_int8
from results import versions
from timing import Case, interleave


def decoder(layers: int, width: int) -> Any:
    """A Llama with random weights. Raises ImportError without transformers."""
    models._torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=width,
        intermediate_size=width * 8 // 3 // 64 * 64,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        pad_token_id=1,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def main() -> None:
    """Make all forms, time them, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tokens", 24), ("rounds", 7), ("layers", 6), ("width", 768)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = decoder(options.layers, options.width)
    prompt = torch.randint(2, 4096, (1, 32), generator=torch.Generator().manual_seed(0))

    def run(module: Any, tokens: int = 3) -> torch.Tensor:
        return module.generate(prompt, max_new_tokens=tokens, do_sample=False)  # type: ignore[no-any-return]

    makers: dict[str, Callable[[], nn.Module]] = {
        "eager": lambda: model,
        "captured": lambda: graphwright.record(model, run),
        "optimized": lambda: graphwright.optimize_for_inference(model, examples=run, engines=("torch",)),
        "weight_only_int8": lambda: graphwright.quantize(model, weight_only_int8(), run),
        "dynamic_int8": lambda: graphwright.quantize(model, dynamic_int8("tensor"), run),
        "weight_only_int4": lambda: graphwright.quantize(model, weight_only_int4(group_size=32), run),
    }
    made = {name: make() for name, make in makers.items()}
    for name in ("captured", "optimized"):
        assert torch.equal(run(made[name], options.tokens), run(model, options.tokens)), name
    cases = [Case(name, lambda module=module: run(module, options.tokens)) for name, module in made.items()]
    print(f"{versions()}; {options.layers} layers of {options.width}, {options.tokens} tokens")
    for each in interleave(cases, "eager", options.rounds):
        spread = f"{each.lowest_ratio:.2f}-{each.highest_ratio:.2f}"
        print(f"{each.name:18} {each.median_s * 1e3:8.1f} ms  {each.ratio:.2f} ({spread})")


if __name__ == "__main__":
    main()

"""Measure what copies of layers alike save: captures with them and without, of models whose layers are alike or not.

    python bench/bench_copies.py

Each time is the best of four, of this process's seconds. Takes a minute.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import graphwright
from bench_capture import transformers_here
from models import _torchvision
from results import versions

ROUNDS = 4


def models() -> dict[str, tuple[Callable[[], nn.Module], torch.Tensor]]:
    """Makers of models, each with an input."""
    transformers, vision = transformers_here(), _torchvision()
    import timm

    ids, image = torch.randint(0, 200, (1, 16)), torch.randn(1, 3, 224, 224)
    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}

    def bert(layers: int) -> nn.Module:
        return transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers, **sizes))  # type: ignore[no-any-return]

    def llama(use_cache: bool) -> nn.Module:
        config = transformers.LlamaConfig(num_hidden_layers=16, num_key_value_heads=2, use_cache=use_cache, **sizes)
        return transformers.LlamaForCausalLM(config)  # type: ignore[no-any-return]

    return {
        "bert, 4 layers": (lambda: bert(4), ids),
        "bert, 12 layers": (lambda: bert(12), ids),
        "llama, 16 layers": (lambda: llama(False), ids),
        "llama, 16 layers, cache": (lambda: llama(True), ids),
        "vit_b_16": (vision.models.vit_b_16, image),
        "convnext_tiny": (lambda: timm.create_model("convnext_tiny"), image),
        "resnet50": (vision.models.resnet50, image),
        "swin_tiny": (lambda: timm.create_model("swin_tiny_patch4_window7_224"), image),
    }


def seconds(model: nn.Module, x: torch.Tensor, flat: bool, copy_layers: bool) -> float:
    """The time of the fastest capture of a few."""
    times = []
    with graphwright.config.set(copy_layers=copy_layers):
        for _ in range(ROUNDS):
            gc.collect()
            started = time.process_time()
            graphwright.trace(model, (x,), flat=flat)
            times.append(time.process_time() - started)
    return min(times)


def main() -> int:
    """Measure and print."""
    torch.set_num_threads(1)
    print(versions())
    print(f"{'':<24}{'flat s':>8}{'copied':>8}{'ratio':>7}{'nested s':>10}{'copied':>8}{'ratio':>7}")
    for name, (make, x) in models().items():
        torch.manual_seed(0)
        model = make().eval()
        graphwright.trace(model, (x,))  # what is done once in a process
        flat, flat_copied = (seconds(model, x, True, copied) for copied in (False, True))
        nested, nested_copied = (seconds(model, x, False, copied) for copied in (False, True))
        print(
            f"{name:<24}{flat:>8.3f}{flat_copied:>8.3f}{flat_copied / flat:>7.2f}"
            f"{nested:>10.3f}{nested_copied:>8.3f}{nested_copied / nested:>7.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

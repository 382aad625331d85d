"""Models of libraries, small where they can be, with an input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

__all__ = ["zoo_model"]


def zoo_model(library: str, name: str) -> tuple[nn.Module, Any]:
    """Make a model of torchvision, timm or transformers, without weights, and an input for it."""
    package = pytest.importorskip(library)
    if library == "torchvision":
        options = {"init_weights": False} if name == "googlenet" else {}
        return package.models.get_model(name, weights=None, **options), torch.rand(2, 3, 224, 224)
    if library == "timm":
        model = package.create_model(name, pretrained=False)
        return model, torch.rand(2, *model.default_cfg["input_size"])
    sizes = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99,
        "n_embd": 32, "n_layer": 2, "n_head": 2, "dim": 32, "n_heads": 2, "n_layers": 2, "hidden_dim": 64,
        "embedding_size": 16, "num_key_value_heads": 2, "ffn_dim": 64, "word_embed_proj_dim": 32, "image_size": 32,
        "patch_size": 8, "max_position_embeddings": 64,
    }  # fmt: skip
    known = package.AutoConfig.for_model(name).to_dict()
    config = package.AutoConfig.for_model(name, **{k: v for k, v in sizes.items() if k in known}, use_cache=False)
    model = package.AutoModel.from_config(config)
    return model, (torch.rand(2, 3, 32, 32) if name == "vit" else torch.randint(0, 99, (2, 7)))

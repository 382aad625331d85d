"""Programs that are cut into stages, with inputs and losses, made alike in every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn


@dataclass
class Program:
    """A model, the inputs of a step, and the loss of what `output` picks of its result."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    target: torch.Tensor | None = None
    loss: Callable[[Any, Any], torch.Tensor] = F.mse_loss
    capture: dict[str, Any] = field(default_factory=dict)


class Skip(nn.Module):
    """A value that two stages skip, a size that crosses, a write in place and two weights that are one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(8, 8) for _ in range(4))
        self.d.weight = self.a.weight

    def forward(self, x: torch.Tensor, scale: float | None = None) -> dict[str, Any]:
        count = x.shape[0]
        start = self.a(x)
        hidden = self.b(start)
        hidden = self.c(hidden.relu_()) + start
        last = self.d(hidden).view(count, 2, 4)
        return {"out": last if scale is None else last * scale, "mid": hidden, "none": None}


def skip() -> Program:
    torch.manual_seed(0)
    return Program(Skip(), (torch.randn(8, 8),), {}, "out", torch.randn(8, 2, 4))


def _ids() -> torch.Tensor:
    return torch.randint(0, 64, (4, 6), generator=torch.Generator().manual_seed(1))


def llama(**capture: Any) -> Program:
    declare_torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    return Program(
        LlamaForCausalLM(config), (), {"input_ids": _ids()}, "logits", _ids(),
        lambda logits, ids: F.cross_entropy(logits.flatten(0, 1), ids.flatten()), capture,
    )  # fmt: skip


def gpt2() -> Program:
    """With the loss that the model computes itself, of labels that the last stage needs."""
    declare_torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=4, n_head=4, n_positions=16, use_cache=False, attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    inputs = {"input_ids": _ids(), "labels": _ids()}
    return Program(GPT2LMHeadModel(config), (), inputs, "loss", _ids(), lambda loss, _: loss)


def bert() -> Program:
    """With a mask, of which the program asks whether it masks anything."""
    declare_torchvision()
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    mask = torch.ones(4, 6, dtype=torch.int64)
    mask[1, 4:] = 0
    inputs = {"input_ids": _ids(), "attention_mask": mask}
    return Program(BertModel(config), (), inputs, "last_hidden_state", torch.randn(4, 6, 32))

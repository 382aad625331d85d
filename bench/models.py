"""Networks for the benchmarks, with random weights, and inputs for them.

Their annotations are objects, not strings: torch.fx copies them into its code and cannot pickle strings.
"""

import importlib
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FROM_TORCHVISION = ("resnet18", "resnet50", "vit_b_16", "mobilenet_v3_small")

_declarations: list[torch.library.Library] = []  # operators are forgotten when the library that declares them goes


def build(name: str) -> nn.Module:
    """Return a network by name, in eval mode.

    Known are torchvision's FROM_TORCHVISION, `vit_tiny`, `mlp8x64` and `gptN`, a decoder of N layers.
    """
    torch.manual_seed(0)
    model: nn.Module
    if name in FROM_TORCHVISION:
        model = getattr(_torchvision().models, name)(weights=None)
    elif name == "vit_tiny":
        model = VisionTransformer()
    elif name == "mlp8x64":
        model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())))
    elif name.startswith("gpt"):
        model = Decoder(layers=int(name[3:]))
    else:
        raise KeyError(name)
    return model.eval().requires_grad_(False)


def inputs(name: str) -> tuple[Tensor, ...]:
    """Return inputs of batch size 1 for the network of that name."""
    generator = torch.Generator().manual_seed(0)
    if name.startswith("gpt"):
        return torch.randint(0, 256, (1, 128), generator=generator), torch.arange(128)[None]
    if name == "mlp8x64":
        return (torch.randn(1, 64, generator=generator),)
    return (torch.randn(1, 3, 224, 224, generator=generator),)


def _torchvision() -> Any:
    """Import torchvision, also where its compiled operators do not load.

    The operators that it describes to torch while it is imported are then declared first. Its classifiers use none.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # "operator torchvision::nms does not exist"
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declarations.append(library)
    return importlib.import_module("torchvision")


class Attention(nn.Module):
    """Causal self-attention as GPT-2 has it; queries, keys and values are unpacked from one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.width = width
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.size(0), x.size(1)
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        q = q.view(batch, length, self.heads, self.width // self.heads).transpose(1, 2)
        k = k.view(batch, length, self.heads, self.width // self.heads).transpose(1, 2)
        v = v.view(batch, length, self.heads, self.width // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, self.width))


class TanhGELU(nn.Module):
    """A module of the user's own around one function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


class DecoderBlock(nn.Module):
    """Attention and a feed-forward layer, each with its residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.act = TanhGELU()
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.act(self.c_fc(self.ln_2(x))))


class Decoder(nn.Module):
    """A small GPT-2, written so that symbolic tracing takes it."""

    def __init__(self, layers: int, width: int = 128, heads: int = 4, words: int = 256, length: int = 128) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, width)
        self.wpe = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([DecoderBlock(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words: Tensor, positions: Tensor) -> Tensor:
        x = self.wte(words) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class EncoderBlock(nn.Module):
    """A block of a vision transformer; queries, keys and values come apart by `unbind`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.width = width
        self.n1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.n2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.size(0), x.size(1)
        qkv = self.qkv(self.n1(x)).reshape(batch, length, 3, self.heads, self.width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, self.width))
        return x + self.fc2(self.act(self.fc1(self.n2(x))))


class VisionTransformer(nn.Module):
    """ViT-Ti/16: patches of 16 by 16 pixels of an image of 224 by 224."""

    def __init__(self, width: int = 192, layers: int = 12, heads: int = 3, classes: int = 1000) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, 14 * 14 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*[EncoderBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])

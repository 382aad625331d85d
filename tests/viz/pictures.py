"""The pictures of docs/viewer.md, taken anew: `python -m tests.viz.pictures`."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.runtime.declare_torchvision import declare_torchvision
from tests.viz.browser import Browser, browsing
from torch import Tensor, nn

import graphwright
from graphwright.passes import FuseConvBatchNorm

FOLDER = Path(__file__).parent.parent.parent / "docs/pictures"
SIZE = (1280, 800)


class GreedyDecoder(nn.Module):
    """The first program of docs/control-flow.md, with a choice."""

    def __init__(self, words: int = 12, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.head = nn.Linear(width, words)

    def forward(self, ids: Tensor, end: int = 0) -> Tensor:
        while ids.shape[1] < 8:
            hidden = torch.tanh(self.embedding(ids).mean(1))
            scores = self.head(hidden)
            if scores.max() > 4:
                token = scores.argmax(-1)
            else:
                token = scores.softmax(-1).multinomial(1)[:, 0]
            ids = torch.cat([ids, token[:, None]], 1)
            if (token == end).all():
                break
        return ids


def resnet(folder: Path) -> Path:
    """A ResNet-50."""
    declare_torchvision()
    from torchvision.models import resnet50

    x = torch.randn(1, 3, 224, 224)
    return graphwright.view(graphwright.trace(resnet50().eval(), (x,)), folder / "resnet.html", args=x)


def show_resnet(browser: Browser) -> None:
    browser.click("[data-heat=flops]")
    browser.click('[data-box=">layer2#1"] [data-toggle]')
    browser.click('[data-box=">layer2#1>layer2.0#1"] [data-toggle]')
    select(browser, "layer2.0.conv2")
    browser.press("-")


def llama(folder: Path) -> Path:
    """A small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    call: dict[str, Any] = {"input_ids": torch.randint(0, 1000, (1, 16)), "use_cache": False}
    gm = graphwright.trace(LlamaForCausalLM(config).eval(), (), call)
    return graphwright.view(gm, folder / "llama.html", kwargs=call)


def show_llama(browser: Browser) -> None:
    select(browser, "model.layers.0.mlp.down_proj")
    browser.click("[data-heat=seconds]")
    browser.press("-")


def loops(folder: Path) -> Path:
    """A decoder with a loop and branches."""
    ids = torch.randint(1, 12, (2, 3))
    return graphwright.view(graphwright.trace(GreedyDecoder().eval(), (ids,)), folder / "loops.html", args=ids)


def show_loops(browser: Browser) -> None:
    browser.press("u")
    select(browser, "multinomial")
    browser.press("-")
    browser.press("-")
    browser.drag((700, 300), (700, 370))


def fused(folder: Path) -> Path:
    """A ResNet-18 before and after its batch norms went into its convolutions."""
    declare_torchvision()
    from torchvision.models import resnet18

    x = torch.randn(1, 3, 224, 224)
    before = graphwright.trace(resnet18().eval(), (x,))
    after = copy.deepcopy(before)
    FuseConvBatchNorm()(after)
    return graphwright.view(before, folder / "fused.html", args=x, compare=after)


def show_fused(browser: Browser) -> None:
    browser.click('.pane:last-child [data-box=">layer1#1"] [data-toggle]')
    browser.click('.pane:last-child [data-box=">layer1#1>layer1.0#1"] [data-toggle]')


def select(browser: Browser, text: str) -> None:
    """Search, go to what is found first, and end the search."""
    browser.press("/")
    browser.write(text)
    browser.press("Enter")
    browser.press("Escape")


PICTURES: tuple[tuple[Callable[[Path], Path], Callable[[Browser], None], bool], ...] = (
    (resnet, show_resnet, False),
    (llama, show_llama, True),
    (loops, show_loops, False),
    (fused, show_fused, False),
)


def take(folder: Path) -> None:
    """Take every picture."""
    torch.manual_seed(0)
    with browsing(*SIZE) as browser:
        for make, show, is_dark in PICTURES:
            browser.open(make(folder), is_dark)
            show(browser)
            browser.picture(FOLDER / f"viewer-{make.__name__}.png")
            assert not browser.complaints, browser.complaints


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        take(Path(where))

"""What people see of a captured module: a line, text with equal layers folded, and what a notebook shows."""

from __future__ import annotations

import torch
from torch import nn

import graphwright


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y = y * y.sum()
        return x + torch.relu(y)


def tower() -> graphwright.GraphModule:
    return graphwright.trace(nn.Sequential(*(Block() for _ in range(20))), (torch.ones(1, 4),))


def test_a_line_says_what_it_is() -> None:
    assert repr(tower()) == "<Sequential captured: forward, 102 nodes>"
    assert repr(graphwright.symbolic_trace(nn.Sequential(nn.ReLU()))).endswith("(\n  (0): ReLU()\n)")  # as in torch.fx


def test_text_shows_equal_layers_once() -> None:
    gm = tower()
    text = str(gm)
    assert len(gm.code) > 3 * len(text.partition("def forward")[2])
    assert "more times lines like these" in text
    compile(gm.code, "code", "exec")


def test_a_notebook_shows_code_and_modules() -> None:
    page = tower()._repr_html_()
    assert "<b>&lt;Sequential captured: forward, 102 nodes&gt;</b>" in page
    assert page.count("<details") == 2

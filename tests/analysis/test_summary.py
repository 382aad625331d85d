"""`summary` and `profile`: a model on one screen, and where the time of a call goes; one convention for all of them."""

from __future__ import annotations

import functools
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright.analysis import costs, memory, peak_memory
from graphwright.errors import GraphError
from graphwright.passes import extract, node_names


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        if x.sum() > 0:
            x = self.gate(x)
        return torch.relu(self.linear(x)) * scale


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head, self.unused = nn.Linear(8, 2), nn.Linear(3, 3)

    def forward(self, ids: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, scale)
        return self.head(x)


IDS = torch.arange(6).view(2, 3)


def tower() -> nn.Module:
    torch.manual_seed(0)
    model = Tower()
    with torch.no_grad():
        model.embed.weight.abs_()
        for block in model.blocks:
            block.gate.weight.abs_()
            block.gate.bias.abs_()
            block.linear.weight.abs_()
    return model


def test_equal_blocks_are_one_line() -> None:
    found = graphwright.summary(tower(), IDS)
    assert str(found).splitlines() == [
        "module        class       gives      parameters   flops   share",
        "(all)         Tower       (2, 3, 2)         674  6.34 k  100.0%",
        "  embed       Embedding   (2, 3, 8)          80       0    0.0%",
        "  blocks      ModuleList  (2, 3, 8)         576  6.14 k   97.0%",
        "    0-3       Block x4    (2, 3, 8)         144  1.54 k   24.2%",
        "      linear  Linear      (2, 3, 8)          72     768   12.1%",
        "      gate    Linear      (2, 3, 8)          72     768   12.1%",
        "  head        Linear      (2, 3, 2)          18     192    3.0%",
        "686 parameters, 686 trainable, 2.68 KiB; 6.34 kFLOP",
    ]
    assert found["blocks.3.gate"].shapes == ((2, 3, 8),)
    assert found.to_dict()["modules"][0]["flops"] == found[""].flops
    with pytest.raises(KeyError, match="no module that runs is called 'unused'"):
        found["unused"]


def test_rich_draws_the_table() -> None:
    console = pytest.importorskip("rich.console").Console(width=100, record=True, file=io.StringIO())
    console.print(graphwright.summary(tower(), IDS))
    assert "Block x4" in console.export_text()


def test_time_is_told_per_node_and_module() -> None:
    model = tower()
    found = graphwright.profile(model, IDS, {"scale": 2.0}, repeats=1)
    assert found[""].share == pytest.approx(1)
    assert found["blocks"].time_us == pytest.approx(sum(found[f"blocks.{i}"].time_us for i in range(4)))
    assert found["head"].flops == costs(model, IDS)["head"].flops == 192
    assert found.peak == peak_memory(model, IDS, {"scale": 2.0})
    node = next(node for node in found.nodes if node.kind == "relu")
    assert node.line.startswith("test_summary.py:")
    assert "a call takes" in str(found)
    assert len(found.table(most=3).rows) == 3
    assert [row[0] for row in found.table_of_modules().rows[:2]] == ["(all)", "embed"]
    assert found.to_dict()["nodes"][0]["name"] == found.nodes[0].name


CALLS = [
    *(costs, memory, peak_memory, graphwright.summary, functools.partial(graphwright.profile, repeats=1)),
    lambda model, *call: graphwright.verify(model, model, *call),
    lambda model, *call: extract(model, ["head"], *call),
]


@pytest.mark.parametrize("function", CALLS)
def test_one_convention(function: Any) -> None:
    """A model or a captured one; a tuple of arguments or the only one; then those by name."""
    model = tower()
    gm = graphwright.trace(model, IDS)
    for each in (model, gm):
        function(each, IDS)
        function(each, (IDS,), {"scale": 1.0})
        function(each, (), {"ids": IDS})


@pytest.mark.parametrize("function", CALLS[:5])
def test_arguments_beside_each_other_are_told(function: Any) -> None:
    with pytest.raises(GraphError, match="kwargs is a float\n  fix: pass all positional inputs as one tuple"):
        function(tower(), IDS, 2.0)


def test_names_are_those_of_a_module_or_graph() -> None:
    gm = graphwright.trace(tower(), IDS)
    assert node_names(gm) == node_names(gm.graph)


def test_a_profile_is_drawn_as_a_flame_picture(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    found = graphwright.profile(model, torch.ones(2, 4), repeats=1)
    text = found.to_html(tmp_path / "profile.html").read_text()
    shares = [float(share) for share in re.findall(r'title="(?:0|1): [\d.,]+ us, ([\d.]+)%"', text)]
    assert abs(sum(shares) - 100) < 0.2
    assert all(f"{node.module}.{node.name}: " in text for node in found.nodes)

"""What programs cost: the operations that torch counts, parameters once each, bytes that move."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import graphwright
from graphwright.analysis import costs

QUICK = ["resnet18", "mobilenet_v3_small", "vit_b_16"]
MORE = [
    *("alexnet", "densenet121", "efficientnet_b0", "mnasnet0_5", "mobilenet_v2", "regnet_y_400mf"),
    *("resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "vgg11", "wide_resnet50_2", "convnext_tiny"),
    *("maxvit_t", "swin_v2_t", "resnet50", "mobilenet_v3_large"),
]


def counted(model: Any, *args: Any) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*args)
    return counter.get_total_flops()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*QUICK, *[pytest.param(name, marks=pytest.mark.slow) for name in MORE]])
def test_operations_are_those_that_torch_counts(name: str) -> None:
    declare_torchvision()
    import torchvision

    model = getattr(torchvision.models, name)(weights=None).eval()
    x = torch.randn(1, 3, 224, 224)
    report = costs(graphwright.trace(model, (x,)), x)
    assert report.total.flops == counted(model, x) == sum(cost.flops for cost in report.nodes)
    assert report.total.parameters <= sum(parameter.numel() for parameter in model.parameters())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.inner(self.embed(ids)))
        return self.head(torch.relu_(x).view(-1, 4))


def test_parameters_count_once_and_bytes_where_they_move() -> None:
    model = Tied()
    ids = torch.arange(6)
    gm = graphwright.trace(model, (ids,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = costs(gm, ids)
    assert report.total.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert report["head"].flops == 2 * 6 * 4 * 10
    assert (report["inner"].bytes_read, report["inner"].bytes_written) == (4 * (24 + 16 + 4), 4 * 24)
    by_kind = {cost.kind: cost for cost in report.nodes}
    assert by_kind["relu_"].bytes == 2 * 4 * 24
    assert by_kind["view"].bytes == 0
    assert str(report).splitlines()[0].split("  ")[0] == "module"
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    with pytest.raises(KeyError, match="nowhere"):
        report["nowhere"]


def repeated(x: torch.Tensor, weight: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x @ weight if x.sum() > 0 else x @ weight @ weight
    return x


class OfItself(nn.Module):
    """A layer that gets a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.layer(self.weight)


def test_a_layer_of_a_parameter_is_counted() -> None:
    assert costs(OfItself(), torch.randn(3, 4)).total.flops == 2 * 4 * 4 * 2 + 2 * 3 * 4 * 2


def test_what_runs_often_counts_often() -> None:
    gm = graphwright.trace(repeated, (torch.ones(3, 3), torch.ones(3, 3), 2))
    args = torch.ones(3, 3), torch.ones(3, 3), 5
    report = costs(gm, args)
    assert report.total.flops == counted(repeated, *args) == 5 * 2 * 27
    assert sorted(cost.runs for cost in report.nodes if cost.kind == "matmul") == [0, 0, 5]


def test_what_a_program_writes_is_put_back() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.total += x
            return x.add_(1)

    gm, x = graphwright.trace(Counts(), torch.ones(2)), torch.ones(2)
    graphwright.analysis.costs(gm, x)
    graphwright.profile(gm, x, repeats=1)
    assert gm.calls == 0
    assert torch.equal(gm.total, torch.zeros(2))
    assert torch.equal(x, torch.ones(2))

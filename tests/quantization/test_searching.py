"""Which layers quantization harms, and rules under which the metric holds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphwright.errors import QuantizationError
from graphwright.quantization import calibrate, convert, prepare, search, searching, sensitivity, static_int8


def _model() -> nn.Module:
    """A model whose middle layer reads a channel that dwarfs all others, which then counts for nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)).eval()
    with torch.no_grad():
        model[0].weight[3] *= 3000
        model[2].weight[:, 3] = 0
    return model


def _batches() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(32, 16) for _ in range(8)]


def test_the_layer_that_reads_an_outlier_is_the_most_harmful() -> None:
    found = sensitivity(_model(), static_int8("minmax", smooth=False), _batches())
    assert found[0].path == "2"
    assert found[0].value < found[1].value
    title, first, *_ = str(found).splitlines()
    assert title.split() == ["layer", "op", "metric"] and first.split()[:2] == ["2", "linear"]


def test_the_search_leaves_out_what_it_must() -> None:
    model, batches = _model(), _batches()
    config = static_int8("minmax", smooth=False)
    found = search(model, config, batches, target=0.9995)
    assert next(rule.key for rule in found.rules if rule.kind == "module name") == "2"
    converted = convert(calibrate(prepare(model, found, batches[0]), batches))
    with torch.no_grad():
        values = [torch.cosine_similarity(model(x).flatten(), converted(x).flatten(), 0) for x in batches]
    assert float(sum(values)) / len(values) >= 0.9995


def test_what_cannot_be_reached_is_said() -> None:
    with pytest.raises(QuantizationError, match="every layer in float"):
        search(_model(), static_int8(), _batches(), target=1.5)


class _Attending(nn.Module):
    """Two layers that read one value, one of which has an outlier that its weight hides; and a harmless one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.query, self.key, self.last = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        return self.last((self.query(x) + self.key(x)).relu())


def test_layers_that_read_one_value_are_lifted_together() -> None:
    torch.manual_seed(0)
    model = _Attending().eval()
    with torch.no_grad():
        model.first.weight[3] *= 3000
        for layer in (model.query, model.key):
            layer.weight[:, 3] = 0
    found = search(model, static_int8("minmax", smooth=False), _batches(), target=0.9995)
    assert [rule.key for rule in found.rules if rule.kind == "module name"][:2] == ["query", "key"]


def test_what_costs_least_time_is_lifted_first() -> None:
    """Two layers lose alike, and one of them reads a hundredth of what the other does."""
    trial = searching._Group(("small",), True, 0.1, 10, 10), searching._Group(("large",), True, 0.11, 1000, 1000)
    for order in (searching._Group.loss_for_ranges, searching._Group.loss_for_floats):
        assert max(trial, key=order).paths == ("small",)

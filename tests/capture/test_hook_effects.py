"""What forward hooks of the user's write: to modules of the program, and to what is outside of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import TracerWarning, trace, verify

noted: dict[str, Any] = {}


class Keeps(nn.Module):
    """A module whose layer's hook keeps what the layer gave."""

    def __init__(self, kind: str, reads: bool) -> None:
        super().__init__()
        self.layer, self.seen, self.reads = nn.Linear(4, 4), dict[str, Any](), reads
        hooks = {
            "method": self.keep,
            "closure": lambda module, args, result: self.seen.update(out=result.detach()),
        }
        self.layer.register_forward_hook(hooks[kind])

    def keep(self, module: nn.Module, args: Any, result: torch.Tensor) -> None:
        self.seen["out"] = result.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y + self.seen["out"].mean() if self.reads else y  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["method", "closure"])
@pytest.mark.parametrize("reads", [True, False])
def test_what_a_hook_writes_to_the_program(kind: str, reads: bool) -> None:
    model = Keeps(kind, reads)
    gm = trace(model, (torch.ones(2, 4),))
    assert model.seen == {}
    x = torch.randn(3, 4)
    assert torch.equal(gm(x), model(x)) and torch.equal(gm.seen["out"], model.seen["out"])
    assert type(gm.seen["out"]) is torch.Tensor and gm.seen is not model.seen
    assert verify(model, gm, [(torch.randn(2, 4),)], grads=True).ok


def test_a_hook_of_a_layer_that_writes_elsewhere_runs_when_the_layer_does() -> None:
    found: list[torch.Tensor] = []
    noted.clear()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: found.append(result))
    model[1].register_forward_hook(lambda module, args, result: noted.update(out=result))
    gm = trace(model, (torch.ones(2, 4),))
    assert found == [] and noted == {}
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["0", "1"]
    out = gm(torch.ones(2, 4))
    assert len(found) == 1 and noted["out"] is out and type(out) is torch.Tensor


def test_a_hook_that_changes_the_result_keeps_the_layer_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    gm = trace(model, (torch.ones(2, 4),))
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["0"]
    assert torch.equal(gm(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_a_hook_of_a_module_that_is_entered_and_writes_elsewhere_is_told_of() -> None:
    found: list[torch.Tensor] = []
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    model[0].register_forward_hook(lambda module, args, result: found.append(result))
    with pytest.warns(TracerWarning, match="in a hook"):
        gm = trace(model, (torch.ones(2, 4),))
    assert found == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm(torch.ones(2, 4))
    assert found == []

"""What the caller of `trace` decides: control flow, static and dynamic inputs, leaf functions."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, GuardError, trace
from graphwright.capture import TracerWarning
from graphwright.capture.state import interception


def absolute(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


def test_follow_takes_the_way_of_the_example_and_warns() -> None:
    with pytest.warns(TracerWarning, match=r"test_options.py:\d+: return x if x.sum\(\) > 0 else -x") as warned:
        gm = trace(absolute, torch.ones(3), control_flow="follow")
    assert [(warning.filename, warning.lineno) for warning in warned] == [(__file__, 20)]
    assert gm(-torch.ones(3)).tolist() == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("program", [absolute, lambda x: x if x.size(0) > 2 else -x])
def test_error_refuses_every_question(program: Any) -> None:
    with pytest.raises(CaptureError, match="known only when it runs"):
        trace(program, torch.ones(3), control_flow="error")


def scaled(x: torch.Tensor, by: int = 2, negate: bool = False) -> torch.Tensor:
    if negate:
        x = -x
    return x.reshape(x.size(0), -1) * by


def test_static_inputs_are_the_examples() -> None:
    gm = trace(scaled, torch.ones(2, 3), static=["x", "by"])
    assert "reshape(2, -1) * 2" in gm.code
    with pytest.raises(GuardError, match="'by' was 2"):
        gm(torch.ones(2, 3), by=3)
    with pytest.raises(GuardError, match="this was 2; now it is 4"):
        gm(torch.ones(4, 3))


def test_dynamic_bools_stay_open() -> None:
    gm = trace(scaled, torch.ones(2, 3), dynamic=["negate"])
    for negate in (True, False):
        assert torch.equal(gm(torch.ones(4, 3), 5, negate), scaled(torch.ones(4, 3), 5, negate))
    with pytest.raises(GuardError, match="'negate' was False"):
        trace(scaled, torch.ones(2, 3))(torch.ones(2, 3), negate=True)


def count(x: torch.Tensor) -> int:
    return int((x > 0).sum())


class Uses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.inner = nn.ModuleList([Inner()])

    def head(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = absolute(self.head(x))
        y = self.inner[0].twice(y) + torch.erf(y)
        return y * count(x) * math.prod(x.shape)


class Inner(nn.Module):
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


def test_leaf_functions_stay_one_node() -> None:
    model = Uses()
    gm = trace(model, torch.randn(2, 3), leaf_functions=[absolute, count, Uses.head, Inner.twice])
    targets = [node.target for node in gm.graph.nodes]
    assert absolute in targets and count in targets and "twice" in targets and "linear" not in targets
    for x in (torch.randn(5, 3), -torch.ones(1, 3), torch.ones(4, 3)):
        torch.testing.assert_close(gm(x), model(x))
    assert sys.getprofile() is None


def test_what_torch_does_is_not_watched_for_leaf_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = [0]
    tell = interception._Watch.__call__

    def count_events(self: Any, *event: Any) -> None:
        heard[0] += 1
        tell(self, *event)

    def events_of(length: int) -> int:
        heard[0] = 0
        chain = functools.partial(functools.reduce, lambda y, _: y.relu(), range(length))
        trace(lambda x: chain(x), torch.ones(2), leaf_functions=[count])
        return heard[0]

    monkeypatch.setattr(interception._Watch, "__call__", count_events)
    assert 0 < events_of(30) - events_of(10) <= 20 * 20  # of the recorder and torch there are some 500 for each


class Scales:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor, shift: int = 0) -> torch.Tensor:
        return x * self.by + shift


TWICE, THRICE = Scales(2), Scales(3)
SHIFTED = functools.partial(TWICE, shift=1)
MAGNITUDE = functools.partial(absolute)


def calls_objects(x: torch.Tensor) -> torch.Tensor:
    return TWICE(x) + THRICE(x) + SHIFTED(x) + MAGNITUDE(x)


@pytest.mark.parametrize(
    ("leaves", "kept"),
    [
        ([TWICE], [TWICE, TWICE]),
        ([SHIFTED], [SHIFTED]),
        ([Scales.__call__], [TWICE, THRICE, TWICE]),
        ([absolute], [absolute]),
        ([MAGNITUDE], [MAGNITUDE]),
    ],
)
def test_leaf_functions_that_are_called_as_objects_or_in_partial_functions(leaves: list[Any], kept: list[Any]) -> None:
    x = torch.tensor([1.0, -2.0])
    gm = trace(calls_objects, (x,), leaf_functions=leaves)
    assert [
        node.target for node in gm.graph.nodes if node.target in (TWICE, THRICE, SHIFTED, absolute, MAGNITUDE)
    ] == kept
    for inputs in (x, -x, torch.ones(3)):
        assert torch.equal(gm(inputs), calls_objects(inputs))


def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if not torch.compiler.is_exporting() and bool(mask.all()):
        return x
    return x * mask


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="torch asks no such question")
def test_a_target_of_export_leaves_out_what_only_eager_needs() -> None:
    x, mask = torch.randn(3), torch.tensor([1.0, 0.0, 1.0])
    assert len(trace(masked, (x, mask)).report.regions) == 1
    gm = trace(masked, (x, mask), target="export")
    assert not gm.report.regions and gm.report.facts.attempt == "captured as for export"
    assert torch.equal(gm(x, mask), masked(x, mask)) and torch.equal(gm(x, mask > -1), x)
    with pytest.raises(ValueError, match="target is 'eager' or 'export', not 'onnx'"):
        trace(masked, (x, mask), target="onnx")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="control_flow is 'stage', 'follow' or 'error', not 'stags'"):
        trace(masked, (x, mask), control_flow="stags")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_paths is at least 1, not 0"):
        trace(masked, (x, mask), max_paths=0)

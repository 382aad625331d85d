"""What runs of a program leave behind is put back: whoever runs it to find something out changes nothing."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.torch_releases import HAS_ONNX
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule, analysis, passes, trace
from graphwright.quantization import static_int8

X = torch.ones(3, 4)
_ONNX = pytest.mark.skipif(not HAS_ONNX, reason="graphwright.onnx says at its import that it needs another torch")
_last: Any = None


class Keeps(nn.Module):
    """Keeps something of each call everywhere, of which there are not many: places of an embedding run out."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other, self.places, self.place = nn.Linear(4, 4), nn.Linear(4, 4), nn.Embedding(20, 4), 0
        self.last: collections.deque[float] = collections.deque(maxlen=3)
        self.seen = collections.Counter[str]()
        self.register_buffer("mean", torch.zeros(4))
        self.mean: Tensor
        self.optional: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        global _last
        type(self).calls += 1
        self.last.append(3.0)
        self.seen["calls"] += 1
        places = torch.arange(self.place, self.place + x.size(0))
        self.place += x.size(0)
        with torch.no_grad():
            self.mean += x.mean(0)
            self.other.weight.mul_(0.9)
        self.optional = x if self.optional is None else self.optional + x
        before = x if _last is None else _last
        _last = x.detach() * 2
        x = self.other(torch.relu(self.linear(x + before)))
        scale = sum(self.last) / self.seen["calls"] + type(self).calls + random.random()
        return x + self.places(places) + self.mean + self.optional + scale


def _world(module: Any) -> dict[str, Any]:
    """All that a call of the program changes."""
    return {
        "state": {name: value.clone() for name, value in module.state_dict().items()},
        "calls": Keeps.calls,
        "outside": None if _last is None else _last.clone(),
        "held": (module.place, [*module.last], dict(module.seen)),
        "optional": None if module.optional is None else module.optional.clone(),
        "random": (random.getstate(), torch.get_rng_state()),
    }


@pytest.fixture(autouse=True)
def forget() -> Any:
    global _last
    yield
    Keeps.calls, _last = 0, None


RUNS: dict[str, Callable[[GraphModule], Any]] = {
    "costs": lambda gm: analysis.costs(gm, X),
    "memory": lambda gm: analysis.memory(gm, X, backward=True),
    "peak memory": lambda gm: analysis.peak_memory(gm, X),
    "profile": lambda gm: analysis.profile(gm, X),
    "summary": lambda gm: analysis.summary(gm, X),
    "seconds": lambda gm: analysis.seconds_of_nodes(gm, (X,), {}),
    "shapes": lambda gm: [analysis.Shapes(gm, X)[node] for node in gm.graph.nodes],
    "compare": lambda gm: analysis.compare(gm, gm, X),
    "verify": lambda gm: analysis.verify(gm, gm, [(X,)]),
    "channels": lambda gm: analysis.channel_groups(gm, X),
    "checkpoints": lambda gm: passes.InsertCheckpoints(1_000_000, X).run(gm),
    "optimized": lambda gm: graphwright.optimize_for_inference(gm, X, engines=("torch",)),
    "quantized": lambda gm: graphwright.quantize(gm, static_int8(), calibration=[X], engine="torch"),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
@pytest.mark.parametrize("has_run", [False, True])
def test_a_run_leaves_the_program_and_what_is_outside_of_it_alone(
    run: Callable[[GraphModule], Any], has_run: bool
) -> None:
    gm: Any = trace(Keeps().eval(), (X,))
    if has_run:
        gm(X)
    before = _world(gm)
    run(gm)
    torch.testing.assert_close(_world(gm), before, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of sizes that cannot stay open
@pytest.mark.parametrize("door", ["torch.export", pytest.param("ONNX", marks=_ONNX)])
def test_a_program_is_exported_without_a_trace(door: str) -> None:
    gm: Any = trace(Cached().eval(), (X,))
    if door == "ONNX":
        graphwright.onnx.export(gm, (X,))
    else:
        graphwright.to_export(gm, (X,))
    assert not gm.cache
    assert torch.equal(gm(X), Cached.forward(gm, X))


def test_a_page_is_made_without_a_trace(tmp_path: Path) -> None:
    gm: Any = trace(Keeps().eval(), (X,))
    before = _world(gm)
    graphwright.view(gm, tmp_path / "page.html", args=(X,))
    torch.testing.assert_close(_world(gm), before, rtol=0, atol=0)


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) not in self.cache:
            self.cache[x.size(0)] = torch.tril(torch.ones(x.size(0), x.size(0)))
        return self.cache[x.size(0)] @ x


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.sums, self.bytes = nn.Linear(4, 4), numpy.zeros(2), bytearray(2)

    def forward(self, x: Tensor) -> Tensor:
        self.sums[0] += 1
        self.bytes[1] += 1
        return self.linear(x) * self.sums[0]


def test_a_program_that_is_not_captured_is_compared_without_a_trace() -> None:
    model, other = Counts(), Counts()
    assert "linear" in {layer.name for layer in analysis.compare(model, other, X).layers}
    assert model.sums.tolist() == [0, 0] and model.bytes == bytes(2)


class Leaves(nn.Module):
    """Does one thing, and has what it may leave it in."""

    def __init__(self, does: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.does = does
        self.register_buffer("count", torch.zeros(3, 4))
        self.seen: list[Tensor] = []
        self.generator = torch.Generator()

    def forward(self, x: Tensor) -> Any:
        return self.does(self, x)


LEFT: dict[str, Callable[[Any, Tensor], Any]] = {
    "a view of a buffer": lambda self, x: self.count.view(-1).add_(x.view(-1)),
    "an item of a buffer": lambda self, x: self.count.__setitem__(0, x[0]),
    "a list": lambda self, x: self.seen.append(x),
    "an attribute": lambda self, x: setattr(self, "last", x),
    "a generator": lambda self, x: x + torch.rand(4, generator=self.generator),
    "the screen": lambda self, x: print("called"),
    "statistics": lambda self, x: nn.functional.batch_norm(x, self.count[0], self.count[1], training=True),
    "a table": lambda self, x: nn.functional.embedding(x[0].long(), self.count, max_norm=0.5),
}
NOT_LEFT: dict[str, Callable[[Any, Tensor], Any]] = {
    "a value": lambda self, x: nn.functional.relu(x + self.count, inplace=True),
    "a copy of a buffer": lambda self, x: self.count.clone().view(-1).add_(1),
    "randomness": lambda self, x: nn.functional.dropout(x, 0.5) + torch.rand(4),
    "a check": lambda self, x: torch._assert(x.sum() > 0, "none") or x * 2,
    "one side of a branch": lambda self, x: (x * 2).add_(1) if x.sum() > 0 else x,
}


@pytest.mark.parametrize("name", [*LEFT, *NOT_LEFT])
def test_what_is_left_behind_is_known(name: str) -> None:
    model = Leaves({**LEFT, **NOT_LEFT}[name])
    assert analysis.writes_state(trace(model, X)) == (name in LEFT)

"""`optimize_for_inference` of programs that take objects, and of those that were captured for several examples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule, optimize_for_inference, record
from graphwright.engines import packed_for
from graphwright.errors import PassError


class Cache:
    """What a decoder remembers."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []
        self.total: Tensor | None = None
        self.is_updated: dict[int, bool] = {}


class Decoder(nn.Module):
    """A decoder that remembers what it was given, or is given what to begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(16, 16, bias=False), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor, cache: Cache | None = None, scale: float = 1.0) -> tuple[Tensor, Cache | None]:
        query, key = self.query(x), self.key(x).relu()
        if cache is not None:
            if len(cache.rows):
                cache.rows[0] = key = torch.cat([cache.rows[0], key], -2)
            else:
                cache.rows.append(key)
            cache.is_updated[0] = True
        return self.out((query @ key.transpose(-1, -2)).softmax(-1) @ key) * scale, cache

    def generate(self, x: Tensor, steps: int = 3) -> Tensor:
        cache = Cache()
        for _ in range(steps):
            x, _ = self(x[..., -1:, :] if cache.rows else x, cache)
        return x


def run(model: Any) -> Any:
    """What the examples are made by."""
    return model.generate(torch.ones(2, 5, 16))


def runs_on_kernels(gm: GraphModule, *args: Any) -> bool:
    """Whether a call runs on other kernels."""
    values = [*args, *(None, 1.0)[len(args) - 1 :]]
    return packed_for(gm, *values) is not None


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    return Decoder().eval().requires_grad_(False)


@pytest.fixture
def fast(model: Decoder, prefer: Callable[..., None]) -> GraphModule:
    prefer("oneDNN", "torch transposed", "as one", "torch")
    return optimize_for_inference(record(model, run), examples=run, engines=("torch",))


def test_calls_go_to_several_captures_of_kernels(model: Decoder, fast: GraphModule) -> None:
    report: Any = fast.report
    assert report.program.runs_on == "torch" and "several captures" in str(report.program)
    assert any(part.runs_on == "oneDNN" for part in report.parts)
    for shape in [(2, 5, 16), (1, 3, 16)]:
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(fast.generate(x, 5), model.generate(x, 5))
    fresh = Cache()
    with torch.no_grad():
        assert runs_on_kernels(fast, torch.randn(3, 4, 16), fresh) and fresh.rows == []


def test_a_model_is_captured_for_the_calls_of_a_run(model: Decoder, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch transposed", "torch")
    fast = optimize_for_inference(model, examples=run, engines=("torch",))
    assert fast.graphs.names[:2] == ["forward_1", "forward_2"]
    x = torch.randn(3, 2, 16)
    with torch.no_grad():
        torch.testing.assert_close(fast.generate(x), model.generate(x))


class Coder(Decoder):
    """A decoder whose encoder `generate` calls by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 16), nn.ReLU())

    def generate(self, x: Tensor, steps: int = 3) -> Tensor:
        return super().generate(self.encoder(x), steps)


def test_what_a_run_calls_by_itself_is_optimized(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch transposed", "torch")
    model = Coder().eval().requires_grad_(False)
    fast = optimize_for_inference(model, examples=run, engines=("torch",))
    assert type(model.encoder) is nn.Sequential
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        assert packed_for(fast.encoder, x) is not None
        torch.testing.assert_close(fast.generate(x), model.generate(x))
        model.encoder = fast.encoder  # which may run on integers, and stays as it is
        again = optimize_for_inference(model, examples=run, engines=("torch",))
        assert packed_for(again.encoder, x) is not None
        torch.testing.assert_close(again.generate(x), fast.generate(x))


def test_one_capture_that_takes_an_object(model: Decoder, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch transposed", "torch")
    cache = Cache()
    cache.rows.append(torch.ones(2, 3, 16))
    fast = optimize_for_inference(model, (torch.ones(2, 1, 16), copy.deepcopy(cache)), engines=("torch",))
    assert "an input is a Cache" in str(fast.report)
    one, other = copy.deepcopy(cache), copy.deepcopy(cache)
    x = torch.randn(2, 4, 16)
    with torch.no_grad():
        assert runs_on_kernels(fast, x, one)
        torch.testing.assert_close(fast(x, one)[0], model(x, other)[0])
    torch.testing.assert_close(one.rows, other.rows)
    assert len(cache.rows[0][0]) == 3


def test_what_is_no_such_call_runs_the_program(model: Decoder, fast: GraphModule) -> None:
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        assert runs_on_kernels(fast, x, Cache())
        assert not runs_on_kernels(fast, x.double(), Cache())
        with torch.autocast("cpu"):
            assert not runs_on_kernels(fast, x, Cache())
    assert not runs_on_kernels(fast, x, Cache())  # gradients may be recorded for what an object holds
    assert runs_on_kernels(fast, x) and not runs_on_kernels(fast, x.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="dtype"):
        fast(x.double(), Cache())


def test_weights_that_change_are_packed_anew(model: Decoder, fast: GraphModule) -> None:
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        fast.generate(x)
        model.key.weight.mul_(-2)
        torch.testing.assert_close(fast.generate(x), model.generate(x))


class Writes(nn.Module):
    """Writes to tensors that an object holds, before a layer is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor, held: Cache) -> Tensor:
        held.rows[0].mul_(2)
        return self.layer(x)  # type: ignore[no-any-return]


def test_an_object_that_holds_the_weight_it_writes_to(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch transposed", "torch")
    model = Writes().eval().requires_grad_(False)
    held, x = Cache(), torch.randn(4, 16)
    held.rows.append(torch.ones(16, 16))
    fast = optimize_for_inference(model, (x, held), engines=("torch",))
    with torch.no_grad():
        assert packed_for(fast, x, held) is not None
        held.rows[0] = model.layer.weight.view(-1)
        assert packed_for(fast, x, held) is None
        before = model.layer.weight.clone()
        torch.testing.assert_close(fast(x, held), nn.functional.linear(x, 2 * before, model.layer.bias))


def test_examples_of_all_forms(model: Decoder) -> None:
    x = torch.ones(2, 5, 16)
    for example in (x, (x,), {"x": x}, ((x,), {"scale": 1.0})):
        fast = optimize_for_inference(model, x, examples=[example], engines=("torch",))
        torch.testing.assert_close(fast(x)[0], model(x)[0])
    with pytest.raises(PassError, match="an example is a str"):
        optimize_for_inference(model, x, examples=["x"], engines=("torch",))


def test_recorded_calls_are_one_of_each_form(model: Decoder) -> None:
    first, second = graphwright.recorded_calls(model, run)
    assert first[0][0].shape == (2, 5, 16) and second[0][0].shape == (2, 1, 16)
    assert first[0][1].rows == [] and len(second[0][1].rows) == 1  # as the caller passed them

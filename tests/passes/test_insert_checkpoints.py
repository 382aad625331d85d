"""Checkpoints: the budget is kept when it is measured, gradients and random numbers stay, the rest is left alone."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import GraphError, GraphModule
from graphwright.analysis import Effects, Storages, peak_memory, verify
from graphwright.errors import PassError
from graphwright.ops import TRANSFORMS, TransformKind, transformed
from graphwright.passes import InsertCheckpoints

CHECKPOINT = "torch.utils.checkpoint.checkpoint"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.narrow(torch.relu_(self.wide(self.norm(x)))))


class Tower(nn.Module):
    def __init__(self, depth: int = 6, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x), x.mean()


def checkpoints(gm: GraphModule) -> list[Any]:
    return [node for node in gm.graph.nodes if node.target is transformed and node.args[0] == CHECKPOINT]


def train(model: nn.Module, *args: Any) -> list[Any]:
    """Values, gradients and the next random number of a step of training."""
    model = copy.deepcopy(model)
    torch.manual_seed(3)
    args = tuple([arg.clone().requires_grad_(arg.requires_grad) if isinstance(arg, Tensor) else arg for arg in args])
    result = model(*args)
    values = [value for value in (result if isinstance(result, tuple) else (result,)) if isinstance(value, Tensor)]
    sum(value.sum() for value in values).backward()  # type: ignore[union-attr]
    grads = [parameter.grad for parameter in model.parameters()]
    return [*values, *grads, torch.rand(2), *model.buffers()]


def check_alike(one: nn.Module, other: nn.Module, *args: Any) -> None:
    for a, b in zip(train(one, *args), train(other, *args), strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


def measured(gm: nn.Module, *args: Any) -> int:
    gm = copy.deepcopy(gm)
    with Storages([*gm.parameters(), *gm.buffers(), *args]) as storages:
        result = gm(*args)
        values = result if isinstance(result, tuple) else (result,)
        sum(value.sum() for value in values).backward()
    return storages.peak


@pytest.mark.sampled(3)
@pytest.mark.parametrize("share", [0.8, 0.5, 0.42])
@pytest.mark.slow
def test_the_measured_peak_is_within_the_budget(share: float) -> None:
    x = torch.randn(256, 16)
    model = Tower().train()
    gm, plain = graphwright.trace(model, (x,)), graphwright.trace(model, (x,))
    before = measured(gm, x)
    names = {name for name, _ in gm.named_parameters()}
    changes = InsertCheckpoints(budget=int(before * share), args=(x,)).run(gm)
    gm.graph.lint()
    assert changes == len(checkpoints(gm)) > 0
    assert measured(gm, x) <= before * share * 1.02
    check_alike(plain, gm, x)
    check_alike(model, gm, x)
    assert verify(model, gm, [x, torch.randn(3, 16)], modes=("train", "eval"), grads=True).ok
    assert {name for name, _ in gm.named_parameters()} == names
    assert InsertCheckpoints(budget=int(before * share), args=(x,)).run(gm) == 0


@pytest.mark.slow
def test_a_larger_budget_runs_less_again() -> None:
    x = torch.randn(256, 16)
    again = []
    for share in (0.9, 0.6, 0.42):
        gm = graphwright.trace(Tower().train(), (x,))
        InsertCheckpoints(budget=int(peak_memory(gm, x, backward=True) * share), args=x).run(gm)
        again.append(sum(len(node.args[1].nodes) for node in checkpoints(gm)))
    assert again == sorted(again)
    assert again[0] < again[-1]


@pytest.mark.slow
def test_a_budget_that_is_kept_anyway_or_never() -> None:
    x = torch.randn(64, 16)
    gm = graphwright.trace(Tower().train(), (x,))
    text, peak = str(gm.graph), peak_memory(gm, x, backward=True)
    assert InsertCheckpoints(budget=peak, args=(x,)).run(gm) == 0
    with pytest.raises(PassError, match="training cannot stay within 1,000 bytes") as caught:
        InsertCheckpoints(budget=1000, args=(x,)).run(gm)
    assert str(gm.graph) == text, "nothing half done"
    gm(x)
    smallest = int(str(caught.value.fix).split()[6])
    assert 1000 < smallest < peak
    assert InsertCheckpoints(budget=smallest, args=(x,)).run(gm) > 0
    assert peak_memory(gm, x, backward=True) <= smallest
    with pytest.raises(PassError, match="a budget of 0 bytes"):
        InsertCheckpoints(budget=0, args=(x,)).run(gm)
    with pytest.raises(GraphError, match="Expected positional argument for parameter x"):
        InsertCheckpoints(budget=1000).run(gm)


# ---- what stays outside


def long(x: Tensor) -> Tensor:
    x = x.sigmoid().exp().tanh().sigmoid().exp().tanh()
    return x.sigmoid().exp().tanh().sigmoid().exp().tanh()


class Various(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y = long(torch.tanh(self.first(x)))
        self.count += 1
        z = self.norm(long(torch.tanh(self.second(y))))
        with torch.no_grad():
            scale = z.exp().tanh().mean()
        late = torch.cos(z + scale)
        scale.add_(1)
        return long(torch.tanh(self.third(late))) + scale


def inner_targets(gm: GraphModule) -> set[str]:
    return {str(getattr(n.target, "__name__", n.target)) for c in checkpoints(gm) for n in c.args[1].nodes}


def smallest_budget(gm: GraphModule, x: Tensor) -> int:
    with pytest.raises(PassError) as caught:
        InsertCheckpoints(budget=1, args=(x,)).run(gm)
    return int(str(caught.value.fix).split()[6])


@pytest.mark.slow
def test_writes_norms_and_blocks_stay_outside() -> None:
    x = torch.randn(64, 16)
    model = Various().train()
    gm = graphwright.trace(model, (x,))
    assert InsertCheckpoints(budget=smallest_budget(gm, x), args=(x,)).run(gm) > 0
    inside = inner_targets(gm)
    assert inside >= {"sigmoid"}
    assert not inside & {"norm", "iadd", "add_", "enter_context", "mean", "cos"}
    check_alike(model, gm, x)


def test_loops_and_branches_go_inside_as_they_are() -> None:
    def program(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x @ weight).exp().sin() if x.sum() > 0 else torch.tanh(x @ weight).cos()
        y = torch.dropout(x.sigmoid().tanh(), 0.5, True)
        return (y.exp().sin() + y).cos()

    x, weight = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    gm = graphwright.trace(program, (x, weight))
    plain = copy.deepcopy(gm)
    assert (
        InsertCheckpoints(budget=int(peak_memory(gm, (x, weight), backward=True) * 0.9), args=(x, weight)).run(gm) > 0
    )
    gm.graph.lint()
    check_alike(plain, gm, x, weight)
    assert "checkpoint.checkpoint(" in gm.code


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("swin_t", 0.75), ("convnext_tiny", 0.92)])
def test_models_of_torchvision(name: str, share: float) -> None:
    declare_torchvision()
    models = pytest.importorskip("torchvision").models
    model = getattr(models, name)(weights=None).train()
    x = torch.randn(2, 3, 224, 224)
    gm = graphwright.trace(model, (x,))
    before = measured(gm, x)
    assert InsertCheckpoints(budget=int(before * share), args=(x,)).run(gm) > 0
    assert measured(gm, x) <= before * share * 1.02
    check_alike(model, gm, x)


class First(nn.Module):
    """A model of which only the first result is given back, where there is anything to read."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Any:
        if ids.sum() > 0:
            return self.model(ids)[0]
        return torch.zeros(*ids.shape, 32)


@pytest.mark.slow
def test_a_transformer_most_of_which_stands_in_a_branch() -> None:
    declare_torchvision()
    library = pytest.importorskip("transformers")
    config = library.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, 50, (4, 40))
    model = First(library.LlamaModel(config)).train()
    gm = graphwright.trace(model, (ids,))
    before = measured(gm, ids)
    budget = int(peak_memory(gm, ids, backward=True) * 0.7)
    changes = InsertCheckpoints(budget, ids).run(gm)
    gm.graph.lint()
    assert changes > 0
    assert not checkpoints(gm), "they are in the body"
    assert measured(gm, ids) <= before * 0.72
    check_alike(model, gm, ids)


# ---- broken twins


@pytest.mark.slow
def test_a_checkpoint_that_draws_others_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(function: Any, *args: Any, **options: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(function, *args, **{**options, "preserve_rng_state": False})

    x = torch.randn(256, 16)
    gm = graphwright.trace(Tower().train(), (x,))
    plain = copy.deepcopy(gm)
    InsertCheckpoints(budget=int(peak_memory(gm, x, backward=True) * 0.5), args=(x,)).run(gm)
    monkeypatch.setitem(TRANSFORMS, CHECKPOINT, TransformKind(careless, "call", deferred=True))
    node = checkpoints(gm)[0]
    node.args = (*node.args[:4], {**node.args[4], "preserve_rng_state": False})
    with pytest.raises(AssertionError):
        check_alike(plain, gm, x)


def test_a_norm_that_runs_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = sys.modules["graphwright.passes.memory.checkpoint_segments"]
    monkeypatch.setattr(segments, "_keeps_statistics", lambda module: False)
    monkeypatch.setattr(Effects, "writes", lambda self, node: frozenset())
    x = torch.randn(64, 16)
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh())])
    gm = graphwright.trace(model.train(), (x,))
    assert InsertCheckpoints(budget=int(peak_memory(gm, x, backward=True) * 0.8), args=(x,)).run(gm) > 0
    with pytest.raises(AssertionError):
        check_alike(model, gm, x)


def test_checks_that_raise_stay_outside() -> None:
    class Block(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))

    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                *[nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8)) for _ in range(3)]
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if (x < 0).any():
                raise ValueError("below zero")
            return self.layers(x)  # type: ignore[no-any-return]

    x = torch.rand(64, 8)
    gm = graphwright.trace(Checked(), (x,))
    before = peak_memory(gm, (x,), backward=True)
    assert InsertCheckpoints(before * 8 // 10, (x,)).run(gm) > 0
    assert peak_memory(gm, (x,), backward=True) <= before * 8 // 10
    with pytest.raises(ValueError, match="below zero"):
        gm(-x)

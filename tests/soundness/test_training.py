"""Training with a captured module agrees with training the original: parameters, buffers, losses, optimizer state."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.distributed.processes import run_in_processes
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from graphwright import trace

STEPS = 20


class Model(nn.Module):
    """What training changes: parameters, an average in a buffer, a schedule on a step, statistics, dropped values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.25)
        self.register_buffer("average", torch.zeros(8))
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(x))
        if self.training:
            with torch.no_grad():
                self.average.mul_(0.9).add_(hidden.mean(0), alpha=0.1)
            self.step += 1
        scale = min(1.0, (self.step + 1) / 10)
        return self.second(self.drop(torch.relu(hidden - self.average * scale)))


class Trained(nn.Module):
    """Asks which of its parts are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first.weight.requires_grad:
            hidden = self.first(x)
        else:
            with torch.no_grad():
                hidden = self.first(x).clamp(min=0)
        decay = sum((each**2).sum() for each in self.parameters() if each.requires_grad)
        return self.second(torch.relu(hidden)) + 0.01 * decay


class Checkpointed(nn.Module):
    """Computes a part once more in its backward, where gradients are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)
        self.drop = nn.Dropout(0.25)

    def _hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.relu(self.first(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and torch.is_grad_enabled():
            hidden = checkpoint(self._hidden, x, use_reentrant=False)
        else:
            hidden = self._hidden(x)
        return self.second(hidden)


class Warmed(nn.Module):
    """Reads a scale that the training loop sets."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


Step = Callable[[int, Any, torch.optim.Optimizer, torch.Tensor], Any]


def seeded(kind: Callable[[], nn.Module]) -> Any:
    torch.manual_seed(0)
    return kind()


def data(step: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(step))


def plain(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    loss = ((model(x) - x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def frozen_for_a_while(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    model.first.requires_grad_(step % 10 < 5)
    model.second.bias.requires_grad_(step % 3 > 0)
    return plain(step, model, optimizer, x)


def with_evaluation(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    model.train(step % 4 > 0)
    if model.training:
        return plain(step, model, optimizer, x)
    with torch.no_grad():
        return model(x).sum()


def in_inference_mode(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    if step % 4:
        return plain(step, model.train(), optimizer, x)
    with torch.inference_mode():
        return model.eval()(x).sum().clone()


def accumulated(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    loss = ((model(x) - x) ** 2).mean()
    loss.backward()
    if step % 3 == 2:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    return loss.detach()


def scheduled(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    model.scale = min(1.0, (step + 1) / 10)
    return plain(step, model, optimizer, x)


class Scaled:
    """A step under autocast, with scaled losses."""

    def __init__(self) -> None:
        self.scalers: dict[int, torch.amp.GradScaler] = {}

    def __call__(self, step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        scaler = self.scalers.setdefault(id(model), torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=5))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ((model(x) - x) ** 2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), scaler.get_scale()


def resumed(step: int, model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    if step == 10:
        states = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        with torch.no_grad():
            for each in model.parameters():
                each.zero_()
        model.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
    return plain(step, model, optimizer, x)


ADAM = functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.1)
MOMENTUM = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
STORIES = [
    pytest.param(Model, plain, ADAM, id="an average, a schedule, statistics"),
    pytest.param(Model, plain, MOMENTUM, id="momentum"),
    pytest.param(Model, with_evaluation, ADAM, id="training and evaluation"),
    pytest.param(Model, in_inference_mode, ADAM, id="evaluation in inference mode"),
    pytest.param(Model, accumulated, ADAM, id="accumulated and clipped gradients"),
    pytest.param(Model, Scaled(), ADAM, id="scaled losses under autocast"),
    pytest.param(Model, resumed, ADAM, id="resumed"),
    pytest.param(Warmed, scheduled, ADAM, id="a schedule of the training loop"),
    pytest.param(Trained, frozen_for_a_while, ADAM, id="frozen for a while"),
    pytest.param(Trained, with_evaluation, ADAM, id="asking, in evaluation"),
    pytest.param(Checkpointed, plain, ADAM, id="checkpointed"),
    pytest.param(Checkpointed, with_evaluation, ADAM, id="checkpointed, in evaluation"),
]


def history(model: Any, optimizer: torch.optim.Optimizer, step: Step) -> list[Any]:
    """What each step gives, then all that training has left."""
    found = []
    for number in range(STEPS):
        torch.manual_seed(number)
        found.append(step(number, model, optimizer, data(number)))
    gradients = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    return [*found, dict(model.state_dict()), optimizer.state_dict(), gradients, getattr(model, "step", None)]


def assert_same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("ignore:.*GradScaler")
@pytest.mark.parametrize("is_training", [pytest.param(True, id="captured in training"), False])
@pytest.mark.parametrize(("kind", "step", "make"), STORIES)
def test_training_agrees(kind: Any, step: Step, make: Any, is_training: bool) -> None:
    eager = seeded(kind)
    captured = trace(copy.deepcopy(eager).train(is_training), (data(0),)).train()
    expected = history(eager, make(eager.parameters()), step)
    assert_same(history(captured, make(captured.parameters()), step), expected)


# ---- what wraps a captured module


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def captured_pair(kind: Callable[[], nn.Module] = Trained) -> tuple[Any, Any]:
    eager = seeded(kind)
    return eager, trace(copy.deepcopy(eager), (data(0),))


def test_functional_call_agrees() -> None:
    eager, captured = captured_pair()
    others = {name: torch.randn_like(value) for name, value in eager.named_parameters()}
    for values in (others, {name: value.requires_grad_() for name, value in others.items()}):
        found = [torch.func.functional_call(each, values, (data(1),)) for each in (eager, captured)]
        assert_same(found[1], found[0])
    gradients = [
        torch.func.grad(lambda values, model=model: torch.func.functional_call(model, values, (data(1),)).sum())(others)
        for model in (eager, captured)
    ]
    assert_same(gradients[1], gradients[0])


def test_vmap_over_parameters_agrees() -> None:
    eager, captured = captured_pair(linear)
    stacked = {name: torch.stack([value.detach(), value.detach() * 2]) for name, value in eager.named_parameters()}
    x = data(1)
    found = [
        torch.vmap(lambda values, model=model: torch.func.functional_call(model, values, (x,)))(stacked)
        for model in (eager, captured)
    ]
    assert_same(found[1], found[0])


class Halved(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight / 2


def test_parametrizing_agrees() -> None:
    eager, captured = captured_pair(Checkpointed)
    for model in (eager, captured):
        parametrize.register_parametrization(model.first, "weight", Halved())
        parametrize.register_parametrization(model.second, "weight", Halved())
    expected = history(eager, MOMENTUM(eager.parameters()), plain)
    assert_same(history(captured, MOMENTUM(captured.parameters()), plain), expected)


@pytest.mark.slow
def test_compiled_and_exported_training_agrees() -> None:
    eager, captured = captured_pair()
    compiled = torch.compile(captured, backend="eager")
    assert_same(
        history(compiled, MOMENTUM(captured.parameters()), plain)[:STEPS],
        history(eager, MOMENTUM(eager.parameters()), plain)[:STEPS],
    )
    exported = torch.export.export(captured, (data(1),)).module()
    assert_same(exported(data(1)), captured(data(1)))


# ---- several processes


def in_process(rank: int, wrap: str) -> None:
    found = []
    for model in captured_pair():
        wrapped = wrapped_in[wrap](model)
        optimizer = MOMENTUM(wrapped.parameters())
        losses = [plain(step, wrapped, optimizer, data(2 * step + rank)) for step in range(5)]
        states = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in wrapped.parameters()]
        found.append(torch.cat([torch.stack(losses), *[each.detach().flatten() for each in states]]))
    assert torch.equal(*found)
    assert found[0].isfinite().all()


def distributed(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return model


wrapped_in = {"DistributedDataParallel": distributed, "fully_shard": sharded}


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("wrap", [*wrapped_in])
def test_training_on_two_processes_agrees(wrap: str) -> None:
    run_in_processes(in_process, 2, wrap)

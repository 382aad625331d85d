"""Inputs that are NumPy's arrays and numbers, generators of random numbers, and layers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GuardError, trace

X = torch.arange(6.0).reshape(2, 3)


def agrees(program: Callable[..., Any], example: Any, *others: Any) -> Any:
    gm = trace(program, (X, example[0]))
    for x in (X, -X):
        for make in (*example, *others):
            assert torch.equal(gm(x, make), program(x, make))
    return gm


NUMBERS: list[Callable[[Tensor, Any], Any]] = [
    lambda x, n: x * n,
    lambda x, n: n * x + (n * 2 + 1),
    lambda x, n: torch.add(x, x, alpha=n),
    lambda x, n: x if n > 2 else -x,
    lambda x, n: x * float(n) + n.item(),
    lambda x, n: sum(x * i for i in range(int(n))) + x,
    lambda x, n: x.clamp(max=n),
    lambda x, n: torch.full((2, 3), n),
    lambda x, n: x * 2 if isinstance(n, np.floating) else x,
]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("program", NUMBERS)
def test_a_number_is_another_one_in_each_call(program: Callable[..., Any], kind: Any) -> None:
    agrees(program, [kind(2)], kind(3), kind(1))


def place(x: Tensor, n: Any) -> Any:
    return x[n]


def write(x: Tensor, n: Any) -> Any:
    x = x.clone()
    x[n] = 1
    return x


@pytest.mark.parametrize("program", [place, write])
@pytest.mark.parametrize(
    "examples", [[np.int64(1), np.int64(0)], [np.array([1, 0]), np.array([1, 1, 1])], [np.array([True, False])]]
)
def test_tensors_are_indexed(program: Callable[..., Any], examples: list[Any]) -> None:
    agrees(program, examples)


def test_what_needs_the_number_itself_takes_it_for_granted() -> None:
    def chosen(x: Tensor, n: Any) -> Any:
        return {1: x, 2: -x}[n]

    gm = trace(chosen, (X, np.int64(1)))
    assert torch.equal(gm(X, np.int64(1)), X)
    with pytest.raises(GuardError, match=r"argument 'n' was np.int64\(1\)"):
        gm(X, np.int64(2))


def test_a_question_of_an_array_number_is_guarded() -> None:
    def checked(x: Tensor) -> Tensor:
        if x.shape[0] % np.int64(4) != 0 and x.shape[0] > 2:
            x.view(0, 7)
        return x + 1

    gm = trace(checked, (torch.ones(4),))
    assert torch.equal(gm(torch.ones(8)), torch.full((8,), 2.0))
    with pytest.raises(GuardError, match="was False; now it is True"):
        gm(torch.ones(3))


@pytest.mark.parametrize("other", [2, np.float64(1), np.array([1])])
def test_another_kind_of_number_is_an_error_of_ours(other: Any) -> None:
    gm = trace(place, (X, np.int64(1)))
    with pytest.raises(GuardError, match=r"'n'|'array_n'"):
        gm(X, other)


# ---- generators


def draws(x: Tensor, r: Any) -> Any:
    y = x + r.gauss(0, 1)
    r.random()
    return y * r.random() + r.randint(0, 9)


def decides(x: Tensor, r: Any) -> Any:
    for i in range(3):
        x = x * r.uniform(0, i + 1) if r.random() < 0.5 else x - 1
    return x


def chooses(x: Tensor, r: Any) -> Any:
    return x[r.choice([0, 1])] + x[:, r.sample(range(3), 2)].sum()


def seeds(x: Tensor, r: Any) -> Any:
    r.seed(3)
    return x * r.random()


def normal(x: Tensor, r: Any) -> Any:
    return x + r.normal(size=3).sum() + x[:, torch.from_numpy(r.permutation(3))]


def states(generator: Any) -> str:
    return repr(generator.getstate() if isinstance(generator, random.Random) else generator.__getstate__())


@pytest.mark.parametrize(
    ("program", "make"),
    [
        *[(program, random.Random) for program in (draws, decides, chooses, seeds)],
        (normal, np.random.default_rng),
        (normal, np.random.RandomState),
    ],
)
def test_draws_are_from_the_generator_of_the_call(program: Callable[..., Any], make: Callable[[int], Any]) -> None:
    example = make(0)
    before = states(example)
    gm = trace(program, (X, example))
    assert states(example) == before
    for seed in range(4):
        ours, eager = make(seed), make(seed)
        for _ in range(2):
            assert torch.equal(gm(X, ours), program(X, eager))
    if make is random.Random:
        assert ours.getstate() == eager.getstate()


def test_a_shuffled_list_is_refused() -> None:
    def shuffles(x: Tensor, r: random.Random) -> Any:
        order = [0, 1, 2]
        r.shuffle(order)
        return x[:, order]

    with pytest.raises(graphwright.CaptureError, match="shuffles a list"):
        trace(shuffles, (X, random.Random(0)))


# ---- lists as long as data says


REPEATED: list[Callable[[Tensor, Tensor], Any]] = [
    lambda x, n: x + len([0] * int(n)),
    lambda x, n: x + sum([0.5] * n.item()),
    lambda x, n: x + torch.tensor([0.5] * int(n)).sum(),
    lambda x, n: torch.stack([x] * int(n)),
    lambda x, n: x if any([False] * int(n)) else -x,
]


@pytest.mark.parametrize("program", REPEATED)
def test_a_list_is_as_long_as_data_says(program: Callable[..., Any]) -> None:
    agrees(program, [torch.tensor(2)], torch.tensor(3), torch.tensor(1))


# ---- layers


def applied(x: Tensor, layer: nn.Module) -> Any:
    return layer(x) * 2


def looked_into(x: Tensor, layer: Any) -> Any:
    y = nn.functional.linear(x, layer.weight, layer.bias)
    return y if layer.training and isinstance(layer, nn.Linear) else layer(y) + layer.weight.sum()


@pytest.mark.parametrize("program", [applied, looked_into])
def test_a_layer_is_the_one_of_the_call(program: Callable[..., Any]) -> None:
    layers = [nn.Linear(3, 3) for _ in range(3)]
    layers[2].eval()
    agrees(program, layers)


def test_a_layer_keeps_its_state_and_has_its_gradients() -> None:
    example = nn.BatchNorm1d(3)
    gm = trace(applied, (X, example))
    assert example.num_batches_tracked == 0
    ours, eager = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    gm(X, ours).sum().backward()
    applied(X, eager).sum().backward()
    assert torch.equal(ours.running_mean, eager.running_mean)
    assert torch.equal(ours.bias.grad, eager.bias.grad)
    assert example.bias.grad is None


@pytest.mark.parametrize("other", [nn.Linear(3, 5), nn.Linear(3, 3, bias=False), nn.Identity(), None])
def test_a_layer_of_another_kind_is_refused(other: Any) -> None:
    gm = trace(applied, (X, nn.Linear(3, 3)))
    with pytest.raises(GuardError, match=r"argument 'layer' was .*Linear\(in_features=3, out_features=3"):
        gm(X, other)


def test_a_module_with_others_inside_is_taken_for_granted() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    gm = trace(applied, (X, module))
    assert torch.equal(gm(X, module), applied(X, module))
    with pytest.raises(GuardError, match="another Sequential"):
        gm(X, nn.Sequential(nn.Linear(3, 3), nn.ReLU()))

"""Functions of which a capture is to hear, held by other things than modules: attributes, closures, lists, partials."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from graphwright import trace

X = torch.ones(3)
LISTED = [torch.manual_seed]
TABLE = {"seed": torch.manual_seed}
BOUND = functools.partial(torch.manual_seed, 3)
HOLDER = SimpleNamespace(inner=SimpleNamespace(seed=torch.manual_seed))


def closing_over(seed: Callable[[int], object]) -> Callable[[nn.Module, Tensor], Tensor]:
    def draw(self: nn.Module, x: Tensor) -> Tensor:
        seed(3)
        return x + torch.rand(3)

    return draw


def by_default(self: nn.Module, x: Tensor, seed: Callable[[int], object] = torch.manual_seed) -> Tensor:
    seed(3)
    return x + torch.rand(3)


def of_list(self: nn.Module, x: Tensor) -> Tensor:
    LISTED[0](3)
    return x + torch.rand(3)


def of_table(self: nn.Module, x: Tensor) -> Tensor:
    TABLE["seed"](3)
    return x + torch.rand(3)


def bound(self: nn.Module, x: Tensor) -> Tensor:
    BOUND()
    return x + torch.rand(3)


def of_object(self: nn.Module, x: Tensor) -> Tensor:
    HOLDER.inner.seed(3)
    return x + torch.rand(3)


def of_module(self: Holding, x: Tensor) -> Tensor:
    self.seed(3)
    return x + torch.rand(3)


def of_module_bound(self: Holding, x: Tensor) -> Tensor:
    self.bound()
    return x + torch.rand(3)


def of_class(self: Holding, x: Tensor) -> Tensor:
    self.of_class(3)
    return x + torch.rand(3)


def of_table_of_module(self: Holding, x: Tensor) -> Tensor:
    self.table["seed"][0](3)
    return x + torch.rand(3)


def by_callable(self: Holding, x: Tensor) -> Tensor:
    self.callable()
    return x + torch.rand(3)


def seeding(self: Holding) -> None:
    self.seed(3)


def by_other_function(self: Holding, x: Tensor) -> Tensor:
    seeding(self)
    return x + torch.rand(3)


class Seeding:
    def __init__(self) -> None:
        self.hidden = torch.manual_seed

    def __call__(self) -> None:
        self.hidden(3)


class Holding(nn.Module):
    of_class = staticmethod(torch.manual_seed)

    def __init__(self, body: Callable[[Holding, Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self.seed = torch.manual_seed
        self.bound = functools.partial(torch.manual_seed, 3)
        self.table = {"seed": [torch.manual_seed]}
        self.callable = Seeding()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


HELD = [
    closing_over(torch.manual_seed), closing_over(functools.partial(torch.manual_seed)), by_default, of_list, of_table,
    bound, of_object, of_module, of_module_bound, of_class, of_table_of_module, by_callable, by_other_function,
]  # fmt: skip


@pytest.mark.parametrize("body", HELD)
def test_functions_are_heard_of_wherever_they_are_held(body: Callable[[Holding, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    gm = trace(Holding(body), (X,))
    torch.manual_seed(7)
    first, want = gm(X), Holding(body)(X)
    assert torch.equal(first, want) and "manual_seed(3)" in gm.code


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.context = functools.partial(sdpa_kernel, [SDPBackend.MATH])

    def forward(self, x: Tensor) -> Tensor:
        with self.context():
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_contexts_are_entered_that_a_module_has_bound() -> None:
    x = torch.randn(1, 2, 4, 8)
    gm, model = trace(Around(), (x,)), Around()
    assert torch.equal(gm(x), model(x)) and gm.code.count("with torch.nn.attention.sdpa_kernel(") == 2

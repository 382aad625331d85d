"""What training does to layers can be done to those of a nested capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from graphwright import trace


class Wrapped(nn.Module):
    """Wraps the forward of every class derived from it, as layers of transformers do."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward: Callable[..., Any] = cls.forward

        @functools.wraps(forward)
        def calling(self: Any, *args: Any) -> Any:
            return forward(self, *args)

        cls.forward = calling  # type: ignore[method-assign]


class Layer(Wrapped):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x).relu()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Checkpointed(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.layer, x, use_reentrant=False)


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def gradients(model: nn.Module) -> list[torch.Tensor]:
    model.zero_grad()
    model(X).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_a_layer_is_checkpointed() -> None:
    model = Model()
    want = gradients(model)
    nested = trace(model, X, flat=False)
    nested.layers[1] = Checkpointed(nested.layers[1])
    got = gradients(nested)
    assert len(got) == len(want) == 6
    assert all(map(torch.equal, got, want))


@pytest.mark.usefixtures("one_process")
def test_layers_are_sharded() -> None:
    model = Model()
    want, value = gradients(model), model(X)
    nested = trace(model, X, flat=False, copy=True)
    mesh = init_device_mesh("cpu", (1,))
    for layer in nested.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(nested, mesh=mesh)
    assert torch.equal(nested(X), value)
    nested(X).square().sum().backward()
    got = [parameter.grad.full_tensor() for parameter in nested.parameters()]
    assert len(got) == len(want)
    assert all(map(torch.allclose, got, want))


def test_a_class_that_wraps_forward_is_called_as_it_is() -> None:
    model = Model()
    nested = trace(model, X, flat=False)
    assert torch.equal(nested(X), model(X))
    kind = type(nested.layers[0])
    again = kind.__new__(type("Derived", (kind,), {}))
    again.__dict__.update(nested.layers[0].__dict__)
    assert torch.equal(again(X), model.layers[0](X))

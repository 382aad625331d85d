"""Captured modules in the hands of libraries: adapters that replace layers by class name, wrappers, einops."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import load, save, trace


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return scores.softmax(-1) @ self.value(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.norm(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Adapted(nn.Module):
    """A layer with a low-rank addition, which can become one layer again."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.up(self.down(x))

    def merged(self) -> nn.Linear:
        layer = copy.deepcopy(self.base_layer)
        layer.weight.data += self.up.weight @ self.down.weight
        return layer


def replace(model: nn.Module, kind: str, suffixes: tuple[str, ...], make: Any) -> list[str]:
    """Replace modules of a class, found by its name, at paths that end so."""
    found = [
        path
        for path, module in model.named_modules()
        if type(module).__name__ == kind and (not suffixes or path.endswith(suffixes))
    ]
    for path in found:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, make(model.get_submodule(path)))
    return found


def test_adapters_are_put_around_layers_of_a_captured_module_and_merged() -> None:
    model = Model()
    gm = trace(model, (torch.randn(2, 3, 8),))
    for parameter in gm.parameters():
        parameter.requires_grad_(False)
    torch.manual_seed(0)
    paths = replace(gm, "Linear", ("query", "value"), Adapted)
    assert paths == [f"blocks.{i}.attention.{name}" for i in range(2) for name in ("query", "value")]
    assert {type(block).__name__ for block in gm.blocks} == {"Block"}
    assert type(model.blocks[0].attention.query) is nn.Linear

    reference = copy.deepcopy(model)
    torch.manual_seed(0)
    replace(reference, "Linear", ("query", "value"), Adapted)
    assert gm.state_dict().keys() == reference.state_dict().keys()
    x = torch.randn(4, 5, 8)
    assert torch.equal(gm(x), reference(x))
    gm(x).sum().backward()
    with_gradients = {name for name, parameter in gm.named_parameters() if parameter.grad is not None}
    assert with_gradients == {f"{path}.{part}.weight" for path in paths for part in ("down", "up")}

    replace(gm, "Adapted", (), Adapted.merged)
    torch.testing.assert_close(gm(x), reference(x))


def test_a_model_with_adapters_is_captured() -> None:
    model = Model()
    replace(model, "Linear", ("query",), Adapted)
    gm = trace(model, (torch.randn(2, 3, 8),))
    x = torch.randn(1, 4, 8)
    assert torch.equal(gm(x), model(x)) and gm.coverage == 1.0
    assert isinstance(gm.blocks[0].attention.query, Adapted)


class Sharded(nn.Module):
    """Has the parameters of what it wraps only while that runs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.kept = [parameter.data for parameter in module.parameters()]
        self._release()

    def _release(self) -> None:
        for parameter in self.module.parameters():
            parameter.data = torch.empty(0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        for parameter, data in zip(self.module.parameters(), self.kept, strict=True):
            parameter.data = data
        try:
            return self.module(*args, **kwargs)
        finally:
            self._release()


@pytest.mark.parametrize("kind", ["Block", "Linear", "Attention"])
def test_modules_that_are_leaves_are_wrapped_by_the_name_of_their_class(kind: str) -> None:
    model = Model()
    x = torch.randn(4, 5, 8)
    expected = model(x)
    gm = trace(model, (torch.randn(2, 3, 8),), leaf_modules=kind, copy=True)
    assert len(replace(gm, kind, (), Sharded)) in (2, 6)
    assert torch.equal(gm(x), expected)


def test_the_whole_of_it_is_wrapped() -> None:
    model = Model()
    x = torch.randn(4, 5, 8)
    expected = model(x)
    assert torch.equal(Sharded(trace(model, (torch.randn(2, 3, 8),), copy=True))(x), expected)


class Rearranged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from einops.layers.torch import Rearrange, Reduce

        self.qkv = nn.Linear(8, 24)
        self.grid, self.pool = Rearrange("b (h w) c -> b h w c", h=2), Reduce("b h w c -> b c", "mean")

    def forward(self, x: Tensor) -> Any:
        from einops import einsum, rearrange, reduce, repeat

        query, key, value = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=2)
        weights = einsum(query, key, "b h i d, b h j d -> b h i j").softmax(-1)
        joined = rearrange(weights @ value, "b h n d -> b n (h d)")
        tokens = repeat(joined.mean(1), "b c -> b r c", r=x.shape[1])
        halves = reduce(joined, "b (n two) c -> b n c", "max", two=2)
        return self.pool(self.grid(joined + tokens)), halves, rearrange([joined, tokens], "t b n c -> b t n c")


@pytest.mark.parametrize("kept", [(), pytest.param(None, marks=pytest.mark.slow)])
def test_einops_is_captured_and_its_caches_keep_nothing(kept: Any, tmp_path: Any) -> None:
    einops = pytest.importorskip("einops")
    model = Rearranged()
    gm = trace(model, (torch.randn(2, 4, 8),), leaf_functions=kept, leaf_modules=kept)
    assert gm.coverage == 1.0
    save(gm, tmp_path / "rearranged.gw")
    loaded = load(tmp_path / "rearranged.gw", allow=[__name__] if kept == () else ["einops", __name__])
    for batch, length in ((3, 6), (1, 2), (2, 4)):
        x = torch.randn(batch, length, 8)
        for captured in (gm, loaded):
            for one, other in zip(captured(x), model(x), strict=True):
                torch.testing.assert_close(one, other)
    assert einops.rearrange(torch.ones(2, 6), "a (b c) -> a b c", b=2).shape == (2, 2, 3)

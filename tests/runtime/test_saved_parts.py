"""What a file leaves out, and what it names: the module that is loaded computes what was captured."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import graphwright
from graphwright.errors import GuardError, LoadError

HERE = __name__


def there_and_back(gm: nn.Module, folder: Path) -> tuple[nn.Module, list[str]]:
    left_out = graphwright.save(gm, folder / "model.gw")
    return graphwright.load(folder / "model.gw", allow=[HERE]), left_out


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
        self.inner = Attention()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("kind", [Attention, Around])
def test_attributes_that_no_file_holds_may_be_missing_when_it_is_loaded(kind: type[nn.Module], tmp_path: Path) -> None:
    x = torch.randn(1, 2, 4, 8)
    again, left_out = there_and_back(graphwright.trace(kind(), (x,)), tmp_path)
    assert [line.partition(":")[0].rpartition(".")[2] for line in left_out] == ["context"]
    assert torch.equal(again(x), kind()(x))
    (again if kind is Attention else again.inner).context = None  # type: ignore[assignment]
    with pytest.raises(GuardError, match="context"):
        again(x)


@torch.jit.script
def clamped(x: Tensor, limit: float) -> Tensor:
    return (x / limit).tanh() * limit


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.clamp = clamped

    def forward(self, x: Tensor) -> Tensor:
        return clamped(x, 2.0) + self.clamp(x, 3.0)


def test_functions_of_torchscript_are_saved_by_name(tmp_path: Path) -> None:
    x = torch.randn(3)
    gm = graphwright.trace(Scripted(), (x,))
    assert "return clamped(x, 2.0) + clamped(x, 3.0)" in gm.code
    again, left_out = there_and_back(gm, tmp_path)
    assert left_out == [] and torch.equal(again(x), Scripted()(x))
    with pytest.raises(LoadError, match="is not allowed"):
        graphwright.load(tmp_path / "model.gw")


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.mean(0), 0.5)
        self.mean.grad = None
        return x - self.mean


def test_gradients_may_be_forgotten_by_what_is_loaded(tmp_path: Path) -> None:
    x = torch.randn(3, 2)
    again, left_out = there_and_back(graphwright.trace(Averaging(), (x,)), tmp_path)
    assert left_out == [] and torch.equal(again(x), Averaging()(x))


class Older(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.filterwarnings("ignore:.*sdp_kernel")
def test_the_older_name_of_a_context_is_saved(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 4, 8)
    again, left_out = there_and_back(graphwright.trace(Older(), (x,)), tmp_path)
    assert left_out == [] and torch.equal(again(x), Older()(x))


class Settings:
    def __init__(self) -> None:
        self.__init_args__ = (3,)
        self.scale = 2.0


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings()
        self.__init_args__ = (5,)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.settings.scale + self.settings.__init_args__[0] + self.__init_args__[0]


def test_names_of_pythons_own_are_left_out_and_not_asked_for(tmp_path: Path) -> None:
    x = torch.ones(2)
    again, left_out = there_and_back(graphwright.trace(Configured(), (x,)), tmp_path)
    assert {line.partition(":")[0] for line in left_out} == {"__init_args__", "settings.__init_args__"}
    assert torch.equal(again(x), Configured()(x))
    again.settings.__init_args__ = (4,)  # type: ignore[union-attr]
    with pytest.raises(GuardError, match="__init_args__"):
        again(x)

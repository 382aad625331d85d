"""torch.jit.script compiles captured programs, with their guards, as far as TorchScript knows what is in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.zoo_models import zoo_model
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

import graphwright
from graphwright import trace
from graphwright.errors import ExportError, GuardError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about its older compilers


def halved(x: Tensor) -> Tensor:
    while x.norm() > 1:
        x = x * 0.5
    return x


def deleted(ids: Tensor) -> Tensor:
    for _ in range(6):
        hidden = ids.float().mean()
        following = hidden.long() + 1
        ids = torch.cat([ids, following[None]])
        if following == 3:
            break
    return ids


def none_on_one_side(x: Tensor) -> Tensor:
    mask = (x > 0).float()
    if mask.sum() > 2:
        mask = None  # type: ignore[assignment]
    return x if mask is None else x * mask


def limited(x: Tensor, limit=0.5) -> Tensor:  # type: ignore[no-untyped-def]
    peak = x.abs().max()
    return x * (limit / peak) if peak > limit else x


class Config:
    def __init__(self) -> None:
        self.size = 3


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.linear, self.scale = config, nn.Linear(config.size, config.size), 0.5

    def forward(self, x: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
        x = self.linear(x) * self.scale if self.training else self.linear(x) + self.config.size
        return x if mask is None else x * mask


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.blocks = nn.Sequential(Block(self.config), Block(self.config))

    def forward(
        self, x: Tensor | None = None, mask: Tensor | None = None, config: Config | None = None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        assert x is not None
        for block in self.blocks:
            x = block(x, mask, **options)
        return x, x.sum()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        pytest.param(halved, [torch.ones(3), torch.ones(9)], id="keywords of torch's own"),
        pytest.param(limited, [torch.ones(3), torch.ones(9) / 4], id="a number by default"),
        pytest.param(deleted, [torch.tensor([1, 2]), torch.tensor([1, 9, 5])], id="del in a loop"),
        pytest.param(none_on_one_side, [torch.ones(3), -torch.ones(3)], id="None on one side"),
        pytest.param(Net(), [torch.randn(2, 3), torch.randn(5, 3)], id="objects, options and optional inputs"),
        pytest.param(Net().eval(), [torch.randn(2, 3), torch.randn(5, 3)], id="in evaluation"),
    ],
)
def test_programs_are_compiled_and_do_the_same(program: Any, inputs: list[Tensor]) -> None:
    gm = trace(program, (inputs[0],))
    before = gm.code
    scripted = torch.jit.script(gm)
    for x in inputs:
        torch.testing.assert_close(scripted(x), program(x))
    assert gm.code == before


def test_guards_are_assertions() -> None:
    scripted = torch.jit.script(trace(Net(), (torch.randn(2, 3),)))
    with pytest.raises(torch.jit.Error, match="argument 'mask' was None when"):
        scripted(torch.randn(2, 3), torch.ones(3))
    with pytest.raises(RuntimeError, match="other"):
        scripted(torch.randn(2, 3), other=torch.ones(3))


def test_the_mode_stays_live() -> None:
    net = Net().eval()
    scripted, x = torch.jit.script(trace(net, (torch.randn(2, 3),))), torch.randn(2, 3)
    for mode in (True, False):
        torch.testing.assert_close(scripted.train(mode)(x), net.train(mode)(x))


SCALE = 2.0


def scaled(x: Tensor) -> Tensor:
    return x * SCALE


def test_what_torchscript_has_not_is_checked_when_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = trace(scaled, (torch.ones(2),))
    assert torch.equal(torch.jit.script(gm)(torch.ones(3)), torch.full((3,), 2.0))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    with pytest.raises(GuardError, match="SCALE"):
        torch.jit.script(gm)


LIMITS: list[Any] = [
    lambda x: torch.finfo(x.dtype).eps,
    lambda x: torch.finfo(x.dtype).min,
    lambda x: -torch.finfo(x.dtype).max,
    lambda x: torch.finfo(x.dtype).bits // 3,
    lambda x: torch.finfo(x.dtype).tiny + torch.finfo(x.dtype).resolution,
    lambda x: torch.finfo(x.dtype).smallest_normal,
]


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_the_numbers_of_a_dtype(limit: Any) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.full((2,), limit(x), dtype=x.dtype)

    captured = trace(program, torch.ones(2))
    scripted = torch.jit.script(captured)
    for dtype in torch.float32, torch.bfloat16, torch.float16, torch.float64:
        x = torch.ones(2, dtype=dtype)
        assert torch.equal(scripted(x), program(x)) and torch.equal(captured(x), program(x))


def test_a_guard_of_several_dtypes() -> None:
    scripted = torch.jit.script(trace(lambda x: x + 1 if x.dtype == torch.float16 else x - 1, torch.ones(2)))
    assert torch.equal(scripted(torch.ones(2).double()), torch.zeros(2).double())
    with pytest.raises(torch.jit.Error, match="another kind of tensor"):
        scripted(torch.ones(2).half())


class Result(dict[str, Tensor]):
    pass


def test_what_torchscript_does_not_know_is_refused() -> None:
    gm = trace(lambda x: Result(x=x + 1), (torch.ones(2),))
    with pytest.raises(ExportError, match="does not know the class Result"):
        torch.jit.script(gm)
    several = trace(lambda x: x.sum() if x.dim() > 1 else x, examples=[torch.ones(2), torch.ones(2, 2)])
    with pytest.raises(ExportError, match="by which one of several captures is chosen"):
        torch.jit.script(several)


class Tuples(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, return_dict=False)[0]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["eager", "export"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_language_models(name: str, target: Any) -> None:
    declare_torchvision()
    model, ids = zoo_model("transformers", name)
    model = Tuples(model.eval())
    options = {} if target == "eager" else {"target": target}
    scripted = torch.jit.script(graphwright.trace(model, (ids,), **options))
    for given in (ids, torch.randint(0, 90, (3, 5))):
        with torch.no_grad():
            torch.testing.assert_close(scripted(given), model(given))

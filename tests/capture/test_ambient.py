"""Regions of grad mode, autocast and inference mode: recorded as entered and left, right whatever the caller's own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import graphwright
from graphwright import CaptureError, GuardError, Interpreter, trace


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)


class Autocast(Base):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                z = self.linear(x.float())
            w = self.linear(z) + y
        return y, z, w, self.linear(x)


class AutocastDecorator(Base):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x)


class OtherDevice(Base):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cuda", enabled=False, cache_enabled=False):
            return self.linear(x)


class Inference(Base):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = self.linear(x)
        with torch.no_grad():
            z = self.linear(x)
            with torch.inference_mode():
                w = self.linear(x)
        return y.clone(), z, w, self.linear(x)


class InferenceDecorator(Base):
    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x)


class NoGradDecorator(Base):
    @torch.no_grad()
    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def forward(self, x: torch.Tensor) -> Any:
        return self.helper(x), self.linear(x)


class SetAsContext(Base):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.set_grad_enabled(False):
            y = self.linear(x)
            with torch.set_grad_enabled(True):
                v = self.linear(x)
            u = self.linear(x)
        with torch.set_grad_enabled(self.training):
            z = self.linear(x)
        with torch.enable_grad():
            w = self.linear(x)
        return y, v, u, z, w, self.linear(x)


class SetAsFunction(Base):
    def forward(self, x: torch.Tensor) -> Any:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = self.linear(x)
        with torch.set_grad_enabled(True):
            z = self.linear(x)
        w = self.linear(x)
        torch.set_grad_enabled(before)
        return y, z, w, self.linear(x)


class SetAsDecorator(Base):
    def forward(self, x: torch.Tensor) -> Any:
        @torch.set_grad_enabled(False)
        def helper(x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

        return helper(x), self.linear(x)


class InBranches(Base):
    def forward(self, x: torch.Tensor) -> Any:
        if x.sum() > 0:
            with torch.no_grad():
                y = self.linear(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                w = self.linear(x)
        else:
            y, w = self.linear(x), x.bfloat16()
        with torch.inference_mode():
            z = self.linear(x) if x.sum() > 1 else x * 2
        return y, w, z.clone()


PROGRAMS = [
    pytest.param(kind, id=kind.__name__)
    for kind in (
        Autocast, AutocastDecorator, OtherDevice, Inference, InferenceDecorator, NoGradDecorator, SetAsContext,
        SetAsFunction, SetAsDecorator, InBranches,
    )
]  # fmt: skip
CALLERS: dict[str, Callable[[], Any]] = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "inference_mode": torch.inference_mode,
}


def facts(run: Callable[[torch.Tensor], Any], caller: str, x: torch.Tensor) -> Any:
    with CALLERS[caller]():
        try:
            result = run(x)
        except RuntimeError as error:
            return str(error).partition("\n")[0]
    values = result if isinstance(result, tuple) else (result,)
    return [(value.dtype, value.requires_grad, value.is_inference(), value.tolist()) for value in values]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_regions_act_as_in_eager_under_any_caller(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    gm = trace(model, (torch.ones(2, 4),))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    for caller, x, mode in itertools.product(CALLERS, (torch.ones(2, 4), -torch.ones(2, 4)), (True, False)):
        model.train(mode)
        gm.train(mode)
        expected = facts(model, caller, x)
        assert facts(gm, caller, x) == expected, caller
        assert facts(Interpreter(gm).run, caller, x) == expected, caller
        assert torch.is_grad_enabled()


def lines(kind: type[nn.Module]) -> list[str]:
    code = trace(kind(), (torch.ones(2, 4),)).code
    return [line[4:] for line in code.splitlines() if line.strip() and not line.strip().startswith(("#", "def"))]


def test_each_region_is_one_with_block() -> None:
    assert lines(Autocast) == [
        "with torch.autocast('cpu', dtype=torch.bfloat16):",
        "    y = self.linear(x)",
        "    with torch.autocast('cpu', enabled=False):",
        "        z = self.linear(x.float())",
        "    w = self.linear(z) + y",
        "return (y, z, w, self.linear(x))",
    ]
    assert lines(SetAsContext)[5:7] == ["with torch.set_grad_enabled(self.training):", "    z = self.linear(x)"]
    assert lines(OtherDevice)[0] == "with torch.autocast('cuda', enabled=False, cache_enabled=False):"
    assert lines(Inference)[:2] == ["with torch.inference_mode():", "    y = self.linear(x)"]
    assert lines(InBranches)[1:3] == ["    with torch.no_grad():", "        y = self.linear(x)"]


class Leaks(Base):
    def forward(self, x: torch.Tensor) -> Any:
        torch.set_grad_enabled(False)
        if x.sum() > 0:  # the capture starts again here
            x = x + 1
        return self.linear(x)


def test_a_grad_mode_that_the_program_leaves_set_stays_set_when_it_runs_and_not_when_it_is_captured() -> None:
    gm = trace(Leaks(), (torch.ones(2, 4),))
    assert torch.is_grad_enabled()
    try:
        assert not gm(torch.ones(2, 4)).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def hooks_around(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved * 2, lambda packed: packed * 3):
        y = x * x
        with torch.autograd.graph.save_on_cpu():
            z = y * y
        y = y * z
    return y.sin()


def hooks_around_values(x: torch.Tensor) -> torch.Tensor:
    scale = x.sum().detach()
    if scale > 0:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda packed: packed * scale):
            x = x * x
    return x * 2


def forward_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x * 2)
        tangent = torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent
    return tangent + x


@pytest.mark.parametrize("program", [hooks_around, hooks_around_values, forward_mode])
def test_hooks_on_what_autograd_saves_and_levels_of_forward_mode(program: Any) -> None:
    gm = trace(program, (torch.ones(2, 3).requires_grad_(),))
    for example in (torch.rand(3, 2), -torch.rand(2)):
        given = [example.clone().requires_grad_() for _ in range(2)]
        results = [each(x) for each, x in zip((program, gm), given, strict=True)]
        for result in results:
            result.sum().backward()
        assert torch.equal(*results) and torch.equal(given[0].grad, given[1].grad)


class Doubles(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.ops.aten.sin.default else result


def test_a_mode_that_sees_operators_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with Doubles():
            return x.sin()

    with pytest.raises(CaptureError, match="enters a Doubles, which may do anything with the operators"):
        trace(program, (torch.ones(2),))
    gm = trace(lambda x: x.sin(), (torch.ones(2),))
    with Doubles():
        assert torch.equal(gm(torch.ones(2)), torch.sin(torch.ones(2)))


class Clamped(Base):
    """Asks as decoders do whether values may have overflown; looks some of them up by an index."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if y.dtype == torch.float16:
            y = y.clamp(-1, 1)
        return y[index.cumsum(0)]


def test_a_question_of_a_dtype_leaves_autocast_to_those_with_the_same_answer() -> None:
    model, args = Clamped(), (torch.ones(3, 4) * 100, torch.ones(2, dtype=torch.long))
    gm = trace(model, args)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            torch.testing.assert_close(gm(*args), model(*args), rtol=0, atol=0)
    with (
        torch.autocast("cpu", torch.float16),
        pytest.raises(GuardError, match=r"autocast on cpu to another dtype than torch.bfloat16"),
    ):
        gm(*args)
    with torch.autocast("cpu", torch.float16):
        gm = trace(model, args)
        torch.testing.assert_close(gm(*args), model(*args), rtol=0, atol=0)
    with pytest.raises(GuardError, match=r"torch.is_autocast_enabled\('cpu'\)"):
        gm(*args)


def parts_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(x.requires_grad), torch.no_grad():
        if x.sum() > 5:
            y: Any = (x.view(3, -1), x)
        else:
            y = x.view(3, -1) * 2
    return y[0] * x.sum()  # type: ignore[no-any-return]


def test_a_fork_inside_a_mode_leaves_it_on_both_ways(tmp_path: Path) -> None:
    gm = trace(parts_inside, (torch.ones(3),))
    graphwright.save(gm, tmp_path / "model.gw", strict=True)
    for each in (gm, graphwright.load(tmp_path / "model.gw")):
        for x in (torch.ones(3, requires_grad=True), torch.ones(6)):
            y, expected = each(x), parts_inside(x)
            assert torch.equal(y, expected) and y.requires_grad is expected.requires_grad
        with pytest.raises(RuntimeError, match="invalid for input of size 4"):
            each(torch.ones(4))
        assert torch.is_grad_enabled()

"""Holding a pass to the original program: values, gradients, effects, in training and evaluation, and idempotence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphwright import symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.passes import ShapeProp

__all__ = ["Program", "body", "check_pass", "noted", "settled", "train_alike"]


class Program(nn.Module):
    """Modules and tensors by name, and a forward given as a function of (self, x)."""

    def __init__(self, run: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        self.run = run
        for name, value in members.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def settled(model: nn.Module) -> nn.Module:
    """Give batch norms statistics and weights that are neither 0 nor 1, and go to evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for name in ("running_mean", "bias"):
                if getattr(module, name) is not None:
                    getattr(module, name).data.normal_(generator=generator)
            for name in ("running_var", "weight"):
                if getattr(module, name) is not None:
                    getattr(module, name).data.uniform_(0.5, 2.0, generator=generator)
    return model.eval()


def body(gm: Any) -> list[str]:
    """The statements of the generated code, without what frees values."""
    lines = [line.split(";")[0].strip() for line in gm.code.strip().splitlines()]
    return [line for line in lines[1:] if line and not line.startswith(("#", "del ", "expect_modules("))]


def noted(gm: Any, *inputs: Tensor) -> Any:
    """The module, with what its nodes give for some inputs noted in their meta."""
    if inputs:
        ShapeProp(gm).propagate(*inputs)
    return gm


def check_pass(
    each: Any,
    program: Any,
    inputs: Sequence[Tensor],
    count: int,
    *,
    example: Tensor | None = None,
    traced: bool = False,
    modes: Any = ("train", "eval"),
    **tolerances: float,
) -> Any:
    """Run a pass on what a program is captured as; it makes so many changes, none of them to be seen.

    With an example, its shapes and dtypes are noted first. Inputs without gradients come as well as with them; the
    original keeps its modules and values, and a second run changes nothing. With `traced`, the capture is `trace`'s.
    """
    model = program if isinstance(program, nn.Module) else _Function(program)
    before = repr(model), copy.deepcopy(model.state_dict())
    captured = trace(model, (inputs[0],)) if traced else symbolic_trace(model)
    gm = noted(captured, *([] if example is None else [example]))
    reference = copy.deepcopy(model)
    text = str(gm.graph)
    assert each.run(gm) == count, gm.code
    gm.graph.lint()
    assert count or str(gm.graph) == text
    cases = [(x.detach().clone(),) for x in inputs]
    cases += [(x.detach().clone().requires_grad_(),) for x in inputs if x.is_floating_point()]
    for calls, grads in ((cases[: len(inputs)], False), (cases, True)):
        report = verify(reference, gm, calls, modes=modes, grads=grads, **tolerances)
        assert report.ok, f"{report}\n{gm.code}"
    after = repr(model), model.state_dict()
    assert after[0] == before[0] and after[1].keys() == before[1].keys()
    assert all(torch.equal(after[1][name], value) for name, value in before[1].items())
    _check_ownership(model, gm, cases[0])
    assert each.run(gm) == 0, gm.code
    return gm


def train_alike(model: nn.Module, gm: nn.Module, x: Tensor, **tolerances: float) -> None:
    """Train both for three steps: they learn the same."""
    for each in (model, gm):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            (each(x) ** 2).mean().backward()
            optimizer.step()
    assert torch.allclose(model(x), gm(x), **tolerances)


def _check_ownership(model: nn.Module, gm: nn.Module, call: tuple[Tensor, ...]) -> None:
    """Which of the values given back, inputs, parameters and buffers share their memory is as in the original."""
    assert _shared(model, call) == _shared(gm, call)


def _shared(model: nn.Module, call: tuple[Tensor, ...]) -> list[list[bool]]:
    inputs = [x.detach().clone() for x in call]
    found = torch.utils._pytree.tree_leaves(model.eval()(*inputs))
    outputs = [value for value in found if isinstance(value, Tensor)]
    others = [*inputs, *model.parameters(), *model.buffers()]
    places = [value.untyped_storage().data_ptr() for value in (*outputs, *others)]
    own = {value.untyped_storage().data_ptr() for value in others}
    return [[*[place == other for other in places[: len(outputs)]], place in own] for place in places[: len(outputs)]]

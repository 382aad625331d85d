"""What do PyTorch's other ways to capture a program cost, next to symbolic tracing?

They see tensors where symbolic tracing sees none; running the model on meta tensors is their floor.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import models
from implementations import BASELINE, Implementation
from programs import chain
from results import record
from timing import Case, interleave, runnable

MODELS = ("resnet18", "resnet50", "vit_b_16", "gpt12")


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time one capture by each of them; node counts matter for the chain alone."""
    x = torch.ones(4)
    if 1_000 in node_counts:
        program = chain(1_000)
        cases = _symbolic(implementations, program)
        cases.append(Case("make_fx, fake tensors", lambda: make_fx(program, tracing_mode="fake")(x, x)))
        cases.append(Case("torch.jit.trace", lambda: torch.jit.trace(program, (x, x), check_trace=False)))
        record("capturers/chain of 1000", interleave(runnable(cases), BASELINE, rounds=3))
    with torch.no_grad():
        for name in MODELS:
            model = models.build(name)
            cases = _symbolic(implementations, model) + _with_tensors(model, models.inputs(name))
            record(f"capturers/{name}", interleave(runnable(cases), BASELINE, rounds=3))


def _symbolic(implementations: Sequence[Implementation], program: Any) -> list[Case]:
    return [Case(side.name, partial(side.symbolic_trace, program)) for side in implementations]


def _with_tensors(model: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> list[Case]:
    on_meta = copy.deepcopy(model).to("meta")
    meta = tuple(argument.to("meta") for argument in arguments)
    return [
        Case("eager on meta tensors", partial(on_meta, *meta)),
        Case("torch.jit.trace on meta", lambda: torch.jit.trace(on_meta, meta, check_trace=False)),
        Case("dynamo on meta", partial(_dynamo, on_meta, meta)),
        Case("torch.export on meta", lambda: torch.export.export(on_meta, meta)),
    ]


def _dynamo(model: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> Any:
    torch._dynamo.reset()  # else the code of the round before is found again
    return torch.compile(model, backend=lambda module, examples: module.forward, fullgraph=True)(*arguments)

"""Random modules that use what makes rewriting hard, and the check that a changed capture still does what they do.

A module is written as Python source: layers that are called twice, registered twice or share weights, buffers that are
read and written, views and writes through them, operations in every spelling, dead and repeated ones, dropout and batch
norm by module and by function, branches and loops on data. All values have the shape of the input.
"""

from __future__ import annotations

import dataclasses
import linecache
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import graphwright
from graphwright.analysis import VerifyReport

__all__ = ["Traits", "assert_same", "inputs_for", "random_module"]


@dataclasses.dataclass(frozen=True)
class Traits:
    """What a random module may have."""

    writes: bool = True  # operations in place, through views and into buffers too
    branches: bool = True  # `if` and `for` on data
    training: bool = True  # dropout and batch norm that look at the training flag
    images: bool = True  # convolutions over (2, 4, 5, 5), else linear layers over (3, 4)


def random_module(seed: int, traits: Traits = Traits()) -> nn.Module:
    """Make a module of class `Net`, its weights drawn from the seed as well.

    >>> type(random_module(0)).__name__
    'Net'
    """
    source = _Source(random.Random(seed), traits).text()
    name = f"random_module_{seed}_{hash(traits) & 0xFFFF}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"torch": torch, "F": F, "nn": nn, "__name__": "random_module"}
    exec(compile(source, name, "exec"), namespace)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = namespace["Net"]()
        for buffer in net.buffers():  # statistics that a batch norm would show
            if buffer.dtype.is_floating_point:
                buffer.uniform_(0.5, 1.5)
    net.source = source
    return net  # type: ignore[no-any-return]


def inputs_for(traits: Traits, count: int = 2) -> list[tuple[torch.Tensor]]:
    """Calls for a random module, with inputs that want gradients."""
    shape = (2, 4, 5, 5) if traits.images else (3, 4)
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(shape, generator=generator).requires_grad_(),) for _ in range(count)]


def assert_same(
    model: nn.Module,
    gm: Callable[..., Any],
    inputs: Sequence[Any],
    modes: Sequence[Any] = ("train", "eval"),
    grads: bool = True,
    **tolerance: float,
) -> VerifyReport:
    """Fail, with the table of cases and the program, unless a module does what the original does in each mode.

    Values, gradients, what is written to inputs and buffers, and the random states afterwards are compared.
    """
    report = graphwright.verify(model, gm, list(inputs), modes=tuple(modes), grads=grads, **tolerance)
    if not report.ok:
        program = getattr(model, "source", type(model).__name__)
        raise AssertionError(f"{report}\n\n{program}\n\n{getattr(gm, 'code', '')}")
    return report


class _Source:
    def __init__(self, draw: random.Random, traits: Traits) -> None:
        self.draw, self.traits = draw, traits
        self.layers: list[str] = []
        self.setup: list[str] = []
        self.body: list[str] = []
        self.values = ["x"]
        self.size = "4, 5" if traits.images else "4"

    def text(self) -> str:
        for i in range(self.draw.randint(3, 6)):
            self.layer(f"layer{i}")
        self.share()
        self.setup += [
            "self.register_buffer('shift', torch.ones(()))",
            "self.register_buffer('mean', torch.zeros(4))",
            "self.register_buffer('var', torch.ones(4))",
            "self.scale = nn.Parameter(torch.ones(()))",
        ]
        if self.traits.writes and self.draw.random() < 0.7:
            self.body.append("x = x * 1")  # a leaf that wants gradients cannot be written to
        for _ in range(self.draw.randint(4, 10)):
            self.statement()
        self.body.append(f"return {self.result()}")
        lines = ["class Net(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        {line}" for line in self.setup]
        lines += ["", "    def forward(self, x):", *[f"        {line}" for line in self.body]]
        return "\n".join(lines) + "\n"

    def pick(self, *choices: str) -> str:
        return self.draw.choice(choices)

    def value(self) -> str:
        return self.draw.choice(self.values[-4:])

    # ---- layers

    def layer(self, name: str) -> None:
        flag = self.pick("", "", "inplace=True") if self.traits.writes else ""
        choices = [f"nn.ReLU({flag})", "nn.Identity()", "nn.Tanh()"]
        if self.traits.images:
            choices += ["nn.Conv2d(4, 4, 3, padding=1)", "nn.Conv2d(4, 4, 1, bias=False)", "nn.GroupNorm(2, 4)"] * 2
            choices += ["nn.ConvTranspose2d(4, 4, 1)", "nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())"]
            norm, drop = "nn.BatchNorm2d(4)", "nn.Dropout2d(0.4)"
        else:
            choices += ["nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)", "nn.LayerNorm(4)"] * 2
            norm, drop = "nn.BatchNorm1d(4)", "nn.Dropout(0.4)"
        if self.traits.training:
            choices += [norm, norm, drop]
        self.setup.append(f"self.{name} = {self.draw.choice(choices)}")
        self.layers.append(name)

    def share(self) -> None:
        """Register a layer twice, or have two layers share a weight."""
        if self.draw.random() < 0.4:
            self.setup.append(f"self.again = self.{self.draw.choice(self.layers)}")
            self.layers.append("again")
        kinds = ("nn.Conv2d(4, 4, 1, bias=False)", "nn.Linear(4, 4)")
        alike = [line.split(" = ")[0] for line in self.setup if line.endswith(kinds)]
        if len(alike) > 1 and self.draw.random() < 0.7:
            one, other = self.draw.sample(alike, 2)
            self.setup.append(f"{one}.weight = {other}.weight")

    # ---- statements

    def statement(self) -> None:
        kind = self.draw.random()
        if kind < 0.3:
            self.define(f"self.{self.draw.choice(self.layers)}({self.value()})")
        elif kind < 0.62:
            self.define(self.expression())
        elif kind < 0.68:
            self.body.append(self.pick("_ = ", "dead = ") + self.expression())
        elif kind < 0.86:
            if self.traits.writes:
                self.write()
            else:
                self.define(self.expression())
        elif kind < 0.9:
            self.body += ["with torch.no_grad():", f"    still = {self.expression()}"]
            self.define(f"{self.value()} + still * 0.5")
        elif self.traits.branches:
            self.control()
        else:
            self.define(self.expression())

    def define(self, expression: str) -> None:
        name = f"v{len(self.values)}" if self.draw.random() < 0.7 else self.value()
        self.body.append(f"{name} = {expression}")
        self.values.append(name)

    def expression(self) -> str:
        a, b = self.value(), self.value()
        choices = [
            *(f"{a} + {b}", f"{b} + {a}", f"torch.add({a}, {b})", f"{a}.add({b})", f"torch.add({a}, {b}, alpha=2)"),
            *(f"{a} * {b}", f"torch.mul({a}, 0.5)", f"{a} - {b}", f"1 - {a}", f"{a} / 2", f"-{a}", f"{a} * 1"),
            *(f"torch.relu({a})", f"F.relu({a})", f"{a}.relu()", f"F.leaky_relu({a}, 0.1)", f"{a}.tanh()"),
            *(f"{a} * {a}.sum(1, keepdim=True)", f"{a} + {b}.mean(dim=[1], keepdim=True)", f"{a} * self.scale"),
            *(f"{a} + self.shift", f"{a}.transpose(0, 1).contiguous().transpose(0, 1)", f"{a}.view({a}.shape)"),
            *(f"{a}.reshape(-1).reshape({a}.shape)", f"torch.cat([{a}, {b}], 1)[:, :4]", f"{a}.flip(-1)"),
            *(f"F.softmax({a}, -1)", f"{a}.double().float()", f"{a}.clamp(-2, 2)", f"torch.where({a} > 0, {a}, {b})"),
            *(f"({a} + 1) * ({a} + 1)", f"torch.maximum({a}, {b})", f"{a} + torch.rand_like({b})"),
            *(
                f"torch.stack([{a}, {b}]).sum(0)",
                f"{a}.detach() + {b}",
                f"{a}.contiguous()",
                f"{a}.float()",
                f"-(-{a})",
            ),
            *(f"{a} + 0", f"F.dropout({a}, 0.0)", f"{a}.transpose(-1, -2).transpose(-1, -2)", f"0.5 * {a} * 4"),
            f"torch.softmax({a} @ {b}.transpose(-1, -2) * 0.5, -1) @ {a}",
            f"({a} - {a}.mean(-1, keepdim=True)) / ({a}.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()",
        ]
        if self.traits.training:
            choices.append(f"F.dropout({a}, 0.3, self.training)")
            choices.append(f"F.batch_norm({a}, self.mean, self.var, training=self.training)")
        return self.draw.choice(choices)

    def write(self) -> None:
        a, b = self.value(), self.value()
        choices = [
            *(f"{a} += {b}.detach()", f"{a}.add_({b})", f"{a}.mul_(0.5)", f"{a} *= 2", f"{a}[:, 0] = 1.0"),
            *(f"{a}[0].add_(1)", f"{a}.transpose(0, 1)[1:].sub_(0.5)", f"{a}.view(-1)[:3].zero_()"),
            *("self.shift += 0.5", f"self.shift.mul_(0.9).add_({a}.detach().mean())", "self.mean.add_(0.1)"),
            *(f"torch.add({a}.detach(), 1, out={b}.detach())", f"{a}[{a} > 1] = 0.5"),
        ]
        if self.draw.random() < 0.3:
            choices = [f"F.relu({a}, inplace=True)", f"{a}.clamp_(-1, 1)", f"torch.relu_({a})", f"{a} + {b}.mul_(0.5)"]
            self.define(self.draw.choice(choices))
        else:
            self.body.append(self.draw.choice(choices))

    def control(self) -> None:
        name, expression = f"v{len(self.values)}", self.expression()
        kind = self.pick("if", "if", "while", "for")
        if kind == "if":
            self.body.append(f"if {self.value()}.sum() > {self.draw.randint(-3, 3)}:")
            self.body += [f"    {name} = {expression}", "else:", f"    {name} = {self.expression()}"]
        elif kind == "for":
            start = self.value()
            self.body += [f"{name} = {start} + 0", f"for i in range({self.value()}.size(0)):"]
            self.body.append(f"    {name} = {name} * 0.5 + {self.pick(expression, f'i * {start}')}")
        else:
            start = self.value()
            self.body += [f"{name} = {start} * 1", f"while {name}.abs().sum() > 20:"]
            self.body.append(f"    {name} = {name} * {self.pick('0.5', '0.3')} + self.scale * 0")
        self.values.append(name)

    def result(self) -> str:
        a, b = self.value(), self.value()
        return self.pick(a, a, f"{a}, {b}", f"{a}.sum(-1), {b}", f"[{a}, {a}]")

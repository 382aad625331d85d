"""Random programs of branches on data, sizes and flags, captured once and run along every path."""

from __future__ import annotations

import itertools
import linecache
import random
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import trace


class Writer:
    """Writes the source of a random forward."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []

    def pick(self, *choices: Any) -> Any:
        choice = self.random.choice(choices)
        return choice() if callable(choice) else choice

    def tensor(self, depth: int = 2) -> str:
        if depth == 0:
            return self.pick("x", "a", "b")
        return self.pick(
            lambda: self.tensor(0),
            lambda: f"({self.tensor(depth - 1)} + {self.tensor(depth - 1)})",
            lambda: f"{self.tensor(depth - 1)} * {self.number(depth - 1)}",
            lambda: f"torch.tanh({self.tensor(depth - 1)})",
            lambda: f"({self.tensor(depth - 1)} if {self.truth(depth - 1)} else {self.tensor(depth - 1)})",
            lambda: f"helper({self.tensor(depth - 1)}, {self.pick(0.5, -0.5)})",
        )

    def number(self, depth: int) -> str:
        if depth == 0:
            return self.pick("k", "0.5", "-1.5", "float(x.size(0))")
        return self.pick(
            lambda: self.number(0),
            lambda: f"({self.number(0)} + {self.number(0)})",
            lambda: f"({self.number(0)} if {self.truth(depth - 1)} else {self.number(0)})",
            lambda: f"{self.tensor(0)}.detach().sum().item()",
        )

    def truth(self, depth: int) -> str:
        bound = self.pick("-1", "0", "0.5", "2")
        if depth == 0:
            return self.pick(
                f"{self.tensor(0)}.sum() > {bound}",
                f"x.size(0) {self.pick('>', '==', '!=', '<=')} {self.pick(2, 3, 4)}",
                "flag",
                "self.training",
                f"k > {bound}",
                f"x.size(0) in ({self.pick(2, 3)}, 4)",
            )
        return self.pick(
            lambda: self.truth(0),
            lambda: f"not {self.truth(depth - 1)}",
            lambda: f"({self.truth(depth - 1)} and {self.truth(depth - 1)})",
            lambda: f"({self.truth(depth - 1)} or {self.truth(depth - 1)})",
            lambda: f"-2 < {self.tensor(0)}.mean() < {bound}",
        )

    def block(self, indent: str, depth: int, may_return: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if kind < 0.45 and depth:
                self.lines.append(f"{indent}if {self.truth(2)}:")
                self.block(indent + "    ", depth - 1, may_return)
                if self.random.random() < 0.4:
                    self.lines.append(f"{indent}elif {self.truth(1)}:")
                    self.block(indent + "    ", depth - 1, may_return)
                if self.random.random() < 0.6:
                    self.lines.append(f"{indent}else:")
                    self.block(indent + "    ", depth - 1, may_return)
            elif kind < 0.5 and depth and may_return:
                self.lines += [f"{indent}if {self.truth(1)}:", f"{indent}    return {self.tensor(1)}, {self.number(0)}"]
            elif kind < 0.54 and depth:
                number = self.random.randint(0, 99)
                self.lines += [f"{indent}if {self.truth(1)}:", f"{indent}    raise ValueError({number}, x.size(0))"]
            elif kind < 0.65:
                self.lines.append(f"{indent}k = {self.number(1)}")
            elif kind < 0.7 and depth:
                self.lines.append(f"{indent}for i in range(2):")
                self.block(indent + "    ", depth - 1, False)
            else:
                self.lines.append(f"{indent}{self.pick('a', 'b')} = {self.tensor()}")

    def source(self) -> str:
        self.lines = [
            "def helper(value, limit):",
            "    if value.sum() > limit:",
            "        return value + 1",
            "    return value - limit",
            "",
            "def forward(self, x, flag=False):",
            "    a, b, k = x * 2, x - 1, 1.5",
        ]
        self.block("    ", 3, True)
        self.lines.append("    return a + b * k, k")
        return "\n".join(self.lines) + "\n"


def random_module(seed: int) -> tuple[nn.Module, str]:
    source = Writer(seed).source()
    filename = f"<random branches {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"torch": torch, "__name__": "random_branches"}
    exec(compile(source, filename, "exec"), names)
    return type("Random", (nn.Module,), {"forward": names["forward"]})(), source


def outcome(module: nn.Module, x: torch.Tensor, flag: bool) -> Any:
    x = x.clone().requires_grad_()
    try:
        value = module(x, flag=flag)
    except ValueError as error:
        return error.args
    tensor, rest = value if isinstance(value, tuple) else (value, None)
    (grad,) = torch.autograd.grad(tensor.sum(), x, allow_unused=True)
    return tensor.detach(), rest, grad


INPUTS = [sign * scale * torch.linspace(0.1, 1.0, n) for sign in (1, -1) for scale in (0.3, 3.0) for n in (2, 3, 4)]


def check(seed: int) -> None:
    module, source = random_module(seed)
    try:
        gm = trace(module, INPUTS[0], dynamic=["flag"], max_paths=32)
    except ValueError:  # the program raises whatever it is given
        with pytest.raises(ValueError):
            module(INPUTS[0])
        return
    gm.graph.lint()
    for x, flag, training in itertools.product(INPUTS, (True, False), (True, False)):
        module.train(training), gm.train(training)
        expected, found = outcome(module, x, flag), outcome(gm, x, flag)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=lambda text: f"{text}\n{source}\n{gm.code}")


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(30))
def test_every_path_equals_eager(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(30, 190, 40))
def test_every_path_of_many_programs_equals_eager(first: int) -> None:
    for seed in range(first, first + 40):
        check(seed)

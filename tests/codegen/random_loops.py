"""Random programs of nested `if`, `while` and `for` with `break`, `continue`, `return` and `else`, as Python functions.

Every program ends: what a `while` counts grows in each round. Values are a tensor, numbers and what loops go through.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["random_function"]


def random_function(seed: int, has_effects: bool = False) -> Callable[..., Any]:
    """Make a function of a tensor `x` of shape (n, 3) and an integer `n`.

    With effects it writes to its input and to what it has computed, and draws random numbers.
    """
    source = _Source(random.Random(seed)).text()
    name = f"random_loops_{seed}{'_with_effects' * has_effects}.py"
    for pure, effect in _EFFECTS if has_effects else ():
        source = source.replace(f" {pure}\n", f" {effect}\n")
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), namespace)
    return namespace["program"]  # type: ignore[no-any-return]


_EFFECTS = (
    ("y = y * 2", "y.mul_(2)"),
    ("y = -y", "y = y + torch.rand(3)"),
    ("y = torch.relu(y)", "x[:1] += y.detach().clamp(-1, 1)"),
    ("y = y + 1", "y[0] = y[0] + 1"),
)


class _Source:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.lines = ["def program(x, n: int):", "    a, b, y = 0, 1, x.sum(0)"]
        self.counters = 0

    def text(self) -> str:
        self.block(1, 3, loop=False)
        self.lines.append(f"    return {self.result()}")
        return "\n".join(self.lines) + "\n"

    def add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def result(self) -> str:
        return self.draw.choice(["y, a, b", "y, b, a"])

    def number(self) -> str:
        return self.draw.choice(["a", "b", "n", "a + b", "b * 2", "a - 1", "1", "n - a"])

    def tensor(self) -> str:
        return self.draw.choice(["y + 1", "y * 2", "y - x.sum(0)", "torch.relu(y)", f"y + ({self.number()})", "-y"])

    def test(self) -> str:
        tests = [f"{self.number()} > {self.draw.randint(-2, 6)}", "y.sum() > 3", "a < b", "y[0] < y[1]"]
        test = self.draw.choice(tests)
        if self.draw.random() < 0.25:
            test += self.draw.choice([" and ", " or "]) + self.draw.choice(tests)
        return f"not {test}" if self.draw.random() < 0.1 and " " not in test else test

    def block(self, depth: int, size: int, loop: bool) -> None:
        for _ in range(self.draw.randint(1, size)):
            self.statement(depth, loop)

    def statement(self, depth: int, loop: bool) -> None:
        kind = self.draw.random()
        if kind < 0.35 or depth > 4:
            choices = [f"a = {self.number()}", f"b = {self.number()}", f"y = {self.tensor()}", "a, b = b, a + 1"]
            self.add(depth, self.draw.choice(choices))
        elif kind < 0.7:
            self.add(depth, f"if {self.test()}:")
            self.block(depth + 1, 2, loop)
            self.leave(depth + 1, loop)
            if self.draw.random() < 0.4:
                self.add(depth, "else:")
                self.block(depth + 1, 2, loop)
                self.leave(depth + 1, loop)
        else:
            self.loop(depth)

    def leave(self, depth: int, loop: bool) -> None:
        chance = self.draw.random()
        if loop and chance < 0.5:
            self.add(depth, self.draw.choice(["break", "continue", "break", f"return {self.result()}"]))
        elif chance > 0.93:
            self.add(depth, f"return {self.result()}")

    def loop(self, depth: int) -> None:
        self.counters += 1
        i = f"i{self.counters}"
        kind = self.draw.choice(["range", "rows", "while", "while", "enumerate"])
        if kind == "while":
            self.add(depth, f"{i} = 0")
            self.add(depth, f"while {i} < {self.draw.randint(1, 4)}:")
            self.add(depth + 1, f"{i} = {i} + 1")
        elif kind == "range":
            self.add(depth, f"for {i} in range(n):")
            self.add(depth + 1, f"a = a + {i}")
        elif kind == "rows":
            self.add(depth, f"for {i} in x:")
            self.add(depth + 1, f"y = y + {i}")
        else:
            self.add(depth, f"for {i}, row in enumerate(x):")
            self.add(depth + 1, f"y = y + row * {i}")
        self.block(depth + 1, 3, loop=True)
        if self.draw.random() < 0.3:
            self.add(depth, "else:")
            self.block(depth + 1, 2, loop=False)

"""Random programs that keep dicts and lists from call to call, and what is in them."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphwright import CaptureError, GuardError, trace

SIZES = (3, 5, 2, 5, 3, 4, 7, 3)
VALUES = ("x.mean()", "x.max()", "y.mean()", "x.mean() * 2")


class Programs:
    """Writes programs with two containers, in branches and out of them; `statements` gives ways to use one."""

    def __init__(self, seed: int, starts: list[str], statements: Callable[[Any, str, str], list[list[str]]]) -> None:
        self._random = random.Random(seed)
        self._starts, self._statements = starts, statements

    def text(self) -> str:
        body = textwrap.indent("\n".join(["n = x.size(0)", "y = x * 1", *self._block(0), "return y"]), " " * 8)
        return (
            "class Program(torch.nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            f"        self.c, self.o = {self._random.choice(self._starts)}, SimpleNamespace(c={self._starts[0]})\n"
            "    def forward(self, x):\n"
            f"{body}\n"
        )

    def _block(self, depth: int) -> list[str]:
        return [line for _ in range(self._random.randint(1, 3)) for line in self._statement(depth)]

    def _statement(self, depth: int) -> list[str]:
        choose = self._random.choice
        if depth == 2 or self._random.random() < 0.75:
            return choose(self._statements(choose, choose(["self.c", "self.c", "self.o.c"]), choose(VALUES)))
        then, other = ([f"    {line}" for line in self._block(depth + 1)] for _ in range(2))
        return [f"if {choose(['n > 3', 'n % 2 == 0', 'x.sum() > 0'])}:", *then, *choose([[], ["else:", *other]])]


KEYS = ("'a'", "'b'", "3", "n", "n + 1", "n // 2", "('a', n)", "f'k{n}'", "(n > 3)", "('a', 3)")


def of_dicts(choose: Any, c: str, v: str) -> list[list[str]]:
    k = choose(KEYS)
    return [
        [f"if {k} in {c}:", f"    y = y + {c}[{k}]"],
        [f"{c}[{k}] = {v}"],
        [f"y = y + {c}.get({k}, 1.0)"],
        ["try:", f"    y = y - {c}[{k}]", "except KeyError:", "    y = y * 2"],
        [f"y = y + {c}.setdefault({k}, {v})"],
        [f"old = {c}.pop({k}, None)", "if old is not None:", "    y = y + old"],
        [f"if {k} not in {c}:", f"    {c}[{k}] = {v}", f"y = y * {c}[{k}]"],
        [f"y = y + len({c})"],
        [f"{c}.clear()"],
        [f"if {k} in {c}:", f"    del {c}[{k}]"],
    ]


def of_lists(choose: Any, c: str, v: str) -> list[list[str]]:
    return [
        [f"{c}.append({v})"],
        [f"{c}.insert(0, {v})"],
        [f"{c} += [{v}, {v}]"],
        [f"if len({c}) > 2:", f"    {c}.pop(0)"],
        [f"if len({c}) > 2:", f"    del {c}[0]"],
        [f"if len({c}) > 3:", f"    {c}.clear()"],
        [f"if len({c}) > 2:", f"    {c}[0] = {v}"],
        [f"if {c}:", f"    y = y + {c}[-1]"],
        [f"if len({c}) > 1:", f"    y = y + torch.stack({c}[-2:]).sum()"],
        [f"y = y * (1 + len({c}))"],
        [f"for h in {c}:", "    y = y + h"],
        [f"y = y + sum({c})"],
        [f"if len({c}) > 0:", f"    y = y + torch.stack([h * 2 for h in {c}]).sum()"],
        [f"for i, h in enumerate({c}):", f"    {c}[i] = h * 0.5"],
        [f"for h in list({c}):", f"    if len({c}) < 5:", f"        {c}.append(h + 1)"],
        [f"for a, b in zip({c}, {c}[1:]):", "    y = y + a * b"],
        [f"{c} = {c} + [{v}]"],
        [f"{c} = [{v}] + {c}"],
        [f"{c} = {c}[-3:]"],
        [f"{c} = [h * 2 for h in {c} if h < 50]"],
        [f"{c} = []"],
        [f"{c} = list({c})"],
        [f"held = {c}", f"held.append({v})", f"y = y + len({c})"],
        ["self.c, self.o.c = self.o.c, self.c"],
    ]


def of_items(choose: Any, c: str, v: str) -> list[list[str]]:
    k = choose(["'a'", "n", "('a', n)"])
    return [
        [f"if {k} not in {c}:", f"    {c}[{k}] = []", f"{c}[{k}].append({v})"],
        [f"{c}.setdefault({k}, []).append({v})"],
        [f"if {k} in {c} and len({c}[{k}]) > 0:", f"    y = y + {c}[{k}][-1] * len({c}[{k}])"],
        [f"if {k} in {c}:", f"    for h in {c}[{k}]:", "        y = y + h"],
        [f"if {k} in {c} and len({c}[{k}]) > 2:", f"    {c}[{k}].pop(0)"],
        [f"held = {c}.get({k})", "if held is not None and len(held) > 1:", f"    held[0] = {v}"],
        [f"{c}.pop({k}, None)"],
    ]


KINDS = {
    "dicts": (["{}", "{}", "{'a': torch.ones(()), 3: torch.ones(())}"], of_dicts),
    "lists": (["[]", "[]", "[torch.ones(()), torch.zeros(())]"], of_lists),
    "lists in dicts": (["{}"], of_items),
}


def differs(text: str, path: Path) -> bool:
    """Tell whether a captured program gives something else than the program. Raises CaptureError and GuardError."""
    path.write_text(text)
    names: dict[str, Any] = {"torch": torch, "SimpleNamespace": SimpleNamespace, "__name__": "program"}
    exec(compile(text, path, "exec"), names)
    model = names["Program"]()
    gm = trace(names["Program"](), (torch.ones(3, 4),), max_paths=256)
    torch.manual_seed(0)
    calls = [torch.randn(size, 4) for size in SIZES]
    return not all(torch.allclose(gm(x), model(x), equal_nan=True) for x in calls)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 24, 8))
@pytest.mark.parametrize("kind", [*KINDS])
def test_random_programs_keep_what_they_keep(kind: str, first: int, tmp_path: Path) -> None:
    refused = []
    for seed in range(first, first + 8):
        text = Programs(seed, *KINDS[kind]).text()
        try:
            assert not differs(text, tmp_path / f"program_{seed}.py"), text
        except (CaptureError, GuardError) as error:
            refused.append(f"{text}\n{error}")
    assert len(refused) <= 1, "\n".join(refused)

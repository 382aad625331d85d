"""Random programs that ask about their world, and changes of that world between capture and call."""

from __future__ import annotations

import copy
import itertools
import linecache
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["CHANGES", "STEPS", "World", "draw"]

_numbers = itertools.count()

# What a program may do with `h`, which starts as the first input, and its world: x and y are tensors, n is a number,
# items a list of two tensors, options a dict.
STEPS = """
h = h / x.shape[-1]
h = h.view(*h.shape[:-1], -1, 1).flatten(-2)
b, *rest = x.shape; h = h + b + len(rest)
h = h + torch.zeros(x.shape).sum()
for size in x.shape: h = h + size
h = x.squeeze(0).sum(-1) + h.sum()
h = h.squeeze(0); h = h[None] if h.dim() == 1 else h
h = h.sum(0, keepdim=True) / len(x)
h = h + x.dim()
h = h * 2 if isinstance(y, torch.Tensor) else h - y
h = h + y if torch.is_tensor(y) else h - 1
h = h + (1 if type(n) is int else 2)
h = h + (1 if isinstance(n, float) else 2)
h = h + (1 if isinstance(items, list) else 2)
h = h + (1 if hasattr(y, "shape") else 2)
h = h + (1 if type(x) is torch.Tensor else 2)
h = h + (1 if (x * n).dtype == torch.float32 else 2)
h = (h.double() / 3).to(x.dtype)
h = h + 1 if x.dtype == torch.float32 else h + 2
h = h + torch.finfo(x.dtype).eps if x.is_floating_point() else h
h = h + 1 if x.is_contiguous() else h + 2
h = h + x.stride(0)
h = h + 1 if x.requires_grad else h + 2
h = h + 1 if torch.is_grad_enabled() else h + 2
h = h + 1 if x.is_leaf else h + 2
h = h + 1 if self.training else h + 2
h = h * self.scale
h = h + 1 if self.flag else h + 2
h = h + 1 if self.kind == "a" else h + 2
for _ in range(self.count): h = h + 1
h = h + self.count
h = h * self.FACTOR
h = h * SCALE
h = h + 1 if MODE == "a" else h + 2
h = self.inner(h)
h = h + len(self.layers)
for layer in self.layers: h = layer(h)
h = h + helper()
h = h + (1 if x is y else 2)
x.add_(1); h = h + y.sum() if isinstance(y, torch.Tensor) else h
h = h + len(items)
h = h + items[0].sum() - items[-1].sum()
h = sum([v.sum() for v in items]) + h
h = h + options["a"]
h = h + len(options)
h = h.sum(0) + h if x.shape[0] > 1 else h
h = h + x.sum() if x.sum() > 1 else h - 1
h = h + n
h = h + 1 if n > 2 else h + 2
h = h + x[0].sum() if len(x) else h
name = f"{tuple(x.shape)}"; h = h + len(name)
h = h + {1: 10, 2: 20}.get(x.shape[0], 30)
h = h + torch.arange(x.shape[0]).sum()
h = h + x.numel()
self.seen = self.seen + 1; h = h + self.seen
h = h + sum(p.sum() for p in self.parameters() if p.requires_grad)
h = torch.relu(h) if self.training and x.shape[0] > 1 else h
big = [v for v in items if v.sum() > 0]; h = h + len(big)
a, b = [x], []; target = a if x.sum() > 0 else b; target.append(y); h = h + len(a)
""".strip().splitlines()

_SOURCE = """
SCALE = 2.0
MODE = "a"

def helper():
    return SCALE + 1

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1) * 0.5)
    def forward(self, h):
        return h * self.weight

class Program(nn.Module):
    FACTOR = 3
    def __init__(self):
        super().__init__()
        self.inner, self.layers = Inner(), nn.ModuleList([Inner(), Inner()])
        self.scale, self.flag, self.kind, self.count, self.seen = 2.0, True, "a", 2, 0
    def forward(self, {parameters}):
        h = x
{body}
        return h
"""


class World:
    """A program, twice - for eager and for the capture - with a namespace, and what it is called with."""

    def __init__(self, steps: list[str], parameters: str = "x, y, n, items, options") -> None:
        body = "\n".join(f"        {part.strip()}" for step in steps for part in _lines(step))
        self.text = _SOURCE.format(body=body, parameters=parameters)
        self.body = body
        filename = f"<program {next(_numbers)}>"
        linecache.cache[filename] = len(self.text), None, self.text.splitlines(True), filename
        self.names: dict[str, Any] = {
            "torch": torch,
            "nn": nn,
            "__name__": "soundness_program",
        }
        exec(compile(self.text, filename, "exec"), self.names)
        self.module: nn.Module = self.names["Program"]()
        self.captured: Any = None
        x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
        self.inputs: dict[str, Any] = {
            "x": x, "y": x + 1, "n": 2, "items": [torch.ones(2), -torch.ones(2)], "options": {"a": 1},
        }  # fmt: skip
        self.around: Callable[[], Any] | None = None

    def modules(self) -> list[Any]:
        """The original and the captured module, for a change to happen to both."""
        return [self.module, self.captured]

    def call(self, program: Any) -> Any:
        """Call a program with inputs of its own."""
        inputs = copy_inputs(self.inputs)
        if self.around is None:
            return program(**inputs)
        with self.around():
            return program(**inputs)


def _lines(step: str) -> list[str]:
    return [step] if step.startswith(("for ", "name ")) and "; " not in step else step.split("; ")


def copy_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Copy inputs, those that are one object as one, and each in its own memory layout."""
    made: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if id(value) in made:
            return made[id(value)]
        if isinstance(value, torch.Tensor):
            new = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value.detach())
            new = new.as_subclass(type(value)) if type(value) is not torch.Tensor else new
            new.requires_grad_(value.requires_grad)
        elif isinstance(value, list | tuple):
            new = type(value)([copied(item) for item in value])
        elif isinstance(value, dict):
            new = {key: copied(item) for key, item in value.items()}
        else:
            new = copy.copy(value)
        made[id(value)] = new
        return new

    return {name: copied(value) for name, value in inputs.items()}


class Marked(torch.Tensor):
    """A subclass of tensors."""


def _set_input(name: str, change: Callable[[World], Any]) -> Callable[[World], None]:
    def changed(world: World) -> None:
        world.inputs[name] = change(world)

    return changed


def _set(name: str, value: Any) -> Callable[[World], None]:
    def changed(world: World) -> None:
        for module in world.modules():
            setattr(module, name, value)

    return changed


def _set_global(name: str, value: Any) -> Callable[[World], None]:
    return lambda world: world.names.__setitem__(name, value)


def _around(manager: Callable[[], Any]) -> Callable[[World], None]:
    def changed(world: World) -> None:
        world.around = manager

    return changed


def _each(change: Callable[[Any], Any]) -> Callable[[World], None]:
    def changed(world: World) -> None:
        for module in world.modules():
            change(module)

    return changed


CHANGES: dict[str, Callable[[World], None]] = {
    "nothing": lambda world: None,
    "other values": _set_input("x", lambda world: -world.inputs["x"]),
    "rank 3": _set_input("x", lambda world: torch.ones(2, 3, 2)),
    "rank 1": _set_input("x", lambda world: torch.ones(2)),
    "one row": _set_input("x", lambda world: torch.ones(1, 2)),
    "no row": _set_input("x", lambda world: torch.ones(0, 2)),
    "five rows": _set_input("x", lambda world: torch.ones(5, 2)),
    "double": _set_input("x", lambda world: world.inputs["x"].double()),
    "integers": _set_input("x", lambda world: world.inputs["x"].long()),
    "another layout": _set_input("x", lambda world: world.inputs["x"].t()),
    "requires grad": _set_input("x", lambda world: world.inputs["x"].clone().requires_grad_()),
    "a subclass": _set_input("x", lambda world: world.inputs["x"].as_subclass(Marked)),
    "one tensor twice": _set_input("y", lambda world: world.inputs["x"]),
    "y is a number": _set_input("y", lambda world: 2.0),
    "n is a float": _set_input("n", lambda world: 2.5),
    "n is a bool": _set_input("n", lambda world: True),
    "n is large": _set_input("n", lambda world: 7),
    "items are a tuple": _set_input("items", lambda world: tuple(world.inputs["items"])),
    "three items": _set_input("items", lambda world: [*world.inputs["items"], torch.ones(2)]),
    "no items": _set_input("items", lambda world: []),
    "another key": _set_input("options", lambda world: {"a": 1, "b": 2}),
    "another option": _set_input("options", lambda world: {"a": 5}),
    "train": _each(lambda module: module.train(not module.training)),
    "no grad": _around(torch.no_grad),
    "autocast": _around(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "scale": _set("scale", 4.0), "flag": _set("flag", False), "kind": _set("kind", "b"), "count": _set("count", 3),
    "seen": _set("seen", 5), "count is none": _set("count", 0),
    "global number": _set_global("SCALE", 5.0), "global text": _set_global("MODE", "b"),
    "global function": _set_global("helper", lambda: 7),
    "class attribute": lambda world: setattr(world.names["Program"], "FACTOR", 4),
    "hook": _each(lambda module: module.inner.register_forward_hook(lambda module, given, out: out * 2)),
    "hook on a layer": _each(
        lambda module: module.layers[0].register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    ),
    "patched forward": _each(lambda module: setattr(module.inner, "forward", lambda h: h * 9)),
    "appended layer": _each(lambda module: module.layers.append(nn.Identity())),
    "swapped module": _each(lambda module: setattr(module, "inner", nn.Identity())),
    "frozen": _each(lambda module: module.inner.weight.requires_grad_(False)),
    "another parameter": _each(lambda module: setattr(module.inner, "weight", nn.Parameter(torch.ones(1) * 3))),
}  # fmt: skip


def draw(seed: int, parameters: str = "x, y, n, items, options") -> tuple[World, str]:
    """Draw a program and the name of a change; `parameters` are its parameters as they are written."""
    chance = random.Random(seed)
    steps = chance.sample(STEPS, chance.choice((1, 1, 2, 3)))
    return World(steps, parameters), chance.choice([*CHANGES])

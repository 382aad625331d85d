"""Random programs: the source of a module's forward, drawn from a seed."""

from __future__ import annotations

import linecache
import random
from collections.abc import Iterator

import torch
from tests.compat.agreement import Comparison, compare
from torch import nn

_UNARY = ["torch.relu({})", "{}.sigmoid()", "-{}", "abs({})", "~({} > 0)", "{}.clamp(min=-1.0, max=1)", "F.gelu({})"]
_BINARY = ["{} + {}", "{} * {} - 1", "2 / ({} + {})", "torch.maximum({}, {})", "{} @ {}.t()", "({} < {}) & True",
           "torch.where({} > 0.5, {}, 0.0)", "torch.stack([{}, {}], dim=0).sum(0)", "{} ** 2 % {}"]  # fmt: skip
_LEAVES = ["self.linear({})", "self.stages({})", "{} + self.weight", "{} * self.offset", "self.inner({}, scale=2)"]
_READS = ["{}[0, None, ..., :2]", "{}[1:, ::2]", "{}.T", "{}.shape[0]", "{}.size(0)", "{}.view({}.size(0), -1)",
          "getattr({}, 'dtype')", "{}.sum(dim=-1, keepdim=True)", "{}.new_ones({}.shape)"]  # fmt: skip
_RESULTS = ["{}", "({}, [{}])", "{{'a': {}, 'b': ({},)}}", "[{}, None, 1.5, slice({}, None)]"]


class _Inner(nn.Module):
    def forward(self, x, scale: float = 1.0, *, bias=0):  # type: ignore[no-untyped-def]
        return torch.tanh(x) * scale + bias


class _Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.stages = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
        self.inner = _Inner()
        self.weight = nn.Parameter(torch.rand(4))
        self.register_buffer("offset", torch.rand(4))


def random_sources(count: int = 400) -> Iterator[Comparison]:
    """Compare `count` random modules, and what they compute on two 4 x 4 inputs."""
    for seed in range(count):
        source = _source(random.Random(seed))
        name = f"<random source {seed}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        names = {"torch": torch, "F": nn.functional}
        exec(compile(source, name, "exec"), names)
        torch.manual_seed(seed)
        module = type("Root", (_Root,), {"forward": names["forward"]})()
        yield compare(f"seed {seed}", module.eval(), (torch.rand(4, 4), torch.rand(4, 4)))


def _source(draw: random.Random) -> str:
    values = ["x", "y"]
    lines = ["def forward(self, x, y=None):"]
    for number in range(draw.randint(1, 9)):
        kind = draw.choice([_UNARY, _BINARY, _BINARY, _LEAVES, _READS, ["unpack"], ["deep"]])
        pattern = draw.choice(kind)
        if pattern == "unpack":
            lines.append(f"    a{number}, b{number} = {draw.choice(values)}.chunk(2)")
            values += [f"a{number}", f"b{number}"]
            continue
        if pattern == "deep":
            pattern = draw.choice(_BINARY).format(f"({draw.choice(_UNARY)})", f"({draw.choice(_BINARY)})")
        lines.append(f"    v{number} = {_fill(pattern, values, draw)}")
        values.append(f"v{number}")
    lines.append(f"    return {_fill(draw.choice(_RESULTS), values, draw)}")
    return "\n".join(lines) + "\n"


def _fill(pattern: str, values: list[str], draw: random.Random) -> str:
    return pattern.format(*(draw.choice(values[-4:]) for _ in range(pattern.count("{}"))))

"""A soak: small modules captured, called, saved, loaded and dropped, thousands of them, in flat memory.

$ python bench/soak.py 10000

Every module is of one of four kinds, with sizes and numbers of its own, so that what is remembered of one helps none
of the others. The caches of the library are as they are by default. After a warm-up that fills what is filled once, the
resident memory of the process is read at ten points; the figure is the slope of the line through them.
"""

from __future__ import annotations

import gc
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import graphwright
from graphwright.capture.state import alike_results

__all__ = ["growth", "run"]


class Gate(nn.Module):
    """A branch on values."""

    def __init__(self, width: int, limit: float) -> None:
        super().__init__()
        self.linear, self.limit = nn.Linear(width, width), limit

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        return hidden * 2 if hidden.sum() > self.limit else hidden - self.limit


class Steps(nn.Module):
    """A loop whose number of rounds the values decide."""

    def __init__(self, width: int, limit: float) -> None:
        super().__init__()
        self.linear, self.limit = nn.Linear(width, width), limit

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        while x.norm() > self.limit + 1:
            x = x / 2
        return x


class Counter(nn.Module):
    """A buffer that a call writes."""

    count: Tensor

    def __init__(self, width: int, limit: float) -> None:
        super().__init__()
        self.norm, self.limit = nn.BatchNorm1d(width), limit
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.norm(x) * self.limit + self.count


def layers(width: int, limit: float) -> nn.Module:
    """Layers in a row."""
    return nn.Sequential(nn.Linear(width, width + 1), nn.ReLU(), nn.LayerNorm(width + 1), nn.Dropout(limit % 1))


KINDS = (Gate, Steps, Counter, layers)
POINTS = 10


def resident_mib() -> float:
    """The resident memory of this process, in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def objects_alive() -> int:
    """How many objects there are beside what torch and captures remember of shapes, which grows to a limit."""
    FakeTensorMode.cache_clear()
    alike_results.forget_all()
    gc.collect()
    return len(gc.get_objects())


def one(number: int, file: Path) -> None:
    """Capture, call, save, load and compare one module."""
    width = 2 + number % 37
    model = KINDS[number % len(KINDS)](width, number / 1000).eval()
    x = torch.ones(3, width)
    gm = graphwright.trace(model, (x,))
    graphwright.save(gm, file)
    loaded = graphwright.load(file, allow=[__name__])
    expected = gm(x)
    if not torch.equal(loaded(x), expected):
        raise AssertionError(f"module {number} computes something else once it is loaded")


def run(count: int, warm_up: int, *, says: bool = False) -> tuple[list[float], int]:
    """MiB at ten points of `count` modules, after `warm_up` ones, and how many objects there are more at the end."""
    out = sys.stdout if says else io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "module.gw")
        for number in range(warm_up):
            one(number, file)
        objects, found, started = objects_alive(), [resident_mib()], time.perf_counter()
        for point in range(POINTS):
            for number in range(point * count // POINTS, (point + 1) * count // POINTS):
                one(warm_up + number, file)
            gc.collect()
            found.append(resident_mib())
            took = time.perf_counter() - started
            print(f"{(point + 1) * count // POINTS:6} modules {found[-1]:8.1f} MiB {took:8.1f} s", file=out, flush=True)
        return found, objects_alive() - objects


def growth(found: list[float], count: int) -> float:
    """KiB for each module: the slope of the line through the points."""
    places = [point * count / POINTS for point in range(len(found))]
    return 1024 * statistics.linear_regression(places, found).slope


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    found, objects = run(count, max(count // 5, 100), says=True)
    print(f"{growth(found, count):.3f} KiB for each module, {found[-1] - found[0]:+.1f} MiB, {objects:+} objects")


if __name__ == "__main__":
    main()

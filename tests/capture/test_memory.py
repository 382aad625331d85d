"""What a capture made goes when the captured module goes, and what failed captures made goes at once."""

from __future__ import annotations

import collections
import gc
import linecache
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from tests.capture.test_interruption import Failing
from tests.capture.untouched import models
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from graphwright import CaptureError, Graph, Node, trace
from graphwright.capture.conversion import conversion
from graphwright.capture.state.examples import Examples
from graphwright.capture.state.regions import Region
from graphwright.capture.state.symbols import Symbol
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.capture.typed.recorder import Recorder
from graphwright.codegen import compile_source
from graphwright.runtime import Shells
from graphwright.source import frames, source_files

X = torch.linspace(-1.0, 2.0, 12).view(3, 4)
ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
KINDS = (
    Recorder,
    Region,
    Graph,
    Node,
    Symbol,
    TensorProxy,
    FakeTensor,
    Examples,
    Shells,
    nn.Module,
    FrameType,
)


def _capture(model: nn.Module) -> None:
    gm = trace(model, X)
    gm(X)
    assert gm.code


def _fail(model: nn.Module) -> None:
    with pytest.raises((KeyError, CaptureError, RuntimeError)):
        trace(model, X)


def _alive() -> dict[str, int]:
    """How many there are of what captures are made of."""
    gc.collect()
    compile_source("def f(): pass\n", {}, "flush", "f")  # removes the source of functions that are gone
    kinds = collections.Counter(map(type, gc.get_objects()))
    found = {kind.__name__: count for kind, count in kinds.items() if issubclass(kind, KINDS)}
    found["source"] = sum(name.startswith("<graphwright") for name in linecache.cache)
    found["code"] = len(conversion._codes) + len(conversion._made) + len(frames._places)
    found["files"] = len(source_files._parsed)
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("model", models()[::2], ids=lambda model: type(model).__name__)
def test_a_captured_module_goes_with_all_that_made_it(model: nn.Module) -> None:
    _capture(model)
    gm = trace(model, X)
    gm(X)
    kept = [weakref.ref(item) for item in (gm, gm.graph, type(gm), gm.forward.__func__)]
    del gm
    gc.collect()
    assert [ref() for ref in kept] == [None] * 4
    _capture(model)
    before = _alive()
    for _ in range(3):
        _capture(model)
    assert _alive() == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["error", "refusal", "shape"])
def test_a_failed_capture_leaves_nothing(how: str) -> None:
    model = Failing(how)
    _fail(model)
    before = _alive()
    for _ in range(3):
        _fail(model)
    assert _alive() == before


def _made_anew(number: int) -> Any:
    """A function of code of its own, that asks."""
    source = f"def f(x):\n    if x.sum() > 1:\n        return x\n    return -x  # {number}\n"
    name = f"<made anew {number}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    names: dict[str, Any] = {}
    exec(compile(source, name, "exec"), names)
    return names["f"]


@pytest.mark.slow
def test_functions_that_go_take_their_conversions_along() -> None:
    def capture(number: int) -> None:
        function = _made_anew(number)
        _capture_function(function)
        linecache.cache.pop(function.__code__.co_filename)

    capture(0)
    capture(1)
    before = _alive()["code"]
    for number in range(2, 12):
        capture(number)
    assert _alive()["code"] == before


def _capture_function(function: Any) -> None:
    gm = trace(function, X)
    assert torch.equal(gm(X), function(X))


def _resident_mib() -> float:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def capture_two_thousand_times() -> tuple[int, float]:
    """How many objects, and MiB of memory, a process has more after two thousand captures than after five hundred."""
    chosen = models()[::2]

    def capture(times: int) -> None:
        for number in range(times):
            _capture(chosen[number % len(chosen)])

    capture(500)
    before, objects = _resident_mib(), len(gc.get_objects())
    capture(2_000)
    gc.collect()
    return len(gc.get_objects()) - objects, _resident_mib() - before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of the process from /proc")
def test_two_thousand_captures_in_flat_memory() -> None:
    program = "from tests.capture.test_memory import capture_two_thousand_times as run; print(*run())"
    command = [sys.executable, "-c", program]  # a process of its own: the memory of this one has holes
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": PATH}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    objects, mib = done.stdout.split()
    assert int(objects) < 500
    assert float(mib) < 10

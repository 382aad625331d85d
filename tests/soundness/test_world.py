"""What a program reads of the world is said at its line, or guarded; what libraries read for themselves is not."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import copy
import datetime
import decimal
import fractions
import gc
import inspect
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import re
import secrets
import sys
import textwrap
import threading
import time
import uuid
import warnings
import zlib
from collections.abc import Callable
from time import perf_counter as now
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GraphwrightError, GuardError, TracerWarning, symbolic_trace, trace
from graphwright.capture.outside.process_state import GETTERS, MACHINE

X = torch.ones(2)
HERE = pathlib.Path(__file__)


def asked_twice(x: torch.Tensor) -> torch.Tensor:
    start = now()
    x = x * 2
    return x * (now() - start)


def helped(x: torch.Tensor) -> torch.Tensor:
    return x * stamp()


def stamp() -> float:
    return now()


class Timed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        started = time.monotonic_ns()
        return self.linear(x) * (time.monotonic_ns() - started)


STEP = contextvars.ContextVar("STEP", default=2)
MAYBE: contextvars.ContextVar[int | None] = contextvars.ContextVar("MAYBE", default=None)
LOG = logging.getLogger(__name__)


def digits() -> int:
    return decimal.getcontext().prec


class Staged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def scale(self) -> int:
        return STEP.get()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale()


SAID = [
    pytest.param(lambda x: x * time.time(), ["time.time()"], id="time"),
    pytest.param(asked_twice, ["time.perf_counter()", "time.perf_counter()"], id="by another name"),
    pytest.param(helped, ["time.perf_counter()"], id="in a helper"),
    pytest.param(Timed(), ["time.monotonic_ns()", "time.monotonic_ns()"], id="in a module"),
    pytest.param(lambda x: x * datetime.datetime.now().year, ["datetime.datetime.now()"], id="now"),
    pytest.param(lambda x: x * datetime.date.today().day, ["datetime.date.today()"], id="today"),
    pytest.param(lambda x: x * (uuid.uuid4().int % 7), ["uuid.uuid4()"], id="uuid"),
    pytest.param(lambda x: x * secrets.randbelow(4), ["secrets.randbelow()"], id="secrets"),
    pytest.param(lambda x: x * len(os.urandom(3)), ["os.urandom()"], id="urandom"),
    pytest.param(lambda x: x * len(os.environ["PATH"]), ["os.environ['PATH']"], id="environ"),
    pytest.param(lambda x: x * len(os.getenv("PATH", "")), ["os.environ['PATH']"], id="getenv"),
    pytest.param(lambda x: x * ("PATH" in os.environ), ["os.environ['PATH']"], id="in environ"),
    pytest.param(lambda x: x * os.getpid(), ["os.getpid()"], id="getpid"),
    pytest.param(lambda x: x * len(HERE.read_text()), ["open()"], id="read_text"),
    pytest.param(lambda x: x * os.path.exists("/"), ["os.path.exists()"], id="exists"),
    pytest.param(lambda x: x if torch.cuda.is_available() else x * 2, ["torch.cuda.is_available()"], id="the machine"),
    # What is on no list: all that is not known to compute only.
    pytest.param(lambda x: x * STEP.get(), ["contextvars.ContextVar.get()"], id="ContextVar"),
    pytest.param(lambda x: x if MAYBE.get() is None else x * 2, ["contextvars.ContextVar.get()"], id="no value"),
    pytest.param(Staged(), ["contextvars.ContextVar.get()"], id="in a method of a module"),
    pytest.param(lambda x: x * digits(), ["decimal.getcontext()"], id="a context of decimals"),
    pytest.param(lambda x: x * threading.active_count(), ["threading.active_count()"], id="threads"),
    pytest.param(lambda x: x * sys.getrecursionlimit(), ["sys.getrecursionlimit()"], id="a limit"),
    pytest.param(lambda x: x * 2 if gc.isenabled() else x, ["gc.isenabled()"], id="the collector"),
    pytest.param(lambda x: x if LOG.isEnabledFor(10) else x * 2, ["logging.Logger.isEnabledFor()"], id="a level"),
]


@pytest.mark.parametrize(("program", "what"), SAID)
def test_what_is_read_of_the_world_is_said(program: Callable[..., Any], what: list[str]) -> None:
    with pytest.warns(TracerWarning) as told:
        gm = trace(program, (X,))
    for texts in ([str(each.message) for each in told], [entry.text for entry in gm.report.said]):
        assert len(texts) == len(what)
        assert all(f"{one} was read" in text for one, text in zip(what, texts, strict=True))
    assert all(each.filename == __file__ for each in told)
    assert all("test_world.py" in entry.at for entry in gm.report.said)


def logged(x: torch.Tensor) -> torch.Tensor:
    logging.getLogger(__name__).info("captured")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("once", stacklevel=1)
    return torch.nn.functional.dropout(x, 0.5)


def computed(x: torch.Tensor) -> torch.Tensor:
    names = sorted({"b": 1, "a": 2}.items(), key=operator.itemgetter(0))
    text = json.dumps([*map(str, names)]) + re.sub("a", "b", "abc").upper() + "".join(itertools.chain("ab", "c"))
    text += inspect.signature(digits).return_annotation + os.path.join("a", "b") + textwrap.dedent(" a")
    deep = copy.deepcopy({"a": [1]})
    with contextlib.nullcontext(), threading.Lock():
        return x * math.sqrt(len(text)) * deep["a"][0] * zlib.crc32(b"a") * int(fractions.Fraction(4, 2))


NOT_SAID = [
    pytest.param(logged, id="logs, warnings and torch have clocks and files of their own"),
    pytest.param(lambda x: x * len(time.ctime(0)), id="a time of the program's"),
    pytest.param(lambda x: x * datetime.datetime(2020, 1, 1).year, id="a date of the program's"),
    pytest.param(computed, id="what computes"),
]


@pytest.mark.parametrize("program", NOT_SAID)
def test_what_is_not_read_of_the_world_is_not_said(program: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not trace(program, (X,)).report.said


def test_what_is_heard_of_is_itself_again() -> None:
    before = time.time, open, os.environ.get, datetime.datetime, torch.Generator, torch.manual_seed
    with pytest.warns(TracerWarning):
        trace(lambda x: x * time.time(), (X,))
    assert (time.time, open, os.environ.get, datetime.datetime, torch.Generator, torch.manual_seed) == before
    assert isinstance(datetime.datetime, type) and type(time.time()) is float


def by_default(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.get_default_dtype()) * 2


def test_what_the_process_has_is_guarded() -> None:
    gm = trace(by_default, (X,))
    assert gm(X).dtype is torch.float32
    try:
        torch.set_default_dtype(torch.float64)
        with pytest.raises(GuardError, match=r"float32 in torch.get_default_dtype\(\); now it is torch.float64"):
            gm(X)
    finally:
        torch.set_default_dtype(torch.float32)


def in_double(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return x + torch.ones(2)
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_the_process_is_set_to_is_set_at_each_call() -> None:
    for gm in (trace(in_double, (X,)), symbolic_trace(in_double)):
        assert gm(X).dtype is torch.float64 is in_double(X).dtype
        assert torch.get_default_dtype() is torch.float32 and not gm.guards


def with_more_threads(x: torch.Tensor) -> torch.Tensor:
    torch.set_num_threads(2)
    return x * 2


def test_a_capture_leaves_what_the_program_sets() -> None:
    before = torch.get_num_threads()
    try:
        for capture in (lambda program: trace(program, (X,)), symbolic_trace):
            torch.set_num_threads(1)
            gm = capture(with_more_threads)
            assert torch.get_num_threads() == 1
            gm(X)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def sets_a_flag(x: torch.Tensor) -> torch.Tensor:
    torch.set_flush_denormal(True)
    return x * 2


def sets_a_backend(x: torch.Tensor) -> torch.Tensor:
    torch.backends.cuda.enable_math_sdp(True)
    return x * 2


def assigns_a_flag(x: torch.Tensor) -> torch.Tensor:
    torch.backends.cudnn.benchmark = True
    return x


def assigns_a_flag_inside(x: torch.Tensor) -> torch.Tensor:
    torch.backends.cuda.matmul.allow_tf32 = bool(x.sum() > 0)
    return x


def assigns_a_flag_by_text(x: torch.Tensor) -> torch.Tensor:
    setattr(torch.backends.cudnn, "benchmark", True)  # noqa: B010
    return x


def sets_flags(x: torch.Tensor) -> torch.Tensor:
    torch.backends.cudnn.set_flags(_benchmark=True)
    return x


def assigns_elsewhere(x: torch.Tensor) -> torch.Tensor:
    torch.utils.deterministic.fill_uninitialized_memory = False
    return x


SETS = [
    *(sets_a_flag, sets_a_backend, assigns_a_flag, assigns_a_flag_inside, assigns_a_flag_by_text, sets_flags),
    assigns_elsewhere,
]


@pytest.mark.parametrize("capture", [lambda program: trace(program, (X,)), symbolic_trace])
@pytest.mark.parametrize("program", SETS, ids=lambda program: program.__name__)
def test_what_no_graph_sets_is_refused(program: Any, capture: Any) -> None:
    with torch.backends.__allow_nonbracketed_mutation():  # type: ignore[attr-defined] # which torch's own tests forbid
        with pytest.raises(GraphwrightError, match=r"(?s)changes what torch does in the whole process.* at test_world"):
            capture(program)
    assert not torch.backends.cudnn.benchmark and not torch.backends.cuda.matmul.allow_tf32
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_flags_that_a_context_sets_are_a_region() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            return x * 2

    assert "flags(enabled=False)" in trace(program, (X,)).code


def silences(x: torch.Tensor) -> torch.Tensor:
    warnings.simplefilter("ignore")
    return x


def limits(x: torch.Tensor) -> torch.Tensor:
    sys.setrecursionlimit(sys.getrecursionlimit())
    return x


def test_what_the_program_sets_of_the_world_is_said() -> None:
    for program, what in ((silences, "warnings.simplefilter()"), (limits, "sys.setrecursionlimit()")):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            gm = trace(program, (X,))
        assert any(f"{what} is called: the captured program does not" in each.text for each in gm.report.said)


def profiles(x: torch.Tensor) -> Any:
    with torch.autograd.profiler.profile() as profile:
        y = x * 2
    return y, len(profile.function_events or ())


def test_what_a_profile_tells_is_said() -> None:
    with pytest.warns(TracerWarning, match=r"torch.autograd.profiler.profile\(\) was read: its value is the capture's"):
        trace(profiles, (X,))


def starts_threads(x: torch.Tensor) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(x * 2))
    thread.start()
    thread.join()
    return found


def has_a_pool(x: torch.Tensor) -> Any:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [*pool.map(lambda i: x * i, range(3))]


@pytest.mark.parametrize("capture", [lambda program: trace(program, (X,)), symbolic_trace])
@pytest.mark.parametrize("program", [starts_threads, has_a_pool], ids=lambda program: program.__name__)
def test_threads_of_a_program_are_refused(program: Any, capture: Any) -> None:
    with pytest.raises(GraphwrightError, match=r"(?s)starts a thread: a graph has none.* at test_world"):
        capture(program)


def writes_out(x: torch.Tensor) -> torch.Tensor:
    sys.stdout.write(f"{x.shape[0]} rows\n")
    return x


def test_what_is_written_to_the_output_is_printed_at_each_call(capsys: Any) -> None:
    gm = trace(writes_out, (X,))
    assert capsys.readouterr().out == ""
    gm(torch.ones(5))
    assert capsys.readouterr().out == "5 rows\n"


# Of the functions of torch that are called `get_...` or `is_...` and take no tensor: those of which others know.
OTHERS: dict[str, tuple[str, ...]] = {
    "grad mode and autocast, as regions": (
        "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "is_autocast_cpu_enabled",
        "is_autocast_cache_enabled", "is_autocast_ipu_enabled", "is_autocast_xla_enabled", "get_autocast_dtype",
        "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "get_autocast_ipu_dtype", "get_autocast_xla_dtype",
    ),
    "random state, as nodes": ("get_rng_state",),
    "nothing that changes": ("get_device_module", "get_file_path"),
    "a tensor, or another value": (
        "get_device", "is_complex", "is_conj", "is_distributed", "is_floating_point", "is_inference", "is_neg",
        "is_nonzero", "is_same_size", "is_signed", "is_storage", "is_tensor",
    ),
}  # fmt: skip


def test_every_getter_of_torch_is_known() -> None:
    known = {*GETTERS["torch"], *MACHINE["torch"], *(name for names in OTHERS.values() for name in names)}
    asks = {name for name in dir(torch) if name.startswith(("get_", "is_", "are_")) and callable(getattr(torch, name))}
    assert asks <= known
    for path, names in {**GETTERS, **MACHINE}.items():
        module: Any = torch
        for part in path.split(".")[1:]:
            module = getattr(module, part)
        assert all(callable(getattr(module, name)) for name in names)

"""Settings for every test, doctests of src/ included: reproducible properties, one thread, a fixed random state."""

from __future__ import annotations

import collections
import gc
import itertools
import linecache
import random
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from tests.torch_releases import HAS_ONNX, why_left_out

collect_ignore_glob = [] if HAS_ONNX else ["src/graphwright/onnx/*", "tests/onnx/*", "tests/*/test_zoo.py"]

# Examples are found by a search seeded from the test itself, so that a failure comes back on every machine; a
# failure prints the blob that replays it. Time limits per example would only measure how busy the machine is.
for _name, _examples in (("quick", 20), ("every", 100)):
    hypothesis.settings.register_profile(
        _name,
        deadline=None,
        derandomize=True,
        print_blob=True,
        max_examples=_examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    )

torch.set_num_threads(1)

# Each `torch.manual_seed` keeps the text of its stack, thrice, for devices that are not there: 0.3 ms and 20 KB a test.
SEED = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed

_FINISHED = itertools.count(1)

# By test file: what it has given to `graphwright.wrap`.
_WRAPPED: dict[Path, tuple[dict[Any, Any], ...]] = collections.defaultdict(lambda: ({}, {}))


def pytest_configure(config: pytest.Config) -> None:
    """Look at fewer examples of each property where slow tests are left out."""
    hypothesis.settings.load_profile("quick" if config.getoption("markexpr") == "not slow" else "every")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported and collected from the garbage collector, which else goes over it in each test again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(5_000, 20, 20)  # as it is by default, it takes a twentieth of the time


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, object]:
    """Take what a file wraps away until its tests run: captures of all the others would watch for calls of it."""
    report = yield
    if isinstance(collector, pytest.Module):
        for table, own in zip(_tables_of_wrapped(), _WRAPPED[collector.path], strict=False):
            own.update(table)
        _wrap(({}, {}))
    return report


def _tables_of_wrapped() -> tuple[dict[Any, Any], ...]:
    module = sys.modules.get("graphwright.capture.symbolic.wrap")
    return () if module is None else (module.WRAPPED, module._functions)


def _wrap(wrapped: tuple[dict[Any, Any], ...]) -> None:
    for table, entries in zip(_tables_of_wrapped(), wrapped, strict=False):
        table.clear()
        table.update(entries)


def pytest_runtest_logfinish() -> None:
    """Keep from it, too, what tests have imported and put into caches since, now and then."""
    if next(_FINISHED) % 300 == 0:
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what compares with the torch.fx of another release; of a sample, all but each n-th quick one are slow.

    Where a test has several tables, n shares no factor with the lengths of the upper ones: each row has its turn.
    """
    places: collections.Counter[str] = collections.Counter()
    for item in items:
        sample = item.get_closest_marker("sampled")
        if sample is not None and item.get_closest_marker("slow") is None:
            function = item.nodeid.partition("[")[0]
            if places[function] % sample.args[0]:
                item.add_marker(pytest.mark.slow)
            places[function] += 1
        reason = why_left_out(item.nodeid)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip what needs `graphwright.onnx`, where that says that it needs another release of torch."""
    try:
        return (yield)
    except Exception as error:
        if not HAS_ONNX and "graphwright.onnx is tested with torch" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    """Start every test from the same random state."""
    random.seed(0)
    SEED(0)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """Start every test without what captures before it have learned, on which passes and reports depend."""
    for name in ("state.alike_results", "typed.remembered"):
        module = sys.modules.get(f"graphwright.capture.{name}")
        if module is not None:
            module.forget_all()


@pytest.fixture(autouse=True, scope="module")
def _wrapped_by_its_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have wrapped what a test file wraps, and nothing that others do."""
    _wrap(_WRAPPED[request.path])
    if not request.path.name.startswith("test_"):  # each doctest looks whether the files in the cache have changed
        for name in [name for name, entry in linecache.cache.items() if len(entry) > 1 and entry[1] is not None]:
            del linecache.cache[name]
    yield
    _wrap(({}, {}))


@pytest.fixture
def prefer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the first of some names that can be had win every measurement of engines."""
    from graphwright.engines import choosing, optimizing
    from graphwright.engines.measure import Measured

    def set_up(*names: str) -> None:
        def chosen(calls: Mapping[str, Callable[[], Any]], seconds: float, before: Any = None) -> Measured:
            for call in calls.values():
                call()
            return Measured(next((name for name in names if name in calls), next(iter(calls))), {})

        for module in (choosing, optimizing):
            monkeypatch.setattr(module, "fastest", chosen)

    return set_up


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone: what is sent, is sent within it."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()

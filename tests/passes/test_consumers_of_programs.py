"""Each consumer of graphs takes real programs with branches, loops and orders: those of the tests, and the zoo's."""

from __future__ import annotations

import copy
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.capture.loop_programs import ROWS
from tests.capture.order_programs import ORDERS
from tests.capture.test_comprehensions import NOT_CAPTURED, PROGRAMS, XS
from tests.passes.test_region_consumers import CONSUMERS
from tests.script.test_attempts import FUNCTIONS
from tests.zoo.judging import JUDGE
from torch.utils._pytree import tree_leaves

import graphwright
from graphwright.ir import format_table


@functools.cache
def programs() -> list[tuple[str, Any, Any]]:
    """Programs, each captured, with the inputs of some calls."""
    found: list[tuple[str, Any, Any]] = []
    for program in ORDERS:
        name = getattr(program, "__name__", type(program).__name__)
        found.append((name, graphwright.trace(program, ROWS[0]), [(x,) for x in ROWS]))
    for program, inputs in FUNCTIONS:  # with `try`
        name = getattr(program, "__name__", type(program).__name__)
        found.append((name, graphwright.script(program), [args for args in inputs if _runs(program, args)][::3]))
    for program in PROGRAMS:
        if not any(program.__name__ in names.split() for names in NOT_CAPTURED.values()):
            found.append((program.__name__, graphwright.trace(program, (XS[0],)), [(x,) for x in XS[::2]]))
    return [*found, *_of_the_zoo()]


def _runs(program: Any, args: Any) -> bool:
    try:
        copy.deepcopy(program)(*args)
    except (RuntimeError, ValueError):
        return False
    return True


def _of_the_zoo() -> Iterator[tuple[str, Any, Any]]:
    if not JUDGE.exists():
        return
    sys.path.insert(0, str(JUDGE.parent))
    for name, entry in importlib.import_module("zoo").ZOO.items():
        if entry.set == "classic" and name not in _SPOKEN:
            torch.manual_seed(0)
            module, first = entry.build().eval(), (entry.sizes or (4, 6))[0]
            calls = [entry.inputs(batch, first, batch)[0] for batch in (2, 3)]
            yield name, graphwright.trace(module, copy.deepcopy(calls[0])), calls


_SPOKEN = ("classic/print_fstring",)  # prints


def outcome(run: Callable[..., Any], args: Any) -> list[Any]:
    torch.manual_seed(0)
    given = copy.deepcopy(args)
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves((run(*given), given))]


def agrees(consume: Callable[[Any], Callable[..., Any]]) -> None:
    """What a consumer makes of each program gives what the program gives, inputs afterwards included."""
    for name, gm, calls in programs():
        for args in calls:
            wanted = outcome(copy.deepcopy(gm), args)  # it may count its calls
            found = outcome(consume(copy.deepcopy(gm)), args)
            assert len(found) == len(wanted), name
            for mine, its in zip(found, wanted, strict=True):
                if isinstance(its, torch.Tensor):
                    torch.testing.assert_close(mine, its, rtol=0, atol=0, msg=lambda why, name=name: f"{name}: {why}")
                else:
                    assert type(mine) is type(its) and (mine == its or its != its), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_it_does_what_the_programs_do(consumer: str) -> None:
    agrees(CONSUMERS[consumer])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_files_hold_them(tmp_path: Path) -> None:
    def through_a_file(gm: Any) -> Any:
        graphwright.save(gm, tmp_path / "net.gw")
        return graphwright.load(tmp_path / "net.gw", allow=["tests", "zoo_classic"])

    agrees(through_a_file)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_folders_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def through_a_folder(gm: Any) -> Any:
        made.append(f"package_{len(made)}")
        gm.to_folder(tmp_path / made[-1], "Captured")
        return importlib.import_module(made[-1]).Captured()

    try:
        agrees(through_a_folder)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in made]:
            del sys.modules[name]


@pytest.mark.slow
def test_lint_and_tables_take_them() -> None:
    for _, gm, _ in programs():
        gm.graph.lint()
        assert len(format_table(gm.graph).splitlines()) >= len(gm.graph.nodes)

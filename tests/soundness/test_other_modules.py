"""What a program reads of modules of Python: by a global name, by an import when it runs, or of torch's backends."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from graphwright import CaptureError, GuardError, trace

X = torch.ones(2, 4)
HELPER = """
import torch
K, T = 2, torch.ones(4)
class Config:
    factor = 3
def scaled(x):
    return x * K
"""
PROGRAM = """
import torch
import math as numbers_of
import torch.nn.functional as F
from torch.backends import cudnn as backend
import {0}
import {0} as helper
def by_name(x): return x * {0}.K
def by_other_name(x): return x + helper.T
def calls(x): return helper.scaled(x)
def of_class(x): return x * helper.Config.factor
def of_python(x): return x * numbers_of.pi
def imports(x):
    import {0}
    return x * {0}.K
def imports_names(x):
    from {0} import K, T
    return x * K + T
def imports_what_may_be_missing(x):
    try:
        from {0} import EXTRA
    except ImportError:
        EXTRA = 1
    return x * EXTRA
def imports_by_text(x):
    import importlib
    return x * importlib.import_module("{0}").K
def flag(x): return x * 2 if torch.backends.cudnn.benchmark else x
def flag_by_name(x): return x * 2 if backend.benchmark else x
def flag_of_variable(x):
    flags = torch.backends.cudnn
    return x * 2 if flags.benchmark else x
def flag_imported(x):
    from torch.backends import cudnn
    return x * 2 if cudnn.benchmark else x
def flag_inside(x): return x * 2 if torch.backends.cuda.matmul.allow_tf32 else x
def usual(x): return F.relu(torch.relu(x))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The functions above, in a file of the user's, and its helper in another one."""
    name = f"helper_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(HELPER)
    (tmp_path / "program.py").write_text(PROGRAM.format(name))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "program", raising=False)
    monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    return importlib.import_module("program")


def put(name: str, value: Any) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda program, patch: patch.setattr(program.helper, name, value, raising=False)


def replaced(program: ModuleType) -> ModuleType:
    made = ModuleType("another")
    vars(made).update(vars(program.helper), K=7, T=torch.zeros(4), scaled=lambda x: x * 7)
    made.Config = type("Config", (), {"factor": 9})  # type: ignore[attr-defined]
    return made


def named(name: str) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda program, patch: patch.setattr(program, name or program.helper.__name__, replaced(program))


def turned_on(flags: Any, name: str) -> Callable[[Any, pytest.MonkeyPatch], None]:
    def change(program: ModuleType, patch: pytest.MonkeyPatch) -> None:
        setattr(flags, name, True)  # which a patch could not take back: nothing is in their dict

    return change


WAYS: list[tuple[str, str, Callable[[Any, pytest.MonkeyPatch], None]]] = [
    ("by_name", "number", put("K", 5)),
    ("by_name", "module", named("")),
    ("by_other_name", "tensor", put("T", torch.zeros(4))),
    ("by_other_name", "module", named("helper")),
    ("calls", "function", put("scaled", lambda x: x * 9)),
    ("calls", "number", put("K", 5)),
    ("calls", "module", named("helper")),
    ("of_class", "number", lambda program, patch: patch.setattr(program.helper.Config, "factor", 9)),
    ("of_class", "module", named("helper")),
    ("of_python", "module", lambda program, patch: patch.setattr(program, "numbers_of", ModuleType("other"))),
    ("imports", "number", put("K", 5)),
    (
        "imports",
        "module",
        lambda program, patch: patch.setitem(sys.modules, program.helper.__name__, replaced(program)),
    ),
    ("imports_names", "number", put("K", 5)),
    ("imports_names", "tensor", put("T", torch.zeros(4))),
    ("imports_what_may_be_missing", "name", put("EXTRA", 5)),
    ("imports_by_text", "number", put("K", 5)),
    ("flag", "flag", turned_on(torch.backends.cudnn, "benchmark")),
    ("flag_by_name", "flag", turned_on(torch.backends.cudnn, "benchmark")),
    ("flag_of_variable", "flag", turned_on(torch.backends.cudnn, "benchmark")),
    ("flag_imported", "flag", turned_on(torch.backends.cudnn, "benchmark")),
    ("flag_inside", "flag", turned_on(torch.backends.cuda.matmul, "allow_tf32")),
]


@pytest.fixture(autouse=True)
def _flags() -> Iterator[None]:
    with torch.backends.__allow_nonbracketed_mutation():  # type: ignore[attr-defined] # which torch's own tests forbid
        yield
        torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize(("function", "what", "change"), WAYS, ids=[f"{way[0]}, {way[1]}" for way in WAYS])
def test_what_is_read_of_a_module_is_guarded(
    function: str, what: str, change: Any, program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = getattr(program, function)
    gm = trace(run, (X,))
    for _ in range(2):
        assert torch.equal(gm(X), run(X))
    change(program, monkeypatch)
    with pytest.raises(GuardError):
        gm(X)


def test_torch_under_its_usual_names_is_not_looked_at(program: ModuleType) -> None:
    assert not trace(program.usual, (X,)).guards


WRITING = """
import sys
import {0}
import {0} as helper
def by_name(x):
    {0}.K = x.shape[0]
    return x * helper.K
def of_variable(x):
    other = helper
    other.K += 1
    return x * {0}.K
def by_text(x):
    setattr(helper, "K", 7)
    return x
def on_a_way(x):
    if x.sum() > 0:
        helper.K += 1
    return helper.scaled(x)
def imported(x):
    import {0} as here
    here.K += 1
    return here.scaled(x)
def of_a_table(x):
    sys.modules["{0}"].K += 1
    return helper.scaled(x)
def deleted(x):
    del helper.K
    return x
"""


@pytest.mark.parametrize("name", ["by_name", "of_variable", "by_text", "on_a_way", "imported", "of_a_table"])
def test_what_is_written_to_a_module_is_written_at_each_call(name: str, program: ModuleType) -> None:
    exec(WRITING.format(program.helper.__name__), vars(program))
    run, stories = getattr(program, name), []
    gm = trace(run, (X,))
    assert program.helper.K == 2  # the capture changes nothing
    for function in (run, gm):
        results = [(function(x), program.helper.K) for x in (X, -X, X * 2)]
        program.helper.K = 2
        stories.append(results)
    torch.testing.assert_close(*stories)


def test_a_variable_of_a_module_that_is_deleted_is_refused(program: ModuleType) -> None:
    exec(WRITING.format(program.helper.__name__), vars(program))
    with pytest.raises(CaptureError, match=r"deletes \S+\.K"):
        trace(program.deleted, (X,))

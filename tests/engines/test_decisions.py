"""The file of decisions: the user's own and whole, or as if it were not there; and nothing that it says is an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphwright.engines.decisions import Decisions
from graphwright.settings import config

KEPT = {"linear [1, 64] -> 64": "addmm"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Decisions(tmp_path / "cache").keep(KEPT)
    (file,) = (tmp_path / "cache").iterdir()
    assert Decisions(file.parent).known == KEPT
    return file


def holds(text: str | bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(text if isinstance(text, bytes) else text.encode())


def with_kernels(kernels: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(f'{{"about": {json.dumps(json.loads(file.read_text())["about"])}, {kernels}}}')


def another(kind: str) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        moved = file.rename(file.parent.parent / "moved")
        if kind == "link":
            file.symlink_to(moved)
        elif kind == "pipe":
            os.mkfifo(file, 0o600)
        elif kind == "folder":
            file.mkdir(0o700)
        else:
            folder = file.parent.rename(file.parent.parent / "other")
            moved.rename(folder / file.name)
            file.parent.symlink_to(folder)

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(holds("[" * 200_000), id="nested"),
        pytest.param(holds("9" * 10_000), id="a long number"),
        pytest.param(holds(b"\xff\xfe"), id="no text"),
        pytest.param(holds("x" * (1 << 23)), id="long"),
        pytest.param(lambda file: os.truncate(file, 1 << 40), id="a terabyte of zeros"),
        pytest.param(with_kernels('"kernels": NaN'), id="NaN"),
        pytest.param(with_kernels('"kernels": {"linear [1, 64] -> 64": 1e999}'), id="a number for a name"),
        pytest.param(lambda file: file.chmod(0o640), id="others may read it"),
        pytest.param(lambda file: file.parent.chmod(0o770), id="others may enter"),
        pytest.param(another("link"), id="a link"),
        pytest.param(another("pipe"), id="a pipe"),
        pytest.param(another("folder"), id="a folder"),
        pytest.param(another("linked folder"), id="a linked folder"),
    ],
)
def test_what_is_not_the_users_own_or_not_whole_is_not_there(change: Callable[[Path], object], file: Path) -> None:
    change(file)
    decisions = Decisions(file.parent)
    assert decisions.known == {}
    decisions.keep(KEPT)
    file.parent.chmod(0o700)
    assert Decisions(file.parent).known in ({}, KEPT)


def test_names_of_kernels_are_any_texts(file: Path) -> None:
    with_kernels(r'"kernels": {"\ud800\u0000": "\u001b[31m", "a": 1}')(file)
    assert Decisions(file.parent).known == {"\ud800\0": "\x1b[31m"}
    Decisions(file.parent).keep(KEPT)
    assert len(Decisions(file.parent).known) == 2


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind(file: Path) -> None:
    script = f"""
import pathlib, resource, signal
from graphwright.engines.decisions import Decisions
decisions = Decisions(pathlib.Path({str(file.parent)!r}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
decisions.keep({{"a" * 1000: "b"}})
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert list(file.parent.iterdir()) == [file] and Decisions(file.parent).known == KEPT


def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GRAPHWRIGHT_CACHE", raising=False)
    monkeypatch.setattr("pathlib.Path.home", home)
    decisions = Decisions()
    decisions.keep(KEPT)
    assert decisions.known == {} and config.cache_folder is None and "None" in repr(config)

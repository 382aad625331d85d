"""Files on disk: every byte counts, and a save that fails leaves what was there."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import graphwright
from graphwright.errors import ExportError, LoadError
from graphwright.runtime.packaging import whole_files
from graphwright.runtime.packaging.weights import save_tensors
from graphwright.runtime.saving import saving


def captured(value: float = 1.0) -> nn.Module:
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, value)
    return graphwright.trace(model, (torch.ones(1, 3),))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "model.gw"
    graphwright.save(captured(), file)
    return file


# ---- every byte counts


def refuses(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(LoadError):
        graphwright.load(file)


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_noticed(count: int, saved: Path) -> None:
    good = saved.read_bytes()
    chosen = random.Random(count)
    for _ in range(count):
        bad = bytearray(good)
        bad[chosen.randrange(len(bad))] ^= 1 << chosen.randrange(8)
        refuses(saved, bytes(bad))


@pytest.mark.slow
def test_each_bit_around_the_sum_is_noticed(saved: Path) -> None:
    good = saved.read_bytes()
    place = good.index(whole_files.SUM.encode())
    for index in (*range(16), *range(place - 2, place + len(whole_files.SUM) + 70)):
        for bit in range(8):
            bad = bytearray(good)
            bad[index] ^= 1 << bit
            refuses(saved, bytes(bad))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda good: b"",
    "the last byte is gone": lambda good: good[:-1],
    "a byte within is gone": lambda good: good[:-9] + good[-8:],
    "one byte more": lambda good: good + b"\0",
    "half of it": lambda good: good[: len(good) // 2],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_missing_and_added_bytes_are_noticed(damage: Callable[[bytes], bytes], saved: Path) -> None:
    refuses(saved, damage(saved.read_bytes()))


def test_a_file_of_an_earlier_format_is_read_without_a_sum(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = saved.read_bytes()
    without_sum = good.replace(f'"{whole_files.SUM}":"'.encode(), b'"sha000":"')
    assert without_sum != good
    refuses(saved, without_sum)
    monkeypatch.setattr(saving, "FORMAT", 2)
    monkeypatch.setattr(whole_files, "SUM", "sha000")
    monkeypatch.setattr(whole_files, "_KEY", b'"sha000":"')
    graphwright.save(captured(), saved)
    monkeypatch.undo()
    assert graphwright.load(saved)(torch.ones(1, 3)).shape == (1, 2)


def test_it_is_a_file_of_safetensors_for_any_reader(tmp_path: Path) -> None:
    tensors = {
        "sha256": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "bytes": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "none": torch.empty(0, 4),
        "one": torch.tensor(2.5, dtype=torch.float64),
        "flags": torch.tensor([True, False]),
    }
    save_tensors(tensors, tmp_path / "a", {"text": '"sha256":"' + "0" * 64})
    found = load_file(tmp_path / "a")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) and found[name].dtype == tensors[name].dtype for name in found)
    assert whole_files.check_sum(tmp_path / "a")


# ---- whole or not there


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), ValueError()])
def test_a_save_that_fails_leaves_the_earlier_file(
    error: BaseException, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise error

    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ExportError if isinstance(error, OSError) else type(error)) as caught:
        graphwright.save(captured(2.0), saved)
    assert saved.read_bytes() == before
    assert names_in(saved.parent) == ["model.gw"]
    if isinstance(error, OSError):
        assert f"cannot write {saved}: No space left on device" in str(caught.value)


@pytest.mark.slow
def test_a_full_disk_is_our_error(saved: Path) -> None:
    """A limit of the size of files is met within a write, as the end of a disk is."""
    before = saved.read_bytes()
    program = (
        "import resource, signal, sys, torch, graphwright\n"
        "gm = graphwright.trace(torch.nn.Linear(300, 300), (torch.ones(1, 300),))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    graphwright.save(gm, sys.argv[1])\n"
        "except graphwright.errors.ExportError as error:\n    print(error.message)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(saved)], capture_output=True, text=True, check=True)
    assert ran.stdout == f"cannot write {saved}: File too large\n"
    assert saved.read_bytes() == before
    assert names_in(saved.parent) == ["model.gw"]


def test_what_a_killed_process_left_is_removed(saved: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = {
        f".model.gw.gw-draft-{gone.pid}-ab": False,
        f".model.gw.gw-draft-{os.getpid()}-ab": True,
        ".model.gw": True,
    }
    for name in names:
        (saved.parent / name).write_text("draft")
    graphwright.save(captured(), saved)
    assert names_in(saved.parent) == sorted(["model.gw", *(name for name, stays in names.items() if stays)])


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_saves_leaves_the_earlier_file(saved: Path) -> None:
    before = saved.read_bytes()
    program = (
        "import os, signal, sys, torch, graphwright\n"
        "gm = graphwright.trace(torch.nn.Linear(3, 3), (torch.ones(1, 3),))\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "graphwright.save(gm, sys.argv[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(saved)], check=False).returncode == -signal.SIGKILL
    assert saved.read_bytes() == before
    assert len(names_in(saved.parent)) == 2  # and what it had written of the new one
    graphwright.save(captured(2.0), saved)
    assert names_in(saved.parent) == ["model.gw"]


def test_a_folder_without_the_right_to_write_is_our_error(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def refused(path: object, mode: str = "r") -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(whole_files, "open", refused, raising=False)
        with pytest.raises(ExportError, match=r"cannot write .*: Permission denied"):
            graphwright.save(captured(2.0), saved)
    assert saved.read_bytes() == before


@pytest.mark.parametrize("levels", [1_000, 100_000])
def test_a_program_that_is_nested_too_deep_is_refused(levels: int, saved: Path) -> None:
    tensors = load_file(saved)
    text = "[" * levels + "]" * levels
    save_tensors(tensors, saved, {saving.NOTE: text})
    with pytest.raises(LoadError, match=r"nested more than 400 levels deep|damaged"):
        graphwright.load(saved)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_permissions_are_those_of_any_new_file(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        graphwright.save(captured(), tmp_path / "model.gw")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.gw").stat().st_mode) == 0o666 & ~mask


def test_a_file_that_is_replaced_keeps_its_permissions_and_its_links(saved: Path, tmp_path: Path) -> None:
    saved.chmod(0o640)
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.gw"
    link.symlink_to("../model.gw")
    graphwright.save(captured(2.0), link)
    assert link.is_symlink()
    assert names_in(tmp_path / "folder") == ["link.gw"]
    assert stat.S_IMODE(saved.stat().st_mode) == 0o640
    assert torch.equal(graphwright.load(saved).state_dict()["weight"], torch.full((2, 3), 2.0))


@pytest.mark.parametrize(("path", "message"), [("none/model.gw", "there is no folder"), (".", "is a folder")])
def test_a_place_that_is_none_is_named(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        graphwright.save(captured(), tmp_path / path)


@pytest.mark.parametrize(("written", "fix"), [(b"PK\3\4 of a zip", "torch.load"), (b"hello, file", "name")])
def test_a_file_of_another_kind_is_told_from_a_damaged_one(written: bytes, fix: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(written)
    with pytest.raises(LoadError, match=f"was not written by graphwright.save\n.*{fix}"):
        graphwright.load(tmp_path / "other")

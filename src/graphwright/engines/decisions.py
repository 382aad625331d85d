"""Decisions that were measured before, in the user's cache folder: names of kernels by the keys of layers, as JSON.

The folder and the file are used only if they are the user's own and nobody else can enter them. A file holds for one
machine, one release of torch and one number of threads. Nothing needs it: what is not there, or cannot be read, is
measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import tempfile
from pathlib import Path

import torch

from graphwright.settings import config

_LARGEST = 1 << 22  # bytes of a file; a layer takes some sixty


class Decisions:
    """The kernels of layers on this machine, by key: read when made, written by `keep`.

    >>> with tempfile.TemporaryDirectory() as home:
    ...     decisions = Decisions(Path(home) / "cache")
    ...     decisions.keep({"linear [1, 64] -> 64": "addmm"})
    ...     Decisions(Path(home) / "cache").known
    {'linear [1, 64] -> 64': 'addmm'}
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = config.cache_folder if folder is None else folder
        self._about = _about()
        name = hashlib.sha256(json.dumps(self._about, sort_keys=True).encode()).hexdigest()[:16]
        self._path = None if folder is None else folder / f"kernels-{name}.json"
        self.known = self._read()

    def _read(self) -> dict[str, str]:
        try:
            read = json.loads(_own_text(self._path)) if self._path and _is_private(self._path.parent) else {}
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(read, dict) or read.get("about") != self._about or not isinstance(read.get("kernels"), dict):
            return {}
        return {key: name for key, name in read["kernels"].items() if isinstance(name, str)}

    def keep(self, kernels: dict[str, str]) -> None:
        """Write decisions, beside those that are there; where that cannot be, leave it."""
        with contextlib.suppress(OSError, ValueError):
            if self._path is None:
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(self._path.parent):
                return
            text = json.dumps({"about": self._about, "kernels": {**self._read(), **kernels}}, indent=1, sort_keys=True)
            descriptor, unfinished = tempfile.mkstemp(dir=self._path.parent, suffix=".unfinished")
            try:
                with os.fdopen(descriptor, "w") as file:
                    file.write(text)
                os.replace(unfinished, self._path)
            except OSError:
                os.unlink(unfinished)


def _own_text(path: Path) -> str:
    """The text of a file that is the user's own, and nobody else's: asked of what was opened. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, encoding="utf-8") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > _LARGEST:
            raise PermissionError(path)
        return file.read(_LARGEST)


def _is_private(folder: Path) -> bool:
    """Tell whether a folder is the user's own, and nobody else's."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _is_own(found)


def _is_own(found: os.stat_result) -> bool:
    return (not hasattr(os, "getuid") or found.st_uid == os.getuid()) and not found.st_mode & 0o077


def _about() -> dict[str, str | int]:
    """What a measurement holds for."""
    return {
        "machine": f"{platform.machine()} {_processor()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except (OSError, ValueError):
        return platform.processor()
    fields = ("vendor_id", "cpu family", "model", "model name", "stepping")
    return " ".join(line.partition(":")[2].strip() for line in lines[:30] if line.partition("\t")[0].strip() in fields)

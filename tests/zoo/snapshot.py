"""What captures of whole models look like, as text: to compare before and after a change that must keep them.

    python -m tests.zoo.snapshot write FOLDER [--only REGEX] [--jobs 2]
    python -m tests.zoo.snapshot compare BEFORE AFTER

`write` captures each model of the judge's folder, with `trace` and with `symbolic_trace`, in a process of its own, and
writes its graph, its generated code, its guards and the number of passes to `FOLDER/MODEL.txt`; an error is text, too.
`compare` prints the models whose text differs, each with the first lines that do, and fails where there are any.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from tests.zoo.judging import JUDGE

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_CLASS = re.compile(r"<class 'graphwright\.[\w.]*\.(\w+)'>")  # in messages of torch's: wherever in the library it is

_FOLDER = re.compile(r"/(?:[\w.+-]+/)+(?=[\w-]+\.py)")  # where packages are installed


def main() -> int:
    """Write or compare: 1 where texts differ, 2 where there are no models."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.snapshot", description=__doc__)
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="a regular expression that names of models have to match")
    parser.add_argument("--jobs", type=int, default=2, help="how many models are captured at once")
    options = parser.parse_args()
    if options.action == "compare":
        return compare(*options.folders)
    if not JUDGE.exists():
        print(f"there is no {JUDGE}: the models are not in this repository; ZOO= names their folder")
        return 2
    write(options.folders[0], options.only, options.jobs)
    return 0


def write(folder: Path, only: str = "", jobs: int = 2) -> None:
    """Capture each model in a process of its own and write what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(JUDGE.parent))
    zoo: Any = importlib.import_module("zoo")
    entries = [entry for entry in zoo.ZOO.values() if not entry.heavy and re.search(only, entry.name)]
    zoo.preload({entry.set for entry in entries})
    importlib.import_module("graphwright")  # before the processes part
    import torch

    torch.set_num_threads(1)
    running: dict[int, str] = {}
    for entry in entries:
        while len(running) >= jobs:
            running.pop(os.wait()[0], None)
        process = os.fork()
        if process == 0:
            _write_one(folder, entry)
        running[process] = entry.name
    while running:
        running.pop(os.wait()[0], None)


def _write_one(folder: Path, entry: Any) -> None:
    """Write the text of one model and end the process."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    path = folder / f"{entry.name.replace('/', '__')}.txt"
    try:
        start = time.perf_counter()
        text = _ADDRESS.sub("0x", described(entry))
        path.write_text(text)
        path.with_suffix(".seconds").write_text(f"{time.perf_counter() - start:.2f}\n")
    except BaseException as error:
        path.write_text(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(0)


def described(entry: Any) -> str:
    """Both captures of a model of the judge's as text."""
    import torch

    import graphwright

    torch.manual_seed(0)
    model = entry.build().eval()
    args, kwargs = entry.inputs(entry.batch, entry.sizes[0] if entry.sizes else None, 1)
    parts = []
    for name, capture in (
        ("trace", lambda: graphwright.trace(model, args, kwargs)),
        ("symbolic_trace", lambda: graphwright.symbolic_trace(model)),
    ):
        parts.append(f"==== {name}\n")
        try:
            captured: Any = capture()
        except Exception as error:
            parts.append(f"{type(error).__name__}: {error}\n")
            continue
        parts += [str(graphwright.graph(captured)), "\n", captured.code, "\n"]
        if name == "trace":
            report = captured.report
            parts += [f"guard: {entry.text}\n" for entry in report.guards] + [f"passes: {report.facts.passes}\n"]
    return "".join(parts)


def compare(before: Path, after: Path) -> int:
    """Print which models' texts differ, of those that both folders have; 1 where some do, or there are none."""
    names = sorted({path.name for path in before.glob("*.txt")} & {path.name for path in after.glob("*.txt")})
    differing = 0
    for name in names:
        texts = [_FOLDER.sub("", _CLASS.sub(r"<\1>", (folder / name).read_text())) for folder in (before, after)]
        if texts[0] == texts[1]:
            continue
        differing += 1
        lines = difflib.unified_diff(*[text.splitlines() for text in texts], lineterm="", n=1)
        print(f"{name}:", *list(lines)[2:14], sep="\n    ")
    print(f"{len(names)} models, {differing} of them differ")
    return int(differing > 0 or not names)


if __name__ == "__main__":
    sys.exit(main())

"""Functions run in several processes of one gloo group, each with one thread."""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = datetime.timedelta(seconds=120)


def run_in_processes(
    function: Callable[..., None], count: int, *args: Any, timeout: datetime.timedelta = TIMEOUT
) -> None:
    """Run `function(rank, *args)` in so many processes; raise AssertionError with what any of them raised, by time."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(_start, (function, count, folder, timeout, args), nprocs=count)
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            failures = sorted(Path(folder).glob("*.txt"), key=lambda path: path.stat().st_mtime)
            raise AssertionError("\n".join(path.read_text() for path in failures) or str(error)) from None


def _start(
    rank: int,
    function: Callable[..., None],
    count: int,
    folder: str,
    timeout: datetime.timedelta,
    args: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count, timeout=timeout)
    try:
        function(rank, *args)
        dist.barrier()
    except Exception:
        Path(folder, f"{rank}.txt").write_text(f"rank {rank}: {traceback.format_exc()}")
        raise
    finally:
        dist.destroy_process_group()
    # A thread of gloo that lets go of a tensor while Python finalizes aborts the process (pytorch/pytorch#179291),
    # so a process that has done its work ends without finalizing.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

"""Files that are whole or not there: written beside their target and put in its place, with a sum of all their bytes.

A file of tensors is one of safetensors: eight bytes that give the length of a header, the header as JSON, and the bytes
of the tensors. Among the texts of the header is the SHA-256 of the whole file, computed with zeros in its own place: no
byte of the file can change unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from graphwright.errors import ExportError, LoadError

SUM = "sha256"  # the name of the text in which the sum is
_NO_SUM = "0" * 64
_DRAFT = ".gw-draft-"
_CHUNK = 1 << 20
_LONGEST_HEADER = 100_000_000  # bytes; what safetensors itself allows
_ALIGNED = 8
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of the one at `path` when all is written, and is gone otherwise.

    A link is followed. The file gets the permissions of the one that it replaces, or those that a new file has. What
    an interrupted process has left beside `path` is removed. Raises ExportError where there is no room or no right to
    write; what was at `path` is then as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/a") as file:
    ...         _ = file.write(b"one")
    ...     Path(f"{folder}/a").read_bytes(), os.listdir(folder)
    (b'one', ['a'])
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise ExportError(f"there is no folder {target.parent}", fix="make it first")
    if target.is_dir():
        raise ExportError(f"{target} is a folder", fix="give the name of a file")
    draft: Path | None = None
    try:
        _remove_leftovers(target)
        draft = target.with_name(f".{target.name}{_DRAFT}{os.getpid()}-{secrets.token_hex(4)}")
        with open(draft, "xb") as file:
            if target.exists():
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
        draft = None
        _sync_folder(target.parent)
    except OSError as error:
        raise ExportError(
            f"cannot write {target}: {error.strerror or error}",
            fix="make room, or choose another place; what was there is as it was",
        ) from error
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def _remove_leftovers(target: Path) -> None:
    """Remove the drafts of processes that are no more."""
    prefix = f".{target.name}{_DRAFT}"
    for path in target.parent.iterdir():
        number = path.name.removeprefix(prefix).partition("-")[0]
        if path.name.startswith(prefix) and number.isdigit() and not _is_running(int(number)):
            path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Have the new name outlive a loss of power, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- tensors


def write_tensors(file: BinaryIO, tensors: Mapping[str, torch.Tensor], texts: Mapping[str, str]) -> None:
    """Write contiguous tensors on the CPU, and texts beside them, as a file of safetensors with its sum among them."""
    header: dict[str, Any] = {"__metadata__": {**texts, SUM: _NO_SUM}}
    end = 0
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # so that each is aligned
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    if len(text) > _LONGEST_HEADER:
        raise ExportError(
            f"the program takes {len(text):,} bytes; a file of safetensors has room for {_LONGEST_HEADER:,}",
            fix="save parts of the model on their own",
        )
    start_of_file = struct.pack("<Q", len(text)) + text
    found = hashlib.sha256(start_of_file)
    for _, tensor in ordered:
        for piece in _bytes_of(tensor):
            found.update(piece)
    place = _place_of_sum(start_of_file)
    file.write(start_of_file[:place] + found.hexdigest().encode() + start_of_file[place + len(_NO_SUM) :])
    for _, tensor in ordered:
        for piece in _bytes_of(tensor):
            file.write(piece)


def _bytes_of(tensor: torch.Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor, in pieces that do not have to be copied."""
    if tensor.numel():
        whole = tensor.detach().reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(whole), _CHUNK):
            yield whole[start : start + _CHUNK]


_KEY = f'"{SUM}":"'.encode()


def _place_of_sum(start_of_file: bytes) -> int:
    """Where the sum is. Only a name in the header can be spelled like this: quotes within texts are escaped."""
    return start_of_file.index(_KEY + _NO_SUM.encode()) + len(_KEY)


def check_sum(path: str | os.PathLike[str]) -> bool:
    """Compare a file with the sum in it; False for one without. Raises LoadError for a file that is not whole."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        header = file.read(1)
        if start and header != b"{":
            is_of_torch = start.startswith((b"PK", b"\x80"))
            fix = "read it with torch.load" if is_of_torch else "name what graphwright.save wrote"
            raise LoadError(f"{path} was not written by graphwright.save", fix=fix)
        if not 0 < length <= min(_LONGEST_HEADER, os.fstat(file.fileno()).st_size - 8):
            raise LoadError(f"{path} is damaged: it ends within its header", fix="save the model again")
        header += file.read(length - 1)
        before, key, rest = header.partition(_KEY)
        if not key:
            return False
        known = rest[: len(_NO_SUM)]
        found = hashlib.sha256(start + before + key + _NO_SUM.encode() + rest[len(_NO_SUM) :])
        while piece := file.read(_CHUNK):
            found.update(piece)
    if found.hexdigest().encode() != known:
        raise LoadError(f"{path} is damaged: its bytes are not those that were saved", fix="save the model again")
    return True

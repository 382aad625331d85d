"""A captured module as a folder: an importable Python package of source and weights, with no pickle in it."""

from __future__ import annotations

import keyword
import sys
import tempfile
from pathlib import Path

from torch import nn

from graphwright.errors import ExportError
from graphwright.ir import is_reserved
from graphwright.runtime.packaging import loading
from graphwright.runtime.packaging.classes import ProgramsOf
from graphwright.runtime.packaging.loading import WEIGHTS_FILE
from graphwright.runtime.packaging.python_file import PackageSource, stored_tensors
from graphwright.runtime.packaging.weights import save_tensors

_FILES = ("__init__.py", "loading.py", "module.py", WEIGHTS_FILE)
_MARK = "Written by graphwright."
_INIT = '''"""{original} as a Python package. {mark}

    from {package} import {name}

    model = {name}()                    # with the weights beside this file
    model = {name}(load_weights=False)  # with those that the constructors make
"""

from .module import {name}

__all__ = ["{name}"]
'''


def write_package(module: nn.Module, folder: str | Path, module_name: str, programs_of: ProgramsOf) -> list[Path]:
    """Write a captured module as a Python package with a class `module_name`; return the paths of its files.

    `programs_of` gives the graphs and the generated code of a captured module, none for other modules. The package
    replaces an earlier one; whatever fails, the folder stays as it was. Raises ExportError for what no package can
    hold, for names that are no identifiers, and for a folder with anything else in it.
    """
    target = Path(folder).absolute()
    _check_names(target.name, module_name)
    _check_free(target)
    source = PackageSource(module, module_name, programs_of)
    tensors = stored_tensors(module, source.build())
    original = type(module).__name__ if type(module).__name__.isidentifier() else module_name
    init = _INIT.format(original=original, mark=_MARK, package=target.name, name=module_name)
    texts = (init, _LOADING, source.text)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as room:
        draft = Path(room) / target.name
        draft.mkdir()
        for name, text in zip(_FILES, texts, strict=False):
            (draft / name).write_text(text, encoding="utf-8")
        save_tensors(tensors, draft / WEIGHTS_FILE)
        _put_in_place(draft, target, Path(room) / "before")
    return [target / name for name in _FILES]


_LOADING = Path(loading.__file__).read_text(encoding="utf-8")


def _check_names(package: str, module_name: str) -> None:
    if not package.isidentifier() or keyword.iskeyword(package):
        raise ExportError(
            f"the folder {package!r} could not be imported: its name is no Python identifier",
            fix="name it like a module: letters, digits and underscores, no digit first",
        )
    if package in sys.stdlib_module_names or package in ("torch", "safetensors"):
        raise ExportError(
            f"the folder {package!r} could not be imported: Python has a module of this name",
            fix="choose another name",
        )
    if not module_name.isidentifier() or is_reserved(module_name):
        raise ExportError(
            f"{module_name!r} cannot name a class: it is no Python identifier, or has another meaning",
            fix="to_folder(folder, module_name='MyModel')",
        )


def _check_free(target: Path) -> None:
    """Raise ExportError unless the folder is absent, empty, or holds a package of ours and nothing else."""
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir():
        raise ExportError(f"{target} is a file or a link", fix="choose another folder")
    held = sorted(path.name for path in target.iterdir())
    is_ours = "__init__.py" in held and _MARK in (target / "__init__.py").read_text(encoding="utf-8")
    foreign = [name for name in held if not is_ours or name not in (*_FILES, "__pycache__")]
    if foreign:
        raise ExportError(
            f"{target} holds {', '.join(foreign[:3])}, which to_folder did not write: it is left as it is",
            fix="choose another folder, or remove this one first",
        )


def _put_in_place(draft: Path, target: Path, before: Path) -> None:
    """Rename the finished draft to its name; what was there is put aside, and put back where that fails."""
    if target.exists():
        target.rename(before)
    try:
        draft.rename(target)
    except OSError:
        if before.exists():
            before.rename(target)
        raise

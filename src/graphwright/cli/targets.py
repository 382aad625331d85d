"""What commands work on: `package.module:expression`, `file.py:expression`, or the path of a saved module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from graphwright.cli.failures import BadInput, one_line
from graphwright.errors import LoadError
from graphwright.runtime import load

_FORMS = "package.module:expression, file.py:expression, or the path of a saved module"


def read_model(target: str, allow: Sequence[str] = (), trains: bool = False) -> Any:
    """Read a target as a model, in evaluation mode unless it `trains`; a class is called without arguments.

    Raises BadInput for anything else.
    """
    value = read_target(target, allow)
    if issubclass(type(value), type) and issubclass(value, nn.Module):
        if _needs_arguments(value):
            raise BadInput(f"{target}: {value.__name__} takes arguments: write {target}(...)")
        value = _tried(target, value)
    if not (isinstance(value, nn.Module) or callable(value)):
        raise BadInput(f"{target} is a {type(value).__name__}: neither a module nor a function")
    return value.train(trains) if isinstance(value, nn.Module) else value


def read_target(target: str, allow: Sequence[str] = ()) -> Any:
    """Read what a target stands for. Raises BadInput, in one line, where it stands for nothing."""
    torch.manual_seed(0)  # for models that a file makes when it is run
    path = Path(target)
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if path.is_file() and path.suffix != ".py":
        return _tried(target, lambda: load(path, allow))
    place, colon, expression = target.partition(":")
    if not colon or not expression.strip():
        what = "names no expression" if path.suffix == ".py" or colon else "is no file"
        raise BadInput(f"{target!r} {what}: a target is {_FORMS}")
    module = _file(Path(place)) if place.endswith(".py") else _module(place)
    return _tried(target, lambda: eval(expression.strip(), {"torch": torch, **vars(module)}))


def _needs_arguments(kind: type[nn.Module]) -> bool:
    try:
        inspect.signature(kind).bind()
    except TypeError:
        return True
    except ValueError:  # it tells no signature
        return False
    return False


def _tried(what: str, make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)  # random weights are the same in each command
    try:
        return make()
    except LoadError as error:
        fix = "".join(f" --allow {package}" for package in error.allow)
        said = error.message.replace("\n", "; ") + (fix and f"; if you trust that:{fix}")
        raise BadInput(said if what in said else f"{what}: {said}") from error
    except Exception as error:
        raise BadInput(f"{what}: {one_line(error)}") from error


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and f"{name}.".startswith(f"{missing}."):
            raise BadInput(f"there is no module {missing!r}: a target is {_FORMS}") from error
        raise BadInput(f"{name}: {one_line(error)}") from error
    except Exception as error:
        raise BadInput(f"{name}: {one_line(error)}") from error


def _file(path: Path) -> ModuleType:
    """Run a file as the module that is called as the file is, so that its classes are found again by that name."""
    if not path.is_file():
        raise BadInput(f"there is no file {str(path)!r}")
    name, folder = path.stem, str(path.resolve().parent)
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == path.resolve():
        return known
    if known is not None:
        raise BadInput(f"{path}: another module is called {name!r} already: rename the file")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadInput(f"{path}: {one_line(error)}") from error
    return module

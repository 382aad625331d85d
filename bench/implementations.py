"""Look up the parts of a graph library by torch.fx's names.

An implementation is any importable package with torch.fx's API. A part that it lacks is absent, which a benchmark
reports instead of failing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

BASELINE = "torch.fx"

_IN_SUBMODULES = {
    "split_module": "passes.split_module",
    "ShapeProp": "passes.shape_prop",
    "FakeTensorProp": "passes.fake_tensor_prop",
}


class AbsentError(Exception):
    """The implementation has no such part."""


class Implementation:
    """A graph library: attributes are its parts, such as `Graph`, `Tracer` or `split_module`.

    Parts are looked up in the package itself, then where torch.fx has them. Raises AbsentError.
    """

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        self._root = importlib.import_module(package)

    def __getattr__(self, part: str) -> Any:
        found = getattr(self._root, part, None)
        if not callable(found):  # `split_module` is also the name of a submodule
            found = self._in_submodule(part)
        if found is None:
            raise AbsentError(f"{self.package} has no {part}")
        setattr(self, part, found)
        return found

    def _in_submodule(self, part: str) -> Any:
        if part not in _IN_SUBMODULES:
            return None
        try:
            return getattr(importlib.import_module(f"{self.package}.{_IN_SUBMODULES[part]}"), part, None)
        except ImportError:
            return None

    def has(self, part: str) -> bool:
        """Tell whether the implementation has a part."""
        try:
            getattr(self, part)
        except AbsentError:
            return False
        return True


def load(packages: Sequence[str]) -> list[Implementation]:
    """Import the implementations that are there; one named twice also gets a second name.

    Naming one twice compares it with itself and shows the noise of the measurement.
    """
    loaded: list[Implementation] = []
    for package in packages:
        again = sum(implementation.package == package for implementation in loaded)
        try:
            loaded.append(Implementation(f"{package} ({again + 1})" if again else package, package))
        except ImportError as error:
            print(f"(no implementation {package}: {error})")
    return loaded


def having(implementations: Sequence[Implementation], part: str) -> list[Implementation]:
    """Return the implementations that have a part, and say which have not."""
    for implementation in implementations:
        if not implementation.has(part):
            print(f"   {implementation.name}: {part} is absent")
    return [implementation for implementation in implementations if implementation.has(part)]

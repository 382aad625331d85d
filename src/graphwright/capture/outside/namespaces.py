"""Global variables that a program changes without a name: `globals()["STEP"] += 1`, `sys.modules[...].STEP = 1`.

The code of a function tells which global names it assigns, not which it comes to otherwise. So all variables of the
program's modules are looked at when a pass begins and when it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import CodeType
from typing import Any

from graphwright.capture.effects.variables import MISSING
from graphwright.capture.outside.overheard import original_of


class Namespaces:
    """The global variables of the modules whose functions a program runs, and what they had when the pass began."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[dict[str, Any], dict[str, Any], CodeType]] = {}

    def note(self, names: dict[str, Any], code: CodeType) -> None:
        """Note the variables of a module, one of whose functions has this code."""
        self._noted.setdefault(id(names), (names, names.copy(), code))

    def start(self) -> None:
        """A pass begins."""
        self._noted = {key: (names, names.copy(), code) for key, (names, _, code) in self._noted.items()}

    def changed(self, watched: Mapping[int, Collection[str]]) -> Iterator[tuple[dict[str, Any], str, CodeType]]:
        """What has changed in the pass and is not watched otherwise: variables, with a function of their module."""
        for key, (names, before, code) in self._noted.items():
            for name in [*before, *(names.keys() - before.keys())]:
                then, now = before.get(name, MISSING), names.get(name, MISSING)
                if then is now or name.startswith("__") or name in watched.get(key, ()):
                    continue
                if original_of(then) is not original_of(now):
                    yield names, name, code

    def put_back(self, watched: Mapping[int, Collection[str]]) -> None:
        """Put back what has changed and is not watched; a second time does no harm."""
        for names, name, _ in [*self.changed(watched)]:
            before = self._noted[id(names)][1].get(name, MISSING)
            if before is MISSING:
                names.pop(name, None)
            else:
                names[name] = before

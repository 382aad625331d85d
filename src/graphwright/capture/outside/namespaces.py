"""Variables that a program changes without a name: `globals()["STEP"] += 1`, `setattr(Model, "calls", 1)`.

The code of a function tells which global names and attributes it assigns, not which it comes to otherwise. So all
variables of the program's modules, classes and functions are looked at when a pass begins and when it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from graphwright.capture.effects.variables import MISSING, Owner
from graphwright.capture.state.interception import original_of
from graphwright.errors import CaptureError
from graphwright.source import place_of_name

# What a function has besides attributes.
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__name__", "__doc__")
_Namespace: TypeAlias = "dict[str, Any] | type | FunctionType"


class Namespaces:
    """What the modules, classes and functions that a program reaches have, and what they had when the pass began."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[_Namespace, dict[str, Any], CodeType]] = {}

    def note(self, owner: _Namespace, code: CodeType) -> None:
        """Note the variables of a module, class or function; some function of the program's has this code."""
        if id(owner) not in self._noted:
            self._noted[id(owner)] = owner, _table(owner), code

    def start(self) -> None:
        """A pass begins."""
        self._noted = {key: (owner, _table(owner), code) for key, (owner, _, code) in self._noted.items()}

    def changed(self, watched: Mapping[int, Collection[str]]) -> Iterator[tuple[_Namespace, str, CodeType]]:
        """What has changed in the pass and is not watched otherwise: variables, with the code of a function."""
        for key, (owner, before, code) in self._noted.items():
            table = _table(owner)
            for name in [*before, *(table.keys() - before.keys())]:
                then, now = before.get(name, MISSING), table.get(name, MISSING)
                is_imported = then is MISSING and isinstance(now, ModuleType)
                if then is not now and not is_imported and name not in watched.get(key, ()):
                    yield owner, name, code

    def put_back(self, watched: Mapping[int, Collection[str]]) -> None:
        """Put back what has changed and is not watched; a second time does no harm."""
        for owner, name, _ in [*self.changed(watched)]:
            before = self._noted[id(owner)][1].get(name, MISSING)
            if isinstance(owner, dict):
                owner.pop(name, None)
                owner.update({} if before is MISSING else {name: before})
            elif before is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def refuse_change(owner: Owner, name: str, code: CodeType) -> None:
    """Raise CaptureError where no graph can write what has changed: what a function itself is."""
    if isinstance(owner, FunctionType) and name in _OF_FUNCTIONS:
        raise CaptureError(
            f"the program changes {name!r} of the function {owner.__qualname__!r}: the captured program could not",
            at=place_of_name(code, name) or f"{code.co_filename}:{code.co_firstlineno}",
            fix="keep what changes in a global variable, or in an attribute of a module",
        )


def _table(owner: _Namespace) -> dict[str, Any]:
    """What it has by name, short of what Python itself keeps there; of what stands in for something, that."""
    table = owner if isinstance(owner, dict) else vars(owner)
    found = {name: original_of(value) for name, value in table.items() if not name.startswith("__")}
    if isinstance(owner, FunctionType):
        found |= {name: getattr(owner, name) for name in _OF_FUNCTIONS}
    return found

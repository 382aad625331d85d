"""The tables of a shell, which tell what a program reads of them: tensors, submodules, and what stands aside.

A shell gives its plain attributes away until the program asks for them, so that those which it does not read stay free:
`nn.Module.__getattr__` looks for what `__dict__` lacks in the tables of parameters, buffers and submodules, and these
tell.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

from torch import nn

_Held = TypeVar("_Held")

_LOOK_UP, _WRITE, _DELETE = (
    method.__code__ for method in (nn.Module.__getattr__, nn.Module.__setattr__, nn.Module.__delattr__)
)
_OF_WALKS = nn.Module.named_modules.__code__.co_filename


def aside_of(shell: nn.Module) -> dict[str, Any]:
    """The attributes of a shell that the program has not asked for."""
    table = shell.__dict__["_parameters"]
    return table._aside if isinstance(table, _Watched) else {}


class _Reads(Protocol):
    """Whoever is told what the program reads of modules: module_reads.py."""

    def ready(self, shell: _Held) -> _Held: ...
    def is_program(self, frame: FrameType) -> bool: ...
    def value(self, path: str, name: str, value: Any) -> None: ...
    def tensor(self, path: str, name: str, value: Any) -> None: ...
    def one(self, path: str, name: str, first: str) -> None: ...
    def walked(self, path: str, table: str, names: list[str]) -> None: ...
    def missed(self, path: str, name: str) -> None: ...
    def looked_for(self, path: str, name: str, frame: FrameType) -> None:
        """The program itself did so."""

    def written(self, path: str, name: str) -> None: ...


class _Watched(dict[str, Any]):
    """A table of a shell, which tells what the program reads of it."""

    __slots__ = ("_aside", "_is_kept_by_name", "_others", "_path", "_reads", "_state")
    table = ""
    _state: dict[str, Any]  # of the shell
    _reads: _Reads
    _path: str
    _aside: dict[str, Any]
    _is_kept_by_name: bool
    _others: dict[str, str]

    def _walked(self, frame: FrameType) -> None:
        if self._reads.is_program(frame):
            names = list(dict.keys(self))
            self._reads.walked(self._path, self.table, names)
            others = self._others
            if frame.f_code.co_filename == _OF_WALKS and frame.f_code is not _LOOK_UP:  # each once: all are compared
                prefix = f"{self._path}." if self._path else ""
                others = {name: others.get(name, prefix + name) for name in names if dict.get(self, name) is not None}
            for name in others.keys() & names:
                self._reads.one(self._path, name, others[name])
            if self.table != "_modules":
                for name, value in dict.items(self):
                    self._reads.tensor(self._path, name, value)

    def _ready(self) -> dict[str, Any]:
        """The table, with all that is in it as the program may have it."""
        return self

    def asked(self, frame: FrameType | None = None, name: object = None) -> None:
        """The program asks whether a name is here, past what `nn.Module` does; without a frame, our code does."""
        if frame is None or self._reads.is_program(frame):
            self._reads.walked(self._path, self.table, list(dict.keys(self)))
            if frame is not None and isinstance(name, str) and not super().__contains__(name):
                self._reads.looked_for(self._path, name, frame)

    def __contains__(self, name: object) -> bool:
        frame = sys._getframe(1)
        if frame.f_code.co_filename != _OF_WALKS:
            self.asked(frame, name)
        return super().__contains__(name)

    def get(self, *args: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_code.co_filename != _OF_WALKS:
            self.asked(frame, args[0] if args else None)
        return dict.get(self._ready(), *args)

    def __iter__(self) -> Iterator[str]:
        self._walked(sys._getframe(1))
        return super().__iter__()

    def __len__(self) -> int:
        self._walked(sys._getframe(1))
        return super().__len__()

    def items(self) -> Any:
        self._walked(sys._getframe(1))
        return dict.items(self._ready())

    def keys(self) -> Any:
        self._walked(sys._getframe(1))
        return super().keys()

    def values(self) -> Any:
        self._walked(sys._getframe(1))
        return dict.values(self._ready())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(dict.items(self._ready())),)


class _Tensors(_Watched):
    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        return self._tensor(name, sys._getframe(1))

    def _tensor(self, name: str, frame: FrameType) -> Any:
        value = dict.__getitem__(self, name)
        if self._reads.is_program(frame):
            if name in self._others:
                self._reads.one(self._path, name, self._others[name])
            if value is None or self.table != "_parameters" or _tests_for_none(_reader(frame)):
                self._reads.tensor(self._path, name, value)
            if self._is_kept_by_name:
                self._walked(frame)
        return value


def _reader(frame: FrameType) -> CodeType:
    """The code that reads an attribute, where `frame` may be that of `nn.Module.__getattr__`."""
    is_lookup = frame.f_code is _LOOK_UP and frame.f_back is not None
    return frame.f_back.f_code if is_lookup else frame.f_code  # type: ignore[union-attr]


_ASKS = frozenset({"is_none", "is_given"})  # what `x is None` and `x is not None` become


@functools.lru_cache(4096)
def _tests_for_none(code: CodeType) -> bool:
    """Tell whether a function, as it was written or as it was converted, asks whether anything is None."""
    return not _ASKS.isdisjoint(code.co_names) or any(
        step.opname == "IS_OP" or step.opname.endswith("_NONE") for step in dis.get_instructions(code)
    )


class _Parameters(_Tensors):
    """The first table in which `nn.Module.__getattr__` looks: it has the attributes that stand aside, too."""

    __slots__ = ()
    table = "_parameters"

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        frame = sys._getframe(1)
        code = frame.f_code
        if code.co_filename != _OF_WALKS:
            self.asked(frame)
        if name not in self._aside:
            return False
        if code is _DELETE:  # which looks in `__dict__` last
            self._state[str(name)] = self._aside.pop(str(name))
        if code is _WRITE:
            self._reads.written(self._path, str(name))
        return code is _LOOK_UP

    def __getitem__(self, name: str) -> Any:
        if name in self._aside and not dict.__contains__(self, name):
            value = self._aside[name]
            self._reads.value(self._path, name, value)
            return value
        return self._tensor(name, sys._getframe(1))


class _Buffers(_Tensors):
    __slots__ = ()
    table = "_buffers"


class _Modules(_Watched):
    """The last table in which `nn.Module.__getattr__` looks: what is not there either is an attribute of nobody's."""

    __slots__ = ()
    table = "_modules"

    def __getitem__(self, name: str) -> Any:
        if name in self._others and self._reads.is_program(sys._getframe(1)):
            self._reads.one(self._path, name, self._others[name])
        return self._reads.ready(dict.__getitem__(self, name))

    def _ready(self) -> dict[str, Any]:
        for shell in dict.values(self):
            self._reads.ready(shell)
        return self

    def pop(self, *args: Any) -> Any:
        return dict.pop(self._ready(), *args)

    def popitem(self) -> tuple[str, Any]:
        return dict.popitem(self._ready())

    def setdefault(self, *args: Any) -> Any:
        return dict.setdefault(self._ready(), *args)

    def copy(self) -> dict[str, Any]:
        return dict.copy(self._ready())

    def __contains__(self, name: object) -> bool:
        frame = sys._getframe(1)
        if frame.f_code.co_filename != _OF_WALKS:
            self.asked(frame)
        if dict.__contains__(self, name):
            return True
        if frame.f_code is _LOOK_UP and frame.f_back is not None and self._reads.is_program(frame.f_back):
            self._reads.missed(self._path, str(name))
            self._reads.looked_for(self._path, str(name), frame.f_back)
        return False


WATCHED: tuple[type[_Watched], ...] = (_Parameters, _Buffers, _Modules)

"""The ledger: what Python saw of the outside as a plain value while a program was captured.

A fact of the outside is symbolic (a node), guarded (checked at each call), said (a TracerWarning and a line of the
report) or refused. What is neither symbolic nor refused stands here, and the guards and the report are written from
here: a fact that was read is in the ledger, and one that is not in the ledger was not read.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Hashable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.state.symbols import symbol_of
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.runtime import any_of, dtypes_in
from graphwright.source import is_installed, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.plan import Log
    from graphwright.capture.state.tensor_proxy import TensorProxy
    from graphwright.ir import Node
    from graphwright.runtime import Found

Fact = str | frozenset[torch.dtype]  # "rank", "dtype", "index", "device", "class"; or dtypes as good as its own


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A plain value that the program was specialized to.

    `make` gives the node that reads it in a call. `subject` says what it is, as in "the global 'STEP' of train"; that
    of an argument is its name alone.
    """

    make: Callable[[], Node]
    value: Any
    subject: str = ""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A fact of a tensor that was read, and the user's line."""

    tensor: TensorProxy
    fact: Fact
    at: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Unforeseen:
    """Facts of a value that do not follow from the same facts of what it is computed from, and the user's line.

    was_there: it may be from before the call, or from what the program has put there, which is asked for the same.
    """

    facts: dict[str, Any]
    at: str
    was_there: bool = False


class Ledger:
    """What one pass of a capture has taken for granted so far."""

    def __init__(self, log: Log | None = None) -> None:
        self._log = log
        self.taken: dict[str, Taken] = {}
        self.reads: dict[Hashable, Read] = {}
        self.found: dict[Hashable, Found] = {}
        self.asked: dict[str, set[Fact]] = {}  # what was read of inputs, by path
        self.of_kept: dict[str, set[Fact]] = {}  # what was read of tensors that the program writes itself, by path
        self.unforeseen: dict[Node, Unforeseen] = {}  # by the node that gives the value
        self.of_inputs: dict[Hashable, set[str]] = {}  # what was asked of them, by id, or key of a number
        self.asks_kinds = False
        self.asks_classes = False  # of tensors: a subclass would be another input
        self.asks_autocast = False  # a dtype that is read is another one under `torch.autocast`
        self.autocast: frozenset[torch.dtype] | None = None  # to which it may cast: one of some dtypes is read
        self.modules: dict[str, dict[str, Any]] = {}
        self.forwards: dict[type, Any] = {}  # of classes of modules whose code is part of the program
        self.own_forwards: set[str] = set()  # the paths of modules whose code is a forward of their own
        self.buffers: dict[str, bool] = {}  # that the program registers, by path: whether they persist
        self.unset: set[str] = set()  # the paths of attributes of modules that a call may find missing

    def take(self, name: str, value: Any, make: Callable[[], Node], subject: str = "") -> None:
        """Take a plain value for granted, under a name that is its own: it is guarded before the first operation."""
        self.taken[name] = Taken(make, value, subject)

    def tensor(self, tensor: TensorProxy, fact: Fact, at: str) -> None:
        """Take a fact of a tensor for granted: what it follows from is guarded."""
        self.reads.setdefault((id(tensor), fact), Read(tensor, fact, at))

    def find(self, found: dict[Any, Found]) -> None:
        """Take for granted what was found outside of all modules, by owner and name: it is guarded at the start."""
        self.found.update(found)

    def kind_asked(self) -> None:
        """Take for granted of what kind the inputs are: a function of the program's asks for a class."""
        self.asks_kinds = True

    def ask_of_input(self, value: Any, what: str) -> None:
        """Take for granted of an input that it is not None ("none"), or of which class it is ("class")."""
        if isinstance(value, torch.Tensor):
            self.kind_asked()
            return
        symbol = symbol_of(value)
        self.of_inputs.setdefault(id(value) if symbol is None else symbol.key, set()).add(what)

    def module(self, path: str) -> dict[str, Any]:
        """What is taken for granted of one module so far, by the kind of fact: see runtime/premises.py."""
        return self.modules.setdefault(path, {})

    def say(self, what: str, at: str, frame: FrameType | None = None, is_quiet: bool | None = None) -> None:
        """Say that a value of the outside is the capture's for ever: a TracerWarning, and a line of the report.

        `frame` is that of the program, where it is not the nearest one. What an installed package reads - a switch in
        the environment - stands in the report alone, and so does what `is_quiet`: a warning is for who can change the
        line.
        """
        reader = user_frame(sys._getframe(1)) if frame is None else frame
        if is_quiet is None:
            is_quiet = reader is not None and is_installed(reader.f_code.co_filename)
        if not is_quiet:
            warn_tracer(f"at {at}: {what}" if at else what, self._log, frame)
        if self._log is not None:
            self._log.note_said(what, at)

    def note_autocast(self, dtypes: frozenset[torch.dtype] | None) -> None:
        """Of a dtype that is read, what `torch.autocast` may cast to; None where it was not asked."""
        if dtypes is not None:
            self.autocast = dtypes if self.autocast is None else self.autocast & dtypes

    def join(self, other: Ledger) -> None:
        """Take for granted what another way through the program does, too."""
        self.taken = {**other.taken, **self.taken}
        self.found = {**other.found, **self.found}
        for path, asked in other.asked.items():
            self.asked.setdefault(path, set()).update(asked)
        for path, asked in other.of_kept.items():
            self.of_kept.setdefault(path, set()).update(asked)
        self.asks_kinds |= other.asks_kinds
        self.asks_classes |= other.asks_classes
        self.asks_autocast |= other.asks_autocast
        self.note_autocast(other.autocast)
        self.buffers |= other.buffers
        self.unset |= other.unset
        self.forwards |= other.forwards
        self.own_forwards |= other.own_forwards
        for path, of_module in other.modules.items():
            self.modules[path] = join_facts_of(self.module(path), of_module)


def join_dtypes(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """The dtypes that tensors may have by what two of such facts say; what contradicts is as the first says.

    >>> join_dtypes({"w": "torch.float32 or torch.float64"}, {"w": "torch.float32", "b": "torch.float32"})
    {'w': 'torch.float32', 'b': 'torch.float32'}
    """
    joined = {**other, **one}
    for name in one.keys() & other.keys():
        joined[name] = any_of(set(dtypes_in(one[name])).intersection(dtypes_in(other[name]))) or one[name]
    return joined


def join_facts_of(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The facts of one module that two ways through a program, or two captures of it, take for granted.

    >>> join_facts_of({"values": {"n": 3}, "absent": ["a"]}, {"values": {"m": 2}, "absent": ["a", "b"]})
    {'values': {'m': 2, 'n': 3}, 'absent': ['a', 'b']}
    """
    joined = {**other, **one}
    for fact in one.keys() & other.keys():
        if fact == "dtypes":
            joined[fact] = join_dtypes(one[fact], other[fact])
        elif isinstance(one[fact], dict):
            joined[fact] = {**other[fact], **one[fact]}
        elif isinstance(one[fact], list):
            joined[fact] = list(dict.fromkeys([*one[fact], *other[fact]]))
    return joined

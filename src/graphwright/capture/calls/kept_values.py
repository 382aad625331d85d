"""Dtypes and devices that objects keep as attributes: `cache.dtype = keys.dtype`, and what an input has of the kind.

A dtype is one object for all that have it, so that its value does not tell where it comes from. In the place of one
that an object keeps stands a `KeptValue`, which tells: as an argument of a node it is the node that reads the value.
While the program runs, the class of the object has a descriptor for the attribute, by which the program gets the value
itself, and the capture hears of it. All else about the class and its objects is as it was.
"""

from __future__ import annotations

import abc
import ast
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from graphwright.capture.effects.held_tables import reads_plainly, sets_plainly
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.ir import Node
from graphwright.source import expression_of, user_frame

_lock = threading.Lock()


class KeptValue:
    """Stands in an object for a value that a capture knows the source of.

    node: gives the node that reads it. read: called with the frame that reads it as an attribute, else with None: the
    program then asks for the very value.
    """

    __slots__ = ("node", "read", "value")

    def __init__(
        self,
        value: torch.dtype | torch.device,
        node: Callable[[], Node],
        read: Callable[[FrameType | None], None],
    ) -> None:
        self.value, self.node, self.read = value, node, read

    def taken(self, frame: FrameType | None = None) -> torch.dtype | torch.device:
        """The value, for who reads it."""
        self.read(frame)
        return self.value

    # What looks into the table of an object's attributes finds this, and asks.

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self.taken() == (other.taken() if isinstance(other, KeptValue) else other))

    def __hash__(self) -> int:
        return hash(self.taken())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.taken(), name)

    def __repr__(self) -> str:
        return repr(self.taken())

    def __copy__(self) -> KeptValue:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptValue:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (pickle.dumps(self.taken()),)


class _Attribute:
    """An attribute of objects, where they have it. `users`: how many captures need to hear of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.users = 0

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None or self.name not in owner.__dict__:
            what = f"type object {kind.__name__!r}" if owner is None and kind else f"{type(owner).__name__!r} object"
            raise AttributeError(f"{what} has no attribute {self.name!r}", name=self.name, obj=owner or kind)
        value = owner.__dict__[self.name]
        return value.taken(self._reader(sys._getframe(1))) if type(value) is KeptValue else value

    def _reader(self, frame: FrameType) -> FrameType | None:
        """The frame that reads the attribute; None where that is not what its source says."""
        if frame is not user_frame(frame):
            return None
        read = expression_of(frame.f_code, frame.f_lasti)
        return frame if isinstance(read, ast.Attribute) and read.attr == self.name else None

    def __set__(self, owner: Any, value: Any) -> None:
        expected = _expected.pop(owner, self.name, sys._getframe(1)) if _expected.kept is not None else None
        owner.__dict__[self.name] = value if expected is None or value is not expected.value else expected

    def __delete__(self, owner: Any) -> None:
        if self.name not in owner.__dict__:
            raise AttributeError(self.name)
        del owner.__dict__[self.name]


class _Expected(threading.local):
    """The store that a thread is about to make: who gets what, and in which statement."""

    owner: Any = None
    name = ""
    kept: KeptValue | None = None
    place: tuple[int, int] = (0, 0)

    def put(self, owner: Any, name: str, kept: KeptValue, frame: FrameType) -> None:
        """Expect a store of a frame, in the line that it is in."""
        self.miss()
        self.owner, self.name, self.kept, self.place = owner, name, kept, _place(frame)

    def miss(self) -> None:
        """The store did not come: nobody knows what was done with the value."""
        missed, self.owner, self.kept = self.kept, None, None
        if missed is not None:
            missed.taken()

    def pop(self, owner: Any, name: str, frame: FrameType) -> KeptValue | None:
        """What is expected to be stored, if it is this store."""
        if owner is not self.owner or name != self.name or self.place != _place(frame):
            return None
        kept, self.owner, self.kept = self.kept, None, None
        return kept


def _place(frame: FrameType) -> tuple[int, int]:
    return id(frame), frame.f_lineno


_expected = _Expected()


class KeptValues:
    """The objects of one capture that keep such values.

    >>> import types
    >>> class Cache: ...
    >>> cache, kept, reads = Cache(), KeptValues(), []
    >>> kept.may_keep(cache, "dtype")
    True
    >>> kept.put(cache, "dtype", KeptValue(torch.float32, print, reads.append))
    >>> kept.enter_classes()
    >>> cache.dtype, len(reads), type(vars(cache)["dtype"]).__name__
    (torch.float32, 1, 'KeptValue')
    >>> kept.leave_classes()
    >>> kept.put_back()
    >>> cache.dtype, len(reads), vars(cache), "dtype" in vars(Cache)
    (torch.float32, 1, {'dtype': torch.float32}, False)
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[type, str], _Attribute] = {}
        self._owners: list[tuple[weakref.ref[Any], str]] = []

    def may_keep(self, owner: Any, name: str) -> bool:
        """Tell whether one may stand in an object: it keeps attributes as objects do, and its class has none of it."""
        kind = type(owner)
        if (kind, name) in self._opened:
            return True
        is_python = type(kind) in (type, abc.ABCMeta) and kind is not types.SimpleNamespace
        is_plain = is_python and is_plain_object(owner) and sets_plainly(owner) and reads_plainly(owner, "")
        return is_plain and not hasattr(kind, name)

    def put(self, owner: Any, name: str, kept: KeptValue) -> None:
        """Have one stand in an object, before the program starts."""
        self._owners.append((weakref.ref(owner), name))
        owner.__dict__[name] = kept

    def enter_classes(self) -> None:
        """The program starts: hear of what it reads of the objects."""
        for reference, name in self._owners:
            self._open(type(reference()), name)

    def expect(self, owner: Any, name: str, kept: KeptValue, frame: FrameType) -> None:
        """Have one stand in an object to which a statement is about to give its value."""
        self._owners.append((weakref.ref(owner), name))
        self._open(type(owner), name)
        _expected.put(owner, name, kept, frame)

    def _open(self, kind: type, name: str) -> None:
        if (kind, name) in self._opened or kind is type(None):
            return
        with _lock:
            standing = kind.__dict__.get(name)
            self._opened[kind, name] = attribute = standing if type(standing) is _Attribute else _Attribute(name)
            attribute.users += 1
            setattr(kind, name, attribute)

    def leave_classes(self) -> None:
        """The program has ended: leave classes as if there had been none of it. A store that did not come will not."""
        _expected.miss()
        while self._opened:
            (kind, name), attribute = self._opened.popitem()
            with _lock:
                attribute.users -= 1
                if not attribute.users and kind.__dict__.get(name) is attribute:
                    delattr(kind, name)

    def put_back(self) -> None:
        """Leave objects with the values themselves."""
        for reference, name in self._owners:
            owner = reference()
            kept = None if owner is None else owner.__dict__.get(name)
            if type(kept) is KeptValue:
                owner.__dict__[name] = kept.value
        self._owners.clear()

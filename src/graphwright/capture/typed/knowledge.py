"""What a capture knows at one moment, as data that compares.

A capture keeps what it has learned in its parts: which numbers there are, what was read, which regions are open. All of
them are walked, so that a part that somebody adds later is, too; what the program computes is told by its identity.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_ROOM = "graphwright.capture."
_ATOMS = frozenset({int, float, str, bool, bytes, type(None)})
_MAPPINGS = frozenset({dict, collections.OrderedDict, collections.Counter, collections.defaultdict})
_SETS = frozenset({set, frozenset})
_SEQUENCES = frozenset({list, tuple, collections.deque})
_CONTAINERS = _MAPPINGS | _SETS | _SEQUENCES
# What says nothing of the program: the examples, limits, what was found out about code, what is kept alive, and where
# the capture is. What is known of modules, how often they were called and which dtypes frames hold is compared apart;
# the objects that modules hold are listed once, and `keeping` tells what becomes of them and of
# what modules hold, of which some are only looked at when they are reached.
_APART = frozenset({
    ("examples",), ("typed",), ("keep",), ("callers", "_recorded"), ("callers", "_last"), ("scope",), ("calls",),
    ("repeats",), ("shells",), ("members",), ("region",), ("attempts", "_frame"), ("attempts", "_without_handlers"),
    ("ledger", "modules"), ("module_calls",), ("dtypes", "handed"), ("reads", "_objects"),
    ("reads", "_containers"), ("reads", "_live"),
    ("keeping", "_tables"), ("keeping", "_of_module"), ("keeping", "_containers"), ("keeping", "_of_variables"),
    ("callers", "_outside"), ("callers", "_may_ask"), ("callers", "_reached"), ("callers", "_unnamed"),
    ("callers", "asked_attributes"),
})  # fmt: skip
# Tables of what the capture has met, to which each operation may add.
_GROWING = frozenset({
    ("numbers", "_symbols"), ("root", "attributes"), ("root", "numbers"), ("root", "written"), ("_called",),
    ("root", "given"), ("root", "decided"),
    ("transforms", "_noted"), ("reads", "found_missing"), ("ledger", "reads"), ("ledger", "unforeseen"),
    ("ledger", "of_inputs"),
    ("writes", "counts"), ("writes", "_sizes"), ("tensors", "_devices"), ("tensors", "_paths"),
    ("dtypes", "kept", "_opened"),
    ("questions", "knowledge", "conditions", "_parts"), ("questions", "knowledge", "conditions", "_deciders"),
})  # fmt: skip
# They hold what the program has, and have a way of their own to tell what has changed.
_SHALLOW = frozenset({("keeping",), ("callers", "_world"), ("callers", "_globals")})
_DEEPEST = 4  # how long the paths in these tables are


class Knowledge:
    """What a capture knows now.

    `_trail` is all of it in the order in which it is found: what is found in the same way later is the same.
    """

    __slots__ = ("_growing", "_ids", "_kept", "_trail")

    def __init__(self, recorder: TypedCapture) -> None:
        trail: list[Any] = [_ambient()]
        parts: set[int] = set()  # those that were walked
        growing: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # the tables, and what is in them
        own = type(recorder)  # of an earlier pass, where one is met again
        kept: list[Any] = []  # what is compared by its identity stays alive as long as this
        waiting: collections.deque[tuple[tuple[str, ...] | None, Any]] = collections.deque()
        waiting.append(((), recorder))
        while waiting:
            path, value = waiting.popleft()
            kind: Any = type(value)
            if path is not None and path in _GROWING:
                growing.append((value, dict(value)))
                continue
            at = None
            items: Iterable[tuple[Any, Any]]
            key: Any
            if kind in _MAPPINGS:
                trail.append(len(value))
                items = [(key if type(key) in _ATOMS else _told(key), item) for key, item in value.items()]
            elif kind in _SEQUENCES:
                trail.append(len(value))
                items = enumerate(value)
            elif kind in _SETS:
                trail.append(frozenset(map(_told, value)))
                kept.append(list(value))
                continue
            else:
                if id(value) in parts:
                    continue
                parts.add(id(value))
                kept.append(value)
                items = _held(value).items()
                at = path if path is not None and len(path) < _DEEPEST else None
                if path in _SHALLOW:
                    for name, item in items:
                        if (*path, name) not in _APART:
                            trail += (name, len(item) if type(item) in _CONTAINERS else id(item))
                    items = [(name, item) for name, item in items if name == "_growing"]
            for key, item in items:
                inner = None if at is None else (*at, key)
                if inner in _APART:
                    continue
                kind = type(item)
                trail.append(key)
                if kind in _ATOMS:
                    trail.append(item)
                elif kind in _CONTAINERS:
                    trail.append(kind)
                    waiting.append((inner, item))
                else:
                    trail.append(id(item))
                    if kind is not own and _is_part(kind):
                        waiting.append((inner, item))
                    else:
                        kept.append(item)
        self._trail, self._kept, self._growing = trail, kept, growing
        self._ids: set[int] | None = None

    def holds(self, recorder: TypedCapture) -> bool:
        """Tell whether nothing is known otherwise by now, short of new items in tables that grow."""
        for now, was in self._growing:
            if len(now) < len(was):
                return False
            # What was there comes first, unless it was taken out and put back.
            is_same = all(map(operator.is_, now, was)) and all(map(operator.is_, now.values(), was.values()))
            if not is_same and not all(map(operator.is_, map(now.get, was), was.values())):
                return False
        return self._trail == Knowledge(recorder)._trail

    def names(self, values: Collection[object]) -> bool:
        """Tell whether something is known about one of some values: where it is held, or what is known by its id."""
        if self._ids is None:
            self._ids = set(_integers(tuple(self._trail)))
        return any(id(value) in self._ids for value in values)


@functools.lru_cache(1024)
def _is_part(kind: type) -> bool:
    """Tell whether objects of a class are parts of the capture, which are walked."""
    return kind.__module__.startswith(_ROOM) and not issubclass(kind, torch.Tensor)


def _integers(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif type(value) is tuple or type(value) is frozenset:
        for item in value:
            yield from _integers(item)


def _told(key: Hashable) -> Any:
    """What tells a key from others: what it holds, of plain ones; else which object it is."""
    if type(key) is tuple:
        return tuple([item if type(item) in _ATOMS else _told(item) for item in key])
    return key if type(key) in _ATOMS else (type(key), id(key))


def _held(value: Any) -> dict[str, Any]:
    """The attributes of a part of the capture."""
    held = dict(getattr(value, "__dict__", {}))
    for name, slot in _slots(type(value)).items():
        try:
            held[name] = slot.__get__(value)
        except AttributeError:  # not set
            continue
    return held


def _slots(kind: type) -> dict[str, Any]:
    known = _slots_of.get(kind)
    if known is None:
        known = _slots_of[kind] = {}
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name in base.__dict__ and name not in ("__dict__", "__weakref__"):
                    known[name] = base.__dict__[name]
    return known


_slots_of: dict[type, dict[str, Any]] = {}
_GRAD, _INFERENCE = torch.is_grad_enabled, torch.is_inference_mode_enabled  # not what stands for them meanwhile


def _ambient() -> tuple[Any, ...]:
    return _GRAD(), _INFERENCE(), torch._C._is_any_autocast_enabled(), torch.get_default_dtype()

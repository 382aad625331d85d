"""What each method of a list, tuple, deque, dict or set does: a row for each, which `row_engine.py` carries out.

A row says how the method is used, then what goes in: an item is admitted to the kind of what is in the container, an
index is a number or slice, a key is compared with what is in it, several are another iterable. What is in no table the
program must not call.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import heapq
import operator
from collections.abc import Callable
from typing import Any


class Part(enum.Enum):
    """What goes into a container, or comes out of it."""

    INDEX = enum.auto()  # a number or slice, by which the items are counted
    KEY = enum.auto()  # what is compared with what is in it; of dicts and sets, what they hold
    ITEM = enum.auto()  # an item, or the value of a dict: where it goes in, it is admitted to the kind of all
    ITEMS = enum.auto()  # all that is in another iterable
    BOTH = enum.auto()  # a key with its value
    SAME = enum.auto()  # another container with such items


INDEX, KEY, ITEM, ITEMS, BOTH, SAME = Part
Given = list[tuple[Part, Any]]  # the arguments of a call, with what each is to the container


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A method: `takes` are its arguments, of which the last `optional` may be missing; `gives` is what it returns."""

    takes: tuple[Part, ...] = ()
    optional: int = 0
    gives: Part | type | None = None  # a class for a number or truth, None for nothing
    lists: bool = False  # whether it gives a list of that, of all that is in the container
    default: int | None = None  # in place of an index that is missing
    each: str = ""  # the method that does it for each item of a list of the program's
    may_raise: bool = False
    keeps: bool = False  # what it gives is still in the container, so that the program may change it there
    changes: bool = False  # whether the example changes: in the way that the method of the plain class says
    is_hidden: bool = False  # the example does not tell how it changes, or which one it gives
    calls: Callable[..., Any] | None = None  # the function that the node calls in place of the method
    is_part: bool = False  # whether the node is not named after what the program assigns
    owner: type | None = None  # which class of dicts has the method, where not all have
    slices: Row | None = None  # what it does with a slice in place of an index


def Writes(*takes: Part, may_raise: bool = False, **more: Any) -> Row:
    """Changes the container and gives nothing."""
    return Row(takes, may_raise=may_raise, changes=True, **more)


def Takes(gives: Part, *takes: Part, may_raise: bool = True, **more: Any) -> Row:
    """Takes something out and gives it."""
    return Row(takes, gives=gives, may_raise=may_raise, changes=True, **more)


def Reads(gives: Part, *takes: Part, **more: Any) -> Row:
    """Gives what stays in the container."""
    return Row(takes, gives=gives, keeps=True, **more)


def Asks(gives: type, *takes: Part, **more: Any) -> Row:
    """Gives a number or a truth about what is in it."""
    return Row(takes, gives=gives, **more)


def Gives(gives: Part, *takes: Part, **more: Any) -> Row:
    """Gives another container: one of the same kind, or with `lists` a list of keys, values or both."""
    return Row(takes, gives=gives, **more)


Table = dict[str, Row]


def only(table: Table, *methods: str) -> Table:
    """The rows of some methods."""
    return {name: table[name] for name in methods}


TUPLE: Table = {
    "__getitem__": Reads(ITEM, INDEX, may_raise=True, calls=operator.getitem, is_part=True,
                         slices=Gives(SAME, INDEX, calls=operator.getitem, is_part=True)),
    "index": Asks(int, KEY, INDEX, INDEX, optional=2, may_raise=True),
    "count": Asks(int, KEY),
}  # fmt: skip
_SEQUENCE: Table = TUPLE | {
    "append": Writes(ITEM),
    "extend": Writes(ITEMS, each="append"),
    "insert": Writes(INDEX, ITEM),
    "reverse": Writes(),
    "clear": Writes(),
    "copy": Gives(SAME),
    "__setitem__": Writes(INDEX, ITEM, may_raise=True, calls=operator.setitem,
                          slices=Writes(INDEX, ITEMS, calls=operator.setitem)),
    "__delitem__": Writes(INDEX, may_raise=True, calls=operator.delitem),
}  # fmt: skip
LIST: Table = _SEQUENCE | {
    "pop": Takes(ITEM, INDEX, optional=1, default=-1),
    "remove": Writes(KEY, may_raise=True),
}
DEQUE: Table = _SEQUENCE | {
    **{name: dataclasses.replace(_SEQUENCE[name], slices=None) for name in ("__getitem__", "__setitem__")},
    "appendleft": Writes(ITEM),
    "extendleft": Writes(ITEMS, each="appendleft"),
    "pop": Takes(ITEM, default=-1),
    "popleft": Takes(ITEM, default=0),
    "rotate": Writes(INDEX, optional=1),
}
DICT: Table = {
    "__setitem__": Writes(KEY, ITEM, calls=operator.setitem),
    "__delitem__": Writes(KEY, may_raise=True, calls=operator.delitem),
    "__getitem__": Reads(ITEM, KEY, may_raise=True, calls=operator.getitem),
    "get": Reads(ITEM, KEY, ITEM, optional=1),
    "pop": Takes(ITEM, KEY),
    "popitem": Takes(BOTH, INDEX, optional=1),
    "setdefault": Reads(ITEM, KEY, ITEM, changes=True),
    "update": Writes(ITEMS),
    "clear": Writes(),
    "copy": Gives(SAME),
    "keys": Gives(KEY, lists=True),
    "values": Gives(ITEM, lists=True),
    "items": Gives(BOTH, lists=True),
    "most_common": Gives(BOTH, INDEX, lists=True, optional=1, owner=collections.Counter, is_hidden=True),
    "total": Gives(ITEM, owner=collections.Counter),
    "move_to_end": Writes(KEY, INDEX, optional=1, owner=collections.OrderedDict, is_hidden=True),
}
COUNT = Reads(ITEM, KEY, calls=operator.getitem)  # what a `Counter` has for any key
SET: Table = {
    "add": Writes(ITEM, calls=set.add, is_part=True),  # tensors have another `add`
    "remove": Writes(KEY, may_raise=True),
    "discard": Writes(KEY),
    "pop": Takes(KEY, is_hidden=True),
    "update": Writes(ITEMS, is_hidden=True),
    "clear": Writes(),
    "copy": Gives(SAME),
}
KEPT_SET: Table = only(SET, "add", "clear") | {
    "remove": Writes(KEY, may_raise=True, calls=set.remove, is_part=True),
    "discard": Writes(KEY, calls=set.discard, is_part=True),
}
CONTAINS = Asks(bool, KEY, calls=operator.contains)
HEAP: dict[Any, Row] = {
    heapq.heappush: Writes(ITEM, calls=heapq.heappush),
    heapq.heapify: Writes(calls=heapq.heapify),
    heapq.heappop: Takes(ITEM, calls=heapq.heappop),
    heapq.heappushpop: Takes(ITEM, ITEM, may_raise=False, calls=heapq.heappushpop),
    heapq.heapreplace: Takes(ITEM, ITEM, calls=heapq.heapreplace),
}


def arguments_of(row: Row, method: str, args: tuple[Any, ...]) -> Given:
    """The arguments of a call with what each is to the container. Raises TypeError where their number is wrong.

    >>> arguments_of(LIST["insert"], "insert", (0, "a"))
    [(<Part.INDEX: 1>, 0), (<Part.ITEM: 3>, 'a')]
    """
    least, most = len(row.takes) - row.optional, len(row.takes)
    if not least <= len(args) <= most:
        raise TypeError(f"{method}() takes {least}{f' to {most}' if row.optional else ''} arguments, not {len(args)}")
    return list(zip(row.takes, args, strict=False))

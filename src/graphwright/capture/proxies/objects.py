"""Objects of the user's own classes among the inputs: a stand-in for the capture, and what it changed, written back.

The program runs on objects of the same classes whose attributes are symbolic. What it assigns to them, and what it
puts into lists and dicts of the inputs, is compared with the start when the program ends, and becomes assignments at
the end of the graph. So an error on the way leaves the caller's objects as they were.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import operator
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from graphwright.ir import ATOMS, Node
from graphwright.ops import delete_attribute, may_set_attribute, set_attribute
from graphwright.runtime import attributes_of, is_object
from graphwright.values import is_record

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

Change = tuple[Any, ...]  # a function, then what to call it with

_MISSING = object()


def is_plain_object(value: Any) -> bool:
    """Tell whether a value is an object of a class written in Python that keeps all it has in its `__dict__`."""
    return hasattr(value, "__dict__") and is_object(value) and not any(_has_slots(base) for base in type(value).__mro__)


def is_plain_kind(kind: type) -> bool:
    """Tell whether the objects of a class are plain ones, rather than containers of Python's."""
    makes: Any = object.__new__
    return kind.__new__ is makes and is_plain_object(object.__new__(kind))


def _has_slots(kind: type) -> bool:
    return bool(kind.__dict__.get("__slots__"))


def hold(value: Any, name: str, item: Any) -> None:
    """Have an object hold something under a name, past what its class does about it."""
    if may_set_attribute(value, name):
        set_attribute(value, name, item)
    else:
        value.__dict__[name] = item  # no name that a graph may write


class Objects:
    """The containers and objects among the inputs of one capture: how each started."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._held: list[tuple[Any, Any, dict[str, Any]]] = []  # (value, what it held, its attributes)

    def remember(self, value: Any, make: Callable[[], Node]) -> Any:
        """Remember what a container or object holds as the program starts."""
        content: Any = dict(value) if isinstance(value, dict) else ()
        if isinstance(value, list | set | frozenset | collections.deque):
            content = list(value)
        self._held.append((value, content, attributes_of(value)))
        self._recorder.objects[id(value)] = make
        return value

    def changes(self) -> Iterator[Change]:
        """List what the program changed, as calls that do so: a function, the list, dict or object, and the rest."""
        for value, before, attributes in self._held:
            if isinstance(value, list):
                if len(value) != len(before) or any(map(operator.is_not, value, before)):
                    yield operator.setitem, value, slice(None), list(value)
            elif isinstance(value, set | frozenset | collections.deque):
                if len(value) != len(before) or any(map(operator.is_not, value, before)):
                    is_set = isinstance(value, set)
                    yield (set.clear if is_set else collections.deque.clear), value
                    yield (set.update if is_set else collections.deque.extend), value, list(value)
            elif isinstance(value, dict):
                if list(value) != [*[k for k in before if k in value], *[k for k in value if k not in before]]:
                    for key in before:
                        yield operator.delitem, value, key
                    before = {}  # in another order
                yield from _differences(value, before, value, operator.delitem, operator.setitem)
                if is_record(value):
                    continue  # its attributes are its items
            yield from _differences(value, attributes, attributes_of(value), delete_attribute, set_attribute)


def _differences(
    value: Any, before: dict[Any, Any], now: dict[Any, Any], delete: Callable[..., Any], put: Callable[..., Any]
) -> Iterator[Change]:
    for key in before:
        if key not in now:
            yield delete, value, key
    for key, item in now.items():
        if before.get(key, _MISSING) is not item:
            yield put, value, key, item


def constructor_fields(value: Any) -> dict[str, Any] | None:
    """What to call a value's class with to make it again: the fields of a dataclass.

    None where the constructor does more than to set them, or where they are not all that the value has.
    """
    kind = type(value)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is None:
        return None
    if isinstance(value, dict):  # an output class that is both: what it holds is what counts
        is_known = fields.keys() >= value.keys() | vars(value).keys()
        return dict(value) if is_known and _holds_what_it_is_given(kind, value) else None
    held = attributes_of(value)
    if held.keys() != {*_set_by_constructor(kind)}:
        return None
    return held if not hasattr(kind, "__post_init__") or _makes_again(kind, held) else None


def _makes_again(kind: Callable[..., Any], held: dict[str, Any]) -> bool:
    """Tell whether a constructor of the user's gives what it is given, where that is nothing of the program's."""
    if not all(type(each) in ATOMS for each in held.values()):
        return False
    try:
        made = attributes_of(kind(**held))
    except Exception:
        return False
    return made.keys() == held.keys() and all(map(operator.is_, made.values(), map(held.get, made)))


def _set_by_constructor(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass whose constructor was made for them, and takes them all; else none."""
    code: Any = getattr(kind.__init__, "__code__", None)
    is_made = code is not None and code.co_filename == "<string>"
    is_set = kind.__setattr__ is object.__setattr__ or kind.__dataclass_params__.frozen
    if not is_made or not is_set:
        return ()
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return names if {*names} == {field.name for field in dataclasses.fields(kind)} else ()


def _holds_what_it_is_given(kind: Any, names: Collection[str]) -> bool:
    """Tell whether an output class that is a dict, too, holds what it is called with for some fields, as it is."""
    given = {name: object() for name in kind.__dataclass_fields__ if name in names}
    try:
        return list(kind(**given).items()) == list(given.items())
    except Exception:
        return False


def late_fields(value: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an output class that is a dict, too, that are given items after it is made.

    Its constructor gives them in the order of the class, whatever the order in which it holds them.
    """
    kind: Any = type(value)
    order = [field.name for field in dataclasses.fields(kind)] if issubclass(kind, dict) else []
    places = [order.index(name) for name in fields] if order else []
    first = next((i for i, (place, after) in enumerate(itertools.pairwise(places), 1) if after < place), len(fields))
    return {name: fields[name] for name in list(fields)[first:]}

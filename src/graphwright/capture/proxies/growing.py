"""Lists, dicts and sets in attributes to which a program adds, from call to call.

What is in them differs from call to call, so nothing of it is known while the program is captured but what kind of
value each holds: every read and every write is a node, where it happens.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from graphwright.capture.state.plan import Restart
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import refusal
from graphwright.capture.state.symbols import as_number, is_symbolic
from graphwright.errors import CaptureError
from graphwright.ir import Node
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["Growing", "GrowingDict", "GrowingList", "GrowingSet", "is_growing"]

_MISSING: Any = object()


class Growing:
    """What lists, tuples and dicts share: the attribute that holds them, and how an item is made of its node."""

    is_local = False  # whether it is a variable of the program, rather than an attribute
    is_sized = False  # whether its length is a size, so that it can be one that the example has
    name: str
    recorder: Capture
    _read: Callable[[], Node]
    _item: Callable[[Any, Node, str], Any]

    def _start(
        self,
        name: str,
        recorder: Capture,
        read: Callable[[], Node],
        give_up: Callable[[], None] | None = None,
    ) -> None:
        """`give_up` has the next pass take the container for one that does not grow."""
        self.name, self.recorder, self._read, self._give_up = name, recorder, read, give_up
        self._home = recorder.region  # where it was made

    def stands_for(self) -> type:
        """The class that the program takes it to be of."""
        base = getattr(self, "base", None)
        return base or next(kind for kind in (list, dict, set) if isinstance(self, kind))

    def node_of(self) -> Node:
        """The node that reads the container."""
        return self._read()

    def length(self) -> Any:
        """How many items there are: a number of the program."""
        node = self.recorder.node("call_function", len, (self._read(),), {}, "len")
        return as_number(with_examples(self.recorder).numbers.input_symbol(node, self._known_length()))

    def __len__(self) -> int:
        return int(self.length())

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def _known_length(self) -> int:
        raise NotImplementedError

    def truth_hint(self) -> Any:
        """Whether there is anything in it for the example, as far as that is known."""
        return self._known_length() > 0

    def _call(self, method: str, *args: Any) -> Node:
        return self._method(method, *[arg if type(arg) is Node else self.recorder.argument(arg) for arg in args])

    def _method(self, method: str, *arguments: Any) -> Node:
        """The node of a call of a method with these arguments of a node."""
        name = self.recorder.target_name() or method
        return self.recorder.node("call_method", method, (self._read(), *arguments), {}, name=name)

    def _key(self, key: Hashable) -> Any:
        if is_symbolic(key):
            return self.recorder.argument(key)
        return key

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_local:  # who asks is converted, so that it asks the capture
            self.recorder.questions.staging.stage(user_frame(sys._getframe(1)))
        if self._give_up is not None:
            self._give_up()
            raise self.recorder.questions.restart(Restart(f"{self.name} is read as a whole"))
        if self.is_local:
            raise refusal(
                CaptureError(
                    f"the program reads {self.name or 'a container'}, which a loop on data fills, as a whole",
                    at=self.recorder.where(),
                    fix="read single items of it, go over it in a `for` loop, or pass it to an operation",
                )
            )
        raise refusal(
            CaptureError(
                f"the program goes over {self.name}, to which it adds from call to call",
                at=self.recorder.where(),
                fix="read single items of it, or pass it whole to an operation",
            )
        )


class GrowingDict(Growing, dict):  # type: ignore[type-arg]
    """A dict to which the program adds: `kinds` tells what kind of value each key has, where it has one."""

    def __init__(
        self,
        content: dict[Any, Any],
        kinds: dict[Any, Any],
        name: str,
        recorder: Capture,
        read: Any,
        item: Any,
        *rest: Any,
    ) -> None:
        dict.__init__(self, content)
        self.kinds = kinds
        self._item = item
        self._start(name, recorder, read, *rest)

    def _known_length(self) -> int:
        return dict.__len__(self)

    def has(self, key: Hashable) -> Any:
        """`key in self`: a bool of the program; False as long as no pass has shown that the program stores it."""
        if key not in self.kinds:
            return dict.__contains__(self, key)
        node = self.recorder.node("call_function", operator.contains, (self._read(), key), {}, "contains")
        return as_number(with_examples(self.recorder).numbers.input_symbol(node, dict.__contains__(self, key)))

    def __contains__(self, key: Hashable) -> bool:
        return bool(self.has(key))

    def __getitem__(self, key: Hashable) -> Any:
        if key not in self.kinds:
            return dict.__getitem__(self, key)  # just stored, for the first time
        node = self.recorder.node("call_function", operator.getitem, (self._read(), key), {}, "getitem")
        return self._item(self.kinds[key], node, f"{self.name}[{key!r}]")

    def get(self, key: Hashable, default: Any = None) -> Any:
        if key not in self.kinds:
            return default
        return self[key] if self.has(key) else default

    def __setitem__(self, key: Hashable, value: Any) -> None:
        arguments = (self._read(), key, self.recorder.argument(value))
        self.recorder.node("call_function", operator.setitem, arguments, {})
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Hashable) -> None:
        self.recorder.node("call_function", operator.delitem, (self._read(), key), {})

    def update(self, *others: Any, **items: Any) -> None:
        for key, value in dict(*others, **items).items():
            self[key] = value

    def clear(self) -> None:
        self._call("clear")

    __iter__ = keys = values = items = pop = popitem = setdefault = copy = Growing._refuse
    __or__ = __ior__ = __reversed__ = Growing._refuse
    __eq__ = __ne__ = Growing._refuse
    __hash__ = None


class GrowingList(Growing, list):  # type: ignore[type-arg]
    """A list to which the program adds: its items are of one kind. What it removes stays here, as an example."""

    def __init__(
        self, content: list[Any], kind: Any, name: str, recorder: Capture, read: Any, item: Any, *rest: Any
    ) -> None:
        list.__init__(self, content)
        self.kind = kind
        self._item = item
        self._start(name, recorder, read, *rest)

    def _known_length(self) -> int:
        return list.__len__(self)

    def append(self, value: Any) -> None:
        self._call("append", value)
        list.append(self, value)

    def extend(self, values: Iterable[Any]) -> None:
        for value in [*values]:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> GrowingList:  # type: ignore[misc]
        self.extend(values)
        return self

    def insert(self, index: Any, value: Any) -> None:
        self._call("insert", index, value)
        list.insert(self, 0, value)

    def clear(self) -> None:
        self._call("clear")

    def pop(self, *index: Any) -> Any:
        node = self._call("pop", *index)
        return self._item(self.kind, node, self.name)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            self._refuse()
        node = self.recorder.node("call_function", operator.getitem, (self._read(), self._key(index)), {}, "getitem")
        return self._item(self.kind, node, self.name)

    def __setitem__(self, index: Any, value: Any) -> None:
        arguments = (self._read(), self._key(index), self.recorder.argument(value))
        self.recorder.node("call_function", operator.setitem, arguments, {})

    def __delitem__(self, index: Any) -> None:
        self.recorder.node("call_function", operator.delitem, (self._read(), self._key(index)), {})

    __iter__ = remove = sort = reverse = index = count = copy = Growing._refuse
    __add__ = __mul__ = __contains__ = __reversed__ = Growing._refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = Growing._refuse
    __hash__ = None


class GrowingSet(Growing, set):  # type: ignore[type-arg]
    """A set to which the program adds: nothing is read of what is in it but whether it is."""

    def __init__(self, content: set[Any], name: str, recorder: Capture, read: Any, item: Any, *rest: Any) -> None:
        set.__init__(self, content)
        self._item = item
        self._start(name, recorder, read, *rest)

    def _known_length(self) -> int:
        return set.__len__(self)

    def _change(self, function: Callable[..., Any], item: Any) -> None:
        """Call a method of sets with an item: tensors have an `add` of another kind."""
        self.recorder.node("call_function", function, (self._read(), self._key(item)), {}, function.__name__)

    def add(self, item: Any) -> None:
        self._change(set.add, item)
        if not is_symbolic(item):
            set.add(self, item)

    def discard(self, item: Any) -> None:
        self._change(set.discard, item)

    def remove(self, item: Any) -> None:
        self._change(set.remove, item)

    def clear(self) -> None:
        self._call("clear")

    def update(self, *others: Any) -> None:
        for other in others:
            for item in other:
                self.add(item)

    def has(self, item: Any) -> Any:
        """`item in self`: a bool of the program."""
        node = self.recorder.node("call_function", operator.contains, (self._read(), self._key(item)), {}, "contains")
        hint = not is_symbolic(item) and set.__contains__(self, item)
        return as_number(with_examples(self.recorder).numbers.input_symbol(node, hint))

    def __contains__(self, item: Any) -> bool:
        return bool(self.has(item))

    __iter__ = pop = copy = union = intersection = difference = symmetric_difference = Growing._refuse
    issubset = issuperset = isdisjoint = difference_update = intersection_update = Growing._refuse
    symmetric_difference_update = __or__ = __and__ = __sub__ = __xor__ = __ror__ = __rand__ = __rsub__ = Growing._refuse
    __rxor__ = __ior__ = __iand__ = __isub__ = __ixor__ = Growing._refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = Growing._refuse
    __hash__ = None


def is_growing(value: Any) -> bool:
    """Tell whether a value is a list, dict or set to which the program adds from call to call."""
    return isinstance(value, Growing)

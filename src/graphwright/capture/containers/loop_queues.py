"""Deques to which a loop adds: how long they are only a run knows."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.loop_holders import CLASSES
from graphwright.capture.containers.loop_lists import OfRun
from graphwright.capture.proxies.growing import Growing
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["LoopQueue"]


class LoopQueue(OfRun, collections.deque):  # type: ignore[type-arg]
    """A deque of the program's that a loop makes longer; `node` gives it, `place` is the loop's."""

    base = collections.deque

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Capture,
        node: Node | None,
        name: str,
        place: Place | None,
        give_up: Callable[[], Any] | None = None,
        longest: int | None = None,
    ) -> None:
        collections.deque.__init__(self, content, longest)
        self._begin(recorder, node, name, place, give_up)

    def set_content(self, values: Iterable[Any]) -> None:
        """Say what the deque holds for the example."""
        collections.deque.clear(self)
        collections.deque.extend(self, values)

    # ---- what changes it

    def append(self, value: Any) -> None:
        self._add("append", value)

    def appendleft(self, value: Any) -> None:
        self._add("appendleft", value)

    def _add(self, method: str, value: Any) -> None:
        self._admit(value)
        self._method(method, self._written(value))
        self._keep(lambda: getattr(collections.deque, method)(self, value))

    def extend(self, values: Iterable[Any]) -> None:
        self._add_all("extend", values)

    def extendleft(self, values: Iterable[Any]) -> None:
        self._add_all("extendleft", values)

    def _add_all(self, method: str, values: Iterable[Any]) -> None:
        if not isinstance(values, OfRun):
            for value in [*values]:
                self._add("append" if method == "extend" else "appendleft", value)
            return
        self._admit_kind(values.kind)
        self._call(method, values)
        self.is_certain &= values.is_certain
        self._keep(lambda: getattr(collections.deque, method)(self, values.content()))

    def __iadd__(self, values: Iterable[Any]) -> LoopQueue:  # type: ignore[misc]
        self.extend(values)
        return self

    def insert(self, index: Any, value: Any) -> None:
        self._admit(value)
        self._method("insert", self.recorder.argument(index), self._written(value))
        self._keep(lambda: collections.deque.insert(self, int(index), value))

    def pop(self) -> Any:  # type: ignore[override]
        return self._taken_from("pop", -1)

    def popleft(self) -> Any:
        return self._taken_from("popleft", 0)

    def _taken_from(self, method: str, index: int) -> Any:
        self._may_raise()
        item = self._made(self._kind_at(index), self._call(method), self.name)
        take = getattr(collections.deque, method)
        self._keep(lambda: take(self) if collections.deque.__len__(self) else None)
        return item

    def rotate(self, steps: Any = 1) -> None:
        self._call("rotate", steps)
        self._keep(lambda: collections.deque.rotate(self, int(steps)))

    def reverse(self) -> None:
        self._call("reverse")
        self._keep(lambda: collections.deque.reverse(self))

    def clear(self) -> None:
        self._call("clear")
        self._keep(lambda: collections.deque.clear(self))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise TypeError("sequence index must be integer, not 'slice'")
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._set(index, value)

    def __delitem__(self, index: Any) -> None:
        self._delete(index)

    def copy(self) -> Any:
        return self._like(self.content(), self._call("copy"))

    def _like(self, content: Iterable[Any], node: Node, base: Any = None) -> Any:
        made = super()._like(content, node, base)
        if type(made) is LoopQueue and self.maxlen is not None:
            longest = LoopQueue(content, self.recorder, node, self.name, self.place, self._give_up, self.maxlen)
            longest.is_certain, longest.kind = made.is_certain, made.kind
            return longest
        return made

    index, count = OfRun.index, OfRun.count
    __iter__ = remove = __mul__ = __rmul__ = __imul__ = __contains__ = __reversed__ = Growing._refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = Growing._refuse
    __hash__ = None


CLASSES[collections.deque] = LoopQueue

"""Lists, dicts, sets and objects of which data chose one: what stands for the chosen one is a copy until one changes.

Where the two sides of a branch leave different objects in one place, the join holds what either holds. That is right as
long as nobody changes it or one of the two, and nobody asks which of them it is. Both are looked for here, and then the
branch goes another way: its sides take what follows with them, or it forks.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.watched_values import WatchedOutside, WatchedValues
from graphwright.capture.proxies.contents import changeable, content
from graphwright.capture.proxies.growing import Growing, is_growing
from graphwright.capture.state.running import set_in_context, stopping

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.ir import Target

_CHANGES = frozenset(
    {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "popitem"}
    | {"add", "discard", "appendleft", "popleft", "extendleft", "rotate", "difference_update", "intersection_update"}
    | {"symmetric_difference_update", operator.setitem, operator.delitem, operator.iadd}
)


@dataclasses.dataclass(eq=False)
class Choice:
    """What stands for one of several originals; `held` is what all of them held then.

    `give_up` makes what has the capture start again without the choice, of why that has to be. `is_held` tells whether
    the program still has an original, where the references to it do not. Choices that are given up by the same and
    `is_apart` stand for different originals.
    """

    joined: Any
    originals: list[Any]
    give_up: Callable[[str], BaseException]
    is_held: Callable[[Any], bool] | None = None
    is_apart: bool = False
    held: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)

    def look_again(self) -> None:
        """Take what the objects hold now for what they are to hold."""
        self.held = [(inner, content(inner)) for value in self.values() for inner in _containers(value)]

    def values(self) -> Iterator[Any]:
        """What stands for them, and they themselves."""
        yield self.joined
        yield from self.originals

    def differs_from(self, other: Choice) -> bool:
        """Tell whether another choice stands for another original, or is this very one."""
        is_together = self.is_apart and self.give_up is other.give_up
        return self.joined is other.joined or is_together

    def has_changed(self) -> bool:
        """Tell whether one of the objects holds something else now."""
        return not all(_is_same(content(inner), before) for inner, before in self.held)


class Choices:
    """The choices of one capture that the program may still notice."""

    def __init__(self, recorder: Capture) -> None:
        self._recorder = recorder
        self.open: list[Choice] = []

    def note(self, choice: Choice, known: Iterable[Choice] = ()) -> None:
        """Note that something stands for one of several; `known` are the choices made on the sides."""
        found: dict[int, Any] = {}
        of = {id(each.joined): each for each in (*self.open, *known)}
        for value in choice.originals:
            for each in (value, *(of[id(value)].originals if id(value) in of else ())):
                if each is not choice.joined:
                    found[id(each)] = each
        choice.originals = [*found.values()]
        choice.look_again()
        self.open.append(choice)

    def mark(self) -> int:
        """How many choices there are, for `cut`."""
        return len(self.open)

    def cut(self, mark: int) -> list[Choice]:
        """The choices noted after a mark, which are open no more: those of a side that has ended."""
        ended, self.open = self.open[mark:], self.open[:mark]
        return ended

    def reopen(self, choices: Iterable[Choice]) -> None:
        """Have choices of a side be open after it, too."""
        for choice in choices:
            choice.look_again()
            self.open.append(choice)

    def look(self) -> None:
        """See that no object of a choice has changed. Raises what has the capture start again."""
        if not self.open or self._recorder.pending is not None:
            return
        changed = [choice for choice in self.open if choice.has_changed()]
        if changed:
            self._forget()
            self._end(next((choice for choice in changed if choice in self.open), None), "is changed")

    def at_node(self, target: Target, args: tuple[Any, ...]) -> None:
        """See that a node that is to be made does not change what stands for a chosen object."""
        if args and target in _CHANGES:
            for choice in self.open:
                if any(is_growing(value) and getattr(value, "node", None) is args[0] for value in choice.values()):
                    self._forget()
                    self._end(choice if choice in self.open else None, "is changed")
        self.look()

    def ask(self, one: Any, other: Any) -> None:
        """The program asks whether two objects are one: see that it is known. Raises what starts again."""
        if one is other:
            return
        mine, its = ([value, *self._originals(value)] for value in (one, other))
        if any(value is another for value in mine for another in its):
            choice = next(each for each in self.open if each.joined is one or each.joined is other)
            self._end(choice, "is compared with `is`")

    def at_end(self, result: Any, inputs: Iterable[Any], outside: WatchedOutside | None = None) -> None:
        """See that nobody can tell later what stands for an object from the object. Raises what starts again.

        Whoever gets a joined object and has one of its originals, or another object that may be the same one, may
        compare or change them: by the result, or what the inputs, the modules and variables outside hold.
        """
        self.look()
        if not self.open:
            return
        everything, shells = WatchedValues(), self._recorder.shells
        modules = [] if shells is None else [shell for _, shell, _ in shells.all()]
        for value in (result, *inputs, *modules, *set_in_context()):
            everything.watch(value)
        if outside is not None:
            everything.take(outside.look()[1])
        owners: dict[int, Choice] = {}  # by the id of an original: what stands for it and is left
        for choice in self.open:
            for value in choice.originals if everything.has_seen(choice.joined) else ():
                if everything.has_seen(value) or not choice.differs_from(owners.setdefault(id(value), choice)):
                    self._end(choice, "is left with the program's caller, who can tell it from others,")

    def _originals(self, value: Any) -> list[Any]:
        return [each for choice in self.open if choice.joined is value for each in choice.originals]

    def _end(self, choice: Choice | None, what: str) -> None:
        if choice is None:
            return
        kind = type(choice.joined).__name__
        kind = choice.joined.stands_for().__name__ if isinstance(choice.joined, Growing) else kind
        raise stopping(choice.give_up(f"it decides which {kind} {what} at {self._recorder.where()}"))

    def _forget(self) -> None:
        """Drop the choices of which the program holds nothing but what was joined, or not even that."""
        while True:
            ours = _references(self.open)
            names = collections.Counter(id(value) for choice in self.open for value in choice.originals)
            kept = [choice for choice in self.open if _is_held(choice, ours, names)]
            if len(kept) == len(self.open):
                return
            self.open = kept


def _references(choices: list[Choice]) -> collections.Counter[int]:
    """How often each object is held by choices."""
    found: collections.Counter[int] = collections.Counter()
    for choice in choices:
        found.update(map(id, choice.values()))
        for inner, before in choice.held:
            found[id(inner)] += 1
            found.update(map(id, before.values() if isinstance(before, dict) else before))
    return found


def _is_held(choice: Choice, ours: collections.Counter[int], names: collections.Counter[int]) -> bool:
    """Tell whether the program still has what was joined, and one of the originals by another name.

    `ours` are our references to objects, `names` how many choices each may be.
    """
    if sys.getrefcount(choice.joined) <= ours[id(choice.joined)] + 1:
        return False
    originals = choice.originals
    if any(names[id(value)] > 1 for value in originals):
        return True
    if choice.is_held is not None:
        return any(map(choice.is_held, originals))
    return any(sys.getrefcount(originals[i]) > ours[id(originals[i])] + 1 for i in range(len(originals)))


def _containers(value: Any) -> list[Any]:
    return [value] if isinstance(value, Growing) else changeable(value)


def _is_same(now: Any, before: Any) -> bool:
    """Tell whether two contents are the very same values."""
    if isinstance(now, set):
        return bool(now == before)
    if len(now) != len(before):
        return False
    if isinstance(now, dict):
        return all(key in before and before[key] is value for key, value in now.items())
    return all(map(operator.is_, now, before))

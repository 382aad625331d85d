"""Tables of what a program may keep, and what was in them when it started."""

from __future__ import annotations

import collections
import dataclasses
import operator
import weakref
from collections.abc import Hashable, Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.effects.held_tables import Field, Hidden, held_by, holds_the_same, reads_plainly, sets_plainly
from graphwright.capture.effects.kept_kinds import is_same
from graphwright.capture.effects.variables import Variables
from graphwright.capture.proxies.contents import content
from graphwright.capture.proxies.growing import is_growing
from graphwright.runtime import attributes_of
from graphwright.source import is_foreign_class

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.runtime import Shells

ABSENT: Any = object()
_MODULES = (nn.Module, weakref.ref)
_NESTED = frozenset(".:")  # in the paths of what is inside of something else


@dataclasses.dataclass(eq=False)
class Table:
    """A dict of attributes, or a container in one, and what was in it when the program started."""

    kind: type  # the class of the module or object
    owner: str  # its name and that of the attribute, for people
    path: str  # the dotted path of the module, with a dot; or of the attribute that holds the container
    keys: tuple[Any, ...] | None  # from that attribute to the container or object; None for a dict of attributes
    now: Any
    before: dict[Any, Any]
    written: dict[Any, Any] = dataclasses.field(default_factory=dict)  # what the graph has written already
    transient: set[str] | None = None  # of a table of buffers: those that do not persist
    aside: dict[Any, Any] = dataclasses.field(default_factory=dict)  # attributes that nobody has asked for

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, value before, value now) of what is another than before; without one, `ABSENT`."""
        now = held_by(self.now)
        for key, value in now.items():
            before = self.before.get(key, ABSENT)
            if before is not value and not is_same(before, value):
                yield key, before, value
        for key, before in self.before.items():
            if key not in now and key not in self.aside:
                yield key, before, ABSENT

    def is_changed_for_modules(self) -> bool:
        """Tell whether a dict has something else for a module, of which each pass has another stand-in."""
        if not isinstance(self.now, dict) or not any(isinstance(key, _MODULES) for key in (*self.now, *self.before)):
            return False
        return any(isinstance(key, _MODULES) for key, _, _ in self.changes())

    def has_other_order(self) -> bool:
        """Tell whether keys that were there before, and still are, stand in another order."""
        if self.keys is None or not isinstance(self.now, dict) or is_growing(self.now):
            return False
        before = [key for key in self.before if key in self.now]
        return not all(map(operator.is_, before, [key for key in self.now if key in self.before]))

    def unwritten(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) of what has changed since it was written last."""
        now = held_by(self.now)
        for key, value in now.items():
            known = self.written[key] if key in self.written else self.before.get(key, ABSENT)
            if known is not value and not is_same(known, value):
                yield key, value

    def name(self, key: Hashable) -> str:
        is_attribute = self.keys is None or isinstance(key, Field)
        return f"{self.owner}.{key}" if is_attribute else f"{self.owner}[{key!r}]"

    def place(self, key: Any) -> Place:
        """What the plan knows one of the things in it by."""
        if self.keys is None:
            return self.path + key, ()
        if isinstance(key, Field) and not reads_plainly(self.now, key):
            key = Hidden(key)
        return self.path, (*self.keys, key)

    def dotted(self, key: Hashable) -> str:
        """The dotted path of an attribute; an empty one for items, and where a class does something about it."""
        if self.keys is None:
            return f"{self.path}{key}"
        path, keys = self.place(key)
        is_dotted = all(type(key) is Field for key in keys) and sets_plainly(self.now)
        return ".".join((path, *keys)) if is_dotted else ""

    @property
    def may_grow(self) -> bool:
        """Whether it is a list, dict, set or deque in an attribute."""
        return self.keys is not None and isinstance(self.now, list | dict | set | collections.deque)


class ByPath:
    """Finds tables by the modules that they are of, in a list that only gets longer."""

    def __init__(self) -> None:
        self._below: dict[str, list[Table]] = collections.defaultdict(list)  # by the path of each module around
        self._elsewhere: list[Table] = []
        self._count = 0

    def below(self, path: str, tables: list[Table]) -> list[Table]:
        """The tables of a module and of those below it, and all that are of no module: of objects and variables."""
        for table in tables[self._count :]:
            if table.keys is not None or not issubclass(table.kind, nn.Module):
                self._elsewhere.append(table)
                continue
            atoms = table.path.split(".")
            for count in range(1, len(atoms)):
                self._below[".".join(atoms[:count])].append(table)
        self._count = len(tables)
        return [*self._elsewhere, *self._below.get(path, ())]


def touched(tables: list[Table]) -> list[Table]:
    """Those of some tables that may hold or have been written other values: most hold the very same."""
    found = []
    for table in tables:
        now, before = table.now, table.before
        if table.written:
            is_same = False
        elif table.keys is not None or not isinstance(now, dict):
            is_same = holds_the_same(now, before)
        else:  # what stands aside comes last
            count = dict.__len__(now)
            is_same = count == len(before) - len(table.aside) and (
                not count
                or (
                    all(map(operator.is_, dict.values(now), before.values()))
                    and all(map(operator.is_, dict.keys(now), before))
                )
            )
        if not is_same:
            found.append(table)
    return found


def of_class(table: Table, key: Hashable) -> Any:
    """What the class of a module or object has under a name, which an attribute of its own comes to stand before.

    ABSENT where it has nothing there, or code.
    """
    is_of_module = table.keys is None and holds_attributes(table) and not isinstance(table.now, Variables)
    if not isinstance(key, str) or not (is_of_module or isinstance(key, Field)):
        return ABSENT
    found = next((vars(base)[key] for base in table.kind.__mro__ if key in vars(base)), ABSENT)
    return ABSENT if isinstance(found, type | FunctionType) or hasattr(type(found), "__get__") else found


def key_in(table: Table, path: str, keys: tuple[Any, ...]) -> Any:
    """What a place is in a table, None where it is in another one."""
    if table.keys is None:
        name = path[len(table.path) :]
        is_here = not keys and path.startswith(table.path) and holds_attributes(table)
        is_here = is_here and (isinstance(table.now, Variables) or _NESTED.isdisjoint(name))
        return name if is_here else None
    return keys[-1] if keys and path == table.path and keys[:-1] == table.keys else None


def holds_attributes(table: Table) -> bool:
    """Tell whether a table of no container is that of the attributes of a module, or of variables."""
    return isinstance(table.now, Variables) or "_modules" in table.now


def acts_twice(table: Table, key: str, now: object, tables: Iterable[Table], shells: Shells | None) -> bool:
    """Tell whether a class makes something else of what it is given where it is set, or changes other things then."""
    if shells is None or not issubclass(table.kind, nn.Module) or table.kind.__setattr__ is nn.Module.__setattr__:
        return False
    shell = next((shell for _, shell, _ in shells.all() if shell.__dict__ is table.now), None)
    if shell is None:
        return False
    watched = [each.now for each in tables] + [base for base in table.kind.__mro__ if not is_foreign_class(base)]
    before = [_held(each) for each in watched]
    setattr(shell, key, now)
    is_other = table.now.get(key, ABSENT) is not now
    table.now[key] = now
    return is_other or any(map(_differs, before, map(_held, watched)))


def _held(owner: Any) -> dict[Any, Any]:
    """What a table, a container or a class holds, past what stands for one that grows."""
    if isinstance(owner, type):
        return dict(vars(owner))
    if isinstance(owner, Variables):
        return dict(owner.read())
    if isinstance(owner, dict | list | set | collections.deque):
        held = content(owner)
        return held if isinstance(held, dict) else dict(enumerate(held))
    return dict(attributes_of(owner))


def _differs(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() != other.keys() or not all(is_same(one[key], other[key]) for key in one)


def why_gone(table: Table, key: Hashable) -> tuple[str, str]:
    """What the program did to an attribute that is no more there, and what to do instead."""
    of_module = table.keys is None and not isinstance(table.now, Variables)
    for name, what in (("_parameters", "parameter"), ("_modules", "module")) if of_module else ():
        if key in table.now.get(name, ()):
            made = f"makes the {what} {table.name(key)} while it runs, which only the first call does"
            return made, "call the model once before it is captured, or make it in __init__"
    return f"deletes {table.name(key)}", "give it the value None instead"


def below(shell: nn.Module) -> Iterator[nn.Module]:
    """A shell and those below it, short of those that nobody has asked for."""
    if vars(shell):
        yield shell
        for child in dict.values(shell._modules):
            if child is not None:
                yield from below(child)

"""What a call looks at of what was taken for granted: found once for each tree of modules, compared in C.

`expect_modules(self)` at the start of generated code looks whether the modules still are what they were.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Set
from itertools import repeat
from typing import Any

from torch import nn

from graphwright.errors import GuardError
from graphwright.ir import Graph
from graphwright.runtime.graph_facts import Facts, Forwards, code_of_function, forwards_of
from graphwright.runtime.inside import (
    ABSENT,
    HOOKS,
    TABLES,
    held_at,
    held_by,
    holder_of,
    inside_of,
    keys_in,
    places_of,
)
from graphwright.runtime.objects import slots_of, state_of
from graphwright.runtime.plain_values import (
    BYTES,
    copied_around,
    fits,
    has_the_very,
    holds_tensors,
    is_equal,
    is_plain_container,
    is_same,
    kinds_in,
    spelled,
)
from graphwright.runtime.premises.names import module_at
from graphwright.runtime.premises.text import OF_TENSORS
from graphwright.runtime.premises.unlike import AGAIN, idle_everywhere, is_bare, unlike_modules
from graphwright.runtime.watching import Watch, Watched

_CONTAINERS = (list, dict, set, collections.deque)  # whose content may become another


class Bound:
    """The facts of one captured module, as a call looks at them: dicts of its modules, and what is to be in them.

    All comparisons are made in C, without a loop of Python's: about 30 ns a fact, or 46 ns a table as long as none of
    these is written to.
    """

    __slots__ = (
        "_closed", "_containers", "_contents", "_filled", "_found", "_idle", "_is_plain", "_kept",
        "_keyed", "_keys", "_kinds", "_lacking", "_names", "_now", "_of_tensors", "_ordered", "_own", "_plain", "_rows",
        "_slots", "_spelled", "_tables", "_then", "_typed", "_types", "_values", "_watch", "_with_tensors", "facts",
    )  # fmt: skip

    def __init__(self, root: nn.Module, facts: Mapping[str, Facts], forwards: Forwards) -> None:
        self.facts = facts  # which a pass may have replaced since
        self._found = forwards.looked_at
        self._idle = idle_everywhere(facts)  # tables of hooks that are to be empty
        self._own: list[dict[str, Any]] = []  # attributes of modules that are to have no `forward`
        self._tables: list[dict[str, Any]] = []  # of submodules and of hooks, and what is to be in them
        self._containers: list[tuple[dict[str, Any], str]] = []  # attributes of which the content counts
        self._of_tensors: list[tuple[dict[str, Any], str, str, Any]] = []  # tables, names, facts, and values
        self._spelled: list[tuple[dict[str, Any], str, Any]] = []  # arrays, partial functions, and what was in them
        self._with_tensors: list[tuple[dict[str, Any], str, Any]] = []  # containers of tensors, and what was in them
        self._slots: list[tuple[Any, str, Any]] = []  # objects without a `__dict__`, names and values
        self._ordered: list[tuple[dict[Any, Any], list[Any]]] = []  # dicts inside of others, and their keys
        self._keys: list[tuple[dict[str, Any], list[str]]] = []  # tables of tensors, and the names to be there
        self._closed: list[tuple[dict[str, Any], str, Set[Any]]] = []  # dicts, and keys that they are not to have
        self._lacking: list[tuple[type, str]] = []  # classes, and attributes that they are not to have
        self._kept: list[tuple[Any, str, Any]] = []  # what the program writes itself, and of which form it is
        self._typed: list[Any] = []  # modules and objects whose class is taken for granted
        self._plain: list[tuple[dict[str, Any], str]] = []  # those which are to be of the class that they are of
        reads: list[tuple[dict[str, Any], str]] = []  # attributes, which are to be the very objects that they are
        filled: list[tuple[dict[str, Any], str]] = []  # parameters and the like that are not to be None
        for path, of_one in facts.items():
            self._add_path(root, path)
            module = module_at(root, path)
            if isinstance(module, nn.Module) and not is_bare(module, of_one):
                if path and "class" in of_one:
                    self._typed.append(module)
                asked = (*of_one.get("exact", ()), *of_one.get("kinds", ()))
                self._typed += [child for name in asked if (child := module._modules.get(name)) is not None]
                self._lacking += [(type(module), name) for name in of_one.get("lacking", ())]
                self._add(module.__dict__, of_one, reads, filled)
                for each in of_one.get("same", {}):
                    self._add_inside(module, each, reads)
                self._kept += [(*holder_of(module, each), form) for each, form in of_one.get("kept", {}).items()]
                for each in of_one.get("is_none", {}):
                    if "." in each:
                        self._add_kind_inside(module, each)
                for fact in OF_TENSORS:
                    for each in of_one.get(f"{fact}s", {}):
                        if "." in each:  # of an object that the module holds
                            self._add_inside(module, each, reads)
                            held = held_at(module, each)
                            self._of_tensors.append(({each: held}, each, fact, getattr(held, fact, None)))
        held = [table.get(name) for table, name in self._containers]
        self._contents = [(copied_around(value), kinds_in(value)) for value in held]
        self._then = [dict(table) for table in self._tables]
        self._types = [*map(type, self._typed)]
        self._now = *map(list, zip(*reads, strict=True)), [ABSENT] * len(reads)
        self._values = [table.get(name, ABSENT) for table, name in reads]
        self._filled = *map(list, zip(*filled, strict=True)), [None] * len(filled)
        others = self._closed, self._contents, self._of_tensors, self._spelled, self._slots, self._with_tensors
        self._is_plain = not any((*others, self._kept, self._ordered))
        self._kinds = [type(table.get(name)) for table, name in self._plain]
        self._keyed, self._names = [table for table, _ in self._keys], [names for _, names in self._keys]
        self._rows: dict[int, _Row] | None = None  # all this by the id of the table, at first need
        self._watch = Watch([self.watched()])

    def _add_inside(self, module: nn.Module, path: str, reads: list[tuple[dict[str, Any], str]]) -> None:
        """Look whether what stands at a path inside of a module is the very object."""
        places = list(places_of(module, path))
        reads += places
        holder, name = holder_of(module, path)
        if not places and not issubclass(type(holder), nn.Module):  # in a slot, or a container
            self._slots.append((holder, name, _kept(inside_of(holder).get(name, ABSENT))))

    def _add_kind_inside(self, module: nn.Module, path: str) -> None:
        """Look whether what an object has that the module holds is of the class that it is of."""
        holder, name = holder_of(module, path)
        state = {} if issubclass(type(holder), dict) else state_of(holder)
        if name in state:
            self._plain.append((state, name))
        else:
            self._slots.append((holder, name, _kept(inside_of(holder).get(name, ABSENT))))

    def _add_path(self, root: nn.Module, path: str) -> None:
        module: Any = root
        for atom in path.split(".") if path else ():
            table = getattr(module, "_modules", {})
            if not any(table is known for known in self._tables):
                self._tables.append(table)
            module = table.get(atom)

    def _add(
        self,
        state: dict[str, Any],
        facts: Facts,
        reads: list[tuple[dict[str, Any], str]],
        filled: list[tuple[dict[str, Any], str]],
    ) -> None:
        reads += [(state, table) for table in (*HOOKS, *TABLES)]  # which may be replaced by others
        if "forward" in facts:
            reads.append((state, "forward"))
        elif "hooks" in facts:
            self._own.append(state)
        if "hooks" in facts:
            for table in HOOKS:
                (self._tables if facts["hooks"].get(table) else self._idle).append(state[table])
        for name in facts.get("values", {}):
            self._add_value(state, name, reads)
        for path, of_object in facts.get("objects", {}).items():
            self._add_object(state, path, of_object, reads)
        for table in facts.get("holds", {}):
            self._keys.append((state[table], list(state[table])))
            if table == "_modules" and not any(state[table] is known for known in self._tables):
                self._tables.append(state[table])
        for name, was in facts.get("is_none", {}).items():
            if "." in name:
                continue
            held = next((state[each] for each in TABLES if name in state[each]), state)
            (reads if was is True else filled if held is not state else self._plain).append((held, name))
        for fact in OF_TENSORS:
            for name in facts.get(f"{fact}s", {}):
                if "." not in name:
                    held = next((state[each] for each in TABLES if name in state[each]), state)
                    self._of_tensors.append((held, name, fact, getattr(held.get(name), fact, None)))
        for name, tags in facts.get("tags", {}).items():
            of_tensor = next((state[each] for each in TABLES if name in state[each]), state)
            reads.append((of_tensor, name))
            own = state_of(of_tensor.get(name))
            for tag in tags["has"]:
                self._add_value(own, tag, reads)
            reads += [(own, tag) for tag in tags["lacks"]]
        reads += [(state, name) for name in facts.get("drawn", ())]
        self._closed += [(state, name, set(keys)) for name, keys in facts.get("without", {}).items()]
        if "names" in facts:
            self._keys.append((state, list(state)))
        reads += [(state["_modules"], name) for name in {**facts.get("kinds", {}), **facts.get("exact", {})}]
        absent = facts.get("absent", ())
        reads += [(table, name) for name in absent for table in (state, *[state[each] for each in TABLES])]

    def _add_value(self, state: dict[str, Any], name: str, reads: list[tuple[dict[str, Any], str]]) -> None:
        """Look whether an attribute is the very object; of one that may hold something else, what it holds."""
        value = state.get(name)
        if isinstance(value, (*BYTES, functools.partial)):
            self._spelled.append((state, name, spelled(value)))
        if holds_tensors(value):
            self._with_tensors.append((state, name, copied_around(value)))
            return
        (self._containers if _may_be_filled(value) else reads).append((state, name))

    def _add_object(
        self, state: dict[str, Any], path: str, facts: Facts, reads: list[tuple[dict[str, Any], str]]
    ) -> None:
        """Look whether the very object is still there, and its values."""
        *owners, name = path.split(".")
        holder: Any = None
        for owner in owners:
            holder = state.get(owner) if holder is None else inside_of(holder).get(owner)
            state = state_of(holder)
        if owners and name not in state:  # in a container
            value = inside_of(holder).get(name)
            self._slots.append((holder, name, _kept(value)))
        else:
            value = state.get(name)
            reads.append((state, name))
        self._typed += [value] if type(value).__module__ != "builtins" else []  # whose class may become another
        held = {} if issubclass(type(value), dict) else state_of(value)
        is_dict = issubclass(type(value), dict)
        if "names" in facts and held:
            self._keys.append((held, list(held)))
        elif "names" in facts and isinstance(value, dict):
            self._ordered.append((value, keys_in(value)))
        reads += [(held, each) for each in facts.get("absent", ())]
        if is_dict or slots_of(type(value)):
            self._slots += [(value, each, ABSENT) for each in facts.get("absent", ())]
        if issubclass(type(value), nn.Module):
            self._idle += [held[table] for table in HOOKS if not held[table]]
            held = _OfModule({each: table for table in (held, *[held[each] for each in TABLES]) for each in table})
        for each in facts["values"]:
            if isinstance(held, _OfModule) and each in held:
                self._add_value(held[each], each, reads)
            elif isinstance(held, _OfModule) and facts["values"][each] == 0 and each == "hooks()":
                continue
            elif each not in held:
                self._slots.append((value, each, _kept(inside_of(value).get(each, ABSENT))))
            else:
                self._add_value(held, each, reads)

    def watched(self) -> Watched:
        """What is looked at, short of what `rest_holds` is asked for."""
        tables = [*self._tables, *self._own, *[table for table, _ in self._keys]]
        for reads in (self._now, self._filled):
            tables += reads[0] if len(reads) == 3 else []
        tables += [table for table, _ in self._plain]
        return Watched(tables, self._idle, self._typed, self._types, lacking=self._lacking, attributes=self._found)

    def holds(self) -> bool:
        """Tell whether all is as it was when this was made; what is not may still be as good."""
        if not self._watch.holds():
            written = self._watch.written()
            if written is not None and all(map(self._table_holds, written[0])):
                self._watch.keep(written[1])  # a program that writes to its modules has all the others left alone
            else:
                versions = self._watch.look()
                if not self._tables_hold():
                    return False
                self._watch.keep(versions)
        return self._is_plain or self.rest_holds()

    def _table_holds(self, table: dict[str, Any]) -> bool:
        """Tell whether one table has what counts of it."""
        if self._rows is None:
            self._rows = self._by_table()
        row = self._rows[id(table)]
        return (
            (row.then is None or table == row.then)
            and (row.names is None or list(table) == row.names)
            and all(map(_IS, map(table.get, row.reads, repeat(ABSENT)), row.reads.values()))
            and None not in map(table.get, row.filled)
            and all(map(_IS, map(type, map(table.get, row.kinds)), row.kinds.values()))
            and not (row.is_own and "forward" in table)
        )

    def _by_table(self) -> dict[int, _Row]:
        rows: dict[int, _Row] = collections.defaultdict(_Row)
        for table, then in zip(self._tables, self._then, strict=True):
            rows[id(table)].then = then
        for table, names in zip(self._keyed, self._names, strict=True):
            rows[id(table)].names = names
        for table, name, value in zip(*self._now[:2], self._values, strict=True) if self._values else ():
            rows[id(table)].reads[name] = value
        for table, name in zip(*self._filled[:2], strict=True) if len(self._filled) == 3 else ():
            rows[id(table)].filled.append(name)
        for (table, name), kind in zip(self._plain, self._kinds, strict=True):
            rows[id(table)].kinds[name] = kind
        for table in self._own:
            rows[id(table)].is_own = True
        return rows

    def _tables_hold(self) -> bool:
        if self._tables != self._then or any(self._idle):
            return False
        if [*map(type, self._typed)] != self._types:
            return False
        owners, attributes, values = self._found
        if not all(map(_IS, map(getattr, owners, attributes), values)):
            return False
        if self._lacking and any(map(hasattr, *zip(*self._lacking, strict=True))):
            return False
        if self._own and any(map(_CONTAINS, self._own, repeat("forward"))):
            return False
        if self._values and not all(map(_IS, map(_GET, *self._now), self._values)):
            return False
        if len(self._filled) == 3 and any(map(_IS, map(_GET, *self._filled), _NONES)):
            return False
        if self._plain and [type(table.get(name)) for table, name in self._plain] != self._kinds:
            return False
        return [*map(list, self._keyed)] == self._names

    def rest_holds(self) -> bool:
        """Tell the same of what may change without a write to a table; most programs have none of it."""
        if self._is_plain:
            return True
        for (table, name), (was, kinds) in zip(self._containers, self._contents, strict=True):
            now = table.get(name)
            if not has_the_very(now, was) and (not is_equal(now, was) or kinds_in(now) != kinds):
                return False
        if not all(is_same(table.get(name), was) for table, name, was in self._with_tensors):
            return False
        if any(getattr(table.get(name), fact, None) != was for table, name, fact, was in self._of_tensors):
            return False
        if self._closed and any(not keys.isdisjoint(table.get(name, ())) for table, name, keys in self._closed):
            return False
        if self._spelled and any(spelled(table.get(name)) != was for table, name, was in self._spelled):
            return False
        if any(keys_in(held) != names for held, names in self._ordered):
            return False
        if not all(_is_left(*each) for each in self._kept):
            return False
        return all(_is_still(inside_of(value).get(name, ABSENT), was) for value, name, was in self._slots)


@dataclasses.dataclass(eq=False, slots=True)
class _Row:
    """What is looked at in one table: all of it, its names, and attributes: the same, not None, of a class, absent."""

    then: dict[str, Any] | None = None
    names: list[str] | None = None
    reads: dict[str, Any] = dataclasses.field(default_factory=dict)
    filled: list[str] = dataclasses.field(default_factory=list)
    kinds: dict[str, type] = dataclasses.field(default_factory=dict)
    is_own: bool = False


class _OfModule(dict[str, Any]):
    """The tables of a module by the names in them."""


def _may_be_filled(value: Any) -> bool:
    """Tell whether a value, or a tuple's, may hold something else and be the same object."""
    kind = type(value)  # nothing of its class runs
    return issubclass(kind, _CONTAINERS) or (issubclass(kind, tuple) and any(map(_may_be_filled, value)))


def _kept(value: Any) -> Any:
    """A value, or a copy of one that may hold something else and be the same object."""
    is_copied = _may_be_filled(value) and (holds_tensors(value) or is_plain_container(value))
    return copied_around(value) if is_copied else value


def _is_left(holder: Any, name: str, form: Any) -> bool:
    """Tell whether what is at a place is of the form in which calls leave it, or not there."""
    held = held_by(holder, name) if issubclass(type(holder), nn.Module) else inside_of(holder).get(name, ABSENT)
    return "there" not in form if held is ABSENT else fits(held, form)


def _is_still(now: Any, was: Any) -> bool:
    return now is was or (_may_be_filled(was) and is_same(now, was))


_CONTAINS, _IS = operator.contains, operator.is_
_GET: Callable[..., Any] = dict.get
_NONES = repeat(None)


def bound(root: nn.Module, graph: Graph, facts: Mapping[str, Facts]) -> Bound:
    """Check what a graph takes for granted of modules; return what calls look at. Raises GuardError."""
    said, fix = unlike_modules(root, facts, graph)
    forwards = forwards_of(graph)
    for kind, forward in forwards.of_classes.items() if not said else ():
        if kind.forward is not forward:  # type: ignore[attr-defined]
            said, fix = f"{kind.__qualname__}.forward has been replaced since the program was captured", AGAIN
    for function, code in forwards.codes.items() if not said else ():
        if not all(map(_IS, code_of_function(function), code)):
            said = f"the code or defaults of {function.__qualname__} have been replaced since the program was captured"
            fix = AGAIN
    if said:
        raise GuardError(said, at=type(root).__qualname__, fix=fix)
    return Bound(root, facts, forwards)

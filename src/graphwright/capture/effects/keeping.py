"""What a program keeps from one call to the next: attributes that it writes, as part of the graph.

A first pass tells which attributes the program leaves changed. The next one starts with live values in their place,
which the graph reads from the module at each call, and ends with writes of what they have become. `self.count += 1`
so counts at every call, and a hidden state flows from call to call.

What an attribute is before the call and what it is after it must go together, for the next call starts with the latter:
a tensor of one dtype and rank, a number of one kind, containers of the same form. None and a tensor make a tensor that
may be None; None and anything else make a program with two ends (a fork). An attribute whose value changes otherwise
may be written, but not read before that.

Attributes of plain objects that modules hold are state like those of modules. The program runs on the very objects, so
that all who hold one see what it does to it, and they are put back when a pass ends.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.effects.first_calls import may_decide
from graphwright.capture.effects.held_tables import (
    FIX_OPTIMIZER,
    Field,
    Hidden,
    held_by,
    is_closed,
    put,
    put_back,
)
from graphwright.capture.effects.kept_apart import KeptApart
from graphwright.capture.effects.kept_items import KeptItems
from graphwright.capture.effects.kept_kinds import (
    ATTRIBUTE,
    PLAIN,
    Choice,
    Grows,
    Unreadable,
    adds_to,
    has_a_kind,
    is_cache,
    is_same,
    may_be_kept,
)
from graphwright.capture.effects.kept_tables import (
    ABSENT,
    ByPath,
    Table,
    acts_twice,
    below,
    key_in,
    of_class,
    touched,
    why_gone,
)
from graphwright.capture.effects.made_where_missing import MadeWhereMissing
from graphwright.capture.effects.start_values import StartValues
from graphwright.capture.effects.unwritten import write, write_unwritten
from graphwright.capture.effects.variables import Variables
from graphwright.capture.effects.watched_tables import aside_of
from graphwright.capture.proxies.contents import DICTS, HOLDERS
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.proxies.unbound import Unbound
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.regions import Writing
from graphwright.capture.state.symbols import NUMBERS, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Node
from graphwright.ops import read_variable, set_attribute, write_attribute, write_variable
from graphwright.runtime import MODULE_TABLES, attributes_of, is_state
from graphwright.source import place_of_write, user_frame
from graphwright.values import (
    MIXED,
    Kind,
    NumberKind,
    OptionalKind,
    RecordKind,
    SequenceKind,
    TensorKind,
    join,
    kind_of,
    leaves,
)

if TYPE_CHECKING:
    from graphwright.capture.proxies.objects import Change
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.runtime import Shells

_OF_TORCH = frozenset({*MODULE_TABLES, "_compiled_call_impl", "_apply", "forward"} - {"training"})
_ON_A_SIDE = object()  # what only one way has written
_INSTEAD = {dict: "a plain dict", list: "a plain list", set: "a plain set", collections.deque: "a plain deque"}
_ATOMS = frozenset({
    int, float, bool, str, bytes, complex, type(None), type, torch.Tensor, nn.Parameter, *NUMBERS,
})  # fmt: skip
_FIX_FOR_MODULES = "keep it by the names of the modules, or as attributes of theirs"
_DEPTH = 3  # how far inside of each other the objects are whose attributes are state


class Keeping:
    """The attributes of one run of a program, and variables outside of it: live where the plan says it writes them."""

    def __init__(
        self,
        recorder: TypedCapture,
        shells: Shells | None,
        kept_container: Callable[..., Any],
        changes_of_inputs: Callable[[], Iterable[Change]],
    ) -> None:
        self._recorder, self.changes_of_inputs = recorder, changes_of_inputs
        self._live: dict[Any, Any] = recorder.plan.kept
        self._starts = StartValues(recorder, self._read)
        self._apart = KeptApart(recorder, self._read)
        self._items = KeptItems(
            recorder,
            kept_container,
            self._kind,
            self._starts.item_of_growing,
            lambda: self._apart.held(self._tables),
        )
        self._tables: list[Table] = []
        self._of_variables: dict[int, Table] = {}  # those of them that are outside of all modules, by id
        self._containers: list[Table] = []  # those of them that may get longer or shorter
        self._of_module: dict[int, list[Table]] = {}
        self._by_path = ByPath()
        self._objects: dict[int, list[Table]] = {}  # the tables of containers, objects and what is in them, by id
        self._started_of: dict[int, Any] = {}  # the live containers, by the ids of those in whose place they are
        self._kind_of_module: type = nn.Module
        self._own: list[tuple[Any, dict[Any, Any]]] = []  # objects and their containers, and what they held
        self._shared: list[Table] = []  # those of objects of the module that is being watched, and of others
        self._depth = 0  # how far inside of each other the objects are that are being watched
        self._outside: dict[str, tuple[Variables, str]] = {}  # variables of no module, by the path that they have here
        self._missing = MadeWhereMissing(recorder, self._read)
        self._ends: dict[Place, tuple[Table, Hashable]] = {}  # where the run leaves what is live at first
        try:
            self._starts.first.ask()
            if shells is not None:
                shells.each(self._watch_module)
            self._apart.check(self._tables)
        except BaseException:
            self.put_back()
            raise

    def _watch_module(self, module: nn.Module, shell: nn.Module, path: str) -> None:
        self._kind_of_module, self._depth, self._shared = type(module), 0, []
        prefix, title = f"{path}." if path else "", type(module).__name__
        first = len(self._tables)
        attributes = self._watch(shell.__dict__, title, prefix, None)
        self._watch(shell._buffers, title, prefix, None, shell._non_persistent_buffers_set)
        self._watch(shell._parameters, title, prefix, None)
        attributes.aside = aside_of(shell)
        attributes.before.update(attributes.aside)
        self._of_module[id(shell)] = [*self._tables[first:], *self._shared]
        self._kind_of_module, self._shared = nn.Module, []

    def set_forward(self, shell: nn.Module, forward: Callable[..., Any]) -> None:
        """Have a module run another forward, which is no change of the program's."""
        for table in self._of_module[id(shell)]:
            if table.now is shell.__dict__:
                table.before["forward"] = shell.__dict__["forward"] = forward

    def watch_outside(self, variables: Variables, names: Iterable[str] | None = None) -> None:
        """Put live values into variables outside of all modules, and note what is in the others."""
        self._kind_of_module, self._depth = Variables, 0
        if id(variables) not in self._of_variables:
            self._tables.append(Table(Variables, variables.title, variables.path, None, variables, {}))
            self._of_variables[id(variables)] = self._tables[-1]
        table = self._of_variables[id(variables)]
        values = variables.read()
        for name in variables.names if names is None else names:
            self._outside[variables.path + name] = variables, name
            if name in values:
                self._watch_value(table, name, values[name])
        self._start_missing(table)
        self._apart.check(self._tables)

    def kept_tables(self) -> set[int]:
        """The objects and containers whose state is the program's, by id; of objects their attributes, too."""
        held = [container for container, _ in self._own]
        return {id(each) for each in held} | {id(vars(each)) for each in held if hasattr(each, "__dict__")}

    def writes(self) -> dict[str, list[tuple[Any, ...]]]:
        """By path, where the program writes in what a variable holds; `()` is the variable itself."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for path, keys in [place for place, kind in self._live.items() if kind is not PLAIN]:
            found.setdefault(path, []).append(keys)
        return found

    def assumed(self) -> dict[str, list[tuple[Any, ...]]]:
        """By path, the places of dicts and sets that are live because of what they hold, and that no run changes."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for place, kind in self._live.items():
            if isinstance(kind, Grows) and kind.is_assumed and place not in self._recorder.plan.changed:
                found.setdefault(place[0], []).append(place[1])
        return found

    def _watch(
        self, container: Any, owner: str, path: str, keys: tuple[Any, ...] | None, transient: set[str] | None = None
    ) -> Table:
        """Put live values into a container, and note what is in it."""
        kind = type(container) if keys is not None and is_state(container) else self._kind_of_module
        held = dict.copy(container if isinstance(container, dict) else held_by(container))
        table = Table(kind, owner, path, keys, container, held.copy(), transient=transient)
        if self._depth:
            self._own.append((container, held))
        live = self._live
        for key, value in held.items():
            if keys is None and (
                key in _OF_TORCH or (type(value) in _ATOMS and (not live or (path + key, ()) not in live))
            ):
                continue
            self._watch_value(table, key, value)
        if self._recorder.plan.missing:
            self._start_missing(table)
        for place, value in self._recorder.plan.before_class.items():
            own = key_in(table, *place)
            if own is not None and own not in held:
                self._watch_value(table, own, value)
        self._tables.append(table)
        if keys is not None and table.may_grow and not is_closed(container):
            self._containers.append(table)
        return table

    def _watch_value(self, table: Table, key: Hashable, value: Any) -> None:
        """Put a live value in the place of one, or note what it is."""
        table.before[key] = value
        if table.keys is None and key in _OF_TORCH:
            return
        place = table.place(key)
        if type(value) is dict and place not in self._live and is_cache(value):
            self._live[place] = Grows.dict_of({name: self._kind(item) for name, item in value.items()}, True)
        if type(value) is set and place not in self._live and adds_to(table.kind, place[0].rpartition(".")[2]):
            self._live[place] = Grows(SequenceKind(None, set), is_assumed=True)
        if self._live.get(place, PLAIN) is not PLAIN:
            started = self._started(place, table.name(key), value) if not self._is_started(place, value) else value
            self._ends[place] = table, key
            if type(value) in HOLDERS:
                self._started_of[id(value)] = started
            if started is not value and (type(value) in HOLDERS or is_state(value)):
                self._apart.note(place, value)
            table.before[key] = value = started
            put(table.now, key, value)
        elif type(value) in HOLDERS and id(value) in self._started_of:  # it is in another module, too
            table.before[key] = self._started_of[id(value)]
            put(table.now, key, table.before[key])
            return
        elif isinstance(key, Field) and isinstance(value, torch.Tensor):
            self._note_tensor(value, *place)
        self._watch_inside(value, table.name(key), *place)

    def _start_missing(self, table: Table) -> None:
        """Put live values in the place of attributes that this call finds, though the example does not."""
        for key in self._missing.of(table):
            place, name = table.place(key), table.name(key)
            kind = self._live[place]
            value = self._started(place, name, kind.empty() if isinstance(kind, Grows) else None)
            table.before[key] = value
            put(table.now, key, value)
            self._watch_inside(value, name, *place)

    def _watch_inside(self, value: Any, name: str, path: str, keys: tuple[Any, ...]) -> None:
        kind = type(value)
        if kind in _ATOMS:
            return
        if isinstance(value, tuple):
            for i, item in enumerate(value):
                self._watch_inside(item, f"{name}[{i}]", path, (*keys, i))
        elif id(value) in self._objects:
            self._shared.extend(self._objects[id(value)])
        elif kind in HOLDERS or (self._depth < _DEPTH and (is_state(value) or is_closed(value))):
            first, depth = len(self._tables), self._depth
            self._objects[id(value)] = []
            self._depth += kind not in HOLDERS
            self._watch(value, name, path, keys)
            self._depth = depth
            self._objects[id(value)] = self._tables[first:]

    def _note_tensor(self, tensor: torch.Tensor, path: str, keys: tuple[Any, ...]) -> None:
        """Have a tensor of an object read where the object has it, if a dotted path leads there."""
        if all(type(key) is Field for key in keys) and path not in self._outside:
            self._recorder.tensors.note(tensor, ".".join((path, *keys)))

    def put_back(self) -> None:
        """Have the objects of the program hold what they held before."""
        for container, held in reversed(self._own):
            put_back(container, held)

    # ---- live values at the start

    def _is_started(self, place: Place, value: Any) -> bool:
        """Tell whether an object that is state, too, has a value that says more of what calls leave than the place."""
        if isinstance(value, Unreadable):
            return not isinstance(self._live[place], Choice)  # each of which is checked for
        return isinstance(value, TensorProxy) and value.optional is not None

    def _started(self, place: Place, name: str, value: Any) -> Any:
        """The value that a call starts with."""
        kind, starts = self._live[place], self._starts
        if not isinstance(kind, Grows):
            return starts.value(place, name, kind, value)
        attribute = "" if place[0] in self._outside else place[0].rpartition(".")[2]
        starts.note_growing(attribute, place)
        is_none = value is None and starts.starts_with(None, value, place)
        return None if is_none else self._items.start(place, name, value, starts.reading(place))

    def _read(self, place: Place) -> Node:
        """Read an attribute: before the program's branches, for none of them writes it."""
        recorder = self._recorder
        path, keys = place
        while keys and type(keys[0]) is Field and path.rpartition(":")[0] == "":
            path, keys = f"{path}.{keys[0]}", keys[1:]
        with Writing(recorder, recorder.root):
            if path in self._outside:
                node = recorder.node("call_function", read_variable, self._outside_of(path), {}, _last_atom(path))
            else:
                node = recorder.node("get_attr", path, (), {}, path.rpartition(".")[2].strip("_"))
            for key in keys:
                read, name = (getattr, str(key)) if isinstance(key, Field) else (operator.getitem, key)
                if isinstance(key, Hidden):
                    node, read = recorder.node("call_function", attributes_of, (node,), {}, "kept"), operator.getitem
                node = recorder.node("call_function", read, (node, name), {}, "kept")
        return node

    def _outside_of(self, path: str) -> tuple[Any, str]:
        """The arguments of a node that reads or writes a variable outside of all modules."""
        variables, name = self._outside[path]
        return variables.shown(name)

    def look_for(self, may_read: Callable[[str], bool]) -> frozenset[str]:
        """The names of what code mentions that may ask what is in one of these attributes: None, of which kind."""
        return self._starts.look_for(may_read)

    def overlooked(self, may_read: Callable[[str], bool]) -> str | None:
        """An attribute that the program may read after all, though nothing was looked for that asks what is in it."""
        return self._starts.overlooked(may_read)

    def code_entered(self, frame: FrameType) -> None:
        """Have code converted that mentions an attribute which may be None, or has no kind."""
        mentioned = {*frame.f_code.co_names, *map(str, frame.f_code.co_consts)}
        asked = self._starts.names | self._starts.numbers if "type" in mentioned else self._starts.names
        if not asked.isdisjoint(mentioned) and user_frame(frame) is frame:
            self._recorder.questions.staging.stage(frame)
        for name in self._starts.optionals.keys() & mentioned:
            self._recorder.questions.optionals.attribute_may_be_none(self._starts.optionals[name], frame)

    def may_have_run_keys(self) -> bool:
        """Tell whether there is a dict that may have keys which only a run knows."""
        return any(type(table.now) in DICTS for table in self._containers)

    def has_run_keys(self, values: dict[Any, Any]) -> None:
        """Have a dict that is kept be one whose keys only a run knows, from the next pass on. Raises Restart."""
        for table in self._containers:
            place, held = (table.path, table.keys), held_by(table.now)
            if place in self._live:
                continue
            if table.now is values:
                is_kept = all(map(has_a_kind, values.values())) or table.before.keys() != values.keys()
            else:  # it is a new one in one that grows
                is_kept = table.before.keys() != held.keys() and any(item is values for item in held.values())
            if is_kept:
                self._live[place] = self._items.kind(table.now, held.items(), table.now is not values)
                raise self._recorder.questions.restart(Restart("a dict has keys that only a run knows"))

    # ---- what has changed

    def learn_growth(self) -> BaseException | None:
        """Why the capture is to start again, if a list or dict has got more items or fewer than it had."""
        grown = [t for t in self._containers if t.before.keys() != held_by(t.now).keys()] if self._containers else []
        if not grown or True not in [self._learn_growth(table) for table in grown]:
            return None
        alike = {(table.kind, table.path.rpartition(".")[2]) for table in grown if table.keys == ()}
        for table in self._tables:  # what one module does, others of its class are about to do
            place = table.path, table.keys
            is_alike = table.keys == () and (table.kind, table.path.rpartition(".")[2]) in alike
            if is_alike and type(table.now) is dict and place not in self._live:
                self._live[place] = Grows.dict_of({key: self._kind(item) for key, item in table.before.items()}, True)
        return Restart("the program adds to a list, dict or set")

    def learn(self) -> None:
        """Have the capture start again if the program has changed what it was not expected to."""
        changed, plan = self._items.learn(), self._recorder.plan
        made: list[tuple[Table, Any, Any]] = []
        for table in touched(self._tables):
            if table.has_other_order():
                if table.may_grow and not is_closed(table.now):
                    changed |= self._learn_growth(table)
                    continue
                self._refuse(table, "", f"changes the order of the keys of {table.owner}", "make a new dict each time")
            if table.is_changed_for_modules():
                self._refuse(table, "", f"changes what {table.owner} has for modules", _FIX_FOR_MODULES)
            for key, before, now in table.changes():
                if is_closed(table.now):
                    self._refuse_closed(table)
                    break
                if table.keys is None and key == "training":
                    continue  # live in any case
                if table.may_grow and (now is ABSENT or before is ABSENT or not isinstance(table.now, list | dict)):
                    changed |= self._learn_growth(table)
                    continue
                if now is ABSENT:
                    self._refuse(table, key, *why_gone(table, key))
                    continue
                if table.keys is None and acts_twice(table, key, now, self._tables, self._recorder.shells):
                    what = f"writes {table.name(key)}, and {table.kind.__name__} has a __setattr__ of its own"
                    self._refuse(table, key, what, "write by methods, or keep what is written in another module")
                    continue
                place = table.place(key)
                if before is ABSENT and isinstance(now, Unbound):
                    continue  # one side of a branch has written it
                if before is ABSENT and place not in self._live:
                    if self._comes_before_class(table, key, now):
                        changed = True
                    else:
                        made.append((table, key, now))
                    continue
                if place not in self._live:
                    self._become_live(place, before, now)
                    changed = True
                    continue
                known = self._live[place]
                self._live[place] = self._items.joined(known, now)
                changed |= self._live[place] is not known
        has_met = bool(touched(self._tables) or self._recorder.told_apart) and self._apart.learn(self._tables)
        ends = {place: held_by(table.now).get(key) for place, (table, key) in self._ends.items() if plan.at_first}
        changed |= self._starts.first.learn_ends(ends, self._items.joined)
        self._refuse_below_class()
        if self._missing.learn(made, self._live, self._kind) or changed or has_met:
            raise Restart("the program writes attributes")

    def _comes_before_class(self, table: Table, key: Any, value: Any) -> bool:
        """Have an attribute be state that comes to stand before a value of its class; tell whether there is one."""
        place, before = table.place(key), of_class(table, key)
        if before is ABSENT or place in self._live or is_same(before, value):
            return False
        self._recorder.plan.before_class[place] = before
        self._become_live(place, before, value)
        return True

    def _refuse_below_class(self) -> None:
        """Refuse a program that writes what a class has, and what starts from that and then stands before it."""
        live = [
            (table, name)
            for table in self._of_variables.values()
            if isinstance(table.now.owner, type)
            for name in table.now.names
            if table.place(name) in self._live
        ]
        before = [(table, name) for table, name in live if not table.now.has_own(name)]
        for place in self._recorder.plan.before_class if live else ():
            before += [(table, name) for table in self._tables if (name := key_in(table, *place)) is not None]
        for table, name in before:
            kind = table.now.owner if isinstance(table.now, Variables) else table.kind
            for base, other in live:
                if base is not table and other == name and issubclass(kind, base.now.owner):
                    what = f"writes {name!r} on {table.owner} and on its class {base.owner}, where it starts from"
                    self._refuse(table, name, what, "give one of the two another name, or set both in __init__")

    def _become_live(self, place: Place, before: Any, now: Any) -> None:
        """Have an attribute be state from the next pass on, which this run is the first to write."""
        is_filled = bool(self._recorder.plan.is_set_together) and may_decide(before, now)
        self._live[place] = self._items.joined(self._items.kind_before(None if is_filled else before, now), now)
        if place[0] not in self._outside:
            self._starts.first.learn(place, before, now, self._kind(now))

    def learn_hooks(self) -> None:
        """Keep the hooks that this run leaves on modules for the runs that find what it has made; refuse others."""
        self._missing.learn_hooks()

    def _kind(self, value: Any) -> Kind:
        return kind_of(value, self._own_kind)

    def _own_kind(self, value: Any) -> Kind | None:
        """The kind of a tensor, of a number of the program, and of an object by its attributes; of a text of a run."""
        if type(value) is RunText:
            return MIXED
        if isinstance(value, torch.Tensor):
            kind = TensorKind.like(self._recorder.example(value))
            return OptionalKind(kind) if isinstance(value, TensorProxy) and value.optional is not None else kind
        symbol = symbol_of(value)
        if symbol is not None:
            return NumberKind(symbol.kind, symbol.sample)
        if is_plain_object(value) and may_be_kept(value):
            return RecordKind(type(value), {key: self._kind(item) for key, item in vars(value).items()})
        return None

    def _learn_growth(self, table: Table) -> bool:
        """Have a list or dict grow in the next pass, if it is not expected to."""
        place = table.path, table.keys
        if table.is_changed_for_modules():
            self._refuse(table, "", f"changes what {table.owner} has for modules", _FIX_FOR_MODULES)
        if isinstance(self._live.get(place), Grows) and table.keys and not is_growing(table.now):  # none can be there
            self._refuse(table, "", f"adds to {table.owner}, which a tuple holds", "keep it in a list or dict instead")
            return False
        grows = self._items.kind(table.now, {**table.before, **held_by(table.now)}.items())
        known = self._live.get(place)
        if isinstance(known, Grows) and not isinstance(table.now, set):
            grows = dataclasses.replace(known, held=join(known.held, grows.held, ATTRIBUTE))
        self._live[place] = grows
        return True

    def _refuse_closed(self, table: Table) -> None:
        """Refuse a change of what holds values in a way of its own."""
        kind = type(table.now)
        known = next((text for base, text in _INSTEAD.items() if issubclass(kind, base)), "a tensor in a buffer")
        fix = f"keep {known} instead"
        if issubclass(kind, dict) and any(isinstance(key, nn.Parameter) for key in table.now):  # as optimizers do
            fix = FIX_OPTIMIZER
        self._refuse(table, "", f"changes what is in {table.owner}, of class {kind.__name__}", fix)

    def _refuse(self, table: Table, key: Hashable, what: str, fix: str) -> None:
        """Raise CaptureError for what cannot be kept, or note it where all obstacles are wanted."""
        is_attribute = table.keys is None or isinstance(key, Field)
        name = str(key) if is_attribute else str(table.keys[-1] if table.keys else table.path.rpartition(".")[2])
        path = table.path + name if table.keys is None else table.path
        if path in self._outside:
            variables, name = self._outside[path]
            at = variables.place_of_write(name)
        else:
            at = place_of_write(table.kind, name)
        error = CaptureError(f"the program {what}", at=at, fix=fix)
        self._recorder.questions.refusals.refuse(error, "attribute")

    # ---- writes

    def write(self, shell: nn.Module | None = None, goes_on: bool = True) -> None:
        """Write what the program has changed so far, in all modules or in one and those below it.

        On a side of a branch what is written is written again after it, joined with the other side, if it `goes_on`.
        """
        tables = self._tables
        if shell is not None and not dict.__len__(shell.__dict__["_modules"]):
            tables = self._of_module.get(id(shell), [])
        elif shell is not None:
            tables = [table for module in below(shell) for table in self._of_module.get(id(module), ())]
        if not (tables := touched(tables)):
            return
        self._recorder.tensors.read(now for *_, now in self.unwritten())  # what is written later, too
        found = [*self.unwritten(tables)]
        if [each for each in found if each[1] not in each[0].before and self._comes_before_class(*each)]:
            raise self._recorder.questions.restart(Restart("the program writes what its class has"))
        values = [self._argument(table, key, now) for table, key, now in found]  # all reads before the first write
        recorder = self._recorder
        for (table, key, now), value in zip(found, values, strict=True):
            path = table.dotted(key)
            target: Callable[..., Any] = write_attribute
            args: tuple[Any, ...]
            if isinstance(table.now, Variables):
                target, args = write_variable, (*self._outside_of(table.path + key), value)
            elif path and table.path not in self._outside:
                if table.keys is None and key not in table.before and table.transient is not None:
                    recorder.ledger.buffers[path] = key not in table.transient
                args = path, value
            elif isinstance(key, Field):
                target, args = set_attribute, (self._read((table.path, table.keys)), str(key), value)
            else:
                target, args = operator.setitem, (self._read((table.path, table.keys)), key, value)
            place = table.place(key)
            write(recorder, target, args, self._starts.reading(place) if place in recorder.plan.before_class else None)
            if recorder.region is recorder.root:
                table.written[key] = now
            elif goes_on:
                table.written[key] = _ON_A_SIDE

    def unwritten(self, tables: Iterable[Table] | None = None) -> Iterator[tuple[Table, Any, Any]]:
        """Iterate over (the table, the name, what is there now) of what the program has changed and not written yet."""
        for table in touched(self._tables) if tables is None else tables:
            for key, now in table.unwritten():
                yield table, key, now

    def is_untouched(self, path: str) -> bool:
        """Tell whether all holds what it held at first that a module and those below it, or an object, may have."""
        tables = self._by_path.below(path, self._tables)
        if any(not table.aside.keys().isdisjoint(table.now) for table in tables if table.aside):
            return False  # an attribute that stands aside was written, to whatever it was
        return not any(True for table in touched(tables) for _ in table.changes())

    def held(self) -> dict[int, Callable[[], Node]]:
        """How the graph reads the containers and objects that the program leaves where they are, by their ids."""
        return {**self._apart.held(self._tables), **self._items.held()}

    def nodes_of_items(self, *values: Any) -> list[Argument | None]:
        """The nodes of lists, dicts and sets, None for a new one; nothing where none is an item of what is kept."""
        if not any(map(self._items.came_out, values)):
            return []
        held = self.held()
        makers = [value.node_of if is_growing(value) else held.get(id(value)) for value in values]
        return [None if make is None else make() for make in makers]

    def write_at_end(self, is_caught: bool) -> None:  # what an error leaves is written, too
        write_unwritten(self._recorder, self.changes_of_inputs(), goes_on=is_caught)

    def write_new(self, attributes: dict[str, Any], key: str, value: Any, after: Unbound) -> bool:
        """Write a new attribute on a side of a branch, after which it holds what `after` stands for.

        False where these are not the attributes of a module of the program.
        """
        table = next((table for table in self._tables if table.now is attributes and table.keys is None), None)
        if table is None or "_modules" not in attributes:
            return False
        if not isinstance(value, Unbound):  # it is written already
            self._learn_new(table, key, value)
            written = table.path + key, self._argument(table, key, value)
            self._recorder.node("call_function", write_attribute, written, {}, name="write")
        table.written[key] = after
        return True

    def _learn_new(self, table: Table, key: str, value: Any) -> None:
        """Have the capture start again if a side of a branch makes an attribute that the program may find missing."""
        place = table.place(key)
        known = self._live.get(place)
        if known is None:
            has_changed = self._comes_before_class(table, key, value)
            has_changed = has_changed or self._missing.learn([(table, key, value)], self._live, self._kind)
        else:
            self._live[place] = self._items.joined(known, value)
            has_changed = self._live[place] is not known
        if has_changed:
            raise self._recorder.questions.restart(Restart("the program makes an attribute where it is missing"))

    def _argument(self, table: Table, key: Hashable, value: Any) -> Any:
        odd = next((leaf for leaf in leaves(value) if not may_be_kept(leaf)), None)
        if odd is not None:
            what = f"keeps a {type(odd).__module__}.{type(odd).__qualname__} in {table.name(key)}"
            self._refuse(table, key, what, "keep tensors, numbers, or tuples, lists, dicts and dataclasses of them")
            return None
        argument = self._recorder.argument(value)
        if isinstance(value, torch.Size) and not isinstance(argument, Node):
            return self._recorder.node("call_function", torch.Size, (argument,), {}, "size")
        return argument


def _last_atom(path: str) -> str:
    """The name of a variable, for a value of the program: `step` of `train[7]:STEP`."""
    return path.rpartition(":")[2].strip("_").lower()

"""What a program reads of its modules as plain values: their attributes, what they hold, which of them it enters.

A float that a module has is live: the graph reads it at each call, and so is a whole number that the class of the
module writes outside of its constructor, where it is compared in order or goes into arithmetic. All else that a program
reads is taken for granted, and stands in the ledger: numbers, truths, texts and functions; which parameters are None;
the names in tables that were walked; the class, hooks and forward of modules that were entered.

How its tables tell what it reads is in watched_tables.py.
"""

from __future__ import annotations

import array
import collections
import functools
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy
import torch
from torch import nn

from graphwright.capture.effects.asked_modules import Asker, take_answers
from graphwright.capture.effects.class_uses import NOT_OF_USERS, OWN, Uses, uses_of_class
from graphwright.capture.effects.held_tables import Field
from graphwright.capture.effects.kept_kinds import PLAIN, form_of, is_as_it_was
from graphwright.capture.effects.made_where_missing import say_made
from graphwright.capture.effects.object_reads import (
    answers,
    holds_modules,
    holds_objects,
    kinds_in,
    mentioned_by,
    rest_of_container,
    tensors_in,
    values_of,
)
from graphwright.capture.effects.watched_tables import WATCHED
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.symbols import as_number
from graphwright.errors import CaptureError
from graphwright.hierarchy import paths_in
from graphwright.ir import Graph
from graphwright.ops import written_attributes
from graphwright.runtime import (
    HOOKS,
    WITH_ITEMS,
    GraphModule,
    class_name,
    facts_of_modules,
    fits,
    generators_in,
    holds_tensors,
    in_path,
    inside_of,
    is_atom,
    is_plain,
    is_plain_container,
    is_state,
    kind_held,
    name_of_class,
    overhear,
    spelled,
    take_code,
)
from graphwright.source import is_installed, is_ours, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.runtime import Shells

_Held = TypeVar("_Held")

_NO_OTHERS: dict[str, str] = {}
_GENERATORS = (random.Random, numpy.random.RandomState, numpy.random.Generator)
_TABLES = frozenset({list, dict, set, tuple, torch.Tensor, nn.Parameter})
_CONTAINERS = (list, dict, tuple, set, frozenset, collections.deque, bytearray, array.array, numpy.ndarray)
_FILLED = (list, dict, set, collections.deque, bytearray)  # what may be written to
_KEPT_BY_NAME = (nn.ParameterList, nn.ParameterDict)  # they read what they hold by attribute


class ModuleReads:
    """What one run of a program reads of its modules."""

    def __init__(self, recorder: TypedCapture, shells: Shells, others: Mapping[str, dict[str, str]]) -> None:
        self._recorder = recorder
        self.shells = shells
        self._others = others  # by module, what is in further places, and the first of them
        self._written: set[tuple[str, str]] = set()  # paths and names of attributes
        self.found_missing: dict[tuple[str, str], tuple[str, bool]] = {}  # those looked for: where, and by whom
        self._containers: list[tuple[str, str, Any, bool]] = []  # that modules hold: whether their methods mention them
        self._objects: list[tuple[str, str, Any]] = []  # that modules hold: path of the module, name, object
        self._live: list[tuple[str, str]] = []  # attributes that are read at each call: path of the module, name
        self._generators: list[tuple[str, str, Any]] = []  # of random numbers, likewise
        shells.each(self._watch)
        recorder.at_end.append(self._refuse_replaced)

    def ready(self, shell: _Held) -> _Held:
        """Fill a shell that waits for it; what listens to the program does not hear that."""
        quietly = self._recorder.examples.quietly
        return self.shells.ready(shell) if quietly is None else quietly(lambda: self.shells.ready(shell))

    def _watch(self, module: nn.Module, shell: nn.Module, path: str) -> None:
        aside: dict[str, Any] = {}
        state, is_kept_by_name = shell.__dict__, isinstance(shell, _KEPT_BY_NAME)
        others = self._others.get(path, _NO_OTHERS)
        for kind in WATCHED:
            state[kind.table] = table = kind(state[kind.table])
            table._state, table._reads, table._path, table._aside = state, self, path, aside
            table._is_kept_by_name, table._others = is_kept_by_name, others
        prefix = f"{path}." if path else ""
        uses, kept = uses_of_class(type(module)), self._recorder.plan.kept
        for name in others.keys() & module.__dict__.keys() & uses.mentioned:
            self.one(path, name, others[name])
        for name, value in module.__dict__.items():
            held = kept.get((prefix + name, ())) if kept else None
            if name not in OWN and (held is None or held is PLAIN):
                self._place(name, value, shell, path, aside, uses)
            elif held is not None and is_as_it_was(held) and holds_tensors(value):
                self._containers.append((path, name, value, True))
        if isinstance(shell, nn.ParameterDict) and "_keys" in module.__dict__:
            self.value(path, "_keys", module.__dict__["_keys"])
        for name in uses.of_class:
            if name not in module.__dict__:
                self.missed(path, name)  # an attribute of its own would stand before that of the class
                if isinstance(getattr(type(module), name, None), functools.cached_property):
                    self.found_missing[path, name] = "", True
        if isinstance(module, GraphModule):
            overhear(shell, lambda graph: self._expected(path, graph))

    def _place(self, name: str, value: Any, shell: nn.Module, path: str, aside: dict[str, Any], uses: Uses) -> None:
        """Make an attribute live, have it tell when it is read, or count it as read where it cannot tell."""
        kind, plan, is_live = type(value), self._recorder.plan, False
        if kind in (bool, int, float):
            full = f"{path}.{name}" if path else name
            is_dynamic, is_counted = f"self.{full}" in plan.dynamic, name in uses.written
            is_live = is_dynamic or (is_counted if kind is int else kind is float and not uses.asks_types)
        if is_live or isinstance(value, torch.Tensor):
            self._live.append((path, name))
        if is_live:
            symbol = self._recorder.numbers.attribute_symbol(full, value, is_dynamic, is_counted)
            shell.__dict__[name] = as_number(symbol)
        elif not is_atom(value) and kind not in _TABLES and is_state(value):
            self._objects.append((path, name, value))
        elif isinstance(value, _CONTAINERS):
            is_mentioned = name in uses.mentioned or uses.sees_tables or plan.walks_tables
            if is_mentioned and is_plain_container(value):
                self.value(path, name, value)
            elif holds_objects(value) or holds_modules(value):
                self._objects.append((path, name, value))
            elif is_plain_container(value) or holds_tensors(value):
                self._containers.append((path, name, value, is_mentioned))
        elif is_atom(value):
            owner = self.shells.tree.paths.get(id(value.__self__)) if kind is MethodType else None
            if owner and (not path or name in uses.mentioned):
                self.one(path, f"{name}.__self__", owner)
            is_written = name in uses.written_in_calls and (path, name) not in plan.written_later
            has_to_stay = uses.sees_tables or is_written or (path, name) in plan.in_place
            if has_to_stay or plan.sees_tables or hasattr(type(shell), name):
                self.value(path, name, value)
            elif name in shell.__dict__:
                aside[name] = shell.__dict__.pop(name)
        elif isinstance(value, _GENERATORS):
            self._generators.append((path, name, value))
        elif isinstance(value, functools.partial | nn.Module):  # with tensors, or hidden
            self._objects.append((path, name, value))

    def _expected(self, path: str, graph: Graph) -> None:
        """Take for granted what a captured module inside of the program does."""
        for inner, facts in facts_of_modules(graph).items():
            self._recorder.ledger.module(".".join(filter(None, (path, inner)))).update(facts)

    # ---- what was read

    def entered(self, module: nn.Module, path: str) -> None:
        """The program's calls of a module run its forward, which may be its own, and its hooks."""
        ledger, kind = self._recorder.ledger, type(module)
        if path:
            take_code(ledger.module(path), module)
        if path and "forward" in module.__dict__:
            ledger.own_forwards.add(path)
        if not (isinstance(module, GraphModule) and not path) and kind.__module__.partition(".")[0] not in NOT_OF_USERS:
            ledger.forwards[kind] = kind.forward

    def value(self, path: str, name: str, value: Any) -> None:
        """A plain attribute was read."""
        self._recorder.ledger.module(path).setdefault("values", {})[name] = spelled(value)

    def written(self, path: str, name: str) -> None:
        """An attribute that stands aside is about to be written: what a branch writes has to be there before it."""
        recorder = self._recorder
        self._written.add((path, name))
        if recorder.states and recorder.pending is None:
            recorder.plan.in_place.add((path, name))
            raise recorder.questions.restart(Restart("the program writes attributes"))

    def tensor(self, path: str, name: str, value: torch.Tensor | nn.Module | None) -> None:
        """A parameter, buffer or submodule was read that may be None."""
        self._recorder.ledger.module(path).setdefault("is_none", {})[name] = value is None

    def _take_kinds(self, asked: frozenset[str]) -> None:
        """Take for granted of what kind is what is read at each call; of tensors and modules, where methods may ask."""
        ledger, is_leaf = self._recorder.ledger, self._recorder.is_leaf
        places = [*self._live]
        for module, path in self.shells.tree.modules if asked else ():
            held = {**module._parameters, **module._buffers, **module._modules}
            if not asked.isdisjoint(held):
                places += [(path, name) for name in asked & held.keys() if held[name] is not None]
        modules = {path: module for module, path in self.shells.tree.modules} if places else {}
        leaves = {path for path in {path for path, _ in places} if path and is_leaf(modules[path], path)}
        for path, name in sorted(place for place in places if place[0] not in leaves):
            value = inside_of(self._module(path)).get(name)
            is_number = type(value) in (int, float)
            kind = type(value).__name__ if is_number and ledger.asks_kinds else kind_held(value)
            ledger.module(path).setdefault("is_none", {}).setdefault(name, kind)

    def one(self, path: str, name: str, first: str) -> None:
        """A module or tensor was read in one of several places, and is captured as what is in the first."""
        same = self._recorder.ledger.module("").setdefault("same", {})
        same.update({first: first, f"{path}.{name}" if path else name: first})

    def walked(self, path: str, table: str, names: list[str]) -> None:
        """A table was walked, or counted."""
        module = self._module(path)
        if table != "_modules" or (module is not None and not self._recorder.is_leaf(module, path)):
            self._recorder.ledger.module(path).setdefault("holds", {}).setdefault(table, names)

    def missed(self, path: str, name: str) -> None:
        """A name was asked for that the module does not have."""
        absent = self._recorder.ledger.module(path).setdefault("absent", [])
        if name not in absent:
            absent.append(name)

    def missed_key(self, path: str, key: Hashable) -> None:
        """A key was asked for that a dict of a module does not have, to which the program adds others."""
        owner, _, name = path.rpartition(".")
        keys = self._recorder.ledger.module(owner).setdefault("without", {}).setdefault(name, [])
        if key not in keys:
            keys.append(key)

    def looked_for(self, path: str, name: str, frame: FrameType) -> None:
        """The program itself asked for a name that a module does not have: it may be about to make it."""
        asking = user_frame(frame) if (path, name) not in self.found_missing else None
        if asking is not None and not str(frame.f_globals.get("__name__")).startswith("torch."):
            is_quiet = is_installed(asking.f_code.co_filename)  # a warning is for who can change the line
            self.found_missing[path, name] = self._recorder.where() or "", is_quiet

    def is_program(self, frame: FrameType) -> bool:
        """Tell whether a frame is one of the program, or of what it calls."""
        recorder, code = self._recorder, frame.f_code
        if not recorder.is_running or recorder.examples.is_running:
            return False
        return not is_ours(code.co_filename) or code is recorder.callers.stand_in

    # ---- what is taken for granted

    def facts(
        self,
        graph: Graph,
        function: Callable[..., Any],
        attributes: frozenset[str],
        askers: Iterable[Asker],
        looked_for: frozenset[str],
        walks: bool,
    ) -> dict[str, dict[str, Any]]:
        """What the ledger has of modules, short of what the program itself writes, and of whose class that is.

        The program reads the `attributes` of objects, and what `function` leads to mentions others; it has `looked_for`
        some that may be missing, and `walks` over the names of some. `askers` are its functions that may ask of which
        class modules are, or whether two are one.
        """
        for looked_at, path in self.shells.tree.modules if not attributes.isdisjoint(HOOKS) else ():
            take_code(self._recorder.ledger.module(path), looked_at)  # which hooks it has is looked at
        targets, written = paths_in(graph), written_attributes(graph)
        live = {path for (path, keys), kind in self._recorder.plan.kept.items() if not keys and kind is not PLAIN}
        kept = live | written
        say_made(self._recorder, graph, self.found_missing)
        self._take_objects(function, attributes, looked_for, kept, walks, graph)
        self._take_methods(attributes)
        self._take_generators(graph)
        shared = self._shared(kept)
        kept -= self._take_containers(graph, attributes | looked_for, targets | written | shared)
        kept |= shared
        self._take_written(kept)
        self._take_kinds(self._recorder.callers.asked_attributes)
        self._take_kept()
        take_answers(self._recorder.ledger, self.shells.root_module, askers, self._recorder.is_leaf)
        found: dict[str, dict[str, Any]] = {}
        around = _paths_around(targets)
        used = around | targets
        for path in self._owners(around):
            self._recorder.ledger.module(path)
        self._take_rest_of_containers(graph.constants)
        for path, facts in sorted(self._recorder.ledger.modules.items()):
            prefix = f"{path}." if path else ""
            own: dict[str, Any] = {}
            for fact, held in facts.items():
                if fact in ("values", "is_none", "dtypes", "devices", "asked"):
                    held = {name: value for name, value in held.items() if prefix + name not in kept}
                elif fact == "names":
                    below = _names_below(kept | self._recorder.ledger.unset, prefix)
                    made = [name for name in below if name not in held]
                    own |= {"made": made} if made else {}
                elif fact == "absent":
                    held = [name for name in held if prefix + name not in kept]
                elif fact == "holds":
                    written = {each.removeprefix(prefix) for each in kept if each.startswith(prefix)}
                    held = {table: names for table, names in held.items() if table == "_modules" or not written}
                if held or fact in ("hooks", "names"):
                    own[fact] = held
            unused = [name for name in own.get("holds", {}).get("_modules", ()) if prefix + name not in used]
            if unused:
                own["unused"] = unused
            module = self._module(path)
            if module is not None:
                lacking = [name for name in own.get("absent", ()) if not hasattr(type(module), name)]
                own |= {"lacking": lacking} if lacking else {}
            if path and module is not None:
                own["class"] = class_name(module)
            if own:
                found[path] = own
        return found

    def _take_kept(self) -> None:
        """Take for granted of which form is what the program writes itself: what calls leave, or the first finds."""
        plan, modules = self._recorder.plan, {path: module for module, path in self.shells.tree.modules}
        for place, kind in plan.kept.items():
            path, _, name = place[0].rpartition(".")
            if path not in modules or any(type(key) not in (Field, int, str) for key in place[1]):
                continue
            found, is_of_module = inside_of(modules[path]), not place[1]
            if name not in found and place not in plan.missing and place not in plan.before_class:
                continue
            facts = self._recorder.ledger.of_kept.get(place[0], ())
            forms = [form_of(each, facts) for each in (kind, plan.left.get(place)) if each is not None]
            if is_of_module and place in plan.missing:  # the captured one has None there until a call has made it
                forms.append({"is": None})
            if place in plan.at_first or (is_of_module and name in found):
                first = plan.at_first.get(place, found.get(name))
                forms += [{"is": first}] if is_plain(first) else []
                if None not in forms and name in found and not fits(found[name], {"or": forms}):
                    forms.append({"of": [name_of_class(type(found[name])), None]})  # what no call leaves
            form: dict[str, Any] | None = None if None in forms else {"or": forms}
            callers = self._recorder.callers
            is_asked = callers.may_look_for(name, in_dicts=True) or callers.may_look_for(name, in_dicts=False)
            if is_asked and is_of_module and (name in found or place in plan.missing):
                form = {"there": form}
            if form is not None:
                full = ".".join((name, *map(in_path, place[1])))
                self._recorder.ledger.module(path).setdefault("kept", {})[full] = form

    def _take_containers(self, graph: Graph, names: frozenset[str], live: set[str]) -> set[str]:
        """Take containers for granted that the program may read, and does not where they are; give their paths."""
        taken, changed = set(), {path for path, _ in self._changed_places()}
        may_be = {path for path, _ in self._recorder.plan.kept}
        for path, name, value, is_mentioned in self._containers:
            full = f"{path}.{name}" if path else name
            is_live = full in live and (full not in may_be or full in changed)
            if not is_live and (is_mentioned or name in names):
                values = self._recorder.ledger.module(path).setdefault("values", {})
                values[name] = spelled(value, graph.constants)
                taken.add(full)
                for place, tensor in tensors_in(value):
                    first = self._recorder.tensors.path(tensor)
                    if first and first not in graph.constants:  # of the others, the values are told
                        self.one(path, f"{name}.{place}", first)
        return taken

    def _take_written(self, kept: set[str]) -> None:
        """Take for granted what the program writes as it was: the graph does not write that."""
        for path, name in self._written:
            module = self._module(path)
            if (f"{path}.{name}" if path else name) not in kept and module is not None and name in module.__dict__:
                value = module.__dict__[name]
                if is_atom(value) or (isinstance(value, _CONTAINERS) and is_plain_container(value)):
                    self.value(path, name, value)

    def _shared(self, kept: set[str]) -> set[str]:
        """The paths of the containers that the program writes to and several modules hold: they have to stay one.

        Raises CaptureError where a variable outside of the modules holds one, too, or is compared with such a one.
        """
        places: dict[int, list[str]] = {}
        changed = {*kept, *[path for path, _ in self._recorder.plan.kept]}
        asked = self._recorder.told_apart
        for module, path in self.shells.tree.modules if changed or asked else ():
            for name, value in module.__dict__.items():
                if isinstance(value, _FILLED) and name not in OWN:
                    places.setdefault(id(value), []).append(f"{path}.{name}" if path else name)
        found: set[str] = set()
        for paths in places.values():
            if len(paths) > 1 and not changed.isdisjoint(paths):
                found.update(paths)
                for path in paths:
                    self.one("", path, paths[0])
        for variables in self._recorder.callers.outside.variables() if places else ():
            for name, value in variables.read().items():
                held = places.get(id(value), ())
                is_changed = variables.path + name in changed or not changed.isdisjoint(held)
                if held and (is_changed or id(value) in asked):
                    raise CaptureError(
                        f"the program {'writes to' if is_changed else 'asks about'} self.{held[0]}, "
                        f"which is {name!r} of {variables.title}, too: "
                        "a captured module has one of its own",
                        fix="keep it in one place: in an attribute, or in a variable",
                    )
        return found

    def _take_other_way(self, why: str) -> None:
        """Have the example answer the last question of a size or flag at which this run went another way, if any."""
        questions = self._recorder.questions
        for fork in reversed(questions.forking.forks):
            if not fork.is_data and fork.hint is not None and fork.answer is not fork.hint:
                raise questions.restart(self._recorder.plan.change(fork.place, "guard", why))

    def _refuse_replaced(self) -> None:
        """Refuse a program that has put other modules in the place of its own: a graph has those that there were.

        Or further ones, or parameters: it makes them where they are missing, and the next call finds them.
        """
        originals = self.shells.originals
        for module, shell, path in self.shells.all():
            if shell is module:  # a compiled one
                continue
            now: dict[str, Any] = shell.__dict__["_modules"]
            for name, child in module._modules.items():
                held = dict.get(now, name)
                if child is not None and originals.get(id(held)) is not child and held is not child:
                    self._take_other_way("a path replaces a module")
                    raise CaptureError(
                        f"the program replaces its module {'.'.join(filter(None, ('self', path, name)))}",
                        fix="choose one of several modules with `if`, or keep the function as one node: "
                        "leaf_functions=[...]",
                    )
            for table, what in (("_modules", "module"), ("_parameters", "parameter")):
                held, before = shell.__dict__[table], module.__dict__[table]
                for name in dict.keys(held) - before.keys():  # this is no read of the program's
                    if dict.get(held, name) is not None:
                        full = ".".join(filter(None, ("self", path, name)))
                        raise CaptureError(
                            f"the program makes the {what} {full} while it runs, which only the first call does",
                            at=self.found_missing.get((path, name), ("", True))[0] or None,
                            fix="call the model once before it is captured, or make it in __init__",
                        )

    def _take_generators(self, graph: Graph) -> None:
        """Take for granted from which generators of random numbers the graph draws: it has the very objects."""
        drawn = generators_in(graph) if self._generators else ()
        for path, name, value in self._generators:
            if id(value) in drawn:
                self._recorder.ledger.module(path).setdefault("drawn", []).append(name)

    def _take_methods(self, attributes: frozenset[str]) -> None:
        """Take for granted that no module has an attribute of its own in the place of a method that is mentioned."""
        for module, path in self.shells.tree.modules:
            if id(module) in self.shells.tree.compiled or self._recorder.is_leaf(module, path):
                continue
            kind = type(module)
            for name in sorted((uses_of_class(kind).methods & attributes) - module.__dict__.keys()):
                self.missed(path, name)
            held = inside_of(module).keys() if answers(kind) else attributes
            for name in sorted(attributes - held):  # which its class may compute
                if not (name.startswith("__") or hasattr(kind, name) or hasattr(GraphModule, name)):
                    self.missed(path, name)

    def _changed_places(self) -> list[Place]:
        """The places of what the program keeps that it changes, short of what it only may."""
        plan = self._recorder.plan
        return [place for place, kind in plan.kept.items() if place in plan.changed or not is_as_it_was(kind)]

    def _take_rest_of_containers(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Of a container that the program writes to, take for granted the items that it does not write."""
        written: dict[str, list[tuple[Any, ...]]] = {}
        for path, keys in self._changed_places():
            if keys:
                written.setdefault(path, []).append(keys)
        for path, name, value, _ in self._containers:
            keys = written.get(f"{path}.{name}" if path else name)
            if keys and () not in keys and isinstance(value, WITH_ITEMS):
                facts = self._recorder.ledger.module(path)
                facts.setdefault("objects", {}).update(rest_of_container(name, value, keys, constants))
        for path, facts in self._recorder.ledger.modules.items():
            for name in list(facts.get("values", ())):
                keys = written.get(f"{path}.{name}" if path else name)
                module = self._module(path)
                if keys and module is not None and name in module.__dict__:
                    del facts["values"][name]
                    rest = rest_of_container(name, module.__dict__[name], keys, constants)
                    facts.setdefault("objects", {}).update(rest)

    def _take_objects(
        self,
        function: Callable[..., Any],
        attributes: frozenset[str],
        looked_for: frozenset[str],
        kept: set[str],
        walks: bool,
        graph: Graph,
    ) -> None:
        """Take for granted what the objects have that modules hold, short of what the program itself writes."""
        if not self._objects:
            return
        places = [place for place in (*self._changed_places(), *self._recorder.plan.missing) if place[1]]
        state = {".".join(map(str, (path, *keys))) for path, keys in places} | kept
        kinds = {type(module) for module, _ in self.shells.tree.modules} | {
            kind for *_, value in self._objects for kind in kinds_in(value)
        }
        mentioned = mentioned_by(kinds, function) | attributes
        seen: dict[int, str] = {**self.shells.tree.paths}
        firsts: dict[int, str] = {}
        changed: set[int] = set()
        constants = graph.constants
        for path, name, value in self._objects:
            full = f"{path}.{name}" if path else name
            if full in state:
                changed.add(id(value))
                if isinstance(value, WITH_ITEMS):  # the same objects may be elsewhere, too
                    values_of(name, value, mentioned, seen, looked_for, f"{path}." if path else "")
        for path, name, value in self._objects:
            prefix = f"{path}." if path else ""
            full = f"{prefix}{name}"
            is_one = not isinstance(value, _CONTAINERS) and (not path or name in mentioned)
            if is_one and firsts.setdefault(id(value), full) != full:
                self.one(path, name, firsts[id(value)])
            is_free = not is_state(value) and not holds_objects(value)  # it holds modules, or tensors
            if id(value) in changed or ((path or is_free) and name not in mentioned):
                continue
            objects = values_of(name, value, mentioned, seen, looked_for, prefix)
            for inner in [inner for inner in objects if f"{prefix}{inner}" in state]:
                del objects[inner]
            for inner, facts in [*objects.items()]:
                self._take_rest_inside(path, value, inner.removeprefix(name), inner, facts["values"], places, constants)
                held = facts.pop("held", {})
                told = self._held_in(f"{prefix}{inner}", held, seen, graph)
                facts["values"] |= told
                for each, item in held.items():
                    if isinstance(item, torch.Tensor) and each not in told and f"{prefix}{inner}.{each}" not in state:
                        kinds = self._recorder.ledger.module(path).setdefault("is_none", {})
                        kinds[f"{inner}.{each}"] = kind_held(item, is_inside=True)
                values = {each: was for each, was in facts["values"].items() if f"{prefix}{inner}.{each}" not in state}
                absent = [each for each in facts.get("absent", ()) if f"{prefix}{inner}.{each}" not in state]
                if values or path or type(self.shells.root_module) is not nn.Module:  # else a function holds it
                    taken = {"class": facts["class"], "values": values} | ({"absent": absent} if absent else {})
                    is_made = any(each.startswith(f"{prefix}{inner}.") for each in state)
                    if walks and "names" in facts and not is_made:
                        taken["names"] = facts["names"]
                    self._recorder.ledger.module(path).setdefault("objects", {})[inner] = taken

    def _take_rest_inside(
        self,
        path: str,
        value: Any,
        way: str,
        inner: str,
        values: dict[str, Any],
        places: Sequence[Any],
        constants: Mapping[str, torch.Tensor],
    ) -> None:
        """Of containers in an object that the program writes to, take for granted the items that it does not write."""
        for name in [*values]:
            full = f"{path}.{inner}.{name}" if path else f"{inner}.{name}"
            written = [
                keys[i:]
                for start, keys in places
                for i in range(1, len(keys))
                if ".".join(map(str, (start, *keys[:i]))) == full
            ]
            container = value
            for atom in [atom for atom in f"{way}.{name}".split(".") if atom] if written else ():
                container = inside_of(container).get(atom)
            if written and type(container) in (list, dict):
                del values[name]
                rest = rest_of_container(f"{inner}.{name}", container, written, constants)
                self._recorder.ledger.module(path).setdefault("objects", {}).update(rest)

    def _held_in(self, owner: str, held: dict[str, Any], seen: dict[int, str], graph: Graph) -> dict[str, Any]:
        """Take for granted what an object has that is elsewhere, too; other tensors are told."""
        told: dict[str, Any] = {}
        for name, value in held.items():
            is_tensor = isinstance(value, torch.Tensor)
            path = self._recorder.tensors.path(value) if is_tensor else seen.get(id(value))
            if path and path not in graph.constants:
                self.one(owner, name, path)
            elif is_tensor or holds_tensors(value):
                told[name] = spelled(value, graph.constants)
        return told

    def _module(self, path: str) -> nn.Module | None:
        module: Any = self.shells.root_module
        for atom in path.split(".") if path else ():
            module = getattr(module, "_modules", {}).get(atom)
        return module if isinstance(module, nn.Module) else None

    def _owners(self, around: Iterable[str]) -> Iterator[str]:
        """The modules, leaves aside, that hold what the graph reads and calls: their code may be part of it."""
        for path in around:
            module = self._module(path)
            if module is not None and type(module) is not nn.Module and not self._recorder.is_leaf(module, path):
                yield path


def _names_below(paths: Iterable[str], prefix: str) -> list[str]:
    """The first names of the paths that start with a prefix."""
    return sorted({path[len(prefix) :].partition(".")[0] for path in paths if path.startswith(prefix)})


def _paths_around(targets: Iterable[str]) -> set[str]:
    """The paths of all modules around what a graph reads and calls."""
    found: set[str] = set()
    for target in targets:
        path = target.rpartition(".")[0]
        while path and path not in found:
            found.add(path)
            path = path.rpartition(".")[0]
    return found

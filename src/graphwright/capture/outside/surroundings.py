"""What the functions of a program reach outside of all modules: global names, classes, variables of other functions.

Python tells nobody that a function reads a global name, but its code says which names it mentions. So functions are
followed from where the program starts, and from each that is seen at work. What they find is taken for granted; what a
pass leaves changed is state of the program, which the next pass reads and writes as it does attributes of modules.
Installed packages are not followed: what they keep to themselves counts as part of their code.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import sys
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import nn

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.conversion.conversion import (
    asks_by_name,
    asks_identity,
    searches_attributes,
    searches_globals,
)
from graphwright.capture.effects.asked_modules import Asker, asker_of, chooser
from graphwright.capture.effects.variables import MISSING, Argument, Owner, Variables
from graphwright.capture.outside.closures import names_behind
from graphwright.capture.outside.held_apart import HeldApart, modules_in
from graphwright.capture.outside.missing_modules import MissingModules
from graphwright.capture.outside.named import (
    CONSTRUCTORS,
    CONTAINERS,
    MOST,
    Keys,
    Reached,
    assigned_in,
    attribute,
    covered,
    definitions,
    fields,
    flags_of,
    foreign_written,
    has_attributes,
    has_state,
    has_unseen_handlers,
    is_definition,
    is_foreign_definition,
    is_foreign_module,
    methods_of_python,
    module_of,
    names_called,
    objects_among,
    of_class,
    places_on,
    title,
    told_by_c,
)
from graphwright.capture.outside.namespaces import Namespaces, refuse_change
from graphwright.capture.outside.outside_modules import read_of_module
from graphwright.capture.outside.pairs import Pairs
from graphwright.capture.outside.unknown_calls import tells_by_calls
from graphwright.capture.proxies.contents import HOLDERS
from graphwright.capture.state.plan import Restart
from graphwright.runtime import (
    ABSENT,
    NAMES,
    Found,
    Outside,
    attributes_of,
    bound_in,
    inside_of,
    is_atom,
    is_object,
)
from graphwright.source import DISPATCHERS, catches, closure_of, content_of, is_foreign, is_foreign_class, mentions

if TYPE_CHECKING:
    from graphwright.capture.effects.keeping import Keeping

_ATOMS = (int, float, bool, str, bytes, complex, type(None), Enum, torch.dtype, torch.device, torch.layout)
_TENSORS = (torch.Tensor, numpy.ndarray, numpy.generic)
_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
_ERRORS = frozenset({("AttributeError",), ("Exception",)})  # by which a program finds that an attribute is missing
_WALKED = frozenset({("vars",), ("dir",)})
_TABLES_OF_NAMES = frozenset({("vars",), ("globals",)})
_CACHE = type(functools.lru_cache(len))
_USUAL = frozenset({"torch", "numpy"})  # whose modules go by short names


class World:
    """What one program reaches, for all passes of its capture; of its classes it has these `attributes` run."""

    def __init__(self, attributes: Iterable[str] = ()) -> None:
        self._found: dict[tuple[int, str], Found] = {}
        self._variables: dict[int, Variables] = {}
        self._first: dict[int, tuple[Variables, str]] = {}  # where a container was met first, by its id
        self._others: list[tuple[Variables, str, Variables, str]] = []  # other names of it, then the first
        self.reached: dict[int, Reached] = {}  # objects that what was found leads to, by id
        self._ways: dict[tuple[int, str], Reached] = {}  # how what was found in these is reached
        self._reached: set[int] = set()  # all that has been looked at, by id
        self._own: Collection[int] = ()  # the program's modules, by id
        self._codes: set[tuple[int, int]] = set()
        self.functions: dict[int, FunctionType] = {}  # of the user's, whose code the program may run, by id
        self._classes: dict[type, list[nn.Module]] = {}  # those of the program, with its modules of each
        self._makable: set[type] = set()  # those whose constructors the program may call
        self.looked_for: set[str] = set()  # attributes that may be missing where the program looks
        self.looked_up: set[str] = set()  # those of them that it may look for in the dict of an object
        self._lists = self.sees_tables = self.walks = False  # whether it looks at those of classes, in tables, at all
        self._attributes = dict.fromkeys(attributes, _NO_CODE)  # that are read or written of anything, and by whom
        self._pairs, self._apart, self._missing, self._namespaces = Pairs(), HeldApart(), MissingModules(), Namespaces()
        self._keeping: Keeping | None = None
        self._keep: list[Any] = []  # alive, so that no other object gets its id
        self._is_started = False
        self.chooses_by_class = False  # whether a function of `functools.singledispatch` is among them
        self.is_compiled = False  # whether torch.compile would compile one of them
        self.names_subclass = False  # whether one of them mentions a class of tensors of its own
        self.unknown: set[CodeType] = set()  # functions of the user's whose calls tell: unknown ones, computed names
        self.askers: list[Asker] = []  # what functions may ask of modules
        self.unseen: dict[CodeType, str] = {}  # functions that do what is not seen, and what that is
        self._leaves: frozenset[int] = frozenset()  # functions that are one node, by id
        self._of_modules: list[tuple[Any, str]] = []  # what the attributes of modules are

    # ---- passes

    def start(
        self,
        functions: Sequence[Any],
        modules: Iterable[nn.Module],
        keeping: Keeping,
        leaves: Iterable[Any] = (),
        own: Collection[int] = (),
    ) -> None:
        """Begin a pass: look where its functions lead, and put live values where they are state of the program.

        `modules` are those of the program that it enters, `own` all that it has, by id.
        """
        self._keeping, self._leaves = None, frozenset(map(id, leaves))
        if not self._is_started:
            self._own = own
            for module in modules:
                if not is_foreign_class(type(module)):
                    self._class(type(module)).append(module)
                    code = getattr(type(module).forward, "__code__", None)
                    for name, value in vars(module).items():
                        if not name.startswith("_"):
                            subject = f"{name!r} of a {type(module).__name__}"
                            self._of_modules.append((value, subject))
                            self._apart.note(value, subject, name, code, is_kept=True)
                            hidden = f"a module that {type(module).__name__} has in {name!r}"
                            self._apart.note_modules(value, hidden, name, own)
                            self._follow_held(value)
                            self._behind(value, subject, module)
                            self._asked_apart(value, subject)
            try:
                if isinstance(functions[0], functools.partial | FunctionType):  # the program itself
                    self._reach(Reached(functions[0], "the program", (id(functions[0]), ""), ()), _NO_CODE)
                for function in functions:
                    self._follow(function)
                self._settle()
            except BaseException:
                self._codes.clear()  # the next attempt looks again, and raises the same
                self._pairs.forget()
                raise
            self._is_started = True
        self._keeping = keeping
        self._apart.start()
        self._namespaces.start()
        for variables in self._variables.values():
            keeping.watch_outside(variables)
        for variables, name, first, its_name in self._others:
            variables.watch(name)
            variables[name] = first.read()[its_name]

    def enter(self, code: CodeType, names: dict[str, Any]) -> None:
        """A function of the program is at work: see what it mentions."""
        if (id(code), id(names)) not in self._codes:
            self._code(code, names)
            self._settle()

    def mention(self, name: str, code: CodeType) -> None:
        """The program looks something up by a name that it may have computed."""
        if name not in self._attributes or name not in self.looked_for:
            self._attributes.setdefault(name, code)
            self.looked_for.add(name)
            self._settle()

    def note_given(self, value: Any, subject: str, code: CodeType) -> None:
        """The program was given something that others hold as well: see whether it changes it."""
        self._apart.note(value, subject, "", code)

    def shows(self, value: Any) -> bool:
        """Tell whether it is seen what a method does to an object: it has changed, or is one that the program makes."""
        return is_object(value) and (id(value) not in self._reached or self._apart.has_changed(value))

    def finish(self) -> None:
        """The program has ended. Raises CaptureError where it changed what can be neither written nor put back."""
        if changed := [*self._namespaces.changed(self._watched())]:
            self._namespaces.put_back(self._watched())
            self._keeping = None
            for owner, name, code in changed:
                refuse_change(owner, name, code)
                if isinstance(owner, dict):
                    self._watch(owner, module_of(owner), title(owner), name, code)
                else:
                    self._watch(owner, owner, owner.__qualname__, name, code)
            raise Restart(f"the program changes {changed[0][1]!r}, which its code does not name so")
        self._apart.finish(set() if self._keeping is None else self._keeping.kept_tables())

    def put_back(self) -> None:
        """Put back what a pass has changed; a second time does no harm."""
        for variables, *_ in self._others:
            variables.put_back()
        for variables in self._variables.values():
            variables.put_back()
        self._apart.put_back()
        self._namespaces.put_back(self._watched())

    def _watched(self) -> dict[int, list[str]]:
        """The names of the variables that are watched, by the id of what has them."""
        found = {key: variables.names for key, variables in self._variables.items()}
        for variables, name, *_ in self._others:
            found.setdefault(id(variables.owner), []).append(name)
        return found

    def found(self) -> dict[tuple[int, str], Found]:
        """What the program took for granted: what it found and does not write itself."""
        keeping = self._keeping
        assert keeping is not None
        kept, written, assumed = self._missing.found(), keeping.writes(), keeping.assumed()
        for key, found in self._found.items():
            ways = self._ways_to(key, found)
            writes, live = places_on(ways, written), places_on(ways, assumed)
            if all(writes) and (found.held is not None or all(map(live.__contains__, writes))):
                kept[key] = found._replace(but=tuple(writes))
            for place in live:
                kinds = found.kinds_at(place)
                kept |= {} if kinds is None else {(key[0], f"kinds of {key[1]} {place}"): kinds}
        return kept

    def _ways_to(self, key: tuple[int, str], found: Found) -> list[tuple[str, Keys]]:
        """The paths of the variables in which something was found, and where in what they hold."""
        variables, first = self._variables.get(key[0]), self._first.get(id(found.value))
        base = None if variables is None else self._variables.get(id(variables.base_with(key[1])))
        ways = [(each, key[1]) for each in (variables, base) if each is not None] + ([] if first is None else [first])
        found_on: list[tuple[str, Keys]] = [(each.path + name, ()) for each, name in ways]
        if owner := self._first.get(key[0]):  # the variable that holds the object of which this is an attribute
            found_on.append((owner[0].path + owner[1], (key[1],)))
        way = self._ways.get(key)
        root = None if way is None else self._variables.get(way.root[0])
        if way is not None and root is not None:
            found_on.append((root.path + way.root[1], way.keys))
            if type(root.owner) is CellType:  # the captured module may have it as an attribute
                found_on.append((way.root[1], way.keys))
        return found_on

    def objects(self) -> list[tuple[Any, str]]:
        """The objects and containers that the program finds, or finds in a container, and what each is."""
        return objects_among([*((each.value, each.subject) for each in self._found.values()), *self._of_modules])

    def variables(self) -> list[Variables]:
        """The variables that the program's functions may change, or whose containers they may."""
        return [*self._variables.values(), *[variables for variables, *_ in self._others]]

    def asking(self) -> list[Asker]:
        """What functions may ask of modules."""
        return [*self.askers, *([chooser(self.attributes())] if self.chooses_by_class and self._attributes else [])]

    def attributes(self) -> frozenset[str]:
        """The names of the attributes that the program's functions read or write, of whatever it is."""
        return frozenset(self._attributes)

    # ---- functions

    def _follow_held(self, value: Any, depth: int = 3) -> None:
        """Look where the attribute of a module leads, or what is in it."""
        is_own = is_object(value) and not is_foreign_class(type(value))
        if isinstance(value, CONTAINERS) or is_own:
            for item in itertools.islice(inside_of(value).values(), MOST if depth else 0):
                self._follow_held(item, depth - 1)
            if not is_own:
                return
        if type(value) is MethodType and of_class(type(value.__self__), value.__func__.__name__) is value.__func__:
            self._attributes.setdefault(value.__func__.__name__, value.__func__.__code__)
        self._follow(value)

    def _follow(self, value: Any) -> None:
        """Look where a function leads, however it is wrapped; a class to what making an object of it calls."""
        for name in names_called(value):
            self._attributes.setdefault(name, _NO_CODE)
        for _ in range(10):
            if id(value) in self._leaves:  # it runs as it is
                return
            if isinstance(value, functools.partial):
                value = value.func
            elif type(value) in (staticmethod, classmethod, MethodType):
                self._follow(getattr(value, "__self__", None))
                value = value.__func__
            elif type(value) is _CACHE:
                value = value.__wrapped__
            else:
                break
        if type(value) is FunctionType:
            self._function(value)
        elif isinstance(value, property):
            for function in (value.fget, value.fset):
                self._follow(function)
        elif isinstance(value, type) and not is_foreign_class(value):
            self._class(value)
            if value not in self._makable:  # the program may make objects of it, which it does not of an object's class
                self._makable.add(value)
                for definition in definitions(value, CONSTRUCTORS):
                    self._follow(definition)
        elif is_object(value) and not isinstance(value, nn.Module) and not is_foreign_class(type(value)):
            self._class(type(value))

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        if code in DISPATCHERS:
            self.chooses_by_class = True
            if hasattr(function, "registry"):  # by class, the functions that it chooses from
                self._take(function, "registry", f"what {function.__qualname__} chooses from", function.registry)
        if (id(code), id(function)) in self._codes:
            return
        self._codes.add((id(code), id(function)))
        self.is_compiled |= "_torchdynamo_orig_callable" in vars(function)
        self._keep.append(function)
        is_decorator = is_foreign(code)
        rebound = frozenset() if is_decorator else mentions(code).rebound
        for name, cell in closure_of(function).items():
            value = content_of(cell)
            if name == "__class__":
                continue
            if is_decorator:
                self._follow(value)
                continue
            subject = f"the variable {name!r} of {function.__qualname__}"
            self._value(cell, name, value, subject, code)
            if name in rebound or has_state(value):
                self._watch(cell, cell, function.__qualname__, name, code)
        if not is_decorator:
            self.functions[id(function)] = function
            self._namespaces.note(function, code)
            for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                self._apart.note_default(value, function)
            self._code(code, function.__globals__)

    def _code(self, code: CodeType, names: dict[str, Any]) -> None:
        names = names_behind(names)
        if (id(code), id(names)) in self._codes:
            return
        self._codes.add((id(code), id(names)))
        self._keep += [code, names]
        if has_unseen_handlers(code):
            self.unseen[code] = "has no source: what its `except` catches in other runs is not caught"
        asker = asker_of(code, names, asks_identity(code), searches_attributes(code), not is_foreign(code))
        if asker is not None:
            self.askers.append(asker)
        if is_foreign(code):
            return
        for module_names in (names, *foreign_written(names, mentions(code))):
            self._namespaces.note(module_names, code)
        if searches_globals(code):
            self.unseen[code] = "looks global variables up by names that it computes: what is there stays as it is"
        if tells_by_calls(code, names) or asks_by_name(code):
            self.unknown.add(code)
        mentioned = mentions(code)
        for path in sorted(mentioned.paths):
            self._path(names, path, code)
        for name in sorted(mentioned.stored):
            self._watch(names, module_of(names), title(names), name, code)
        if catches(code) and not _ERRORS.isdisjoint(mentioned.paths):
            self.looked_for |= mentioned.attributes
        self.looked_for |= mentioned.texts
        if not _TABLES_OF_NAMES.isdisjoint(mentioned.paths) or "__dict__" in mentioned.attributes:
            self.looked_up |= mentioned.texts
        self.sees_tables |= not _WALKED.isdisjoint(mentioned.paths) or "__dict__" in mentioned.attributes
        self._lists |= ("dir",) in mentioned.paths
        self.walks |= searches_attributes(code)
        for name in sorted(mentioned.attributes | mentioned.written | mentioned.texts):
            self._attributes.setdefault(name, code)
        for module in mentioned.imports:
            self._import(code, names, *module)
        for owner, name, subject in flags_of(names, mentioned):
            if (id(owner), name) not in self._found:
                self._take(owner, name, subject, getattr(owner, name))
        for inside, name in assigned_in(names, mentioned):
            owner = inside if isinstance(inside, type) else module_of(inside)
            self._watch(inside, owner, getattr(inside, "__qualname__", "") or title(inside), name, code)
        for name in sorted(mentioned.texts) if ("globals",) in mentioned.paths else ():
            self._path(names, (name,), code)

    def _import(self, code: CodeType, names: dict[str, Any], name: str, level: int, taken: tuple[str, ...]) -> None:
        """Note what is in a module of the user's that a function imports when it runs."""
        paths = self._missing.paths(code, names, name, level, taken)
        for path in paths:
            module = sys.modules.get(path)
            if not isinstance(module, ModuleType):
                return
            if is_foreign_module(module):
                for each in (*taken, *mentions(code).attributes):
                    self._apart.note_table(module, each, code)
                return
            inside, mentioned = vars(module), mentions(code).attributes
            if (id(sys.modules), path) not in self._found:
                self._take(sys.modules, path, f"the module {path!r}", module)
            wanted = {*(mentioned & inside.keys()), *(taken if path == paths[-1] else ())}
            for each in sorted(wanted):
                self._path(inside, (each,), code)

    def _path(self, names: dict[str, Any], path: tuple[str, ...], code: CodeType) -> None:
        """Note what is found under a global name, or under attributes of what is found there."""
        owner: Any = names
        value, subject = names.get(path[0], MISSING), f"the global {path[0]!r} of {title(names)}"
        parent: Any = None
        way, on_the_way = Reached(value, subject, (id(names), path[0]), ()), []
        for before, atom in itertools.pairwise(path):
            on_the_way.append((owner, before, value, subject))
            parent = value
            owner, value, subject = attribute(value, atom)
            way = Reached(value, subject, (id(owner), atom), ()) if type(owner) is dict else way.inside(value, atom)
            if isinstance(parent, ModuleType) and owner is None:
                self._apart.note_table(parent, atom, code)
        if path[-1].startswith("__"):
            return
        if value is MISSING and type(owner) is dict and not (owner is names and hasattr(builtins, path[0])):
            self._take_absent(owner, path[-1], subject)
        if value is not MISSING:
            is_inside = owner is parent and len(way.keys) > 1  # of an object that another one has
            self._value(owner, path[-1], value, subject, code, way if is_inside else None)
            for its_owner, name, each, its_subject in on_the_way if owner is parent else ():
                if is_object(each) and (id(its_owner), name) not in self._found:
                    self._take(its_owner, name, its_subject, each)
            if owner is type(parent) and has_attributes(parent) and path[-1] in self._pairs.hideable(owner):
                self._take_absent(parent, path[-1], f"{path[-1]!r} of a {type(parent).__qualname__}")
        if value is MISSING and isinstance(parent, type) and not is_foreign_class(parent):
            owner = parent  # not its class, which `attribute` has asked then
        if isinstance(owner, type | FunctionType):
            self._watch(owner, owner, owner.__qualname__, path[-1], code)
        elif type(owner) is dict and value is not MISSING and has_state(value):
            self._watch(owner, module_of(owner), title(owner), path[-1], code)

    def _value(
        self, owner: Any, name: str, value: Any, subject: str, code: CodeType, way: Reached | None = None
    ) -> None:
        """Take what was found for granted, and look where it leads; `way` is how its owner is reached."""
        kind = type(value)
        self.names_subclass |= issubclass(type(value), type) and issubclass(value, torch.Tensor) and value not in _PLAIN
        self.unknown.update([code] if kind is _CACHE and not is_foreign_definition(value.__wrapped__) else [])
        if (id(owner), name) in self._found or value is MISSING or holds_values(value):
            return
        if isinstance(value, Outside):  # of a captured module that is captured again
            self._found.update({(id(found.owner), found.name): found for found in value.found})
            return
        if id(value) not in self._own:
            self._apart.note(value, subject, name, code)
        is_data = isinstance(value, (*_ATOMS, *_TENSORS, *CONTAINERS))
        is_chosen = is_atom(value) and getattr(value, "__name__", None) != name
        if isinstance(value, ModuleType):
            is_chosen = not is_foreign_module(value) or (is_chosen and value.__name__.partition(".")[0] not in _USUAL)
        is_module = isinstance(value, nn.Module)
        is_one = is_module or has_attributes(value)  # which one it is counts, past what it holds
        if is_data or is_chosen or is_one or (is_definition(value) and not is_foreign_definition(value)):
            self._take(owner, name, subject, value)
        self._asked_apart(value, subject)
        if kind in HOLDERS or kind is tuple:
            for item in value.values() if isinstance(value, dict) else value:
                self._follow(item)
        elif not is_data and not is_module:
            self._follow(value)
        if way is not None:
            self._ways[id(owner), name] = way
        self._reach(Reached(value, subject, (id(owner), name), ()) if way is None else way, code)

    def _asked_apart(self, value: Any, subject: str) -> None:
        for name, what, held in told_by_c(value, subject, self._own):
            self._take(value, name, what, held)

    def _reach(self, first: Reached, code: CodeType) -> None:
        """Note the objects that a value leads to, whose attributes the program may read."""
        waiting = [first]
        while waiting:
            each = waiting.pop()
            value, kind = each.value, type(each.value)
            if isinstance(value, (*_ATOMS, *_TENSORS, ModuleType, type)) or id(value) in self._reached:
                continue
            self._reached.add(id(value))
            self._keep.append(value)
            if isinstance(value, CONTAINERS):
                items = value.items() if isinstance(value, Mapping) else enumerate(value)
                waiting += [each.inside(item, key) for key, item in itertools.islice(items, MOST)]
            elif isinstance(value, functools.partial):
                self._bound(each, code)
                waiting.append(each.inside(value.func, "func"))
            elif kind is FunctionType and not is_foreign(value.__code__):
                if vars(value):
                    self.reached[id(value)] = each
                self._bound(each, code)
            elif kind in (MethodType, weakref.ref):
                inner, how = (value.__self__, "__self__") if kind is MethodType else (value(), "()")
                waiting.append(each.inside(inner, how))
            elif has_attributes(value) and id(value) not in self._own:
                self.reached[id(value)] = each
                self._take(value, "__class__", f"the class of {each.subject}", kind)
                for taken in read_of_module(value, each.subject):
                    self._take(*taken)
                if not isinstance(value, nn.Module):
                    self._class(kind)
                elif not is_foreign_class(kind):
                    self._class(kind).append(value)

    def _bound(self, function: Reached, code: CodeType) -> None:
        """Note what a function is called with that its call does not give."""
        for name, held in bound_in(function.value):
            self._value(function.value, name, held, f"{name!r} of {function.subject}", code)

    def _behind(self, value: Any, subject: str, module: nn.Module) -> None:
        """Note what an attribute of a module leads to that the module does not have, by functions or hidden modules."""
        code = getattr(type(module).forward, "__code__", _NO_CODE)
        found = Reached(value, subject, (id(value), ""), ())
        if isinstance(value, FunctionType | MethodType):
            self._reach(found, code)
        for hidden in modules_in(value, self._own):
            self._reach(found.inside(hidden, ""), code)

    def _take(self, owner: Any, name: str, subject: str, value: Any) -> None:
        """Take for granted what something has under a name."""
        self._keep.append(owner)
        self._found[id(owner), name] = Found.of(subject, owner, name, value)

    def _take_absent(self, owner: Any, name: str, subject: str, way: Reached | None = None) -> None:
        """Take for granted that an object has no attribute of its own, as it may have in the place of its class's."""
        if (id(owner), name) not in self._found:
            self._take(owner, name, subject, ABSENT)
            if way is not None:
                self._ways[id(owner), name] = way

    def _in_object(self, object_: Reached, name: str) -> None:
        """Take for granted what an object has under a name, where that is its own, or that it has nothing there."""
        if name.startswith("__"):
            return
        value, code = attributes_of(object_.value).get(name, MISSING), self._attributes[name]
        subject = f"{name!r} of {object_.subject}"
        if value is MISSING:
            self._take_absent(object_.value, name, subject, object_.inside(value, name, subject))
        else:
            self._value(object_.value, name, value, subject, code, object_.inside(value, name, subject))
            if type(object_.value) is FunctionType:
                self._watch(object_.value, object_.value, object_.value.__qualname__, name, code)

    # ---- classes

    def _class(self, kind: type) -> list[nn.Module]:
        """A class whose objects the program has: what it reads of anything may be found there."""
        if kind not in self._classes:
            self._classes[kind] = []
            reads_itself = of_class(kind, "__getattribute__") is not MISSING  # it runs where the capture looks, too
            for base in () if reads_itself else itertools.filterfalse(is_foreign_class, kind.__mro__):
                self._namespaces.note(base, getattr(of_class(base, "forward"), "__code__", _NO_CODE))
            for definition in definitions(kind, methods_of_python(kind)):
                self._follow(definition)
            if not issubclass(kind, nn.Module) and not is_foreign_class(kind):
                own = itertools.filterfalse(is_foreign_class, kind.__mro__)
                self._found[id(kind), "__mro__"] = Found.of_methods(kind, own)
            if issubclass(kind, Enum):
                self._apart.note_members(kind)
            if not is_foreign_class(type(kind)):
                self._take(kind, "__class__", f"the class of {kind.__qualname__}", type(kind))
                self._class(type(kind))
        return self._classes[kind]

    def _settle(self) -> None:
        """Look for the attributes that functions mention in the classes of the program, until there is no more."""
        while True:
            pairs = self._pairs.new_of_classes(self._classes, self._attributes)
            own = self._pairs.new_of_objects(self.reached, self._attributes, self.looked_for)
            for base in dict.fromkeys(base for kind in self._classes if self._lists for base in kind.__mro__):
                if not is_foreign_class(base) and (id(base), "__dict__") not in self._found:
                    self._take(base, "__dict__", f"the attributes of {base.__qualname__}", NAMES)
            for each in self.reached.values() if self.walks else ():
                if (id(each.value), "__dict__") not in self._found and not isinstance(each.value, nn.Module):
                    self._take(each.value, "__dict__", f"the attributes of {each.subject}", NAMES)
                    self._ways[id(each.value), "__dict__"] = each
            if not pairs and not own:
                return
            for kind, name in pairs:
                self._in_class(kind, name)
            for key, name in own:
                self._in_object(self.reached[key], name)

    def _in_class(self, kind: type, name: str) -> None:
        value, modules = of_class(kind, name), self._classes[kind]
        if name.startswith("__"):
            return
        if value is MISSING:
            is_of_class = not (modules and {"type", "__class__"}.isdisjoint(self._attributes[name].co_names))
            is_sought = name in self.looked_for and is_of_class and not hasattr(kind, name)
            if is_sought or self._pairs.computes(kind, name):
                for base in itertools.filterfalse(is_foreign_class, kind.__mro__):
                    self._take_absent(base, name, f"{base.__qualname__}.{name}")
            return
        is_own = all(name in vars(module) for module in modules) if modules else name in fields(kind)
        if is_own:  # the objects have it themselves
            return
        code = self._attributes[name]
        self._value(kind, name, value, f"{kind.__qualname__}.{name}", code)
        for base in covered(kind, name):
            self._value(base, name, vars(base)[name], f"{base.__qualname__}.{name}", code)
        if isinstance(value, (*_ATOMS, *HOLDERS, torch.Tensor)):
            self._watch(kind, kind, kind.__qualname__, name, code)

    # ---- variables

    def _watch(self, owner: Owner, argument: Argument, title: str, name: str, code: CodeType) -> None:
        """See whether a pass changes a variable, or the containers in it."""
        variables = self._variables.get(id(owner))
        if variables is None:
            variables = self._variables[id(owner)] = Variables(owner, argument, title)
            self._keep.append(owner)
        if code not in variables.codes:
            variables.codes.append(code)
        if name in variables.names or any(v.owner is owner and other == name for v, other, *_ in self._others):
            return
        base = variables.base_with(name)
        if base is not None and not is_foreign_class(base):
            self._watch(base, base, base.__qualname__, name, code)
        value = variables.value(name)
        first = self._first.get(id(value)) if has_state(value) else None
        if first is not None:
            other = Variables(owner, argument, title)
            self._others.append((other, name, *first))
            return
        if has_state(value):
            self._first[id(value)] = variables, name
            self._keep.append(value)
        variables.watch(name)
        if self._keeping is not None:
            self._keeping.watch_outside(variables, (name,))


_NO_CODE = (lambda: None).__code__  # where there is none to name

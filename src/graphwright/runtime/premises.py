"""What a capture took for granted of the modules that a program consists of, checked when the captured module runs.

The code of inner modules is part of the captured program: their hooks, their class, their plain attributes and what
their containers hold were read when it was captured. `expect_modules(self)` at the start of generated code looks
whether they still are what they were. What it compares with is plain data, by dotted paths, and is kept with the graph:
it goes where the graph goes. What it looks at in a call is found once for each tree of modules.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from itertools import repeat
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _torch_module

from graphwright.errors import GuardError
from graphwright.ir import Graph, is_computed
from graphwright.runtime.graph_facts import Facts, Forwards, code_of_function, forwards_of
from graphwright.runtime.inside import (
    ABSENT,
    HOOKS,
    TABLES,
    held_at,
    held_by,
    holder_of,
    inside_of,
    places_of,
)
from graphwright.runtime.objects import slots_of, state_of
from graphwright.runtime.plain_values import (
    BYTES,
    copied_around,
    holds_tensors,
    is_equal,
    is_same,
    is_told,
    kinds_in,
    spelled,
)
from graphwright.runtime.premises_text import NAMED, OF_TENSORS, dotted, dtypes_in, shown, shown_now
from graphwright.runtime.watching import Watch, Watched

_CONTAINERS = (list, dict, set, collections.deque)  # whose content may become another


def names_of_hooks(hooks: Mapping[int, Any]) -> list[str]:
    """The names of hooks in a table of a module: other hooks have other names."""
    return [*map(_name_of, hooks.values())]


def _name_of(called: Any) -> str:
    told = spelled(getattr(called, "__func__", called))
    name = told.get("function") if type(told) is dict else None
    return name or type(called).__qualname__


def take_code(facts: dict[str, Any], module: nn.Module) -> None:
    """Add to the facts of a module that its code is part of a graph: its class, its hooks, a forward of its own.

    >>> facts = {}
    >>> take_code(facts, nn.Linear(2, 2))
    >>> facts
    {'class': 'torch.nn.modules.linear.Linear', 'hooks': {}}
    """
    facts["class"] = class_name(module)
    facts["hooks"] = {table: names_of_hooks(module.__dict__[table]) for table in HOOKS if module.__dict__[table]}
    if "forward" in module.__dict__:
        facts["forward"] = _name_of(module.__dict__["forward"])


def class_name(module: Any) -> str:
    """The name of the class of a module or object, and of the module where it is defined.

    Of a captured module it is that of the class which all of its kind have.
    """
    return name_of_class(own_class(module))


def own_class(module: Any) -> type:
    """The class of a module or object; of a captured module, which has one for itself, the one that it was made of."""
    return next(kind for kind in type(module).__mro__ if not kind.__dict__.get("_is_instance_class"))


def own_names(state: Mapping[str, Any]) -> list[str]:
    """The names of the attributes of a module, short of those that torch and we keep there."""
    return [name for name in state if name not in _NOT_OF_USERS]


_NOT_OF_USERS = frozenset({
    *nn.Module().__dict__, "_graphwright_state", "_tracer_cls", "forward", "_compiled_call_impl", "_apply",
    "_flat_weight_refs", "_flat_weights_names", "_all_weights", "_flat_weights",  # torch's recurrent layers make these
})  # fmt: skip


def name_of_class(kind: type) -> str:
    """The name of a class, and of the module where it is defined."""
    return f"{getattr(kind, '__module__', '')}.{kind.__qualname__}"  # a class that `type` made may have none


# ---- what is unlike


def unlike_modules(root: nn.Module, facts: Mapping[str, Facts], graph: Graph) -> tuple[str, str]:
    """Say what of the modules is unlike what it was, and what to do about it; two empty texts where nothing is."""
    for table in _idle_everywhere(facts):
        if not all(map(_only_watches, table.values())):
            return "torch has a module hook for all modules now, which inner modules of the program do not run", _AGAIN
    is_whole = not own_class(root).__module__.startswith(("graphwright.", "torch.nn.modules.module"))
    for path, of_one in facts.items():
        module = module_at(root, path)
        if not isinstance(module, nn.Module):
            is_module = "class" in of_one  # rather than a plain object of one
            if is_module and (is_whole or any(_is_below(used, path) for used in _used(graph))):
                return f"module {path!r} is no more there", _AGAIN
        elif not _is_bare(module, of_one):
            for said, fix in _unlike(module, path, of_one, graph):
                return said, fix.replace(_EVERY_MODULE, "") if _keeps_modules(root) else fix
    return "", ""


def _keeps_modules(root: nn.Module) -> bool:
    """Tell whether a captured module, or one inside of it, is one of a program that was captured module by module."""
    states = [below.__dict__.get("_graphwright_state") for below in root.modules()]
    return any(entry.shared is not None for state in states if state is not None for entry in state.entries.values())


def asked_dtypes(root: nn.Module, facts: Mapping[str, Facts], at: str) -> Iterator[tuple[str, torch.Tensor, str, str]]:
    """The tensors whose dtype is taken for granted: the path of each, below the root's, its dtype then, who asks."""
    for path, of_one in facts.items():
        module = module_at(root, path)
        for name, was in of_one.get("dtypes", {}).items():
            held = held_by(module, name) if isinstance(module, nn.Module) else None
            if isinstance(held, torch.Tensor):
                yield dotted(".".join(filter(None, (at, path))), name), held, was, of_one.get("asked", {}).get(name, "")


def _idle_everywhere(facts: Mapping[str, Facts]) -> list[dict[Any, Any]]:
    """The tables of torch's hooks for all modules that are to be empty, if the program called modules."""
    if not any("hooks" in of_one for of_one in facts.values()):
        return []
    return [getattr(_torch_module, f"_global{name}") for name in HOOKS if not facts.get("", {}).get(f"_global{name}")]


def _only_watches(hook: Any) -> bool:
    """Tell whether a hook for all modules is torch's own, or ours: those count, for a profile or a report."""
    return (getattr(hook, "__module__", None) or "").partition(".")[0] in ("torch", "graphwright")


def _is_bare(module: Any, facts: Facts) -> bool:
    """Tell whether a module only holds what a graph uses, and was made for that."""
    return type(module) is nn.Module and facts.get("class") != class_name(module)


def _has_a_class(held: Any) -> bool:
    """Tell whether something is there whose class counts: what only holds what a graph uses has none of its own."""
    return held is not ABSENT and type(held) is not nn.Module


_AGAIN = "capture the model again"
_EVERY_MODULE = "flat=False, which keeps all modules, or with "
_OF_ATTRIBUTES = ("is_none", *(f"{fact}s" for fact in OF_TENSORS), "kinds", "exact", "tags", "same")  # facts by name


def module_at(root: nn.Module, path: str) -> Any:
    module: Any = root
    for atom in path.split(".") if path else ():
        module = getattr(module, "_modules", {}).get(atom)
    return module


def _unlike(module: Any, path: str, facts: Facts, graph: Graph) -> Iterator[tuple[str, str]]:
    """Iterate over (what is another than it was, what to do about it)."""
    where = f"module {path!r}" if path else "the module itself"
    one_node = f"{_AGAIN}, or capture it with {_EVERY_MODULE}leaf_modules=[{path!r}], which keeps the module one node"
    if path and "class" in facts and not _is_of_class(module, facts["class"]):
        was, its = facts["class"].rpartition(".")[2], type(module).__qualname__
        yield f"{where} was a {was} when the program was captured; now it is a {its}", one_node
    for table in HOOKS if "hooks" in facts else ():
        hooks, has = list(facts["hooks"].get(table, ())), names_of_hooks(module.__dict__[table])
        if has != hooks:
            what = "another hook than" if hooks and has else "a hook, and had none" if has else "no hook any more, as"
            yield f"{where} has {what} when the program was captured ({table.strip('_')})", one_node
    if "hooks" in facts and "forward" in module.__dict__ and facts.get("forward") != _name_of(module.forward):
        place = facts.get("forward", "its class's")
        yield f"{where} has a forward of its own now, in the place of {place}", one_node
    elif "forward" not in module.__dict__ and path in forwards_of(graph).of_modules:
        yield f"{where} had a forward of its own when the program was captured, and has none now", _AGAIN
    values = {name: spelled(module.__dict__.get(name, ABSENT), graph.constants) for name in facts.get("values", {})}
    for name, was in facts.get("values", {}).items():
        now, held = values[name], held_by(module, name)
        if not is_told(module.__dict__.get(name, ABSENT), was, graph.constants):
            if held is ABSENT and (not path or (type(was) is dict and list(was) == NAMED[0])):
                continue  # a part of the program, made of what its graph uses; or a function, which no file holds
            kind = "no more there" if held is ABSENT else f"a {type(held).__name__}"
            said = f"now it is {kind if now is ABSENT else shown_now(was, now)}"
            what = f"{dotted(path, name)} was {shown(was)} when the program was captured; {said}"
            can_stay_open = type(was) in (bool, int, float)
            yield what, f"{_AGAIN}, or with dynamic=[{dotted(path, name)!r}]" if can_stay_open else _AGAIN
    for inner, of_object in facts.get("objects", {}).items():
        if not path and held_by(module, inner.partition(".")[0]) is ABSENT:
            continue  # such a part, too
        yield from _unlike_object(held_at(module, inner), dotted(path, inner), of_object, graph.constants)
    for table, names in facts.get("holds", {}).items():
        yield from _unlike_table(module, path, table, names, facts.get("unused", ()), graph)
    for name in dict.fromkeys(name for kind in _OF_ATTRIBUTES for name in facts.get(kind, ())):
        if is_computed(holder_of(module, name)[0], name.rpartition(".")[2]):
            said = f"{dotted(path, name)}, which the program asks something, was no property when it was captured"
            yield f"{said}; now its class computes it", "parametrize the original model, then capture it"
    for name, was in facts.get("is_none", {}).items():
        held = held_by(module, name)
        if held is not ABSENT and (held is None) != was:
            said = "None" if was else "there"
            yield f"{dotted(path, name)} was {said} when the program was captured; now it is not", _AGAIN
    for fact, text in OF_TENSORS.items():
        for name, was in facts.get(f"{fact}s", {}).items():
            now = str(getattr(held_at(module, name), fact, was))
            if now != was and now not in dtypes_in(was):
                asked = facts.get("asked", {}).get(name) if fact == "dtype" else None
                then = "captured" if not asked else f"captured, which asks at {asked}"
                what = f"{dotted(path, name)} was {text} {was} when the program was {then}; now it is {text} {now}"
                yield what, _AGAIN if fact == "shape" else "convert the original model, then capture it"
    for name, answers in facts.get("kinds", {}).items():
        held = held_by(module, name)
        kinds = {name_of_class(kind) for kind in type(held).__mro__}
        for kind in (kind for kind, was in answers.items() if _has_a_class(held) and (kind in kinds) != was):
            was, now = f"{'a' if answers[kind] else 'no'} {kind.rpartition('.')[2]}", type(held).__qualname__
            yield f"{dotted(path, name)} was {was} when the program was captured; now it is a {now}", _AGAIN
    for name, was in facts.get("exact", {}).items():
        held = held_by(module, name)
        if _has_a_class(held) and class_name(held) != was:
            was, now = was.rpartition(".")[2], type(held).__qualname__
            said = f"{dotted(path, name)} was a {was} and no other class when it was captured; now it is a {now}"
            yield said, _AGAIN
    for name, tags in facts.get("tags", {}).items():
        yield from _unlike_tags(held_by(module, name), dotted(path, name), tags, graph.constants)
    yield from _unlike_ones(module, facts.get("same", {}))
    for name in facts.get("absent", ()):
        is_of_class = hasattr(type(module), name)  # and hides a submodule of that name
        held = vars(module).get(name, ABSENT) if is_of_class else held_by(module, name)
        is_missed = is_of_class or name in facts.get("lacking", ())  # else it is made of a graph that reads a method
        if held is not ABSENT and is_missed:
            yield f"{dotted(path, name)} is there now, and was not when the program was captured", _AGAIN
    if "names" in facts:
        yield from _unlike_names(own_names(module.__dict__), facts["names"], facts.get("made", ()), where)
    drawn = generators_in(graph) if facts.get("drawn") else set()
    for name in facts.get("drawn", ()) if drawn else ():
        if id(module.__dict__.get(name, ABSENT)) not in drawn and name in module.__dict__:
            yield f"{dotted(path, name)} is another generator than that of which the captured program draws", _AGAIN
    for name, keys in facts.get("without", {}).items():
        held = module.__dict__.get(name)
        more = [key for key in keys if key in held] if type(held) is dict else ()
        if more:
            what = f"{dotted(path, name)} has {more[0]!r}, which the program did not find there when it was captured"
            yield what, _AGAIN
    for name in facts.get("lacking", ()):
        if hasattr(type(module), name):
            owner = next(base for base in type(module).__mro__ if name in base.__dict__ or base is object)
            yield f"{owner.__qualname__}.{name} is there now, and was not when the program was captured", _AGAIN


def _unlike_tags(tensor: Any, path: str, tags: Facts, constants: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which attributes of its own a tensor has otherwise than it had."""
    if not isinstance(tensor, torch.Tensor):
        return
    own = state_of(tensor)
    for tag, was in tags["has"].items():
        held = own.get(tag, ABSENT)
        if held is ABSENT or not is_told(held, was, constants):
            now = "it is no more there" if held is ABSENT else f"it is {shown_now(was, spelled(held, constants))}"
            yield f"{path}.{tag} was {shown(was)} when the program was captured; now {now}", _AGAIN
    for tag in tags["lacks"]:
        if tag in own:
            yield f"{path} has got an attribute {tag!r} of its own since the program was captured", _AGAIN


def generators_in(graph: Graph) -> set[int]:
    """The ids of the objects whose methods a graph calls: generators of random numbers among them."""
    return {id(node.target.__self__) for node in graph.all_nodes() if hasattr(node.target, "__self__")}


def _unlike_names(now: list[str], was: list[str], made: Collection[str], what: str) -> Iterator[tuple[str, str]]:
    """Which attributes there are more, or fewer, than a program found that looked for all; it has `made` some itself.

    A module that was made of what a graph uses has none of them.
    """
    more = [name for name in now if name not in was and name not in made]
    there = [name for name in now if name in was]
    if more:
        yield f"{what} has got {', '.join(more)} since the program was captured, which looks for all names", _AGAIN
    elif there and there != was:
        fewer = ", ".join(name for name in was if name not in there)
        said = f"has lost {fewer}" if fewer else "has its attributes in another order"
        yield f"{what} {said} since the program was captured, which looks for all names", _AGAIN


def _unlike_ones(root: nn.Module, same: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Which modules or tensors were one and are two now, or were two and are one."""
    held = {path: held_at(root, path) for path in same}
    one_of = {id(held[path]): path for path in same.values() if held[path] is not None}
    for path, first in same.items():
        if held[path] is None or held[first] is None:
            continue
        if held[path] is not held[first]:
            yield f"self.{path} was self.{first} when the program was captured; now it is another", _AGAIN
        elif same[one_of[id(held[path])]] != first:
            yield f"self.{path} was not self.{one_of[id(held[path])]} when the program was captured; now it is", _AGAIN


def _unlike_object(value: Any, path: str, facts: Facts, constants: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an object has become: of another class, or with another value in an attribute."""
    if class_name(value) != facts["class"]:
        was, now = facts["class"].rpartition(".")[2], type(value).__qualname__
        kind = f"a {now}" if now != was else f"another {now}"
        yield f"{path} was a {was} when the program was captured; now it is {kind}", _AGAIN
        return
    held = inside_of(value)
    for name, was in facts["values"].items():
        now = spelled(held.get(name, ABSENT))
        is_tensor = type(was) is dict and list(was) == ["tensor"]
        if (
            not is_told(held.get(name), was, constants)
            if is_tensor
            else type(now) is not type(was) or not is_equal(now, was)
        ):
            said = "it is no more there" if now is ABSENT else f"it is {shown_now(was, now)}"
            what = f"{name[:-2]}({path})" if name.endswith("()") else f"{path}.{name}"
            yield f"{what} was {shown(was)} when the program was captured; now {said}", _AGAIN
    if "names" in facts and list(held) != facts["names"]:
        yield from _unlike_names(list(held), facts["names"], (), path)
    for name in facts.get("absent", ()):
        if name in held:
            yield f"{path} has got an attribute {name!r} of its own since the program was captured", _AGAIN


def _unlike_table(
    module: nn.Module, path: str, table: str, names: list[str], unused: Collection[str], graph: Graph
) -> Iterator[tuple[str, str]]:
    """What has been added to a container, or taken from it: what passes add or remove, the graph uses or does not."""
    now = list(module.__dict__[table])
    if now == list(names):
        return
    prefix = f"{path}." if path else ""
    used = _used(graph)
    more = [name for name in now if name not in names and not any(_is_below(each, prefix + name) for each in used)]
    gone = [name for name in names if name not in now]
    fewer = [name for name in gone if name in unused or any(_is_below(each, prefix + name) for each in used)]
    if more or fewer:
        what = f"has got {', '.join(more)}" if more else f"has lost {', '.join(fewer)}"
        yield f"{path or type(module).__qualname__} {what} since the program was captured", _AGAIN
    elif [name for name in now if name in names] != [name for name in names if name in now]:
        yield (
            f"{path or type(module).__qualname__} has what it holds in another order than when it was captured",
            _AGAIN,
        )


def _used(graph: Graph) -> set[str]:
    return {str(node.target) for node in graph.all_nodes() if node.op in ("call_module", "get_attr")}


def _is_below(used: str, path: str) -> bool:
    return used == path or used.startswith(path + ".")


def _is_of_class(module: nn.Module, name: str) -> bool:
    """Tell whether a module is of a class, or of one made of it at run time that has the same methods.

    Parametrizations make such a class for their module: `class ParametrizedLinear(Linear)`.
    """
    if class_name(module) == name:
        return True
    kinds = type(module).__mro__
    base = next((kind for kind in kinds if name_of_class(kind) == name), None)
    return base is not None and base is not nn.Module and type(module).forward is getattr(base, "forward", None)


# ---- what a call looks at


class Bound:
    """The facts of one captured module, as a call looks at them: dicts of its modules, and what is to be in them.

    All comparisons are made in C, without a loop of Python's: about 30 ns a fact, or 46 ns a table as long as none of
    these is written to.
    """

    __slots__ = (
        "_closed", "_containers", "_contents", "_filled", "_found", "_idle", "_is_plain",
        "_keyed", "_keys", "_lacking", "_names", "_now", "_of_tensors", "_own", "_slots", "_spelled",
        "_tables", "_then", "_typed", "_types", "_values", "_watch", "_with_tensors", "facts",
    )  # fmt: skip

    def __init__(self, root: nn.Module, facts: Mapping[str, Facts], forwards: Forwards) -> None:
        self.facts = facts  # which a pass may have replaced since
        self._found = forwards.looked_at
        self._idle = _idle_everywhere(facts)  # tables of hooks that are to be empty
        self._own: list[dict[str, Any]] = []  # attributes of modules that are to have no `forward`
        self._tables: list[dict[str, Any]] = []  # of submodules and of hooks, and what is to be in them
        self._containers: list[tuple[dict[str, Any], str]] = []  # attributes of which the content counts
        self._of_tensors: list[tuple[dict[str, Any], str, str, Any]] = []  # tables, names, facts, and values
        self._spelled: list[tuple[dict[str, Any], str, Any]] = []  # arrays, partial functions, and what was in them
        self._with_tensors: list[tuple[dict[str, Any], str, Any]] = []  # containers of tensors, and what was in them
        self._slots: list[tuple[Any, str, Any]] = []  # objects without a `__dict__`, names and values
        self._keys: list[tuple[dict[str, Any], list[str]]] = []  # tables of tensors, and the names to be there
        self._closed: list[tuple[dict[str, Any], str, Set[Any]]] = []  # dicts, and keys that they are not to have
        self._lacking: list[tuple[type, str]] = []  # classes, and attributes that they are not to have
        self._typed: list[nn.Module] = []  # modules whose class is taken for granted
        reads: list[tuple[dict[str, Any], str]] = []  # attributes, which are to be the very objects that they are
        filled: list[tuple[dict[str, Any], str]] = []  # parameters and the like that are not to be None
        for path, of_one in facts.items():
            self._add_path(root, path)
            module = module_at(root, path)
            if isinstance(module, nn.Module) and not _is_bare(module, of_one):
                if path and "class" in of_one:
                    self._typed.append(module)
                self._typed += [child for name in of_one.get("exact", ()) if (child := module._modules.get(name))]
                self._lacking += [(type(module), name) for name in of_one.get("lacking", ())]
                self._add(module.__dict__, of_one, reads, filled)
                for each in of_one.get("same", {}):
                    self._add_inside(module, each, reads)
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
        self._is_plain = not any(others)
        self._keyed, self._names = [table for table, _ in self._keys], [names for _, names in self._keys]
        self._watch = Watch([self.watched()])

    def _add_inside(self, module: nn.Module, path: str, reads: list[tuple[dict[str, Any], str]]) -> None:
        """Look whether what stands at a path inside of a module is the very object."""
        places = list(places_of(module, path))
        reads += places
        holder, name = holder_of(module, path)
        if not places and not issubclass(type(holder), nn.Module):  # in a slot, or a container
            self._slots.append((holder, name, inside_of(holder).get(name, ABSENT)))

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
        for name, is_none in facts.get("is_none", {}).items():
            held = next((state[each] for each in TABLES if name in state[each]), state)
            (reads if is_none else filled).append((held, name))
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
            self._slots.append((holder, name, value))
        else:
            value = state.get(name)
            reads.append((state, name))
        held = {} if issubclass(type(value), dict) else state_of(value)
        if "names" in facts and held:
            self._keys.append((held, list(held)))
        reads += [(held, each) for each in facts.get("absent", ())]
        if slots_of(type(value)):
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
                self._slots.append((value, each, inside_of(value).get(each, ABSENT)))
            else:
                self._add_value(held, each, reads)

    def watched(self) -> Watched:
        """What is looked at, short of what `rest_holds` is asked for."""
        tables = [*self._tables, *self._own, *[table for table, _ in self._keys]]
        for reads in (self._now, self._filled):
            tables += reads[0] if len(reads) == 3 else []
        return Watched(tables, self._idle, self._typed, self._types, lacking=self._lacking, attributes=self._found)

    def holds(self) -> bool:
        """Tell whether all is as it was when this was made; what is not may still be as good."""
        if not self._watch.holds():
            versions = self._watch.look()
            if not self._tables_hold():
                return False
            self._watch.keep(versions)
        return self.rest_holds()

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
        return [*map(list, self._keyed)] == self._names

    def rest_holds(self) -> bool:
        """Tell the same of what may change without a write to a table; most programs have none of it."""
        if self._is_plain:
            return True
        for (table, name), (was, kinds) in zip(self._containers, self._contents, strict=True):
            now = table.get(name)
            if not is_equal(now, was) or kinds_in(now) != kinds:
                return False
        if not all(is_same(table.get(name), was) for table, name, was in self._with_tensors):
            return False
        if any(getattr(table.get(name), fact, None) != was for table, name, fact, was in self._of_tensors):
            return False
        if self._closed and any(not keys.isdisjoint(table.get(name, ())) for table, name, keys in self._closed):
            return False
        if self._spelled and any(spelled(table.get(name)) != was for table, name, was in self._spelled):
            return False
        return not any(inside_of(value).get(name, ABSENT) is not was for value, name, was in self._slots)


class _OfModule(dict[str, Any]):
    """The tables of a module by the names in them."""


def _may_be_filled(value: Any) -> bool:
    """Tell whether a value, or a tuple's, may hold something else and be the same object."""
    return isinstance(value, _CONTAINERS) or (isinstance(value, tuple) and any(map(_may_be_filled, value)))


_CONTAINS, _IS = operator.contains, operator.is_
_GET: Callable[..., Any] = dict.get
_NONES = repeat(None)


def bound(root: nn.Module, graph: Graph, facts: Mapping[str, Facts]) -> Bound:
    """Check what a graph takes for granted of modules; return what calls look at. Raises GuardError."""
    said, fix = unlike_modules(root, facts, graph)
    forwards = forwards_of(graph)
    for kind, forward in forwards.of_classes.items() if not said else ():
        if kind.forward is not forward:  # type: ignore[attr-defined]
            said, fix = f"{kind.__qualname__}.forward has been replaced since the program was captured", _AGAIN
    for function, code in forwards.codes.items() if not said else ():
        if not all(map(_IS, code_of_function(function), code)):
            said = f"the code or defaults of {function.__qualname__} have been replaced since the program was captured"
            fix = _AGAIN
    if said:
        raise GuardError(said, at=type(root).__qualname__, fix=fix)
    return Bound(root, facts, forwards)

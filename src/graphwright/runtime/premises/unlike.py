"""What of the modules of a program is unlike what its capture took for granted, and what to do about it.

Each kind of fact that a graph keeps of a module has a check here: `_CHECKS` is the list of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _torch_module

from graphwright.ir import Graph, is_computed
from graphwright.runtime.graph_facts import Facts, forwards_of
from graphwright.runtime.inside import ABSENT, HOOKS, held_at, held_by, holder_of, inside_of, is_holder
from graphwright.runtime.objects import state_of
from graphwright.runtime.plain_values import fits, is_told, spelled
from graphwright.runtime.premises.names import (
    class_name,
    module_at,
    name_of_class,
    name_of_hook,
    names_of_hooks,
    own_class,
    own_names,
)
from graphwright.runtime.premises.text import OF_TENSORS, dotted, dtypes_in, shown, shown_now


def unlike_modules(root: nn.Module, facts: Mapping[str, Facts], graph: Graph) -> tuple[str, str]:
    """Say what of the modules is unlike what it was, and what to do about it; two empty texts where nothing is."""
    for table in idle_everywhere(facts):
        if not all(map(_only_watches, table.values())):
            return "torch has a module hook for all modules now, which inner modules of the program do not run", AGAIN
    is_whole = not own_class(root).__module__.startswith(("graphwright.", "torch.nn.modules.module", "torch.fx."))
    for path, of_one in facts.items():
        module = module_at(root, path)
        if not isinstance(module, nn.Module):
            is_module = "class" in of_one  # rather than a plain object of one
            if is_module and (is_whole or any(_is_below(used, path) for used in _used(graph))):
                return f"module {path!r} is no more there", AGAIN
        elif not is_bare(module, of_one):
            seen = _Seen(module, path, of_one, graph, bool(path) or is_whole)
            for said, fix in itertools.chain.from_iterable(check(seen) for check in _CHECKS):
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


def idle_everywhere(facts: Mapping[str, Facts]) -> list[dict[Any, Any]]:
    """The tables of torch's hooks for all modules that are to be empty, if the program called modules."""
    if not any("hooks" in of_one for of_one in facts.values()):
        return []
    return [getattr(_torch_module, f"_global{name}") for name in HOOKS if not facts.get("", {}).get(f"_global{name}")]


def _only_watches(hook: Any) -> bool:
    """Tell whether a hook for all modules is torch's own, or ours: those count, for a profile or a report."""
    return (getattr(hook, "__module__", None) or "").partition(".")[0] in ("torch", "graphwright")


def is_bare(module: Any, facts: Facts) -> bool:
    """Tell whether a module only holds what a graph uses, and was made for that."""
    return is_holder(module) and facts.get("class") != class_name(module)


def _has_a_class(held: Any) -> bool:
    """Tell whether something is there whose class counts: what only holds what a graph uses has none of its own."""
    return held is not ABSENT and not is_holder(held)


AGAIN = "capture the model again"
_EVERY_MODULE = "flat=False, which keeps all modules, or with "
_OF_ATTRIBUTES = ("is_none", *(f"{fact}s" for fact in OF_TENSORS), "kinds", "exact", "tags", "same")  # facts by name


@dataclass(frozen=True, slots=True)
class _Seen:
    """A module as it is now, where it is, and what a graph takes for granted of it."""

    module: nn.Module
    path: str
    facts: Facts
    graph: Graph
    is_whole: bool  # rather than a part of the program, made of what its graph uses, which lacks all else

    def of(self, kind: str) -> Mapping[str, Any]:
        """The facts of one kind, by names of attributes."""
        named: Mapping[str, Any] = self.facts.get(kind, {})
        return named

    def held(self, name: str) -> Any:
        return held_by(self.module, name)

    def dotted(self, name: str) -> str:
        return dotted(self.path, name)

    @property
    def captured(self) -> Collection[str]:
        """The methods that are entry points, which its class has now."""
        entries: Collection[str] = getattr(self.module.__dict__.get("_graphwright_state"), "entries", ())
        return entries

    @property
    def where(self) -> str:
        return f"module {self.path!r}" if self.path else "the module itself"


Told = Iterator[tuple[str, str]]  # what is another than it was, and what to do about it


def _unlike_class(seen: _Seen) -> Told:
    if seen.path and "class" in seen.facts and not _is_of_class(seen.module, seen.facts["class"]):
        was, its = seen.facts["class"].rpartition(".")[2], type(seen.module).__qualname__
        yield f"{seen.where} was a {was} when the program was captured; now it is a {its}", _one_node(seen)


def _unlike_hooks(seen: _Seen) -> Told:
    for table in HOOKS if "hooks" in seen.facts else ():
        hooks, has = list(seen.facts["hooks"].get(table, ())), names_of_hooks(seen.module.__dict__[table])
        if has != hooks:
            what = "another hook than" if hooks and has else "a hook, and had none" if has else "no hook any more, as"
            yield f"{seen.where} has {what} when the program was captured ({table.strip('_')})", _one_node(seen)


def _unlike_forward(seen: _Seen) -> Told:
    own = seen.module.__dict__
    if "hooks" in seen.facts and "forward" in own and seen.facts.get("forward") != name_of_hook(own["forward"]):
        place = seen.facts.get("forward", "its class's")
        yield f"{seen.where} has a forward of its own now, in the place of {place}", _one_node(seen)
    elif "forward" not in own and seen.path in forwards_of(seen.graph).of_modules:
        yield f"{seen.where} had a forward of its own when the program was captured, and has none now", AGAIN


def _one_node(seen: _Seen) -> str:
    return f"{AGAIN}, or capture it with {_EVERY_MODULE}leaf_modules=[{seen.path!r}], which keeps the module one node"


def _unlike_values(seen: _Seen) -> Told:
    own, constants = seen.module.__dict__, seen.graph.constants
    for name, was in seen.of("values").items():
        value = own.get(name, ABSENT)
        if is_told(value, was, constants):
            continue
        held, now = seen.held(name), spelled(value, constants)
        if held is ABSENT and not (seen.is_whole and name not in seen.captured):
            continue
        kind = "no more there" if held is ABSENT else f"a {type(held).__name__}"
        said = f"now it is {kind if now is ABSENT else shown_now(was, now)}"
        can_stay_open = type(was) in (bool, int, float)
        fix = f"{AGAIN}, or with dynamic=[{seen.dotted(name)!r}]" if can_stay_open else AGAIN
        yield f"{seen.dotted(name)} was {shown(was)} when the program was captured; {said}", fix


def _unlike_objects(seen: _Seen) -> Told:
    for inner, of_object in seen.of("objects").items():
        if not seen.is_whole and seen.held(inner.partition(".")[0]) is ABSENT:
            continue
        held = held_at(seen.module, inner)
        yield from _unlike_object(held, seen.dotted(inner), of_object, seen.graph.constants)


def _unlike_tables(seen: _Seen) -> Told:
    for table, names in seen.of("holds").items():
        yield from _unlike_table(seen.module, seen.path, table, names, seen.facts.get("unused", ()), seen.graph)


def _computed_now(seen: _Seen) -> Told:
    for name in dict.fromkeys(name for kind in _OF_ATTRIBUTES for name in seen.of(kind)):
        if is_computed(holder_of(seen.module, name)[0], name.rpartition(".")[2]):
            said = f"{seen.dotted(name)}, which the program asks something, was no property when it was captured"
            yield f"{said}; now its class computes it", "parametrize the original model, then capture it"


def kind_held(value: Any, is_inside: bool = False) -> str:
    """What a module has in an attribute that is read at each call, or what an object has that is inside of one.

    >>> kind_held(torch.ones(2)), kind_held(nn.ReLU()), kind_held(2.0), kind_held("a")
    ('tensor', 'module', 'number', 'str')
    """
    kind = type(value)  # its class may do anything where it is asked
    if issubclass(kind, torch.Tensor):  # a parameter of a module may be a plain one at times, under `vmap` for one
        return "parameter" if is_inside and isinstance(value, nn.Parameter) else "tensor"
    return "module" if issubclass(kind, nn.Module) else "number" if kind in (int, float) else kind.__name__


def _unlike_optionals(seen: _Seen) -> Told:
    for name, was in seen.of("is_none").items():
        held = held_at(seen.module, name) if "." in name else seen.held(name)
        if held is ABSENT and seen.is_whole and was is not False:
            yield f"{seen.dotted(name)} was there when the program was captured; now it is not", AGAIN
        elif held is not ABSENT and (held is None) != (was is True):
            said = "None" if was is True else "there"
            yield f"{seen.dotted(name)} was {said} when the program was captured; now it is not", AGAIN
        elif type(was) is str and held is not ABSENT and was not in (kind_held(held, "." in name), type(held).__name__):
            now = f"of class {type(held).__name__}"
            yield f"{seen.dotted(name)} was a {was} when the program was captured; now it is {now}", AGAIN


def _unlike_kept(seen: _Seen) -> Told:
    """Which of what the program writes itself is of another form than calls leave it in: others have written it."""
    for name, form in seen.of("kept").items():
        holder, last = holder_of(seen.module, name)
        held = held_by(holder, last) if holder is seen.module else inside_of(holder).get(last, ABSENT)
        if held is ABSENT and seen.is_whole and "there" in form:
            yield f"{seen.dotted(name)} was there when the program was captured; now it is not", AGAIN
        elif held is not ABSENT and not fits(held, form):
            said = f"{seen.dotted(name)} is {shown(spelled(held))} now, which no call of the program leaves there"
            yield said, AGAIN


def _unlike_tensors(seen: _Seen) -> Told:
    for fact, text in OF_TENSORS.items():
        for name, was in seen.of(f"{fact}s").items():
            now = str(getattr(held_at(seen.module, name), fact, was))
            if now != was and now not in dtypes_in(was):
                asked = seen.of("asked").get(name) if fact == "dtype" else None
                then = "captured" if not asked else f"captured, which asks at {asked}"
                said = f"{seen.dotted(name)} was {text} {was} when the program was {then}; now it is {text} {now}"
                yield said, AGAIN if fact == "shape" else "convert the original model, then capture it"


def _unlike_kinds(seen: _Seen) -> Told:
    for name, answers in seen.of("kinds").items():
        held = seen.held(name)
        kinds = {name_of_class(kind) for kind in type(held).__mro__}
        for kind in (kind for kind, was in answers.items() if _has_a_class(held) and (kind in kinds) != was):
            was, now = f"{'a' if answers[kind] else 'no'} {kind.rpartition('.')[2]}", type(held).__qualname__
            yield f"{seen.dotted(name)} was {was} when the program was captured; now it is a {now}", AGAIN


def _unlike_exact_classes(seen: _Seen) -> Told:
    for name, was in seen.of("exact").items():
        held = seen.held(name)
        if _has_a_class(held) and class_name(held) != was:
            was, now = was.rpartition(".")[2], type(held).__qualname__
            said = f"{seen.dotted(name)} was a {was} and no other class when it was captured; now it is a {now}"
            yield said, AGAIN


def _unlike_tags(seen: _Seen) -> Told:
    """Which attributes of their own tensors, and containers of classes of their own, have otherwise than they had."""
    constants = seen.graph.constants
    for name, tags in seen.of("tags").items():
        tagged, path = seen.held(name), seen.dotted(name)
        if tagged is None:
            continue
        own = state_of(tagged)
        for tag, was in tags["has"].items():
            held = own.get(tag, ABSENT)
            if held is ABSENT or not is_told(held, was, constants):
                now = "it is no more there" if held is ABSENT else f"it is {shown_now(was, spelled(held, constants))}"
                yield f"{path}.{tag} was {shown(was)} when the program was captured; now {now}", AGAIN
        for tag in tags["lacks"]:
            if tag in own:
                yield f"{path} has got an attribute {tag!r} of its own since the program was captured", AGAIN


def _unlike_ones(seen: _Seen) -> Told:
    """Which modules or tensors were one and are two now, or were two and are one."""
    same: Mapping[str, str] = seen.of("same")
    held = {path: held_at(seen.module, path) for path in same}
    one_of = {id(held[path]): path for path in same.values() if held[path] is not None}
    for path, first in same.items():
        if held[path] is None or held[first] is None:
            continue
        if held[path] is not held[first]:
            yield f"self.{path} was self.{first} when the program was captured; now it is another", AGAIN
        elif same[one_of[id(held[path])]] != first:
            yield f"self.{path} was not self.{one_of[id(held[path])]} when the program was captured; now it is", AGAIN


def _there_now(seen: _Seen) -> Told:
    for name in seen.facts.get("absent", ()):
        is_of_class = hasattr(type(seen.module), name)  # and hides a submodule of that name
        held = vars(seen.module).get(name, ABSENT) if is_of_class else seen.held(name)
        # Without either, it is made of a graph that reads a method.
        if held is not ABSENT and (is_of_class or name in seen.facts.get("lacking", ())):
            yield f"{seen.dotted(name)} is there now, and was not when the program was captured", AGAIN


def _other_names(seen: _Seen) -> Told:
    if "names" in seen.facts:
        now, made = own_names(seen.module.__dict__), seen.facts.get("made", ())
        was = [name for name in seen.facts["names"] if name in now or name not in seen.captured]
        yield from _unlike_names(now, was, made, seen.where)


def _other_generators(seen: _Seen) -> Told:
    own = seen.module.__dict__
    drawn = generators_in(seen.graph) if seen.facts.get("drawn") else set()
    for name in seen.facts.get("drawn", ()) if drawn else ():
        if id(own.get(name, ABSENT)) not in drawn and name in own:
            said = f"{seen.dotted(name)} is another generator than that of which the captured program draws"
            yield said, AGAIN


def _keys_there_now(seen: _Seen) -> Told:
    for name, keys in seen.of("without").items():
        held = seen.module.__dict__.get(name)
        more = [key for key in keys if key in held] if type(held) is dict else ()
        if more:
            what = f"{seen.dotted(name)} has {more[0]!r}, which the program did not find there when it was captured"
            yield what, AGAIN


def _of_class_now(seen: _Seen) -> Told:
    kind = type(seen.module)
    for name in seen.facts.get("lacking", ()):
        if hasattr(kind, name):
            owner = next(base for base in kind.__mro__ if name in base.__dict__ or base is object)
            yield f"{owner.__qualname__}.{name} is there now, and was not when the program was captured", AGAIN


_CHECKS = (
    _unlike_class, _unlike_hooks, _unlike_forward, _unlike_values, _unlike_objects, _unlike_tables, _computed_now,
    _unlike_optionals, _unlike_kept, _unlike_tensors, _unlike_kinds, _unlike_exact_classes, _unlike_tags, _unlike_ones,
    _there_now, _other_names, _other_generators, _keys_there_now, _of_class_now,
)  # fmt: skip


def generators_in(graph: Graph) -> set[int]:
    """The ids of the objects whose methods a graph calls: generators of random numbers among them."""
    return {id(node.target.__self__) for node in graph.all_nodes() if hasattr(node.target, "__self__")}


def _unlike_names(now: list[str], was: list[str], made: Collection[str], what: str) -> Told:
    """Which attributes there are more, or fewer, than a program found that looked for all; it has `made` some itself.

    A module that was made of what a graph uses has none of them.
    """
    more = [name for name in now if name not in was and name not in made]
    there = [name for name in now if name in was]
    if more:
        yield f"{what} has got {', '.join(more)} since the program was captured, which looks for all names", AGAIN
    elif there and there != was:
        fewer = ", ".join(name for name in was if name not in there)
        said = f"has lost {fewer}" if fewer else "has its attributes in another order"
        yield f"{what} {said} since the program was captured, which looks for all names", AGAIN


def _unlike_object(value: Any, path: str, facts: Facts, constants: Mapping[str, Any]) -> Told:
    """What an object has become: of another class, or with another value in an attribute."""
    if class_name(value) != facts["class"]:
        was, now = facts["class"].rpartition(".")[2], type(value).__qualname__
        kind = f"a {now}" if now != was else f"another {now}"
        yield f"{path} was a {was} when the program was captured; now it is {kind}", AGAIN
        return
    held = inside_of(value)
    for name, was in facts["values"].items():
        value = held.get(name, ABSENT)
        if value is ABSENT or not is_told(value, was, constants):
            now = spelled(value, constants)
            said = "it is no more there" if now is ABSENT else f"it is {shown_now(was, now)}"
            what = f"{name[:-2]}({path})" if name.endswith("()") else f"{path}.{name}"
            yield f"{what} was {shown(was)} when the program was captured; now {said}", AGAIN
    if "names" in facts and list(held) != facts["names"]:
        yield from _unlike_names(list(held), facts["names"], (), path)
    for name in facts.get("absent", ()):
        if name in held:
            yield f"{path} has got an attribute {name!r} of its own since the program was captured", AGAIN


def _unlike_table(
    module: nn.Module, path: str, table: str, names: list[str], unused: Collection[str], graph: Graph
) -> Told:
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
        yield f"{path or type(module).__qualname__} {what} since the program was captured", AGAIN
    elif [name for name in now if name in names] != [name for name in names if name in now]:
        yield (
            f"{path or type(module).__qualname__} has what it holds in another order than when it was captured",
            AGAIN,
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
    if base is None or base is nn.Module:
        return False
    before = kinds[: kinds.index(base)]
    names = {name for kind in before for name in vars(kind) if not name.startswith("__") or name == "__call__"}
    return not any(callable(getattr(base, name, None)) for name in names)

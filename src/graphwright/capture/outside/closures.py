"""Modules that a function reaches: through its closure, its global variables, and what it is bound to.

They become the children of one module, under the names of the variables, so that they are captured as the modules of a
model are. While the program is captured, a copy of the function sees their shells in place of them. Plain objects in
its closure, and the one that it is bound to, become attributes of that module: what it does to them is kept as what a
model does to its own.
"""

from __future__ import annotations

import collections
import dis
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from torch import nn

from graphwright.capture.proxies.objects import is_plain_object
from graphwright.hierarchy import paths_in
from graphwright.ir import Graph
from graphwright.ops import written_attributes
from graphwright.runtime import facts_of_modules, is_state, new_object
from graphwright.source import by_code, closure_of, held_by, names_in, stored_globals
from graphwright.values import parts


class Reached:
    """The modules and objects that a function reaches, as the children and attributes of `holder`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.holder = nn.Module()
        self._function = function
        self._names: dict[int, str] = {}
        self._objects: dict[str, Any] = {}
        self._seen: set[int] = set()
        self._elsewhere: set[int] = set()
        self._collect(function)
        for key in self._elsewhere & self._names.keys():
            del self.holder._modules[self._names.pop(key)]

    def function_for(self, holder: nn.Module) -> Callable[..., Any]:
        """The function with the modules of another holder in place of those that it reaches."""
        found = {key: holder.get_submodule(name) for key, name in self._names.items()}
        copy = _Copy(found)
        made: Callable[..., Any] = (copy.object if is_plain_object(self._function) else copy.value)(self._function)
        for name, value in self._objects.items():
            holder.__dict__[name] = copy.objects.get(id(value), value)
        return made

    def is_any(self) -> bool:
        """Tell whether it reaches anything."""
        return bool(self.holder._modules or self._objects)

    def keep_what_is_used(self, graphs: Iterable[Graph]) -> bool:
        """Let go of the objects that no graph reads, writes or checks; tell whether anything is left."""
        graphs = list(graphs)
        if not self._objects:
            return self.is_any()
        paths = [path for graph in graphs for path in (*written_attributes(graph), *paths_in(graph))]
        checked = [path for graph in graphs for path in facts_of_modules(graph).get("", {}).get("objects", {})]
        used = {str(path).partition(".")[0] for path in (*paths, *checked)}
        for name in self._objects.keys() - used:
            del self._objects[name], self.holder.__dict__[name]
        return self.is_any()

    def _collect(self, function: Callable[..., Any]) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        owner = getattr(function, "__self__", function)
        if is_state(owner):
            self._add_object(type(owner).__name__.lower().strip("_"), owner)
        self._elsewhere |= {id(module) for value in _as_they_are(function) for module in _inside(value)}
        for name, value in _variables(function):
            if isinstance(value, nn.Module):
                self._add(name, value)
            elif type(value) in (list, tuple, dict):
                for key, item in (parts(value) or {}).items():
                    if isinstance(item, nn.Module):
                        self._add(f"{name}_{key}", item)
            elif isinstance(value, FunctionType | MethodType | functools.partial):
                self._collect(value)
            elif is_state(value) and owner is function:
                self._add_object(name, value)

    def _add(self, wish: str, module: nn.Module) -> None:
        if id(module) not in self._names:
            name = self._names[id(module)] = self._free(wish)
            self.holder.add_module(name, module)

    def _add_object(self, wish: str, value: Any) -> None:
        if all(value is not held for held in self._objects.values()):
            name = self._free(wish)
            self._objects[name] = self.holder.__dict__[name] = value

    def _free(self, wish: str) -> str:
        wish = "".join(char if char.isalnum() else "_" for char in wish)
        name, number = wish, 1
        while name in self.holder._modules or hasattr(nn.Module, name) or hasattr(self.holder, name):
            name, number = f"{wish}_{number}", number + 1
        return name


_COPIED = "the names copied"  # no name of a variable: beside copies of global names, the dict that they are copied from


def names_behind(names: dict[str, Any]) -> dict[str, Any]:
    """The global names of the program: those that a copy was made of."""
    found: dict[str, Any] = names.get(_COPIED, names)
    return found


def _variables(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The variables that a function reads from outside, and what they are."""
    if isinstance(function, functools.partial):
        yield "function", function.func
        yield from zip(_parameters(function.func), function.args, strict=False)
        yield from function.keywords.items()
    elif isinstance(function, MethodType):
        yield "function", function.__func__
        if is_plain_object(function.__self__):
            yield from vars(function.__self__).items()
    elif isinstance(function, FunctionType):
        yield from held_by(function).items()
        names = function.__globals__
        if not stored_globals(function.__code__):
            for name in names_in(function.__code__):
                if isinstance(names.get(name), nn.Module):
                    yield name, names[name]
    elif is_plain_object(function):
        yield from vars(function).items()


def _as_they_are(function: Callable[..., Any]) -> Iterator[Any]:
    """What a function reads from outside and sees as it is, with the very modules that are in it.

    It would see that a shell is none of them: the modules that are there have no shells.
    """
    if isinstance(function, FunctionType):
        names = function.__globals__
        for code in _codes(function):
            held = [names.get(name) for name in names_in(code)]
            yield from held
            if code is not function.__code__ or "id" in code.co_names:
                yield held
        for value in held_by(function).values():
            if type(value) is dict:
                yield list(value)
                value = list(value.values())
            yield from value if type(value) in (list, tuple) else () if isinstance(value, nn.Module) else [value]


def _codes(function: FunctionType) -> list[CodeType]:
    """The code of a function, and of those of the functions that it names which ask what is what."""
    found = [function.__code__]
    for code in found:
        for name in names_in(code):
            named = function.__globals__.get(name)
            if type(named) is not FunctionType or named.__globals__ is not function.__globals__:
                continue
            if named.__code__ not in found and _asks(named.__code__):
                found.append(named.__code__)
    return found


@by_code
def _asks(code: CodeType) -> bool:
    """Tell whether code compares something, so that it may ask what is what."""
    return any(step.opname in _ASKING for step in dis.get_instructions(code))


_ASKING = ("IS_OP", "CONTAINS_OP", "COMPARE_OP")


def _inside(value: Any, depth: int = 3) -> Iterator[nn.Module]:
    """The modules in containers and plain objects, short of the value itself."""
    items: Iterable[Any] = ()
    if isinstance(value, Mapping):
        items = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset | collections.deque | weakref.WeakSet):
        items = value
    elif is_plain_object(value):
        items = vars(value).values()
    for item in items:
        if isinstance(item, nn.Module):
            yield item
        elif depth:
            yield from _inside(item, depth - 1)


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


class _Copy:
    """Copies functions, with modules in them replaced; what reaches none of them stays as it is."""

    def __init__(self, modules: dict[int, nn.Module]) -> None:
        self._modules = modules
        self._made: dict[int, Any] = {}
        self.objects: dict[int, Any] = {}  # copies of objects, by id

    def value(self, value: Any) -> Any:
        if isinstance(value, nn.Module):
            return self._modules.get(id(value), value)
        if id(value) in self._made:
            return self._made[id(value)]
        self._made[id(value)] = value
        made = self._made[id(value)] = self._copied(value)
        return made

    def _copied(self, value: Any) -> Any:
        kind = type(value)
        if kind in (list, tuple):
            items = kind([self._modules.get(id(item), item) for item in value])
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if kind is dict:
            changed = {key: self._modules.get(id(item), item) for key, item in value.items()}
            return value if all(changed[key] is item for key, item in value.items()) else changed
        if kind is functools.partial:
            args = [self._modules.get(id(item), item) for item in value.args]
            named = {name: self._modules.get(id(item), item) for name, item in value.keywords.items()}
            return functools.partial(self.value(value.func), *args, **named)
        if kind is MethodType:
            return MethodType(self.value(value.__func__), self.object(value.__self__))
        return self._function(value) if kind is FunctionType else value

    def object(self, owner: Any) -> Any:
        """A copy of an object, with modules in its attributes replaced."""
        if not is_plain_object(owner):
            return owner
        state = {name: self.value(item) for name, item in vars(owner).items()}
        if all(state[name] is item for name, item in vars(owner).items()):
            return owner
        made = self.objects[id(owner)] = new_object(type(owner), **state)
        return made

    def _function(self, function: FunctionType) -> FunctionType:
        held = held_by(function)
        mine = {name: self.value(value) for name, value in held.items()}
        changed = {name for name, value in held.items() if mine[name] is not value}
        names, found = function.__globals__, {}
        if not stored_globals(function.__code__):
            for name in names_in(function.__code__):
                if id(names.get(name)) in self._modules:
                    found[name] = self._modules[id(names[name])]
        if not changed and not found:
            return function
        closure = tuple(
            [CellType(mine[name]) if name in changed else cell for name, cell in closure_of(function).items()]
        )
        made = FunctionType(
            function.__code__,
            {**names, **found, _COPIED: names} if found else names,
            function.__name__,
            function.__defaults__,
            closure,
        )
        made.__kwdefaults__ = function.__kwdefaults__
        functools.update_wrapper(made, function)
        made.__dict__.pop("__wrapped__", None)
        made.__dict__.update(function.__dict__)
        return made

"""Where a name leads: what modules, classes and objects of the user's have under it, and what kind of thing that is."""

from __future__ import annotations

import array
import collections
import itertools
import linecache
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn

from graphwright.capture.effects.variables import MISSING
from graphwright.capture.proxies.contents import HOLDERS
from graphwright.capture.state.running import value_outside
from graphwright.ops import Names
from graphwright.runtime import NOT_SET, attributes_of, is_object, is_state
from graphwright.source import Mentions, catches, definition_of, is_foreign, is_foreign_class, is_foreign_file

CONTAINERS: tuple[Any, ...] = (
    *HOLDERS, tuple, bytearray, array.array,
    collections.ChainMap, collections.UserDict, collections.UserList, MappingProxyType,
)  # fmt: skip
MOST = 256  # items of a container that are looked at for objects
CONSTRUCTORS = ("__new__", "__init__", "__post_init__", "__class_getitem__")
_NOT_FOLLOWED = frozenset({  # by the program itself: the capture looks at objects, too
    *CONSTRUCTORS, "__getattribute__", "__repr__", "__del__", "__init_subclass__", "__reduce__", "__reduce_ex__",
    "__getstate__", "__setstate__", "__copy__", "__deepcopy__", "__dir__", "__sizeof__",
})  # fmt: skip


Keys = tuple[Any, ...]  # where something is in what a variable holds


class Reached(NamedTuple):
    """A value that something found leads to: what it is called, and how it is reached from what was found."""

    value: Any
    subject: str
    root: tuple[int, str]
    keys: tuple[Any, ...]

    def inside(self, value: Any, key: Hashable, subject: str = "") -> Reached:
        """A value in this one."""
        return Reached(value, subject or f"what {self.subject} has", self.root, (*self.keys, key))


def has_unseen_handlers(code: CodeType) -> bool:
    """Tell whether a function catches what it raises and has no source.

    Of one that is of no file, the text under its name may be another: Python 3.13 has there what `python -c` runs.
    """
    name = code.co_filename
    return catches(code) and (definition_of(code) is None if name.startswith("<") else not linecache.getlines(name))


def places_on(ways: list[tuple[str, Keys]], places: Mapping[str, list[Keys]]) -> list[Keys]:
    """Those of some places, by path, that are in what is reached on some ways: by a path, and where in what is there.

    >>> places_on([("G", ("a",))], {"G": [("a", 0), ("b",), ()]})
    [(0,), ()]
    """
    found = [(keys, before) for path, before in ways for keys in places.get(path, ())]
    return [keys[len(before) :] for keys, before in found if keys[: len(before)] == before[: len(keys)]]


def has_state(value: Any) -> bool:
    """Tell whether a value is a container or an object whose content is state of the program."""
    kind = type(value)
    return kind in HOLDERS or (is_state(value) and (is_record(kind) or not is_foreign_class(kind)))


def is_record(kind: type) -> bool:
    """Tell whether a class of Python's makes objects that have but what the user gives them."""
    return kind is SimpleNamespace or f"{kind.__module__}.{kind.__name__}" == "argparse.Namespace"


def attribute(value: Any, name: str) -> tuple[Any, Any, str]:
    """What has an attribute of a module, class or object of the user's, its value, and what to call it."""
    if isinstance(value, ModuleType):
        if is_foreign_module(value):
            return None, MISSING, ""
        names = vars(value)
        return names, names.get(name, MISSING), f"the global {name!r} of {value.__name__}"
    if isinstance(value, nn.Module) or value is MISSING:
        return None, MISSING, ""
    if isinstance(value, type):
        owner = value if of_class(value, name) is not MISSING else type(value)
        return owner, of_class(owner, name), f"{owner.__qualname__}.{name}"
    if type(value) is FunctionType and not is_foreign(value.__code__):
        return value, vars(value).get(name, MISSING), f"{value.__qualname__}.{name}"
    kind = type(value)
    if is_object(value) or isinstance(value, threading.local):
        held = attributes_of(value)
        if name in held:
            return value, held[name], f"{name!r} of a {kind.__qualname__}"
        if not is_foreign_class(kind):
            return kind, of_class(kind, name), f"{kind.__qualname__}.{name}"
    return None, MISSING, ""


def names_called(value: Callable[..., Any]) -> list[str]:
    """The attributes that a function in C reads: `operator.attrgetter("first.second")`.

    >>> names_called(operator.attrgetter("first.second")), names_called(len)
    (['first', 'second'], [])
    """
    if not isinstance(value, operator.attrgetter | operator.methodcaller):
        return []
    given = value.__reduce__()[1]  # of a call with keywords, the name stands in the function that makes it again
    texts = given if given else value.__reduce__()[0].args  # type: ignore[union-attr]
    texts = texts if isinstance(value, operator.attrgetter) else texts[:1]
    return [atom for text in texts if isinstance(text, str) for atom in text.split(".")]


def is_foreign_module(module: ModuleType) -> bool:
    """Tell whether a module is no part of the user's program."""
    file = getattr(module, "__file__", None) or ""
    return is_foreign_file(file) if file else module.__name__ in sys.builtin_module_names


def _is_of_backends(value: Any) -> bool:
    """Tell whether a value is a module of `torch.backends`, or what stands in the place of one."""
    name = value.__name__ if isinstance(value, ModuleType) else type(value).__module__
    return name.startswith("torch.backends")


_BACKENDS = frozenset(name for name, held in vars(torch.backends).items() if _is_of_backends(held))


def flags_of(names: dict[str, Any], mentioned: Mentions) -> Iterator[tuple[Any, str, str]]:
    """The flags of torch's backends that a function may read: what has each, its name, and what to call it."""
    for owner in _backends_in(names, mentioned):
        for name in sorted(mentioned.attributes - mentioned.written) if _is_of_backends(owner) else ():
            if isinstance(getattr(owner, name, None), bool | int | float | str):
                yield owner, name, f"{getattr(owner, '__name__', type(owner).__qualname__)}.{name}"


def assigned_in(names: dict[str, Any], mentioned: Mentions) -> Iterator[tuple[Any, str]]:
    """The variables of other modules of Python, and of their classes, that a function may assign: `config.STEP = 1`."""
    paths = [(names.get(path[0]), path[1:]) for path in mentioned.paths]
    paths += [(sys.modules.get(name), taken) for name, _, taken in mentioned.imports]
    for found, path in paths:
        module = found
        for atom in path:
            if isinstance(module, type) and atom in mentioned.written:
                yield module, atom
            if not isinstance(module, ModuleType):
                break
            if atom in mentioned.written:
                yield vars(module), atom
            module = vars(module).get(atom)
        if isinstance(module, ModuleType) and not is_foreign_module(module):
            inside = vars(module)
            yield from ((inside, name) for name in sorted(mentioned.written | mentioned.texts) if name in inside)


def foreign_written(names: dict[str, Any], mentioned: Mentions) -> Iterator[dict[str, Any]]:
    """The names of modules of Python's and of installed packages to which a function may write without naming that."""
    if mentioned.written:
        yield from (vars(sys.modules[name]) for name, *_ in mentioned.imports if _is_foreign(sys.modules.get(name)))
    if not _WRITES_BY_NAME.isdisjoint(path[-1] for path in mentioned.paths):
        yield from (
            vars(names[name]) for name, *further in mentioned.paths if not further and _is_foreign(names.get(name))
        )


def _is_foreign(value: Any) -> bool:
    return isinstance(value, ModuleType) and is_foreign_module(value)


_WRITES_BY_NAME = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})


def _backends_in(names: dict[str, Any], mentioned: Mentions) -> Iterator[Any]:
    for path in mentioned.paths:
        owner = names.get(path[0])
        if isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] == "torch":
            for atom in path[1:]:
                if not _is_of_backends(owner) and atom not in ("backends", *_BACKENDS):
                    break
                owner = getattr(owner, atom, None)
            yield owner
    for name, _, taken in mentioned.imports:
        if name.startswith("torch.backends") and name in sys.modules:
            yield from (sys.modules[name], *[getattr(sys.modules[name], each, None) for each in taken])


def has_attributes(value: Any) -> bool:
    """Tell whether what functions read of anything may be an attribute of a value."""
    if isinstance(value, nn.Module | threading.local) or is_record(type(value)):
        return True
    return is_object(value) and not is_foreign_class(type(value))


def objects_among(found: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """The objects and containers among some values and in containers of theirs, each with what it is."""
    inside = [
        (item, f"in {subject}")
        for value, subject in found
        if type(value) in HOLDERS or type(value) is tuple
        for item in itertools.islice((*value, *value.values()) if isinstance(value, dict) else value, MOST)
    ]
    return [each for each in (*found, *inside) if is_object(each[0]) or type(each[0]) in HOLDERS]


def of_class(kind: type, name: str) -> Any:
    """What the user's part of a class has under a name."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return MISSING if is_foreign_class(base) else base.__dict__[name]
    return MISSING


def methods_of_python(kind: type) -> list[str]:
    """The methods of a class that Python calls without a name, those of operators and `with`, and `forward`."""
    names = {name: None for base in kind.__mro__ if not is_foreign_class(base) for name in vars(base)}
    special = [name for name in names if name.startswith("__") and name.endswith("__") and name not in _NOT_FOLLOWED]
    return [name for name in special if callable(of_class(kind, name))] + ["forward"]


def covered(kind: type, name: str) -> list[type]:
    """The user's classes whose method of a name `super()` leads to, from that of a class."""
    found: list[type] = []
    for base in kind.__mro__:
        if name in vars(base):
            found.append(base)
            function = getattr(vars(base)[name], "__func__", vars(base)[name])
            if type(function) is not FunctionType or "super" not in function.__code__.co_names:
                break
    return [base for base in found[1:] if not is_foreign_class(base)]


def definitions(kind: type, names: Iterable[str]) -> Iterator[Any]:
    """What a class has under names, each with what `super()` leads to from there."""
    for name in names:
        yield of_class(kind, name)
        yield from (vars(base)[name] for base in covered(kind, name))


def fields(kind: type) -> Any:
    return getattr(kind, "__dataclass_fields__", ())


def is_definition(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType | staticmethod | classmethod | property)


def is_foreign_definition(value: Any) -> bool:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return type(function) is not FunctionType or is_foreign(function.__code__)


def module_of(names: dict[str, Any]) -> str | Names:
    """The name of the module whose global names these are."""
    name = names.get("__name__")
    is_module = isinstance(name, str) and vars(sys.modules.get(name, object)) is names
    return str(name) if is_module else Names(names)


def title(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "a module"))


def told_by_c(value: Any, subject: str, own: Collection[int]) -> Iterator[tuple[str, str, Any]]:
    """What a ContextVar has, and what weak references have: how it is asked for, what to call it, and what it is."""
    if type(value) is ContextVar:
        yield "get()", f"the value of {subject}", value_outside(value, NOT_SET)
    elif type(value) is weakref.ref and id(value()) not in own:
        yield "()", f"whether what {subject} refers to is gone", value() is None
    elif isinstance(value, (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)):
        yield "len()", f"how much {subject} has", len(value)

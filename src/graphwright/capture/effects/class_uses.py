"""What the class of a module does with its own attributes, as its code says: which it writes, mentions, looks past."""

from __future__ import annotations

import dataclasses
import dis
import functools
from collections.abc import Callable, Container, Iterator
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from graphwright.runtime import MODULE_TABLES, GraphModule, is_plain
from graphwright.source import codes_of, content_of, names_in, steps_of

OWN = frozenset({*MODULE_TABLES, "_compiled_call_impl", "_apply", "forward"})  # of torch and of ours


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """Names of attributes, by what a class does with them, and how it may see others."""

    written: frozenset[str]  # assigned to `self` outside of the constructor
    written_in_calls: frozenset[str]  # by what `forward` may reach
    mentioned: frozenset[str]  # by what `forward` may reach
    of_class: frozenset[str]  # of the class itself, those that these mention: plain ones, and what is computed once
    methods: frozenset[str]  # that the user wrote, `forward` aside
    asks_types: bool  # whether a call may ask `type(value)`, for which a number of the graph is none
    sees_tables: bool  # whether a call may look at attributes past `nn.Module.__getattr__`


_known: dict[type, Uses] = {}


def uses_of_class(kind: type) -> Uses:
    """Read what the methods of a class do, once."""
    known = _known.get(kind)
    if known is None:
        methods: dict[str, list[CodeType]] = {}
        for name, function in methods_of(kind, NOT_OF_USERS):
            methods.setdefault(name, []).append(function.__code__)
        reached = _reached(methods)
        is_own = getattr(kind, "__getattr__", None) not in (nn.Module.__getattr__, GraphModule.__getattr__)
        own: Any = kind.__getattribute__
        is_own |= own is not object.__getattribute__ or any(map(_is_descriptor, _of_users(kind)))
        every = [code for name, codes in methods.items() if name != "__init__" for code in codes]
        mentioned = frozenset(name for code in reached for name in names_in(code))
        known = _known[kind] = Uses(
            frozenset(name for code in every for name in _assigned(code)),
            frozenset(name for code in reached for name in _assigned(code)),
            mentioned,
            frozenset(name for name in mentioned if _is_plain_attribute(kind, name)),
            frozenset(name for name in methods if not name.startswith("__") and name not in OWN),
            any(_is_global("type", code) for code in reached),
            is_own or not mentioned.isdisjoint({"__dict__", "vars", "dir"}),
        )
    return known


def _of_users(kind: type) -> Iterator[Any]:
    """What the classes of a module have that its user wrote."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in NOT_OF_USERS:
            yield from vars(base).values()


def _is_descriptor(value: Any) -> bool:
    """Tell whether what an attribute of a class gives is computed by code of the user's, which may read `__dict__`."""
    return hasattr(type(value), "__get__") and type(value).__module__.partition(".")[0] not in NOT_OF_USERS


NOT_OF_USERS = ("torch", "graphwright", "builtins", "functools", "types")


def _is_plain_attribute(kind: type, name: str) -> bool:
    if name.startswith("__") or name in OWN:
        return False
    owner = next((base for base in kind.__mro__ if name in vars(base)), None)
    if owner is None or owner in nn.Module.__mro__:
        return False
    return is_plain(vars(owner)[name]) or isinstance(vars(owner)[name], functools.cached_property)


def _is_global(name: str, code: CodeType) -> bool:
    return any(step[:2] == ("LOAD_GLOBAL", name) for part in codes_of(code) for step in steps_of(part))


def methods_of(kind: type, foreign: Container[str]) -> Iterator[tuple[str, FunctionType]]:
    """The methods of a class by name, wrapped ones, too, short of those of classes of `foreign` packages."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in foreign:
            continue
        for name, value in vars(base).items():
            found = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
            for function in found:
                for inner in wrapped_in(function):
                    yield name, inner


def wrapped_in(function: Callable[..., Any] | None) -> list[FunctionType]:
    """A function, and those that it closes over: what a decorator has wrapped."""
    found: list[FunctionType] = []
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if isinstance(each, FunctionType) and each not in found:
            found.append(each)
            waiting += map(content_of, each.__closure__ or ())
    return found


def written_by(kind: type, function: Callable[..., Any]) -> frozenset[str]:
    """The attributes of a module of a class that a function may assign, or those methods of it that this names."""
    methods: dict[str, list[CodeType]] = {}
    for name, method in methods_of(kind, NOT_OF_USERS):
        methods.setdefault(name, []).append(method.__code__)
    codes = [code for each in wrapped_in(function) for code in codes_of(each.__code__)]
    own = [name for code in codes for step, name, _ in steps_of(code) if step == "STORE_ATTR"]
    reached = _named_from([name for code in codes for name in code.co_names], methods)
    return frozenset([*own, *[name for code in reached for name in _assigned(code)]])


def _reached(methods: dict[str, list[CodeType]]) -> list[CodeType]:
    """The code of the methods that a call may reach: those that `forward` names, and that these name."""
    waiting = ["forward", *[name for name in methods if name.startswith("__") and name not in _NOT_CALLED]]
    return _named_from(waiting, methods)


def _named_from(waiting: list[str], methods: dict[str, list[CodeType]]) -> list[CodeType]:
    reached: dict[str, list[CodeType]] = {}
    while waiting:
        name = waiting.pop()
        if name in methods and name not in reached:
            reached[name] = methods[name]
            waiting += [other for code in methods[name] for other in names_in(code)]
    return [code for codes in reached.values() for code in codes]


_NOT_CALLED = frozenset({
    "__init__", "__init_subclass__", "__setattr__", "__delattr__", "__dir__", "__repr__", "__getstate__",
    "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__getattr__", "__getattribute__",
})  # fmt: skip


_STORE = dis.opmap["STORE_ATTR"]


def _assigned(code: CodeType) -> Iterator[str]:
    """The attributes that a method assigns to its first argument."""
    if _STORE not in code.co_code[::2] or not code.co_varnames:
        return
    before = ""
    is_own = False
    for kind, name, argument in steps_of(code):
        if kind == "STORE_ATTR" and (is_own or before in ("SWAP", "ROT_TWO")):  # `+=` swaps
            yield name
        # In an instruction that loads two variables, the last bits are those of the second.
        place = argument & 15 if kind.count("_FAST") == 2 else argument
        is_own, before = "LOAD_FAST" in kind and place == 0, kind

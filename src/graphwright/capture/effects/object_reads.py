"""Plain values in objects that modules hold: those that a program may read are taken for granted.

Nothing tells when a program reads an attribute of an object of the user's. So what counts is which names the functions
mention that a call may reach: `forward`, what it names, and so on. The same goes for tags, the attributes that tensors
of modules have of their own, as `weight.is_frozen = True` makes them: these may not be written.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.effects.class_uses import methods_of, wrapped_in
from graphwright.capture.effects.held_tables import held_by
from graphwright.errors import CaptureError
from graphwright.runtime import (
    WITH_ITEMS,
    attributes_of,
    class_name,
    holds_tensors,
    in_path,
    inside_of,
    is_atom,
    is_plain,
    is_plain_container,
    is_state,
    spelled,
    state_of,
)
from graphwright.source import is_foreign_class, names_in, texts_in

if TYPE_CHECKING:
    from graphwright.capture.state.ledger import Ledger

_MISSING: Any = object()
_DEPTH = 8
_MOST = 1024  # items of a container
_ALL_READ = frozenset({"vars", "__dict__", "copy", "deepcopy"})  # what gives all attributes of an object
_NOT_CALLED = frozenset({
    "__init__", "__init_subclass__", "__setattr__", "__delattr__", "__dir__", "__repr__", "__getstate__",
    "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__new__", "__eq__", "__hash__",
    "__post_init__", "__str__", "__format__", "__del__",
})  # fmt: skip


def values_of(
    name: str, value: Any, mentioned: frozenset[str], seen: dict[int, str], looked_for: frozenset[str], prefix: str = ""
) -> dict[str, dict[str, Any]]:
    """The class and the plain attributes of an object, and of those in it, by dotted paths that start with a name.

    Objects that were `seen` before, each at a path, are left out: what holds them says so under "held". Of what one
    lacks, that is told which the program has `looked_for` anywhere, and what would stand before an attribute of its
    class.
    """
    found: dict[str, dict[str, Any]] = {}
    _look(name, value, (mentioned, looked_for), found, seen, 0, prefix)
    return found


def hideable(kind: type) -> frozenset[str]:
    """The attributes of the user's part of a class before which its objects may have others of their own."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if not is_foreign_class(base):
            found = {**vars(base), **found}
    return frozenset(name for name, value in found.items() if not hasattr(type(value), "__set__"))


def answers(kind: type) -> bool:
    """Tell whether the user's part of a class computes attributes that its objects do not have, by `__getattr__`."""
    return any("__getattr__" in vars(base) and not is_foreign_class(base) for base in kind.__mro__)


def _look(
    path: str,
    value: Any,
    names: tuple[frozenset[str], frozenset[str]],
    found: dict[str, dict[str, Any]],
    seen: dict[int, str],
    depth: int,
    prefix: str,
) -> None:
    mentioned, looked_for = names
    if isinstance(value, nn.Module):
        _look_at_module(path, value, found, seen, prefix)
    if id(value) in seen or depth > _DEPTH:
        return
    seen[id(value)] = prefix + path
    values: dict[str, Any] = {}
    found[path] = {"class": class_name(value), "values": values}
    is_container = isinstance(value, (*WITH_ITEMS, functools.partial))
    if isinstance(value, WITH_ITEMS):
        values["len()"] = len(value)
    elif not is_container:
        hidden = mentioned if answers(type(value)) else hideable(type(value)) & mentioned
        missing = (hidden | looked_for) - attributes_of(value).keys()
        absent = sorted(name for name in missing if not name.startswith("__"))
        found[path]["names"] = [*attributes_of(value)]
        if absent:
            found[path]["absent"] = absent
    are_all_read = is_container or not _ALL_READ.isdisjoint(mentioned)
    for name, item in inside_of(value).items():
        if name == "len()" or not (are_all_read or name in mentioned):
            continue
        if isinstance(item, torch.Tensor):
            found[path].setdefault("held", {})[str(name)] = item
        elif is_atom(item) or is_plain_container(item):
            values[str(name)] = spelled(item)
        elif isinstance(item, nn.Module):  # its code is part of the program
            if id(item) in seen:  # which of the program's own it is
                found[path].setdefault("held", {})[str(name)] = item
            _look_at_module(f"{path}.{name}", item, found, seen, prefix)
        elif is_state(item) or is_looked_into(item):
            if id(item) in seen:
                found[path].setdefault("held", {})[str(name)] = item
            _look(f"{path}.{name}", item, names, found, seen, depth + 1, prefix)
        elif holds_tensors(item):
            found[path].setdefault("held", {})[str(name)] = item


def _look_at_module(
    path: str, module: nn.Module, found: dict[str, dict[str, Any]], seen: dict[int, str], prefix: str
) -> None:
    """The class of a module that is no part of the program's tree, and all that it has; of one that is, the class."""
    values: dict[str, Any] = {}
    found[path] = {"class": class_name(module), "values": values}
    if id(module) in seen:
        return
    if "forward" not in module.__dict__:
        found[path]["absent"] = ["forward"]
    seen[id(module)] = prefix + path
    for name, item in inside_of(module).items():
        if isinstance(item, torch.Tensor):
            found[path].setdefault("held", {})[name] = item
        elif isinstance(item, nn.Module):
            _look_at_module(f"{path}.{name}", item, found, seen, prefix)
        elif name not in _OF_TORCH and (is_atom(item) or is_plain_container(item)):
            values[name] = spelled(item)


_OF_TORCH = frozenset({*nn.Module().__dict__, "_tracer_cls"} - {"training"})  # and of ours


def rest_of_container(
    name: str,
    value: list[Any] | tuple[Any, ...] | dict[Any, Any] | collections.deque[Any],
    written: Collection[tuple[Any, ...]],
    constants: Mapping[str, torch.Tensor],
) -> dict[str, dict[str, Any]]:
    """The facts of a plain container, and of those in it, short of the items at the places that are written.

    Of tensors, those count that are constants of the graph, which it does not read where they are.

    >>> rest_of_container("sizes", {"a": 1, "b": 2}, [("b",)], {})
    {'sizes': {'class': 'builtins.dict', 'values': {'len()': 2, 'a': 1}}}
    """
    items = value.items() if isinstance(value, dict) else enumerate(value)
    values: dict[str, Any] = {"len()": len(value)}
    found = {name: {"class": class_name(value), "values": values}}
    for key, item in items:
        below = [keys[1:] for keys in written if keys[0] == key]
        if not below and (is_atom(item) or is_plain_container(item)):
            values[in_path(key)] = spelled(item)
        elif isinstance(item, torch.Tensor):
            if not below and any(item is constant for constant in constants.values()):
                values[in_path(key)] = spelled(item, constants)
        elif () not in below and isinstance(item, WITH_ITEMS):
            found.update(rest_of_container(f"{name}.{in_path(key)}", item, below, constants))
    return found


def kinds_in(value: Any, depth: int = 0) -> Iterator[type]:
    """The classes of an object and of those that it holds."""
    yield type(value)
    inner = value if isinstance(value, list | tuple | collections.deque) else held_by(value).values()
    for item in inner if depth < _DEPTH else ():
        if not isinstance(item, torch.Tensor | nn.Module) and (is_state(item) or holds_objects(item)):
            yield from kinds_in(item, depth + 1)


def holds_objects(value: Any, depth: int = _DEPTH) -> bool:
    """Tell whether a container holds objects of the user's classes."""
    items = _items_of(value)
    if depth and any(holds_objects(item, depth - 1) for item in items):
        return True
    return any(is_state(item) for item in items if not isinstance(item, torch.Tensor | nn.Module))


def holds_modules(value: Any, depth: int = _DEPTH) -> bool:
    """Tell whether a list, tuple or dict, or one in it, holds modules."""
    items = _items_of(value)
    return any(isinstance(item, nn.Module) or (depth > 0 and holds_modules(item, depth - 1)) for item in items)


def is_looked_into(value: Any) -> bool:
    """Tell whether a value holds objects, or tensors of which a program may read one by what holds it."""
    if isinstance(value, functools.partial):
        return not is_atom(value)
    if holds_objects(value):
        return True
    return any(isinstance(item, torch.Tensor | nn.Module) or is_looked_into(item) for item in _items_of(value))


def tensors_in(value: Any, place: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a list, tuple or dict, and in those in it, each with its place there.

    >>> [place for place, _ in tensors_in([torch.ones(1), {"a": torch.ones(1)}])]
    ['0', '1.a']
    """
    if not _items_of(value):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, torch.Tensor):
            yield f"{place}{in_path(key)}", item
        elif isinstance(item, WITH_ITEMS):
            yield from tensors_in(item, f"{place}{in_path(key)}.")


def _items_of(value: Any) -> Collection[Any]:
    """What is in a list, tuple, deque or dict, where texts tell its keys."""
    if not isinstance(value, WITH_ITEMS) or len(value) > _MOST:
        return ()
    if isinstance(value, dict):
        return dict.values(value) if all(map(is_plain, value)) else ()
    return value


def mentioned_by(kinds: Iterable[type], function: Callable[..., Any]) -> frozenset[str]:
    """The names in the functions that a call of a program may reach, whose objects are of some classes."""
    own = inner if isinstance(inner := getattr(function, "__func__", function), FunctionType) else None
    return _mentioned(frozenset(kinds), own)


@functools.lru_cache(maxsize=64)
def _mentioned(kinds: frozenset[type], own: FunctionType | None) -> frozenset[str]:
    methods: dict[str, list[FunctionType]] = {}
    for kind in kinds:
        for name, method in methods_of(kind, _FOREIGN):
            methods.setdefault(name, []).append(method)
    called = [name for name in methods if name.startswith("__") and name not in _NOT_CALLED]
    waiting = [method for name in ("forward", *called) for method in methods.get(name, ())]
    waiting += [] if own is None else wrapped_in(own)
    seen, names = set(), set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for name in (*names_in(function.__code__), *texts_in(function.__code__)):
            names.add(name)
            found = function.__globals__.get(name)
            waiting += methods.get(name, ()) if name not in _NOT_CALLED else ()
            waiting += wrapped_in(found) if isinstance(found, FunctionType) and not _is_foreign(found) else ()
    return frozenset(names)


_FOREIGN = ("torch", "graphwright", "builtins")


def _is_foreign(function: FunctionType) -> bool:
    return str(function.__module__).partition(".")[0] in _FOREIGN


# ---- tags of tensors and containers


class Tags:
    """The attributes that tensors had before the program ran, each at its module's path and its name there.

    And those of containers of classes of their own that modules have.
    """

    def __init__(self, tensors: Iterable[tuple[str, str, torch.Tensor]], root: nn.Module | None = None) -> None:
        containers = () if root is None else _containers_of_users(root)
        self._before = [(path, name, held, dict(state_of(held))) for path, name, held in (*tensors, *containers)]

    def refuse_written(self, names: frozenset[str], at: str) -> None:
        """Raise CaptureError where the program has changed a tag of which it mentions the name."""
        for path, name, held, before in self._before:
            for tag in _changed(held, before, names):
                of = ".".join(filter(None, ("self", path, name)))
                kind = "tensor" if isinstance(held, torch.Tensor) else type(held).__qualname__
                raise CaptureError(
                    f"the program writes {tag!r} of {of}, which is a {kind} of its modules",
                    at=at,
                    fix=f"keep it in an attribute of the module: self.{tag}",
                )

    def put_back(self, names: frozenset[str]) -> None:
        """Give all the tags that they had, those aside of which the program mentions no name."""
        for *_, held, before in self._before:
            for tag in _changed(held, before, names):
                if tag in before:
                    state_of(held)[tag] = before[tag]
                else:
                    del state_of(held)[tag]

    def take(self, ledger: Ledger, names: frozenset[str], looked_for: frozenset[str]) -> None:
        """Take for granted the tags that the program may read, and that those are missing which it may look for."""
        for path, name, held, before in self._before:
            plain = [
                tag for tag in before if tag in names and (is_atom(before[tag]) or is_plain_container(before[tag]))
            ]
            lacks = sorted(tag for tag in looked_for - before.keys() if not hasattr(type(held), tag))
            if plain or lacks:
                tags = {tag: spelled(before[tag]) for tag in plain}
                ledger.module(path).setdefault("tags", {})[name] = {"has": tags, "lacks": lacks}


def _containers_of_users(root: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """The containers in attributes of modules whose classes are the user's, which may have attributes themselves."""
    for path, module in root.named_modules():
        for name, value in vars(module).items():
            if type(value) not in _PLAIN and isinstance(value, _CONTAINERS) and not is_foreign_class(type(value)):
                yield path, name, value


# Most of what modules hold.
_PLAIN = frozenset({bool, int, float, str, dict, list, tuple, set, type(None), collections.OrderedDict})
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)


def _changed(held: Any, before: dict[str, Any], names: frozenset[str]) -> list[str]:
    now = state_of(held)
    if not now and not before:
        return []
    return [tag for tag in (before | now) if tag in names and now.get(tag, _MISSING) is not before.get(tag, _MISSING)]

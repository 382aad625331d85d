"""What is kept with a graph about the modules of its program: plain data by dotted paths, which goes where it goes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from graphwright.ir import Graph, Node

_MODULES = "modules"  # in the meta of a graph: the facts of each module, by its path
_BUFFERS = "buffers"
_UNSET = "unset"
_CALLS = "calls"
_FORWARDS = "forwards"  # in the same place: the methods of classes, in the process of the capture

# The facts of one module, each left out where there is none:
#   class    the name of its class
#   hooks    it was called: by table, the names of the hooks that it had
#   values   plain attributes, by name
#   holds    tables that were walked: by table, the names in it
#   unused   of the submodules in a table that was walked, those of which the graph has the code alone
#   is_none  parameters, buffers, submodules and live attributes, by name: whether it is None, or what else it is
#   dtypes   parameters, buffers and other tensors, by name: the dtype that was read, or all that are as good
#   asked    of them, by name: the line of the program that asks
#   shapes   parameters, buffers and other tensors, by name: the shape of which something was read
#   devices  parameters, buffers and other tensors, by name: the device that was asked for
#   kinds    submodules, by name: by name of a class, whether it is one of its objects
#   exact    submodules, by name: the name of their class, where the program asks for that class and no other
#   same     of the module itself: submodules and tensors by path, and the first path where there is the very same
#   absent   names that it did not have
#   lacking  those of them that its class did not have either
#   drawn    generators of random numbers in its attributes, from which the graph draws
#   without  dicts in its attributes to which the program adds, by name: keys that it did not find there
#   names    the attributes that it had, where the program looks for all; made: those that it makes itself
#   tags     tensors and containers of classes of their own, by name: attributes of these that it `has` and `lacks`
#   kept     what the program writes itself, by dotted path: the form of what calls leave there and find
#   objects  plain objects in its attributes, by dotted path: of each its class and its values
Facts = Mapping[str, Any]

_TEXT = frozenset({"class", "forward"})
_TEXTS = frozenset({"absent", "drawn", "lacking", "made", "names", "unused"})
_TABLES = frozenset({
    "asked", "devices", "dtypes", "exact", "holds", "hooks", "is_none", "kept", "kinds", "objects", "same", "shapes",
    "tags", "values", "without",
})  # fmt: skip
_OF_ATTRIBUTES = _TABLES - {"holds", "hooks", "same"}
_TABLES_OF_TABLES = frozenset({"kinds", "objects"})
_TABLES_OF_TEXTS = frozenset({"holds", "hooks", "without"})


def are_facts(meta: Mapping[str, Any]) -> bool:
    """Tell whether what a meta has of the modules of a graph is made as it is kept here: what a file says need not be.

    >>> are_facts({"modules": {"": {"class": "Net", "absent": ["scale"]}}, "mine": 3})
    True
    >>> are_facts({"modules": {"": {"class": 3}}}), are_facts({"modules": 3})
    (False, False)
    """
    modules = meta.get(_MODULES, {})
    if not (_is_table(modules) and all(map(_is_table, modules.values()))):
        return False
    if not all(_is_fact(name, value) for facts in modules.values() for name, value in facts.items()):
        return False
    return all(map(_is_table, (meta.get(_BUFFERS, {}), meta.get(_CALLS, {})))) and _are_texts(meta.get(_UNSET, []))


def _is_fact(name: str, value: Any) -> bool:
    if name in _TEXT:
        return isinstance(value, str)
    if name in _TEXTS:
        return _are_texts(value)
    if name not in _TABLES or not _is_table(value):
        return False
    if name == "objects":
        return all(
            _is_table(each) and isinstance(each.get("class"), str) and _is_table(each.get("values"))
            for each in value.values()
        )
    if name == "tags":
        return all(
            _is_table(each) and _is_table(each.get("has")) and _are_texts(each.get("lacks")) for each in value.values()
        )
    is_inside = _is_table if name in _TABLES_OF_TABLES else _are_texts if name in _TABLES_OF_TEXTS else None
    return is_inside is None or all(map(is_inside, value.values()))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def keep_modules(graph: Graph, facts: Mapping[str, Facts]) -> None:
    """Keep with a graph what its capture took for granted of modules, by path."""
    if facts:
        graph.meta[_MODULES] = {path: dict(of_one) for path, of_one in facts.items()}


class Forwards:
    """The `forward` that classes had whose code is part of a graph. No other process has these very functions.

    `of_modules` are the paths of the modules whose code was a forward of their own. `codes` are the functions of the
    user's whose code is part of the graph, each with its code and its defaults: those change where a module is loaded
    again in its place, as notebooks do it.

    >>> import copy
    >>> from torch import nn
    >>> copy.deepcopy(Forwards({nn.ReLU: nn.ReLU.forward})).of_classes[nn.ReLU] is nn.ReLU.forward
    True
    """

    __slots__ = ("codes", "looked_at", "of_classes", "of_modules")

    def __init__(
        self,
        of_classes: Mapping[type, Any] | None = None,
        of_modules: Iterable[str] = (),
        codes: Mapping[FunctionType, tuple[Any, ...]] | None = None,
    ) -> None:
        self.of_classes, self.of_modules = dict(of_classes or {}), frozenset(of_modules)
        self.codes = dict(codes or {})
        rows: list[tuple[Any, str, Any]] = [(kind, "forward", forward) for kind, forward in self.of_classes.items()]
        for function, code in self.codes.items():
            rows += [(function, name, was) for name, was in zip(_CODE, code, strict=True) if was is not None]
        owners, names, values = ([row[i] for row in rows] for i in range(3))
        self.looked_at = owners, names, values  # as calls compare them

    def are_there(self) -> bool:
        """Tell whether classes and functions still have what they had."""
        owners, names, values = self.looked_at
        return all(map(operator.is_, map(getattr, owners, names), values))

    def __deepcopy__(self, memo: dict[int, Any]) -> Forwards:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Forwards, ()


_CODE = ("__code__", "__defaults__", "__kwdefaults__")


def code_of_function(function: FunctionType) -> tuple[Any, ...]:
    """The code of a function and its defaults: what may be replaced while it stays the function that it is."""
    return tuple([getattr(function, name) for name in _CODE])


def keep_forwards(
    graph: Graph,
    of_classes: Mapping[type, Any],
    of_modules: Collection[str] = (),
    codes: Mapping[FunctionType, tuple[Any, ...]] | None = None,
) -> None:
    """Keep with a graph the `forward` of the classes, which modules had their own, and the code of functions.

    That is for this process.
    """
    if of_classes or of_modules or codes:
        graph.meta[_FORWARDS] = Forwards(of_classes, of_modules, codes)


def forwards_of(graph: Graph) -> Forwards:
    """The `forward` that the classes and modules had whose code is part of a graph."""
    kept = (graph._meta or {}).get(_FORWARDS)
    return kept if isinstance(kept, Forwards) else _NO_FORWARDS


_NO_FORWARDS = Forwards()


def keep_buffers(graph: Graph, buffers: Mapping[str, bool]) -> None:
    """Keep with a graph which buffers it registers where it first writes them, by path: whether they persist."""
    if buffers:
        graph.meta[_BUFFERS] = dict(buffers)


def buffers_of(graph: Graph) -> Mapping[str, bool]:
    """The buffers that a graph registers, by path: whether they persist."""
    return (graph._meta or {}).get(_BUFFERS) or {}


def keep_unset(graph: Graph, paths: Collection[str]) -> None:
    """Keep with a graph which attributes of modules it makes where they are missing: they are None until then."""
    if paths:
        graph.meta[_UNSET] = sorted(paths)


def unset_in(graph: Graph) -> Sequence[str]:
    """The paths of the attributes that a graph makes where they are missing."""
    return (graph._meta or {}).get(_UNSET) or ()


_NOTHING: Mapping[str, Any] = {}  # one for all, since who has bound some facts looks whether they are others


def facts_of_modules(graph: Graph) -> Mapping[str, Facts]:
    """What the capture of a graph took for granted of modules, by path."""
    return (graph._meta or _NOTHING).get(_MODULES) or _NOTHING


def is_conditional(graph: Graph) -> bool:
    """Tell whether the capture of a graph took anything for granted of modules or functions, which calls look at."""
    meta = graph._meta or _NOTHING
    return bool(meta.get(_MODULES) or meta.get(_FORWARDS))


def keep_calls(graph: Graph, calls: Mapping[str, Any]) -> None:
    """Keep with a graph what each call of a module got and gave: "passed", by parameter, and "given".

    A call is named by the path of the module, `path@n` for its n-th call after the first. Values have the names of
    their nodes, tuples and lists are lists of these; None stands for what is no tensor of the graph.
    """
    if calls:
        graph.meta[_CALLS] = dict(calls)


def names_of_values(value: Any) -> Any:
    """A value of a call as it is kept: the name of a node, the names in a tuple or list, None for all else."""
    if isinstance(value, Node):
        return value.name
    return [names_of_values(item) for item in value] if isinstance(value, tuple | list) else None


def calls_of_modules(graph: Graph) -> Mapping[str, Any]:
    """What each call of a module got and gave, as far as the capture noted it."""
    return (graph._meta or {}).get(_CALLS) or {}


def meta_with_modules(graph: Graph, facts: Mapping[str, Facts] | None) -> dict[str, Any]:
    """The meta of a graph, with what is taken for granted of the modules of one of those that share it."""
    return {**(graph._meta or {}), **({_MODULES: dict(facts)} if facts else {})}


def meta_for_files(
    graph: Graph,
    facts: Mapping[str, Facts] | None,
    lost: Callable[[str, str], Collection[str]],
    left_out: Callable[[str, str], Mapping[str, bool]],
) -> dict[str, Any]:
    """The same for a file, whose tensors have no attributes of their own, and which knows no function of this process.

    `lost` gives the names of hooks that no file holds, of the module at a path: a module whose code is in the graph,
    as theirs is, has none of them when it is loaded. Nor has it the attributes that `left_out` gives for it, or
    for an object at a path in it, each with whether its class has one of that name: what the program took for granted
    of them is in its graph.

    >>> graph = Graph()
    >>> facts = {"class": "Net", "hooks": {"_forward_hooks": ["hook"]}}
    >>> keep_modules(graph, {"": {"tags": {"w": {"has": {"scale": 2.0}, "lacks": []}}}, "a": facts})
    >>> meta_for_files(graph, None, lambda path, table: ["hook"], lambda path, inner: {})
    {'modules': {'a': {'class': 'Net', 'hooks': {}}}}
    >>> keep_modules(graph, {"a": {"class": "Net", "values": {"file": 3, "width": 4}}})
    >>> meta_for_files(graph, None, lambda path, table: [], lambda path, inner: {"file": True})
    {'modules': {'a': {'class': 'Net', 'values': {'width': 4}, 'absent': ['file']}}}
    """
    meta = meta_with_modules(graph, facts)
    meta.pop(_FORWARDS, None)
    modules = meta.pop(_MODULES, {})
    kept = {path: {fact: held for fact, held in of_one.items() if fact != "tags"} for path, of_one in modules.items()}
    kept = {path: of_one for path, of_one in kept.items() if of_one}
    for path, of_one in kept.items():
        if of_one.get("hooks"):
            hooks = {table: _but(names, lost(path, table)) for table, names in of_one["hooks"].items()}
            of_one["hooks"] = {table: names for table, names in hooks.items() if names}
        if names := left_out(path, ""):
            kept[path] = of_one = _without_attributes(of_one, names)
        for inner, of_object in of_one.get("objects", {}).items():
            if names := left_out(path, inner):
                of_one["objects"] = {**of_one["objects"], inner: _without_attributes(of_object, names)}
    return meta | ({_MODULES: kept} if kept else {})


def without_lost(facts: Facts, module: Any) -> Facts:
    """The facts of a module without those of plain attributes that it does not have.

    >>> without_lost({"class": "Net", "values": {"n": 1, "__name__": "f"}}, without_lost)
    {'class': 'Net', 'values': {}}
    """
    own = getattr(module, "__dict__", None)
    if own is None or "values" not in facts:
        return facts
    return {**facts, "values": {name: value for name, value in facts["values"].items() if name in own}}


def _but(names: Sequence[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others]


def _without_attributes(facts: Facts, names: Mapping[str, bool]) -> dict[str, Any]:
    """The facts of a module that does not have some of its attributes any more, which are not to come back."""
    left, gone = dict(facts), set[str]()
    for fact in _OF_ATTRIBUTES & facts.keys():
        left[fact] = {key: value for key, value in facts[fact].items() if key.partition(".")[0] not in names}
        gone |= {key.partition(".")[0] for key in facts[fact].keys() - left[fact].keys()}
    for fact, those in ("absent", gone), ("lacking", {name for name in gone if not names[name]}):
        if those:
            left[fact] = sorted({*facts.get(fact, ()), *those})
    return left


def take_facts(graph: Graph, meta: dict[str, Any]) -> Mapping[str, Facts]:
    """What `meta_with_modules` put into the meta of a graph, for one of the modules that share it."""
    if graph._meta is not None:
        graph._meta.pop(_MODULES, None)
    return meta.get(_MODULES) or {}


def forget_modules(graph: Graph) -> None:
    """Take nothing for granted of modules any more: the code of the graph then does not look at them."""
    if graph.meta.pop(_MODULES, None) is not None:
        graph._edited()


def forget_module(graph: Graph, path: str) -> None:
    """Take nothing for granted any more of a module, and of those in it: another one takes its place, or none does."""
    facts = facts_of_modules(graph)
    left = {key: of_one for key, of_one in facts.items() if key != path and not key.startswith(f"{path}.")}
    _forget_at(graph, path, left, ("is_none", "kinds", "exact"))


def forget_tensor(graph: Graph, path: str) -> None:
    """Take nothing for granted any more of a tensor of a module, such as that it is there: another one is read now.

    >>> graph = Graph()
    >>> keep_modules(graph, {"a": {"class": "Net", "is_none": {"bias": False}, "dtypes": {"bias": "torch.float32"}}})
    >>> forget_tensor(graph, "a.bias")
    >>> facts_of_modules(graph)
    {'a': {'class': 'Net'}}
    """
    _forget_at(graph, path, dict(facts_of_modules(graph)), ("is_none", "dtypes", "asked", "shapes", "devices", "tags"))


def _forget_at(graph: Graph, path: str, left: dict[str, Facts], tables: tuple[str, ...]) -> None:
    """Keep facts with a graph, without what some tables of the owner of a path say of it, or what it is the same as."""
    owner, _, name = path.rpartition(".")
    if path and owner in left:
        left[owner] = _without(left[owner], name, tables)
    same = left.get("", {}).get("same", {})
    if any(_is_in(each, path) for each in same):
        ones = {each: first for each, first in same.items() if not _is_in(each, path) and not _is_in(first, path)}
        left[""] = {**left[""], "same": ones}
    if left != facts_of_modules(graph):
        graph.meta.pop(_MODULES)
        keep_modules(graph, left)
        graph._edited()


def _is_in(path: str, owner: str) -> bool:
    return path == owner or path.startswith(f"{owner}.")


def _without(facts: Facts, name: str, tables: tuple[str, ...]) -> Facts:
    """The facts of a module without what some tables say of one of its submodules or tensors."""
    left = dict(facts)
    for key in tables:
        if name in left.get(key, ()):
            rest = {each: fact for each, fact in left.pop(key).items() if each != name}
            left |= {key: rest} if rest else {}
    if name in left.get("unused", ()):
        left["unused"] = [each for each in left["unused"] if each != name]
    return left

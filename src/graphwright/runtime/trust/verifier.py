"""The nodes of a graph from a file, checked before anything of it runs.

A program computes with values of closed kinds: tensors, numbers, texts, containers of them, objects of plain classes.
Nothing that can be called is ever one of its values: functions and classes stand only where a table here says so, as
what a node calls or, written out, as an argument that is a function or class by its meaning. So nothing that a program
computes is called, and what it reads of a value has a name that is data for each kind of value that has it.
"""

from __future__ import annotations

import collections
import copy
import enum
import heapq
import inspect
import operator
import string
import types
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import numpy
import torch.utils.checkpoint
from torch import nn

from graphwright.codegen import region_exits
from graphwright.errors import LoadError
from graphwright.ir import Graph, Node
from graphwright.ops import (
    Entering,
    cond,
    delete_attribute,
    enter_context,
    for_loop,
    raise_error,
    set_attribute,
    transformed,
    while_loop,
    write_attribute,
)
from graphwright.runtime import dispatch, guards
from graphwright.runtime.graph_module import GraphModule
from graphwright.runtime.objects import attributes_of, new_object, state_of
from graphwright.runtime.outside import Outside
from graphwright.runtime.trust.fields import read_attributes, read_field, read_private, write_data
from graphwright.runtime.trust.kinds import Kinds
from graphwright.runtime.trust.library import CONTAINERS, MANAGERS, is_exception
from graphwright.runtime.trust.members import is_data, is_field, is_method, is_private, is_secret
from graphwright.runtime.trust.methods import called_methods, calls_method, entry_at
from graphwright.runtime.trust.names import Trust

_FIX = "load files only from those you trust"
_NUMBERS = (bool, int, float, complex)  # may stand for dtypes anywhere
_FACTORIES = (*_NUMBERS, str, list, dict, set, tuple, *CONTAINERS)
_OBJECTS = (types.SimpleNamespace, *CONTAINERS)
# Where a function may be given by name: the keyword, or the place.
_KEYS = {sorted: None, min: None, max: None, heapq.merge: None, heapq.nlargest: 2, heapq.nsmallest: 2, list.sort: None}
_BODIES = {cond: (1, 2), while_loop: (0, 1), for_loop: (1,), transformed: (1,)}
_ASK_FOR_CLASSES = frozenset({
    isinstance, guards.expect, guards.expect_class, guards.expect_kinds, guards.expect_outside, guards.expect_state,
    guards.expect_tensors, guards.expect_values, guards.unlike, guards.unlike_inputs, dispatch.choose,
})  # fmt: skip
_MOST = {
    copy.copy: 1,
    copy.deepcopy: 1,
    iter: 1,
    hasattr: 2,
    setattr: 3,
    getattr: 3,
    read_field: 3,
    read_private: 3,
    isinstance: 2,
    str: 1,
    bytes: 1,
}
_PRINTED = {"sep", "end", "flush"}
_ARGUMENTS = (dict, list, tuple, set, frozenset, slice)  # containers; all else is an object that the file holds
_CLOSED_KEYWORDS = {"cdata"}  # an address
# What stands in programs from files for what they say, and looks when they run.
PLAINLY = {
    read_field: getattr,
    read_private: getattr,
    read_attributes: attributes_of,
    write_data: setattr,
}


def verify(graph: Graph, root: nn.Module, trust: Trust, is_only_asked: bool = False) -> None:
    """Check all nodes of a graph, those of its bodies included. Raises LoadError that names the node and the reason.

    `root` is the module that has the graph. Where it depends on the class of a value whether a name is data, `getattr`
    is replaced by `read_field`, and that of private names by `read_private`, which look when the program runs, unless
    the graph `is_only_asked` about.
    """
    fields = _fields_given(graph)
    _Verifier(root, trust, written_paths(graph), fields, is_only_asked).graph(graph, ())


def written_paths(graph: Graph) -> frozenset[str]:
    """The paths of the attributes of modules that a graph writes."""
    return frozenset(str(node.args[0]) for node in graph.all_nodes() if node.target is write_attribute and node.args)


def holds_callable(
    value: Any, known: set[int] | None = None, counts: Callable[[Any], bool] = lambda item: True
) -> bool:
    """Tell whether a function, class or module can be reached from a value by items and attributes.

    `known` keeps the ids of what was looked at and holds none, for values that stay as they are and alive; `counts`
    tells which functions count.

    >>> holds_callable([1, {"a": len}]), holds_callable([1, {"a": 2.5}])
    (True, False)
    """
    seen: set[int] = set()
    clean = set() if known is None else known
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if _is_atom(item) or id(item) in seen or id(item) in clean:
            continue
        if (callable(item) or isinstance(item, weakref.ref)) and counts(item):
            return True
        seen.add(id(item))
        waiting += _parts(item)
    clean |= seen
    return False


class _Verifier:
    def __init__(
        self, root: nn.Module, trust: Trust, written: frozenset[str], fields: set[str], is_only_asked: bool
    ) -> None:
        self._root = root
        self._trust = trust
        self._written = written
        self._is_only_asked = is_only_asked
        self._kinds = Kinds()
        self._clean: dict[tuple[bool, bool], set[int]] = {}  # ids of what objects hold, which was looked at
        self._called: dict[Node, frozenset[str]] = {}  # the methods that a node is read for
        self._fields = {*fields, *_names_of_fields(trust.classes())}

    def graph(self, graph: Graph, inputs: tuple[type | None, ...]) -> None:
        given = iter(inputs)
        for node in graph.nodes:
            kind = None
            if node.op == "placeholder":
                kind = next(given, None)
            elif node.op == "get_attr" and self._is_tensor(str(node.target)):
                kind = torch.Tensor
            try:
                self._node(node)
            except _Refused as why:
                raise LoadError(f"the node {node.name!r}: {why}", fix=why.fix, at=node.origin) from None
            self._kinds.note(node, kind)
        self._contexts(graph)

    def _node(self, node: Node) -> None:
        for keyword in node.kwargs:
            if keyword in _CLOSED_KEYWORDS or keyword.startswith("__"):
                _refuse(f"a file may not pass {keyword!r}")
        if node.op == "call_function":
            self._function(node)
        elif node.op == "call_method":
            self._method(node)
        else:
            if node.op in ("call_module", "get_attr"):
                self._path(str(node.target))
            is_users = node.op == "call_module" and self._is_users(str(node.target))
            self._data((node.args, node.kwargs), functions=is_users)

    def _contexts(self, graph: Graph) -> None:
        """Refuse a context that is not left again, whatever happens: it would last after the program."""
        exits = region_exits(graph.nodes)
        for node in graph.nodes:
            if node.target is enter_context and node not in exits:
                why = "it enters a context that it does not leave"
                raise LoadError(f"the node {node.name!r}: {why}", fix=_FIX, at=node.origin)

    # ---- what is called

    def _function(self, node: Node) -> None:
        target, args, kwargs = node.target, list(node.args), dict(node.kwargs)
        if len(args) > _MOST.get(target, len(args)) or (target in _MOST and target is not isinstance and kwargs):
            _refuse(f"it calls {target.__name__} with more than it takes here")
        if target in (getattr, hasattr, read_field, read_private):
            self._field(node)
        elif target is attributes_of and not self._is_only_asked:
            node.target = read_attributes
        elif target in (setattr, write_data):
            if len(args) != 3 or args[1] not in ("data", "grad"):
                _refuse("a file may set no attribute but the data of a tensor, and its gradient")
            node.target = target if self._is_only_asked else write_data
        elif target in (set_attribute, delete_attribute):
            if len(args) < 2 or not _is_own_name(args[1]):
                _refuse("a file may not change that attribute")
        elif target in _BODIES:
            self._bodies(node)
            if target is transformed:
                return None
            args = [arg for i, arg in enumerate(args) if i not in _BODIES[target]]
        elif target is print:
            if not set(kwargs) <= _PRINTED:
                _refuse("a file may print to the standard output alone")
        elif target is collections.defaultdict:
            if args and args[0] is not None and args[0] not in _FACTORIES:
                _refuse("a file may not make values by that function")
            args = args[1:]
        elif target is types.SimpleNamespace:
            if args:
                _refuse("it gives a namespace attributes that it does not name")
        elif target in _KEYS:
            self._key(node, args, kwargs)
        elif target in MANAGERS:
            _refuse("a file may enter it by enter_context alone")
        elif target in (new_object, enter_context, raise_error, torch.utils.checkpoint.checkpoint):
            self._first(target, args, kwargs)
            if target is new_object and self._trust.is_users(args[0]):  # which may have classes that a graph may call
                kwargs = {name: value for name, value in kwargs.items() if not self._is_allowed_class(value)}
            args = args[1:]
        elif target is torch.func.functional_call and not _is_module(args[:1]):
            _refuse("a file may not call a value by functional_call")
        elif not self._trust.is_library(target):
            return self._data((args, kwargs), functions=True)
        self._data((args, kwargs), classes=target in _ASK_FOR_CLASSES)
        return None

    def _field(self, node: Node) -> None:
        name = node.args[1] if len(node.args) > 1 else None
        if type(name) is str and node.target is not hasattr and name != "_version" and is_private(name):
            if not self._is_only_asked:
                node.target = read_private  # which sees what it is
            return
        if type(name) is not str or is_secret(name):
            _refuse(f"a file may not read the attribute {name!r}")
        others = [kind for kind in self._trust.classes() if not self._trust.is_data(kind, name)]
        for kind in others:
            if isinstance(inspect.getattr_static(kind, name), property | types.GetSetDescriptorType):  # runs code
                _refuse(f"a file may not read the attribute {name!r}, which {kind.__qualname__} has as a property")
        if name == "grad_fn" and all(_asks_for_none(user) for user in node.users):
            return
        if not is_data(name) and name not in self._fields:
            _refuse(f"a file may not read the attribute {name!r}, which is no data")
        is_open = not self._is_only_asked and node.target is getattr
        if is_open and (others or not is_field(name, self._kinds.of(node.args[0]))):
            node.target = read_field  # which sees that it is no method

    def _bodies(self, node: Node) -> None:
        places = _BODIES[node.target]
        if any(place >= len(node.args) or not isinstance(node.args[place], Graph) for place in places):
            _refuse("a file may run the bodies that it holds alone")
        count = 4 if node.target is cond else 5
        if len(node.args) > max(count, 5) or (node.kwargs and node.target is not transformed):
            _refuse("it gives a region more than it takes")
        operands = node.args[3] if len(node.args) > 3 else ()
        known = tuple([self._kinds.of(value) for value in operands]) if isinstance(operands, tuple | list) else ()
        for place in places:
            body: Any = node.args[place]
            free = len(body.placeholders()) - len(known)
            self.graph(body, (*[None] * free, *known))
        if node.target is transformed:
            if type(node.args[0]) is not str:
                _refuse("it names no transform")
            options = node.args[4] if len(node.args) > 4 else {}
            for option, value in options.items() if isinstance(options, dict) else ():
                if option == "errors":
                    if not all(self._is_error(kind) for kind in value):
                        _refuse("it catches what is no exception")
                elif option == "context_fn":
                    if not self._is_function(value):
                        _refuse("a file may not call a value by checkpoint")
                else:
                    self._data(value)
            self._data((node.args[2:4], node.kwargs))

    def _key(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> None:
        place = _KEYS[node.target]
        given = [kwargs.pop("key", None)]
        if place is not None and len(args) > place:
            given.append(args.pop(place))
        for function in given:
            if function is not None and not self._is_function(function):
                _refuse(f"a file may not call a value by {node.target.__name__}")

    def _first(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Check the function or class that is the first argument."""
        given = args[0] if args else None
        if target is raise_error:
            if isinstance(given, Node) and len(args) == 1 and not kwargs:
                return  # an error that there is
            is_known = self._is_error(given) and not issubclass(given, SystemExit | KeyboardInterrupt)  # type: ignore[arg-type]
        elif target is enter_context:
            texts = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, Node)]
            is_known = (given in MANAGERS or given is Entering or self._is_allowed(given)) and not (
                texts and given is MANAGERS[5]
            )
        elif target is new_object:
            is_plain = issubclass(type(given), type) and not issubclass(given, nn.Module | type)  # type: ignore[arg-type]
            is_known = is_plain and (given in _OBJECTS or self._trust.is_users(given))
            if is_known and isinstance(inspect.getattr_static(given, "__new__"), staticmethod):  # which runs
                self._check_made(given)
            is_known = is_known and len(args) == 1
        else:
            is_known = self._is_function(given) and not kwargs.get("context_fn")
        if not is_known:
            _refuse(f"a file may not call a value by {target.__name__}")

    def _method(self, node: Node) -> None:
        name, args = node.target, node.args
        if type(name) is not str or not args:
            _refuse(f"a file may not call the method {name!r}")
        if calls_method(node, self._root, self._called_on):
            return self._data((args, node.kwargs), functions=not self._is_entry(args[0]))
        kind = self._kinds.of(args[0])
        if name == "format":
            is_known = isinstance(args[0], str) and not _reads_attributes(args[0])
        else:
            is_known = is_method(name, kind) or self._is_users_method(name, kind)
        if not is_known:
            _refuse(f"a file may not call the method {name!r}")
        keywords = dict(node.kwargs)
        if name == "sort":
            key = keywords.pop("key", None)
            if key is not None and not self._is_function(key):
                _refuse("a file may not call a value by sort")
        return self._data((args, keywords))

    def _called_on(self, node: Node) -> frozenset[str]:
        if node not in self._called:
            self._called[node] = frozenset(called_methods(node))
        return self._called[node]

    def _is_users_method(self, name: str, kind: type | None) -> bool:
        """Tell whether it is a method of a class that the file names and that is allowed, and of no other kind."""
        if is_secret(name) or kind is torch.Tensor:
            return False
        return any(self._trust.may_call_method(owner, name) for owner in self._trust.classes())

    # ---- what is given

    def _is_function(self, value: Any) -> bool:
        if isinstance(value, Node) or not callable(value) or not self._trust.is_value(value):
            return False
        return not isinstance(value, type) or self._trust.is_library(value) or self._is_allowed(value)

    def _is_allowed(self, value: Any) -> bool:
        """Tell whether it is a function of the user's, or a class whose objects a program may make."""
        if not isinstance(value, type | types.FunctionType) or not self._trust.is_users(value):
            return False
        if isinstance(value, type):
            self._check_made(value)
        return True

    def _is_allowed_class(self, value: Any) -> bool:
        return isinstance(value, type) and self._is_allowed(value)

    def _check_made(self, kind: Any) -> None:
        self._trust.check_called(f"{kind.__module__}:{kind.__qualname__}", kind)

    def _is_users(self, path: str) -> bool:
        """Tell whether a path leads to a module of a class of the user's, which is not a graph itself."""
        found: Any = self._root
        for atom in path.split("."):
            found = found._modules.get(atom) if isinstance(found, nn.Module) else None
        return not isinstance(found, GraphModule) and self._trust.is_users(type(found))

    def _is_entry(self, value: Any) -> bool:
        """Tell whether a node is read for an entry point of a captured module, or is no module."""
        is_read = isinstance(value, Node) and value.op == "get_attr"
        return not is_read or any(entry_at(self._root, path) for path in self._called_on(value))

    def _is_error(self, value: Any) -> bool:
        is_kind = issubclass(type(value), type) and issubclass(value, BaseException)
        return is_kind and (is_exception(value) or self._trust.is_users(value))

    def _data(self, value: Any, classes: bool = False, functions: bool = False) -> None:
        """Refuse arguments that hold what can be called, but for classes and functions where these are looked for."""
        waiting = [(value, False)]
        seen: set[int] = set()  # of the arguments alone, some of which are made for the question
        clean = self._clean.setdefault((classes, functions), set())
        while waiting:
            item, is_held = waiting.pop()
            if isinstance(item, Node | Outside) or _is_atom(item) or id(item) in (clean if is_held else seen):
                continue
            if isinstance(item, type) and (item in _NUMBERS or _is_of_numpy(item)):
                continue
            is_held = is_held or not isinstance(item, _ARGUMENTS)
            (clean if is_held else seen).add(id(item))
            if isinstance(item, Graph):
                _refuse("it has a body where it takes none")
            if isinstance(item, type) and (classes or functions) and self._trust.is_known_class(item):
                continue
            if functions and self._is_function(item):
                continue
            if isinstance(item, type) or callable(item) or isinstance(item, weakref.ref | nn.Module):
                _refuse(f"a file may not use {_described(item)} as a value of its graph")
            waiting += [(part, is_held) for part in _parts(item)]

    def _is_tensor(self, path: str) -> bool:
        """Tell whether a path leads to a parameter or buffer that stays one."""
        owner, _, name = path.rpartition(".")
        found: Any = self._root
        for atom in owner.split(".") if owner else ():
            found = found._modules.get(atom) if isinstance(found, nn.Module) else None
        is_known = isinstance(found, nn.Module) and (name in found._parameters or name in found._buffers)
        return is_known and path not in self._written

    def _path(self, path: str) -> None:
        atoms = path.split(".")
        if any(not atom or (atom[:2] == atom[-2:] == "__") or not atom.isprintable() for atom in atoms):
            _refuse(f"a file may not read {path!r}")


def _fields_given(graph: Graph) -> set[str]:
    """The names of the attributes that a graph gives to objects."""
    found: set[str] = set()
    for node in graph.all_nodes():
        if isinstance(node.target, type) or node.target is new_object:
            found.update(node.kwargs)
        elif node.target is set_attribute and len(node.args) > 1:
            found.add(str(node.args[1]))
    return found


def _names_of_fields(kinds: list[type]) -> set[str]:
    """The names of the attributes that the objects of classes are said to have."""
    bases = {base for kind in kinds for base in kind.__mro__}
    noted = {name for base in bases for name in inspect.get_annotations(base)}
    slots = {name for base in bases for name, value in base.__dict__.items() if _is_slot(value)}
    return noted | slots


def _asks_for_none(node: Node) -> bool:
    return node.target in (operator.is_, operator.is_not) and None in node.args


def _is_slot(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType)


class _Refused(Exception):
    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


def _refuse(why: str) -> NoReturn:
    raise _Refused(why, _FIX)


def _is_own_name(name: Any) -> bool:
    return type(name) is str and name.isidentifier() and not name.startswith("__")


def _is_module(args: list[Any]) -> bool:
    return bool(args) and isinstance(args[0], Node) and args[0].op == "get_attr"


def _reads_attributes(text: str) -> bool:
    """Tell whether a text to be formatted reads attributes or items, or is none to be formatted."""
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return True
    names = [name for _, name, _, _ in fields if name]
    specs = [spec for _, _, spec, _ in fields if spec and "{" in spec]
    return any("." in name or "[" in name for name in names) or any(_reads_attributes(spec) for spec in specs)


def _described(item: Any) -> str:
    if isinstance(item, nn.Module):
        return "a module"
    name = getattr(item, "__qualname__", None) or type(item).__qualname__
    return f"{'the class' if isinstance(item, type) else 'the function'} {name}"


def _is_of_numpy(kind: type) -> bool:
    """Tell whether a class is one of NumPy's numbers, which stand for dtypes as Python's do: `astype(np.float32)`."""
    return issubclass(kind, numpy.number | numpy.bool_) and getattr(numpy, kind.__name__, None) is kind


def _is_atom(item: Any) -> bool:
    return item is None or type(item) in _ATOMS or isinstance(item, torch.Tensor | enum.Enum)


_ATOMS = frozenset({
    bool, int, float, complex, str, bytes, torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Size,
    type(...), range,
})  # fmt: skip


def _parts(item: Any) -> Iterator[Any]:
    """What a value holds: items, keys, attributes."""
    if isinstance(item, dict):
        yield from dict.keys(item)
        yield from dict.values(item)
    elif isinstance(item, list | tuple | set | frozenset):
        yield from item
    elif isinstance(item, slice):
        yield from (item.start, item.stop, item.step)
    elif isinstance(item, partial):
        yield from (item.func, *item.args, *item.keywords.values())
    yield from state_of(item).values()

"""Shells: stand-ins for the modules of a captured program.

A shell is an object of the same class as a module, with a `__dict__` of its own: its children are shells, its
parameters and buffers are the module's by identity, its lists, dicts and sets are copies. Whatever capture or
the captured program sets on a module, it sets on the shell; the user's modules are never written to, and threads that
run them notice nothing.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import functools
import operator
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.module import _WrappedHook

from graphwright.runtime.members.attributes import MODULE_TABLES, is_compiled
from graphwright.runtime.objects import attributes_of, is_state, new_object, slots_of, state_of
from graphwright.runtime.plain_values import tensors_inside
from graphwright.source import content_of

_Held = TypeVar("_Held")


def class_unseen(name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
    """Make a class of which its bases and their metaclass are not told: programs keep lists of their own classes."""
    kind = type(bases[0])
    make = abc.ABCMeta if issubclass(kind, abc.ABCMeta) else type
    quiet = [base for base in bases if type(base) is type and base.__module__.startswith("graphwright.")] or [nn.Module]
    try:
        made = make.__new__(kind, name, tuple(quiet), namespace)
        made.__bases__ = bases
    except TypeError:  # whose objects are laid out in another way
        return kind(name, bases, namespace)
    return made


class Tree:
    """The modules of a program, parents before children, each once: with the first path that leads to it."""

    def __init__(self, root: nn.Module) -> None:
        self.modules: list[tuple[nn.Module, str]] = []
        self.paths: dict[int, str] = {}  # by the id of a module
        self.compiled: set[int] = set()  # the ids of those of TorchScript
        self._add(root, "")

    def _add(self, module: nn.Module, path: str) -> None:
        self.modules.append((module, path))
        self.paths[id(module)] = path
        if is_compiled(module):  # its state is not in Python
            self.compiled.add(id(module))
            return
        prefix = f"{path}." if path else ""
        for name, child in module._modules.items():
            if child is not None and id(child) not in self.paths:
                self._add(child, prefix + name)


class Shells:
    """The shells of one module tree.

    Without `call` they are a second tree of ordinary modules that shares the parameters of the first; `root_class`
    makes its root an object of another class. `call` is what runs instead of a module's own `__call__`: it gets the
    original module, its shell and the arguments; `nn.Module._call_impl(shell, ...)` runs the shell, hooks and all. A
    compiled module of TorchScript is its own shell.

    The shells of the modules whose ids are in `waiting` are filled when somebody asks for them: until then they hold
    nothing, and whoever takes one out of the table of its parent has to call `ready`.
    """

    def __init__(
        self,
        root: nn.Module,
        call: Callable[..., Any] | None = None,
        root_class: type[nn.Module] | None = None,
        tree: Tree | None = None,
        waiting: Collection[int] = (),
    ) -> None:
        tree = self.tree = tree or Tree(root)
        self._call = call
        self._visitors: list[Callable[[nn.Module, nn.Module, str], None]] = []
        self._of: dict[int, nn.Module] = {}
        self._original: dict[int, nn.Module] = {}
        self._paths = tree.paths.copy()  # of originals and shells alike
        self._empty: dict[int, tuple[nn.Module, nn.Module, str]] = {}  # by the id of the shell
        self._all: list[tuple[nn.Module, nn.Module, str]] = []
        self._containers: dict[int, Any] = {}  # those of shells, by the ids of the originals' own
        self._functions: dict[int, FunctionType] = {}  # that lead to shells, by the ids of those that lead to modules
        self._cells: dict[int, CellType] = {}  # of the latter, and of what they close over
        self._leading_nowhere: dict[int, Any] = {}  # what was found to lead to no module, by id
        self.root_module, self.root = root, self._made(root, root_class)
        for module, _ in tree.modules:
            if id(module) not in waiting:
                self.ready(self._made(module))

    def path(self, module: nn.Module) -> str | None:
        """The dotted path of a module or shell of this tree, None for a module outside of it."""
        return self._paths.get(id(module))

    def shell(self, module: nn.Module) -> nn.Module:
        """The shell of a module; modules outside the tree, and shells, are answered as they are."""
        return self.ready(self._made(module)) if id(module) in self.tree.paths else module

    def ready(self, shell: _Held) -> _Held:
        """Fill a shell that waits for it; all else is given as it is."""
        if id(shell) in self._empty:
            self._set_up(*self._empty.pop(id(shell)))
        return shell

    def original(self, shell: nn.Module) -> nn.Module:
        """The module behind a shell; other modules are answered as they are."""
        return self._original.get(id(shell), shell)

    @property
    def originals(self) -> Mapping[int, nn.Module]:
        """The modules behind shells, by the ids of these."""
        return self._original

    def all(self) -> list[tuple[nn.Module, nn.Module, str]]:
        """List (original, shell, path) of the shells that do not wait; parents come before children."""
        return self._all

    def each(self, visit: Callable[[nn.Module, nn.Module, str], None]) -> None:
        """Have a function called with (original, shell, path): now, and of those that wait when they are filled."""
        known = self._all.copy()
        self._visitors.append(visit)
        for module, shell, path in known:
            if shell is not module:
                visit(module, shell, path)

    def _made(self, module: nn.Module, kind: type[nn.Module] | None = None) -> nn.Module:
        """The shell of a module of the tree, be it filled or not."""
        shell = self._of.get(id(module))
        if shell is None:
            shell = module if id(module) in self.tree.compiled else object.__new__(kind or type(module))
            path = self._paths[id(module)]
            self._of[id(module)], self._original[id(shell)], self._paths[id(shell)] = shell, module, path
            self._empty[id(shell)] = module, shell, path
        return shell

    def _set_up(self, module: nn.Module, shell: nn.Module, path: str) -> None:
        self._all.append((module, shell, path))
        if shell is module:
            return
        copy_slots(module, shell)
        state = shell.__dict__
        state.update(module.__dict__)
        state["_modules"] = {
            name: None if child is None else self._made(child) for name, child in module._modules.items()
        }
        try:
            state.update(zip(_COPIED, map(_copied, _tables(state)), strict=True))
        except (AttributeError, KeyError):  # it lacks some, or has None for them
            state.update({name: state[name].copy() for name in _COPIED if state.get(name) is not None})
        if self._call is not None:
            state["_compiled_call_impl"] = functools.partial(self._call, module, shell)
        self._fill(module, shell)
        for visit in self._visitors:
            visit(module, shell, path)

    def _fill(self, module: nn.Module, shell: nn.Module) -> None:
        """Give a shell its own containers, with shells in place of modules, and methods bound to shells."""
        for name, value in module.__dict__.items():
            kind = type(value)
            if kind in _HOLDS_NONE or name in MODULE_TABLES:
                continue
            if kind in _MAPPED or isinstance(value, nn.Module | tuple) or is_state(value):
                mine = self._mapped(value, self._containers)
                if mine is not value:
                    shell.__dict__[name] = mine
        for name in _HOOKS:
            table = shell.__dict__.get(name)
            if table:
                table.update({key: self._hook(hook) for key, hook in table.items()})

    def _hook(self, hook: Any) -> Any:
        """A function with shells in place of the modules that it is bound to or closes over."""
        if type(hook) is _WrappedHook:
            owner = hook.module() if hook.with_module else None
            return _WrappedHook(self._hook(hook.hook), None if owner is None else self.shell(owner))
        if type(hook) is not FunctionType:
            return self._mapped(hook, self._containers)
        if id(hook) in self._functions or not self.leads_to_module(hook):
            return self._functions.get(id(hook), hook)
        mine = tuple([self._cell(cell) for cell in hook.__closure__ or ()])
        made = FunctionType(hook.__code__, hook.__globals__, hook.__name__, None, mine)
        self._functions[id(hook)] = made
        made.__defaults__ = self._mapped(hook.__defaults__, self._containers)
        made.__kwdefaults__ = hook.__kwdefaults__ and self._mapped(hook.__kwdefaults__, self._containers)
        made.__module__, made.__qualname__ = hook.__module__, hook.__qualname__
        made.__dict__.update(hook.__dict__)
        for cell, other in zip(hook.__closure__ or (), mine, strict=True):
            if cell is not other:
                other.cell_contents = self._mapped(cell.cell_contents, self._containers)
        return made

    def _cell(self, cell: CellType) -> CellType:
        """A cell of its own, still empty, for what leads to a module; functions that shared one share it again."""
        if id(cell) not in self._cells:
            self._cells[id(cell)] = CellType() if self.leads_to_module(content_of(cell)) else cell
        return self._cells[id(cell)]

    def leads_to_module(self, value: Any) -> bool:
        """Tell whether a value is a module or shell of the tree, or a function or object that leads to one."""
        seen: dict[int, Any] = {}
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, nn.Module):
                if id(each) in self._paths:
                    return True
            elif type(each) not in _HOLDS_NONE and id(each) not in seen and id(each) not in self._leading_nowhere:
                seen[id(each)] = each
                waiting += _held_in(each)
        self._leading_nowhere.update(seen)
        return False

    def has_copy_of(self, key: int) -> bool:
        """Tell whether what has an id is an object, function or variable of which shells have a copy."""
        return key in self._containers or key in self._functions or id(self._cells.get(key)) not in (key, id(None))

    def _mapped(self, value: Any, memo: dict[int, Any]) -> Any:
        kind = type(value)
        if kind not in _MAPPED and not (isinstance(value, tuple) and hasattr(kind, "_make")):
            return self.shell(value) if isinstance(value, nn.Module) else self._object(value, memo)
        if kind is FunctionType:
            return self._hook(value)
        if kind is functools.partial:
            parts: list[Any] = [value.func, value.args, value.keywords]
            func, args, keywords = (self._mapped(part, memo) for part in parts)
            if func is value.func and _is_like(args, value.args) and _is_like(keywords, value.keywords):
                return value  # with the very containers that it has
            made = functools.partial(func, *args, **keywords)
            made.__dict__.update(value.__dict__)
            return made
        if kind is weakref.ref:
            owner = value()
            return weakref.ref(self.shell(owner)) if id(owner) in self.tree.paths else value
        if kind is MethodType:
            owner = value.__self__
            other = self._mapped(owner, memo) if isinstance(owner, nn.Module) or is_state(owner) else owner
            return value if other is owner else MethodType(value.__func__, other)
        if id(value) in memo:
            return memo[id(value)]
        if isinstance(value, tuple | frozenset):
            items = [self._mapped(item, memo) for item in value]
            if all(map(operator.is_, items, value)):
                return value
            return kind._make(items) if hasattr(kind, "_make") else kind(items)
        if kind not in _COPIED_ALWAYS and all(id(item) not in self.tree.paths for item in _each(value)):
            return value
        mine: Any = _emptied(value)
        memo[id(value)] = mine
        if isinstance(value, Mapping):
            for key, item in value.items():
                mine[self._key(key, memo)] = self._mapped(item, memo)
        elif isinstance(value, list | collections.deque):
            mine.extend([self._mapped(item, memo) for item in value])
        else:
            mine.update([self._key(item, memo) for item in value])
        return mine

    def _object(self, value: Any, memo: dict[int, Any]) -> Any:
        """A copy of an object that leads to a module of the tree, with its shell; other objects are as they are."""
        if not is_state(value) or id(value) in memo or not self.leads_to_module(value):
            return memo.get(id(value), value)
        made = memo[id(value)] = new_object(type(value))
        state_of(made).update({name: self._mapped(item, memo) for name, item in state_of(value).items()})
        copy_slots(value, made, lambda item: self._mapped(item, memo))
        return made

    def _key(self, key: Any, memo: dict[int, Any]) -> Any:
        """What stands for a key or member; the id of a module is the id of its shell."""
        if type(key) is int and key in self.tree.paths:
            return id(self._made(self.tree.modules[0][0].get_submodule(self.tree.paths[key])))
        return self._mapped(key, memo)


def _held_in(value: Any) -> Iterable[Any]:
    """What a function closes over or is bound to, and what an object or container holds, short of large ones."""
    kind = type(value)
    if kind is FunctionType:
        return *map(content_of, value.__closure__ or ()), value.__defaults__, value.__kwdefaults__
    if kind is functools.partial:
        return value.func, value.args, value.keywords
    if kind is MethodType:
        return (value.__self__,)
    if kind is weakref.ref:
        return (value(),)
    if kind in _MAPPED:
        return [*_each(value)] if len(value) <= _MOST else ()
    return attributes_of(value).values() if is_state(value) else ()


def _emptied(value: Any) -> Any:
    """A container like another, with nothing in it."""
    if isinstance(value, collections.defaultdict):
        return collections.defaultdict(value.default_factory)
    return collections.deque(maxlen=value.maxlen) if isinstance(value, collections.deque) else type(value)()


def _each(value: Any) -> Iterator[Any]:
    """What a container has: of a mapping its keys, and what is at them."""
    yield from value
    if isinstance(value, Mapping):
        yield from value.values()


def _is_like(mine: Any, value: Any) -> bool:
    """Tell whether a copy of containers holds the very values that these hold."""
    if mine is value or type(mine) is not type(value) or not isinstance(mine, dict | list | tuple | set):
        return mine is value
    if len(mine) != len(value):
        return False
    if isinstance(mine, dict):
        return all(key in value and _is_like(item, value[key]) for key, item in mine.items())
    if isinstance(mine, list | tuple):
        return all(map(_is_like, mine, value))
    return bool(mine == value)


def copy_slots(module: Any, other: Any, change: Callable[[Any], Any] = lambda value: value) -> None:
    """Give a module or object what another of its class keeps in `__slots__` rather than in its `__dict__`."""
    for name in slots_of(type(module)) if hasattr(type(module), "__slots__") else ():
        with contextlib.suppress(AttributeError):  # not set
            object.__setattr__(other, name, change(object.__getattribute__(module, name)))


def memo_of_results(root: nn.Module, but: Mapping[int, Any] | None = None) -> dict[int, Any]:
    """What to begin the memo of a deepcopy with: copies of the results that modules keep, which torch does not copy.

    A module that keeps what it has computed of its parameters can be copied with it; no gradient goes through the copy.
    Modules whose class says how they are copied, captured ones too, see to their own. `but`: ids that have a copy.
    """
    found = {
        id(tensor): tensor
        for module in _copied_along(root)
        for name, value in module.__dict__.items()
        if isinstance(value, _HOLDING) and name not in MODULE_TABLES
        for tensor in tensors_inside(value)
        if not tensor.is_leaf
    }
    return {key: tensor.detach().clone() for key, tensor in found.items() if but is None or key not in but}


def _copied_along(root: nn.Module) -> list[nn.Module]:
    modules, seen = [root], {id(root)}
    for module in modules:
        for child in module._modules.values():
            if child is not None and id(child) not in seen and not hasattr(type(child), "__deepcopy__"):
                seen.add(id(child))
                modules.append(child)
    return modules


_HOLDING = (torch.Tensor, list, tuple, dict)


def copy_tensors(root: nn.Module) -> None:
    """Give a module tree parameters, buffers and tensor attributes of its own; what was tied or a view stays so."""
    memo = memo_of_results(root)
    for module in root.modules():
        state = module.__dict__
        for table in ("_parameters", "_buffers"):
            state[table] = {name: copy.deepcopy(tensor, memo) for name, tensor in state[table].items()}
        for name in state.keys() - MODULE_TABLES:
            value = state[name]
            if isinstance(value, torch.Tensor):
                state[name] = copy.deepcopy(value, memo)
            elif type(value) is list and any(isinstance(item, torch.Tensor) for item in value):  # an RNN's weights
                state[name] = [copy.deepcopy(item, memo) if isinstance(item, torch.Tensor) else item for item in value]


_COPIED_ALWAYS = frozenset({
    list, dict, set, collections.OrderedDict, collections.defaultdict, collections.Counter, collections.deque,
})  # fmt: skip
_MAPPED = _COPIED_ALWAYS | {
    tuple, frozenset, MethodType, FunctionType, functools.partial,
    weakref.ref, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet,
}  # fmt: skip
_MOST = 1024  # items of a container
_HOLDS_NONE = frozenset({bool, int, float, str, type(None)})  # what most attributes are
_COPIED = [name for name, table in nn.Module().__dict__.items() if isinstance(table, dict | set) and name != "_modules"]
_HOOKS = [name for name in _COPIED if name.endswith("_hooks")]
_tables, _copied = operator.itemgetter(*_COPIED), operator.methodcaller("copy")

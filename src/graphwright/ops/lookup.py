"""Which operator a node calls: a look into a dictionary, filled as operators are asked for."""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import functools
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Node
from graphwright.ops import facts
from graphwright.ops.forms import form_of_text, kind_of
from graphwright.ops.libraries import kind_of_function, library_functions
from graphwright.ops.operators import (
    CHECKS,
    Operator,
    forms_of_python,
    has_schemas,
    method_named,
    operator_named,
    operator_of_class,
    operator_of_overload,
    operator_of_packet,
)
from graphwright.ops.state import delete_attribute, set_attribute


def operator_of(node: Node, module: nn.Module | None = None) -> Operator | None:
    """The operator that a node calls; None where it is not known, which may then do anything.

    `module` is the submodule that a call_module node calls; left out, it is looked up in the graph's module.

    >>> from graphwright import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> nodes = graph.call_method("add", (x, 1)), graph.call_function(operator.add, (x, 1))
    >>> [operator_of(node).key for node in nodes]
    ['add', 'add']
    >>> operator_of(graph.call_function(lambda x: x, (x,))) is None
    True
    """
    op = node.op
    if op == "call_function" or op == "call_method":
        if op == "call_method" and node.args and type(node.args[0]) is Node and _is_no_tensor(node.args[0]):
            return None  # `names.sort()` of a list
        known = operator_of_target(op, node.target)
        return _by_arguments(known, node) if known is not None and known.key in _DECIDED_BY_ARGUMENTS else known
    if op == "call_module":
        called = module_called(node) if module is None else module
        return None if called is None else module_operator(type(called))
    return None


def key_of(node: Node, module: nn.Module | None = None) -> Any:
    """What to find a node by: its operator's key, or for what is not known the function, name or class itself.

    None for placeholders, outputs and attributes, for functions without a hash and modules that are not known.
    """
    known = operator_of(node, module)
    if known is not None:
        return known.key
    if node.op == "call_module":
        called = module_called(node) if module is None else module
        return None if called is None else type(called)
    if node.op == "call_function" or node.op == "call_method":
        return node.target if type(node.target).__hash__ is not None else None
    return None


def module_called(node: Node, owner: nn.Module | None = None) -> nn.Module | None:
    """The module that a call_module node calls, of an owner or else that of its graph; None where there is none."""
    owner = node.graph.owning_module if owner is None else owner
    return None if node.op != "call_module" or owner is None else owner.get_submodule(str(node.target))


Function = TypeVar("Function", bound=Callable[..., Any])

_METHODS: dict[str, Operator] = {}
_FUNCTIONS: dict[Any, Operator] = {}  # functions that live for ever: torch's, Python's own, and declared ones


def operator_of_target(op: str, target: Any) -> Operator | None:
    """The operator of call_function or call_method nodes with this target, as far as the target alone tells.

    >>> operator_of_target("call_function", torch.special.expit).key
    'sigmoid'
    """
    known: Operator | None
    if op == "call_method":
        known = _METHODS.get(target)
        if known is None:
            known = method_named(target)
            if known is not None:
                _METHODS[target] = known
        return known
    try:
        known = _FUNCTIONS.get(target)
    except TypeError:  # without a hash
        return None
    if known is None:
        known = _of_function(target)
        if known is not None:
            _FUNCTIONS[target] = known
    return known


def has_no_side_effect(fn: Function) -> Function:
    """Declare that calls of a function give a new value of their arguments, and do nothing else. Returns `fn`.

    >>> @has_no_side_effect
    ... def doubled(x): return x * 2
    >>> operator_of_target("call_function", doubled).pure
    True
    """
    key = f"{fn.__module__}.{getattr(fn, '__qualname__', fn)}"
    _FUNCTIONS[fn] = Operator(key, make_forms=functools.partial(forms_of_python, fn))
    return fn


def module_operator(kind: type[nn.Module]) -> Operator | None:
    """The operator of a class of torch.nn; None for other classes.

    >>> module_operator(nn.Linear).key
    'nn.Linear'
    """
    is_own = kind.__module__.startswith("torch.nn.modules.") and getattr(nn, kind.__name__, None) is kind
    return operator_of_class(kind.__name__) if is_own else None


# ---- what the arguments decide


_DECIDED_BY_ARGUMENTS = frozenset({"builtins.getattr", "einops.reduce", "max", "min"})
_OF_TWO = {"max": "maximum", "min": "minimum"}


def _by_arguments(known: Operator, node: Node) -> Operator | None:
    """`getattr(x, "shape")` is `x.size()`, `torch.max(x, y)` is `torch.maximum(x, y)`; a given function may act."""
    args = node.args
    if known.key == "einops.reduce":
        return None if any(map(callable, (*args, *node.kwargs.values()))) else known
    if known.key == "builtins.getattr":
        name = args[1] if len(args) == 2 else None
        return operator_of_target("call_method", name) or known if name in facts.PROPERTIES else known
    other = args[1] if len(args) > 1 else node.kwargs.get("other")
    is_tensor = isinstance(other, torch.Tensor) or (isinstance(other, Node) and kind_of(other) in ("", "tensor"))
    return operator_of_target("call_method", _OF_TWO[known.key]) or known if is_tensor else known


def _is_no_tensor(node: Node) -> bool:
    """Tell whether a value is known to be none: what makes a container, or an argument that is said to be another."""
    if node.op == "call_function":
        return type(node.target) is type and node.target in _CONTAINERS
    said = node.type
    return node.op == "placeholder" and said not in (None, Any, object) and "Tensor" not in str(said)


_CONTAINERS = frozenset({
    list, dict, set, bytearray,
    collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict,
})  # fmt: skip


# ---- functions


def _of_function(target: Any) -> Operator | None:
    if isinstance(target, torch._ops.OpOverload):
        return operator_of_overload(target)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return operator_of_packet(target)
    if isinstance(target, types.MethodWrapperType):
        return _of_getter(target) if target.__name__ == "__get__" else None
    library = library_functions().get(target)
    if library is not None:
        moves = kind_of_function(library) == "move"
        make_forms = functools.partial(forms_of_python, target)
        return Operator(library, aliases=((None, "*"),), shape_only=moves, make_forms=make_forms)
    make = _known_functions().get(target)
    if make is None and getattr(target, "__module__", None) == torch.random.__name__:
        # torch.compile replaces torch's seeding functions by wrappers of them.
        make = _known_functions().get(getattr(target, "__wrapped__", None))
    return None if make is None else make()


def _of_getter(target: Any) -> Operator:
    """`torch.Tensor.shape.__get__`, as a torch function mode sees the attributes of tensors."""
    name = str(getattr(target.__self__, "__name__", ""))
    known = operator_of_target("call_method", name) if name in facts.PROPERTIES else None
    return known or Operator(f"Tensor.{name}", aliases=((0, "input"),))


def _of_python_operator(function: Any) -> Operator:
    name, key = function.__name__, facts.PYTHON_OPERATORS[function]
    writes = ("input",) if name in _WRITING_OPERATORS else ()
    found = operator_named(key)
    texts = facts.SIGNATURES.get(key) or ("input" if name in _UNARY else f"input, {facts.SECOND.get(key, 'other')}",)
    forms = [form_of_text(text) for text in texts]
    aliases = found.aliases if key == "getitem" else tuple((0, parameter) for parameter in writes)
    return dataclasses.replace(found, writes=writes, writes_if=(), aliases=aliases, make_forms=lambda: forms)


_WRITING_OPERATORS = frozenset({
    "iadd", "isub", "imul", "itruediv", "imatmul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift", "iconcat", "setitem", "delitem",
})  # fmt: skip
_UNARY = frozenset({"neg", "pos", "abs", "invert", "inv", "not_"})
_ACTING_BUILTINS = frozenset({"print", "input", "open", "exec", "eval", "next", "breakpoint", "__import__"})
# The mode of autocast is asked where a program starts, before anything could change it.
_PURE_TORCH = ("Size", "device", "dtype", "finfo", "iinfo", "is_tensor", "is_storage", "is_autocast_enabled")
_SEEDS = ("manual_seed", "seed", "initial_seed")
Make = Callable[[], Operator | None]


@functools.cache
def _known_functions() -> Mapping[Any, Make]:
    """What makes the operator of each function of torch and Python that is known, by the function."""
    found: dict[Any, Make] = {}
    for function, make in (*_of_torch(), *_of_tensors(), *_of_python()):
        if callable(function) and type(function).__hash__ is not None:
            found.setdefault(function, make)
    return types.MappingProxyType(found)


def _of_torch() -> Iterator[tuple[Any, Make]]:
    """torch's operators. torch has functions under several names: those of the dispatcher come first."""
    for name, function in vars(F).items():
        if isinstance(function, types.FunctionType) and function.__module__ == F.__name__:
            yield function, functools.partial(operator_named, facts.IN_FUNCTIONAL.get(name, name), function=function)
    variables = torch._C._VariableFunctions
    public = [name for name in dir(variables) if not name.startswith("__") or name in facts.ALIASES]
    public.sort(key=lambda name: not has_schemas(f"aten::{name}"))
    yield from _named(torch, public)
    for home in (torch, torch.random):
        yield from _named(home, _SEEDS)
    yield from _named(variables, public)
    yield from _named(torch.functional, torch.functional.__all__)
    yield from _named(torch, [name for name in dir(torch) if name.startswith(("sym_", *CHECKS))])
    for inner in ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested"):
        home = getattr(torch._C, inner)
        yield from _named(home, [name for name in dir(home) if has_schemas(f"aten::{name}")])
    for home, prefix in ((torch.masked, "masked"), (torch.signal.windows, "signal.windows")):
        yield from _plain(home, prefix, home.__all__, ((None, "*"),))
    yield from _plain(torch, "torch", _PURE_TORCH, ())


# A capture that is under way has others in the place of some of these.
_AT_FIRST = {home: dict(vars(home)) for home in (torch, torch.random, builtins)}


def _under(home: Any, name: str) -> list[Any]:
    """The functions under a name: what was there at first, and what is there now."""
    now = getattr(home, name, None)
    first = _AT_FIRST.get(home, {}).get(name, now)
    return [first] if first is now else [first, now]


def _named(home: Any, names: Iterable[str]) -> Iterator[tuple[Any, Make]]:
    for name in names:
        for function in _under(home, name):
            python = function if isinstance(function, types.FunctionType) else None
            yield function, functools.partial(operator_named, name, function=python)


def _of_tensors() -> Iterator[tuple[Any, Make]]:
    for name in dir(torch.Tensor):
        if not name.startswith("__") or name in facts.ALIASES or name in facts.WRITING_METHODS:
            yield getattr(torch.Tensor, name), functools.partial(_method, name)


def _method(name: str) -> Operator | None:
    return operator_of_target("call_method", name)


def _of_python() -> Iterator[tuple[Any, Make]]:
    for function in facts.PYTHON_OPERATORS:
        yield function, functools.partial(_of_python_operator, function)
    shared = ((None, "*"),)
    for home, prefix in ((operator, "operator"), (math, "math")):
        yield from _plain(home, prefix, [name for name in dir(home) if not name.startswith("_")], shared)
    for kind in (str, bytes, int, float):
        yield from _plain(kind, kind.__name__, [name for name in vars(kind) if not name.startswith("_")], shared)
    for name, function in _AT_FIRST[builtins].items():
        if not name.startswith("__") or name == "__import__":
            writes = ("obj",) if name in ("setattr", "delattr") else ()
            acts = name in _ACTING_BUILTINS
            make = functools.partial(forms_of_python, function)
            key = f"builtins.{name}"
            yield function, functools.partial(Operator, key, writes, acts=acts, aliases=shared, make_forms=make)
    yield copy.copy, functools.partial(Operator, "copy.copy", (), aliases=shared)
    yield copy.deepcopy, functools.partial(Operator, "copy.deepcopy", ())
    for function in (set_attribute, delete_attribute):
        yield function, functools.partial(Operator, function.__name__, ("value",))


def _plain(home: Any, prefix: str, names: Iterable[str], aliases: tuple[Any, ...]) -> Iterator[tuple[Any, Make]]:
    for name in names:
        for function in _under(home, name):
            make = functools.partial(forms_of_python, function)
            yield function, functools.partial(Operator, f"{prefix}.{name}", aliases=aliases, make_forms=make)

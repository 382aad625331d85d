"""Which operator a node calls: one for every spelling, with what it does beyond computing a value.

`x.relu()`, `torch.relu(x)`, `F.relu(x)` and `torch.ops.aten.relu.default(x)` are the operator with the key `relu`;
`x.relu_()` has the same key and writes. Facts come from torch's schemas where these say them, else from facts.py.
Operators are made when they are first asked for; asking again is one look into a dictionary.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._jit_internal import boolean_dispatched

from graphwright.ir import Node
from graphwright.ops import facts
from graphwright.ops.facts import Alias, Flags
from graphwright.ops.forms import Form, form_of_schema, form_of_signature, form_of_text, merged
from graphwright.ops.state import delete_attribute, set_attribute

__all__ = ["Operator", "forms_of", "key_of", "module_operator", "operator_of", "operator_of_target"]


_ALWAYS = Flags()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One spelling of an operator: the key that all its spellings share, and what this one does.

    key: the dispatcher's name without `aten::`, `special_softmax` and the like under the name that is used most; for
        torch.nn's modules "nn.ReLU", for other functions the module's name before theirs: "math.sqrt".
    writes: the parameters that every call writes to. A call with `out=` writes to that besides.
    writes_if, random_if: the arguments that decide whether a call writes, or draws random numbers, where they do.
    random: whether a call may advance a random state.
    acts: whether calls have other effects: checks, prints, hooks, or what is not known.
    aliases: (number of the output, parameter) for outputs that may be an argument or share its memory. What an
        operator gives as one value or one list is output 0.
    commutative: two parameters that may change places, or None. See `Call.commutative` for one call.
    shape_only: whether it gives the elements of its input, moved at most, or asks for its shape.

    >>> relu = operator_of_target("call_method", "relu_")
    >>> relu.key, relu.writes, relu.aliases, relu.pure
    ('relu', ('input',), ((0, 'input'),), False)
    """

    key: str
    writes: tuple[str, ...] = ()
    writes_if: tuple[Flags, ...] = ()
    random: bool = False
    random_if: Flags = _ALWAYS
    acts: bool = False
    aliases: tuple[tuple[int, str], ...] = ()
    commutative: tuple[str, str] | None = None
    shape_only: bool = False
    spelling: Alias = dataclasses.field(default=Alias(""), repr=False)
    make_forms: Callable[[], tuple[Form, ...]] = dataclasses.field(default=tuple, repr=False)

    @property
    def pure(self) -> bool:
        """Whether no call of it has an effect, unless an argument says so (`out=`, `inplace=True`, `training=True`)."""
        return not (self.acts or self.writes or (self.random and not self.random_if.flags))


@functools.lru_cache(4096)
def forms_of(known: Operator) -> tuple[Form, ...]:
    """The ways in which this spelling of an operator may be called."""
    return known.make_forms()


# ---- the operator of a node


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
    if op == "call_function":
        target = node.target
        if target is getattr and len(node.args) == 2 and node.args[1] in facts.PROPERTIES:
            return operator_of_target("call_method", node.args[1])
        return operator_of_target(op, target)
    if op == "call_method":
        return operator_of_target(op, node.target)
    if op == "call_module":
        if module is None:
            owner = node.graph.owning_module
            module = owner.get_submodule(str(node.target)) if owner is not None else None
        return None if module is None else module_operator(type(module))
    return None


def key_of(node: Node, module: nn.Module | None = None) -> Any:
    """What to find a node by: its operator's key, or for what is not known the function, name or class itself.

    None for placeholders, outputs and attributes, and for functions without a hash.
    """
    known = operator_of(node, module)
    if known is not None:
        return known.key
    if node.op == "call_module":
        owner = node.graph.owning_module
        module = module or (owner.get_submodule(str(node.target)) if owner is not None else None)
        return None if module is None else type(module)
    if node.op in ("call_function", "call_method"):
        return node.target if type(node.target).__hash__ is not None else None
    return None


_METHODS: dict[str, Operator | None] = {}
_FUNCTIONS: dict[Any, Operator] = {}


def operator_of_target(op: str, target: Any) -> Operator | None:
    """The operator of a call_function or call_method with this target; `operator_of` for the rest.

    >>> operator_of_target("call_function", torch.special.expit).key
    'sigmoid'
    """
    if op == "call_method":
        if target not in _METHODS:
            if len(_METHODS) > 10_000:
                _METHODS.clear()
            _METHODS[target] = _method(target)
        return _METHODS[target]
    try:
        known = _FUNCTIONS.get(target)
    except TypeError:  # without a hash
        return None
    if known is None:
        known = _function(target)
        if known is not None:
            _FUNCTIONS[target] = known  # only of functions that live for ever
    return known


def module_operator(kind: type[nn.Module]) -> Operator | None:
    """The operator of a class of torch.nn; None for other classes.

    >>> module_operator(nn.Linear).key
    'nn.Linear'
    """
    is_own = kind.__module__.startswith("torch.nn.modules.") and getattr(nn, kind.__name__, None) is kind
    return _of_class(kind.__name__) if is_own else None


@functools.cache
def _of_class(name: str) -> Operator:
    return Operator(f"nn.{name}", make_forms=lambda: _forms_of_python(getattr(nn, name).forward))


# ---- from a name to an operator


def _method(name: str) -> Operator | None:
    if name in _METHODS_OF_CONTAINERS and not hasattr(torch.Tensor, name):
        return Operator(name, aliases=((0, "input"),))
    if not hasattr(torch.Tensor, name):
        return None
    if name in facts.METHODS:
        key, arguments = facts.METHODS[name]
        spelling = Alias(
            key, {}, {k: getattr(torch, v) if k == "dtype" else torch.device(v) for k, v in arguments.items()}
        )
        forms = (form_of_text("input, *, memory_format=None"),)
        return Operator(key, aliases=((0, "input"),), spelling=spelling, make_forms=lambda: forms)
    python = None if name.startswith("__") else vars(torch.Tensor).get(name)
    found = _operator(name, acts=name in facts.ACTING, from_python=python)
    if name in facts.SIGNATURES_OF_METHODS:
        forms = (form_of_text(facts.SIGNATURES_OF_METHODS[name]),)
        return dataclasses.replace(found, make_forms=lambda: forms)
    return found


_METHODS_OF_CONTAINERS = frozenset({"items", "keys", "values", "get", "strip", "join", "format", "lower", "upper"})


def _function(target: Any) -> Operator | None:
    if isinstance(target, torch._ops.OpOverload):
        return _of_overload(target)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return _of_packet(target)
    if target in facts.PYTHON_OPERATORS:
        name = target.__name__
        writes = name in _WRITING_OPERATORS
        found = _operator(facts.PYTHON_OPERATORS[target])
        forms = _operator_forms(target)
        # What it gives: a new value, except where it writes or takes a part.
        aliases = found.aliases if found.key == "getitem" else ((0, "input"),) if writes else ()
        return dataclasses.replace(
            found, writes=("input",) if writes else (), aliases=aliases, writes_if=(), make_forms=lambda: forms
        )
    entry = _known_functions().get(target)
    if entry is not None:
        return entry()
    if isinstance(target, types.MethodWrapperType) and target.__name__ == "__get__":
        name = getattr(target.__self__, "__name__", "")
        return _method(name) if name in facts.PROPERTIES else Operator(f"Tensor.{name}", aliases=((0, "input"),))
    return None


_WRITING_OPERATORS = frozenset({
    "iadd", "isub", "imul", "itruediv", "imatmul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift", "iconcat", "setitem", "delitem",
})  # fmt: skip
_UNARY = frozenset({"neg", "pos", "abs", "invert"})


def _operator_forms(target: Any) -> tuple[Form, ...]:
    key = facts.PYTHON_OPERATORS[target]
    if key in facts.SIGNATURES:
        return tuple(map(form_of_text, facts.SIGNATURES[key]))
    if target.__name__ in _UNARY:
        return (form_of_text("input"),)
    return (form_of_text("input, exponent" if key == "pow" else "input, other"),)


def _operator(
    name: str,
    *,
    acts: bool = False,
    from_python: Any = None,
    schemas: list[Any] | None = None,
    key: str | None = None,
) -> Operator:
    """The operator with this name in the dispatcher or among the methods of tensors."""
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    function = from_python if isinstance(from_python, types.FunctionType) else None
    spelling = facts.ALIASES.get(base, Alias(base))
    if function is None:
        spelling = facts.OF_DISPATCHER.get(base, spelling)
    key = key or spelling.key
    known = _schemas(f"aten::{name}") or _schemas(f"aten::{key}") if schemas is None else schemas
    plain = [schema for schema in known if not _has_out(schema)] or known
    writes = _written(plain)
    if (base != name and not writes) or name in facts.WRITING_METHODS:
        writes = ("input",)
    aliases = {pair for schema in plain for pair in _aliases_of(schema)}
    aliases |= {(0, parameter) for parameter in (*facts.RETURNS_ARGUMENT.get(key, ()), *writes)}
    flags = []
    if function is not None and "inplace" in _parameters(function):
        flags.append(Flags(("inplace",), ("input",)))
        aliases.add((0, "input"))
    if key in facts.WRITES_IF:
        flags.append(facts.WRITES_IF[key])
    random_if = facts.DRAWS.get(key)
    return Operator(
        key,
        writes=writes,
        writes_if=tuple(flags),
        random=random_if is not None or _is_seeded(name),
        random_if=random_if or _ALWAYS,
        acts=acts,
        aliases=tuple(sorted(aliases)),
        commutative=facts.COMMUTATIVE.get(key),
        shape_only=key in facts.SHAPE_ONLY,
        spelling=spelling,
        make_forms=functools.partial(_forms, key, tuple(known), function),
    )


def _forms(key: str, schemas: tuple[Any, ...], function: Callable[..., Any] | None) -> tuple[Form, ...]:
    if key in facts.SIGNATURES:
        return tuple(map(form_of_text, facts.SIGNATURES[key]))
    if function is not None and (forms := _forms_of_python(function)):
        return forms
    if not schemas:  # a method of Python's own: `x.__radd__(y)`
        return (form_of_text("input"),)
    return merged(form_of_schema(schema) for schema in schemas if len(schemas) == 1 or not _has_out(schema))


def _forms_of_python(function: Callable[..., Any]) -> tuple[Form, ...]:
    dispatched = boolean_dispatched.get(function) if isinstance(function, types.FunctionType) else None
    try:
        form = form_of_signature(inspect.signature(dispatched["if_false"] if dispatched else function))
    except (TypeError, ValueError):
        return ()
    if form is None:
        return ()
    if form.positional[:1] == ("self",):  # of a method
        form = dataclasses.replace(form, positional=form.positional[1:])
    return (form,)


@functools.lru_cache(4096)
def _parameters(function: types.FunctionType) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:  # a wrapper of what is written in C
        return ()


# ---- what the dispatcher says


@functools.cache
def _dispatched() -> frozenset[str]:
    """What runs through the dispatcher, by name and overload; the rest is there for numbers and lists alone."""
    return frozenset(torch._C._dispatch_get_all_op_names())


def _schemas(name: str) -> list[Any]:
    every = torch._C._jit_get_schemas_for_operator(name)
    names = _dispatched()
    return [one for one in every if (f"{name}.{one.overload_name}" if one.overload_name else name) in names]


def _has_out(schema: Any) -> bool:
    return any(argument.is_out for argument in schema.arguments)


def _written(schemas: list[Any]) -> tuple[str, ...]:
    found = dict.fromkeys(
        _name_in(argument, schema)
        for schema in schemas
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return tuple(found)


def _aliases_of(schema: Any) -> Iterable[tuple[int, str]]:
    for place, result in enumerate(schema.returns):
        if result.alias_info is None:
            continue
        sets = result.alias_info.before_set | result.alias_info.after_set
        for argument in schema.arguments:
            info = argument.alias_info  # lists of tensors have their names inside, out of reach
            if info is not None and (not sets or (info.before_set | info.after_set) & sets):
                yield place, _name_in(argument, schema)


def _name_in(argument: Any, schema: Any) -> str:
    if argument.name == "self" and not any(other.name == "input" for other in schema.arguments):
        return "input"
    return str(argument.name)


def _is_seeded(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return isinstance(packet, torch._ops.OpOverloadPacket) and _packet_is_seeded(packet)


def _packet_is_seeded(packet: Any) -> bool:
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)


def _of_overload(target: Any) -> Operator:
    schema = target._schema
    seeded = torch.Tag.nondeterministic_seeded in target.tags
    return _of_schemas(str(schema.name), [schema], seeded)


def _of_packet(target: Any) -> Operator:
    name = str(target._qualified_op_name)
    return _of_schemas(name, _schemas(name), _packet_is_seeded(target))


def _of_schemas(qualified: str, schemas: list[Any], seeded: bool) -> Operator:
    namespace, _, name = qualified.partition("::")
    if namespace == "aten":
        found = _operator(name, schemas=schemas, acts=name.startswith(_CHECKS))
    else:
        known = namespace == "prims"
        found = dataclasses.replace(_operator(name, schemas=schemas, key=qualified), acts=not known, commutative=None)
    if seeded != found.random and found.key not in facts.DRAWS:
        found = dataclasses.replace(found, random=seeded)
    return found


# ---- the functions that are known


_CHECKS = ("_assert", "_check", "_print", "_sync", "_functional_assert", "_functional_sym_constrain", "sym_constrain")
_ACTING_BUILTINS = frozenset({"print", "input", "open", "exec", "eval", "next", "breakpoint", "__import__"})
_PURE_TORCH = ("Size", "device", "dtype", "finfo", "iinfo", "is_tensor", "is_storage")
_SEEDS = ("manual_seed", "seed", "initial_seed")
Entry = Callable[[], Operator]


@functools.cache
def _known_functions() -> Mapping[Any, Entry]:
    """What makes the operator of each function of torch and Python that is known, by the function."""
    found: dict[Any, Entry] = {}

    def add(function: Any, make: Entry) -> None:
        if callable(function) and type(function).__hash__ is not None:
            found.setdefault(function, make)

    def operators(home: Any, names: Iterable[str], prefix: str = "") -> None:
        for name in names:
            function = getattr(home, name, None)
            python = function if isinstance(function, types.FunctionType) else None
            acts = name.startswith(_CHECKS)
            add(function, functools.partial(_operator, prefix + name, from_python=python, acts=acts))

    public = [name for name in dir(torch._C._VariableFunctions) if not name.startswith("__")]
    _NAMES_IN_F = {"unfold": "im2col", "fold": "col2im"}
    for name, function in vars(F).items():
        if isinstance(function, types.FunctionType) and not name.startswith("__"):
            add(function, functools.partial(_operator, _NAMES_IN_F.get(name, name), from_python=function))
    operators(torch, public)
    operators(torch._C._VariableFunctions, public)
    operators(torch.functional, [name for name in torch.functional.__all__ if name not in public])
    operators(torch, [name for name in dir(torch) if name.startswith(("sym_", *_CHECKS))])
    operators(torch, _SEEDS)
    for inner in ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested"):
        home = getattr(torch._C, inner)
        operators(home, [name for name in dir(home) if not name.startswith("__")])
    operators(F, [name for name in dir(F) if not name.startswith("__")])
    for name in dir(torch.Tensor):
        if not name.startswith("__") or name in facts.ALIASES or name in facts.WRITING_METHODS:
            function = getattr(torch.Tensor, name)
            if callable(function):
                add(function, functools.partial(_method_of_tensor, name))
    for home, prefix, names in _PURE_HOMES():
        for name in names:
            add(getattr(home, name), functools.partial(Operator, f"{prefix}{name}", aliases=((0, "input"),)))
    for name, function in vars(builtins).items():
        if not name.startswith("__") or name == "__import__":
            acts = name in _ACTING_BUILTINS
            writes = ("obj",) if name in ("setattr", "delattr") else ()
            add(
                function,
                functools.partial(Operator, f"builtins.{name}", acts=acts, writes=writes, aliases=((0, "obj"),)),
            )
    for function in (set_attribute, delete_attribute):
        add(function, functools.partial(Operator, function.__name__, writes=("value",)))
    return types.MappingProxyType(found)


def _method_of_tensor(name: str) -> Operator:
    known = operator_of_target("call_method", name)
    assert known is not None
    return known


def _PURE_HOMES() -> Iterable[tuple[Any, str, Iterable[str]]]:
    for home, prefix in ((operator, "operator."), (math, "math.")):
        yield home, prefix, [name for name in dir(home) if not name.startswith("_") and callable(getattr(home, name))]
    yield torch, "torch.", _PURE_TORCH
    for kind in (str, bytes, int, float):
        yield kind, f"{kind.__name__}.", [name for name in vars(kind) if not name.startswith("_")]
    for home, prefix in ((torch.masked, "masked."), (torch.signal.windows, "signal.windows.")):
        yield home, prefix, [name for name in home.__all__ if isinstance(getattr(home, name), types.FunctionType)]

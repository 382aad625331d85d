"""What is known of an operator, from torch's schemas where these say it, else from facts.py.

An operator is one spelling: `x.relu_()` and `torch.relu(x)` are two with one key. lookup.py finds the one that a node
calls; here they are made, from a name in the dispatcher, a method's name or a schema.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch._jit_internal import boolean_dispatched

from graphwright.ir import Node
from graphwright.ops import facts
from graphwright.ops.facts import Alias, Flags
from graphwright.ops.forms import Form, form_of_schema, form_of_signature, form_of_text, merged

_ALWAYS = Flags()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One spelling of an operator: the key that all its spellings share, and what this one does.

    key: the dispatcher's name without `aten::`, `special_expit` and the like under the name that is used most; for
        torch.nn's modules "nn.ReLU", for other functions the module's name before theirs: "math.sqrt".
    writes: the parameters that every call writes to. A call with `out=` writes to that besides.
    writes_if, random_if: the arguments that decide whether a call writes, or draws random numbers, where they do.
    random: whether a call may advance a random state.
    acts: whether calls have other effects: checks, prints, hooks, or what is not known.
    aliases: (number of the output, parameter) for outputs that may be an argument or share its memory. A single value
        is output 0; None stands for each item of a list, and where it is not known which output it is; "*" is any
        parameter.
    commutative: two parameters that may change places, or None. See `Call.commutative` for one call.
    shape_only: whether it gives the elements of its input, moved at most, or asks for its shape.

    >>> from graphwright.ops import operator_of_target
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
    aliases: tuple[tuple[int | None, str], ...] = ()
    commutative: tuple[str, str] | None = None
    shape_only: bool = False
    spelling: Alias = dataclasses.field(default=Alias(""), repr=False)
    make_forms: Callable[[], Sequence[Form]] = dataclasses.field(default=tuple, repr=False)

    @property
    def pure(self) -> bool:
        """Whether no call of it has an effect, unless an argument says so (`out=`, `inplace=True`, `training=True`)."""
        return not (self.acts or self.writes or (self.random and not self.random_if.flags))

    @property
    def checks(self) -> bool:
        """Whether all that a call of it may do is to raise, where something does not hold."""
        return self.key.startswith(CHECKS) and self.key != "_print"


@functools.lru_cache(8192)
def forms_of(known: Operator) -> tuple[Form, ...]:
    """The ways in which this spelling of an operator may be called."""
    return tuple(known.make_forms())


@functools.lru_cache(8192)
def flag_of(known: Operator, flag: str) -> tuple[tuple[str, ...], int, Any]:
    """Where a call of an operator has a flag: its names as a keyword, its position or -1, its default.

    >>> from graphwright.ops import operator_of_target
    >>> flag_of(operator_of_target("call_function", torch.dropout), "training")
    (('training', 'train'), 2, True)
    """
    names = (flag, *[old for old, new in facts.RENAMED["*"].items() if new == flag])
    for form in forms_of(known):
        for name in form.names:
            if name in names:
                position = form.positional.index(name) if name in form.positional else -1
                return names, position, form.defaults.get(name, True)
    return names, -1, None


def is_on(value: Any) -> bool:
    """Tell whether a flag is set; a value of the graph counts as set."""
    return isinstance(value, Node) or not (value is None or value is False or value == 0)


# ---- from names


def operator_named(
    name: str,
    *,
    function: types.FunctionType | None = None,
    schemas: Sequence[Any] | None = None,
    acts: bool = False,
    key: str | None = None,
) -> Operator:
    """The operator with this name in the dispatcher or among the methods of tensors, written as `function` in Python.

    `schemas` are those that it may mean, where not all of that name.
    """
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    spelling = facts.ALIASES.get(base, Alias(base))
    if function is None:
        spelling = facts.OF_DISPATCHER.get(base, spelling)
    key = key or spelling.key
    if schemas is None:
        schemas = schemas_named(f"aten::{name}") or schemas_named(f"aten::{key}")
    plain = [schema for schema in schemas if not _has_out(schema)] or schemas
    writes = _written(plain)
    if (base != name and not writes) or name in facts.WRITING_METHODS:
        writes = ("input",)
    aliases = {pair for schema in plain for pair in _aliases_of(schema)}
    aliases |= {(None, parameter) for parameter in facts.RETURNS_ARGUMENT.get(key, ())}
    aliases |= {(0, parameter) for parameter in writes}
    if (
        not schemas
        and not aliases
        and key not in facts.MAKES_NEW
        and getattr(function, "__module__", "") != "torch.nn.functional"
    ):
        aliases.add((None, "*"))
    flags = [facts.WRITES_IF[key]] if key in facts.WRITES_IF else []
    if function is not None and "inplace" in _parameters(function):
        flags.append(Flags(("inplace",), ("input",)))
        aliases.add((0, "input"))
    random_if = facts.DRAWS.get(key)
    return Operator(
        key,
        writes=writes,
        writes_if=tuple(flags),
        random=random_if is not None or _is_seeded(name),
        random_if=random_if or _ALWAYS,
        acts=acts or name.startswith(CHECKS),
        aliases=tuple(sorted(aliases, key=str)),
        commutative=facts.COMMUTATIVE.get(key),
        shape_only=key in facts.SHAPE_ONLY,
        spelling=spelling,
        make_forms=functools.partial(_forms, key, tuple(schemas), function),
    )


# Functions that raise where something does not hold.
CHECKS = ("_assert", "_check", "_print", "_sync", "_functional_assert", "_functional_sym_constrain", "sym_constrain")
_METHODS_OF_CONTAINERS = frozenset({"items", "keys", "values", "get", "strip", "join", "format", "lower", "upper"})


def method_named(name: str) -> Operator | None:
    """The operator that a method is, if tensors have it, or containers and it only reads."""
    if not hasattr(torch.Tensor, name):
        return Operator(name, aliases=((None, "input"),)) if name in _METHODS_OF_CONTAINERS else None
    if name in facts.METHODS:
        key, arguments = facts.METHODS[name]
        forms = (form_of_text("input, *, memory_format=None"),)
        spelling = Alias(key, {}, arguments)
        return Operator(key, aliases=((0, "input"),), spelling=spelling, make_forms=lambda: forms)
    if _is_private(name) and name not in facts.PRIVATE_METHODS and not has_schemas(f"aten::{name}"):
        return None
    python = None if name.startswith("__") else vars(torch.Tensor).get(name)
    function = python if isinstance(python, types.FunctionType) else None
    found = operator_named(name, function=function, acts=name in facts.ACTING)
    if name in facts.SIGNATURES_OF_METHODS:
        forms = (form_of_text(facts.SIGNATURES_OF_METHODS[name]),)
        return dataclasses.replace(found, make_forms=lambda: forms)
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def operator_of_overload(target: Any) -> Operator:
    """The operator that an overload of torch.ops is."""
    schema = target._schema
    return _of_schemas(str(schema.name), [schema], torch.Tag.nondeterministic_seeded in target.tags)


def operator_of_packet(target: Any) -> Operator:
    """The operator that the overloads of torch.ops with one name are."""
    name = str(target._qualified_op_name)
    return _of_schemas(name, schemas_named(name), _packet_is_seeded(target))


def _of_schemas(qualified: str, schemas: Sequence[Any], seeded: bool) -> Operator:
    namespace, _, name = qualified.partition("::")
    if namespace == "aten":
        found = operator_named(name, schemas=schemas)
    else:  # those of prims and our own compute, what others do is not known
        found = operator_named(name, schemas=schemas, key=qualified, acts=namespace not in ("prims", "graphwright"))
    return found if found.key in facts.DRAWS else dataclasses.replace(found, random=seeded)


@functools.cache
def operator_of_class(name: str) -> Operator:
    """The operator that a class of torch.nn is."""
    return Operator(f"nn.{name}", make_forms=lambda: forms_of_python(getattr(nn, name).forward, is_method=True))


# ---- parameters


def _forms(key: str, schemas: Sequence[Any], function: Callable[..., Any] | None) -> Sequence[Form]:
    if key in facts.SIGNATURES:
        return [form_of_text(text) for text in facts.SIGNATURES[key]]
    if function is not None and (forms := forms_of_python(function)):
        return forms
    if not schemas:  # an attribute, or a method of Python's own
        return [form_of_text("input")]
    return merged(form_of_schema(schema) for schema in schemas if len(schemas) == 1 or not _has_out(schema))


def forms_of_python(function: Callable[..., Any], is_method: bool = False) -> Sequence[Form]:
    """The form of a function that has a signature; without its first parameter where it belongs to the object."""
    dispatched = boolean_dispatched.get(function) if isinstance(function, types.FunctionType) else None
    try:
        form = form_of_signature(inspect.signature(dispatched["if_false"] if dispatched else function))
    except (TypeError, ValueError):
        return ()
    if form is not None and is_method:
        form = dataclasses.replace(form, positional=form.positional[1:])
    return () if form is None else (form,)


def _parameters(function: types.FunctionType) -> Iterable[str]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # a wrapper of what is written in C
        return ()


# ---- what the dispatcher says


@functools.cache
def _dispatched() -> frozenset[str]:
    """What runs through the dispatcher, by name and overload; the rest is there for numbers and lists alone."""
    return frozenset(torch._C._dispatch_get_all_op_names())


@functools.cache
def _packets() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in _dispatched())


def has_schemas(name: str) -> bool:
    """Tell whether there are schemas with a name such as `aten::add` that take tensors through the dispatcher."""
    return name in _packets()


def schemas_named(name: str) -> list[Any]:
    """The schemas with a name such as `aten::add` that take tensors through the dispatcher."""
    every = torch._C._jit_get_schemas_for_operator(name)
    names = _dispatched()
    return [one for one in every if (f"{name}.{one.overload_name}" if one.overload_name else name) in names]


def _has_out(schema: Any) -> bool:
    return any(argument.is_out for argument in schema.arguments)


def _written(schemas: Sequence[Any]) -> tuple[str, ...]:
    found = dict.fromkeys(
        _name_in(argument, schema)
        for schema in schemas
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return tuple(found)


def _aliases_of(schema: Any) -> Iterable[tuple[int | None, str]]:
    for place, result in enumerate(schema.returns):
        if result.alias_info is None:
            continue
        sets = result.alias_info.before_set | result.alias_info.after_set
        for argument in schema.arguments:
            info = argument.alias_info
            if info is None:
                continue
            if not sets:  # a list: the names are inside it, out of reach
                yield None, _name_in(argument, schema)
            elif (info.before_set | info.after_set) & sets:
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

"""Parameters of operators: the ways in which one may be called, and the one that fits a call.

A form is a list of parameters with what they take, made from a schema of the dispatcher, the signature of a Python
function or a line by hand. A call is bound against the forms of its target; where several take so many arguments under
these names, what is known of the arguments decides.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from graphwright.ir import Node


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """One way to call an operator.

    `kinds` says what a parameter takes, as a set of words: "tensor", "tensors", "int", "ints", "float", "bool", ...; an
    empty one takes anything. `sizes` has the lengths of lists for which one number may stand. With `spreads`, the last
    parameter by position takes all further arguments.
    """

    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    defaults: Mapping[str, Any]
    kinds: Mapping[str, frozenset[str]]
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    spreads: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All parameters."""
        return self.positional + self.keywords


# ---- where forms come from

_KINDS = {
    "Tensor": "tensor", "int": "int", "SymInt": "int", "float": "float", "bool": "bool", "str": "str",
    "number": "scalar", "Scalar": "scalar", "complex": "complex", "ScalarType": "dtype", "Layout": "layout",
    "MemoryFormat": "memory_format", "Device": "device", "Generator": "generator",
}  # fmt: skip


def _kinds_of_type(kind: Any) -> tuple[str, bool]:
    """The word for a type of the dispatcher, and whether None is one of its values."""
    shape = kind.kind()
    if shape == "OptionalType":
        return _kinds_of_type(kind.getElementType())[0], True
    if shape == "ListType":
        return _kinds_of_type(kind.getElementType())[0] + "s", False
    return _KINDS.get(str(kind), ""), False


def form_of_schema(schema: Any) -> Form:
    """Read a schema of the dispatcher; the tensor that a method belongs to is called `input`.

    >>> form_of_schema(torch.ops.aten.sum.dim_IntList._schema).positional
    ('input', 'dim', 'keepdim')
    """
    positional: list[str] = []
    keywords: list[str] = []
    defaults, kinds, sizes = {}, {}, {}
    taken = {argument.name for argument in schema.arguments}
    for argument in schema.arguments:
        name = "input" if argument.name == "self" and "input" not in taken else argument.name
        (keywords if argument.kwarg_only else positional).append(name)
        word, optional = _kinds_of_type(argument.real_type)
        kinds[name] = frozenset() if not word else frozenset((word, "none") if optional else (word,))
        if argument.has_default_value():
            defaults[name] = _plain_default(argument.default_value, word)
        if argument.N is not None:
            sizes[name] = int(argument.N)
    spreads = bool(positional) and kinds[positional[-1]] & {"ints"} != frozenset() and not sizes.get(positional[-1])
    return Form(tuple(positional), tuple(keywords), defaults, kinds, sizes, spreads)


def _plain_default(value: Any, word: str) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if word == "memory_format" and isinstance(value, int):  # numbered by the dispatcher
        return torch.contiguous_format if value == 0 else None
    return value


def form_of_signature(signature: inspect.Signature) -> Form | None:
    """Read the signature of a Python function; None where not every argument has a name."""
    positional: list[str] = []
    keywords: list[str] = []
    defaults = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            return None
        (keywords if parameter.kind is parameter.KEYWORD_ONLY else positional).append(name)
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
    return Form(tuple(positional), tuple(keywords), defaults, {})


@functools.cache
def form_of_text(text: str) -> Form:
    """Read the parameters of a function as Python writes them, annotated with what they take.

    >>> form = form_of_text("input, dim: ints = None, *, dtype=None")
    >>> form.positional, form.keywords, dict(form.defaults)
    (('input', 'dim'), ('dtype',), {'dim': None, 'dtype': None})
    """
    spreads = "items*" in text
    function: Any = ast.parse(f"def f({text.replace('items*', 'items')}): ...").body[0]
    parameters = function.args
    defaults, kinds = {}, {}
    for parameter, default in zip(reversed(parameters.args), reversed(parameters.defaults), strict=False):
        defaults[parameter.arg] = ast.literal_eval(default)
    for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if default is not None:
            defaults[parameter.arg] = ast.literal_eval(default)
    for parameter in (*parameters.args, *parameters.kwonlyargs):
        if parameter.annotation is not None:
            kinds[parameter.arg] = frozenset((ast.unparse(parameter.annotation),))
    positional, keywords = (tuple([one.arg for one in group]) for group in (parameters.args, parameters.kwonlyargs))
    return Form(positional, keywords, defaults, kinds, {}, spreads)


def merged(forms: Iterable[Form]) -> tuple[Form, ...]:
    """Make one form of those with the same names."""
    by_names: dict[Any, Form] = {}
    for form in forms:
        key = (form.positional, form.keywords)
        same = by_names.get(key)
        by_names[key] = form if same is None else _either(same, form)
    return tuple(by_names.values())


def _either(one: Form, other: Form) -> Form:
    kinds = {
        name: one.kinds[name] | other.kinds[name] if one.kinds.get(name) and other.kinds.get(name) else frozenset()
        for name in one.names
    }
    defaults = {**other.defaults, **one.defaults}
    return Form(
        one.positional, one.keywords, defaults, kinds, {**other.sizes, **one.sizes}, one.spreads or other.spreads
    )


# ---- binding

_EVERYWHERE = {
    "self": "input",
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}


def bind(forms: Sequence[Form], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Form, dict[str, Any]] | None:
    """Find the form that takes a call, and what each of its parameters is given; None where none does.

    NumPy's names (`axis`, `keepdims`) are accepted as torch accepts them. Defaults are not filled in.
    """
    best: tuple[int, Form, dict[str, Any]] | None = None
    for form in forms:
        values = _placed(form, args, kwargs)
        if values is None:
            continue
        if len(forms) == 1:
            return form, values
        doubts = _doubts(form, values)
        if doubts == 0:
            return form, values
        if best is None or doubts < best[0]:
            best = doubts, form, values
    return None if best is None else best[1:]


def _placed(form: Form, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    positional = form.positional
    if form.spreads and len(args) >= len(positional) and _stand_alone(form, args):
        last = len(positional) - 1
        args = (*args[:last], tuple(args[last:]))
    if len(args) > len(positional):
        return None
    values = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name not in form.positional and name not in form.keywords:
            name = _EVERYWHERE.get(name, name)
            if name not in form.positional and name not in form.keywords:
                if name != "requires_grad" or "pin_memory" not in form.keywords:  # no schema of a factory has it
                    return None
                if value is False:
                    continue
        if name in values:
            return None
        values[name] = value
    for name in form.names:
        if name not in values and name not in form.defaults:
            return None
    return values


def _stand_alone(form: Form, args: Sequence[Any]) -> bool:
    """Tell whether the last arguments are the items of a list: `x.view(2, 3)`, not `x.view((2, 3))`."""
    first = args[len(form.positional) - 1]
    if len(args) > len(form.positional):
        return True
    if isinstance(first, Node):
        return "items" in form.kinds.get(form.positional[-1], ()) or kind_of(first) in ("int", "tensor")
    return isinstance(first, int | torch.Tensor | torch.SymInt) and not isinstance(first, bool)


def _doubts(form: Form, values: Mapping[str, Any]) -> int:
    """How badly values fit a form: 0 where they do, many where they cannot be what is wanted."""
    return sum([_doubt(form.kinds.get(name), value) for name, value in values.items()])


_NUMBERS = frozenset({"int", "float", "scalar", "bool", "complex"})
_IMPOSSIBLE = 100


def _doubt(kinds: frozenset[str] | None, value: Any) -> int:
    if not kinds:
        return 0
    kind = kind_of(value)
    if kind in kinds:
        return 0
    if kind == "":
        return 0 if "tensor" in kinds else 1
    if kind == "none":
        return _IMPOSSIBLE
    if kind == "bool":
        return 1 if kinds & {"int", "scalar"} else _IMPOSSIBLE
    if kind == "int":
        return (
            1 if kinds & {"scalar", "float", "ints", "complex", "device"} else 2 if "tensor" in kinds else _IMPOSSIBLE
        )
    if kind in ("float", "complex"):
        return 1 if "scalar" in kinds else 2 if "tensor" in kinds else _IMPOSSIBLE
    if kind == "str":
        return 1 if "device" in kinds else _IMPOSSIBLE
    if kind == "sequence":
        return 1 if any(one.endswith("s") for one in kinds) else _IMPOSSIBLE
    if kind == "tensors":
        return 1 if "ints" in kinds else _IMPOSSIBLE
    if kind == "ints":
        return 1 if kinds & {"floats", "scalars"} else _IMPOSSIBLE
    return _IMPOSSIBLE


_BY_TYPE: dict[type, str] = {
    bool: "bool", int: "int", float: "float", complex: "complex", str: "str", type(None): "none",
    torch.dtype: "dtype", torch.device: "device", torch.layout: "layout", torch.memory_format: "memory_format",
    torch.Tensor: "tensor", torch.nn.Parameter: "tensor", torch.SymInt: "int", torch.SymFloat: "float",
    torch.SymBool: "bool", torch.Generator: "generator", torch.Size: "ints",
}  # fmt: skip
# What methods and functions give that are no tensors.
_GIVEN_BY_NAME = {
    "size": "int", "dim": "int", "numel": "int", "item": "scalar", "ndimension": "int", "nelement": "int", "len": "int",
}  # fmt: skip
_GIVEN_BY_ATTRIBUTE = {"shape": "ints", "ndim": "int", "dtype": "dtype", "device": "device", "layout": "layout"}


def kind_of(value: Any) -> str:
    """The word for what a value is, "" where nothing is known of a node.

    >>> kind_of(3), kind_of([1, 2]), kind_of(None), kind_of([torch.ones(1)])
    ('int', 'ints', 'none', 'tensors')
    """
    word = _BY_TYPE.get(type(value))
    if word is not None:
        return word
    if isinstance(value, Node):
        return _kind_of_node(value)
    if isinstance(value, tuple | list):
        words = {kind_of(item) for item in value}
        if words <= {"int"}:
            return "ints"
        if words <= {"tensor", "none"}:
            return "tensors"
        return "ints" if words <= {"int", ""} and "int" in words else "sequence"
    if isinstance(value, torch.Tensor):
        return "tensor"
    return "other"


def _kind_of_node(node: Node) -> str:
    meta = node._meta
    if meta:
        known = meta.get("val", meta.get("example_value"))
        if known is not None and not isinstance(known, Node):
            return kind_of(known)
        if "tensor_meta" in meta and hasattr(meta["tensor_meta"], "dtype"):
            return "tensor"
    if node.op == "call_method":
        if node.target == "size" and len(node.args) + len(node.kwargs) == 1:
            return "ints"
        return _GIVEN_BY_NAME.get(str(node.target), "")
    if node.op == "call_function":
        if node.target is getattr and len(node.args) > 1:
            return _GIVEN_BY_ATTRIBUTE.get(str(node.args[1]), "")
        name = getattr(node.target, "__name__", "")
        if name == "getitem" and isinstance(node.args[0], Node) and type(node.args[1]) is int:
            return "int" if _kind_of_node(node.args[0]) == "ints" else ""
        if name == "__get__":
            return _GIVEN_BY_ATTRIBUTE.get(getattr(getattr(node.target, "__self__", None), "__name__", ""), "")
        if name in _ARITHMETIC:
            return "int" if _is_of_ints(node) else ""
        return _GIVEN_BY_NAME.get(name, "") if name == "len" else ""
    return ""


_ARITHMETIC = frozenset({"add", "sub", "mul", "floordiv", "mod"})
_FAR = 64  # so many operations are looked at


def _is_of_ints(node: Node) -> bool:
    """Tell whether all that goes into an arithmetic expression is whole numbers."""
    seen, waiting = {node}, [node]
    while waiting:
        for arg in waiting.pop().args:
            inner = arg if isinstance(arg, Node) and not arg._meta and arg.op == "call_function" else None
            if inner is None or getattr(inner.target, "__name__", "") not in _ARITHMETIC:
                if kind_of(arg) != "int":
                    return False
            elif inner not in seen:
                seen.add(inner)
                waiting.append(inner)
        if len(seen) > _FAR:
            return False
    return True

"""One module as the Python expression that makes it again: a constructor call where that is exact, else its parts."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.codegen import Globals, argument
from graphwright.runtime.entries import STATE
from graphwright.runtime.members.attributes import MODULE_TABLES
from graphwright.runtime.references import reference_to

WIDTH = 112
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
OF_PARAMETERS = (nn.ParameterList, nn.ParameterDict)
_OF_EVERY_MODULE = MODULE_TABLES | {"_compiled_call_impl", STATE}
_ATOMS = (int, float, bool, str, bytes, complex, type(None), type(...), range, torch.device)
_SINGLETONS = (torch.dtype, torch.layout, torch.memory_format)


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An expression in brackets, which may be broken over lines: what stands before them, and prefixed items."""

    head: str
    items: tuple[tuple[str, Expression], ...] = ()
    brackets: tuple[str, str] = ("(", ")")


Expression = Call | str


def render(expression: Expression, column: int, indent: str) -> str:
    """Write an expression that starts at a column, its items on lines of their own where one line is too short.

    >>> print(render(Call("f", (("", "x" * 50), ("y=", "y" * 50), ("", "z" * 20))), 0, ""))
    f(
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx, y=yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy,
        zzzzzzzzzzzzzzzzzzzz,
    )
    """
    if isinstance(expression, str):
        return expression
    start, end = expression.brackets
    inner = f"{indent}    "
    flat = [prefix + render(item, -100_000, "") for prefix, item in expression.items]
    line = f"{expression.head}{start}{', '.join(flat)}{end}"
    if column + len(line) <= WIDTH or not expression.items:
        return line
    if all(isinstance(item, str) for _, item in expression.items):
        lines = _filled(flat, WIDTH - len(inner))
    else:
        lines = [prefix + render(item, len(inner) + len(prefix), inner) + "," for prefix, item in expression.items]
    body = "".join(f"{inner}{line}\n" for line in lines)
    return f"{expression.head}{start}\n{body}{indent}{end}"


def _filled(items: Iterable[str], width: int) -> list[str]:
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) + 2 > width:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{item},"
    return lines


def quoted(name: str) -> str:
    """Write a name as a string."""
    return json.dumps(name, ensure_ascii=False)


def empty_tensor(tensor: Tensor) -> Call:
    """Write a call that makes a tensor of this shape and dtype.

    >>> render(empty_tensor(torch.zeros(2, 3)), 0, ""), render(empty_tensor(torch.tensor(1)), 0, "")
    ('torch.empty(2, 3)', 'torch.empty((), dtype=torch.int64)')
    """
    sizes: list[tuple[str, Expression]] = [("", str(size)) for size in tensor.shape] or [("", "()")]
    dtype = [] if tensor.dtype is torch.float32 else [("dtype=", str(tensor.dtype))]
    return Call("torch.empty", (*sizes, *dtype))


def written_value(
    value: Any, names: Globals, tensor: Callable[[Tensor], Expression] | None = None
) -> Expression | None:
    """Write a plain value so that evaluating the text gives it back, or answer None for what has no such text.

    `tensor` writes the tensors in it, without which they have none.
    """
    return _literal(value, names, tensor) if _is_literal(value, tensor is not None) else None


def holds_tensors(value: Any) -> bool:
    """Tell whether a value is a list, tuple or dict with tensors in it.

    >>> holds_tensors({"a": [torch.ones(1)]}), holds_tensors([1]), holds_tensors(torch.ones(1))
    (True, False, False)
    """
    items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return any(isinstance(item, Tensor) or holds_tensors(item) for item in items)


def _literal(value: Any, names: Globals, tensor: Callable[[Tensor], Expression] | None = None) -> Expression:
    kind = type(value)
    if tensor is not None and isinstance(value, Tensor):
        return tensor(value)
    if kind is str:
        return quoted(value) if value.isprintable() else repr(value)
    if kind is dict:
        pairs = [(_literal(key, names), _literal(item, names, tensor)) for key, item in value.items()]
        return Call("", tuple((f"{render(key, 0, '')}: ", item) for key, item in pairs), ("{", "}"))
    if kind is list or (kind is tuple and len(value) != 1):
        brackets = ("[", "]") if kind is list else ("(", ")")
        return Call("", tuple(("", _literal(item, names, tensor)) for item in value), brackets)
    return argument(value, names, None)[0]


def _is_literal(value: Any, with_tensors: bool = False) -> bool:
    kind = type(value)
    if kind in _ATOMS or isinstance(value, _SINGLETONS):
        return True
    if with_tensors and isinstance(value, Tensor):
        return True
    if kind is list or (kind is tuple and len(value) != 1):
        return all(_is_literal(item, with_tensors) for item in value)
    if kind in (set, frozenset, tuple):
        return all(map(_is_literal, value))
    if kind is dict:
        return all(_is_literal(key) and _is_literal(item, with_tensors) for key, item in value.items())
    if kind is slice:
        return all(map(_is_literal, (value.start, value.stop, value.step)))
    if isinstance(value, tuple):  # a NamedTuple, a torch.Size
        return reference_to(kind) is not None and all(map(_is_literal, value))
    if isinstance(value, enum.Enum):
        return reference_to(kind) is not None
    return isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType) and (
        reference_to(value) is not None
    )


def own_attributes(module: nn.Module) -> dict[str, Any]:
    """The plain attributes of a module that not every module has."""
    return {name: value for name, value in module.__dict__.items() if name not in _OF_EVERY_MODULE}


# ---- constructor calls of torch.nn's own classes


def constructor_call(module: nn.Module, names: Globals, needed: Collection[str] = ()) -> Call | None:
    """Write the constructor call that makes a module of torch.nn, or answer None where no call found makes the same.

    The call is tried: on the meta device it must give the class, the tables of tensors with their shapes and dtypes,
    and the attributes of this module. Attributes that the constructor does not set have no meaning to torch.nn;
    they are left out, unless they are `needed` or hide something of the class.
    """
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind:
        return None
    for is_brief in (True, False):
        arguments = _constructor_arguments(module, is_brief)
        if arguments is None:
            return None
        texts = {name: written_value(value, names) for name, value in arguments.items()}
        if all(text is not None for text in texts.values()) and _makes_the_same(module, arguments, needed):
            items = tuple((f"{name}=", text) for name, text in texts.items() if text is not None)
            return Call(f"torch.nn.{kind.__name__}", items)
    return None


def _constructor_arguments(module: nn.Module, is_brief: bool) -> dict[str, Any] | None:
    """Guess the arguments of the constructor from the attributes of the same names; defaults are left out."""
    arguments: dict[str, Any] = {}
    for parameter in _constructor_parameters(type(module)):
        name, default = parameter.name, parameter.default
        if name in module.__dict__:
            value = module.__dict__[name]
        elif name in module._parameters:
            value = module._parameters[name] is not None
        elif (type(module), name) in _TOLD_BY:
            value = _TOLD_BY[type(module), name](module)
        elif name == "dtype" and (dtype := _unusual_dtype(module)) is not None:
            value = dtype
        elif default is parameter.empty:
            return None
        else:
            continue
        if is_brief and isinstance(value, tuple) and value and all(item == value[0] for item in value):
            value = value[0]  # kernel_size=3 rather than (3, 3)
        if default is parameter.empty or not _is_equal(value, default):
            arguments[name] = value
    return arguments


# Constructor arguments that a module does not keep under their own names.
_TOLD_BY: dict[tuple[type, str], Callable[[Any], Any]] = {
    (nn.MultiheadAttention, "bias"): lambda module: module.in_proj_bias is not None,
    (nn.MultiheadAttention, "add_bias_kv"): lambda module: module.bias_k is not None,
    (nn.RNN, "nonlinearity"): lambda module: module.mode.removeprefix("RNN_").lower(),
}
for _layer in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
    _TOLD_BY |= {
        (_layer, "d_model"): lambda module: module.linear1.in_features,
        (_layer, "nhead"): lambda module: module.self_attn.num_heads,
        (_layer, "dim_feedforward"): lambda module: module.linear1.out_features,
        (_layer, "dropout"): lambda module: module.dropout.p,
        (_layer, "layer_norm_eps"): lambda module: module.norm1.eps,
        (_layer, "batch_first"): lambda module: module.self_attn.batch_first,
        (_layer, "bias"): lambda module: module.linear1.bias is not None,
    }


def _constructor_parameters(kind: type) -> Iterable[inspect.Parameter]:
    """The parameters of a constructor by name, those behind its `**kwargs` included."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if base is nn.Module or "__init__" not in base.__dict__:
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        for parameter in plain:
            found.setdefault(parameter.name, parameter)
        if len(plain) == len(parameters):
            break
    if issubclass(kind, nn.RNNBase) and kind is not nn.RNNBase:
        del found["mode"]  # its subclasses stand for the modes
    if kind is nn.RNN:
        found["nonlinearity"] = inspect.Parameter("nonlinearity", inspect.Parameter.KEYWORD_ONLY, default="tanh")
    return found.values()


def _unusual_dtype(module: nn.Module) -> torch.dtype | None:
    """The dtype of the floating tensors of a module where it is one, and not what a constructor takes by itself."""
    tensors = [*module.parameters(), *module.buffers()]
    dtypes = {tensor.dtype for tensor in tensors if tensor.dtype.is_floating_point or tensor.dtype.is_complex}
    if len(dtypes) != 1:
        return None
    (dtype,) = dtypes
    return None if dtype is torch.float32 is torch.get_default_dtype() else dtype


def _makes_the_same(module: nn.Module, arguments: dict[str, Any], needed: Collection[str]) -> bool:
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            made = type(module)(**arguments)
    except Exception:  # the arguments were a guess
        return False
    return is_same_build(module, made, needed)


def is_same_build(module: nn.Module, made: nn.Module, needed: Collection[str]) -> bool:
    """Tell whether two modules have the same class, attributes, tensors (but for their values) and children."""
    if type(module) is not type(made) or module._non_persistent_buffers_set != made._non_persistent_buffers_set:
        return False
    for one, other in ((module._parameters, made._parameters), (module._buffers, made._buffers)):
        if list(one) != list(other) or not all(_is_equal(one[name], other[name]) for name in one):
            return False
    if list(module._modules) != list(made._modules):
        return False
    for name, child in module._modules.items():
        twin = made._modules[name]
        if (child is None) is not (twin is None):
            return False
        if child is not None and twin is not None and not is_same_build(child, twin, ()):
            return False
    mine, others = own_attributes(module), own_attributes(made)
    if any(name not in mine or not _is_equal(mine[name], value) for name, value in others.items()):
        return False
    return not any(name in needed or hasattr(type(module), name) for name in mine.keys() - others.keys())


def _is_equal(one: Any, other: Any) -> bool:
    """Compare attributes: types too, tensors by shape and dtype."""
    if one is other or (isinstance(one, weakref.ref) and isinstance(other, weakref.ref)):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return bool(one.shape == other.shape) and one.dtype == other.dtype
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    try:
        return bool(one == other)
    except Exception:  # an object may refuse to be compared
        return False

"""Which call of the user's program a torch function that a mode sees stands for.

`x + 1` and `x.add(1)` reach the mode as the same function; the instruction that runs in the user's frame tells
them apart.
"""

from __future__ import annotations

import dis
import functools
import inspect
import opcode
import operator
import re
import sys
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType, MethodWrapperType
from typing import Any, NamedTuple

import torch
import torch.overrides
from torch import nn
from torch._jit_internal import boolean_dispatched

from graphwright.capture.proxies.tensor_names import Row, names_in
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Target

# Methods that want the data of a tensor as a Python value.
DATA_METHODS = names_in(Row.DATA)

# Those of them that give plain numbers.
NUMBER_METHODS = frozenset({"__bool__", "__int__", "__float__", "__index__", "item", "tolist"})

# Those that give a text.
TEXT_METHODS = frozenset({"__format__", "__repr__"})

# Methods and functions that compare the data of tensors, and answer with a bool.
TRUTHS = frozenset({"is_nonzero", "equal", "allclose"})

# Methods and functions whose answer follows from what kind of tensor it is.
KIND_METHODS = frozenset({
    "is_floating_point", "is_complex", "is_contiguous", "is_signed", "is_conj", "is_neg", "is_inference",
    "element_size", "get_device", "is_set_to", "has_names", "stride", "storage_offset", "is_shared", "is_pinned",
    "dense_dim", "sparse_dim", "is_coalesced", "is_same_size", "result_type", "can_cast",
})  # fmt: skip

# What gives a tensor for each dimension of another.
AS_MANY_AS_DIMENSIONS = frozenset({"where", "nonzero", "nonzero_numpy", "gradient"})

# What torch's own code calls under a private name, and what it is.
PUBLIC: dict[Callable[..., Any], Callable[..., Any]] = {torch._is_all_true: torch.all, torch._is_any_true: torch.any}

# What gives as many dimensions as there are sizes other than one; `corrcoef` of one row is a number.
LOOKS_AT_SIZES = frozenset({"squeeze", "squeeze_", "squeeze_copy", "corrcoef", "cov"})

_RESHAPES_IN_PLACE = frozenset({
    "resize_", "resize_as_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "set_",
    "as_strided_",
})  # fmt: skip


def spoken(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a call of a function of torch's but those that are plain values or private by default.

    Functions and methods of torch's that are written in Python hand all on that they have.

    >>> spoken(torch.nn.functional.softmax, {"dim": 1, "_stacklevel": 3, "dtype": None})
    {'dim': 1}
    >>> spoken(torch.nn.functional.max_pool2d, {"stride": None, "padding": 1, "dilation": 1, "return_indices": False})
    {'padding': 1}
    >>> spoken(torch.Tensor.norm, {"p": "fro", "dim": 1, "keepdim": False, "dtype": None})
    {'dim': 1}
    """
    if not kwargs or type(function) is not FunctionType:
        return kwargs
    unspoken = _unspoken(function)
    return {name: value for name, value in kwargs.items() if name not in unspoken or value is not unspoken[name]}


@functools.lru_cache(1024)
def _unspoken(function: FunctionType) -> dict[str, Any]:
    inner: Callable[..., Any] = function
    while inner in boolean_dispatched:  # what gives one value or several, as a flag says
        inner = boolean_dispatched[inner]["if_false"]
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(inner).parameters.values()
        if type(parameter.default) in (type(None), bool, str, int, float) or parameter.name.startswith("_")
    }


_BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "true_divide": operator.truediv, "matmul": operator.matmul, "pow": operator.pow, "remainder": operator.mod,
    "floor_divide": operator.floordiv, "__floordiv__": operator.floordiv, "__and__": operator.and_,
    "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": operator.lshift, "__rshift__": operator.rshift,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
    "eq": operator.eq, "__eq__": operator.eq, "ne": operator.ne, "__ne__": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_REFLECTED: dict[str, Callable[..., Any]] = {
    "__radd__": operator.add, "__rsub__": operator.sub, "__rmul__": operator.mul, "__rdiv__": operator.truediv,
    "__rtruediv__": operator.truediv, "__rpow__": operator.pow, "__rfloordiv__": operator.floordiv,
    "__rmod__": operator.mod, "__rmatmul__": operator.matmul, "__rand__": operator.and_, "__ror__": operator.or_,
    "__rxor__": operator.xor, "__rlshift__": operator.lshift, "__rrshift__": operator.rshift,
}  # fmt: skip
_MIRRORED = {"lt": (">", operator.gt), "gt": ("<", operator.lt), "le": (">=", operator.ge), "ge": ("<=", operator.le)}
_COMPARE_OP = opcode.opmap["COMPARE_OP"]
_SHIFT = 0 if sys.version_info < (3, 12) else 4 if sys.version_info < (3, 13) else 5  # of the symbol in its argument
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "__neg__": operator.neg, "__pos__": operator.pos, "positive": operator.pos,
    "__invert__": operator.invert, "bitwise_not": operator.invert,
}  # fmt: skip
_IN_PLACE: dict[str, Callable[..., Any]] = {
    "add_": operator.iadd, "sub_": operator.isub, "mul_": operator.imul, "div_": operator.itruediv,
    "__iadd__": operator.iadd, "__isub__": operator.isub, "__imul__": operator.imul, "__itruediv__": operator.itruediv,
    "__idiv__": operator.itruediv, "__ifloordiv__": operator.ifloordiv, "__imod__": operator.imod,
    "remainder_": operator.imod, "floor_divide_": operator.ifloordiv, "pow_": operator.ipow, "__ipow__": operator.ipow,
    "__iand__": operator.iand, "__ior__": operator.ior, "__ixor__": operator.ixor, "__ilshift__": operator.ilshift,
    "__irshift__": operator.irshift, "bitwise_and_": operator.iand, "bitwise_or_": operator.ior,
    "bitwise_xor_": operator.ixor,
}  # fmt: skip
_ITEMS: dict[str, Callable[..., Any]] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}

_BINARY_OPCODES = frozenset(
    code for name, code in opcode.opmap.items() if name.startswith(("BINARY_", "COMPARE_OP", "INPLACE_"))
)
_UNARY_OPCODES = frozenset(code for name, code in opcode.opmap.items() if name.startswith("UNARY_"))

_known_methods: dict[Any, str | None] = {}


class Seen(NamedTuple):
    """What a torch function that a mode sees is: the one that programs call, and which property or method of Tensor."""

    function: Callable[..., Any]
    prop: str | None
    method: str | None
    name: str
    is_compiled: bool  # by TorchScript


class SeenFunctions(dict[Any, Seen]):
    """The functions that were seen, each looked at once."""

    def __missing__(self, function: Callable[..., Any]) -> Seen:
        public = PUBLIC.get(function, function)
        prop, is_compiled = property_name(public), isinstance(public, torch._C.ScriptMethod)
        method = None if prop is not None or is_compiled else tensor_method_name(public)
        seen = Seen(public, prop, method, getattr(public, "__name__", ""), is_compiled)
        if not is_compiled:  # such a method would keep its module
            self[function] = seen
        return seen


SEEN = SeenFunctions()


class Called(NamedTuple):
    """What the target of a node is: its name (a module has none), and whether a call writes to its first argument."""

    name: str
    writes: bool
    writes_item: bool
    is_operator: bool


class CalledTargets(dict[tuple[str, Target], Called]):
    """The targets that were called, each looked at once."""

    def __missing__(self, key: tuple[str, Target]) -> Called:
        op, target = key
        name = "" if op == "call_module" else name_of_target(target)
        is_operator = getattr(target, "__module__", None) == "_operator"
        is_named_so = name.endswith("_") and not name.endswith("__") and not is_operator  # there is `operator.and_`
        writes = is_named_so or (op != "call_method" and target in IN_PLACE_FUNCTIONS)
        called = self[key] = Called(name, writes, name in ("setitem", "__setitem__"), is_operator)
        return called


def property_name(function: Callable[..., Any]) -> str | None:
    """The property of Tensor that a getter or setter reads or writes, None for other functions."""
    if type(function) is MethodWrapperType and function.__name__ in ("__get__", "__set__"):
        return function.__self__.__name__  # type: ignore[attr-defined,no-any-return]
    return None


def is_tensor_method(function: Callable[..., Any]) -> bool:
    """Tell whether a function is a method of Tensor, or reads a property: torch's own answer builds large tables first.

    >>> is_tensor_method(torch.Tensor.add), is_tensor_method(torch.Tensor.shape.__get__), is_tensor_method(torch.add)
    (True, True, False)
    """
    return getattr(function, "__name__", "") == "__get__" or function in _tensor_methods()


@functools.lru_cache(1)
def _tensor_methods() -> frozenset[Any]:
    held = (getattr(torch.Tensor, name) for name in dir(torch.Tensor))
    return frozenset(value for value in held if callable(value) and not isinstance(value, type))


def tensor_method_name(function: Callable[..., Any]) -> str | None:
    """The name of a method of Tensor, None for other functions."""
    try:
        return _known_methods[function]
    except KeyError:
        name = _known_methods[function] = function.__name__ if is_tensor_method(function) else None
        return name


def operator_call(
    name: str, frame: FrameType | None, args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """The operator, with its operands, that a call of a Tensor method stands for; None for a call of the method."""
    item = _ITEMS.get(name)
    if item is not None:
        return item, args
    reflected = _REFLECTED.get(name)
    if reflected is not None:
        return reflected, (args[1], args[0])
    if frame is None:
        return None
    instruction = frame.f_code.co_code[frame.f_lasti]
    if instruction in _BINARY_OPCODES and len(args) == 2:
        if name in _MIRRORED and instruction == _COMPARE_OP:  # `2 > x` asks `x.lt(2)`
            symbol, mirrored = _MIRRORED[name]
            if dis.cmp_op[frame.f_code.co_code[frame.f_lasti + 1] >> _SHIFT] == symbol:
                return mirrored, (args[1], args[0])
        function = _IN_PLACE.get(name) or _BINARY.get(name)
        return None if function is None else (function, args)
    if instruction in _UNARY_OPCODES and len(args) == 1:
        function = _UNARY.get(name)
        return None if function is None else (function, args)
    return None


IN_PLACE_FUNCTIONS = frozenset({*_IN_PLACE.values(), operator.imatmul})


def name_of_target(target: Target) -> str:
    """The name of an operation: a function or method; none of a function of the program, whatever its name."""
    if type(target) is FunctionType and not str(target.__module__).startswith(("torch.", "graphwright.")):
        return ""
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def reshaped_argument(target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The argument that an operation may give another shape, in place, as `out` or as its `data`; None without one.

    >>> reshaped_argument(torch.add, ("x", "y"), {"out": "total"}), reshaped_argument("t_", ("x",), {})
    ('total', 'x')
    >>> reshaped_argument("add_", ("x", "y"), {}), reshaped_argument(setattr, ("x", "grad", None), {})
    (None, None)
    """
    if "out" in kwargs:
        return kwargs["out"]
    if target is setattr:
        return args[0] if args[1] == "data" else None
    return args[0] if args and name_of_target(target).partition(".")[0] in _RESHAPES_IN_PLACE else None


@functools.lru_cache(1024)
def gives_pieces(function: str) -> bool:
    """Tell whether a function of torch cuts a tensor into as many pieces as its sizes say: by its schema.

    >>> [gives_pieces(name) for name in ("split", "unbind_copy", "meshgrid", "relu")]
    [True, True, False, False]
    """
    packet = None if function in AS_MANY_AS_DIMENSIONS else getattr(torch.ops.aten, function, None)
    schemas = [] if packet is None else [getattr(packet, overload)._schema for overload in packet.overloads()]
    return any(
        [str(given.type) for given in schema.returns] == ["List[Tensor]"]
        and [str(argument.type) for argument in schema.arguments][:1] == ["Tensor"]
        for schema in schemas
    )


def module_name(path: str) -> str:
    """The last telling part of a dotted path: `encoder.layer.0.self.query` -> query, `layer1.0` -> layer1_0."""
    atoms = path.split(".")
    start = len(atoms) - 1
    while start > 0 and not atoms[start][:1].isalpha():
        start -= 1
    return "_".join(atoms[start:])


def item_name(root: nn.Module, path: str) -> str:
    """What an item of a sequence is called: by its name there, or after its class if that is a number.

    >>> item_name(nn.Sequential(nn.LeakyReLU(), nn.BatchNorm2d(1)), "1"), item_name(nn.Sequential(nn.LeakyReLU()), "0")
    ('batch_norm2d', 'leaky_relu')
    """
    if not path.rpartition(".")[2].isdigit():
        return module_name(path)
    return re.sub("(?<=[a-z0-9])(?=[A-Z][a-z])", "_", type(root.get_submodule(path)).__name__).lower()


def is_torch(function: Callable[..., Any] | str) -> bool:
    """Tell whether calling a function comes to the recorder before any of its code asks."""
    if isinstance(getattr(function, "__self__", None), TensorProxy):
        return True
    home = getattr(function, "__module__", None) or ""
    return home.partition(".")[0] == "torch" and (not isinstance(function, FunctionType) or function in _overridable())


@functools.lru_cache(1)
def _overridable() -> frozenset[Any]:
    """The functions of torch, written in Python, that ask for an override first."""
    groups = torch.overrides.get_overridable_functions().values()
    return frozenset(function for group in groups for function in group if isinstance(function, FunctionType))

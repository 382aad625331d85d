"""The methods and attributes of the values of a program, by class.

What is in no table is none of these: a name that some kind of value has, though not in its table, is never called, and
read only where the class of the value is known to have it as data. A name that none of them has is a field or method
of the user's own classes.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping

import numpy
import torch

from graphwright.runtime.graph_module import GraphModule
from graphwright.runtime.trust.fields import MACHINERY
from graphwright.runtime.trust.operators import operator_names

_TENSOR_METHODS = frozenset({
    "backward", "bfloat16", "bool", "byte", "cdouble", "cfloat", "char", "cpu", "cuda", "dim", "dim_order",
    "double", "element_size", "float", "half", "int", "long", "lu", "ndimension", "nelement", "new", "new_tensor",
    "numel", "numpy", "short", "to_sparse_coo", "tolist", "type", "unique", "retain_grad",
})  # fmt: skip
_ARRAY_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "clip", "conj", "copy", "cumprod",
    "cumsum", "diagonal", "fill", "flatten", "item", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat",
    "reshape", "round", "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take", "tolist", "trace",
    "transpose", "var", "view", "put", "partition", "dot", "conjugate",
})  # fmt: skip
_PLAIN = (
    str, bytes, list, tuple, dict, set, frozenset, slice, range, bool, int, float, complex, torch.Size,
    collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter,
)  # fmt: skip
# Texts that read attributes, or bytes of any length out of a number; classes of another encoding than is there.
_NEVER = frozenset({"format", "format_map", "to_bytes", "from_bytes", "encode", "decode", "fromkeys", "maketrans"})
_NUMBERS = frozenset({"real", "imag", "numerator", "denominator"})
_OF_ARRAYS = frozenset({
    "T", "device", "dtype", "imag", "itemsize", "mT", "nbytes", "ndim", "real", "shape", "size", "strides",
})  # fmt: skip
_ATTRIBUTES: dict[type, frozenset[str]] = {
    torch.Tensor: frozenset({
        "H", "T", "data", "device", "dtype", "grad", "imag", "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mkldnn",
        "is_mps", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "is_xla", "is_xpu", "itemsize", "layout",
        "mH", "mT", "names", "nbytes", "ndim", "output_nr", "real", "requires_grad", "retains_grad", "shape",
        "_version",
    }),
    torch.device: frozenset({"index", "type"}),
    torch.dtype: frozenset({"is_complex", "is_floating_point", "is_signed", "itemsize"}),
    torch.finfo: frozenset({"bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny"}),
    torch.iinfo: frozenset({"bits", "dtype", "max", "min"}),
    torch.Generator: frozenset({"device"}),
    **dict.fromkeys((numpy.ndarray, numpy.generic), _OF_ARRAYS),
    torch.return_types.max: frozenset({"values", "indices"}),
    torch.nn.utils.rnn.PackedSequence: frozenset({"batch_sizes", "data", "sorted_indices", "unsorted_indices"}),
    **dict.fromkeys((bool, int, float, complex), _NUMBERS),
    **dict.fromkeys((slice, range), frozenset({"start", "step", "stop"})),
    collections.deque: frozenset({"maxlen"}),
    BaseException: frozenset({"args"}),
    KeyError: frozenset({"args"}),
    AttributeError: frozenset({"args", "name"}),
}  # fmt: skip
_METHODS: dict[type, frozenset[str]] = {
    numpy.ndarray: _ARRAY_METHODS,
    numpy.generic: _ARRAY_METHODS | {"is_integer"},
    torch.Generator: frozenset({"get_state", "initial_seed", "manual_seed", "seed", "set_state"}),
    BaseException: frozenset(),
    torch.return_types.max: frozenset({"count", "index"}),
    torch.nn.utils.rnn.PackedSequence: frozenset(
        {
            "to",
            "cpu",
            "cuda",
            "double",
            "float",
            "half",
            "long",
            "int",
            "byte",
            "char",
            "short",
            "is_pinned",
            "pin_memory",
            "count",
            "index",
        }
    ),
    torch.device: frozenset(),
    torch.dtype: frozenset({"to_complex", "to_real"}),
    torch.finfo: frozenset(),
    torch.iinfo: frozenset(),
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), frozenset({"isdisjoint"})),
}
_OPERATORS = frozenset({
    "__abs__", "__add__", "__and__", "__bool__", "__contains__", "__divmod__", "__eq__", "__float__", "__floordiv__",
    "__ge__", "__getitem__", "__gt__", "__iadd__", "__iand__", "__ifloordiv__", "__ilshift__", "__imod__",
    "__imul__", "__index__", "__int__", "__invert__", "__ior__", "__ipow__", "__irshift__", "__isub__", "__iter__",
    "__itruediv__", "__ixor__", "__le__", "__len__", "__lshift__", "__lt__", "__matmul__", "__mod__", "__mul__",
    "__ne__", "__neg__", "__or__", "__pos__", "__pow__", "__radd__", "__rand__", "__rdivmod__", "__reversed__",
    "__rfloordiv__", "__rlshift__", "__rmatmul__", "__rmod__", "__rmul__", "__ror__", "__rpow__", "__rrshift__",
    "__rshift__", "__rsub__", "__rtruediv__", "__rxor__", "__setitem__", "__sub__", "__truediv__", "__xor__",
})  # fmt: skip
_ORDINARY = frozenset({"close", "deleter", "getter", "mro", "send", "setter", "throw"})  # words that anybody may use
_ELSEWHERE: tuple[type, ...] = (GraphModule, torch.UntypedStorage, torch.TypedStorage, torch.Stream)
# What an attribute of a value of one class is.
_FIELDS: dict[tuple[type, str], type] = {
    **{(torch.Tensor, name): torch.Tensor for name in ("H", "T", "data", "imag", "mH", "mT", "real")},
    (torch.Tensor, "shape"): torch.Size,
    (torch.Tensor, "device"): torch.device,
    (torch.Tensor, "dtype"): torch.dtype,
    (torch.Tensor, "ndim"): int,
    (torch.return_types.max, "values"): torch.Tensor,
    (torch.return_types.max, "indices"): torch.Tensor,
}


@functools.cache
def _methods() -> Mapping[type, frozenset[str]]:
    found: dict[type, frozenset[str]] = {kind: _public(kind) - _ATTRIBUTES.get(kind, frozenset()) for kind in _PLAIN}
    found[torch.Tensor] = frozenset(name for name in _public(torch.Tensor) if name in operator_names())
    found[torch.Tensor] |= _TENSOR_METHODS & _public(torch.Tensor)
    found[torch.Tensor] -= _ATTRIBUTES[torch.Tensor]
    found = {kind: names - _NEVER for kind, names in found.items()}
    return {**found, **_METHODS}


def methods_of_kind(kind: type) -> frozenset[str]:
    """The methods of a class of values that a program may call, but for those behind operators.

    >>> "relu" in methods_of_kind(torch.Tensor), "register_hook" in methods_of_kind(torch.Tensor)
    (True, False)
    """
    return _methods().get(kind, frozenset())


def attributes_of_kind(kind: type) -> frozenset[str]:
    """The attributes of a class of values that a program may read: data, never methods.

    >>> "shape" in attributes_of_kind(torch.Tensor), "__class__" in attributes_of_kind(torch.Tensor)
    (True, False)
    """
    return _ATTRIBUTES.get(kind, frozenset())


def field_kind(kind: type | None, name: str) -> type | None:
    """The class of an attribute of values of a class; None where it is not known."""
    return None if kind is None else _FIELDS.get((kind, name))


def is_method(name: str, kind: type | None = None) -> bool:
    """Tell whether a program may call the method of this name: of a class of values, or of any where it is None.

    Of a value of any class it must not matter which it is: no class has it but those that have it in their table.

    >>> is_method("relu"), is_method("apply_"), is_method("sort", list), is_method("sort", dict)
    (True, False, True, False)
    """
    if name in _OPERATORS:
        return True
    if kind is not None and kind in _methods():
        return name in methods_of_kind(kind)
    holders = _holders(name)
    return any(name in methods_of_kind(holder) for holder in holders) and all(
        name in methods_of_kind(holder) or name in attributes_of_kind(holder) for holder in holders
    )


def is_field(name: str, kind: type | None = None) -> bool:
    """Tell whether what a program reads by this name is data for sure, of a value of this class or, if None, of any.

    >>> is_field("shape"), is_field("hidden_size"), is_field("values"), is_field("values", torch.return_types.max)
    (True, True, False, True)
    """
    if kind is not None and kind in _methods():
        return name in attributes_of_kind(kind)
    if is_secret(name) or name in _ORDINARY or name in _elsewhere():
        return False
    return all(name in attributes_of_kind(holder) for holder in _holders(name))


def is_data(name: str) -> bool:
    """Tell whether what a program reads by this name may be data: it is that of a class, or no method of any.

    >>> is_data("values"), is_data("hidden_size"), is_data("relu"), is_data("register_hook")
    (True, True, False, False)
    """
    holders = _holders(name)
    if not holders:
        return name not in _elsewhere()
    return any(name in attributes_of_kind(holder) for holder in holders)


def is_secret(name: str) -> bool:
    """Tell whether no program may read an attribute of this name: it is private, or one of Python's machinery.

    >>> is_secret("gi_frame"), is_secret("__class__"), is_secret("_modules"), is_secret("values")
    (True, True, True, False)
    """
    is_private = name.startswith("_") and name != "_version"  # which counts the writes to a tensor
    return not name.isidentifier() or is_private or name in _machinery()


def is_private(name: str) -> bool:
    """Tell whether a name is one of an object's own, which others are asked not to read, and none of Python's.

    >>> is_private("_width"), is_private("__class__"), is_private("width"), is_private("_")
    (True, False, False, True)
    """
    return name.isidentifier() and name.startswith("_") and not name.startswith("__") and name not in _machinery()


@functools.cache
def _holders(name: str) -> tuple[type, ...]:
    """The classes of values that have an attribute of this name, of those whose tables are known."""
    return tuple([kind for kind in dict.fromkeys((*_methods(), *_ATTRIBUTES)) if name in _public(kind)])


@functools.cache
def _elsewhere() -> frozenset[str]:
    """The methods of what no value of a program is: modules, the memory of tensors."""
    names = {name for kind in _ELSEWHERE for name in _public(kind) if callable(getattr(kind, name, None))}
    return frozenset(names - {name for kind in _ATTRIBUTES for name in attributes_of_kind(kind)})


@functools.cache
def _machinery() -> frozenset[str]:
    names = frozenset().union(*[_public(kind) for kind in MACHINERY]) | {"grad_fn"}
    return names - _ORDINARY - {name for kind in _methods() for name in _public(kind)}


@functools.cache
def _public(kind: type) -> frozenset[str]:
    names = {*dir(kind), *type.__dict__} if kind is type else dir(kind)
    return frozenset(name for name in names if not name.startswith("_"))

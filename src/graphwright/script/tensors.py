"""What operations of torch give: types of attributes, methods and functions.

PyTorch's dispatcher has a schema for each overload of an operator, which says what it takes and gives. Functions
written in Python say it by their annotations. The rest gives tensors, or stands in a table.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from graphwright.ops import operator_name, schemas_of, signature_of_schema
from graphwright.script.annotations import type_from_annotation
from graphwright.script.types import (
    ANY,
    BOOL,
    DEVICE,
    DTYPE,
    FLOAT,
    GENERATOR,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    ListType,
    ObjectType,
    OptionalType,
    TupleType,
    Type,
    accepts,
    is_number,
    optional,
    resolved,
    without_none,
)

_SIZES = ListType(INT)
_TENSORS = ListType(TENSOR)
_ATTRIBUTES: dict[str, Type] = {
    **dict.fromkeys(("T", "H", "mT", "mH", "real", "imag", "data"), TENSOR),
    **dict.fromkeys(
        ("requires_grad", "is_leaf", "is_cuda", "is_sparse", "is_quantized", "is_mkldnn", "is_meta", "is_nested",
         "is_mps", "is_cpu", "is_xpu", "retains_grad", "is_sparse_csr"), BOOL,
    ),
    **dict.fromkeys(("ndim", "itemsize", "nbytes", "output_nr"), INT),
    "shape": _SIZES, "dtype": DTYPE, "device": DEVICE, "grad": optional(TENSOR), "layout": ObjectType(torch.layout),
    "grad_fn": ANY, "names": ANY,
}  # fmt: skip
_METHODS: dict[str, Type] = {
    **dict.fromkeys(("dim", "ndimension", "numel", "nelement", "element_size", "get_device", "data_ptr",
                     "storage_offset", "__len__"), INT),
    **dict.fromkeys(("is_contiguous", "is_floating_point", "is_complex", "is_pinned", "is_signed", "is_inference",
                     "is_conj", "is_neg", "equal", "allclose", "is_set_to", "is_same_size", "has_names"), BOOL),
    **dict.fromkeys(("split", "chunk", "unbind", "tensor_split", "hsplit", "vsplit", "dsplit"), _TENSORS),
    "item": NUMBER, "tolist": ANY, "numpy": ANY, "backward": NONE, "register_hook": ANY, "unique_consecutive": ANY,
}  # fmt: skip
_FUNCTIONS: dict[Any, Type] = {
    torch.is_grad_enabled: BOOL, torch.is_inference_mode_enabled: BOOL, torch.is_autocast_enabled: BOOL,
    torch.cuda.is_available: BOOL, torch.numel: INT, torch.get_default_dtype: DTYPE, torch.device: DEVICE,
    torch.finfo: ObjectType(torch.finfo), torch.iinfo: ObjectType(torch.iinfo), torch.Generator: GENERATOR,
    torch.split: _TENSORS, torch.broadcast_shapes: _SIZES, torch.Size: _SIZES, torch.result_type: DTYPE,
    torch.promote_types: DTYPE, torch.meshgrid: _TENSORS, torch.broadcast_tensors: _TENSORS, torch.allclose: BOOL,
    torch.equal: BOOL, torch.is_complex: BOOL, torch.is_floating_point: BOOL, torch.manual_seed: ANY,
    torch.atleast_1d: TENSOR, torch.atleast_2d: TENSOR, torch.atleast_3d: TENSOR, torch._assert: NONE,
    torch.can_cast: BOOL, torch.is_nonzero: BOOL,
}  # fmt: skip


def tensor_attribute(name: str) -> Type | Callable[..., Any] | None:
    """The type of an attribute of tensors, a method of theirs, or None where they have no such attribute."""
    known = _ATTRIBUTES.get(name)
    if known is not None:
        return known
    method: Any = getattr(torch.Tensor, name, None)
    return method if callable(method) else None if not hasattr(torch.Tensor, name) else ANY


def method_result(name: str, args: Sequence[Type], kwargs: Mapping[str, Type]) -> Type:
    """What a method of tensors gives for arguments of these types."""
    if name in ("size", "stride"):
        return INT if args or "dim" in kwargs else _SIZES
    if name == "type":
        return TENSOR if args or kwargs else STR
    known = _METHODS.get(name)
    if known is not None:
        return known
    if name == "unique":
        return _unique(kwargs)
    schemas = _schemas(f"aten::{name}")
    return _result(schemas, [TENSOR, *args], kwargs) if schemas else TENSOR


def function_result(function: Callable[..., Any], args: Sequence[Type], kwargs: Mapping[str, Type]) -> Type:
    """What a function of torch gives for arguments of these types."""
    known = _FUNCTIONS.get(function) if _has_hash(function) else None
    if known is not None:
        return known
    if function is torch.unique:
        return _unique(kwargs)
    schemas = schemas_of(function)
    if schemas:
        return _result(schemas, args, kwargs)
    name = getattr(function, "__name__", "")
    if (
        operator_name(function) is None
        and name.endswith(("_pool1d", "_pool2d", "_pool3d"))
        and "return_indices" not in kwargs
    ):
        return TENSOR
    return _annotated_result(function) or TENSOR


def takes_sizes(name: str) -> bool:
    """Tell whether an operation takes sizes one by one as well as in a list: `x.view(2, 3)`."""
    return name in _TAKING_SIZES


_TAKING_SIZES = frozenset({
    "view", "reshape", "expand", "permute", "repeat", "tile", "flip", "zeros", "ones", "empty", "rand", "randn",
    "new_zeros", "new_ones", "new_empty", "sum", "mean", "amax", "amin", "unflatten", "resize_", "movedim",
})  # fmt: skip


def _unique(kwargs: Mapping[str, Type]) -> Type:
    more = sum(name in kwargs for name in ("return_inverse", "return_counts"))
    return TupleType((TENSOR,) * (1 + more)) if more else TENSOR


def _has_hash(function: Any) -> bool:
    return type(function).__hash__ is not None


@functools.lru_cache(4096)
def _schemas(name: str) -> tuple[Any, ...]:
    return tuple(torch._C._jit_get_schemas_for_operator(name))


def _result(schemas: Sequence[Any], args: Sequence[Type], kwargs: Mapping[str, Type]) -> Type:
    """What the first overload that takes the arguments gives; else what all of them give; else a tensor."""
    for schema in schemas:
        if _takes(schema, args, kwargs):
            return _returned(schema)
    every = {_returned(schema) for schema in schemas if not str(schema.overload_name).endswith("out")}
    return next(iter(every)) if len(every) == 1 else TENSOR


def _takes(schema: Any, args: Sequence[Type], kwargs: Mapping[str, Type]) -> bool:
    parameters = list(signature_of_schema(schema).parameters.values())
    by_name = {parameter.name: parameter for parameter in parameters}
    places = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    given: dict[str, Type] = {}
    for i, arg in enumerate(args):
        if i >= len(places):
            return False
        wanted = _wanted(places[i].annotation)
        rest = args[i:]
        if wanted == _SIZES and len(rest) > 1 and i == len(places) - 1 and all(resolved(kind) is INT for kind in rest):
            given[places[i].name] = _SIZES
            break
        given[places[i].name] = arg
    for name, kind in kwargs.items():
        name = name if name in by_name else {"dim": "dim", "axis": "dim", "keepdims": "keepdim"}.get(name, name)
        if name not in by_name or name in given:
            return False
        given[name] = kind
    missing = [each for each in parameters if each.default is inspect.Parameter.empty and each.name not in given]
    return not missing and all(_fits(by_name[name].annotation, kind) for name, kind in given.items())


@functools.lru_cache(1024)
def _wanted(annotation: Any) -> Type:
    return type_from_annotation(annotation) or ANY


def _fits(annotation: Any, given: Type) -> bool:
    wanted, given = without_none(_wanted(annotation)), resolved(given)
    if given is NONE:
        return isinstance(_wanted(annotation), OptionalType)
    given = without_none(given)
    if wanted == _SIZES or (isinstance(wanted, ListType) and wanted.item is FLOAT):
        is_pair = isinstance(given, TupleType) and all(is_number(item) for item in given.items)
        return is_pair or is_number(given) or (isinstance(given, ListType) and accepts(wanted, given))
    if isinstance(wanted, ListType) and isinstance(given, TupleType):
        return all(_accepts(wanted.item, item) for item in given.items)
    return _accepts(wanted, given)


def _accepts(wanted: Type, given: Type) -> bool:
    if wanted is NUMBER or wanted is FLOAT:
        return is_number(given)
    if wanted is INT:
        return given in (INT, BOOL, NUMBER, DTYPE) or isinstance(given, ObjectType)
    if wanted is BOOL:
        return given is BOOL
    return accepts(wanted, given)


@functools.lru_cache(4096)
def _returned_text(text: str) -> Type:
    schema = _SCHEMAS[text]
    returns = [(result.name, result.type) for result in schema.returns]
    signature = signature_of_schema(schema).return_annotation
    if not returns:
        return NONE
    if len(returns) == 1:
        kind = type_from_annotation(signature)
        return ANY if kind is None else INT if kind == NUMBER and schema.name == "aten::size" else kind
    kinds = tuple([type_from_annotation(one) or ANY for one in signature])
    names = tuple([name or "" for name, _ in returns])
    return TupleType(kinds, None, names if all(names) else ())


_SCHEMAS: dict[str, Any] = {}


def _returned(schema: Any) -> Type:
    text = str(schema)
    _SCHEMAS.setdefault(text, schema)
    return _returned_text(text)


@functools.lru_cache(1024)
def _annotated_result(function: Callable[..., Any]) -> Type | None:
    """What a function written in Python is annotated to return."""
    try:
        hint = typing.get_type_hints(inspect.unwrap(function)).get("return")
    except Exception:  # no annotations, or names that only a type checker knows
        return None
    return None if hint is None else type_from_annotation(hint)


def annotated_method_result(kind: type, name: str) -> Type | None:
    """What a method of a class is annotated to return."""
    method = getattr(kind, name, None)
    return None if method is None else _annotated_result(method)

"""Which operator of torch a function is, and the signatures of its overloads.

PyTorch's dispatcher knows every operator by name (`aten::add`) with a schema for each overload. A Python function
leads there in one of two ways: `torch.ops` objects carry their schemas, and functions written in C are known by the
place where torch keeps them (`torch.add`, `torch._C._nn.gelu`).
"""

from __future__ import annotations

import enum
import functools
import inspect
import keyword
import numbers
import types
from collections.abc import Callable
from typing import Any, Dict, List, Optional, Tuple, TypeVar  # noqa: UP035

import torch

Schema = Any  # torch.FunctionSchema


# ---- from a function to its schemas


def operator_name(function: Callable[..., Any]) -> str | None:
    """The dispatcher's name of an operator, or None for a function that is none.

    >>> operator_name(torch.add), operator_name(torch.ops.aten.add.Tensor), operator_name(torch.special.expit)
    ('aten::add', 'aten::add', 'aten::special_expit')
    >>> operator_name(len) is None
    True
    """
    if isinstance(function, torch._ops.OpOverload):
        return str(function._schema.name)
    if isinstance(function, torch._ops.OpOverloadPacket):
        return str(function._qualified_op_name)
    # By identity: two functions of the table may compare equal, and not every target can be hashed.
    return _names_by_id().get(id(function))


def schemas_of(function: Callable[..., Any]) -> list[Schema]:
    """The dispatcher's schemas that a function may mean, in the dispatcher's order; none for what is no operator.

    >>> [schema.overload_name for schema in schemas_of(torch.relu)]
    ['', 'out']
    """
    if isinstance(function, torch._ops.OpOverload):
        return [function._schema]
    name = operator_name(function)
    return [] if name is None else list(torch._C._jit_get_schemas_for_operator(name))


# Where functions written in C live that are operators under the name that they have there.
_HOMES: tuple[Any, ...] = (
    torch,
    torch.nn.functional,
    *(getattr(torch._C, name) for name in ("_nn", "_fft", "_linalg", "_special", "_nested", "_sparse")),
)
# Written in Python, and yet one operator each.
_IN_PYTHON = ("split", "einsum", "broadcast_tensors", "cartesian_prod", "block_diag", "chain_matmul",
              "meshgrid", "stft", "istft", "atleast_1d", "atleast_2d", "atleast_3d", "unravel_index")  # fmt: skip


@functools.cache
def _names_by_id() -> dict[int, str]:
    known = {str(schema.name) for schema in torch._C._jit_get_all_schemas()}
    names: dict[int, str] = {}
    for home in _HOMES:
        for attribute in dir(home):
            value, name = getattr(home, attribute), f"aten::{attribute}"
            if isinstance(value, types.BuiltinFunctionType) and name in known:
                names.setdefault(id(value), name)
    for function in _IN_PYTHON:
        names[id(getattr(torch, function))] = f"aten::{function}"
    return names


# ---- from a schema to a signature


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of an operator's overloads as Python sees them, or None for what is no operator.

    With `return_schemas`, the signatures and the dispatcher's schemas, in the same order, as a pair.

    >>> for signature in get_signature_for_torch_op(torch.relu):
    ...     print(signature)
    (input: torch.Tensor) -> torch.Tensor
    (input: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor
    """
    schemas = schemas_of(op)
    if not schemas:
        return (None, None) if return_schemas else None
    signatures = [signature_of_schema(schema) for schema in schemas]
    return (signatures, schemas) if return_schemas else signatures


def signature_of_schema(schema: Schema) -> inspect.Signature:
    """Write a schema as a signature: `self` is called `input`, types become annotations.

    >>> print(signature_of_schema(torch.ops.aten.add.Tensor._schema))
    (input: torch.Tensor, other: torch.Tensor, *, alpha: numbers.Number = 1) -> torch.Tensor
    """
    key = str(schema)
    signature = _SIGNATURES.get(key)
    if signature is None:
        signature = _SIGNATURES[key] = _new_signature(schema)
    return signature


_SIGNATURES: dict[str, inspect.Signature] = {}  # by the text of the schema, of which there are some thousands


def _new_signature(schema: Schema) -> inspect.Signature:
    parameters = []
    taken = {argument.name for argument in schema.arguments}
    positional: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if any(keyword.iskeyword(name) for name in taken):  # `from` can be given by position alone
        positional = inspect.Parameter.POSITIONAL_ONLY
    for argument in schema.arguments:
        kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else positional
        name = "input" if argument.name == "self" and "input" not in taken else argument.name
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=python_type_of(argument.type)))
    returns = [python_type_of(result.type) for result in schema.returns]
    answer: Any = None if not returns else returns[0] if len(returns) == 1 else tuple(returns)
    return inspect.Signature(parameters, return_annotation=answer)


t = TypeVar("t")  # the dispatcher's name for any type that is the same one everywhere
_ATOMS = {
    "Tensor": torch.Tensor, "int": int, "SymInt": int, "float": float, "bool": bool, "complex": complex, "str": str,
    "number": numbers.Number, "Device": torch.device, "Generator": torch.Generator, "QScheme": torch.qscheme,
    "Storage": torch.storage.UntypedStorage, "NoneType": type(None), "AnyEnumType": enum.Enum, "t": t,
}  # fmt: skip


def python_type_of(kind: Any) -> Any:
    """The annotation for a type of the dispatcher; Any for types that Python does not have.

    >>> schema = torch.ops.aten.cat.default._schema
    >>> [python_type_of(argument.type) for argument in schema.arguments]
    [typing.List[torch.Tensor], <class 'int'>]
    """
    shape = kind.kind()
    if shape == "OptionalType":
        return Optional[python_type_of(kind.getElementType())]  # noqa: UP045 - spelled as the rest of torch prints it
    if shape == "ListType":
        return List[python_type_of(kind.getElementType())]  # type: ignore[misc]  # noqa: UP006
    if shape == "DictType":
        return Dict[python_type_of(kind.getKeyType()), python_type_of(kind.getValueType())]  # type: ignore[misc]  # noqa: UP006
    if shape == "TupleType":
        return Tuple[tuple(python_type_of(element) for element in kind.elements())]  # noqa: UP006
    return _ATOMS.get(str(kind), Any)

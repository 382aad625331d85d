"""Arguments in one form: by the names of the parameters, defaults filled in.

Operators are bound against the overloads that the dispatcher knows, Python functions and torch.nn's modules against
their signatures.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._jit_internal import boolean_dispatched

from graphwright.errors import GraphError
from graphwright.ir import qualified_name
from graphwright.ops.annotations import type_matches
from graphwright.ops.schemas import get_signature_for_torch_op

Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def normalize_function(
    target: Callable[..., Any],
    args: Arguments,
    kwargs: Keywords | None = None,
    arg_types: Arguments | None = None,
    kwarg_types: Keywords | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Fill in the defaults of a call; what is given by position stays so, unless only keywords are asked for.

    The values may be anything, nodes for instance. Where several overloads of an operator take so many arguments
    under these names, `arg_types` and `kwarg_types` choose the first whose annotations they fit. None for a target
    whose parameters are not known or not all nameable, and for a call that no overload takes.

    Raises AssertionError for a target that is no function, TypeError where a Python function does not take the
    arguments, GraphError (a RuntimeError) where several overloads would and no types were given.

    >>> normalize_function(torch.nn.functional.relu, (1,))
    ArgsKwargsPair(args=(1,), kwargs={'inplace': False})
    >>> normalize_function(torch.ops.aten.sum.dim_IntList, (1, [0]), normalize_to_only_use_kwargs=True)
    ArgsKwargsPair(args=(), kwargs={'input': 1, 'dim': [0], 'keepdim': False, 'dtype': None})
    """
    if not callable(target):
        raise AssertionError(f"the target must be callable, got {type(target)}: {target!r}")
    kwargs = kwargs or {}
    if not isinstance(target, types.BuiltinFunctionType | torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        signature = _python_signature(target)
        return None if signature is None else _bound(signature, args, kwargs, normalize_to_only_use_kwargs)
    fitting = [one for one in get_signature_for_torch_op(target) or () if _nameable(one) and _takes(one, args, kwargs)]
    if len(fitting) > 1:
        if arg_types is None and kwarg_types is None:
            raise GraphError(
                f"Tried to normalize arguments to {qualified_name(target)} but the schema match was ambiguous! Please "
                "provide argument types to the normalize_arguments() call. Available schemas:\n"
                + "\n".join(map(str, fitting))
            )
        fitting = [one for one in fitting if _types_fit(one, arg_types or (), kwarg_types or {})]
    return _bound(fitting[0], args, kwargs, normalize_to_only_use_kwargs) if fitting else None


def normalize_module(
    root: nn.Module,
    target: str,
    args: Arguments,
    kwargs: Keywords | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Fill in the defaults of a call of a submodule of `root`; None where its class is not one of torch.nn's own.

    Raises GraphError (a RuntimeError) where there is no such submodule, TypeError where it does not take the arguments.

    >>> normalize_module(nn.Sequential(nn.ReLU()), "0", (1,), normalize_to_only_use_kwargs=True)
    ArgsKwargsPair(args=(), kwargs={'input': 1})
    """
    try:
        module = root.get_submodule(target)
    except AttributeError:
        raise GraphError(f"Tried to normalize node with target {target} but root did not have that target!") from None
    if getattr(nn, type(module).__name__, None) is not type(module):
        return None
    signature = _python_signature(module.forward)
    return None if signature is None else _bound(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def check_for_mutable_operation(target: Callable[..., Any], args: Arguments, kwargs: Keywords) -> None:
    """Raise GraphError (a RuntimeError) where the one overload that a call can mean writes to its arguments.

    >>> check_for_mutable_operation(torch.relu_, (1,), {})
    Traceback (most recent call last):
        ...
    graphwright.errors.GraphError: Tried to trace mutable operation aten::relu_(Tensor(a!) self) -> Tensor(a!). ...
    """
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    if not schemas:
        return
    fitting = [schema for signature, schema in zip(signatures, schemas, strict=True) if _takes(signature, args, kwargs)]
    if len(fitting) == 1 and fitting[0].is_mutable:
        raise GraphError(
            f"Tried to trace mutable operation {fitting[0]}. FX only supports functional code, so operations that "
            "mutate operands in-place (e.g. via `out` arguments) are not supported",
            fix="use the operation that gives a new value, or leave check_mutable_operations off",
        )


# ---- signatures


def _python_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of what is written in Python, or None where not every argument can be given by name."""
    if isinstance(function, types.FunctionType):
        return _signature_of_function(function)
    return _read_signature(function)


@functools.lru_cache(1024)
def _signature_of_function(function: types.FunctionType) -> inspect.Signature | None:
    # Functions that return a pair or one value, as a flag says: `F.max_pool2d(x, 2, return_indices=True)`.
    dispatched = boolean_dispatched.get(function)
    if dispatched is None:
        return _read_signature(function)
    on, off = (_read_signature(dispatched[branch]) for branch in ("if_true", "if_false"))
    return on if on is not None and off is not None and list(on.parameters) == list(off.parameters) else None


def _read_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return None
    return signature if _nameable(signature) else None


def _nameable(signature: inspect.Signature) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return all(parameter.kind in kinds for parameter in signature.parameters.values())


# ---- binding


def _takes(signature: inspect.Signature, args: Arguments, kwargs: Keywords) -> bool:
    """Tell whether a signature takes so many arguments under these names."""
    return _misfit(signature, args, kwargs) is None


def _misfit(signature: inspect.Signature, args: Arguments, kwargs: Keywords) -> str | None:
    """Why a call does not fit a signature, or None where it does."""
    parameters = signature.parameters
    names = [name for name, one in parameters.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(args) > len(names):
        return f"Too many positional arguments: expected max {len(names)}, got {len(args)}"
    given = names[: len(args)]
    for name in kwargs:
        if name in given:
            return f"Multiple values for argument {name!r}"
        if name not in parameters or parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            return f"Got an unexpected keyword argument {name!r}"
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given and name not in kwargs:
            return f"Missing required argument {name!r}"
    return None


def _bound(signature: inspect.Signature, args: Arguments, kwargs: Keywords, only_kwargs: bool) -> ArgsKwargsPair:
    """Fill in the defaults of a call that fits the signature; raise TypeError for one that does not."""
    problem = _misfit(signature, args, kwargs)
    if problem is not None:
        raise TypeError(problem)
    values = dict(zip(signature.parameters, args, strict=False))
    for name, parameter in signature.parameters.items():
        if name not in values:
            values[name] = kwargs.get(name, parameter.default)
    if only_kwargs:
        return ArgsKwargsPair((), values)
    return ArgsKwargsPair(tuple(args), dict(list(values.items())[len(args) :]))


def _types_fit(signature: inspect.Signature, arg_types: Arguments, kwarg_types: Keywords) -> bool:
    if not _takes(signature, arg_types, kwarg_types):
        return False
    given = {**dict(zip(signature.parameters, arg_types, strict=False)), **kwarg_types}
    return all(type_matches(signature.parameters[name].annotation, kind) for name, kind in given.items())

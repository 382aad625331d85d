"""Whether an argument of one type fits a parameter annotated with another."""

from __future__ import annotations

import types
import warnings
from typing import Any, Union, get_args, get_origin

import torch


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Tell whether an argument of `argument_type` may be passed where an operator's signature says `signature_type`.

    As operators take them: one int for a list of ints, tuples for lists, a dtype for an int.

    >>> type_matches(list[int], int), type_matches(list[int], tuple[int, int]), type_matches(float, int)
    (True, True, False)
    """
    if signature_type is argument_type or signature_type == argument_type:
        return True
    origin = get_origin(signature_type)
    if origin is Union or origin is types.UnionType:
        return any(type_matches(member, argument_type) for member in get_args(signature_type))
    if origin is list:
        (element,) = get_args(signature_type)
        return _fits_list(element, argument_type)
    if signature_type is int and argument_type is torch.dtype:  # dtypes are numbers to the dispatcher
        return True
    return _is_class(signature_type) and _is_class(argument_type) and issubclass(argument_type, signature_type)


def _fits_list(element: Any, argument_type: Any) -> bool:
    if not _is_class(element):
        return False
    if element is int and argument_type is int:
        return True
    origin = get_origin(argument_type)
    if origin is not list and origin is not tuple:
        return False
    given = [kind for kind in get_args(argument_type) if kind is not Ellipsis]
    if origin is list and not given:
        return False
    return all(_is_class(kind) and issubclass(kind, element) for kind in given)


def _is_class(kind: Any) -> bool:
    return issubclass(type(kind), type)  # not `list[int]`, which says that it is one before Python 3.11


def create_type_hint(x: object) -> object:
    """The annotation for a list or tuple of types: `[int, int]` is `list[int]`; anything else stays as it is.

    Types without a common one among them make `Any`; a list of anything else but types draws a warning.

    >>> create_type_hint([int, bool]), create_type_hint((int, str)), create_type_hint(3)
    (list[int], tuple[typing.Any, ...], 3)
    """
    if type(x) not in (list, tuple):
        return x
    if not all(_is_class(kind) for kind in x):  # type: ignore[attr-defined]
        warnings.warn(f"We were not able to successfully create type hint from the type {x}", stacklevel=2)
        return x
    common: Any = None
    for kind in x:  # type: ignore[attr-defined]
        if common is None or (common is not Any and issubclass(common, kind)):
            common = kind
        elif common is Any or not issubclass(kind, common):
            common = Any
    element = Any if common is None else common
    return list[element] if isinstance(x, list) else tuple[element, ...]  # type: ignore[valid-type]

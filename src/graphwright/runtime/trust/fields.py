"""Attributes that have to be data, read and written: what a value is is known only when the program runs."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn

from graphwright.errors import GraphError
from graphwright.runtime.objects import attributes_of

# Kinds of values that programs may hold but not look into, nor get from others: the machinery of Python.
MACHINERY: tuple[type, ...] = (
    types.GeneratorType, types.FrameType, types.CodeType, types.TracebackType, types.FunctionType, types.MethodType,
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.CoroutineType,
    types.AsyncGeneratorType, types.ModuleType, types.CellType, type, property, classmethod, staticmethod,
)  # fmt: skip


def read_field(value: Any, name: str, *default: Any) -> Any:
    """Read an attribute, `value.name`, that has to be data: no method, class, module or frame.

    Stands for `getattr` in programs that come from a file, for names that are methods of some kinds of values.

    >>> read_field(types.SimpleNamespace(values=3), "values")
    3
    >>> read_field({}, "values")
    Traceback (most recent call last):
    graphwright.errors.GraphError: 'values' of a dict is no data, but a builtin_function_or_method...
    """
    found = getattr(value, name, *default)
    if not _is_data(found):
        raise GraphError(
            f"{name!r} of a {type(value).__name__} is no data, but a {type(found).__name__}: a program that was loaded "
            "from a file may not read it",
            fix="call the method, or load the program from its source",
        )
    return found


def read_attributes(value: Any) -> dict[str, Any]:
    """Read the attributes that an object has of its own and that are data: of no module, class or function.

    Stands for `attributes_of` in programs that come from a file.

    >>> read_attributes(types.SimpleNamespace(width=3, act=len))
    {'width': 3}
    >>> read_attributes(nn.Linear(1, 1))
    Traceback (most recent call last):
    graphwright.errors.GraphError: a program that was loaded from a file may not list the attributes of a Linear...
    """
    if not _is_data(value) or type(value).__module__.partition(".")[0] == "graphwright":
        raise GraphError(
            f"a program that was loaded from a file may not list the attributes of a {type(value).__name__}",
            fix="load the program from its source",
        )
    return {name: item for name, item in attributes_of(value).items() if _is_data(item)}


def _is_data(value: Any) -> bool:
    return not isinstance(value, (*MACHINERY, nn.Module)) and not callable(value)


# What a private attribute of an object may be for a program to read it: a tensor, or a value without parts.
_PLAIN = (torch.Tensor, nn.Parameter, bool, int, float, complex, str, type(None), torch.Size, torch.dtype, torch.device)


def read_private(value: Any, name: str, *default: Any) -> Any:
    """Read an attribute that an object itself has, `value._name`, and that is a tensor, a number or the like.

    Stands for `getattr` of private names in programs that come from a file. What a class has is not looked at, so that
    nothing runs.

    >>> read_private(types.SimpleNamespace(_width=3), "_width")
    3
    >>> read_private(nn.Linear(1, 1), "_parameters")
    Traceback (most recent call last):
    graphwright.errors.GraphError: '_parameters' of a Linear is no tensor or number, but a dict...
    """
    own: dict[str, Any] = getattr(value, "__dict__", {})
    if name not in own and default:
        return default[0]
    found = own.get(name, own)
    if type(found) not in _PLAIN:
        what = f"but a {type(found).__name__}" if name in own else "and it has none itself"
        raise GraphError(
            f"{name!r} of a {type(value).__name__} is no tensor or number, {what}: a program that was loaded from a "
            "file may read no other private attributes",
            fix="load the program from its source",
        )
    return found


def write_data(tensor: Any, name: str, value: Any) -> None:
    """Give a tensor other data of its shape and kind, or a gradient: `tensor.data = value`, `tensor.grad = None`.

    Stands for `setattr` in programs that come from a file. Raises GraphError for all else.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> write_data(weight, "data", torch.zeros(2))
    >>> weight
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    >>> write_data(weight, "data", torch.zeros(3))
    Traceback (most recent call last):
    graphwright.errors.GraphError: a program that was loaded from a file may not set 'data' of a tensor of [2] to one...
    """
    both = tensor, tensor if name == "grad" and value is None else value
    if name not in ("data", "grad") or not all(type(each) in (torch.Tensor, nn.Parameter) for each in both):
        what = f"set {name!r} of a {type(tensor).__name__}"
    elif len({(each.shape, each.dtype, each.device, each.layout) for each in both}) > 1:
        what = f"set {name!r} of a tensor of {list(tensor.shape)} to one of {list(value.shape)}, or of another kind"
    else:
        setattr(tensor, name, value)
        return
    raise GraphError(
        f"a program that was loaded from a file may not {what}", fix="give the tensor data of its own shape and dtype"
    )

"""What a program asks of a dtype: the dtypes that have the same answer, which are as good as the example's.

`x.dtype == torch.float16` is False for three of the four dtypes that floats are computed in, so that a program which
asks nothing else is captured for all of these. Of any other question nothing is known: then the dtype is the example's.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from graphwright.source import Asked, Use

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
LIMITS = frozenset({"bits", "eps", "max", "min", "resolution", "smallest_normal", "tiny"})  # numbers of `torch.finfo`
_MAKES = frozenset({torch.empty, torch.full, torch.ones, torch.zeros})
_UNKNOWN = object()

_OF_DTYPE: dict[str, Callable[[torch.dtype], Any]] = {
    **{name: operator.attrgetter(name) for name in ("is_floating_point", "is_complex", "is_signed", "itemsize")},
    "element_size": operator.attrgetter("itemsize"),
}
_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda dtype, others: dtype in others, "NotIn": lambda dtype, others: dtype not in others,
}  # fmt: skip


def alike(asked: Asked, dtype: torch.dtype, frame: FrameType) -> frozenset[torch.dtype] | None:
    """The dtypes for which a question in the source of a frame has the answer that it has for one; None if unknown."""
    if asked.other is None:
        return alike_for(asked.name, dtype)
    other = _constant(asked.other, frame.f_code, frame.f_globals)
    if not isinstance(other, torch.dtype | frozenset) or isinstance(other, frozenset) != asked.name.endswith("In"):
        return None
    compare = _COMPARES[asked.name]
    return _closed(frozenset(each for each in FLOATS if compare(each, other) == compare(dtype, other)), dtype)


def alike_for(name: str, dtype: torch.dtype) -> frozenset[torch.dtype] | None:
    """The dtypes of which an attribute, or what a method of tensors tells of them, is what it is of one.

    >>> alike_for("is_floating_point", torch.float32) == FLOATS, alike_for("itemsize", torch.float32)
    (True, None)
    """
    read = _OF_DTYPE.get(name)
    return None if read is None else _closed(frozenset(each for each in FLOATS if read(each) == read(dtype)), dtype)


@functools.cache
def _closed(dtypes: frozenset[torch.dtype], dtype: torch.dtype) -> frozenset[torch.dtype] | None:
    """Some dtypes, if what operations make of them is one of them again; None for others, and for one alone.

    With a dtype that is not among them, promotion must go one way: into them, or to that dtype.
    """
    if dtype not in dtypes or len(dtypes) == 1:
        return None
    promoted = torch.promote_types
    for one, other in itertools.product(dtypes, FLOATS):
        results = {promoted(each, other) for each in dtypes}
        is_closed = promoted(one, other) in dtypes if other in dtypes else results <= dtypes or results == {other}
        if not is_closed:
            return None
    return dtypes


def is_read_at_the_call(use: Use, function: FunctionType) -> bool:
    """Tell whether a dtype, where a function uses it so, goes to a call of torch's that a capture has read it itself.

    Where no such call is seen, none has taken place.
    """
    if use.call is None:
        return False
    called = _constant(use.call.func, function.__code__, function.__globals__)
    if called == torch.finfo:  # or what stands for it
        return use.result is not None and use.result.other is None and use.result.name in LIMITS
    place = use.argument
    is_keyword = any((given.value.lineno, given.value.col_offset) == place for given in use.call.keywords)
    return is_keyword and type(called).__hash__ is not None and called in _MAKES


def _constant(expression: ast.expr, code: CodeType, names: dict[str, Any]) -> Any:
    """What an expression names by way of modules, or a set of dtypes that it names; _UNKNOWN for all else."""
    if isinstance(expression, ast.Tuple | ast.List | ast.Set):
        items = [_constant(item, code, names) for item in expression.elts]
        return frozenset(items) if all(isinstance(item, torch.dtype) for item in items) else _UNKNOWN
    if not isinstance(expression, ast.Attribute):
        return _UNKNOWN
    owner = _module(expression.value, code, names)
    return _UNKNOWN if owner is None else vars(owner).get(expression.attr, _UNKNOWN)


def _module(expression: ast.expr, code: CodeType, names: dict[str, Any]) -> ModuleType | None:
    if isinstance(expression, ast.Attribute):
        owner = _module(expression.value, code, names)
        value = None if owner is None else vars(owner).get(expression.attr)
    else:
        is_global = isinstance(expression, ast.Name) and expression.id not in (
            *code.co_varnames, *code.co_cellvars, *code.co_freevars,
        )  # fmt: skip
        value = names.get(expression.id) if isinstance(expression, ast.Name) and is_global else None
    return value if type(value) is ModuleType else None

"""Plain values: numbers, texts, functions, containers of such - told as data that a file holds, and compared."""

from __future__ import annotations

import array
import collections
import copy
import datetime
import enum
import functools
import hashlib
import numbers
import operator
import pathlib
import re
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy
import torch

from graphwright.runtime.inside import inside_of
from graphwright.runtime.objects import MOST_BYTES

_SEQUENCES, _UNORDERED = (list, tuple, collections.deque), (set, frozenset)
BYTES = (bytearray, numpy.ndarray, array.array)
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_NAMES = (*_FUNCTIONS, MethodType, type)
_VALUES = (  # that their text tells, short of the plain ones
    numbers.Number, numpy.generic, bytes, range, slice, torch.device, torch.layout, torch.memory_format,
    datetime.date, datetime.time, datetime.timedelta, pathlib.PurePath, re.Pattern,
    operator.attrgetter, operator.itemgetter, operator.methodcaller,
)  # fmt: skip
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype})
_TOLD_BY_TEXT = (enum.Enum, ModuleType, *_NAMES, *_VALUES)


def spelled(value: Any, constants: Mapping[str, torch.Tensor] = MappingProxyType({})) -> Any:
    """A plain attribute as data that compares, and that a file holds: functions by their names.

    Of a tensor in a container its kind is told, and which of some constants it is.

    >>> ones = torch.ones(2)
    >>> spelled([1, len, ones], {"constant": ones})
    [1, {'function': 'builtins.len'}, {'tensor': ['torch.float32 2', 'constant']}]
    """
    if isinstance(value, torch.Tensor):
        name = next((name for name, constant in constants.items() if constant is value), "")
        return {"tensor": [_kind_of(value), name]}
    if isinstance(value, enum.Enum):
        return {"member": f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"}
    if isinstance(value, _NAMES):
        code = getattr(value, "__code__", None)
        line = "" if code is None else f":{code.co_firstlineno}"
        return _Told(f"{value.__module__}.{value.__qualname__}{line}", getattr(value, "__closure__", None))
    if isinstance(value, BYTES):
        return {"bytes": _bytes_of(value)}
    if isinstance(value, (dict, *_UNORDERED, *_SEQUENCES)):
        if type(value) not in (list, tuple, dict):
            return {"container": [_name_of(type(value)), spelled(_opened(value), constants)]}
        if type(value) is dict:
            return {key: spelled(item, constants) for key, item in value.items()}
        return type(value)([spelled(item, constants) for item in value])
    if isinstance(value, functools.partial):
        return {"partial": [spelled(value.func), spelled(value.args), spelled(value.keywords)]}
    if isinstance(value, ModuleType):
        return {"package": value.__name__}
    if isinstance(value, _VALUES) and type(value) not in (bool, int, float):
        return {"value": f"{type(value).__qualname__}: {value!r}"}
    return value


def for_file(told: Any) -> Any:
    """What `spelled` told, as another process may compare it: functions by their names alone."""
    if isinstance(told, dict):
        return {key: for_file(item) for key, item in told.items()}
    return type(told)(map(for_file, told)) if type(told) in (list, tuple) else told


class _Told(dict[str, str]):
    """A function by its name; in the process that has it by the variables around it as well, which no file holds."""

    __slots__ = ("_cells",)
    __hash__ = None

    def __init__(self, name: str, cells: tuple[CellType, ...] | None) -> None:
        super().__init__(function=name)
        self._cells = cells

    def __eq__(self, other: object) -> bool:
        if dict.__eq__(self, other) is not True:  # also of what is no dict
            return False
        mine, its = self._cells, getattr(other, "_cells", None)
        return mine is its or mine is None or its is None or all(map(_is_alike, mine, its))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __deepcopy__(self, memo: dict[int, Any]) -> _Told:
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _is_alike(one: CellType, other: CellType) -> bool:
    """Tell whether two variables are one, or have one value; of what is not plain, copies have others."""
    try:
        held, other_held = one.cell_contents, other.cell_contents
    except ValueError:  # one has none
        return one is other
    if one is other or held is other_held:
        return True
    are_plain = is_plain(held), is_plain(other_held)
    return is_same(held, other_held) if all(are_plain) else not any(are_plain)


def _opened(value: Any) -> Any:
    """What a container holds, as a plain dict, tuple or list, whatever its class."""
    if isinstance(value, dict):
        return dict(value.items() if type(value) is collections.OrderedDict else dict.items(value))
    if isinstance(value, _UNORDERED):
        return sorted(map(repr, value))
    return tuple(value) if isinstance(value, tuple) else [*value]


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def is_atom(value: Any) -> bool:
    """Tell whether a value, no container, is told by its text or name: an enum's member, a device, a partial function.

    >>> is_atom(len), is_atom(1j), is_atom(functools.partial(max, 2)), is_atom([]), is_atom(object())
    (True, True, True, False, False)
    """
    kind = type(value)
    if kind in _PLAIN:
        return True
    if issubclass(kind, functools.partial):
        return is_atom(value.func) and all(map(_is_plain_part, (*value.args, *value.keywords.values())))
    return issubclass(kind, _TOLD_BY_TEXT)


def is_plain(value: Any) -> bool:
    """Tell whether a value is a number, text or the like, or a container of nothing else."""
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return value is None or type(value) in (bool, int, float, str)


def _bytes_of(value: Any) -> str:
    """What an array, or another place of bytes, holds, in short."""
    if isinstance(value, numpy.ndarray):
        kind = f"{value.dtype} {'x'.join(map(str, value.shape))}"
        return f"{kind}: {hashlib.sha256(value.tobytes()).hexdigest()}"
    return hashlib.sha256(value).hexdigest()


def is_plain_container(value: Any) -> bool:
    """Tell whether a value is a container, of whatever class, of plain values and functions alone, or a small array.

    >>> is_plain_container([1, len]), is_plain_container({1: object()}), is_plain_container(1)
    (True, False, False)
    """
    if isinstance(value, dict):
        return all(map(_is_plain_part, dict.keys(value))) and all(map(_is_plain_part, dict.values(value)))
    if isinstance(value, numpy.ndarray):
        return value.nbytes <= MOST_BYTES and not value.dtype.hasobject
    if isinstance(value, bytearray | array.array):
        return len(memoryview(value).cast("B")) <= MOST_BYTES
    return isinstance(value, (*_SEQUENCES, *_UNORDERED)) and all(map(_is_plain_part, value))


def _is_plain_part(value: Any) -> bool:
    return is_plain(value) or is_atom(value) or is_plain_container(value)


def holds_tensors(value: Any) -> bool:
    """Tell whether a list, tuple, deque or dict holds tensors, and besides them plain values alone."""
    if not isinstance(value, (dict, *_SEQUENCES)):
        return False
    items = dict.values(value) if isinstance(value, dict) else value
    are_tensors = [isinstance(item, torch.Tensor) or holds_tensors(item) for item in items]
    return any(are_tensors) and all(
        known or _is_plain_part(item) for item, known in zip(items, are_tensors, strict=True)
    )


def tensors_inside(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among a value and the items of the lists, tuples and dicts in it, which may hold themselves."""
    waiting, seen = [value], set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple, dict) and id(value) not in seen:
            seen.add(id(value))
            waiting += value.values() if type(value) is dict else value


def copied_around(value: Any) -> Any:
    """A copy of a container, with the very tensors and functions in it, and the methods of the very objects.

    >>> items = [torch.relu, [[].append]]
    >>> copied = copied_around(items)
    >>> copied == items, copied is items
    (True, False)
    """
    return copy.deepcopy(value, {id(kept): kept for kept in _kept_inside(value)})


def _kept_inside(value: Any) -> Iterator[Any]:
    """What is no container, as far as one looks into those that a value holds, which may hold themselves."""
    waiting, seen = [value], set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (torch.Tensor, *_TOLD_BY_TEXT)):
            yield value
        elif isinstance(value, (dict, *_SEQUENCES, *_UNORDERED)) and id(value) not in seen:
            seen.add(id(value))
            waiting += [*value, *value.values()] if isinstance(value, dict) else value


def _kind_of(tensor: torch.Tensor) -> str:
    kind = [] if type(tensor) is torch.Tensor else [type(tensor).__name__]
    return " ".join([str(tensor.dtype), *map(str, tensor.shape), *kind])


def is_told(value: Any, told: Any, constants: Mapping[str, torch.Tensor]) -> bool:
    """Tell whether a value is what `spelled` told of one: with the very constants in it, or the same in a copy."""
    if isinstance(value, torch.Tensor):
        if type(told) is not dict or [*told] != ["tensor"] or told["tensor"][0] != _kind_of(value):
            return False
        constant = constants.get(told["tensor"][1])
        return constant is None or value is constant or _has_values_of(value, constant)
    if type(value) in (list, tuple) and type(told) is type(value):
        return len(value) == len(told) and all(is_told(*pair, constants) for pair in zip(value, told, strict=True))
    if type(value) is dict and type(told) is dict and [*value] == [*told]:  # in their order, in which it may be walked
        return all(is_told(value[key], told[key], constants) for key in value)
    if type(told) is dict and [*told] == ["container"] and isinstance(value, (dict, *_SEQUENCES)):
        name, held = told["container"]
        return _name_of(type(value)) == name and is_told(_opened(value), held, constants)
    return is_same(spelled(value), told)


def fits(value: Any, form: Any) -> bool:
    """Tell whether a value is of a form: a mapping of what kind of form it is to what it says.

    >>> fits([1, "a"], {"of": ["builtins.list", {"0": {"number": ["int"]}, "1": {"is": "a"}}]})
    True
    >>> fits(torch.ones(2), {"or": [{"is": None}, {"tensor": {"ndim": ["1"]}}]}), fits(2.0, {"number": ["int"]})
    (True, False)
    """
    ((kind, said),) = form.items()
    if kind == "there":  # which also says that there is to be one
        return said is None or fits(value, said)
    if kind == "or":
        return any(fits(value, each) for each in said)
    if kind == "tensor":
        said = {"ndim": [str(said)]} if type(said) is int else said or {}  # as older files have it
        is_tensor = issubclass(type(value), torch.Tensor)
        return is_tensor and all(str(getattr(value, name)) in told for name, told in said.items())
    if kind == "number":
        return type(value).__name__ in said
    if kind == "is":
        return is_told(value, said, {})
    name, items = said
    if _name_of(type(value)) != name:
        return False
    held = inside_of(value)
    length = held.pop("len()", None)  # that of a container, whose items are in order
    if items is None:
        return True
    if length is not None and [*held] != [*items]:
        return False
    return all(key in held and fits(held[key], each) for key, each in items.items())


def names_constants(told: Any) -> bool:
    """Tell whether `spelled` told of constants.

    >>> names_constants([1, {"tensor": ["torch.float32 2", "a"]}]), names_constants({"tensor": ["torch.float32 2", ""]})
    (True, False)
    """
    if isinstance(told, dict):
        if [*told] == ["tensor"]:
            return bool(told["tensor"][1])
        return any(map(names_constants, told.values()))
    return type(told) in (list, tuple) and any(map(names_constants, told))


def with_renamed(told: Any, renamed: Mapping[str, str]) -> Any:
    """What `spelled` told, with other names of constants.

    >>> with_renamed([{"tensor": ["torch.float32 2", "a"]}, 1], {"a": "b"})
    [{'tensor': ['torch.float32 2', 'b']}, 1]
    """
    if isinstance(told, dict):
        if [*told] == ["tensor"]:
            kind, name = told["tensor"]
            return {"tensor": [kind, renamed.get(name, name)]}
        return {key: with_renamed(item, renamed) for key, item in told.items()}
    return type(told)([with_renamed(item, renamed) for item in told]) if type(told) in (list, tuple) else told


def _has_values_of(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are of one kind and have the same values, wherever they are."""
    if tensor.shape != other.shape or tensor.dtype != other.dtype or tensor.is_meta or other.is_meta:
        return False  # also of one that a conversion has changed, which the other is not
    if type(tensor) is not type(other) or tensor.requires_grad != other.requires_grad:
        return False
    return torch.equal(tensor.detach().cpu(), other.detach().cpu())


def is_equal(now: Any, was: Any) -> bool:
    """Tell whether two containers are equal, a NaN to a NaN; one with tensors in it now is not what it was."""
    try:
        return bool(now == was) or (isinstance(was, list | tuple | dict | float) and is_same(now, was))
    except (RuntimeError, ValueError):
        return False


def has_the_very(now: Any, was: Any) -> bool:
    """Tell whether a container has the very items that a copy of it has: long ones are seldom other ones.

    >>> row = [1, 2.5]
    >>> has_the_very(row, [*row]), has_the_very(row, [1.0, 2.5])
    (True, False)
    """
    kind = type(now)
    if kind is not type(was) or len(now) != len(was):
        return False
    if kind is dict:
        return all(map(operator.is_, now, was)) and all(map(operator.is_, now.values(), was.values()))
    return kind in (list, tuple) and all(map(operator.is_, now, was))


def kinds_in(value: Any) -> list[Any]:
    """What equal containers may differ in: order, their class, and those of items, as 1 and 1.0, or 0.0 and -0.0.

    >>> kinds_in([1, -0.0]), kinds_in({"b": 1}), kinds_in([[2]])
    ([<class 'int'>, '-0.0'], ['b', <class 'int'>], [[<class 'int'>]])
    """
    items = value.values() if isinstance(value, dict) else value if isinstance(value, _SEQUENCES) else ()
    kinds = [
        kinds_in(item) if isinstance(item, _OPEN) else repr(item) if type(item) is float and not item else type(item)
        for item in items
    ]
    own = [] if type(value) in _OPEN else [type(value)]
    return [*own, *value, *kinds] if isinstance(value, dict) else [*own, *kinds]


_OPEN = (dict, *_SEQUENCES)


def is_same(now: Any, was: Any) -> bool:
    """Tell whether two values are of one class and say the same, down to what is in them: the very tensors."""
    if isinstance(now, _Told):
        return bool(now == was)
    if type(now) is not type(was):
        return False
    if isinstance(was, list | tuple):
        return len(now) == len(was) and all(map(is_same, now, was))
    if isinstance(was, dict):
        return [*now] == [*was] and all(is_same(now[key], held) for key, held in was.items())
    if type(was) is float:
        return bool(now.hex() == was.hex())  # of 0.0 and -0.0, which are equal
    return now is was or (not isinstance(was, torch.Tensor) and is_equal(now, was))

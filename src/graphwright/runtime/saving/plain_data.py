"""Values as plain data for a file: what JSON has, and a small dict with one key for everything else.

`{"tuple": [...]}`, `{"dtype": "float32"}`, `{"name": "torch.nn:Linear"}`, `{"enum": ["pkg.module:Kind", "FIRST"]}`.
What can change - lists, dicts, sets, objects - is written once, into a table, so that two places which share it share
it again after loading: `{"at": 3}`. Nothing is called to read a value but the constructors named in this file, and
`object.__new__`, `dict.__new__`, ... of the class of an object.
"""

from __future__ import annotations

import collections
import enum
import functools
import math
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn

from graphwright.errors import LoadError
from graphwright.ir import immutable_dict, immutable_list
from graphwright.runtime.trust.held import may_be_bound
from graphwright.runtime.trust.kernels import unchecked
from graphwright.runtime.trust.names import Trust, name_of
from graphwright.runtime.trust.sizes import items_in
from graphwright.values import is_named_tuple

_JSON = frozenset({type(None), bool, int, str})
_BASES = (collections.OrderedDict, collections.defaultdict, collections.Counter, dict, list, set, collections.deque)
_FUNCTIONS = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, functools._lru_cache_wrapper,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._C.ScriptFunction,
)  # fmt: skip
_NUMPY_NUMBERS = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
})  # fmt: skip
_MOST_ALIKE = 1_000  # keys of one hash
_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class NotPlain(Exception):
    """A value that is no plain data; the message says what it is."""


class PlainWriter:
    """Writes values as plain data. `modules` and `tensors` answer with what stands for a module or tensor."""

    def __init__(self, modules: Callable[[nn.Module], int], tensors: Callable[[torch.Tensor, str], str]) -> None:
        self._modules = modules
        self._tensors = tensors
        self.trust = Trust(everything=True)
        self.table: list[Any] = []
        self.left_out: list[str] = []
        self.missing: set[tuple[int, str]] = set()  # attributes of objects that are left out: ids and names
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that no other object gets its id

    def attribute(self, value: Any, path: str) -> Any:
        """Write the value of an attribute. Raises NotPlain, leaving the table as it was."""
        before, named = len(self.table), len(self.left_out)
        try:
            return self.value(value, path)
        except (NotPlain, RecursionError) as error:
            del self.table[before:], self.left_out[named:]
            self._places = {key: place for key, place in self._places.items() if place < before}
            raise NotPlain(str(error)) from error

    def value(self, value: Any, path: str) -> Any:
        """Write a value; `path` is where it was found. Raises NotPlain."""
        kind = type(value)
        if kind in _JSON:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"number": str(value)}
        if kind is tuple:
            return {"tuple": self.items(value, path)}
        if kind is immutable_list:
            return {"list": self.items(value, path)}
        if kind is immutable_dict:
            return {"dict": self.pairs(value, path)}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensors(value, path)}
        if isinstance(value, nn.Module):
            return {"module": self._modules(value)}
        atom = self._atom(value, kind, path)
        return self._changeable(value, kind, path) if atom is None else atom

    def items(self, values: Any, path: str) -> list[Any]:
        """Write the items of a sequence."""
        return [self.value(item, f"{path}[{i}]") for i, item in enumerate(values)]

    def pairs(self, values: Any, path: str) -> list[list[Any]]:
        """Write the items of a dict."""
        return [[self.key(key, path), self.value(item, f"{path}[{key!r}]")] for key, item in values.items()]

    def key(self, key: Any, path: str) -> Any:
        """Write the key of a dict, or the member of a set: not one whose class has a hash of its own."""
        written = self.value(key, path)
        if type(written) is dict and ("at" in written or "module" in written):
            raise NotPlain(f"{_described(key)} as a key")
        return written

    def name(self, value: Any) -> str:
        """Write where a function or class is found. Raises NotPlain for one that no file may name."""
        name = name_of(unchecked(value))
        if name is None:
            raise NotPlain(f"{_described(value)}, which no module holds under a plain name")
        try:
            self.trust.find(name)
        except LoadError as error:
            raise NotPlain(error.message) from None
        return name

    def _value_name(self, value: Any) -> str:
        name = self.name(value)
        try:
            self.trust.find_value(name)
        except LoadError as error:
            raise NotPlain(error.message) from None
        return name

    def _atom(self, value: Any, kind: type, path: str) -> Any:
        """Write what cannot change; None for another value."""
        if kind is complex:
            return {"complex": [self.value(value.real, path), self.value(value.imag, path)]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if value is ...:
            return {"ellipsis": None}
        if kind in (torch.dtype, torch.layout, torch.memory_format):
            return {kind.__name__: str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"device": str(value)}
        if kind is torch.Size:
            return {"size": list(value)}
        if isinstance(value, numpy.number | numpy.bool_) and value.dtype.name in _NUMPY_NUMBERS:
            return {"numpy_number": [value.dtype.name, value.tobytes().hex()]}
        if kind in (slice, range):
            return {kind.__name__: self.items((value.start, value.stop, value.step), path)}
        if kind is frozenset:
            return {"frozenset": [self.key(item, path) for item in sorted(value, key=repr)]}
        if isinstance(value, enum.Enum):
            if type(value).__members__.get(value.name) is not value:
                raise NotPlain(f"{value!r}, a combination of members")
            return {"enum": [self.name(kind), value.name]}
        if kind is functools.partial:
            if not may_be_bound(value, self.trust):
                raise NotPlain(f"a partial of {_described(value.func)} with a function or module as an argument")
            arguments = [self.items(value.args, path), self.pairs(value.keywords, path)]
            return {"partial": [self._value_name(value.func), *arguments]}
        if is_named_tuple(kind):
            return {"named_tuple": [self.name(kind), self.items(value, path)]}
        if isinstance(value, _FUNCTIONS):
            return {"name": self._value_name(value)}
        if isinstance(value, weakref.ref):
            if not isinstance(value(), torch.Tensor | nn.Module):
                raise NotPlain("a weak reference to what is neither a tensor nor a module")
            return {"weak": self.value(value(), path)}
        if isinstance(value, types.MethodType):
            if isinstance(value.__self__, type):
                return {"name": self._value_name(value)}
            return self._method(value)
        return None

    def _method(self, value: types.MethodType) -> Any:
        owner, name = value.__self__, value.__name__
        if not isinstance(owner, nn.Module) or getattr(type(owner), name, None) is not value.__func__:
            raise NotPlain(f"the method {name}, of what is no module")
        try:
            self.trust.check_method(value.__func__)
        except LoadError as error:
            raise NotPlain(error.message) from None
        return {"method": [self._modules(owner), name]}

    def _changeable(self, value: Any, kind: type, path: str) -> Any:
        """Write a list, dict, set or object into the table, once."""
        place = self._places.get(id(value))
        if place is not None:
            return {"at": place}
        entry: dict[str, Any] = {}
        place = self._places[id(value)] = len(self.table)
        self.table.append(entry)
        self._kept.append(value)
        if kind is list:
            entry["list"] = self.items(value, path)
        elif kind is dict:
            entry["dict"] = self.pairs(value, path)
        elif kind is set:
            entry["set"] = [self.key(item, path) for item in sorted(value, key=repr)]
        else:
            self._object(value, kind, path, entry)
        return {"at": place}

    def _object(self, value: Any, kind: type, path: str, entry: dict[str, Any]) -> None:
        base = _base(kind)
        is_library = kind.__module__.partition(".")[0] in sys.stdlib_module_names
        if is_library and kind not in (*_BASES, types.SimpleNamespace):
            raise NotPlain(f"a {kind.__module__}.{kind.__qualname__}")
        if base is None:
            raise NotPlain(f"{_described(value)}, whose state is not in Python")
        entry["class"] = self.name(kind)
        if base is collections.defaultdict:
            entry["factory"] = None if value.default_factory is None else self._value_name(value.default_factory)
        if issubclass(base, dict):
            entry["dict"] = self.pairs(dict(dict.items(value)), path)
        elif base in (list, set, collections.deque):
            items = list(base.__iter__(value))
            write = self.key if base is set else self.value
            entry[base.__name__] = [write(item, path) for item in (sorted(items, key=repr) if base is set else items)]
        if base is collections.deque:
            entry["maxlen"] = collections.deque.maxlen.__get__(value)
        attributes = entry["attributes"] = {}
        for name, item in state_of(value).items():
            where = f"{path}.{name}"
            try:
                attributes[_plain(name)] = self.attribute(item, where)
            except NotPlain as error:
                self.left_out.append(f"{where}: {error}")
                self.missing.add((id(value), name))


class PlainReader:
    """Reads what `PlainWriter` wrote. `modules`, `tensors` and `nodes` are what their names and numbers stand for."""

    def __init__(self, table: Any, trust: Trust, modules: list[nn.Module], tensors: dict[str, torch.Tensor]) -> None:
        self._trust = trust
        self._modules = modules
        self._tensors = tensors
        self._entries = [_checked(entry, dict) for entry in _checked(table, list)]
        self._partials: list[functools.partial[Any]] = []
        self.held = items_in(table)
        self._made: list[Any] = [self._new(entry) for entry in self._entries]  # empty: they may mention each other
        for entry, made in zip(self._entries, self._made, strict=True):
            self._fill(entry, made)

    def value(self, data: Any) -> Any:
        """Read a value. Raises LoadError for what is none."""
        if type(data) in _JSON or type(data) is float:
            return data
        if type(data) is not dict or len(data) != 1:
            raise damaged(f"{_short(data)} is no value")
        ((tag, content),) = data.items()
        read = getattr(self, f"_read_{tag}", None) if tag in _TAGS else None
        if read is None:
            raise damaged(f"{_short(tag)} is no kind of value")
        try:
            return read(content)
        except LoadError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
            raise damaged(f"{_short(data)} is no value: {error}") from error

    def attributes(self, data: Any) -> dict[str, Any]:
        """Read attributes by name."""
        return {plain_name(name): self.value(item) for name, item in _checked(data, dict).items()}

    def module(self, number: Any) -> nn.Module:
        """The module of this number."""
        if type(number) is not int or not 0 <= number < len(self._modules):
            raise damaged(f"there is no module {_short(number)}")
        return self._modules[number]

    def tensor(self, name: Any) -> torch.Tensor:
        """The tensor of this name."""
        if not isinstance(name, str) or name not in self._tensors:
            raise damaged(f"there is no tensor {_short(name)}")
        return self._tensors[name]

    def check_partials(self) -> None:
        """Refuse a partial that hands on what no program may have. Raises LoadError; all objects must be filled."""
        for made in self._partials:
            if not may_be_bound(made, self._trust):
                raise damaged(f"{_short(made.func)} has a function or module as an argument that is there already")

    def items(self, data: Any) -> list[Any]:
        """Read the items of a sequence."""
        return [self.value(item) for item in _checked(data, list)]

    def pairs(self, data: Any) -> dict[Any, Any]:
        """Read the items of a dict."""
        pairs = [(self.key(key), self.value(item)) for key, item in _checked(data, list)]
        check_keys([key for key, _ in pairs])
        return dict(pairs)

    def keys(self, data: Any) -> list[Any]:
        """Read the members of a set."""
        keys = [self.key(item) for item in _checked(data, list)]
        check_keys(keys)
        return keys

    def key(self, data: Any) -> Any:
        """Read the key of a dict, or the member of a set."""
        if type(data) is dict and ("at" in data or "module" in data):
            raise damaged(f"{_short(data)} is no key")
        return self.value(data)

    # ---- one method per kind of value

    def _read_number(self, data: Any) -> float:
        return _NUMBERS[data]

    def _read_tuple(self, data: Any) -> tuple[Any, ...]:
        return tuple(self.items(data))

    def _read_list(self, data: Any) -> list[Any]:
        return immutable_list(self.items(data))

    def _read_dict(self, data: Any) -> dict[Any, Any]:
        return immutable_dict(self.pairs(data))

    def _read_frozenset(self, data: Any) -> frozenset[Any]:
        return frozenset(self.keys(data))

    def _read_complex(self, data: Any) -> complex:
        return complex(*[float(part) for part in self.items(data)])

    def _read_bytes(self, data: Any) -> bytes:
        return bytes.fromhex(data)

    def _read_ellipsis(self, data: Any) -> Any:
        return ...

    def _read_dtype(self, data: Any) -> Any:
        return _torch_value(data, torch.dtype)

    def _read_layout(self, data: Any) -> Any:
        return _torch_value(data, torch.layout)

    def _read_memory_format(self, data: Any) -> Any:
        return _torch_value(data, torch.memory_format)

    def _read_device(self, data: Any) -> torch.device:
        return torch.device(_checked(data, str))

    def _read_size(self, data: Any) -> torch.Size:
        return torch.Size([_checked(number, int) for number in data])

    def _read_numpy_number(self, data: Any) -> Any:
        kind, content = data
        if kind not in _NUMPY_NUMBERS:
            raise damaged(f"{_short(kind)} is no kind of number of NumPy's")
        (number,) = numpy.frombuffer(bytes.fromhex(content), kind)
        return number

    def _read_slice(self, data: Any) -> slice:
        start, stop, step = self.items(data)
        return slice(start, stop, step)

    def _read_range(self, data: Any) -> range:
        return range(*[_checked(number, int) for number in data])

    def _read_name(self, data: Any) -> Any:
        return self._trust.find_value(data)

    def _read_method(self, data: Any) -> Any:
        number, name = data
        owner = self.module(number)
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
            raise damaged(f"{_short(name)} is no name of a method")
        function = getattr(type(owner), name)
        if not isinstance(function, types.FunctionType):
            raise damaged(f"{name} is no method")
        self._trust.check_method(function)
        return types.MethodType(function, owner)

    def _read_enum(self, data: Any) -> Any:
        name, member = data
        kind = self._trust.find(name, is_class=True)
        if not issubclass(kind, enum.Enum):
            raise damaged(f"{name} is no enumeration")
        return kind.__members__[member]

    def _read_partial(self, data: Any) -> Any:
        name, args, kwargs = data
        keywords = {plain_name(key): item for key, item in self.pairs(kwargs).items()}
        made = functools.partial(self._read_name(name), *self.items(args), **keywords)
        self._partials.append(made)
        return made

    def _read_named_tuple(self, data: Any) -> Any:
        name, items = data
        kind = self._trust.find(name, is_class=True)
        if not is_named_tuple(kind):
            raise damaged(f"{name} is no NamedTuple")
        return tuple.__new__(kind, self.items(items))

    def _read_weak(self, data: Any) -> Any:
        value = self.value(data)
        if not isinstance(value, torch.Tensor | nn.Module):
            raise damaged("a weak reference leads to what is neither a tensor nor a module")
        return weakref.ref(value)

    def _read_tensor(self, data: Any) -> torch.Tensor:
        return self.tensor(data)

    def _read_module(self, data: Any) -> nn.Module:
        return self.module(data)

    def _read_at(self, data: Any) -> Any:
        if type(data) is not int or not 0 <= data < len(self._made):
            raise damaged(f"there is no object {_short(data)}")
        return self._made[data]

    # ---- the table

    def _new(self, entry: dict[str, Any]) -> Any:
        if "class" not in entry:
            kinds = [kind for kind in (list, dict, set) if kind.__name__ in entry]
            if len(kinds) != 1:
                raise damaged(f"{_short(entry)} is no list, dict, set or object")
            return kinds[0]()
        kind = self._trust.find(entry["class"], is_class=True)
        base = _base(kind)
        if base is None or issubclass(kind, nn.Module | type):
            raise damaged(f"a {kind.__qualname__} cannot be made from plain data")
        made = base.__new__(kind)
        if base is collections.defaultdict:
            factory = entry.get("factory")
            made.default_factory = None if factory is None else self._read_name(factory)
        if base is collections.deque:
            longest = entry.get("maxlen")
            if longest is not None and (type(longest) is not int or longest < 0):
                raise damaged(f"{_short(longest)} is no length of a deque")
            collections.deque.__init__(made, (), longest)
        return made

    def _fill(self, entry: dict[str, Any], made: Any) -> None:
        if isinstance(made, list):
            list.extend(made, self.items(entry.get("list", [])))
        elif isinstance(made, set):
            set.update(made, self.keys(entry.get("set", [])))
        elif isinstance(made, collections.deque):
            collections.deque.extend(made, self.items(entry.get("deque", [])))
        elif isinstance(made, collections.OrderedDict):
            for key, item in self.pairs(entry.get("dict", [])).items():
                collections.OrderedDict.__setitem__(made, key, item)
        elif isinstance(made, dict):
            dict.update(made, self.pairs(entry.get("dict", [])))
        slots = _slots(type(made))
        for name, item in self.attributes(entry.get("attributes", {})).items():
            if name in slots:
                slots[name].__set__(made, item)
            else:
                object.__getattribute__(made, "__dict__")[name] = item  # its class may have an idea of its own


_TAGS = frozenset(name.removeprefix("_read_") for name in dir(PlainReader) if name.startswith("_read_"))


def damaged(message: str) -> LoadError:
    """The error for a file whose content is none that `save` writes."""
    return LoadError(f"the file is damaged: {message}", fix="save the model again")


def check_keys(keys: list[Any]) -> None:
    """Refuse keys that were chosen to have one hash, which a dict or set compares each with each. Raises LoadError."""
    if len(keys) > _MOST_ALIKE and max(collections.Counter(map(hash, keys)).values()) > _MOST_ALIKE:
        raise damaged(f"more than {_MOST_ALIKE} keys of a dict or set have the same hash")


def is_member_name(name: Any) -> bool:
    """Tell whether this may name a parameter, buffer or submodule: it stays on its line, and in quotes.

    Not one of Python's own. What torch makes of modules has their names in its code, in quotes, as they are.
    """
    if not isinstance(name, str) or (name.startswith("__") and name.endswith("__")):
        return False
    return bool(name) and name.isprintable() and not set(name) & {".", "'", '"', "\\"}


def is_plain_name(name: Any) -> bool:
    """Tell whether this may name an attribute or keyword: an identifier, and not one of Python's own."""
    return isinstance(name, str) and name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


def plain_name(name: Any) -> str:
    """Return the name of an attribute or keyword, checked."""
    if not is_plain_name(name):
        raise damaged(f"{_short(name)} is no name of an attribute")
    return name  # type: ignore[no-any-return]


def _plain(name: str) -> str:
    if not is_plain_name(name):
        raise NotPlain("its name is none of an attribute")
    return name


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object by name, those in slots included."""
    state = {}
    for name, slot in _slots(type(value)).items():
        try:
            state[name] = slot.__get__(value)
        except AttributeError:
            continue
    state.update(getattr(value, "__dict__", {}))
    return state


def _slots(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        for name, member in base.__dict__.items():
            is_slot = isinstance(member, types.MemberDescriptorType) and name not in ("__dict__", "__weakref__")
            if is_slot and base.__module__ != "builtins":
                found.setdefault(name, member)
    return found


def _base(kind: type) -> Any:
    """The built-in class whose `__new__` makes an object of this class; None where that or its end runs code."""
    if hasattr(kind, "__del__"):
        return None
    for base in (*_BASES, types.SimpleNamespace, object):
        if issubclass(kind, base):
            try:
                base.__new__(kind)
            except TypeError:
                return None
            return base
    return None


def _torch_value(name: Any, kind: type) -> Any:
    value = getattr(torch, name, None) if isinstance(name, str) and name.isidentifier() else None
    if type(value) is not kind:
        raise damaged(f"{_short(name)} is no {kind.__name__} of torch")
    return value


def _checked(data: Any, kind: type) -> Any:
    if type(data) is not kind:
        raise damaged(f"expected a {kind.__name__}, found {_short(data)}")
    return data


def _short(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 80 else f"{text[:76]} ..."


def _described(value: Any) -> str:
    if isinstance(value, type | types.FunctionType):
        return f"{'the class' if isinstance(value, type) else 'the function'} {value.__module__}.{value.__qualname__}"
    return f"a {type(value).__module__}.{type(value).__qualname__}"

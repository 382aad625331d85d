"""Names of values: legal, unique in their graph, telling."""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

# Names that generated code uses for itself; a value of that name would hide them.
_GENERATED_CODE_USES = ("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree")
_RESERVED = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | frozenset(_GENERATED_CODE_USES)
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")


def is_reserved(name: str) -> bool:
    """Tell whether a value may not have this name: keywords, builtins, and what generated code itself uses."""
    return name in _RESERVED


@functools.lru_cache(4096)
def is_parameter(name: str) -> bool:
    """Tell whether a parameter may have this name: Python's parser reads it as a name, and as this one.

    >>> is_parameter("len"), is_parameter("class"), is_parameter("\\uff4cen")
    (True, False, False)
    """
    is_read = name.isascii() or unicodedata.normalize("NFKC", name) == name
    return name.isidentifier() and is_read and not keyword.iskeyword(name) and name != "__debug__"


def is_computed(holder: object, name: str) -> bool:
    """Tell whether a property of its class computes an attribute at each read, as that of a parametrization does.

    Looking at a program must not read such an attribute: what it runs may draw, count or change buffers.

    >>> is_computed(1, "real"), is_computed(type("Circle", (), {"area": property(len)})(), "area")
    (False, True)
    """
    kind = type(holder)
    if not isinstance(getattr(kind, name, None), property):
        return False
    return isinstance(inspect.getattr_static(kind, name), property)  # what is computed once may only say that it is one


def on_the_way(holder: Any, name: str) -> Any:
    """What a path goes on from: also a submodule before which something of its class stands, as in
    `self.parameters = nn.ParameterList(...)`. Raises AttributeError where there is nothing.
    """
    if hasattr(type(holder), name) and name in getattr(holder, "_modules", ()):
        return holder._modules[name]
    return getattr(holder, name)


def has_reserved(names: Iterable[str]) -> bool:
    """Tell whether one of the names is reserved."""
    return not _RESERVED.isdisjoint(names)


@functools.lru_cache(4096)
def snake_case(name: str) -> str:
    """Write a name in lower case with underscores between its words.

    >>> snake_case("fooBar2Baz"), snake_case("HTTPServer")
    ('foo_bar2baz', 'httpserver')
    """
    out = []
    for i, char in enumerate(name):
        if i and char.isupper() and not name[i - 1].isupper() and name[i - 1].isalpha():
            out.append("_")
        out.append(char.lower())
    return "".join(out)


@functools.lru_cache(4096)
def _stem(name: str) -> str:
    """The name that a value made by a function or attribute of this name starts from."""
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return snake_case(name)


def candidate_for(target: object) -> str:
    """Derive a value's name from what made it: `torch.relu` -> relu, "layer1.0.conv" -> layer1_0_conv."""
    if isinstance(target, str):
        return _stem(target)
    target = source_of(target)
    return snake_case(getattr(target, "__name__", None) or type(target).__name__)


def source_of(function: Any) -> Any:
    """The function of Python's that TorchScript has compiled a function from, which has its name; others are their own.

    >>> source_of(len)
    <built-in function len>
    """
    is_scripted = type(function).__name__ == "ScriptFunction"
    return getattr(function, "_torchdynamo_inline", function) if is_scripted else function


@functools.lru_cache(16384)
def _parsed(candidate: str) -> tuple[str, str, int | None]:
    """Make a candidate a legal name, and part it: relu_7 into the stem relu and the number 7."""
    if not (candidate.isidentifier() and candidate.isascii()):
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = "_" + candidate
    stem, _, digits = candidate.rpartition("_")
    if stem and digits.isdigit():
        return candidate, stem, int(digits)
    return candidate, candidate, None


class Namespace:
    """The names taken in one graph.

    `create` answers with the candidate where it is legal and free, else with the candidate and the next number.

    >>> names = Namespace()
    >>> [names.create(name) for name in ("relu", "relu", "len", "1.weight", "relu_7", "relu")]
    ['relu', 'relu_1', 'len_1', '_1_weight', 'relu_7', 'relu_8']
    """

    __slots__ = ("_last", "_taken")

    def __init__(self) -> None:
        self._taken: dict[str, None] = {}  # a dict of texts takes half of the memory that a set does
        self._last: dict[str, int] = {}  # stem -> the highest number given to it so far

    def create(self, candidate: str) -> str:
        """Take a name for a new value and return it."""
        taken = self._taken
        name, stem, number = _parsed(candidate)
        if name in taken or name in _RESERVED:
            number = self._last.get(stem, 0) + 1
            name = f"{stem}_{number}"
            while name in taken or name in _RESERVED:
                number += 1
                name = f"{stem}_{number}"
        if number is not None:
            self._last[stem] = number
        taken[name] = None
        return name

    def create_name(self, candidate: str, obj: object) -> str:
        """Take a name; as torch.fx calls it, with the object that gets the name."""
        return self.create(candidate)

    def associate_name_with_obj(self, name: str, obj: object) -> None:
        """Mark a name as that of an object."""
        self.take(name)

    def take(self, *names: str) -> None:
        """Mark names as taken without making them unique."""
        self._taken.update(dict.fromkeys(names))

    def release(self, name: str) -> None:
        """Free a name whose value was renamed."""
        self._taken.pop(name, None)

    def take_back(self, name: str) -> None:
        """Free a name that was just made, as if it had not been."""
        self._taken.pop(name, None)
        _, stem, number = _parsed(name)
        if number is not None and self._last.get(stem) == number:
            self._last[stem] = number - 1

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def copy(self) -> Namespace:
        """Return a namespace with the same names taken and the same counters."""
        other = Namespace()
        other._taken = self._taken.copy()
        other._last = dict(self._last)
        return other

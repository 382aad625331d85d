"""Writing values as Python: literals, and names for everything that has no literal.

Nothing is ever written by a `repr` that might not parse: what has no exact literal form becomes a name in
`Globals`, which the generated function finds in its global namespace.
"""

from __future__ import annotations

import builtins
import enum
import functools
import keyword
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import torch

from graphwright.codegen.spelling.operators import ATOM, PRIMARY, UNARY
from graphwright.errors import GraphError
from graphwright.ir import Namespace, Node, qualified_name

_TORCH_SINGLETONS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_KEYWORDS = frozenset(keyword.kwlist)
_METHODS = (types.MethodType, types.BuiltinMethodType)
_FAMILIES = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}  # prefixes in C
_PLAIN_MODULES = frozenset({"math", "operator", "numpy", "random", "numpy.random"})


class Globals:
    """The global names that one generated function uses, each with its object.

    >>> import math
    >>> names = Globals()
    >>> names.function(torch.relu), names.function(math.sqrt), sorted(names.values)
    ('torch.relu', 'math_sqrt', ['math_sqrt', 'torch'])
    """

    def __init__(self, taken: Iterable[str] = (), short: bool = False) -> None:
        self.is_short = short  # as a person would import things, rather than by unmistakable long names
        self.values: dict[str, Any] = {}
        self._namespace = Namespace()
        self._namespace.take(*taken)
        self._variables: set[str] = set()  # names that later variables may have again
        self._names: dict[tuple[str, int], str] = {}  # (wish, id of the value) -> name; `values` keeps it alive
        self._texts: dict[int, tuple[Any, str]] = {}  # id -> (object, how it is written)

    def add(self, wish: str, value: Any) -> str:
        """Bind a value to a global name, the wished one if it is legal and free; the same value keeps its name."""
        name = self._names.get((wish, id(value)))
        if name is None:
            is_legal = wish.isidentifier() and wish not in _KEYWORDS
            name = wish if is_legal and wish not in self._namespace else self._namespace.create(wish)
            while name in self._variables:  # to Python it is one variable in the whole function, not a global name
                self._namespace.take(name)
                name = self._namespace.create(wish)
            self._namespace.take(name)
            self._names[wish, id(value)] = name
            self.values[name] = value
        return name

    def new(self, wish: str) -> str:
        """Take a name that nothing else has, the wished one if it is free."""
        return wish if wish not in self._namespace else self._namespace.create(wish)

    def take(self, name: str) -> None:
        """Keep a name for a value of the function."""
        self._namespace.take(name)

    def release(self, name: str) -> None:
        """Give a name back that no value of the function has after all."""
        self._namespace.release(name)

    def share(self, name: str) -> None:
        """Let other variables of the function have the name of one, too; no global name can be the same."""
        self._namespace.release(name)
        self._variables.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._namespace

    def builtin(self, name: str) -> str:
        """Write a builtin: by its own name, unless a parameter of the function hides it."""
        return name if name not in self._namespace else self.add(name, getattr(builtins, name))

    def torch(self) -> str:
        """Make sure that `torch` is there, and write it."""
        return self.add("torch", torch)

    def function(self, target: Any) -> str:
        """Write a function or class: as a path from `torch`, as a builtin, or as a global name of its own."""
        known = self._texts.get(id(target))
        if known is not None and known[0] is target:
            return known[1]
        text = self._spell(target)
        self._texts[id(target)] = target, text
        return text

    def _spell(self, target: Any) -> str:
        owner: Any = getattr(target, "__self__", None)
        if issubclass(type(owner), type) and (
            type(target) is types.MethodType or issubclass(owner, torch.autograd.Function)
        ):
            # of a class: MyFunction.apply
            return f"{self.function(owner)}.{target.__name__}"
        try:
            path = qualified_name(target)
        except GraphError:
            path = ""
        is_method = type(target) in _METHODS and not isinstance(owner, type | types.ModuleType | None)
        if self.is_short and is_method and (not path or _follow(path) is not target):  # of an object without a name
            return f"{self.add(f'the_{type(owner).__name__.lower()}', owner)}.{target.__name__}"
        if not path:
            return self.add(f"_{type(target).__name__}", target)
        module, _, name = path.rpartition(".")
        if module == "builtins":
            return self.add(name, target)
        if target is torch.device and not self.is_short:
            return self.add("device", target)
        if self.is_short:
            for public in ("torch", "torch.nn.functional", *_FAMILIES):
                atom = name.removeprefix(_FAMILIES.get(public, ""))
                if getattr(sys.modules[public], atom, None) is target:
                    return f"{self.torch()}{public.removeprefix('torch')}.{atom}"
        if module.partition(".")[0] == "torch" and _follow(path) is target:
            return self.torch() + path.removeprefix("torch")
        if not name.isidentifier():  # <lambda>, or a function made inside another
            name = "_function"
        if self.is_short and module in _PLAIN_MODULES and _follow(path) is target:
            package, *inner = module.split(".")
            return ".".join((self.add(package, sys.modules[package]), *inner, name))
        home = _outermost(path, target) if self.is_short and name in self else None
        if home is not None:
            within = home.__name__.rpartition(".")[2]  # `helper = tools.helper(x)`
            if within not in self or self.values.get(within) is home:
                return f"{self.add(within, home)}.{name}"
        if self.is_short:
            return self.add(name, target)
        origin = getattr(target, "__module__", None) or module
        return self.add(f"{origin}_{name}".replace(".", "_"), target)


def _outermost(path: str, target: Any) -> types.ModuleType | None:
    """The outermost package, of those on the path of an object, that holds it by its name; None for a script's."""
    *atoms, name = path.split(".")
    around = [sys.modules.get(".".join(atoms[: i + 1])) for i in range(len(atoms)) if atoms != ["__main__"]]
    # Asked for an attribute, a package may import what it does not hold yet.
    return next((each for each in around if each is not None and vars(each).get(name) is target), None)


def _follow(path: str) -> Any:
    """The object at a dotted path that starts with an imported module, or None."""
    first, *rest = path.split(".")
    value: Any = sys.modules.get(first)
    for atom in rest:
        value = getattr(value, atom, None)
    return value


def constant(value: Any, names: Globals) -> tuple[str, int]:
    """Write a leaf value and say how tightly the text binds."""
    kind = type(value)
    if kind is int:
        return str(value), ATOM if value >= 0 else UNARY
    if kind is str or kind is bool or value is None or kind is bytes:
        return repr(value), ATOM
    if kind is float:
        return _float(value, names)
    if value is ...:
        return names.builtin("Ellipsis"), ATOM
    if kind is complex:
        if repr(value) == f"{value.imag!r}j".replace(".0j", "j") and value.real == 0 and 0 <= value.imag < math.inf:
            return repr(value), ATOM
        is_exact = value.real and math.isfinite(value.real) and math.isfinite(value.imag)
        if is_exact and (value.imag or math.copysign(1.0, value.imag) > 0):
            return repr(value), ATOM  # `(1+2j)`, which has its parentheses
        real, imaginary = _float(value.real, names)[0], _float(value.imag, names)[0]
        return f"{names.builtin('complex')}({real}, {imaginary})", PRIMARY
    if isinstance(value, _TORCH_SINGLETONS):
        return names.torch() + repr(value).removeprefix("torch"), PRIMARY
    if kind is torch.device:
        return f"{names.add('device', torch.device)}(type={value.type!r}" + (
            f", index={value.index})" if value.index is not None else ")"
        ), PRIMARY
    if isinstance(value, enum.Enum) and kind.__members__.get(value._name_) is value:
        return f"{names.add(kind.__name__, kind)}.{value._name_}", PRIMARY
    if kind is range:
        is_count = names.is_short and value.start == 0 and value.step == 1
        text = f"({value.stop})" if is_count else repr(value).removeprefix("range")
        return names.builtin("range") + text, PRIMARY
    if kind is set or kind is frozenset:
        items = ", ".join(argument(item, names, None)[0] for item in sorted(value, key=repr))
        if kind is set and items:
            return f"{{{items}}}", ATOM
        return f"{names.builtin(kind.__name__)}({f'{{{items}}}' if items else ''})", PRIMARY
    if kind is types.ModuleType:
        return names.add(value.__name__.replace(".", "_"), value), ATOM
    if kind is types.GenericAlias:
        return annotation(value, names), PRIMARY
    if isinstance(value, type) or (callable(value) and getattr(value, "__name__", None)):
        return names.function(value), PRIMARY
    return names.add(f"_{kind.__name__}", value), ATOM


def _float(value: float, names: Globals) -> tuple[str, int]:
    if math.isfinite(value):
        return repr(value), ATOM if math.copysign(1.0, value) > 0 else UNARY
    if math.isnan(value):
        return names.add("nan", math.nan), ATOM
    text = names.add("inf", math.inf)
    return (text, ATOM) if value > 0 else (f"-{text}", UNARY)


def argument(value: Any, names: Globals, write_node: Any) -> tuple[str, int]:
    """Write an argument, containers included; `write_node` writes the nodes in it."""
    kind = type(value)
    if kind is Node:
        return write_node(value)  # type: ignore[no-any-return]
    if isinstance(value, tuple):
        items = [argument(item, names, write_node)[0] for item in value]
        if kind is tuple:
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})", ATOM
        if hasattr(kind, "_fields"):
            return f"{names.function(kind)}({', '.join(items)})", PRIMARY
        return f"{names.function(kind)}(({', '.join(items)}{',' if len(items) == 1 else ''}))", PRIMARY
    if isinstance(value, list):
        return f"[{', '.join([argument(item, names, write_node)[0] for item in value])}]", ATOM
    if isinstance(value, dict):
        items = [
            f"{argument(key, names, write_node)[0]}: {argument(item, names, write_node)[0]}"
            for key, item in value.items()
        ]
        return f"{{{', '.join(items)}}}", ATOM
    if kind is slice:
        parts = [argument(part, names, write_node)[0] for part in (value.start, value.stop, value.step)]
        return f"{names.builtin('slice')}({', '.join(parts)})", PRIMARY
    return constant(value, names)


def _generic(kind: Any, origin: Any, args: tuple[Any, ...], names: Globals) -> str:
    """Write a type with arguments; unions as they were written, but short where people read them."""
    if origin is typing.Union or origin is types.UnionType:
        if names.is_short:
            args = tuple(sorted(args, key=lambda arg: arg is type(None)))
        written = [annotation(arg, names) for arg in args]
        if origin is types.UnionType or (names.is_short and _is_union_of_classes(args)):
            return (" | " if names.is_short else "|").join(written)
        return f"{_of_typing('Union', typing.Union, names)}[{(', ' if names.is_short else ',').join(written)}]"
    is_class = isinstance(origin, type) and not hasattr(kind, "__metadata__") and not isinstance(args[0], list)
    if names.is_short and origin is typing.Literal and all(type(arg) in (int, str, bool) for arg in args):
        return f"{_of_typing('Literal', origin, names)}[{', '.join(map(repr, args))}]"
    if names.is_short and getattr(origin, "_name", "") in ("Unpack", "Final", "ClassVar", "Required", "NotRequired"):
        return f"{_of_typing(origin._name, origin, names)}[{annotation(args[0], names)}]"
    if not is_class:
        return names.add(f"_{getattr(kind, '_name', None) or 'annotation'}", kind)
    inside = (", " if names.is_short else ",").join("..." if arg is ... else annotation(arg, names) for arg in args)
    bare = getattr(kind, "_name", None)
    if names.is_short and origin.__module__ == "builtins":
        return f"{names.add(origin.__name__, origin)}[{inside}]"
    if bare in ("List", "Dict", "Tuple") or (bare and names.is_short):  # typing.List[int] stays that
        return f"{_of_typing(bare, getattr(typing, bare), names)}[{inside}]"
    return f"{names.function(origin)}[{inside}]"


def _of_typing(name: str, kind: Any, names: Globals) -> str:
    return names.add(name if names.is_short else f"typing_{name}", kind)


def _is_union_of_classes(kinds: tuple[Any, ...]) -> bool:
    """Tell whether `a | b | c` makes a union: not of forward references, on every version of Python."""
    try:
        functools.reduce(operator.or_, kinds)
    except TypeError:
        return False
    return True


def annotation(kind: Any, names: Globals) -> str:
    """Write a type annotation so that it evaluates to the same type in the generated code."""
    if kind is None or kind is type(None):
        return "None" if names.is_short else "NoneType"
    if isinstance(kind, str):
        return repr(kind)
    if not names.is_short and kind is torch.device:
        return "device"
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is not None and args:
        return _generic(kind, origin, args, names)
    if not names.is_short and isinstance(origin, type):  # typing.List alone, and tuple[()]
        return names.add("typing_Tuple", typing.Tuple) if kind == typing.Tuple[()] else annotation(origin, names)  # noqa: UP006
    if isinstance(kind, type):
        if kind.__module__ == "builtins":
            return names.add(kind.__name__, kind)
        short = f"{kind.__module__.partition('._')[0]}.{kind.__name__}"
        if short.startswith("torch.") and _follow(short) is kind:
            return names.torch() + short.removeprefix("torch")
        return names.function(kind)
    if getattr(kind, "__module__", "") == "typing":
        bare = getattr(kind, "_name", None) or getattr(kind, "__name__", None)
        if bare:
            return _of_typing(bare, kind, names)
    return names.add("_annotation", kind)


def subscript(write: Callable[[Any], str], key: Any) -> str:
    """Write what stands between the brackets, with Python's own slices.

    >>> subscript(repr, (slice(1, None), None, ..., slice(None, None, 2)))
    '1:, None, ..., ::2'
    """
    if type(key) is tuple and key:
        return ", ".join(_part(write, part) for part in key) + ("," if len(key) == 1 else "")
    return _part(write, key)


def _part(write: Callable[[Any], str], part: Any) -> str:
    if part is ...:
        return "..."
    if type(part) is not slice:
        return write(part)
    start, stop, step = ("" if bound is None else write(bound) for bound in (part.start, part.stop, part.step))
    return f"{start}:{stop}" + (f":{step}" if step else "")

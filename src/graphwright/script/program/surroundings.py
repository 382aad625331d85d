"""What a program reads outside of itself: global names, closure cells, attributes of classes and of objects.

All of it is known when the program is compiled, and taken for a constant; so each call checks that it is still there.
What installed packages keep to themselves counts as part of their code.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from graphwright.runtime import ABSENT, Found, Outside, bound_in, codes_beside
from graphwright.script.program.frames import MISSING, Code
from graphwright.source import is_foreign, is_foreign_class, is_foreign_file


class Surroundings:
    """What one program has found outside of itself."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], Found] = {}
        self._functions: list[FunctionType] = []  # whose code is compiled
        self.forwards: dict[type, Any] = {}  # of the classes of modules whose code is compiled

    def codes(self) -> dict[FunctionType, tuple[Any, ...]]:
        """The code of the user's functions that the program runs and that it has not found under names."""
        own = [each for each in self._functions if not is_foreign(each.__code__)]
        return codes_beside(self._found.values(), own)

    def take_code(self, function: FunctionType) -> None:
        """Note that the code of a function is part of the program."""
        self._functions.append(function)

    def take_forward(self, module: nn.Module) -> None:
        """Note that the forward of a module is part of the program: that of its class, or one of its own."""
        if "forward" not in module.__dict__ and not is_foreign_class(type(module)):
            self.forwards[type(module)] = type(module).forward

    def outside(self) -> Outside | None:
        """What each call compares with what there is; None where there is nothing."""
        return Outside(self._found.values()) if self._found else None

    def reads(self, name: str) -> bool:
        """Tell whether the program reads something of this name outside of itself."""
        return any(known == name for _, known in self._found)

    def keep(self) -> Callable[[], None]:
        """Keep what is known now; what comes back forgets what was found since."""
        before = dict(self._found)

        def put_back() -> None:
            self._found = before

        return put_back

    def take_all(self, outside: Outside) -> None:
        """Note what a captured program, which is part of this one, has found."""
        for found in outside.found:
            self._found.setdefault((id(found.owner), found.name), found)

    def take_name(self, code: Code, name: str) -> None:
        """Note that a function reads a variable that is not its own."""
        outside = code.outside
        if is_foreign_file(code.file) or isinstance(outside.get(name), Outside):
            return
        if name in outside.cells:
            subject = f"the variable {name!r} of {code.qualname}"
            self._take(subject, outside.cells[name], name, outside.closure.get(name, MISSING))
        elif name in outside.globals:
            subject = f"the global {name!r} of {outside.globals.get('__name__', 'a module')}"
            self._take(subject, outside.globals, name, outside.globals[name])

    def take_attribute(self, owner: Any, name: str) -> None:
        """Note that an attribute of a class, an object or a Python module is read."""
        if isinstance(owner, nn.Module):
            return
        if isinstance(owner, ModuleType):
            file = getattr(owner, "__file__", None)
            if file and isinstance(file, str) and not is_foreign_file(file) and name in vars(owner):
                subject = f"the global {name!r} of {owner.__name__}"
                self._take(subject, vars(owner), name, vars(owner)[name])
        elif isinstance(owner, type):
            self._take_of_class(owner, owner, name)
        elif name == "__dict__":  # any of them may be read there
            for each in vars(owner):
                self.take_attribute(owner, each)
        elif name in getattr(owner, "__dict__", ()) or _is_slot(type(owner), name):
            self._take(f"{name!r} of a {type(owner).__qualname__}", owner, name, getattr(owner, name, MISSING))
        else:
            self._take_of_class(type(owner), type(owner), name)

    def take_method(self, kind: type, name: str) -> None:
        """Note that a method, or another attribute of a class, is found under a name."""
        self._take_of_class(kind, kind, name)

    def take_absent(self, owner: Any, name: str) -> None:
        """Note that an object has no attribute of its own under a name, or a dict no such key."""
        what = f"the key {name!r} of a dict" if isinstance(owner, dict) else f"{name!r} of a {type(owner).__qualname__}"
        self._found.setdefault((id(owner), name), Found.of(what, owner, name, ABSENT))

    def take_lacking(self, kind: type, name: str) -> None:
        """Note that the user's classes have nothing under a name."""
        for base in kind.__mro__:
            if not is_foreign_class(base):
                what = f"{base.__qualname__}.{name}"
                self._found.setdefault((id(base), name), Found.of(what, base, name, ABSENT))

    def take_class_of(self, owner: Any) -> None:
        """Note of which class an object is."""
        self._take(f"the class of a {type(owner).__qualname__}", owner, "__class__", type(owner))

    def take_identity(self, value: Any) -> None:
        """Note that a container that was found is the very one, of which the program asks that."""
        for (owner, name), found in [*self._found.items()]:
            if found.value is value and found.held is not None:
                self._found[owner, f"the identity of {name}"] = found._replace(held=None, code=None)

    def _take_of_class(self, kind: type, owner: type, name: str) -> None:
        base = next((base for base in kind.__mro__ if name in vars(base)), None)
        if base is None and kind is owner and type(kind) is not type:
            self._take_of_class(type(kind), type(kind), name)
        if base is None or is_foreign_class(base):
            return
        self._take(f"{kind.__qualname__}.{name}", owner, name, getattr(owner, name, MISSING))

    def _take(self, subject: str, owner: Any, name: str, value: Any) -> None:
        key = id(owner), name
        is_known = isinstance(value, ModuleType) or (_is_part_of_python(value) and _is_named(value, name))
        if key not in self._found and value is not MISSING and not is_known:
            self._found[key] = Found.of(subject, owner, name, value)
            self._take_inside(subject, value)

    def _take_inside(self, subject: str, value: Any) -> None:
        """Note what a function is called with that its call does not give: arguments of a partial one, and defaults."""
        function = value.__func__ if isinstance(value, MethodType) else value
        for name, held in bound_in(function):
            self._take(f"{name!r} of {subject}", function, name, held)
        if isinstance(value, functools.partial):
            self._take(f"'func' of {subject}", value, "func", value.func)


def _is_slot(kind: type, name: str) -> bool:
    return inspect.ismemberdescriptor(inspect.getattr_static(kind, name, None))


def _is_part_of_python(value: Any) -> bool:
    """Tell whether a value is a function or class of an installed package."""
    if isinstance(value, BuiltinFunctionType):
        return True
    if isinstance(value, type):
        return is_foreign_class(value)
    function = value.__func__ if isinstance(value, MethodType) else value
    return isinstance(function, FunctionType) and is_foreign_file(function.__code__.co_filename)


def _is_named(value: Any, name: str) -> bool:
    """Tell whether something has the very name that it has where it is defined, as what is imported."""
    return getattr(value, "__name__", None) == name

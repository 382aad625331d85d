"""Where an object is found when its module is imported: by reference, as pickle and import statements need it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import types
from typing import Any

from graphwright.errors import GraphError
from graphwright.ir import qualified_name, source_of
from graphwright.ops import LIBRARY_FUNCTIONS


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """An object by the module that holds it and its dotted path in there; the path is empty for the module itself."""

    module: str
    path: str

    def resolve(self) -> Any:
        """Import the module and follow the path. Raises ImportError or AttributeError where that fails."""
        value: Any = importlib.import_module(self.module)
        for atom in self.path.split(".") if self.path else ():
            value = getattr(value, atom)
        return value

    def leads_to(self, value: Any) -> bool:
        """Tell whether an object is what is found there, now."""
        try:
            found = self.resolve()
        except Exception:  # a module may run anything when an attribute is asked for
            return False
        if found is value:
            return True
        is_method = isinstance(value, types.MethodType | types.BuiltinMethodType)  # made anew at each access
        return is_method and type(found) is type(value) and bool(found == value)

    def __str__(self) -> str:
        return f"{self.module}.{self.path}" if self.path else self.module


def reference_to(value: Any) -> Reference | None:
    """Return where an object can be imported from, the public place where there is one; None for nowhere.

    What lives in the script that is running (`__main__`) counts as nowhere: another process runs another script.

    >>> import math
    >>> print(reference_to(math.sqrt), reference_to(lambda x: x))
    math.sqrt None
    """
    if isinstance(value, types.ModuleType):
        return Reference(value.__name__, "") if sys.modules.get(value.__name__) is value else None
    for path in _candidates(value):
        reference = _split(path)
        if reference is not None and reference.module != "__main__" and reference.leads_to(value):
            return reference
    return None


def _candidates(value: Any) -> list[str]:
    """Dotted paths worth trying, the shortest first."""
    found = []
    value = source_of(value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if name is None:
        name = getattr(value, "_name", None)  # typing.List and its like, before Python 3.10 named them
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type) and name:  # a class method: MyFunction.apply
        found.append(f"{owner.__module__}.{owner.__qualname__}.{getattr(value, '__name__', name)}")
    with contextlib.suppress(GraphError):
        found.append(qualified_name(value))
    if isinstance(module, str) and isinstance(name, str):
        parts = module.split(".")
        # torch.nn.Linear rather than torch.nn.modules.linear.Linear
        if parts[0] in ("torch", "graphwright", *LIBRARY_FUNCTIONS):
            found[:0] = [".".join([*parts[:length], name]) for length in range(1, len(parts))]
        found.append(f"{module}.{name}")
    return [path for path in found if all(atom.isidentifier() for atom in path.split("."))]


def _split(path: str) -> Reference | None:
    """Split a dotted path after the longest part that is an imported module."""
    atoms = path.split(".")
    for length in range(len(atoms) - 1, 0, -1):
        module = ".".join(atoms[:length])
        if module in sys.modules:
            return Reference(module, ".".join(atoms[length:]))
    return None


def is_definition(value: Any) -> bool:
    """Tell whether an object is a class or function, which is found by its name."""
    return isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType)


def describe(value: Any) -> str:
    """Name an object for an error message, a function with the place where it is defined.

    >>> describe(3.5), describe(len), describe(object())
    ('3.5', 'len', 'an object of type object')
    """
    if is_definition(value):
        code = getattr(value, "__code__", None)
        return f"{value.__qualname__} ({code.co_filename}:{code.co_firstlineno})" if code else value.__qualname__
    text = repr(value)
    return f"an object of type {type(value).__name__}" if text.startswith("<") or len(text) > 80 else text


def why_unimportable(value: Any) -> tuple[str, str]:
    """Say why no other process can import an object, and what to do about it."""
    if not is_definition(value):
        return "no module holds it", "pass it as an argument, or register it on the module as a buffer or submodule"
    name = value.__qualname__
    kind = "class" if isinstance(value, type) else "function"
    if name.endswith("<lambda>"):
        return "it is a lambda", "make it a function with a name, at the top level of a module"
    if "<locals>" in name:
        return f"it is defined inside a function, {name.partition('.<locals>')[0]}", (
            f"move the {kind} to the top level of a module"
        )
    if value.__module__ == "__main__":
        return "it lives in the script that is running", f"move the {kind} from the script to a module"
    return "its module does not hold it under its name", f"make the {kind} importable under its own name"

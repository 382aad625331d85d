"""What a saved file may name: functions, classes and methods, by exact module and qualified name.

A file is data. Reading it imports nothing but allowed modules, and einops for its functions, and calls nothing of what
it names; what it names runs when the loaded module is called, so only what is trusted may be named.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
import types
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy
import torch
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from graphwright.errors import LoadError
from graphwright.ir import OPCODES, source_of
from graphwright.ops import LIBRARY_CLASSES, OPEN_LIBRARIES, is_library_class, is_library_function
from graphwright.runtime.references import Reference, reference_to
from graphwright.runtime.trust.fields import MACHINERY
from graphwright.runtime.trust.followed import functions_in, reach_of
from graphwright.runtime.trust.kernels import CheckedWeightNormHook, checked
from graphwright.runtime.trust.library import (
    DATA_OF_ROOMS,
    OF_ROOMS,
    TARGETS_ALONE,
    is_data_of_room,
    is_exception,
    is_plain_class,
    makes_arrays,
    may_be_called,
)
from graphwright.runtime.trust.members import is_secret
from graphwright.runtime.trust.operators import takes_on_trust

# Modules in which a file may look for functions and classes; which of theirs it may name is in library.py.
_HOMES = frozenset({
    "builtins", "cmath", "collections", "copy", "heapq", "_heapq", "math", "numpy", "numpy.random", "operator",
    "_operator", "random", "types",
})  # fmt: skip
_FIXED = _HOMES - {"numpy", "numpy.random"}  # no leave is given for what library.py does not have of these
# Of torch's objects that modules have as hooks.
HOOKS = (SpectralNorm, WeightNorm, CheckedWeightNormHook)
# Where torch's classes of modules live.
_MODULES = ("torch.nn.modules", "torch.nn.utils", "torch.ao.nn", "torch.ao.quantization.stubs")
# And those of ours, beside what `runtime` has.
_OUR_MODULES = (
    "graphwright.runtime", "graphwright.quantization.layers", "graphwright.quantization.observers",
    "graphwright.quantization.recurrent_layers", "graphwright.quantization.training",
    "graphwright.passes.fusion.fuse_conv_relu",
)  # fmt: skip
# Never, whatever `allow` says: what runs code, starts programs, reads or writes files, or loads what does.
_CLOSED = frozenset({
    "_ctypes", "_imp", "_io", "_pickle", "_posixsubprocess", "_socket", "_thread", "asyncio", "atexit", "bdb", "code",
    "codeop", "cffi", "cloudpickle", "concurrent", "ctypes", "dill", "ensurepip", "fileinput", "ftplib", "gc", "glob",
    "http", "imp", "importlib", "inspect", "io", "joblib", "linecache", "marshal", "mmap", "multiprocessing", "nt",
    "ntpath", "os", "pathlib", "pdb", "pickle", "pip", "pkgutil", "platform", "posix", "posixpath", "pty", "py_compile",
    "runpy", "shelve", "shutil", "signal", "site", "smtplib", "socket", "socketserver", "sqlite3", "subprocess", "sys",
    "tempfile", "threading", "timeit", "tokenize", "trace", "urllib", "webbrowser", "winreg", "xmlrpc",
    "zipfile", "zipimport",
})  # fmt: skip
_CLOSED_FAMILIES = (
    "torch.hub", "torch.serialization", "torch.jit", "torch._jit_internal", "torch.package", "torch.export",
    "torch._export", "torch._dynamo", "torch._inductor", "torch.compiler", "torch.distributed", "torch.multiprocessing",
    "torch.utils.cpp_extension", "torch.utils.model_zoo", "torch.utils.data", "torch.utils.bundled_inputs",
    "torch.utils.benchmark", "torch.utils.bottleneck", "torch.utils.collect_env", "torch.utils.mobile_optimizer",
    "torch.nn.parallel", "torch.nn.utils.stateless", "torch.nn.cpp", "torch._classes", "torch.library",
    "torch._library", "torch.fx", "torch.onnx", "torch.storage",
)  # fmt: skip
_RUNTIME = "graphwright.runtime"  # whose names `graphwright` gives on: `graphwright:GraphModule`
_DEFINITIONS = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.GetSetDescriptorType, functools._lru_cache_wrapper,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._C.ScriptFunction, type(numpy.where),
)  # fmt: skip


def name_of(value: Any) -> str | None:
    """Write where an object is found as `module:qualified.name`; None where no module holds it under a plain name.

    >>> name_of(torch.relu), name_of(torch.nn.Linear), name_of(lambda: None)
    ('torch:relu', 'torch.nn:Linear', None)
    """
    if isinstance(value, types.ModuleType):
        return None
    reference = reference_to(value)
    if reference is None:  # a class of the script that is running
        owner = value.__self__ if _is_class_method(value) else None
        path = getattr(value, "__qualname__", None) if owner is None else f"{owner.__qualname__}.{value.__name__}"
        if _owner(value) != "__main__" or not isinstance(path, str) or not _are_names(path):
            return None
        reference = Reference("__main__", path)
        if not reference.leads_to(value):
            return None
    return f"{reference.module}:{reference.path}" if reference.path else None


def source_hash(value: Any) -> str | None:
    """The hash of the source of a function, of the class of a class method, or of a class; None where there is none.

    What is not in the graph but called by it must be the same when a file is loaded. torch's and graphwright's own
    code counts as known, as do functions of libraries that are one operation each.
    """
    value = source_of(value.__self__ if isinstance(value, types.MethodType) else value)
    own = getattr(value, "__module__", None)
    if not isinstance(own, str) or own.partition(".")[0] in ("torch", "graphwright", "builtins"):
        return None
    if is_library_function(value):
        return None
    try:
        return hashlib.sha256(inspect.getsource(value).encode()).hexdigest()
    except (OSError, TypeError):
        return None


class Trust:
    """Finds what a file names: what every program may call, and what is of the allowed modules.

    `allow` holds prefixes of module names: "transformers" allows that package and every module inside, but for
    functions whose code reaches files, other programs, the network or code that is built, and torch's operators of that
    namespace. "pkg.module:function" allows that function, whatever it reaches. With `everything` all is allowed but
    what never is: for those who write files.

    >>> trust = Trust()
    >>> trust.find("operator:add") is __import__("operator").add
    True
    >>> trust.find("os:system")
    Traceback (most recent call last):
    graphwright.errors.LoadError: a file may not name os:system: ...
    """

    def __init__(self, allow: Iterable[str] = (), everything: bool = False) -> None:
        self._allow = (allow,) if isinstance(allow, str) else tuple(allow)
        self._everything = everything
        self._found: dict[str, Any] = {}

    def find_value(self, name: Any) -> Any:
        """Return what `module:qualified.name` names, to be kept as a value that anything may call with anything.

        So it is none of the functions that reach attributes by name or call their arguments: these may be the target
        of a node alone, where it can be seen what they are called with.
        """
        value = self.find(name)
        if not self.is_value(value):
            _refuse(name, "it may be the target of a node, not a value")
        return value

    def find(self, name: Any, is_class: bool = False) -> Any:
        """Return what `module:qualified.name` names; with `is_class` only a class will do.

        Raises LoadError, for a module that is not allowed before it is imported.
        """
        if not isinstance(name, str) or name not in self._found:
            found = self._find(name)
            self._found[name] = found
        if is_class and not isinstance(self._found[name], type):
            _refuse(name, "it is no class")
        return self._found[name]

    def _find(self, name: Any) -> Any:
        if not isinstance(name, str) or name.count(":") != 1:
            _refuse(name, "it is not of the form module:qualified.name")
        module, path = name.split(":")
        if not _are_names(module) or not _are_names(path):
            _refuse(name, "its parts are not all names")
        atoms = path.split(".")
        if any(atom.startswith("__") for atom in atoms):
            _refuse(name, "it is one of Python's own")
        value = self._import(name, module)
        is_open = module.startswith("torch.ops") or self._is_allowed(module) or self._is_named(name)
        for i, atom in enumerate(atoms):
            if i and not isinstance(value, type) and not module.startswith("torch.ops"):
                _refuse(name, f"{atoms[i - 1]!r} is no class")
            try:
                value = getattr(value, atom) if i or is_open else _held_by(value, atom)
            except (AttributeError, KeyError):
                _refuse(name, f"there is no {atom!r}", fix="load it with the versions it was saved with")
        value = checked(value)
        self.check(name, value)
        return value

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse together all names that lie outside of what is allowed, and that could be allowed."""
        refused: dict[str, list[str]] = {}  # by the reason
        allow: dict[str, None] = {}
        for name in names:
            try:
                self.find(name)
            except LoadError as error:  # for others, whoever asks for the name says so
                if error.allow:
                    refused.setdefault(error.message.partition(": ")[2], []).append(name)
                    allow.update(dict.fromkeys(error.allow))
        if sum(map(len, refused.values())) > 1:
            said = "\n".join(f"a file may not name {', '.join(names)}: {why}" for why, names in refused.items())
            raise _not_allowed(said, tuple(allow))

    # ---- questions about what was found

    def is_library(self, value: Any) -> bool:
        """Tell whether a function or class is one that every program may call."""
        return may_be_called(value)

    def is_value(self, value: Any) -> bool:
        """Tell whether a function or class may be a value: called with anything, it does nothing else."""
        if any(value is known for known in TARGETS_ALONE) or value is list.sort:
            return False
        return may_be_called(value) or self.is_known_class(value) or self.is_users(value)

    def is_known_class(self, value: Any) -> bool:
        """Tell whether a value is a class that a file may name."""
        if not isinstance(value, type):
            return False
        is_ours = is_plain_class(value) or is_data_of_room(value)
        is_known = is_ours or is_exception(value) or _is_torchs(value) or is_library_class(value)
        return is_known or self.is_users(value)

    def is_users(self, value: Any) -> bool:
        """Tell whether a function or class is of a module that is allowed."""
        own = _owner(value)
        return own is not None and self._is_allowed(own) and not _is_closed(own)

    def classes(self) -> list[type]:
        """The classes of allowed modules that the file names, but for those of modules, and those that all may call."""
        found = [value for value in self._found.values() if isinstance(value, type) and self.is_users(value)]
        return [kind for kind in found if not issubclass(kind, nn.Module) and not self.is_library(kind)]

    def is_data(self, kind: type, name: str) -> bool:
        """Tell whether an attribute that a class of the user's may have is data: no method and no class."""
        found = inspect.getattr_static(kind, name, None)
        if isinstance(found, property):
            return isinstance(found.fget, types.FunctionType) and self._reaches_nothing(found.fget, kind)
        if isinstance(found, types.MemberDescriptorType) or found is BaseException.__dict__["args"]:
            return True
        return not isinstance(found, MACHINERY)

    def may_call_method(self, kind: type, name: str) -> bool:
        """Tell whether a program may call a method of a class of the user's."""
        function = inspect.getattr_static(kind, name, None)
        is_own = isinstance(function, types.FunctionType) and self.is_users(function)
        return is_own and self._reaches_nothing(function, kind)

    # ---- modules and the objects in them

    def _import(self, name: str, module: str) -> Any:
        if _is_closed(module):
            _refuse(name, "what it owns could reach files or code")
        if module == "torch.ops":
            return torch.ops
        is_ours = module.partition(".")[0] in ("torch", "graphwright")
        is_library = module in OPEN_LIBRARIES or module in LIBRARY_CLASSES
        if not (is_ours or is_library or module in _HOMES or self._is_allowed(module) or self._is_named(name)):
            _refuse(name, f"the module {module} is not allowed", allow=_package(module))
        if module in sys.modules:
            return sys.modules[module]
        homes = {each for home in (*OF_ROOMS, *DATA_OF_ROOMS) for each in (home, _room_of(home))}
        is_known = module in homes or any(_is_in(module, each) for each in (*_MODULES, *_OUR_MODULES))
        if is_ours and not is_known and not self._is_allowed(module):
            _refuse(name, f"the module {module} is not allowed", allow=_package(module))
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise LoadError(f"cannot import {module}: {error}", fix="install the package that has it") from error

    def check(self, name: str, value: Any) -> None:
        """Refuse an object that is neither one that every program may call nor one of an allowed module."""
        is_ours = is_plain_class(value) or is_data_of_room(value)
        if takes_on_trust(value):
            if not (self._everything or self._is_named(name) or self._is_allowed(_owner(value) or "")):
                _refuse(name, "what it is given says where in memory it writes, and nothing checks that", allow=name)
            return
        if may_be_called(value) or is_ours or is_exception(value) or _is_torchs(value) or is_library_class(value):
            return
        if not issubclass(type(value), _DEFINITIONS):  # nor `list[int]`, which says that it is a class
            _refuse(name, f"it is a {type(value).__name__}, neither a function nor a class")
        own = _owner(value)
        if own is None:
            _refuse(name, "it does not say which module owns it")
        if _is_closed(own):
            _refuse(name, f"{own} owns it, which could reach files or code")
        is_fixed = own in _FIXED or _is_in(own, "graphwright")
        if is_fixed or not (self._is_allowed(own) or self._is_named(name)):
            _refuse(name, f"{own} owns it, which is not allowed", allow=_package(own))
        if isinstance(value, type) or self._is_named(name) or self._everything:
            return
        functions = _functions_of(value)
        is_operator = isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
        if not functions and not is_operator and not makes_arrays(value):
            _refuse(name, "it has no code that could be looked at", allow=name)
        owner = getattr(value, "__self__", None)
        reaches = [reach_of(function, owner if isinstance(owner, type) else None) for function in functions]
        reached = next((found for found in reaches if found is not None), None)
        if reached is not None:
            _refuse(name, f"it reaches what no file may: {reached}", allow=name)

    def check_method(self, function: types.FunctionType) -> str:
        """Return what a method of a module's class is called in a file; refuse one that no file may call."""
        name = f"{function.__module__}:{function.__qualname__}"
        if is_secret(function.__name__) or str(function.__module__).partition(".")[0] in ("torch", "graphwright"):
            raise LoadError(f"a file may not call the method {name}", fix="load files only from those you trust")
        self.check(name, function)
        return name

    def check_called(self, name: str, value: Any) -> None:
        """Refuse a class of an allowed module whose constructor reaches what no function that is called may."""
        if not isinstance(value, type) or may_be_called(value) or self._is_named(name) or self._everything:
            return
        if issubclass(value, nn.Module) or not self.is_users(value):
            _refuse(name, "a program may not make one")
        if not _is_made_by_python(value):
            _refuse(name, "making one runs no code that could be looked at", allow=name)
        for function in functions_in(value, value.__module__.partition(".")[0]):
            reached = reach_of(function, value)  # type: ignore[arg-type]
            if reached is not None:
                _refuse(name, f"making one reaches what no file may: {reached}", allow=name)

    def _reaches_nothing(self, function: types.FunctionType, owner: type) -> bool:
        return self._everything or reach_of(function, owner) is None

    def _is_named(self, name: str) -> bool:
        """Tell whether `allow` names a function or class in full."""
        return name in self._allow

    def _is_allowed(self, module: str) -> bool:
        if module in _FIXED or _is_in(module, "graphwright"):
            return False
        module = module.removeprefix("torch._ops.")  # an operator belongs to its namespace, as to a package
        if module.partition(".")[0] == "torch":
            return any(prefix.startswith("torch.") and _is_in(module, prefix) for prefix in self._allow)
        return self._everything or any(_is_in(module, prefix) for prefix in self._allow)


def _held_by(module: types.ModuleType, name: str) -> Any:
    """Read what a module holds: asked for an attribute, it may import what it does not hold yet."""
    held = vars(module.m if isinstance(module, torch.backends.PropModule) else module)
    return held[name] if name in held or module.__name__ != "graphwright" else vars(sys.modules[_RUNTIME])[name]


def _room_of(module: str) -> str:
    """The first two names of a module's path."""
    return ".".join(module.split(".")[:2])


def _is_in(module: str, family: str) -> bool:
    return module == family or module.startswith(f"{family}.")


def _is_class_method(value: Any) -> bool:
    return isinstance(value, types.MethodType | types.BuiltinMethodType) and isinstance(value.__self__, type)


def _owner(value: Any) -> str | None:
    """The module that a function or class says it is of, a method that of its class."""
    holder: Any = value
    if _is_class_method(value):
        holder = value.__self__
    elif hasattr(value, "__objclass__"):
        holder = value.__objclass__
    own = getattr(source_of(holder), "__module__", None)
    return own if isinstance(own, str) else None


def _functions_of(value: Any) -> list[types.FunctionType]:
    """The functions with code of Python's that run when a function of an allowed module is called."""
    owner: Any = getattr(value, "__self__", None)
    package = str(_owner(value)).partition(".")[0]
    if issubclass(type(owner), type) and issubclass(owner, torch.autograd.Function):
        members = [
            inspect.getattr_static(owner, name, None) for name in ("forward", "setup_context", "backward", "jvp")
        ]
        return [function for member in members for function in functions_in(member, package)]
    return functions_in(value, package)


def _is_made_by_python(kind: type) -> bool:
    """Tell whether what makes the objects of a class is code of Python's, or that of a plain class."""
    for name in ("__new__", "__init__"):
        base = next(base for base in kind.__mro__ if name in base.__dict__)
        member = base.__dict__[name]
        is_function = isinstance(getattr(member, "__func__", member), types.FunctionType)
        if not (is_function or base.__module__ == "builtins" or is_plain_class(base)):
            return False
    return True


def _is_torchs(value: Any) -> bool:
    """Tell whether a value is a class of torch's or ours whose objects a program may have: tensors, modules."""
    if not isinstance(value, type):
        return False
    own = value.__module__
    if value in HOOKS or type(value) is type(torch.FloatTensor):  # `torch.LongTensor`
        return True
    if issubclass(value, torch.Tensor):
        return own.partition(".")[0] == "torch"
    if not issubclass(value, nn.Module):
        return False
    return any(_is_in(own, family) for family in (*_MODULES, *_OUR_MODULES))


def _is_closed(module: str) -> bool:
    if module.partition(".")[0] in _CLOSED:
        return True
    return any(_is_in(module, family) for family in _CLOSED_FAMILIES)


def _are_names(path: str) -> bool:
    return all(atom.isidentifier() for atom in path.split("."))


def _package(module: str) -> str | None:
    """What `allow` would have to name for a module; None for one that nobody can allow."""
    if module.partition(".")[0] in (*_FIXED, "torch", "graphwright") and not module.startswith("torch._ops."):
        return None
    return module.removeprefix("torch._ops.").partition(".")[0]


def _refuse(name: Any, why: str, allow: str | None = None, fix: str | None = None) -> NoReturn:
    shown = name if isinstance(name, str) and len(name) < 200 and name.isprintable() else type(name).__name__
    said = f"a file may not name {shown}: {why}"
    if allow is not None:
        raise _not_allowed(said, (allow,))
    raise LoadError(said, fix=fix or "load files only from those you trust")


def _not_allowed(said: str, packages: tuple[str, ...]) -> LoadError:
    which = "it" if len(packages) == 1 else "them"
    error = LoadError(said, fix=f"if you trust {which}: load(path, allow=[{', '.join(map(repr, packages))}])")
    error.allow = packages
    return error


def names_in(data: Any) -> list[str]:
    """The names of functions and classes in the plain data of a file, each once, but for those that people read only.

    >>> node = ["x", "call_function", "c:d", [{"name": "e:f"}], {}, {"name": "of:Annotation"}, {}, None]
    >>> names_in({"objects": [{"class": "a:B"}], "nodes": [node]})
    ['a:B', 'c:d', 'e:f']
    """
    found: dict[str, None] = {}
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if type(item) is list:
            if len(item) == 8 and type(item[1]) is str and item[1] in OPCODES:  # a node; its annotation runs nothing
                if item[1] == "call_function" and type(item[2]) is str:
                    found[item[2]] = None
                item = [*item[:5], *item[6:]]
            waiting += reversed(item)
        elif type(item) is dict:
            for key, value in item.items():
                named = value if key in ("class", "name", "original") else None
                if key in ("enum", "partial", "named_tuple") and type(value) is list and value:
                    named = value[0]
                for each in value if key == "bases" and type(value) is list else [named]:
                    if type(each) is str and each.count(":") == 1:
                        found[each] = None
            waiting += [value for key, value in reversed(item.items()) if key not in ("places", "sources", "tensors")]
    return list(found)

"""What a saved file may name: functions, classes and methods, by exact module and qualified name.

A file is data. Reading it imports nothing but allowed modules and calls nothing of what it names; what it names runs
when the loaded module is called, so only what is trusted may be named.
"""

from __future__ import annotations

import builtins
import collections
import copy
import functools
import hashlib
import importlib
import inspect
import random
import sys
import types
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy
import torch.utils.checkpoint
from torch import nn

from graphwright.errors import LoadError
from graphwright.ops import (
    cond,
    delete_attribute,
    enter_context,
    evaluated,
    exit_context,
    expect_bound,
    for_loop,
    generated,
    raise_error,
    set_attribute,
    transformed,
    while_loop,
    write_attribute,
)
from graphwright.runtime.references import Reference, reference_to

__all__ = ["Trust", "name_of", "source_hash"]

_BUILTINS = frozenset({
    "abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "getattr",
    "hasattr", "int", "isinstance", "iter", "len", "list", "max", "min", "object", "pow", "print", "range", "reversed",
    "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip",
})  # fmt: skip
# Modules whose own functions and classes a file may name without asking, by exact name.
_OPEN = frozenset({
    "math", "_operator", "operator", "heapq", "_heapq",
    "torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special", "torch._C._sparse", "torch._C._nested",
    "torch.functional", "torch._tensor", "torch.autograd", "torch.autograd.grad_mode", "torch.random", "torch.fft",
    "torch.linalg", "torch.special", "torch.return_types",
    "graphwright.ops.regions", "graphwright.ops.statements", "graphwright.ops.state",
    "graphwright.ops.transforms", "graphwright.runtime.dispatch", "graphwright.runtime.guards",
    "graphwright.runtime.objects",
})  # fmt: skip
_OPEN_FAMILIES = (
    "torch.nn", "torch.ao.nn", "torch.ao.quantization.stubs", "torch._ops.aten", "torch._ops.prims",
    "torch._ops.quantized", "torch._ops.torchvision",
)  # fmt: skip
# What `torch` itself defines in Python, and its classes; its operators are known by their type.
_OPEN_TORCH = frozenset({
    "Generator", "Size", "Tensor", "_assert", "device", "dtype", "finfo", "get_default_dtype", "iinfo",
    "is_autocast_enabled", "is_grad_enabled", "is_inference_mode_enabled", "is_storage", "is_tensor", "layout",
    "memory_format", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum", "typename",
})  # fmt: skip
_PARTLY_OPEN = ("builtins", "collections", "types", "numpy", "numpy.random", "random")
_CONTAINERS = (collections.OrderedDict, collections.defaultdict, collections.Counter, collections.deque)
_OPEN_COLLECTIONS = (*_CONTAINERS, types.SimpleNamespace)
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
    "torch._library", "torch.fx", "torch.onnx",
)  # fmt: skip
_CLOSED_NAMES = frozenset({
    "attrgetter", "methodcaller", "call", "from_file", "load_library", "import_ir_module", "compile", "to_folder",
    "from_buffer", "import_ir_module_from_buffer", "tofile", "fromfile", "save", "load", "dump", "dumps", "loads",
    "create_node", "graph", "graphs", "owning_module", "python_code", "recompile", "run_body", "set_codegen",
    "on_generate_code",
    "from_pretrained", "save_pretrained", "push_to_hub", "from_json_file", "to_json_file", "register_for_auto_class",
})  # fmt: skip
# The methods behind operators.
_DUNDERS = frozenset({
    "__abs__", "__add__", "__and__", "__bool__", "__contains__", "__divmod__", "__eq__", "__float__", "__floordiv__",
    "__ge__", "__getitem__", "__gt__", "__iadd__", "__iand__", "__ifloordiv__", "__ilshift__", "__imod__",
    "__imul__", "__index__", "__int__", "__invert__", "__ior__", "__ipow__", "__irshift__", "__isub__", "__iter__",
    "__itruediv__", "__ixor__", "__le__", "__len__", "__lshift__", "__lt__", "__matmul__", "__mod__", "__mul__",
    "__ne__", "__neg__", "__or__", "__pos__", "__pow__", "__radd__", "__rand__", "__rdivmod__", "__reversed__",
    "__rfloordiv__", "__rlshift__", "__rmatmul__", "__rmod__", "__rmul__", "__ror__", "__rpow__", "__rrshift__",
    "__rshift__", "__rsub__", "__rtruediv__", "__rxor__", "__setitem__", "__sub__", "__truediv__", "__xor__",
})  # fmt: skip
_RECEIVERS = (torch.Tensor, torch.Size, torch.device, torch.dtype, torch.finfo, torch.iinfo, dict, list, tuple, set)
_RECEIVERS += (torch.Generator, frozenset, str, int, float, complex, slice, range, bytes, *_CONTAINERS)  # type: ignore[assignment]
_NO_METHODS = frozenset({"format_map", "apply_", "map_", "map2_", "register_hook", "module_load", "to_bytes"})
_ONLY_TARGETS = (
    copy.copy, copy.deepcopy, getattr, hasattr, cond, while_loop, for_loop, transformed, enter_context, exit_context,
    raise_error, generated, write_attribute, set_attribute, delete_attribute, evaluated, expect_bound,
    torch.utils.checkpoint.checkpoint,
)  # fmt: skip
_DEFINITIONS = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.GetSetDescriptorType, functools._lru_cache_wrapper,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket,
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
        module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if module != "__main__" or not isinstance(path, str) or not _are_names(path):
            return None
        reference = Reference(module, path)
        try:
            if reference.resolve() is not value:
                return None
        except AttributeError:
            return None
    return f"{reference.module}:{reference.path}" if reference.path else None


def source_hash(value: Any) -> str | None:
    """The hash of the source of a function, of the class of a class method, or of a class; None where there is none.

    What is not in the graph but called by it must be the same when a file is loaded. torch's and graphwright's own
    code counts as known.
    """
    if isinstance(value, types.MethodType):
        value = value.__self__
    own = getattr(value, "__module__", None)
    if not isinstance(own, str) or own.partition(".")[0] in ("torch", "graphwright", "builtins"):
        return None
    try:
        return hashlib.sha256(inspect.getsource(value).encode()).hexdigest()
    except (OSError, TypeError):
        return None


class Trust:
    """Finds what a file names, and refuses what lies outside torch's operators and the allowed modules.

    `allow` holds prefixes of module names: "transformers" allows that package and every module inside, and torch's
    operators of that namespace. With
    `everything` all is allowed but what never is: for those who write files.

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
        self._methods = {name for kind in _RECEIVERS for name in dir(kind) if not name.startswith("_")} - _NO_METHODS

    def find_value(self, name: Any) -> Any:
        """Return what `module:qualified.name` names, to be kept as a value that anything may call with anything.

        So it is none of the functions that reach attributes by name or call their arguments: these may be the target
        of a node alone, where it can be seen what they are called with.
        """
        value = self.find(name)
        if value in _ONLY_TARGETS:
            _refuse(name, "it may be the target of a node, not a value")
        return value

    def find(self, name: Any, is_class: bool = False) -> Any:
        """Return what `module:qualified.name` names; with `is_class` only a class will do.

        Only names of classes and of torch's operators, as `torch._grouped_mm`, may start with an underscore. Raises
        LoadError, for a module that is not allowed before it is imported.
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
        if any(atom.startswith("register_") for atom in atoms):
            _refuse(name, "it has others call functions")
        if not _CLOSED_NAMES.isdisjoint(atoms) or not _NO_METHODS.isdisjoint(atoms):
            _refuse(name, "it could reach files or code")
        self._check_module(name, module)
        value = self._import(name, module)
        for i, atom in enumerate(atoms):
            if i and not isinstance(value, type) and not module.startswith("torch.ops"):
                _refuse(name, f"{atoms[i - 1]!r} is no class")
            try:
                value = getattr(value, atom)
            except AttributeError:
                _refuse(name, f"there is no {atom!r}", fix="load it with the versions it was saved with")
        is_known = isinstance(value, type) or _is_operator(value) or name == "torch:_assert"
        if any(atom.startswith("_") for atom in atoms) and not is_known:
            _refuse(name, "it is private")
        self.check(name, value)
        if isinstance(value, type) and not self._is_open_type(value):
            self._methods.update(attribute for attribute in dir(value) if not attribute.startswith("_"))
        return value

    def may_call_method(self, name: Any, args: Any) -> bool:
        """Tell whether a graph may call a method of this name: of tensors, containers, or classes that it names."""
        if not isinstance(name, str):
            return False
        if name == "format":  # of a text that reads no attributes
            return bool(args) and isinstance(args[0], str) and "__" not in args[0]
        return name in _DUNDERS or (name in self._methods and name not in _CLOSED_NAMES)

    def may_read(self, name: Any) -> bool:
        """Tell whether a graph may read an attribute of this name."""
        is_public = isinstance(name, str) and name.isidentifier() and not name.startswith("_")
        return is_public and name not in _CLOSED_NAMES and name not in _NO_METHODS

    # ---- modules and the objects in them

    def _check_module(self, name: str, module: str) -> None:
        if _is_closed(module):
            _refuse(name, "what it owns could reach files or code")
        is_torch = module in ("torch", "graphwright") or module.startswith(("torch.", "graphwright."))
        is_open = (is_torch and "_" not in {atom[0] for atom in module.split(".")}) or module in _OPEN
        if not is_open and module not in _PARTLY_OPEN and not self._is_allowed(module):
            _refuse(name, f"the module {module} is not allowed", fix=_how_to_allow(module))

    def _import(self, name: str, module: str) -> Any:
        if module in sys.modules:
            return sys.modules[module]
        if module == "torch.ops":
            return torch.ops
        if not self._is_allowed(module) and module not in _OPEN and not module.startswith("torch.nn."):
            _refuse(name, f"the module {module} is not allowed", fix=_how_to_allow(module))
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise LoadError(f"cannot import {module}: {error}", fix="install the package that has it") from error

    def check(self, name: str, value: Any) -> None:
        """Refuse an object by what it is: neither function nor class, or one whose own module is not allowed."""
        if _is_arithmetic(value) or _is_draw(value):
            return
        if not issubclass(type(value), _DEFINITIONS):  # nor `list[int]`, which says that it is a class
            _refuse(name, f"it is a {type(value).__name__}, neither a function nor a class")
        holder: Any = value
        if isinstance(value, types.MethodType | types.BuiltinMethodType) and isinstance(value.__self__, type):
            holder = value.__self__
        elif hasattr(value, "__objclass__"):
            holder = value.__objclass__
        own = getattr(holder, "__module__", None)
        if not isinstance(own, str):
            _refuse(name, "it does not say which module owns it")
        if _is_closed(own) and value not in _OPEN_COLLECTIONS:
            _refuse(name, f"{own} owns it, which could reach files or code")
        if getattr(value, "__name__", None) in _CLOSED_NAMES:
            _refuse(name, "it could reach files or code")
        if not self._is_open(own, holder) and not self._is_allowed(own):
            _refuse(name, f"{own} owns it, which is not allowed", fix=_how_to_allow(own))

    def _is_open(self, own: str, value: Any) -> bool:
        if own == "builtins":
            if value is BaseException or (isinstance(value, type) and issubclass(value, Exception)):
                return True
            return getattr(value, "__name__", None) in _BUILTINS and getattr(builtins, value.__name__) is value
        if own in ("torch", "torch._C"):
            name = getattr(value, "__name__", "")
            is_tensor = isinstance(value, type) and issubclass(value, torch.Tensor | torch._C.TensorBase)
            return _is_operator(value) or is_tensor or name in _OPEN_TORCH
        if own.startswith("graphwright.runtime.") and isinstance(value, type) and issubclass(value, nn.Module):
            return True
        if value in (torch.autocast, torch.utils.checkpoint.checkpoint, torch.func.functional_call):
            return True
        is_family = any(own == family or own.startswith(f"{family}.") for family in _OPEN_FAMILIES)
        is_family = is_family and (own.startswith("torch._ops.") or "._" not in own)
        return own in _OPEN or is_family or (isinstance(value, type) and value in _OPEN_COLLECTIONS)

    def _is_open_type(self, value: type) -> bool:
        return self._is_open(value.__module__, value)

    def _is_allowed(self, module: str) -> bool:
        if module == "builtins":  # those that are not open run text or open files
            return False
        module = module.removeprefix("torch._ops.")  # an operator belongs to its namespace, as to a package
        return self._everything or any(module == prefix or module.startswith(f"{prefix}.") for prefix in self._allow)


def _is_arithmetic(value: Any) -> bool:
    """Tell whether an object is a class of NumPy's numbers, or one of its operators."""
    if isinstance(value, numpy.ufunc):
        return getattr(numpy, value.__name__, None) is value
    return issubclass(type(value), type) and issubclass(value, numpy.number | numpy.bool_)


def _is_draw(value: Any) -> bool:
    """Tell whether a function draws from the generator that the module `random`, or that of NumPy, holds."""
    if value is numpy.random.seed:  # which does not say whose it is
        return True
    owner = getattr(value, "__self__", None)
    homes = {random.Random: "random", numpy.random.RandomState: "numpy.random"}
    home = homes.get(type(owner))
    return home is not None and getattr(sys.modules[home], value.__name__, None) == value


def _is_closed(module: str) -> bool:
    if module.partition(".")[0] in _CLOSED:
        return True
    return any(module == family or module.startswith(f"{family}.") for family in _CLOSED_FAMILIES)


def _is_operator(value: Any) -> bool:
    """Tell whether a function is an operator of torch, as `torch.ops.aten.add`, or calls one, as `torch.add`."""
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    name = getattr(value, "__name__", "")
    is_bound = getattr(getattr(torch._C, "_VariableFunctions", None), name, None) == value
    return is_bound and (not name.startswith("_") or hasattr(torch.ops.aten, name))


def _are_names(path: str) -> bool:
    return all(atom.isidentifier() for atom in path.split("."))


def _how_to_allow(module: str) -> str | None:
    if module == "builtins":
        return None
    return f"if you trust it: load(path, allow=[{module.removeprefix('torch._ops.').partition('.')[0]!r}])"


def _refuse(name: Any, why: str, fix: str | None = None) -> NoReturn:
    shown = name if isinstance(name, str) and len(name) < 200 and name.isprintable() else type(name).__name__
    raise LoadError(f"a file may not name {shown}: {why}", fix=fix or "load files only from those you trust")

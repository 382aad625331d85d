"""What the code of an allowed function reaches: files, other programs, the network, code that is built or imported.

Its code is read, not run: the global names that it uses, those of the functions of its package that these are, and the
names of attributes. That is a filter, no proof: who allows a package trusts it. Functions that have no code of
Python's are told to reach what they do not say.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import types
from typing import Any

from graphwright.ir import source_of
from graphwright.source import codes_of, held_by

_MOST = 200  # functions followed from one
_MODULES = frozenset({
    "_ctypes", "_imp", "_io", "_pickle", "_posixsubprocess", "_socket", "aiohttp", "asyncio", "builtins", "cffi",
    "cloudpickle", "code", "codeop", "ctypes", "dill", "fsspec", "ftplib", "gc", "glob", "h5py", "http", "httpx",
    "huggingface_hub", "imageio", "importlib", "io", "joblib", "marshal", "mmap", "multiprocessing", "nt", "os",
    "pathlib", "PIL", "pickle", "pkgutil", "posix", "pty", "py_compile", "requests", "runpy", "safetensors", "shelve",
    "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "subprocess", "tarfile", "tempfile", "urllib",
    "urllib3", "webbrowser", "xmlrpc", "zipfile", "zipimport",
})  # fmt: skip
_PARTS_OF_TORCH = (
    "torch.hub", "torch.serialization", "torch.jit", "torch.package", "torch.utils.cpp_extension",
    "torch.utils.model_zoo", "torch.multiprocessing", "torch.onnx", "torch.export",
)  # fmt: skip
# Of such modules.
_HARMLESS = frozenset({
    "environ", "fspath", "getenv", "Image", "is_in_onnx_export", "is_scripting", "is_tracing", "path",
    "PathLike", "StringIO", "sep",
})  # fmt: skip
_BUILTINS = frozenset({"__import__", "compile", "eval", "exec", "globals", "input", "open", "vars"})
_ATTRIBUTES = frozenset({
    "__array_interface__", "__array_struct__", "__builtins__", "__code__", "__cuda_array_interface__", "__globals__",
    "download", "exec_module", "extractall", "f_globals",
    "from_pretrained", "fromfile",
    "gi_frame", "import_module", "load_library", "load_module", "load_state_dict_from_url", "open",
    "popen", "push_to_hub", "read_bytes", "read_file", "write_file", "read_text",
    "save_pretrained", "spec_from_file_location", "system",
    "to_folder", "tofile", "urlopen", "urlretrieve", "write_bytes", "write_text",
})  # fmt: skip
_OF_TORCH = frozenset({"compile", "from_file", "load", "save"})


@functools.cache
def reach_of(value: types.FunctionType, owner: type | None = None) -> str | None:
    """Tell what an allowed function reaches that no file may, as "`open` in pkg.mod.write"; None where it is nothing.

    `owner` is the class that a method is called of: what its code names of it is looked at, too.

    >>> import textwrap
    >>> reach_of(textwrap.dedent), reach_of(textwrap.TextWrapper.wrap)
    (None, None)
    >>> import tokenize
    >>> reach_of(tokenize.open).endswith("io' in tokenize.open")
    True
    """
    package = str(value.__module__).partition(".")[0]
    waiting: list[types.FunctionType] = [value]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if len(seen) > _MOST:
            return f"more than {_MOST} functions"
        for code in codes_of(function.__code__):
            used: list[Any] = []
            found = _reach_of_code(code, function.__globals__, used)
            if found is not None:
                return f"{found!r} in {function.__module__}.{function.__qualname__}"
            used += [inspect.getattr_static(owner, name, None) for name in code.co_names] if owner is not None else []
            waiting += [each for one in used for each in functions_in(one, package)]
        waiting += [each for one in held_by(function).values() for each in functions_in(one, package)]
    return None


def functions_in(value: Any, package: str) -> list[types.FunctionType]:
    """The functions with code of Python's, of a package, that run when a function or class is called.

    >>> import textwrap
    >>> functions_in(textwrap.TextWrapper, "textwrap")
    [<function TextWrapper.__init__ at ...>]
    """
    if isinstance(value, type):
        members = [base.__dict__.get(name) for base in value.__mro__ for name in _MADE_BY]
        return [function for member in members for function in functions_in(member, package)]
    if isinstance(value, classmethod | staticmethod | types.MethodType):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    value = source_of(value)
    if callable(value) and hasattr(value, "__wrapped__"):
        value = inspect.unwrap(value)
    is_own = isinstance(value, types.FunctionType) and str(value.__module__).partition(".")[0] == package
    return [value] if is_own else []


_MADE_BY = ("__new__", "__init__", "__post_init__")


def _reach_of_code(code: types.CodeType, names: dict[str, Any], used: list[Any]) -> str | None:
    """The first name that one piece of code uses and that no file may reach; `used` gets what else it names."""
    owner: types.ModuleType | None = None  # the module whose attribute comes next
    for step in dis.get_instructions(code):
        name = step.argval
        if step.opname == "IMPORT_NAME" and _is_closed(str(name)):
            return str(name)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            if name in _BUILTINS and name not in names:
                return str(name)
            found, owner = names.get(name), None
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            if name in _ATTRIBUTES:
                return str(name)
            if owner is None:
                continue
            if _is_closed(owner.__name__) and name not in _HARMLESS:
                return f"{owner.__name__}.{name}"
            if owner.__name__ == "torch" and name in _OF_TORCH:
                return f"torch.{name}"
            found, owner = owner.__dict__.get(name), None
        else:
            owner = owner if step.opname in ("CACHE", "PUSH_NULL", "PRECALL") else None
            continue
        if isinstance(found, types.ModuleType):
            owner = found
            continue
        own = getattr(found, "__module__", None) if callable(found) else None
        if own == "builtins" and not _is_builtin(found):  # written in another language, and it does not say where
            return str(name)
        if isinstance(own, str) and own != "builtins" and _is_closed(own) and name not in _HARMLESS:
            return own
        used.append(found)
    return None


def _is_builtin(value: Any) -> bool:
    own = getattr(builtins, getattr(value, "__name__", ""), None)
    return own is value or any(kind is value for kind in vars(types).values())


def _is_closed(module: str) -> bool:
    parts = any(module == part or module.startswith(f"{part}.") for part in _PARTS_OF_TORCH)
    return parts or module.partition(".")[0] in _MODULES

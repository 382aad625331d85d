"""What the code of an allowed function reaches: files, other programs, the network, code that is built or imported.

Its code is read, not run: the global names that it uses, those of the functions of its package that these are, and the
names of attributes. That is a filter, no proof: who allows a package trusts it. Functions that have no code of
Python's are told to reach what they do not say.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["reach_of"]

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
_HARMLESS = frozenset({"environ", "getenv", "path", "PathLike", "fspath", "Image"})  # of such modules
_BUILTINS = frozenset({"__import__", "compile", "eval", "exec", "globals", "input", "open", "vars"})
_ATTRIBUTES = frozenset({
    "__builtins__", "__code__", "__globals__", "__subclasses__", "download", "exec_module", "extractall", "f_globals",
    "from_pretrained", "gi_frame", "import_module", "load_library", "load_module", "load_state_dict_from_url",
    "popen", "push_to_hub", "read_bytes", "read_text", "save_pretrained", "spec_from_file_location", "system",
    "to_folder", "tofile", "urlopen", "urlretrieve", "write_bytes", "write_text",
})  # fmt: skip
_OF_TORCH = frozenset({"compile", "from_file", "load", "save"})


@functools.cache
def reach_of(value: types.FunctionType) -> str | None:
    """Tell what an allowed function reaches that no file may, as "`open` in pkg.mod.write"; None where it is nothing.

    >>> import textwrap
    >>> reach_of(textwrap.dedent), reach_of(textwrap.TextWrapper.wrap)
    (None, None)
    >>> import tokenize
    >>> reach_of(tokenize.open)
    "'io' in tokenize.open"
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
        for code in _codes(function.__code__):
            found = _reach_of_code(code, function.__globals__)
            if found is not None:
                return f"{found!r} in {function.__module__}.{function.__qualname__}"
            waiting += _followed(code, function.__globals__, package)
    return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _reach_of_code(code: types.CodeType, names: dict[str, Any]) -> str | None:
    """The first name that one piece of code uses and that no file may reach."""
    owner: Any = None  # the module whose attribute comes next
    for step in dis.get_instructions(code):
        name = step.argval
        if step.opname == "IMPORT_NAME" and _is_closed(str(name)):
            return str(name)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            if name in _BUILTINS and name not in names:
                return str(name)
            owner = names.get(name)
            if not isinstance(owner, types.ModuleType):
                own = getattr(owner, "__module__", None) if callable(owner) else None
                if isinstance(own, str) and _is_closed(own) and name not in _HARMLESS:
                    return own
                owner = None
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if name in _ATTRIBUTES:
                return str(name)
            if owner is not None:
                if _is_closed(owner.__name__) and name not in _HARMLESS:
                    return f"{owner.__name__}.{name}"
                if owner.__name__ == "torch" and name in _OF_TORCH:
                    return f"torch.{name}"
                inner = owner.__dict__.get(name)
                owner = inner if isinstance(inner, types.ModuleType) else None
        elif owner is not None and step.opname not in ("CACHE", "PUSH_NULL", "PRECALL"):
            owner = None
    return None


def _followed(code: types.CodeType, names: dict[str, Any], package: str) -> Iterator[types.FunctionType]:
    """The functions of the same package that one piece of code names."""
    for name in code.co_names:
        found = names.get(name)
        if isinstance(found, types.FunctionType) and str(found.__module__).partition(".")[0] == package:
            yield found


def _is_closed(module: str) -> bool:
    parts = any(module == part or module.startswith(f"{part}.") for part in _PARTS_OF_TORCH)
    return parts or module.partition(".")[0] in _MODULES

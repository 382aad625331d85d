"""Calls of functions in C, and of Python's library, that are not known to compute only.

What such a call gives may be something else in another call: a ContextVar has another value, a logger another level.
One that gives nothing is called for what it does. Nobody can list the functions of which that is so; those that compute
can be, by the modules that have them. All others are said where the user's own functions call them, unless somebody
tells of them already: the clock, files and the environment (`world.py`), random numbers, what torch keeps. What they
give that others hold as well is looked at as what the program has in a global name is. Functions that mention such
calls run converted, so that their calls are seen.
"""

from __future__ import annotations

import collections
import functools
import sys
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from graphwright.capture.outside.said import first_told
from graphwright.capture.outside.world import WORLD, say_called, say_read
from graphwright.capture.state.running import set_in_context
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import is_of_library, mentions, user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

# Packages that only compute, or of which others tell; those in C without the `_` that some begin with.
_COMPUTE = frozenset(
    """
    argparse array ast base64 binascii bisect builtins calendar cmath codecs collections colorsys
    configparser contextlib copy csv dataclasses datetime difflib dis encodings enum fnmatch fractions
    functools genericpath getpass glob graphlib graphwright hashlib heapq hmac html importlib inspect io
    ipaddress itertools json keyword linecache marshal math ntpath numbers numpy onnx operator os packaging
    pathlib pickle platform posixpath pprint random re secrets shlex shutil sre statistics string struct
    subprocess tempfile textwrap time token tokenize torch torchaudio torchvision traceback types typing
    unicodedata uuid warnings weakref zlib zoneinfo
    """.split()  # noqa: SIM905
)
_COMPUTE_HERE = frozenset({
    ("thread", "allocate_lock"), ("thread", "RLock"), ("posix", "fspath"), ("sys", "intern"),
    ("sys", "getprofile"), ("sys", "setprofile"), ("sys", "gettrace"), ("sys", "settrace"), ("urllib", "parse"),
    ("contextvars", "ContextVar.set"), ("contextvars", "ContextVar.reset"),
})  # fmt: skip


def unknown_call(function: Any) -> str | None:
    """What to call a function in C or of Python's library that is not known to compute; None for all others.

    >>> import gc, math
    >>> unknown_call(gc.isenabled), unknown_call(math.sqrt)
    ('gc.isenabled', None)
    """
    kind = type(function)
    if kind is BuiltinFunctionType:
        owner = function.__self__
        return _unknown_in_c(owner if isinstance(owner, type) else type(owner), function.__module__, function.__name__)
    if kind is MethodDescriptorType:
        return _named(function.__objclass__.__module__, function.__qualname__)
    if kind is MethodType:
        function = function.__func__
    if type(function) is FunctionType and is_of_library(function.__code__.co_filename):
        # It may have been given the name and module of another one.
        return _named(str(function.__globals__.get("__name__")), function.__qualname__)
    return None


def say_unknown(
    recorder: Capture, function: Any, what: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> None:
    """Say that a call of the program's may give or do something else another time: an unknown one."""
    if recorder.typed is None or isinstance(value, TensorProxy):
        return
    if any(isinstance(leaf, TensorProxy) for leaf in leaves((args, kwargs))):
        return
    if what == "contextvars.ContextVar.get" and any(value is each for each in set_in_context()):
        return  # by the program itself
    frame = user_frame(sys._getframe(1))
    if frame is None or is_of_library(frame.f_code.co_filename):
        return
    if sys.getrefcount(value) > _OWN_REFERENCES:
        recorder.typed.callers.note_given(value, f"what {what}() gives", frame.f_code)
    if value is None and not _gives(what):
        if first_told(function) is None and not recorder.typed.callers.shows(getattr(function, "__self__", None)):
            say_called(recorder.typed, frame, what)
    elif what not in _GIVE_OBJECTS:
        say_read(recorder.typed, frame, f"{what}()")


_GIVE_OBJECTS = frozenset({"logging.getLogger"})  # always the same one for a name
_OWN_REFERENCES = 4  # to what a call has given: in `call`, here twice, and in what counts them


def tells_by_calls(code: CodeType, names: dict[str, Any]) -> bool:
    """Tell whether a function is to run converted, so that what it calls is seen.

    It mentions a call that is not known to compute, or one that goes past the methods of a container.

    >>> import gc, heapq
    >>> tells_by_calls((lambda: gc.isenabled()).__code__, {"gc": gc})
    True
    >>> tells_by_calls((lambda x: heapq.heappush([], x)).__code__, {"heapq": heapq})
    True
    """
    mentioned = mentions(code)
    found = [_found(names, path) for path in mentioned.paths]
    for name, _, taken in mentioned.imports:  # when it runs: what of these it reads may be an attribute of others, too
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            found += [vars(module).get(each) for each in (*taken, *mentioned.attributes)]
    found += [getattr(_PLAIN[path[0]], path[1], None) for path in mentioned.paths if path[0] in _PLAIN and path[1:]]
    return any(unknown_call(value) is not None or _goes_past(value) for value in found)


_PLAIN: dict[str, type] = {kind.__name__: kind for kind in (list, dict, set)}  # which are no global names


def _goes_past(function: Any) -> bool:
    """Tell whether a function in C reads and writes containers past the methods that a stand-in of one has."""
    if type(function) in (MethodDescriptorType, WrapperDescriptorType):
        return function.__objclass__ in (list, dict, set, collections.deque)
    return type(function) is BuiltinFunctionType and function.__module__ in ("_heapq", "_bisect")


def _found(names: dict[str, Any], path: tuple[str, ...]) -> Any:
    """What a global name leads to by its attributes, short of those of objects; nothing of the user's is run."""
    value = names.get(path[0])
    for atom in path[1:]:
        if isinstance(value, ModuleType):
            value = vars(value).get(atom)
        else:
            kind = value if isinstance(value, type) else type(value)
            value = next((vars(base)[atom] for base in kind.__mro__ if atom in vars(base)), None)
    return value


@functools.lru_cache(4096)
def _unknown_in_c(kind: type, module: str | None, name: str) -> str | None:
    """The same for a function in C of this name, of a module or of a class."""
    if kind in (ModuleType, type(None)):
        return _named(module or "", name)
    base = next((base for base in kind.__mro__ if name in vars(base)), kind)
    return _named(base.__module__, f"{base.__qualname__}.{name}")


@functools.lru_cache(1024)
def _named(module: str, name: str) -> str | None:
    package, _, rest = module.partition(".")
    package = package.lstrip("_")
    if package in _COMPUTE or (package, name) in _COMPUTE_HERE or (package, rest) in _COMPUTE_HERE:
        return None
    if name in WORLD.get(module, "").split() or (package == "posix" and name in WORLD["os"].split()):
        return None
    return f"{module.lstrip('_')}.{name}"


def _gives(what: str) -> bool:
    """Tell by the name of a function whether None is an answer of it, rather than nothing."""
    return what.rpartition(".")[2].lstrip("_").startswith("get")

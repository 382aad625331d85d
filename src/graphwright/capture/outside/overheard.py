"""Functions of other modules that a capture is to hear of when the program calls them: a stand-in for each.

A stand-in does what its original does, except where the program that this thread captures calls it: then the capture
decides. It stands in the module that has the original while programs are captured, and in modules of the program that
have it under a name of their own. What torch and the libraries of Python call for their own purposes is not heard of.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Collection, Iterable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.state.interception import Entry, original_of, stands_for
from graphwright.capture.state.leaf_modules import runs
from graphwright.capture.state.running import again, refusal, running
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.runtime import MODULE_TABLES, attributes_of, is_object
from graphwright.source import CallSite, is_internal, mentions, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture, TypedCapture


OUTSIDE = "call it outside of the program, or keep the function that calls it as one node: leaf_functions=[...]"


class Heard:
    """A call of the program that was heard of: in which frame, of what, with what."""

    # No dataclass: the constructor of one runs in a frame of no file, which would count as the program's.
    def __init__(
        self,
        recorder: TypedCapture,
        frame: FrameType,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.recorder, self.frame, self.function, self.args, self.kwargs = recorder, frame, function, args, kwargs

    def original(self) -> Any:
        """What the function gives that is called."""
        return self.function(*self.args, **self.kwargs)

    def at(self) -> str:
        """The line of the program that calls."""
        return CallSite(self.frame.f_code, self.frame.f_lasti, self.recorder.scope).line()

    def refused(self, what: str, fix: str = OUTSIDE) -> BaseException:
        """What to raise where no graph can have the call."""
        return refusal(CaptureError(what, at=self.at(), fix=fix))


Act = Callable[[Heard], Any]

_by_original: dict[int, tuple[Any, Any]] = {}  # id of an original -> itself, its stand-in
_entries: list[Entry] = []
_makers: dict[int, Callable[[Any], Any]] = {}  # by the place in `_entries`: what makes a stand-in for an original

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RUNTIME = os.path.join(_OURS, "python", "")  # what converted functions call in place of what the program does
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def overhear(
    module: ModuleType,
    names: Iterable[str],
    act: Act,
    carriers: Iterable[str] = (),
    inner: tuple[CodeType, ...] = (),
    through: tuple[str, ...] = (),
) -> None:
    """Have functions of a module heard of.

    `act(call)` is called in place of them. `carriers` are modules of Python's library through which a program calls
    them, `through` how the files of torch begin through which it does, `inner` the code of functions that count as the
    program.
    """
    overhear_in(vars(module), names, functools.partial(heard, act=act, carriers=carriers, inner=inner, through=through))


def overhear_in(names: dict[str, Any], which: Iterable[str], make: Callable[[Any], Any]) -> None:
    """Have functions of a namespace stood in for by what is made of each."""
    for name in which:
        original = original_of(names.get(name))
        if original is not None:
            _makers[len(_entries)] = make
            stand(names, name, original, make(original))


def overhear_class(module: ModuleType, name: str, act: Act | None, methods: dict[str, Act]) -> None:
    """Have it heard that an object of a class is made (`act`), or that methods of the class itself are called."""
    original = vars(module)[name]
    held = {method: heard(getattr(original, method), told) for method, told in methods.items()}
    made = original if act is None else heard(original, act)

    class Stand(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return made(*args, **kwargs)

        def __getattribute__(cls, attribute: str) -> Any:
            return held[attribute] if attribute in held else getattr(original, attribute)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, original)

        def __eq__(cls, other: object) -> bool:
            return other is cls or other is original

        def __hash__(cls) -> int:
            return hash(original)

    stand(vars(module), name, original, Stand(name, (), {}))


def stand(names: dict[str, Any], name: str, original: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
    """Have a stand-in stand in the place of an original, in one namespace."""
    known = _by_original.setdefault(id(original), (original, stand_in))
    stands_for(*known)
    _entries.append((names, name, *known))


def heard(
    original: Callable[..., Any],
    act: Act,
    carriers: Iterable[str] = (),
    inner: tuple[CodeType, ...] = (),
    through: tuple[str, ...] = (),
) -> Callable[..., Any]:
    """A function that does what another does, and that the capture hears of where its program calls it.

    Functions of torch with one of the codes `inner` count as the program: only their call tells that they run.
    """
    files = frozenset(carriers)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        recorder = running()
        if recorder is None or recorder.examples.is_running:
            return original(*args, **kwargs)
        if recorder.pending is not None and any(isinstance(each, TensorProxy) for each in args):
            raise again(recorder.pending)  # a `finally` on the way out; C gets nothing that stands for a tensor
        capture = hears(recorder)
        frame = None if capture is None else caller_of(sys._getframe(1), files, through)
        if frame is None and capture is not None and sys._getframe(1).f_code in inner:
            frame = user_frame(sys._getframe(1))
            while frame is not None and _library_of(frame.f_code.co_filename) is not None:
                frame = frame.f_back
        if capture is None or frame is None:
            return original(*args, **kwargs)
        if id(original) in capture.plan.leaf_ids:
            capture.questions.staging.leaf_called(frame)
            return original(*args, **kwargs)
        return act(Heard(capture, frame, original, args, kwargs))

    if isinstance(original, type):
        return stand_in
    return functools.wraps(original)(stand_in)


def hears(recorder: Capture) -> TypedCapture | None:
    """The capture, if its program is what runs now, rather than an operation on its examples.

    One without examples can say what is read, and make nodes: whoever asks it for more looks at `typed` first.
    """
    if not recorder.is_running or recorder.pending is not None or recorder.examples.is_running:
        return None
    return recorder  # type: ignore[return-value]


def caller_of(
    frame: FrameType | None, carriers: frozenset[str] = frozenset(), through: tuple[str, ...] = ()
) -> FrameType | None:
    """The frame of the program that calls what this frame belongs to; None where something else does.

    A module that is only being imported is no part of the program, nor what the garbage collector calls.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        is_python = file.startswith("<frozen ") or (file.startswith(_LIBRARY) and not any(p in file for p in _PACKAGES))
        if (
            is_python
            and os.path.basename(file).removeprefix("<frozen ").removesuffix(">").removesuffix(".py") not in carriers
        ):
            return None
        if not is_python and file != __file__ and not file.startswith((_RUNTIME, *through)):
            is_imported = frame.f_code.co_name == "<module>"
            is_other = is_internal(file) or is_imported or (gc.callbacks and _is_collecting(frame))
            return None if is_other else frame
        frame = frame.f_back
    return None


def _is_collecting(frame: FrameType | None) -> bool:
    """Tell whether Python's garbage collector calls what runs in a frame: it may, wherever the program is."""
    codes = {getattr(each, "__code__", None) for callback in gc.callbacks for each in runs(callback)} - {None}
    while codes and frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(4096)
def _library_of(file: str) -> str | None:
    """The name of the module of Python's library that a file is; None for other files."""
    if not file.startswith(("<frozen ", _LIBRARY)) or any(part in file for part in _PACKAGES):
        return None
    return os.path.basename(file).removeprefix("<frozen ").removesuffix(">").removesuffix(".py")


def stand_ins() -> list[Entry]:
    """Where stand-ins are to stand, whatever the program is: for what is there now, which others may have replaced.

    torch.compile puts functions of its own in the place of torch's when it is first imported.
    """
    for place, make in _makers.items():
        names, name, original, stand_in = _entries[place]
        now = names.get(name)
        if now is not original and now is not stand_in and now is not None and original_of(now) is now:
            made = _by_original.setdefault(id(now), (now, make(now)))
            stands_for(*made)
            _entries[place] = (names, name, *made)
    return _entries


def hear(function: Callable[..., Any]) -> Any:
    """The stand-in of a function, or of what a partial calls, where there is one; else the function."""
    known = _by_original.get(id(function))
    if known is not None and known[0] is function:
        return known[1]
    if type(function) is functools.partial and (inner := hear(function.func)) is not function.func:
        return functools.partial(inner, *function.args, **function.keywords)
    return function


class Unnamed:
    """Tells which functions may come by what is to be heard of, and is in no module: attributes have it, or arguments.

    `modules` are those of the program. A function that holds such a thing runs converted, so that its calls are seen.
    """

    def __init__(self, modules: Collection[Any]) -> None:
        self._modules, self._known = modules, 0
        self._heard = NamesOfHeard()
        self._names = frozenset[str]()  # the attributes by which modules lead there

    def look(self) -> None:
        """Look at the modules, where there is more to be heard of than there was."""
        if len(_by_original) != self._known:
            self._known, self._heard = len(_by_original), NamesOfHeard()
            self._names = self._heard.of_all(self._modules)

    def __call__(self, code: CodeType, names: dict[str, Any], own: dict[str, Any]) -> bool:
        mentioned = mentions(code)
        there = [value for path in mentioned.paths if type(value := names.get(path[0])) not in _BY_NAME]
        found = self._heard.of_all([*own.values(), *there])
        return "" in found or not mentioned.attributes.isdisjoint(found | self._names)


class NamesOfHeard:
    """The attributes by which values lead to what is to be heard of; "" where they are that, or contain it.

    What is found is kept, for as long as a capture lasts.

    >>> import types
    >>> overhear(os, ("getpid",), Heard.original)
    >>> sorted(NamesOfHeard().of_all([[os.getpid], types.SimpleNamespace(own=os.getpid, other=3)]))
    ['', 'own']
    """

    def __init__(self) -> None:
        self._of_classes: dict[type, dict[str, Any]] = {}  # what classes have that may lead there, by name
        self._nowhere: set[Any] = {*_LEAD_NOWHERE}  # the classes of what leads nowhere
        # By an object, and how deep it is; none is kept alive, since programs may see when it goes.
        self._found: dict[tuple[int, int], tuple[frozenset[str], weakref.ref[Any]]] = {}

    def of_all(self, values: Iterable[Any], depth: int = 0) -> frozenset[str]:
        """All that several values lead to."""
        found = _NO_NAMES
        for value in values:
            if type(value) not in self._nowhere:
                found |= self._of(value, depth)
        return found

    def _of(self, value: Any, depth: int) -> frozenset[str]:
        known = self._found.get((id(value), depth))
        return known[0] if known is not None and known[1]() is value else self._look(value, depth)

    def _look(self, value: Any, depth: int) -> frozenset[str]:
        kind = type(value)
        if kind.__module__.startswith(_OF_NO_PROGRAM):
            self._nowhere.add(kind)  # what stands for a value of the run is not asked
            return _NO_NAMES
        known = _by_original.get(id(value))
        found = _ITSELF if known is not None and known[0] is value else _NO_NAMES
        if kind in (functools.partial, staticmethod):
            return found | self._of(value.func if kind is functools.partial else value.__func__, depth)
        if depth == _DEEPEST:
            return found
        if kind in _CONTAINERS:
            items = value.values() if kind is dict else value
            return found | self.of_all(itertools.islice(items, _MOST_ITEMS), depth + 1)
        if issubclass(kind, type) or not (issubclass(kind, nn.Module) or is_object(value)):
            return found
        for name, item in (self._of_class(kind) | attributes_of(value)).items():
            if type(item) not in self._nowhere and name not in MODULE_TABLES:
                led = self._of(item, depth + 1)
                found |= led if "" not in led else led - _ITSELF | {name}
        if kind.__weakrefoffset__:
            self._found[id(value), depth] = found, weakref.ref(value)
        return found

    def _of_class(self, kind: type) -> dict[str, Any]:
        if kind not in self._of_classes:
            all_of = [pair for base in reversed(kind.__mro__) for pair in vars(base).items()]
            self._of_classes[kind] = {
                key: item for key, item in all_of if type(item) in _OF_CLASS and key not in _OF_TYPING
            }
        return self._of_classes[kind]


_NO_NAMES, _ITSELF = frozenset[str](), frozenset({""})
_OF_NO_PROGRAM = ("graphwright.", "logging", "dataclasses")  # loggers and fields, which many a function names
_BY_NAME = frozenset({FunctionType, BuiltinFunctionType, type, ModuleType})  # heard of where a module has them
_LEAD_NOWHERE = frozenset({bool, int, float, str, type(None), torch.Tensor, nn.Parameter, torch.dtype, ModuleType})
_CONTAINERS = (list, tuple, set, frozenset, dict)
_OF_CLASS = (functools.partial, staticmethod, *_CONTAINERS)
_OF_TYPING = frozenset({"__annotations__", "__dataclass_fields__", "__match_args__", "__parameters__"})
_MOST_ITEMS, _DEEPEST = 64, 3


def aliases(names: dict[str, Any]) -> list[Entry]:
    """Where in a namespace there are originals under whatever names: these are to be stood in for, too."""
    known = _by_original
    found = [(name, known[id(value)]) for name, value in [*names.items()] if id(value) in known]
    return [(names, name, *pair) for name, pair in found if names.get(name) is pair[0]]

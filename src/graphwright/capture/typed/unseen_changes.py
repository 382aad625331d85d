"""Whether the program may have changed, since some moment, what a capture does not see: a ContextVar, the environment.

It can only do so by code of its own: by an instruction that stores, or by calling what is not known to change nothing.
All functions that start meanwhile are looked at, and of those that were running before the instructions in between.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import enum
import functools
import gc
import inspect
import math
import operator
import sys
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx

from graphwright.capture.python.calls import call
from graphwright.capture.state.interception import Hearing, is_watch
from graphwright.capture.state.running import RUN
from graphwright.source import by_code, is_internal, is_of_library

if TYPE_CHECKING:
    from graphwright.capture.state.examples import Examples

_CALL = call.__code__
_CHANGES_NOTHING = frozenset({
    *[abs, all, any, bin, callable, chr, divmod, format, getattr, hasattr, hash, hex, id, isinstance, issubclass, len],
    sys.getrecursionlimit,
    *[iter, max, min, ord, pow, repr, round, sorted, sum, vars, builtins.__build_class__],
    *[each for each in vars(math).values() if type(each) is BuiltinFunctionType],
    *[operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.sub],
    *[operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.neg, operator.not_, operator.and_],
    *[operator.or_, operator.is_, operator.is_not, operator.contains, operator.getitem, operator.index],
})  # fmt: skip
_FIXED = (str, bytes, tuple, int, float, complex, bool, frozenset, range, type(None))  # whose methods change nothing
_READS = frozenset({
    "get", "items", "keys", "values", "copy", "index", "count", "__getitem__", "__contains__", "__len__",
})  # fmt: skip
_STORES = frozenset({
    "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE",
    "STORE_NAME", "DELETE_NAME",
})  # fmt: skip


class Listening:
    """Listens, from one moment on, to what the program calls. It does not start under a user's profiler.

    `examples` are those of the capture: what torch does on them is none of the program's doing.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.is_on = False
        self.is_changed = False
        self._running: dict[int, tuple[FrameType, int]] = {}
        self._storing: dict[int, frozenset[str]] = {}  # functions that run, and the variables into which they store
        self._quiet: dict[int, CodeType] = {}  # functions of torch's and ours, whatever they do: by id
        self._hearing: Hearing | None = None

    def is_started(self, frame: FrameType | None) -> bool:
        """Begin, in the call of a function, with those that are running from where they are. Tell whether it is on."""
        if not self.is_on or self.is_changed:
            self.is_changed, self.is_on, self._storing = False, is_watch(sys.getprofile()), {}
            self._hearing = Hearing(self._examples, self._heard, self._examples.watch) if self.is_on else None
            self._running = {id(each): (each, each.f_lasti) for each in _frames(frame)}
        return self.is_on

    def stop(self) -> None:
        """Listen no more, for good."""
        self._end()
        self.is_on, self._running = False, {}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While it lasts, do not listen: to what the capture does itself."""
        self._pause()
        try:
            yield
        finally:
            self._resume()

    def heard(self, run: Callable[[], Any]) -> Any:
        """Run a part of the program, and listen to it, where that is paused."""
        self._resume()
        try:
            return run()
        finally:
            self._pause()

    def _pause(self) -> None:
        if self._hearing is not None:
            self._hearing.off()

    def _resume(self) -> None:
        if self._hearing is not None and not self._hearing.is_over:
            self._hearing.on()

    def _end(self) -> None:
        if self._hearing is not None:
            self._hearing.is_over = True
            self._hearing.off()

    def may_have_changed(self, frame: FrameType | None) -> bool:
        """Tell whether what is not seen may be another by now, in the call of a function."""
        if not self.is_on or self.is_changed or self._storing:
            return True
        for each in _frames(frame):
            _, before = self._running.get(id(each), (each, None))
            if before is not None and _stores_between(each.f_code, before, each.f_lasti):
                self.is_changed = True
                self._end()
        return self.is_changed

    def _heard(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._examples.watch is not None:  # which goes on
            self._examples.watch.profile(frame, event, argument)
        code = frame.f_code
        if id(code) in self._quiet:
            return
        if code is not _CALL and is_internal(code.co_filename):
            self._quiet[id(code)] = code
        elif event == "call":
            if code is _CALL:
                self.is_changed |= not _is_harmless(frame.f_locals.get("function"))
            else:
                stores = _stores_of(frame)
                if stores is None or not all(_has_one_value(code, name) for name in stores):
                    self.is_changed |= _is_of_program(frame)
                elif stores:  # which is told by what they hold in the end
                    self._storing[id(frame)] = stores
        elif event == "return" and id(frame) in self._storing:
            values = [frame.f_locals.get(name) for name in self._storing.pop(id(frame))]
            if not all(isinstance(value, torch.Tensor) for value in values):  # into tensors: the capture sees it
                self.is_changed |= _is_of_program(frame)
        elif event == "c_call" and code is not _CALL and not _is_harmless(argument):
            self.is_changed |= _is_of_program(frame)
        if self.is_changed:
            self._end()


def _is_callback(code: CodeType) -> bool:
    """Tell whether code is what Python calls by itself: as the collector runs, or a weak dictionary loses an object."""
    if code.co_name == "remove" and code.co_filename == weakref.__file__:
        return True
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)


def _is_of_program(frame: FrameType | None) -> bool:
    """Tell whether a function runs for the program: it is the program's, or of Python and called from there."""
    if frame is not None and (_is_callback(frame.f_code) or frame.f_code.co_filename in _ASKING):
        return False
    while frame is not None and (frame.f_code.co_filename == "<string>" or is_of_library(frame.f_code.co_filename)):
        frame = frame.f_back
        if frame is not None and _is_callback(frame.f_code):
            return False
    return frame is not None and (frame.f_code is _CALL or not is_internal(frame.f_code.co_filename))


# Of Python's library, what only asks: it changes what it makes itself, and remembers what it has found out.
_ASKING = frozenset({inspect.__file__, enum.__file__, dis.__file__, typing.__file__})


def _frames(frame: FrameType | None) -> Iterable[FrameType]:
    """The functions of the program that are running, from one outwards."""
    while frame is not None and frame.f_code is not RUN:
        if not is_internal(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _is_harmless(function: Callable[..., Any] | None) -> bool:
    """Tell whether a call of something in C changes nothing that lasts, short of what the capture sees."""
    if not isinstance(function, BuiltinFunctionType | MethodDescriptorType | WrapperDescriptorType):
        return True  # in Python: it is heard itself; or a class
    if function.__name__ == "__new__":
        return True
    owner = getattr(function, "__self__", None)
    kind = getattr(function, "__objclass__", type(owner))
    if isinstance(owner, torch.Tensor) or str(getattr(function, "__module__", "")).startswith("torch"):
        return True
    if str(kind.__module__).startswith("torch") or str(getattr(owner, "__name__", "")).startswith("torch"):
        return True
    if issubclass(kind, _FIXED) and owner is not None:
        return True
    if function.__name__ in _READS and issubclass(kind, dict | list | set):
        return True
    try:
        return function in _CHANGES_NOTHING
    except TypeError:  # of what has no hash
        return False


@by_code
def _stored(code: CodeType) -> frozenset[tuple[str, str | None]]:
    """In which ways a function stores, into values of which variables."""
    return frozenset((kind, name) for _, kind, name in _stores_in(code))


def _stores_of(frame: FrameType) -> frozenset[str] | None:
    """The variables into whose values a function that starts may store, its own aside; None for any place."""
    found = set()
    for kind, name in _stored(frame.f_code):
        if name is None:
            return None
        if kind == "STORE_SUBSCR":
            if not _is_made_in(_owner_of(name, frame), name):
                found.add(name)
        elif name != _being_made(frame) and not _is_of_autograd(frame, name):
            return None
    return frozenset(found)


def _is_of_autograd(frame: FrameType, name: str) -> bool:
    """Tell whether an argument is what autograd makes for one operation, to keep what its backward needs."""
    return _has_one_value(frame.f_code, name) and isinstance(frame.f_locals.get(name), FunctionCtx)


def _being_made(frame: FrameType) -> str | None:
    """The variable that holds the object which the call of its class is making, where a function is its `__init__`.

    An object that is there already may have its `__init__` called by that name, or be what its class gives instead of a
    new one. Then it is none.
    """
    code, caller = frame.f_code, frame.f_back
    if code.co_name != "__init__" or not code.co_argcount or caller is None:
        return None
    name = code.co_varnames[0]
    if not isinstance(type(frame.f_locals.get(name)).__new__, BuiltinFunctionType):
        return None
    if "__init__" in caller.f_code.co_names:  # that of a class below, of the same object
        own = _being_made(caller)
        if own is None or caller.f_locals.get(own) is not frame.f_locals.get(name):
            return None
    return name


def _stores_in(code: CodeType) -> Iterable[tuple[int, str, str | None]]:
    """The offsets and kinds of instructions that store, with the variable into whose value they do, where it is one."""
    loaded: list[str | None] = []  # by the instructions before: variables, "" for constants, None for all else
    for step in dis.get_instructions(code):
        if step.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        if step.opname == "STORE_SUBSCR":  # the value, what it is stored into, and the key
            yield step.offset, step.opname, (loaded[-2] or None) if loaded[-1] is not None else None
        elif step.opname in _STORES:
            yield step.offset, step.opname, (loaded[-1] or None) if step.opname == "STORE_ATTR" else None
        if step.opname in _LOADS:
            loaded.append(str(step.argval))
        elif step.opname.startswith("LOAD_FAST_") and isinstance(step.argval, tuple):  # two in one
            loaded += map(str, step.argval)
        else:
            loaded.append("" if step.opname in ("LOAD_CONST", "LOAD_SMALL_INT") else None)


_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF"})


def _owner_of(name: str, frame: FrameType) -> CodeType | None:
    """The function that has a variable: this one, or one around it, which is running."""
    around: FrameType | None = frame
    while around is not None:
        code = around.f_code
        if name in code.co_varnames or name in code.co_cellvars:
            return code
        if around is frame and name not in code.co_freevars:
            return None
        around = around.f_back
        while around is not None and around.f_code.co_filename != frame.f_code.co_filename:
            around = around.f_back
    return None


@functools.lru_cache(1024)
def _is_made_in(code: CodeType | None, name: str) -> bool:
    """Tell whether a variable of a function only holds containers that each of its calls makes anew."""
    if code is None:
        return False
    count = code.co_argcount + code.co_kwonlyargcount
    is_starred = bool(code.co_flags & 0x04)
    if code.co_flags & 0x08 and code.co_varnames[count + is_starred] == name:  # the dict of its keyword arguments
        return True
    if name in code.co_varnames[: count + is_starred]:
        return False
    made = list(_assignments(code, name))
    return bool(made) and all(made)


@functools.lru_cache(1024)
def _has_one_value(code: CodeType, name: str) -> bool:
    """Tell whether a variable of a function is the same from when it is assigned, or passed, to the end."""
    is_argument = name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return name in code.co_varnames and sum(1 for _ in _assignments(code, name)) == (not is_argument)


def _assignments(code: CodeType, name: str) -> Iterable[bool]:
    """For each assignment of a variable, in a function and those inside of it, whether it is of a new container."""
    before = ""
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_FAST", "STORE_DEREF") and step.argval == name:
            yield before in ("BUILD_MAP", "BUILD_LIST", "BUILD_SET", "BUILD_CONST_KEY_MAP")
        elif step.opname.startswith("STORE_FAST_") and name in str(step.argval):
            yield False
        if step.opname not in ("CACHE", "EXTENDED_ARG"):
            before = step.opname
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _assignments(const, name)


@functools.lru_cache(1024)
def _stores_between(code: CodeType, first: int, last: int) -> bool:
    """Tell whether code stores between two of its instructions, in the loop around them where they are in one."""
    low, high = min(first, last), max(first, last)
    loops = [
        (step.argval, step.offset)
        for step in dis.get_instructions(code)
        if step.opcode in _JUMPS and type(step.argval) is int and step.argval <= step.offset
    ]
    around = [loop for loop in loops if loop[0] <= low and high <= loop[1]]
    if first == last and not around:
        return False  # it is still in the same call
    if first >= last:
        low, high = min(around, key=lambda loop: loop[1] - loop[0], default=(0, len(code.co_code)))
    for start, end in loops:  # those that are partly in between
        if start <= high and low <= end and not (start <= low and high <= end):
            low, high = min(low, start), max(high, end)
    return any(
        low <= offset <= high and not (kind == "STORE_SUBSCR" and name is not None and _is_made_in(code, name))
        for offset, kind, name in _stores_in(code)
    )


_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)

"""Functions that a node is given: torch calls them when the captured program runs, with what they hold then.

A hook on a gradient is the most common one. It runs after the program, which cannot see what it does. So a method of
a module of the program is read from the captured module; a function that closes over values or modules of the program
is made again around those of the run; and one that shares with the program a variable or container which either may
change is refused.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from types import CellType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.effects.hook_effects import writes_later
from graphwright.capture.state.running import RUN, refusal
from graphwright.errors import CaptureError
from graphwright.ir import Argument
from graphwright.ops import close_over
from graphwright.runtime import attributes_of, is_object
from graphwright.source import closure_of, content_of, held_by, is_bound_once, mentions, source_behind

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_FIX = "make it a method of the module, or a function that holds only tensors and numbers of the program"


def given_function(recorder: TypedCapture, value: Callable[..., Any]) -> Argument:
    """The argument for a function, method or class; None for one that no graph can have."""
    if isinstance(value, type):
        return None if closes_over_values(value) else value
    if isinstance(value, MethodType):
        return _method(recorder, value)
    if type(value) is FunctionType and (value.__closure__ or value.__defaults__ or value.__kwdefaults__):
        return _function(recorder, value)
    return value


def closes_over_values(kind: type) -> bool:
    """Tell whether the methods of a class that the program defines close over values of it."""
    if "<locals>" not in kind.__qualname__:
        return False
    functions = [getattr(value, "__func__", value) for value in vars(kind).values()]
    cells = [cell for each in functions if type(each) is FunctionType for cell in each.__closure__ or ()]
    return holds_values([*map(content_of, cells)])


def _method(recorder: TypedCapture, method: MethodType) -> Argument:
    owner, name = method.__self__, method.__func__.__name__
    if isinstance(owner, nn.Module):
        path = path_of(recorder, owner)
        if path is None or getattr(type(owner), name, None) is not method.__func__:
            return method
        writes_later(recorder, owner, path, method.__func__)
        return recorder.node("get_attr", f"{path}.{name}".lstrip("."), (), {}, name)
    if is_object(owner) and holds_values(attributes_of(owner)):
        return None
    return None if given_function(recorder, method.__func__) is None else method


def _function(recorder: TypedCapture, function: FunctionType) -> Argument:
    """A function as it is, or the node that makes it again around what it holds."""
    cells = closure_of(function)
    shared = what_is_shared(function)
    if shared is not None:
        raise refusal(_shared(recorder, function, shared))
    held = held_by(function) | dict(_defaults(function))
    for item in held.values():
        path = path_of(recorder, item) if isinstance(item, nn.Module) else None
        if path is not None:
            writes_later(recorder, item, path, function)
    made = {name: given for name, item in held.items() if (given := _held(recorder, item)) is not item}
    if not made:
        return function
    if any(given is None for given in made.values()):
        return None
    owner = _definition_around(function)
    for name in made.keys() & cells.keys():
        if owner is not None and is_bound_once(owner, name):
            continue
        recorder.at_end.append(functools.partial(_check_variable, function, cells[name], held[name], recorder.where()))
    empty = close_over(function, dict.fromkeys(made))  # no graph holds values of its capture
    return recorder.node("call_function", close_over, (empty, made), {}, function.__name__)


def _definition_around(function: FunctionType) -> ast.AST | None:
    """The definition of the function that runs, and that a function was defined in."""
    inner = function.__code__
    for frame in _frames(sys._getframe(1)):
        code = frame.f_code
        if code.co_filename == inner.co_filename:
            for definition in source_behind(code).definitions(code.co_name, code.co_firstlineno):
                last = definition.end_lineno or 0
                if definition.lineno <= inner.co_firstlineno <= last and code.co_name != inner.co_name:
                    return definition
    return None


def _held(recorder: TypedCapture, item: Any) -> Argument:
    """The argument for what a function holds: the very item where no node gives it."""
    if isinstance(item, nn.Module):
        return _module(recorder, item)
    if isinstance(item, MethodType | FunctionType):
        return given_function(recorder, item)
    return recorder.argument(item) if holds_values(item) else item


def _module(recorder: TypedCapture, module: nn.Module) -> Any:
    path = path_of(recorder, module)
    if path is None:
        return module
    if path:
        return recorder.node("get_attr", path, (), {}, path)
    method = recorder.node("get_attr", "modules", (), {}, "modules")  # every module has it
    return recorder.node("call_function", getattr, (method, "__self__"), {}, "module")


def path_of(recorder: TypedCapture, module: nn.Module) -> str | None:
    """The dotted path of a module of the program, None for others."""
    return None if recorder.shells is None else recorder.shells.path(module)


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The parameters that have defaults, with these."""
    code = function.__code__
    names, defaults = code.co_varnames[: code.co_argcount], function.__defaults__ or ()
    yield from zip(names[len(names) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def what_is_shared(function: FunctionType) -> str | None:
    """Say what a function does with what the program has, where either may change it and the other does not see it."""
    frames = [*_frames(sys._getframe(1))]
    rebound = mentions(function.__code__).rebound
    for name, cell in closure_of(function).items():
        item = content_of(cell)
        is_own = any(name in frame.f_code.co_cellvars and frame.f_locals.get(name) is item for frame in frames)
        if name in rebound and is_own:
            return f"assigns the program's variable {name!r}"
        if (isinstance(item, list | dict | set) or _may_change(item)) and _is_local(item, frames):
            return f"shares {name!r}, a {type(item).__name__}, with the program"
    return None


def _may_change(item: Any) -> bool:
    return is_object(item) and not isinstance(item, nn.Module) and not isinstance(item, tuple)


def _is_local(item: Any, frames: list[FrameType]) -> bool:
    """Tell whether a variable of functions that the program runs has an item, none of what is around the program."""
    for frame in frames:
        own = frame.f_locals
        if any(value is item and name not in frame.f_code.co_freevars for name, value in own.items()):
            return True
    return False


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Iterate over the frames of the program's own functions, from one outwards."""
    while frame is not None and frame.f_code is not RUN:
        if not frame.f_globals.get("__name__", "").startswith("graphwright."):
            yield frame
        frame = frame.f_back


def _check_variable(function: FunctionType, cell: CellType, item: Any, at: str | None) -> None:
    if content_of(cell) is not item:
        raise CaptureError(
            f"the program gives a variable another value after torch was given {function.__qualname__}, which reads it",
            at=at,
            fix="give the function its value as a default: lambda gradient, scale=scale: gradient * scale",
        )


def _shared(recorder: TypedCapture, function: Callable[..., Any], what: str) -> CaptureError:
    name = getattr(function, "__qualname__", "a function")
    return CaptureError(
        f"torch is given {name}, which {what}: it runs where the program does not see it", at=recorder.where(), fix=_FIX
    )

"""What a program asks of torch's modes: `torch.is_grad_enabled()`, `torch.get_autocast_dtype("cpu")`.

No function mode sees these questions. So while a program is captured, other functions stand under these names, which
ask the capture of this thread where the program asks, and torch itself where anybody else does. What changes from one
call to the next is read where it is asked; what dtypes follow from is taken for granted, and checked as a call starts.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.gradients import is_asked_by_program, read_mode
from graphwright.capture.state.interception import Entry, stands_for
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import symbol_of
from graphwright.ir import Node, first_operation
from graphwright.source import is_internal

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture, TypedCapture


def _grad_mode(recorder: TypedCapture, function: Callable[..., Any]) -> Any:
    return recorder.ambient.read_grad_mode(function)


def _inference_mode(recorder: TypedCapture, function: Callable[..., Any]) -> Any:
    recorder.ambient.notice()
    is_known = recorder.ambient.is_inside("inference")
    return function() if is_known else read_mode(recorder, function, function())


def _autocast(recorder: TypedCapture, function: Callable[..., Any], device: str = "") -> Any:
    """What autocast does for a kind of device, which regions of the program's own decide."""
    args = (device,) if device else ()
    name = device or ("cpu" if "cpu" in function.__name__ else "cuda")
    if not recorder.ambient.is_inside("autocast", name):
        take_mode(recorder, function, args)
    return function(*args)


def _default_dtype(recorder: TypedCapture, function: Callable[..., Any]) -> Any:
    take_mode(recorder, function, ())
    return function()


_ANSWERS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.is_grad_enabled: _grad_mode, torch.is_inference_mode_enabled: _inference_mode,
    torch.is_autocast_enabled: _autocast, torch.is_autocast_cpu_enabled: _autocast,
    torch.get_autocast_dtype: _autocast, torch.get_autocast_cpu_dtype: _autocast,
    torch.get_autocast_gpu_dtype: _autocast, torch.get_default_dtype: _default_dtype,
}  # fmt: skip
_DTYPE = torch.get_autocast_dtype
_MAKES_AUTOCAST = torch.autocast.__init__.__code__


def _is_default_dtype(frame: FrameType, function: Callable[..., Any]) -> bool:
    """Tell whether a context of autocast is being made that is given no dtype: older releases ask in any case."""
    return frame.f_code is _MAKES_AUTOCAST and function is _DTYPE and frame.f_locals.get("dtype") is None


def mode_asked(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer to a question for one of torch's modes; NotImplemented where torch itself is to give it."""
    capture = recorder.typed
    if capture is None or capture.pending is not None or capture.examples.is_running or kwargs:
        return NotImplemented
    if not is_asked_by_program(sys._getframe(1)):
        return NotImplemented
    torchs = _ASKED[function]
    return _ANSWERS[torchs](capture, torchs, *args)


def take_mode(recorder: TypedCapture, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Take what a function of torch says of a mode for granted: that it is so is checked when a call starts."""

    def make() -> Node:
        graph = recorder.root.graph
        first = first_operation(graph)
        with graph.inserting_before(first) if first is not None else graph.inserting_after():
            return graph.call_function(function, args)

    text = f"torch.{function.__name__}({', '.join(map(repr, args))})"
    is_enabled = function is torch.is_autocast_enabled and args  # which dtypes may follow from, too
    recorder.ledger.take(f"autocast_{args[0]}" if is_enabled else text, function(*args), make, text)


def _standing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def ask(*args: Any, **kwargs: Any) -> Any:
        recorder, frame = running(), sys._getframe(1)
        if recorder is None or recorder.examples.is_running:
            return function(*args, **kwargs)
        if is_internal(frame.f_code.co_filename):
            if recorder.typed is not None and _is_default_dtype(frame, function):
                recorder.typed.ambient.made_without_dtype(frame.f_locals["self"])
            return function(*args, **kwargs)
        answer = mode_asked(recorder, ask, args, kwargs)
        return function(*args, **kwargs) if answer is NotImplemented else answer

    return ask


def _set_grad_enabled(enabled: bool) -> None:
    """`torch._C._set_grad_enabled`, also of a number that only a run knows, which C++ does not take."""
    recorder, symbol = running(), symbol_of(enabled)
    if recorder is not None and recorder.typed is not None and symbol is not None:
        recorder.typed.ambient.flag, enabled = enabled, bool(symbol.sample)
    _SET_GRAD_ENABLED(enabled)


def _inference_mode_of(enabled: bool) -> Any:
    """`torch._C._InferenceMode`: a context, which is a region where the program enters it."""
    recorder = running()
    if recorder is None or recorder.pending is not None or not _is_program_running():
        return _INFERENCE_MODE(enabled)
    return recorder.ambient.inference_mode(enabled)


def _is_program_running() -> bool:
    """Tell whether operations come to the capture: not while one is being recorded, or run on examples."""
    is_on = torch._C._get_torch_function_state() == _ENABLED  # type: ignore[attr-defined]
    return is_on and torch._C._len_torch_function_stack() > 0


_ENABLED = torch._C._TorchFunctionState.ENABLED  # type: ignore[attr-defined]
_SET_GRAD_ENABLED, _INFERENCE_MODE = torch._C._set_grad_enabled, torch._C._InferenceMode
_STANDING = {function: _standing(function) for function in _ANSWERS}
_ENTRIES: list[Entry] = [  # (global variables, name, what is there, what stands there) of all that were found
    *[(vars(torch), function.__name__, function, standing) for function, standing in _STANDING.items()],
    (vars(torch._C), "_set_grad_enabled", _SET_GRAD_ENABLED, _set_grad_enabled),
]
INFERENCE: list[Entry] = [(vars(torch._C), "_InferenceMode", _INFERENCE_MODE, _inference_mode_of)]  # of all captures
# What may be called is torch's own function, where the program has it under a name of its own, or what stands for it.
_ASKED = {asked: function for function, standing in _STANDING.items() for asked in (function, standing)}
MODES = tuple(_ASKED)
for _entry in (*_ENTRIES, *INFERENCE):
    stands_for(_entry[2], _entry[3])


_LIBRARIES = ("torch", __name__.partition(".")[0], "__main__")  # a program's file may be called as one of Python's
_looked_at: set[str] = set()  # modules, by name


def modes_of(function: Callable[..., Any]) -> list[Entry]:
    """What stands where while a function is captured: one list for all captures, which gets longer.

    Names that modules have given such functions (`from torch import is_grad_enabled`) are looked for in those that were
    imported since the last time: about 10 ms for two thousand of them.
    """
    spaces = [vars(sys.modules["__main__"]), getattr(getattr(function, "__func__", function), "__globals__", {})]
    if len(sys.modules) != len(_looked_at):
        _looked_at.intersection_update(sys.modules)  # those that are gone would have all looked through each time
        for name, module in list(sys.modules.items()):
            if name not in _looked_at:
                _looked_at.add(name)
                is_program = name.partition(".")[0] not in _LIBRARIES
                spaces += [getattr(module, "__dict__", None) or {}] if is_program else []
    known = {(id(names), name) for names, name, *_ in _ENTRIES}
    for space in {id(space): space for space in spaces}.values():
        _ENTRIES.extend(entry for entry in _found_in(space) if (id(entry[0]), entry[1]) not in known)
    return _ENTRIES


def _found_in(names: dict[str, Any]) -> list[Entry]:
    if _IDS.isdisjoint(map(id, list(names.values()))):
        return []
    held = [(name, value) for name, value in list(names.items()) if id(value) in _IDS]
    return [(names, name, value, _STANDING[value]) for name, value in held]


_IDS = frozenset(map(id, _STANDING))

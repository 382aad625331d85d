"""Regions of ambient state: grad mode, autocast, inference mode and others, recorded where they are entered and left.

A region that changes nothing while the program is captured still matters where the caller's own state is another, so
what counts is the entering, not the state at each operation. The function mode sees how grad mode is set. Autocast asks
each function mode for its class when it is entered and left, which tells. What sets inference mode stands under another
name while a program is captured (modes.py). Hooks on what autograd saves and levels of forward mode are seen at the
next operation. A mode that sees torch's operators, which may do anything with them, is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.autograd import forward_ad, grad_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from graphwright.capture.calls.gradients import read_mode
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.ir import Node
from graphwright.ops import enter_context, exit_context
from graphwright.source import CallSite, decorated

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_HOOKS = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)  # torch 2.6 tells none
_COUNT_MODES = torch._C._len_torch_dispatch_stack
_CHECKPOINTS = "torch.utils.checkpoint"  # what it stands around operations only keeps or computes again
_INFERENCE_MODE = torch._C._InferenceMode
_IS_INFERENCE_MODE = torch.is_inference_mode_enabled  # not what stands for it while a program is captured
_GRAD_FILE = grad_mode.__file__
_AUTOCAST = {torch.autocast.__enter__.__code__: True, torch.autocast.__exit__.__code__: False}


_Key: TypeAlias = tuple[str, object]  # what tells a region from others: its kind, and what it is entered for


@dataclasses.dataclass(eq=False)
class _Region:
    key: _Key
    node: Node  # what enters it
    grad: bool | None = None  # the grad mode inside of it, where the program says
    restores: bool | None = None  # the grad mode that a later call of `set_grad_enabled` leaves it by


class Ambient:
    """The regions that a program is inside of while it is captured."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._open: list[_Region] = []
        self._is_inference = torch.is_inference_mode_enabled()
        self._grad_outside = torch.is_grad_enabled()
        self.flag: Any = None  # what grad mode is set to next, where only a run knows
        self._left: tuple[Any, Any] | None = None  # the context that left a region by being made, and that one's flag
        self._asked: dict[Symbol, Node | None] = {}  # grad modes that were read, and what had entered the region
        self._default_dtypes: list[Any] = []  # contexts of autocast that were made without a dtype
        self._hooks_outside, self._level_outside, self._modes = _HOOKS(False), forward_ad._current_level, _COUNT_MODES()

    @property
    def depth(self) -> int:
        """How many regions the program is inside of."""
        return len(self._open)

    def forget(self, depth: int) -> None:
        """Go back to an earlier depth: the regions since then are in a graph that is given up."""
        del self._open[depth:]

    def _enter(self, key: _Key, manager: Callable[..., Any], *args: Any, **kwargs: Any) -> _Region:
        arguments = (manager, *map(self._recorder.argument, args))
        node = entered(self._recorder, arguments, kwargs, manager.__name__)
        self._open.append(_Region(key, node))
        return self._open[-1]

    def _is_open(self, key: _Key) -> bool:
        return any(region.key == key for region in self._open)

    def _leave(self, key: _Key) -> None:
        """Leave a region and those inside it."""
        while self._is_open(key):
            self._recorder.node("call_function", exit_context, (self._open.pop().node,), {})

    # ---- questions

    def read_grad_mode(self, function: Callable[..., bool]) -> Any:
        """Whether gradients are taken: a bool of the program, unless it says itself in what region it is."""
        self.notice()
        region = next((region for region in reversed(self._open) if region.key[0] in ("grad", "inference")), None)
        is_known = region is not None and region.grad is not None and region.restores is None
        if is_known or (region is None and torch.is_grad_enabled() is not self._grad_outside):
            return torch.is_grad_enabled()  # in an autograd function, too, whose operations are recorded one by one
        number = read_mode(self._recorder, function, torch.is_grad_enabled())
        self._asked[number.node] = None if region is None else region.node
        return number

    def is_inside(self, kind: str, name: str = "") -> bool:
        """Tell whether the program is inside a region of its own of one kind, of autocast for one kind of device."""
        return any(region.key[0] == kind and (not name or region.node.args[1] == name) for region in self._open)

    def made_without_dtype(self, context: torch.autocast) -> None:
        """Note that a context of autocast takes the dtype of the one around it."""
        self._default_dtypes.append(context)

    # ---- inference mode

    def notice(self) -> None:
        """Record what was entered or left since the last operation."""
        hooks = _HOOKS(False)
        if hooks is not self._hooks_outside or self._open:
            self._notice_hooks(hooks)
        if forward_ad._current_level != self._level_outside or self._open:
            self._notice_level(forward_ad._current_level)
        if _COUNT_MODES() > self._modes:
            self._refuse_mode()
        now = _IS_INFERENCE_MODE()
        if now is self._is_inference:
            return
        self._is_inference = now
        if self._is_open(("inference", not now)):
            self._leave(("inference", not now))
        else:
            self._enter(("inference", now), torch.inference_mode, *(() if now else (False,))).grad = not now

    def _notice_hooks(self, hooks: tuple[Any, Any] | None) -> None:
        """Record that hooks on what autograd saves for the backward are others than at the last operation."""
        if hooks is not None and hooks[0].__module__ == _CHECKPOINTS:
            return
        regions = [region for region in self._open if region.key[0] == "saved"]
        around: list[Any] = [self._hooks_outside, *[region.key[1] for region in regions]]
        place = next((place for place, each in enumerate(around) if _are_same(each, hooks)), None)
        if place is None:
            self._enter(("saved", hooks), torch.autograd.graph.saved_tensors_hooks, *(hooks or ()))
        elif place < len(regions):
            self._leave(regions[place].key)

    def _notice_level(self, level: int) -> None:
        """Record that a level of forward mode was entered or left."""
        is_inside = self._is_open(("level", level))
        if level > self._level_outside and not is_inside:
            self._enter(("level", level), forward_ad.dual_level)
        elif level == self._level_outside:
            self._leave(("level", level + 1))

    def _refuse_mode(self) -> None:
        mode = _get_current_dispatch_mode()
        if type(mode).__module__ == _CHECKPOINTS or type(mode).__module__.startswith("graphwright."):
            return
        self._recorder.questions.refusals.refuse_here(
            f"the program enters a {type(mode).__qualname__}, which may do anything with the operators that torch runs",
            "enter it around the captured program, or keep what enters it one node: leaf_functions=[...]",
            "failure",
        )

    def inference_mode(self, enabled: bool) -> contextlib.AbstractContextManager[None]:
        """What to enter in place of `torch._C._InferenceMode(enabled)`: a region that is recorded."""
        return _InferenceRegion(self, enabled)

    def enter_inference(self, flag: bool, enabled: bool, key: _Key) -> bool:
        """Record that inference mode is entered by a region; answer with the mode before it."""
        self.notice()
        region = self._enter(key, torch.inference_mode, *(() if flag is True else (flag,)))
        region.grad = not flag if type(flag) is bool else None
        before, self._is_inference = self._is_inference, enabled
        return before

    def leave_inference(self, key: _Key, before: bool) -> None:
        """Record that a region of inference mode is left."""
        self._is_inference = before
        if self._recorder.pending is None:
            self._leave(key)

    # ---- grad mode

    def set_grad_mode(self, enabled: bool) -> None:
        """Record and do what `torch._C._set_grad_enabled` is called for."""
        self.notice()
        context, method = _grad_context(sys._getframe(1))
        key = "grad", id(context)
        flag, self.flag = enabled if self.flag is None else self.flag, None
        self._recorder.keep.append(context)  # known by its id
        if method in ("__exit__", "__call__"):
            self._leave(key)
        elif isinstance(context, torch.no_grad | torch.enable_grad):
            self._enter(key, type(context)).grad = enabled
        elif method == "__enter__":
            self._enter_made(key, flag)
        else:
            self._set_by_function(key, flag)
        torch._C._set_grad_enabled(enabled)

    def _set_by_function(self, key: _Key, flag: bool) -> None:
        """`torch.set_grad_enabled(flag)`, also where it goes on as a context; one may set what was before another."""
        last = self._open[-1] if self._open else None
        if last is not None and last.restores is not None and (last.restores is flag or self._was_before(flag)):
            self._left = key, last.node.args[1]
            self._leave(last.key)
        else:
            before = torch.is_grad_enabled()
            self._enter(key, torch.set_grad_enabled, flag).restores = before

    def _was_before(self, flag: bool) -> bool:
        """Tell whether a flag is the grad mode that was read outside of the innermost region."""
        symbol = symbol_of(flag)
        around = [region.node for region in self._open[:-1] if region.key[0] in ("grad", "inference")]
        return symbol in self._asked and self._asked[symbol] is (around[-1] if around else None)

    def _enter_made(self, key: _Key, flag: bool) -> None:
        """A `set_grad_enabled` turns out to be a context: it has set the grad mode when it was made."""
        if self._left is not None and self._left[0] == key:  # and left no region by that
            self._enter(("grad", None), torch.set_grad_enabled, self._left[1]).restores = flag
        if not self._is_open(key):
            self._enter(key, torch.set_grad_enabled, flag)
        self._open[-1].restores = None
        self._open[-1].grad = flag if type(flag) is bool else None

    # ---- autocast

    def asked_for_class(self, frame: FrameType) -> None:
        """Record that autocast is entered or left, if that is what looks at the function mode."""
        enters = enters_autocast(frame)
        if enters is None or self._recorder.pending is not None:
            return
        context = frame.f_locals["self"]
        self.notice()
        self._recorder.keep.append(context)
        key = "autocast", id(context)
        if not enters:
            self._leave(key)
            return
        options = autocast_options(context)
        if any(made is context for made in self._default_dtypes):
            options.pop("dtype", None)
        self._enter(key, torch.autocast, context.device, **options)


def entered(recorder: TypedCapture, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Node:
    """Make the node that enters a context; where a decorator does so, it comes from the line of that."""
    node = recorder.node("call_function", enter_context, args, kwargs, name=name)
    code = decorated(sys._getframe(1))
    if code is not None:
        node._origin = CallSite(code, 0, recorder.scope)
    return node


class _InferenceRegion(contextlib.AbstractContextManager[None]):
    def __init__(self, ambient: Ambient, flag: bool) -> None:
        symbol = symbol_of(flag)
        self._enabled = bool(flag if symbol is None else symbol.sample)
        self._ambient, self._flag, self._key = ambient, flag, ("inference", object())

    def __enter__(self) -> None:
        self._before = self._ambient.enter_inference(self._flag, self._enabled, self._key)
        self._mode = _INFERENCE_MODE(self._enabled)  # which is on from here
        self._mode.__enter__()

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)
        self._ambient.leave_inference(self._key, self._before)


def _are_same(one: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> bool:
    return one is other or (one is not None and other is not None and all(map(operator.is_, one, other)))


def enters_autocast(frame: FrameType) -> bool | None:
    """Whether what runs in a frame enters autocast (True) or leaves it (False); None for other code."""
    return _AUTOCAST.get(frame.f_code)


def autocast_options(context: torch.autocast) -> dict[str, Any]:
    """What to call `torch.autocast` with, besides the device, to get a context like this one."""
    options = {"dtype": context.fast_dtype, "enabled": context._enabled, "cache_enabled": context._cache_enabled}
    for name in ("enabled", "cache_enabled"):
        if options[name] is True:
            del options[name]
    if options.get("enabled") is False:
        del options["dtype"]
    return options


def _grad_context(frame: FrameType | None) -> tuple[Any, str]:
    """The context manager that sets the grad mode, and which of its methods does; None where none does."""
    found: tuple[Any, str] = None, ""
    while frame is not None:
        if frame.f_code.co_filename == _GRAD_FILE and frame.f_code.co_name != "clone":  # which makes another
            found = frame.f_locals.get("self"), frame.f_code.co_name
        elif found[0] is not None:
            break
        frame = frame.f_back
    return found

"""The mode under which a program is traced symbolically: what it calls without proxies, and matters all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from graphwright.capture.calls.ambient import autocast_options, enters_autocast
from graphwright.capture.outside.made_tensors import memory_of
from graphwright.capture.proxies.proxy import Proxy, find_tracer
from graphwright.errors import TraceError
from graphwright.ops import draws_alone, enter_context, exit_context, is_writing_name

if TYPE_CHECKING:
    from graphwright.capture.symbolic.tracer import Tracer


class AmbientMode(TorchFunctionMode):
    """Records what is called without proxies and matters all the same: random functions, whose result is fresh at every
    run and not one draw for ever, and where no_grad and enable_grad are entered and left.
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not types:  # nothing but this mode asked: torch.einsum unpacks a list of proxies, and then asks them
            tracer = None
        elif args and type(args[0]) is Proxy:
            tracer = args[0].tracer
        else:
            tracer = find_tracer(args, kwargs)
        if tracer is not None:
            self._note_written(function, args, (kwargs or {}).get("out"))
            return tracer.torch_function(function, args, kwargs or {})
        if function is torch._C._set_grad_enabled:
            self._set_grad_mode(*args)
        if draws_alone(function):
            return self._tracer.torch_function(function, args, kwargs or {})
        if self._tracer._stale and getattr(function, "__name__", "") not in _OF_NO_DATA:
            self._refuse_stale(args)
        return function(*args, **(kwargs or {}))

    def _note_written(self, function: Callable[..., Any], args: tuple[Any, ...], out: Any) -> None:
        """Note a tensor of no proxy to which the graph writes what only a run knows: it itself stays what it is."""
        first = args[0] if args and is_writing_name(getattr(function, "__name__", "")) else None
        for written in (first, *(out if isinstance(out, tuple) else (out,))):
            if isinstance(written, torch.Tensor):
                self._tracer._stale[memory_of(written)] = written.untyped_storage()

    def _refuse_stale(self, args: tuple[Any, ...]) -> None:
        for arg in args:
            if isinstance(arg, torch.Tensor) and memory_of(arg) in self._tracer._stale:
                raise TraceError(
                    f"the program computes with a tensor of shape {tuple(arg.shape)}, to which it has written what "
                    "only a run knows",
                    at=self._tracer._here(),
                    fix="go on with what the write gives: total = total.add_(x); or trace with example inputs",
                )

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Autocast asks each mode for its class when it is entered and left."""
        frame = sys._getframe(1)
        enters = enters_autocast(frame)
        if enters is not None:
            self._set_autocast(frame.f_locals["self"], enters)
        return AmbientMode

    def _set_autocast(self, context: torch.autocast, enters: bool) -> None:
        tracer = self._tracer
        if enters:
            args = (torch.autocast, context.device)
            options = autocast_options(context)
            entered = tracer.create_node("call_function", enter_context, args, options, name="autocast")
            tracer._autocast_regions.append((context, entered))
        elif tracer._autocast_regions and tracer._autocast_regions[-1][0] is context:
            tracer.create_node("call_function", exit_context, (tracer._autocast_regions.pop()[1],), {})

    def _set_grad_mode(self, enabled: bool) -> None:
        """Each region restores what was before it: setting the mode to that leaves it."""
        tracer = self._tracer
        if tracer._grad_regions and tracer._grad_regions[-1][0] == enabled:
            _, entered = tracer._grad_regions.pop()
            if entered._next is tracer.graph._root:  # nothing happened in it
                tracer.graph.erase_node(entered)
            else:
                tracer.create_node("call_function", exit_context, (entered,), {})
        else:
            manager = torch.enable_grad if enabled else torch.no_grad
            entered = tracer.create_node("call_function", enter_context, (manager,), {}, name=manager.__name__)
            tracer._grad_regions.append((torch.is_grad_enabled(), entered))


_OF_NO_DATA = frozenset({
    "__get__", "__set__", "size", "dim", "ndimension", "numel", "nelement", "stride", "element_size",
    "is_floating_point", "is_complex", "is_contiguous", "get_device", "storage_offset", "__len__", "__repr__",
    "untyped_storage", "data_ptr",
})  # fmt: skip

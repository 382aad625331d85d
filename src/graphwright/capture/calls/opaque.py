"""Calls that are recorded as one node and not looked into: leaf modules, leaf functions, and what cannot be traced."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.counting import CountingMode
from graphwright.capture.effects.contents_before import ContentsBefore
from graphwright.capture.effects.hook_effects import contained
from graphwright.capture.numbers.known_sizes import sizes_after
from graphwright.capture.proxies.calls_as_written import is_torch
from graphwright.capture.proxies.object_proxy import holds_objects
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.running import refusal, refused, stopping
from graphwright.capture.state.symbols import symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Node, Target
from graphwright.ops import is_library_function
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


def record_leaf_module(
    recorder: TypedCapture, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record the call of a leaf module."""
    shell = module if recorder.shells is None else recorder.shells.shell(module)
    tables = module._forward_hooks, module._forward_pre_hooks, shell._forward_hooks, shell._forward_pre_hooks
    if module._modules or any(tables):
        _expect_hooks(recorder, module, path)
    if recorder.keeping is not None and recorder.shells is not None:
        recorder.keeping.write(shell)  # it reads its own attributes
    has_hooks = bool(module._forward_hooks or module._forward_pre_hooks)
    run = contained(recorder, module, path, recorder.examples.module(module)) if has_hooks else module
    result = recorder.record("call_module", path, run, args, kwargs)
    if type(result) is TensorProxy and not kwargs:
        result.sizes = sizes_after(module, args, result.example)
    return result


def _expect_hooks(recorder: TypedCapture, module: nn.Module, path: str) -> None:
    """Refuse a module that is to be one node if the program has registered or removed hooks inside of it."""
    shells = recorder.shells
    if shells is None:
        return
    for name, inner in module.named_modules(prefix=path):
        shell = shells.shell(inner)
        tables = (shell._forward_hooks, inner._forward_hooks), (shell._forward_pre_hooks, inner._forward_pre_hooks)
        if any(now.keys() != before.keys() for now, before in tables):
            recorder.questions.refusals.refuse_here(
                f"the program registers or removes hooks of {name or type(inner).__name__}, which is one node",
                "register them before it is captured, or call the model once before",
                "failure",
            )


def record_compiled_method(
    recorder: TypedCapture, method: torch._C.ScriptMethod[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record the call of a method of a module that TorchScript has compiled, which runs on real values only."""
    path, module = _owner_of(recorder, method)
    if not recorder.examples.is_real:
        raise stopping(NeedsRealValues(f"{path} was compiled by TorchScript"))
    run = getattr(recorder.examples.module(module), method.name)
    if method.name == "forward":
        return record_opaque(recorder, "call_module", path, run, args, kwargs)
    node = recorder.node("get_attr", path, (), {}, path.replace(".", "_"))
    return record_opaque(recorder, "call_method", method.name, run, args, kwargs, (node,))


def _owner_of(recorder: TypedCapture, method: torch._C.ScriptMethod[..., Any]) -> tuple[str, nn.Module]:
    """The path and the module that a compiled method belongs to."""
    shells = recorder.shells
    if shells is not None:
        for original in [module for module, shell, _ in shells.all() if shell is module]:
            for path, module in original.named_modules(prefix=shells.path(original) or ""):
                if getattr(module, method.name, None) is method:
                    return path, module
    raise refused(
        recorder,
        f"the program calls {method.name!r} of a TorchScript module that is no part of it",
        "make it a submodule",
    )


def record_outlined_module(
    recorder: TypedCapture, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record the call of a module whose forward cannot be traced."""
    _expect_hooks(recorder, module, path)
    run = contained(recorder, module, path, recorder.examples.module(module), may_enter=False)
    return record_opaque(recorder, "call_module", path, run, args, kwargs)


def record_leaf_function(
    recorder: TypedCapture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record the call of a function of the user's as one node."""
    owner = getattr(function, "__self__", None)
    shells = recorder.shells
    if not isinstance(owner, nn.Module) or shells is None:
        is_outlined = getattr(getattr(function, "__func__", function), "__code__", None) in recorder.plan.outlined
        if not is_outlined and not holds_values((args, kwargs)):
            return function(*args, **kwargs)
        if owner is not None and (recorder.keeping is None or id(owner) not in recorder.keeping.kept_tables()):
            before = ContentsBefore(owner)
            recorder.at_end.append(functools.partial(_check_owner, before, function.__qualname__, recorder.where()))
        return record_opaque(recorder, "call_function", function, function, args, kwargs)
    path = shells.path(owner)
    stand_in = recorder.examples.module(shells.original(owner))
    run = getattr(stand_in, function.__name__)
    if not path:  # a method of the module itself
        node = recorder.node("get_attr", function.__name__, (), {}, function.__name__)
        return record_opaque(recorder, "call_method", "__call__", run, args, kwargs, (node,))
    node = recorder.node("get_attr", path, (), {}, path)
    return record_opaque(recorder, "call_method", function.__name__, run, args, kwargs, (node,))


def _check_owner(before: ContentsBefore, method: str, at: str | None) -> None:
    """Raise CaptureError where the program has changed an object since the graph called a method of it."""
    if before.is_changed():  # the graph has it as it is in the end
        raise CaptureError(
            f"{method} is one node, and the program changes its object after that call",
            at=at,
            fix="make it a function that is given what it reads",
        )


def record_foreign_call(
    recorder: TypedCapture,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[..., Any] | None = None,
) -> Any:
    """Record the call of a function that takes or gives objects outside of torch; `run` stands in on the examples.

    Raises NeedsRealValues where it takes tensors and the examples are fake.
    """
    if not recorder.examples.is_real and any(isinstance(leaf, TensorProxy) for leaf in leaves((args, kwargs))):
        raise stopping(NeedsRealValues("an array is made of the data of a tensor"))
    return recorder.record("call_function", function, run or function, args, kwargs, gives_data=True)


def holds_values(value: Any) -> bool:
    """Tell whether there are values of the program, known only when it runs, among these."""
    return holds_objects(value) or any(
        isinstance(leaf, TensorProxy) or symbol_of(leaf) is not None for leaf in leaves(value)
    )


def record_opaque(
    recorder: TypedCapture,
    op: str,
    target: Target,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    owner: tuple[Node, ...] = (),
) -> Any:
    """Record a call: what it gives depends on who knows what."""
    run = getattr(run, "_torchdynamo_orig_callable", run)  # compiled code must not run on fake tensors
    counting = CountingMode(lambda module: _is_leaf(recorder, module))

    def counted(*args: Any, **kwargs: Any) -> Any:
        before = ContentsBefore((getattr(run, "__self__", None), args, kwargs))
        # Of the modes that are entered only this one acts: it runs what it sees with all of them off.
        with torch._C._EnableTorchFunction(), counting:
            result = run(*args, **kwargs)
        if before.is_changed():
            before.put_back()
            raise _changing(recorder, getattr(run, "__name__", None) or str(target))
        return result

    if is_torch(target) or is_library_function(target):
        return recorder.record(op, target, run, args, kwargs, owner, gives_data=True)
    if recorder.keeping is not None:
        recorder.keeping.write()  # it may read what the program has written
    try:
        return recorder.record(op, target, counted, args, kwargs, owner, True, lambda: counting.count)
    finally:
        recorder.calls.hidden += counting.count


def _changing(recorder: TypedCapture, name: str) -> BaseException:
    """What to do with a call that changes a container or an object: the program has what is in that, not the graph."""
    restart = recorder.questions.refusals.outline(sys._getframe(1), f"{name} changes what it is given")
    if restart is not None:
        return recorder.questions.restart(restart)
    return refusal(
        CaptureError(
            f"{name}, which is one node, changes a container or object that it is given: the graph would not",
            at=recorder.where(),
            fix="have it return what is new, and the program keep that",
        )
    )


def _is_leaf(recorder: TypedCapture, module: nn.Module) -> bool:
    """Tell whether a module, the shell or the stand-in of one, is a leaf."""
    original = recorder.examples.original(module)
    return recorder.is_leaf(original, "" if recorder.shells is None else recorder.shells.path(original) or "")

"""Calls of functions behind a `functools` cache: a capture computes anew what the cache may have.

So nobody may see that it computes: it must change nothing outside, what it gives must stay as it is, and what the
cache has must be what it gives. Otherwise the call is refused.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.effects.branch_state import State
from graphwright.capture.effects.contents_before import ContentsBefore
from graphwright.capture.outside.named import is_foreign_definition
from graphwright.capture.state.running import refused
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.ir import Graph, Node
from graphwright.ops import is_impure, read_variable
from graphwright.runtime import AS_GIVEN, Found, Kept
from graphwright.source import cache_of, without_cache
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture, TypedCapture

_CACHE = type(functools.lru_cache(len))
_PLAIN = (int, float, bool, str, type(None))


def cached_call(
    recorder: Capture,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any],
) -> Any:
    """Call what a cached function caches. Raises CaptureError where the cache makes a difference."""
    uncached = without_cache(function)

    def compute() -> Any:
        recorder.plan.cached += 1
        try:
            return call(uncached, *args, **kwargs)
        finally:
            recorder.plan.cached -= 1

    if is_foreign_definition(getattr(uncached, "func", uncached)):  # a library knows what it caches
        return compute()
    state, typed = State((), (), ()), recorder.typed
    state.watch(uncached)
    if typed is not None:
        state.watch_outside(typed.callers.outside)
    before, graph, last = state.read(), recorder.graph, recorder.graph._root.prev
    value = compute()
    if state.has_changed(before) or _writes_outside(graph, last):
        _refuse(recorder, function, "changes what is outside of it, which it does only where it has to compute")
    if typed is not None:
        for leaf in leaves(value):
            if isinstance(leaf, torch.Tensor) and not isinstance(leaf, TensorProxy):
                typed.tensors.note_lasting(leaf)
        typed.plan.cached_results.append((_name(function), ContentsBefore(value), _written(typed, value)))
        if any(isinstance(leaf, torch.Tensor) for leaf in leaves(value)):
            _take(typed, function)
        if not kwargs and _is_stale(typed, function, args, value):
            _refuse(recorder, function, "has something else in its cache than what it gives now")
    return value


def _writes_outside(graph: Graph, last: Node) -> bool:
    """Tell whether an operation behind a node writes to an attribute or variable of the program, or what it holds."""
    node = last._next
    while node is not graph._root:
        subject = next(iter(node.args), None)
        is_kept = isinstance(subject, Node) and (subject.op == "get_attr" or subject.target is read_variable)
        if is_kept and node.op in ("call_function", "call_method") and is_impure(node):
            return True
        node = node._next
    return False


def check_results(recorder: TypedCapture) -> None:
    """The program has ended. Raises CaptureError where it has changed what a cache keeps."""
    for name, contents, written in recorder.plan.cached_results:
        if contents.is_changed() or any(_stamp(recorder, tensor) != stamp for tensor, stamp in written):
            raise CaptureError(
                f"the program changes what {name} gave, which is behind a functools cache: it gives that again",
                fix="change a copy, or keep the function as one node: leaf_functions=[...]",
            )


def _take(recorder: TypedCapture, function: Callable[..., Any]) -> None:
    """Take for granted that nobody writes to the tensors that a cache keeps."""
    kept = Kept(cache_of(function))
    found = Found.of(f"what the cache of {_name(function)} keeps", kept, "content", AS_GIVEN)
    recorder.ledger.find({(id(kept.cache), found.name): found})


def _refuse(recorder: Capture, function: Callable[..., Any], what: str) -> None:
    raise refused(
        recorder,
        f"{_name(function)}, a function behind a functools cache, {what}",
        "keep the function as one node: leaf_functions=[...]",
    )


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function)).rpartition("<locals>.")[2]


def _written(recorder: TypedCapture, value: Any) -> list[tuple[TensorProxy, Any]]:
    """The tensors in a value that the call has made, and how often they were written to so far."""
    made = [leaf for leaf in leaves(value) if isinstance(leaf, TensorProxy) and _is_made(leaf)]
    return [(tensor, _stamp(recorder, tensor)) for tensor in made]


def _is_made(tensor: TensorProxy) -> bool:
    """Tell whether an operation gave a tensor, which is no parameter or buffer."""
    return tensor._node is not None and tensor._node.op.startswith("call")


def _stamp(recorder: TypedCapture, tensor: TensorProxy) -> Any:
    return recorder.writes.stamp(tensor)[1]


def _original(recorder: TypedCapture, value: Any) -> Any:
    return value if recorder.shells is None else recorder.shells.original(value)


def _is_stale(recorder: TypedCapture, function: Callable[..., Any], args: tuple[Any, ...], value: Any) -> bool:
    """Tell whether a cache has a plain value for these arguments that is not this one. Nothing is computed."""
    owner = None if type(function) is _CACHE else getattr(function, "__self__", None)
    cache = getattr(function, "__func__", function)
    parts = leaves(value)
    if not parts or not all(type(part) in _PLAIN for part in parts):
        return False
    if any(map(recorder.joining.is_open, leaves(args))):  # which have no hash
        return False
    args = tuple([_original(recorder, arg) for arg in (*([] if owner is None else [owner]), *args)])
    try:
        return _has(cache, args) and bool(cache(*args) != value)
    except TypeError:  # what cannot be hashed
        return False


def _has(cache: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether a cache has a value for these arguments, as its keys tell."""
    is_typed = cache.cache_parameters()["typed"]
    is_alone = len(args) == 1 and type(args[0]) in (int, str) and not is_typed
    key = args[0] if is_alone else args + tuple(map(type, args)) if is_typed else args
    tables = [table for table in gc.get_referents(cache) if type(table) is dict and table is not vars(cache)]
    return any(key in table for table in tables)

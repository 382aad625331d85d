"""Values without a literal as arguments of nodes: the calls that make them again when the captured program runs."""

from __future__ import annotations

import collections
import enum
import functools
import operator
from collections.abc import Callable, Hashable, Iterable
from types import BuiltinMethodType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.given_functions import given_function, path_of
from graphwright.capture.proxies.constructors import call_without_attributes, container_call, lasting, viewed
from graphwright.capture.proxies.objects import constructor_fields, late_fields
from graphwright.capture.state.symbols import symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import ATOMS, Argument, Node
from graphwright.ops import generated, set_attribute
from graphwright.runtime import attributes_of, is_object, new_object
from graphwright.values import is_record, leaves, map_leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


class _Drained(list):  # type: ignore[type-arg]
    """What a generator gave."""


def drained(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the program: what the generators give that it returns is computed while it is captured, too."""
    return map_leaves(lambda leaf: _Drained(leaf) if type(leaf) is GeneratorType else leaf, function(*args, **kwargs))


def checks_items(kind: type) -> bool:
    """Tell whether a class of named tuples looks at its items when it is made: it does when the program runs."""
    return "_fields" not in kind.__dict__ and "__new__" in kind.__dict__


def made_again(recorder: TypedCapture, value: Any) -> Argument:
    """The argument for a container, function or object: a node that makes one like it, or it itself."""
    kind = type(value)
    if kind is _Drained:
        return recorder.node("call_function", generated, ([recorder.argument(item) for item in value],), {})
    call = container_call(value)
    if call is not None:
        return recorder.node("call_function", call[0], tuple([recorder.argument(arg) for arg in call[1]]), {})
    call = call_without_attributes(value)
    if call is not None:
        made = recorder.node("call_function", call[0], tuple([recorder.argument(arg) for arg in call[1]]), {})
        for name, item in attributes_of(value).items():
            recorder.node("call_function", set_attribute, (made, name, recorder.argument(item)), {})
        return made
    view = viewed(value)
    if view is not None:
        return recorder.node("call_method", view[0], (recorder.argument(view[1]),), {})
    if isinstance(value, tuple):
        return tuple([recorder.argument(item) for item in value])
    if isinstance(value, enum.Enum):
        return value
    if kind is functools.partial:
        parts = (value.func, *map(recorder.argument, value.args))
        named = {name: recorder.argument(item) for name, item in value.keywords.items()}
        return recorder.node("call_function", functools.partial, parts, named)
    if kind in (BuiltinMethodType, MethodType) and _is_of_run(value.__self__, value):
        return recorder.node("call_function", getattr, (recorder.argument(value.__self__), value.__name__), {})
    path = path_of(recorder, value) if isinstance(value, nn.Module) else None
    if path:
        return recorder.node("get_attr", path, (), {}, path.replace(".", "_"))
    is_named = isinstance(value, type) or (callable(value) and hasattr(value, "__name__"))
    given = given_function(recorder, value) if is_named else None
    if given is not None:
        return given
    fields = None if is_named else constructor_fields(value)
    if fields is not None or ((recorder.is_finishing or is_record(value)) and not is_named and is_object(value)):
        return _made(recorder, value, fields)
    what = f"a {kind.__module__}.{kind.__qualname__}"
    if is_named:
        what = f"a function that closes over values of the program, {value.__qualname__},"
    recorder.questions.refusals.refuse_here(
        f"cannot write {what} into the graph", "pass tensors, numbers, or tuples, lists, dicts and dataclasses of them"
    )
    return None


def dict_with(recorder: TypedCapture, value: dict[Any, Any]) -> Argument:
    """The argument for a dict: one like it, or a node that makes it, where tensors or sizes are among its keys."""
    keys = [key for key in value if type(key) not in ATOMS]
    has_tensor = any(isinstance(leaf, torch.Tensor) for key in keys for leaf in leaves(key))
    if not has_tensor and not any(map(_has_size, keys)):
        return {key: recorder.argument(item) for key, item in value.items()}
    pairs = [(lasting(recorder, key), recorder.argument(item)) for key, item in value.items()]
    return recorder.node("call_function", dict, (pairs,), {}, "table")


def _has_size(key: Hashable) -> bool:
    return type(key) is torch.Size or (type(key) is tuple and any(map(_has_size, key)))


def _is_of_run(owner: Any, method: Any) -> bool:
    """Tell whether a method is one of Python's or torch's, of a value that only a run has."""
    is_tensor = type(owner) is TensorProxy
    if not is_tensor and type(owner) is not torch.Size and symbol_of(owner) is None:
        return False
    return not is_tensor or getattr(method, "__func__", None) in (None, getattr(torch.Tensor, method.__name__, None))


def share(recorder: TypedCapture, values: Iterable[Any]) -> None:
    """Have each container and object be made once that what is about to be written holds in several places."""
    counts: dict[int, int] = {}
    path: set[int] = set()

    def visit(value: Any) -> None:
        items = _held_by(value)
        if items is None or id(value) in path or id(value) in recorder.objects or counts.get(id(value)) == 2:
            return
        counts[id(value)] = counts.get(id(value), 0) + 1
        path.add(id(value))
        for item in items:
            visit(item)
        path.remove(id(value))
        if counts[id(value)] == 2 and not isinstance(value, tuple):
            recorder.objects[id(value)] = functools.partial(_made_once, recorder, value)

    for value in values:
        visit(value)


def _made_once(recorder: TypedCapture, value: Any) -> Argument:
    del recorder.objects[id(value)]
    made, kind = recorder.argument(value), type(value)
    if kind in (list, dict):  # which would be a literal in each place
        made = recorder.node("call_function", kind, (made,), {}, kind.__name__)
    recorder.objects[id(value)] = lambda: made
    return made


def _held_by(value: Any) -> Iterable[Any] | None:
    """What a container or object holds that is written with it; None for what holds nothing of the kind."""
    kind = type(value)
    if kind in ATOMS or kind.__module__.startswith("graphwright.") or isinstance(value, nn.Module | torch.Tensor):
        return None
    if isinstance(value, dict):
        return dict.values(value)
    if isinstance(value, tuple | list | set | frozenset | collections.deque):
        return value
    return attributes_of(value).values() if is_object(value) else None


def _made(recorder: TypedCapture, value: Any, fields: dict[str, Any] | None) -> Node:
    """A node that makes an object again: by its constructor, where that takes these fields, else without it."""
    kind = type(value)
    held, late = (attributes_of(value), {}) if fields is None else (fields, late_fields(value, fields))
    given = {name: recorder.argument(item) for name, item in held.items() if name not in late}
    if fields is None:
        return recorder.node("call_function", new_object, (kind,), given, "made")
    made = recorder.node("call_function", kind, (), given)
    for name, item in late.items():
        recorder.node("call_function", operator.setitem, (made, name, recorder.argument(item)), {})
    return made

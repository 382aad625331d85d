"""Values without a literal as arguments of nodes: the calls that make them again when the captured program runs."""

from __future__ import annotations

import collections
import enum
import functools
from collections.abc import Callable, Collection
from types import CellType, FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.proxies.constructors import call_without_attributes, container_call, viewed
from graphwright.capture.proxies.contents import content
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.objects import constructor_fields, is_object
from graphwright.errors import CaptureError
from graphwright.ir import Argument, Node
from graphwright.ops import generated, set_attribute
from graphwright.runtime import attributes_of, new_object
from graphwright.values import map_leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["checks_items", "drained", "in_several_places", "made_again", "once"]


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
        for name, item in vars(value).items():
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
    is_named = isinstance(value, type) or (callable(value) and hasattr(value, "__name__"))
    if is_named and not _closes_over_values(value):
        return value
    fields = None if is_named else constructor_fields(value)
    if fields is not None:
        return recorder.node(
            "call_function", kind, (), {name: recorder.argument(item) for name, item in fields.items()}
        )
    if recorder.is_finishing and not is_named and is_object(value):
        attributes = {name: recorder.argument(item) for name, item in attributes_of(value).items()}
        made = recorder.node("call_function", new_object, (kind,), attributes, "made")
        recorder.objects[id(value)] = lambda: made
        recorder.keep.append(value)
        return made
    what = f"a {kind.__module__}.{kind.__qualname__}"
    if is_named:
        what = f"a function that closes over values of the program, {value.__qualname__},"
    error = CaptureError(
        f"cannot write {what} into the graph",
        at=recorder.where(),
        fix="pass tensors, numbers, or tuples, lists, dicts and dataclasses of them",
    )
    recorder.questions.refusals.refuse(error, "value")
    return None


def once(recorder: TypedCapture, value: Any, made: Argument) -> Argument:
    """What is written for a container, as one node where the results of the program hold it in several places."""
    if id(value) not in recorder.shared:
        return made
    node = made if isinstance(made, Node) else recorder.node("call_function", type(value), (made,), {}, "shared")
    recorder.objects[id(value)] = lambda: node
    return node


def in_several_places(values: Any, but: Collection[int] = ()) -> frozenset[int]:
    """The containers that some values hold more than once, by id, short of those that are known and what is in them.

    >>> one = [1]
    >>> in_several_places((one, {"a": one}, [2])) == {id(one)}
    True
    """
    seen: set[int] = set()
    found: set[int] = set()
    waiting = [values]
    while waiting:
        value = waiting.pop()
        if is_growing(value) or not isinstance(value, tuple | list | dict | set | collections.deque):
            continue
        if not isinstance(value, tuple):
            if id(value) in but:
                continue
            if id(value) in seen:
                found.add(id(value))
                continue
            seen.add(id(value))
        waiting += content(value).values() if isinstance(value, dict) else value
    return frozenset(found)


def _closes_over_values(function: Callable[..., Any]) -> bool:
    """Tell whether a function holds values of the program: none of another run."""
    if isinstance(function, MethodType):
        owner = function.__self__
        holds_its_own = is_object(owner)
        return (holds_its_own and holds_values(attributes_of(owner))) or _closes_over_values(function.__func__)
    if not isinstance(function, FunctionType):
        return False
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return holds_values((cells, function.__defaults__ or (), function.__kwdefaults__ or {}))


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False

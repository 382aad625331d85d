"""`item in values` and `left == right` of converted functions, where only a run knows what is in them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.identity import has_key, is_equal, is_member, is_told
from graphwright.capture.flow.caught_errors import shown
from graphwright.capture.flow.deciding import both, either, recorder_of
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.python.displays import look
from graphwright.capture.state.tensor_proxy import TensorProxy

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

_SEARCHED = (tuple, list, dict, set, frozenset)


def contains(item: Any, values: Any) -> Any:
    """`item in values`."""
    if is_growing(values) and hasattr(values, "has"):
        return values.has(item)
    if shown(values):
        return recorder_of(values).record("call_function", operator.contains, operator.contains, (values, item), {})
    if type(values) is RunText:
        return values.has(item)
    look(values, item)
    if type(values) is TensorProxy:
        return values.recorder.numbers.truth(torch.eq(values, item).any())
    if isinstance(item, Proxy) and type(values) in (dict, set, frozenset):  # whose hash is another one when it runs
        if not values:
            return False
        return item.tracer.create_proxy("call_function", operator.contains, (tuple(values), item), {})
    if type(item) is TensorProxy and isinstance(values, dict | set | frozenset):
        return has_key(item, values)
    is_of_run = recorder_of(item) is not None or holds_symbolic(values)
    is_text = type(item) is RunText and (item.is_data or isinstance(values, tuple | list))
    if not isinstance(values, _SEARCHED) or not (is_of_run or is_text):
        if isinstance(values, dict) and hasattr(values, "asked"):  # a table of a module
            values.asked()
        return item in values
    if type(item) is RunText and type(values) in (dict, set, frozenset) and item.is_data:
        values = tuple(values)
    result: Any = is_member(item, values) if isinstance(values, list | tuple) else NotImplemented
    if result is not NotImplemented:
        return result
    result = False
    for value in reversed([*values]):
        result = either(item == value, functools.partial(lambda rest: rest, result))
    return result


def equal(left: Any, right: Any) -> Any:
    """`left == right`, of tuples and lists item by item."""
    are_both = isinstance(left, tuple) and isinstance(right, tuple)
    if not are_both and not (type(left) is list and type(right) is list):
        return left == right
    if is_growing(left) or is_growing(right):
        return left == right
    if len(left) != len(right):
        return False
    if not holds_symbolic(left) and not holds_symbolic(right):
        return left == right
    same = is_equal(left, right)
    if same is not NotImplemented:
        return same
    first = equal(left[0], right[0])
    return first if len(left) == 1 else both(first, lambda: equal(left[1:], right[1:]))


def counted(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`values.count(item)`: an item counts where it is the very one, or equal."""
    found = _found(function.__self__, args)  # type: ignore[attr-defined]
    return NotImplemented if found is None else sum(found)


def searched(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`values.index(item)` and `values.remove(item)`."""
    values: Any = function.__self__  # type: ignore[attr-defined]
    for i, is_it in enumerate(_found(values, args) or ()):
        if is_it:
            return i if function.__name__ == "index" else values.__delitem__(i)
    return NotImplemented  # Python says so


def _found(values: Any, args: tuple[Any, ...]) -> Iterator[Any] | None:
    """Of each of some values whether it is an item, where tensors of the program are among them; else None."""
    if len(args) != 1 or is_growing(values) or type(args[0]) is not TensorProxy or not all(map(is_told, values)):
        return None
    return (value is args[0] or is_member(args[0], [value]) for value in values)


def holds_symbolic(value: object) -> bool:
    """Tell whether a tuple or list holds values that only a run has."""
    return isinstance(value, tuple | list) and any(recorder_of(item) is not None for item in value)

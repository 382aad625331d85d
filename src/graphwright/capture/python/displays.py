"""Subscripts, displays and f-strings of converted functions.

A dict of the program's cannot hold a number of the run as a key. Where a loop puts one there, the capture starts that
loop again with a dict of the run instead: `Grows` says so.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.capture.calls.opaque import record_foreign_call
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_sets import LoopSet
from graphwright.capture.containers.rows import repeated
from graphwright.capture.containers.tables import MOST, grow, index_of, is_by_data, is_chosen, make_text, of_run
from graphwright.capture.proxies.contents import DICTS
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import holds_objects, text_of_error
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.run_text import RunText, formatted, is_of_run, percent
from graphwright.capture.python.messages import told_percent
from graphwright.capture.python.number_calls import chosen
from graphwright.capture.python.own_texts import with_own_percents, with_own_texts
from graphwright.capture.state.running import refused, running
from graphwright.capture.state.symbols import is_symbolic
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ops import call_item_at, item_at, number_at, pop_at, store_at, value_at, value_or
from graphwright.source import CHANGES

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

SPREAD: Any = object()  # in place of the key of `**others`


def item(values: Any, key: Hashable) -> Any:
    """`values[key]`."""
    if _is_by_array(values, key):
        return record_foreign_call(values.recorder, operator.getitem, (values, key), {})
    _open(values, key)
    if type(key) is TensorProxy and isinstance(values, _INDEXED):
        key = index_of(key)
    if isinstance(key, Proxy) and type(values) in DICTS and key not in values:
        return key.tracer.record(operator.getitem, (dict(values), key))
    found = chosen(values, key) if is_symbolic(key) else NotImplemented
    recorder = running() if found is NotImplemented and _is_of_data(key) else None
    if recorder is not None and isinstance(values, nn.ModuleList | nn.Sequential):
        restart = recorder.questions.refusals.unroll_around("it picks modules", key)
        if restart is not None:
            raise recorder.questions.restart(restart)
        return _Chosen(recorder.questions.staging.converted, values, key)
    if recorder is not None and _is_small_table(values):
        return recorder.questions.staging.converted(value_at)(values, key)
    if recorder is not None and type(values) in _LISTS and 0 < len(values) <= MOST:
        return recorder.questions.staging.converted(item_at)(values, key)
    if recorder is not None and type(values) is range:
        return recorder.questions.staging.converted(number_at)(values, key)
    return values[key] if found is NotImplemented else found


_LISTS = (list, tuple, nn.ParameterList)
_INDEXED = (*_LISTS, range, str, nn.ModuleList, nn.Sequential)


def _is_by_array(values: Any, *others: Any) -> bool:
    """Tell whether a tensor is indexed by objects outside of torch, or such are written to it."""
    return type(values) is TensorProxy and values.recorder.has_objects and holds_objects(others)


def gotten(recorder: Capture, function: BuiltinFunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`table.get(key, default)` with a key that data decides."""
    if kwargs or not 0 < len(args) <= 2 or not _is_small_table(function.__self__) or not _is_of_data(args[0]):
        return NotImplemented
    return recorder.questions.staging.converted(value_or)(function.__self__, *args)


def _is_small_table(values: Any) -> bool:
    return type(values) is dict and 0 < len(values) <= MOST and all(map(_is_key, values))


def _is_of_data(key: Hashable) -> bool:
    """Tell whether a key depends on the data of tensors: one that sizes decide is under a guard."""
    return is_by_data(key) if type(key) is not RunText else key.is_data or not key.places


def _is_key(key: Hashable) -> bool:
    return type(key) in (int, str)


class _Chosen:
    """A module of a list whose place only a run knows: its call is a branch for each of them."""

    def __init__(self, converted: Callable[[Any], Any], values: nn.ModuleList | nn.Sequential, index: Hashable) -> None:
        self._converted, self._place = converted, (values, index)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._converted(call_item_at)(*self._place, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by what wants to know how to call it
            raise AttributeError(name)
        return getattr(self._converted(item_at)(*self._place), name)


def store(value: Any, values: Any, key: Hashable) -> None:
    """`values[key] = value`."""
    if _is_by_array(values, key, value):
        record_foreign_call(values.recorder, operator.setitem, (values, key, value), {})
        return
    key = _opened(values, key)
    if is_chosen(values, key):
        _converted(store_at)(values, key, held(value))
    else:
        values[key] = held(value)


def held(value: Any) -> Any:
    """A value that is put into an object or container."""
    recorder = running()
    if recorder is not None:
        recorder.questions.optionals.hold(value)
    return value


def delete(values: Any, key: Hashable) -> None:
    """`del values[key]`."""
    key = _opened(values, key)
    if is_chosen(values, key):
        _converted(pop_at)(values, key, "list assignment index out of range")
    else:
        del values[key]


def changed(values: Any, key: Hashable, change: str, value: Callable[[], Any]) -> None:
    """`values[key] += value`, or another such statement."""
    key = _opened(values, key)
    is_one_of_some = is_chosen(values, key)
    before = item(values, key) if is_one_of_some else values[key]
    function, more = CHANGES[change], held(value())
    if type(before) is TensorProxy:
        after = before.recorder.record("call_function", function, function, (before, more), {})
    else:
        after = function(before, more)
    if is_one_of_some:
        _converted(store_at)(values, key, after)
    else:
        values[key] = after


def look(values: Any, key: Hashable) -> None:
    """A dict or set is asked whether it has a key."""
    if (type(values) in DICTS or type(values) is set) and is_of_run(key):
        recorder = running()
        if recorder is not None:
            grow(recorder, values)


def dict_of(*pairs: Any) -> Any:
    """`{key: value, **others}`."""
    recorder = running()
    keys, values = pairs[::2], pairs[1::2]
    is_plain = not any(map(is_of_run, keys)) and not any(
        key is SPREAD and is_growing(value) for key, value in zip(keys, values, strict=True)
    )
    made: dict[Any, Any] = {}
    if recorder is not None and not is_plain:
        node = recorder.node("call_function", dict, (), {}, "", recorder.target_name() or "table")
        made = LoopDict.empty(recorder, node)
    for key, value in zip(keys, values, strict=True):
        if key is SPREAD:
            made.update(of_run(value))
        else:
            made[key] = value
    return made


def set_of(*items: Any) -> Any:
    """`{item, ...}`."""
    recorder = running()
    if recorder is None or not recorder.region.is_in_loop() or not any(map(is_of_run, items)):
        return set(items)
    made = LoopSet.empty(recorder, recorder.node("call_function", set, (), {}, "", recorder.target_name() or "set"))
    made.update(items)
    return made


def spread(call: Callable[..., Any], kind: type, values: Any, keeps: bool) -> Any:
    """`*values` in `[*values, item]`, as a list or tuple: itself where what comes after it `keeps` it as it is."""
    return values if keeps and isinstance(values, Holder) and values.base is kind else call(kind, values)


def merged(values: Any, more: Any) -> Any:
    """`values |= more`."""
    recorder = running()
    if recorder is not None and is_growing(more) and (type(values) in DICTS or type(values) is set):
        grow(recorder, values)
        raise refused(
            recorder,
            f"the program adds what only a run knows to a {type(values).__name__} that it has made itself",
            "make another one of both: values = values | more",
        )
    values |= more
    return values


def repeated_list(values: list[Any], count: int) -> Any:
    """`[value] * count`."""
    recorder = running()
    typed = None if recorder is None else recorder.typed
    made = None if typed is None else repeated(typed, values, count)
    return values * count if made is None else made


def percent_of(call: Callable[..., Any], template: str, values: Any, is_message: bool = False) -> Any:
    """`"..." % values`."""
    recorder = running()
    given = values if type(values) is tuple else (values,)
    if recorder is not None and type(template) is str:
        with recorder.questions.messages.telling():
            told, shown = with_own_percents(functools.partial(_shown, call, recorder), template, given)
        if shown is not given:
            return percent_of(call, told, shown, is_message)
        message = told_percent(call, recorder, template, values, is_message)
        if message is not NotImplemented:
            return message
    if recorder is not None and make_text(recorder, given):
        return percent(recorder, template, values)
    return template % values


def _shown(call: Callable[..., Any], recorder: Capture, template: str, value: Any) -> Any:
    """The text of a value whose class says it."""
    told, values = with_own_texts(call, template, (value,))
    if told == "{}":
        return values[0]
    return formatted(recorder, told, values) if any(map(is_of_run, values)) else told.format(*values)


def formatted_text(call: Callable[..., Any], template: str, *values: Any) -> Any:
    """An f-string that is no message."""
    recorder = running()
    if recorder is not None:
        template, values = with_own_texts(call, template, values)
        values = tuple([value if (text := text_of_error(value)) is None else text for value in values])
    if recorder is not None and make_text(recorder, values):
        return formatted(recorder, template, values)
    return template.format(*values)


def _opened(values: Any, key: Any) -> Any:
    """The number that a tensor is as an index of a list; a dict or list that a loop changes is one of the run."""
    if type(key) is TensorProxy and type(values) is list:
        key = index_of(key)
    _open(values, key)
    return key


def _converted(function: Callable[..., Any]) -> Any:
    recorder = running()
    assert recorder is not None
    return recorder.questions.staging.converted(function)


def _open(values: Any, key: Hashable) -> None:
    """Have a dict be one of the run, where a loop uses a key in it that only a run knows."""
    if (type(values) in DICTS and is_of_run(key)) or (type(values) is list and is_symbolic(key)):
        recorder = running()
        if recorder is not None:
            grow(recorder, values)

"""Calls of converted functions: a table from what is called to what is done in place of it.

What is called is looked up once: a function or class by itself, a method of a container by the class of its owner and
its name. The handlers found there are tried in the order in which they stand; each is NotImplemented where it is not
its case. Other functions are called, or what `substitute` gives for them.
"""

from __future__ import annotations

import builtins
import collections
import copy
import functools
import heapq
import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import Any

import torch

from graphwright.capture.calls.identity import identity_asked, same_asked
from graphwright.capture.calls.modes import MODES, mode_asked
from graphwright.capture.containers.loop_lists import LoopList
from graphwright.capture.containers.methods import HEAP
from graphwright.capture.containers.tables import METHODS, container_of, heap, unbound_method
from graphwright.capture.outside.overheard import Heard, overhear
from graphwright.capture.outside.said import CHECKS
from graphwright.capture.outside.unknown_calls import say_unknown, unknown_call
from graphwright.capture.proxies.contents import DICTS
from graphwright.capture.proxies.run_text import ask_for_texts, refused_texts
from graphwright.capture.python.cached_calls import cached_call
from graphwright.capture.python.class_questions import (
    by_name,
    class_of_value,
    of_error,
    of_input,
    of_tensor,
    text_as,
    text_of_value,
)
from graphwright.capture.python.displays import gotten
from graphwright.capture.python.iterables import (
    copied,
    every,
    filtered,
    found,
    made_list,
    mapped,
    opened,
    ordered,
    summed,
    table_listed,
)
from graphwright.capture.python.membership import counted, searched
from graphwright.capture.python.messages import asserted, checked, printed, told_format
from graphwright.capture.python.number_calls import (
    complex_number,
    length,
    looked_up,
    number,
    number_method,
    plain_numbers,
    tensor_of_class,
    tensor_of_range,
    truth,
    variable,
)
from graphwright.capture.python.own_texts import own_format, own_text
from graphwright.capture.python.substitutes import LOCK, is_refused, may_be_refused, substitute, waited
from graphwright.capture.state.interception import original_of
from graphwright.capture.state.running import let_go, running
from graphwright.source import without_cache


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`: converted functions in place of those that asked, nodes for numbers.

    Whoever looks at the stack knows a call of the program's by the code of this function.
    """
    recorder = running()
    if recorder is None:
        return function(*args, **kwargs)
    function, choices = original_of(function), recorder.choices
    if recorder.typed is not None and recorder.typed.dtypes.handed:
        recorder.typed.dtypes.given(function, args, kwargs)
    if type(function) not in _ARE_UNCACHED and without_cache(function) is not function:
        return cached_call(recorder, function, args, kwargs, call)
    for handler in _handlers(function):
        value = handler(recorder, function, args, kwargs)
        if value is not NotImplemented:
            if choices.open:  # asked here: this is on the way of each call
                choices.look()
            return value
    other = substitute(recorder, function, args, kwargs)
    if other is not None:
        value = other(*args, **kwargs)
        if choices.open:
            choices.look()
        return value
    called = function if type(function) is BuiltinFunctionType else recorder.questions.staging.converted(function)
    try:
        value = called(*args, **kwargs)
        what = unknown_call(function) if called is function else None
        if what is not None:
            say_unknown(recorder, function, what, args, kwargs, value)
        if choices.open:
            choices.look()
        if function is next:  # a generator that only this call has is closed behind it
            let_go()
        return value
    except (TypeError, RuntimeError) as error:
        ask_for_texts(recorder, refused_texts(error, args, kwargs))
        if isinstance(function, FunctionType | MethodType | type) or not is_refused(error, args, kwargs):
            if called is not function or not may_be_refused(error, function, args, kwargs):
                raise
            return called(*plain_numbers(args), **plain_numbers(kwargs))
        owner = getattr(function, "__self__", None)
        try:
            if isinstance(owner, torch.Tensor):
                return recorder.torch_function(getattr(torch.Tensor, function.__name__), (owner, *args), kwargs)
            return recorder.torch_function(function, args, kwargs)
        except TypeError as refused:
            if not is_refused(refused, args, kwargs):
                raise
        return called(*plain_numbers(args), **plain_numbers(kwargs))


Handler = Callable[..., Any]
Handlers = tuple[Handler, ...]


def _handlers(function: Any) -> Handlers:
    """What is done in place of a call, in this order."""
    kind = type(function)
    if kind in _ARE_UNCACHED:
        known = _BY_FUNCTION.get(function, ())
        if known or kind is not BuiltinFunctionType:
            return known
        return _METHODS.get(type(function.__self__), {}).get(function.__name__, ())
    if kind is MethodType:
        return _PYTHON_METHODS.get(type(function.__self__), {}).get(function.__name__, ())
    return _BY_TYPE.get(kind, ())


_ARE_UNCACHED = frozenset({FunctionType, BuiltinFunctionType, type})  # behind no cache, and known by identity
_OVER_TABLE = functools.partial(table_listed, call)
_ORDERED = functools.partial(ordered, call)
_HEAP = functools.partial(heap, call)
_OWN_TEXT = functools.partial(own_text, call)

_BY_FUNCTION: dict[Any, Handlers] = {
    **{function: (number,) for function in vars(math).values() if type(function) is BuiltinFunctionType},
    int: (number,), float: (number,), round: (number,), abs: (number,), pow: (number,),
    id: (identity_asked,), operator.is_: (same_asked,), operator.is_not: (same_asked,),
    bool: (truth,), len: (length,), complex: (complex_number,),
    str: (_OWN_TEXT, text_of_value, of_error), repr: (_OWN_TEXT, text_of_value, of_error), format: (text_as,),
    isinstance: (of_input, of_tensor, of_error), type: (of_input, of_tensor, of_error, class_of_value),
    torch.is_tensor: (of_input, of_tensor), **dict.fromkeys((hasattr, getattr), (by_name, of_input)),
    callable: (of_input,),
    list: (_OVER_TABLE, made_list), tuple: (_OVER_TABLE, made_list),
    any: (_OVER_TABLE, found, every), all: (_OVER_TABLE, found, every), sum: (_OVER_TABLE, summed),
    sorted: (_OVER_TABLE, _ORDERED),
    **dict.fromkeys((max, min), (_OVER_TABLE, _ORDERED)),
    iter: (_OVER_TABLE,), enumerate: (_OVER_TABLE, opened), zip: (_OVER_TABLE, opened),
    reversed: (_OVER_TABLE, opened), range: (opened,),
    map: (functools.partial(mapped, call),), filter: (functools.partial(filtered, call),),
    **dict.fromkeys((*DICTS, set, collections.deque), (container_of,)), copy.copy: (copied,),
    **dict.fromkeys((*HEAP, heapq.merge, heapq.nlargest, heapq.nsmallest), (_HEAP,)),
    torch.tensor: (tensor_of_range,), torch.as_tensor: (tensor_of_range,),
    print: (functools.partial(printed, call),), torch._assert: (asserted,), **dict.fromkeys(CHECKS, (checked,)),
    **dict.fromkeys(MODES, (mode_asked,)),
}  # fmt: skip


_METHODS: dict[type, dict[str, Handlers]] = METHODS | {
    dict: METHODS[dict] | {"get": (*METHODS[dict]["get"], looked_up, gotten)},
    list: METHODS[list]
    | {"sort": (_ORDERED,), "count": (counted,), "index": (searched,), "remove": (searched, *METHODS[list]["remove"])},
    tuple: METHODS.get(tuple, {}) | {"count": (counted,), "index": (searched,)},
    LOCK: {"acquire": (waited,)},
}
_METHODS[str] |= {
    "format": (functools.partial(told_format, call), functools.partial(own_format, call), *METHODS[str]["format"])
}
_PYTHON_METHODS: dict[type, dict[str, Handlers]] = {
    collections.Counter: METHODS[collections.Counter], LoopList: {"sort": (_ORDERED,)},
}  # fmt: skip
_BY_TYPE: dict[type, Handlers] = {
    MethodDescriptorType: (unbound_method, number_method), WrapperDescriptorType: (unbound_method, number_method),
    **dict.fromkeys((type(torch.Tensor), type(torch.FloatTensor)), (tensor_of_class,)),
    type(torch.autograd.Variable): (variable,),
}  # fmt: skip


def _print_heard(heard: Heard) -> Any:
    """`print(...)` of a function that has not asked for anything."""
    has_examples = heard.recorder.examples.are_there
    value = printed(call, heard.recorder, print, heard.args, heard.kwargs) if has_examples else NotImplemented
    return heard.original() if value is NotImplemented else value


overhear(builtins, ("print",), _print_heard)

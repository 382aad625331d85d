"""Comprehensions of converted functions, which are loops of the graph where only a run knows what they go over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from graphwright.capture.containers.loop_lists import LoopList, OfRun
from graphwright.capture.containers.loop_sets import table_of
from graphwright.capture.containers.open_iterables import iterable_of
from graphwright.capture.flow.deciding import branch, either, negation, recorder_of, truth
from graphwright.capture.proxies.unbound import Unbound
from graphwright.capture.python.displays import dict_of
from graphwright.capture.state.running import let_go, running
from graphwright.capture.state.samples import Grows


def listed(
    iterable: Iterable[Any],
    target: str,
    is_tuple: bool,
    element: Callable[..., Any],
    condition: Callable[..., Any] | None = None,
) -> Any:
    """`[element(item) for item in iterable if condition(item)]`; `is_tuple`: both take an item's parts."""
    element, condition = _of_items(is_tuple, element, condition)
    recorder = running()
    if recorder is None or (condition is None and iterable_of(iterable) is None):
        return [element(item) for item in iterable]
    out__gw: list[Any] = []  # in the graph it has the name that the program gives it

    def body(item: Any) -> None:
        _where(condition, item, lambda: out__gw.append(element(item)), lambda: None)

    _each(iterable, body, (), target)
    return out__gw


def as_dict(pairs: LoopList | list[Any]) -> Any:
    """`{key: value for ...}`, of the list of its pairs."""
    if isinstance(pairs, LoopList):
        return table_of(pairs, dict)
    return dict_of(*[part for pair in pairs for part in pair])


def as_set(items: LoopList | list[Any]) -> Any:
    """`{item for ...}`, of the list of its items."""
    return table_of(items, set) if isinstance(items, LoopList) else set(items)


def _where(
    condition: Callable[[Any], Any] | None,
    item: Any,
    then: Callable[[], Any],
    other: Callable[[], Any],
    names: tuple[str, ...] = (),
) -> Any:
    """What a comprehension does with an item where its condition, if it has one, holds, and where not."""
    return then() if condition is None else branch(condition(item), then, other, names)


def extended(values: list[Any], more: Any) -> Any:
    """`values += more` of what starts as a list."""
    recorder = running()
    if recorder is None or type(values) is not list or not isinstance(more, OfRun):
        values += more
        return values
    if any(state.watches(values) for state in recorder.states):
        raise Grows(values)
    longer = [*values] + (more if isinstance(more, LoopList) else more.listed(list))
    values[:] = [Unbound("a list", recorder.where(), recorder.questions.place())]  # whoever else holds it
    return longer


def decided(
    function: Callable[..., Any],
    iterable: Iterable[Any],
    target: str,
    is_tuple: bool,
    element: Callable[..., Any],
    condition: Callable[..., Any] | None = None,
) -> Any:
    """`any(element(item) for item in iterable if condition(item))`, or `all`; `is_tuple` as in `listed`."""
    element, condition = _of_items(is_tuple, element, condition)
    recorder = running()
    if recorder is None or (function is not any and function is not all):
        return function(element(item) for item in iterable if condition is None or condition(item))

    def stops(item: Any) -> Any:
        found = element(item)
        return truth(found) if function is any else negation(found)

    def body(item: Any) -> Any:
        return _where(condition, item, lambda: stops(item), lambda: False)

    if iterable_of(iterable) is None:
        found = _first(iter(iterable), body)
        let_go()
    else:
        found = recorder.loops.each(iterable, body, (), (), True, target)
    return found if function is any else negation(found)


def _first(items: Iterator[Any], body: Callable[[Any], Any]) -> Any:
    """Whether the body says of one of some items that the search ends there, asked one by one."""
    for item in items:
        found = body(item)
        if recorder_of(found) is not None:
            return either(found, lambda: _first(items, body))
        if found:
            return True
    return False


def chained(
    iterable: Iterable[Any],
    target: str,
    is_tuple: bool,
    elements: Callable[..., Any],
    condition: Callable[..., Any] | None = None,
) -> Any:
    """`[element for item in iterable for ... in ...]`: `elements` gives those of an item; the rest is as above."""
    elements, condition = _of_items(is_tuple, elements, condition)
    out__gw: list[Any] = []

    def add(item: Any) -> None:
        nonlocal out__gw
        out__gw = extended(out__gw, elements(item))

    def body(item: Any) -> None:
        _where(condition, item, lambda: add(item), lambda: None, ("out__gw",))

    _each(iterable, body, ("out__gw",), target)
    return out__gw


def _each(iterable: Iterable[Any], body: Callable[[Any], None], names: tuple[str, ...], target: str) -> None:
    """Go over what a comprehension goes over: in the graph, where only a run knows that."""
    recorder = running()
    if recorder is not None and iterable_of(iterable) is not None:
        recorder.loops.each(iterable, body, names, (), False, target)
    else:
        for item in iterable:
            body(item)


def _of_items(is_tuple: bool, *functions: Callable[..., Any] | None) -> Any:
    """Functions of an item's parts, where they are that, as functions of the item; None stays None."""
    return [function and _of_parts(function) for function in functions] if is_tuple else functions


def _of_parts(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of an item's parts as one of the item."""

    def of_item(item: Any) -> Any:
        return function(*item)

    return of_item

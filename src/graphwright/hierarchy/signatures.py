"""What a module is called with and what it gives, in the names and the order of its source."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphwright.ir import Node

_NUMBERED = re.compile(r"^(.*?[^_0-9].*?)_\d+$")


@dataclass(frozen=True)
class Parameter:
    """A parameter of the module of a call: its name, and the value that is passed, or a tuple of values.

    A `keyword` one is passed by name.
    """

    name: str
    value: Node | tuple[Node | None, ...]
    keyword: bool


def parameters_of(kind: Any, passed: Mapping[str, Any], inputs: Iterable[Node]) -> list[Parameter]:
    """The parameters for the inputs of a call, given what the capture noted: the source's, then those it has not."""
    left = {node.name: node for node in inputs}
    found: dict[str, Node | tuple[Node | None, ...]] = {}
    for name, noted in passed.items():
        if isinstance(noted, str) and noted in left:
            found[name] = left.pop(noted)
        elif isinstance(noted, list) and noted and _are_there(noted, left):
            found[name] = tuple([None if each is None else left[each] for each in noted])
            for each in noted:
                left.pop(each, None)
    order, keyword_only = _order(kind)
    if not found and len(left) == len(order) == 1:  # what the one parameter of the source stands for
        found[order[0]] = left.pop(next(iter(left)))
    parameters = []
    is_gapless = True
    for name in order:
        if name in found:
            is_keyword = not is_gapless or name in keyword_only
            parameters.append(Parameter(name, found.pop(name), is_keyword))
        else:
            is_gapless = False
    parameters += [Parameter(name, value, True) for name, value in found.items()]
    taken = {each.name for each in parameters} | set(order)
    for node in left.values():
        name = _free(stem_of(node), taken)
        taken.add(name)
        parameters.append(Parameter(name, node, True))
    return parameters


def _are_there(noted: Sequence[Any], left: Mapping[str, Node]) -> bool:
    names = [each for each in noted if each is not None]
    return (
        bool(names) and all(isinstance(each, str) and each in left for each in names) and len(set(names)) == len(names)
    )


def _free(name: str, taken: set[str]) -> str:
    number = 1
    wish = name
    while wish in taken:
        wish, number = f"{name}_{number}", number + 1
    return wish


@functools.lru_cache(1024)
def _order(kind: Any) -> tuple[tuple[str, ...], frozenset[str]]:
    try:
        _, *found = inspect.signature(kind.forward).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return (), frozenset()
    named = [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    is_open = any(each.kind == each.VAR_POSITIONAL for each in found)
    only = [each.name for each in named if each.kind == each.KEYWORD_ONLY or is_open]
    return tuple([each.name for each in named]), frozenset(only)


@dataclass(frozen=True)
class Given:
    """What a module gives: a value, or a tuple of values and None; and where in it each value is.

    `is_source`: it is what the source gives.
    """

    value: Node | tuple[Node | None, ...] | None
    places: Mapping[Node, int]
    is_source: bool = False

    @property
    def count(self) -> int:
        """How many items it has; 0 for one value, or none, that is no tuple."""
        return len(self.value) if isinstance(self.value, tuple) else 0


def given_by(noted: Any, outputs: Sequence[Node], by_name: Mapping[str, Node]) -> Given:
    """What a call gives, so that all `outputs` are in it: what the source gives, if they are, else a tuple of them.

    `by_name` are the values that the module has.
    """
    wanted = set(outputs)
    if isinstance(noted, str) and noted in by_name and wanted <= {by_name[noted]}:
        return Given(by_name[noted], {}, True)
    if isinstance(noted, list) and all(each is None or (isinstance(each, str) and each in by_name) for each in noted):
        items = tuple([None if each is None else by_name[each] for each in noted])
        places: dict[Node, int] = {}
        for i, item in enumerate(items):
            if item is not None:
                places.setdefault(item, i)
        if wanted <= places.keys() and items:
            return Given(items, places, True)
    if isinstance(noted, list) and outputs:
        told = [each for each in noted if each is not None]
        are_others = all(isinstance(each, str) and each not in by_name for each in told)
        if are_others and len(told) == len({*told}) == len(outputs):  # noted on another way on from a fork
            rest = iter(outputs)
            items = tuple([None if each is None else next(rest) for each in noted])
            return Given(items, {item: i for i, item in enumerate(items) if item is not None}, True)
    if not outputs:
        return Given(None, {})
    if len(outputs) == 1:
        return Given(outputs[0], {})
    first = [by_name[each] for each in names_in(noted) if each in by_name and by_name[each] in wanted]
    order = list(dict.fromkeys([*first, *outputs]))
    return Given(tuple(order), {item: i for i, item in enumerate(order)})


def stem_of(node: Node) -> str:
    """The name of a value without the number that made it unlike others: `hidden_states` of `hidden_states_3`.

    >>> from graphwright.ir import Graph
    >>> stem_of(Graph().placeholder("hidden_states_3"))
    'hidden_states'
    """
    found = _NUMBERED.match(node.name)
    return found.group(1) if found else node.name


def names_in(noted: Any) -> list[str]:
    """All names in what the capture noted of a value.

    >>> names_in(["a", None, ["b"]])
    ['a', 'b']
    """
    if isinstance(noted, list):
        return [name for each in noted for name in names_in(each)]
    return [noted] if isinstance(noted, str) else []

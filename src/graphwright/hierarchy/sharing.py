"""Which calls of modules do the same: they have one graph between them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any

from torch import nn

from graphwright.hierarchy.chains import path_of
from graphwright.hierarchy.copied_calls import NotAsCopied
from graphwright.hierarchy.rows import rows_of
from graphwright.hierarchy.writing import Nested, Writing
from graphwright.ir import Graph, Node
from graphwright.runtime import (
    SharedCode,
    called_entry,
    entry_points_of,
    nested_in,
    own_class,
    share_graph,
)

_MOST_ROUNDS = 20
_Modules = Mapping[str, nn.Module]  # by path
_Rows = Mapping[Graph, tuple[Hashable, ...]]


class Written:
    """The graphs of a captured module and of the modules in it: `of_module` by path and name of the entry point.

    Equal modules have the same ones. `flat` are the calls that have no graph of their own, each with the reason.
    """

    def __init__(self, tops: list[Graph], of_module: dict[str, dict[str, SharedCode]], flat: dict[str, str]) -> None:
        self.tops, self.of_module, self.flat = tops, of_module, flat


def write_nested(
    modules: _Modules,
    graphs: Collection[Graph],
    why_not: Callable[[nn.Module], str | None],
    write_out: Callable[[Graph], object] | None = None,
) -> Written:
    """Write graphs of a captured module, of which `modules` are all by path, as nested ones.

    `why_not` says of a module why it cannot have a graph, or None; `write_out` writes out the copied calls of a graph,
    which is done where they cannot be what the original is.

    Calls of equal modules, and of one module, get one graph where they do the same; they may need different ones of
    the values that it has, and then it gives all of these. Where calls of one module do not do the same, the first is
    its `forward`, and the others are methods beside it.
    """
    flat: dict[str, str] = {}
    more: dict[str, set[Node]] = {}
    names: dict[str, str] = {}
    with_forms = False
    for _ in range(_MOST_ROUNDS):
        writing = Writing(modules, flat, more, names)
        try:
            tops = [writing.whole(graph) for graph in graphs]
        except NotAsCopied:
            assert write_out is not None
            for graph in graphs:
                write_out(graph)
            continue
        refused = _refused(modules, writing.nested, why_not)
        if refused:
            flat |= refused
            continue
        rows = {graph: rows_of(graph) for graph in dict.fromkeys(call.graph for call in writing.nested.values())}
        programs = _programs(modules, writing.nested, rows, with_forms)
        before = {key: names.get(key, "forward") for key in writing.nested}
        names = _names(modules, writing.nested, programs)
        if names == before and not _ask_for_more(writing.nested, programs, more):
            if not with_forms and not _are_one(writing.nested, names, rows):
                with_forms = True
                continue
            flat |= dict.fromkeys(writing.split, "a branch begins inside of it that is not all its own, as a fork is")
            return Written(tops, _shared(modules, writing.nested, names, rows), flat)
    raise AssertionError("the graphs of equal modules do not come to be equal")


@contextlib.contextmanager
def apart(gm: nn.Module) -> Iterator[list[nn.Module]]:
    """While it lasts, the captured modules in a nested capture have graphs of their own; the block gets all of them.

    Edits of one may go with edits of its state, which another does not have. Those that are equal afterwards share a
    graph again.

    >>> import torch
    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU()))
    >>> with apart(trace(model, torch.ones(2), flat=False)) as modules:
    ...     len({id(module.graph) for module in modules})
    3
    """
    nested = nested_in(gm)
    seen: set[int] = set()
    for module in nested:
        for name, entry in entry_points_of(module).items():
            if id(entry.graph) in seen:
                share_graph(module, name, SharedCode(copy.deepcopy(entry.graph)))
            seen.add(id(entry.graph))
    try:
        yield [gm, *nested]
    finally:
        _share_equal(gm)


def _share_equal(gm: nn.Module) -> None:
    first: dict[Hashable, SharedCode] = {}
    for module in reversed(nested_in(gm)):  # what is inside of a module before it
        kind: Any = own_class(module)
        for name, entry in entry_points_of(module).items():
            calls = [called_entry(node, module) for node in entry.graph.all_nodes()]
            same = [id(called[1].graph) for called in calls if called is not None]
            assert entry.shared is not None
            shared = first.setdefault((kind, name, tuple(same), rows_of(entry.graph)), entry.shared)
            if shared is not entry.shared:
                share_graph(module, name, shared)


def _refused(
    modules: _Modules, nested: Mapping[str, Nested], why_not: Callable[[nn.Module], str | None]
) -> dict[str, str]:
    refused = {}
    for key in nested:
        why = why_not(modules[path_of(key)])
        if why is not None:
            refused[key] = why
    return refused


def _are_one(nested: Mapping[str, Nested], names: Mapping[str, str], rows: _Rows) -> bool:
    """Tell whether all calls of one entry point of a module have one graph, down to the form of what it gives."""
    first: dict[tuple[str, str], Any] = {}
    return all(
        first.setdefault((path_of(key), names[key]), rows[call.graph]) == rows[call.graph]
        for key, call in nested.items()
    )


def _programs(modules: _Modules, nested: Mapping[str, Nested], rows: _Rows, with_forms: bool) -> dict[str, int]:
    """A number for each call: that of what its module does, short of which of its values it gives and in what form.

    `with_forms`: with that. One call may give a tuple, where the capture saw that the source does, and another the
    value in it.
    """
    numbers: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    for key, call in nested.items():  # what is inside of a call comes before it
        kind: Any = own_class(modules[path_of(key)])
        own = rows[call.graph] if with_forms else rows[call.graph][:-1]  # the last is the output
        program = kind, *[found[each] for each in call.inside], *own
        found[key] = numbers.setdefault(program, len(numbers))
    return found


def _names(modules: _Modules, nested: Mapping[str, Nested], programs: Mapping[str, int]) -> dict[str, str]:
    """The entry points that calls are of: `forward` for the first of a module and what does the same, then others."""
    found: dict[str, dict[int, str]] = {}
    names = {}
    for key in nested:
        path = path_of(key)
        of_module = found.setdefault(path, {})
        if programs[key] not in of_module:
            of_module[programs[key]] = _free_name(modules[path], len(of_module) + 1) if of_module else "forward"
        names[key] = of_module[programs[key]]
    return names


def _free_name(module: nn.Module, number: int) -> str:
    name = f"forward_{number}"
    while hasattr(own_class(module), name) or name in module.__dict__ or name in module._modules:
        name += "_"
    return name


def _ask_for_more(nested: Mapping[str, Nested], programs: Mapping[str, int], more: dict[str, set[Node]]) -> bool:
    """Have equal calls give the same values. Tell whether some have to give more than they did."""
    wanted: dict[int, set[int]] = {}
    for key, call in nested.items():
        wanted.setdefault(programs[key], set()).update(call.outputs)
    has_changed = False
    for key, call in nested.items():
        if call.outputs != wanted[programs[key]]:
            more[key] = {call.value_at(place) for place in wanted[programs[key]]}
            has_changed = True
    return has_changed


def _shared(
    modules: _Modules, nested: Mapping[str, Nested], names: Mapping[str, str], rows: _Rows
) -> dict[str, dict[str, SharedCode]]:
    """The graphs of each module, by its path and their names: modules of a class that do and give the same have one."""
    first: dict[Hashable, SharedCode] = {}
    found: dict[str, dict[str, SharedCode]] = {}
    ids: dict[str, int] = {}
    for key, call in nested.items():
        path, name = path_of(key), names[key]
        inside = tuple([ids[each] for each in call.inside])
        kind: Any = own_class(modules[path])
        shared = first.setdefault((kind, name, inside, rows[call.graph]), SharedCode(call.graph))
        ids[key] = id(shared)
        found.setdefault(path, {}).setdefault(name, shared)
    return found

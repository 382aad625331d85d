"""What a program has changed and the graph has not written yet: in its modules, in variables outside, in its inputs.

All of it is written where the program ends, and where an error leaves it: what was written before that stays written.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from graphwright.ir import Argument, Graph, Node, map_arg, nodes_in
from graphwright.ops import cond, is_impure, is_region

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from graphwright.capture.proxies.objects import Change
    from graphwright.capture.state.protocol import Capture, TypedCapture
    from graphwright.ir import Argument


class Since:
    """What the program does from here on that others than it see: nodes that act, and changes that are not written."""

    def __init__(self, recorder: Capture) -> None:
        self._recorder = recorder
        self._last, self._before = recorder.graph._root.prev, _unwritten(recorder)

    def has_acted(self) -> bool:
        """Tell whether it has written nodes that act."""
        return any(map(is_impure, _after(self._recorder.graph, self._last)))

    def has_changed(self) -> bool:
        """Tell whether it has changed what is not written yet, to another thing than it held then."""
        return _ids(self._before) != _ids(_unwritten(self._recorder))


def has_unwritten(recorder: Capture) -> bool:
    """Tell whether there is any of it."""
    return bool(_unwritten(recorder))


def write_unwritten(
    recorder: TypedCapture, changes: Iterable[Change], result: Any = None, goes_on: bool = False
) -> Argument:
    """Write it, as it is now, but first read the result of the program, which is given back as the graph has it."""
    keeping, changes = recorder.keeping, list(changes)
    kept = () if keeping is None else keeping.unwritten()
    with recorder.finishing([result, *[arg for _, *args in changes for arg in args], *[now for *_, now in kept]]):
        writes = [(function, tuple(map(recorder.argument, args))) for function, *args in changes]
        value = recorder.argument(result)
        if keeping is not None:
            keeping.write(goes_on=goes_on)
        for function, args in writes:  # all is read before the first write
            recorder.node("call_function", function, args, {}, function.__name__)
    return value


def write(
    recorder: TypedCapture, target: Callable[..., Any], args: tuple[Any, ...], start: Callable[[], Node] | None
) -> None:
    """Make the node that writes the last of some arguments.

    What comes to stand before a value of a class, which `start` reads, is written unless it is that: a way through a
    branch or loop that writes nothing.
    """
    if start is None or not _is_of_region(args[-1]):
        recorder.node("call_function", target, args, {}, name="" if target is operator.setitem else "write")
        return
    test = recorder.node("call_function", operator.is_not, (args[-1], start()), {}, "is_other")
    operands = tuple(dict.fromkeys(nodes_in(args)))
    bodies = Graph(), Graph()
    for body, is_written in zip(bodies, (True, False), strict=True):
        inputs = {node: body.placeholder(node.name) for node in operands}
        if is_written:
            body.call_function(target, map_arg(args, inputs.__getitem__))
        body.output(None)
    recorder.node("call_function", cond, (test, *bodies, operands), {}, "write")


def _is_of_region(value: Argument) -> bool:
    while isinstance(value, Node) and value.target is operator.getitem:
        value = value.args[0]
    return isinstance(value, Node) and is_region(value)


def _unwritten(recorder: Capture) -> list[tuple[Any, ...]]:
    keeping = recorder.keeping
    return [] if keeping is None else [*keeping.unwritten(), *keeping.changes_of_inputs()]


def _ids(changes: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Which things they are of; a list is one that was made to tell what is in the one that has changed."""
    return [[list(map(id, part)) if type(part) is list else id(part) for part in change] for change in changes]


def _after(graph: Graph, last: Node) -> Iterable[Node]:
    """The nodes after one, which may be the root of the graph."""
    node = last._next
    while node is not graph._root:
        yield node
        node = node._next

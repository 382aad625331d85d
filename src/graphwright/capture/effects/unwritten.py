"""What a program has changed and the graph has not written yet: in its modules, in variables outside, in its inputs.

All of it is written where the program ends, and where an error leaves it: what was written before that stays written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphwright.ops import is_impure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphwright.capture.proxies.objects import Change
    from graphwright.capture.state.protocol import Capture, TypedCapture
    from graphwright.ir import Argument, Graph, Node


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


def write_unwritten(recorder: TypedCapture, changes: Iterable[Change], result: Any = None) -> Argument:
    """Write it, as it is now, but first read the result of the program, which is given back as the graph has it."""
    keeping, changes = recorder.keeping, list(changes)
    kept = () if keeping is None else keeping.unwritten()
    with recorder.finishing([result, *[arg for _, *args in changes for arg in args], *[now for *_, now in kept]]):
        writes = [(function, tuple(map(recorder.argument, args))) for function, *args in changes]
        value = recorder.argument(result)
        if keeping is not None:
            keeping.write()
        for function, args in writes:  # all is read before the first write
            recorder.node("call_function", function, args, {}, function.__name__)
    return value


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

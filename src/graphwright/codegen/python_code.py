"""What code generation gives: source, what it needs, and where each line comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.ir import Node


class PythonCode:
    """Generated source, the global names that it needs, and which node each line comes from.

    `run` is what is compiled where that is not `src`: line for line the same, with other look-ups of modules; else "".
    `lines` maps each line of `src`, counted from 1, to the node whose value it computes. `_lineno_map` says the same
    in torch.fx's way: lines counted from the `def`, which stands on line `_prologue_start`, and nodes by number.

    >>> PythonCode("x = one", {"one": 1}, None)
    PythonCode(src='x = one', globals={'one': 1}, _lineno_map={1: None, 2: None}, _prologue_start=0)
    """

    __slots__ = (
        "__weakref__", "_first", "_map", "_nodes", "_prologue_start", "_statements", "globals", "run", "src",
    )  # fmt: skip

    def __init__(
        self,
        src: str,
        globals: dict[str, Any],
        _lineno_map: dict[int, int | None] | None = None,
        _prologue_start: int = 0,
        *,
        first: int = 1,
        statements: Sequence[Node | None] = (),
        nodes: Sequence[Node] = (),
        run: str = "",
    ) -> None:
        self.src = src
        self.run = run
        self.globals = globals
        self._prologue_start = _prologue_start
        self._map = _lineno_map
        self._first = first  # the line of `statements[0]`
        self._statements = statements  # the node of each line of `src` from there on
        self._nodes = nodes  # all of them, as they were when the code was written

    @property
    def lines(self) -> dict[int, Node]:
        """Map each line of `src` to the node whose value it computes."""
        return {line: node for line, node in enumerate(self._statements, self._first) if node is not None}

    @property
    def _lineno_map(self) -> dict[int, int | None]:
        """Map each line, counted from the `def`, to the number of the node that it, or the last before, computes."""
        if self._map is None:
            numbers: dict[Node | None, int] = {node: number for number, node in enumerate(self._nodes)}
            self._map = {}
            current: int | None = None
            line = self._first - self._prologue_start
            for node in self._statements or [None]:  # without any statement there is a `pass`
                current = numbers.get(node, current)  # inside native blocks: the number of the block
                self._map[line] = current
                line += 1
            self._map[line] = current  # the line that only ends the text
        return self._map

    def __repr__(self) -> str:
        return (
            f"PythonCode(src={self.src!r}, globals={self.globals!r}, _lineno_map={self._lineno_map!r}, "
            f"_prologue_start={self._prologue_start!r})"
        )

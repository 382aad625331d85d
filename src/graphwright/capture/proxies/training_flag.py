"""The `training` flag of a module during symbolic tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphwright.capture.proxies.proxy import Proxy
from graphwright.ir import Node
from graphwright.runtime import expect

if TYPE_CHECKING:
    from graphwright.capture.proxies.recording import TracerBase


class TrainingFlag(Proxy):
    """The `training` flag of a module during capture: passed on it stays live, asked about it is guarded."""

    _node: Node | None = None
    _guarded = False

    def __init__(self, tracer: TracerBase, prefix: str, value: bool) -> None:
        self.tracer = tracer
        self._prefix = prefix
        self._value = value

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the flag of the captured module when it runs."""
        if self._node is None or self._node.graph not in self.tracer.open_graphs():
            self._node = self.tracer.create_node("get_attr", f"{self._prefix}training", (), {})
        return self._node

    def __bool__(self) -> bool:
        if not self._guarded:
            self._guarded = len(self.tracer.open_graphs()) == 1  # on a side of a branch it is for that side only
            where = self.tracer._here() or self.node.name
            self.tracer.create_node("call_function", expect, (self.node, self._value, where), {})
        return self._value

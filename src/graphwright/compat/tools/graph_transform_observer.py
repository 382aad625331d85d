"""Watch what a pass does to a graph: which nodes it makes and which it erases."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, TypeVar

from graphwright.ir import Graph, Node, NodeSource, NodeSourceAction
from graphwright.runtime import GraphModule, graph_of
from graphwright.viz import FxGraphDrawer

if TYPE_CHECKING:
    import pydot

__all__ = ["GraphTransformObserver"]

T = TypeVar("T")
_CREATE = NodeSourceAction.CREATE


class GraphTransformObserver:
    """Watches a module inside a `with` block, where a `log_url` is given.

    Then `created_nodes` and `erased_nodes` hold names, `name_to_node` the nodes that are there, and `copied_gms` the
    copies made of the module meanwhile. `meta["from_node"]` of a node that is made, or that takes the place of
    another one, says so. If nodes were made or erased, the graphs before and after are drawn in the folder `log_url`,
    which exists: `pass_1_NAME_input_graph.dot`, with what was erased in yellow, and `pass_1_NAME_output_graph.dot`,
    with what is new. Watching needs pydot.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x + 1)
    >>> observer = GraphTransformObserver(gm, "negate")
    >>> observer.apply_graph_pass(lambda graph: len(graph.nodes))
    3
    """

    _pass_count: ClassVar[int] = 0

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | None = None
    ) -> None:
        self.gm = gm
        self.passname = passname
        self.subsystem = subsystem
        self.log_url = log_url
        self.active = log_url is not None
        if self.active:
            type(self)._pass_count += 1
            self.erased_nodes: set[str] = set()
            self.created_nodes: set[str] = set()
            self.name_to_node: dict[str, Node] = {node.name: node for node in graph_of(gm).nodes}
            self.copied_gms: list[GraphModule] = []
            self._node_creation_hook = self.get_node_creation_hook()
            self._node_erase_hook = self.get_node_erase_hook()
            self._node_replace_hook = self.get_node_replace_hook()
            self._deepcopy_hook = self.get_deepcopy_hook()
            self.input_dot_graph = self._draw()

    @classmethod
    def get_current_pass_count(cls) -> int:
        """Tell how many observers that watch have been made."""
        return cls._pass_count

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], T]) -> T | None:
        """Run a pass on the module, watched."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Graph], T]) -> T | None:
        """Run a pass on the module's graph, watched."""
        with self:
            return pass_fn(graph_of(self.gm))

    def __enter__(self) -> GraphTransformObserver:
        if self.active:
            self.gm._register_create_node_hook(self._node_creation_hook)
            self.gm._register_erase_node_hook(self._node_erase_hook)
            self.gm._register_replace_node_hook(self._node_replace_hook)
            self.gm._register_deepcopy_hook(self._deepcopy_hook)
        return self

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self.active:
            for module in (self.gm, *self.copied_gms):  # a copy has the hooks, too
                module._unregister_create_node_hook(self._node_creation_hook)
                module._unregister_erase_node_hook(self._node_erase_hook)
                module._unregister_replace_node_hook(self._node_replace_hook)
                module._unregister_deepcopy_hook(self._deepcopy_hook)
            if self.created_nodes or self.erased_nodes:
                self._write("input", self.input_dot_graph, self.erased_nodes)
                self._write("output", self._draw(), self.created_nodes)

    def _draw(self) -> pydot.Dot:
        drawer = FxGraphDrawer(self.gm, self.passname, ignore_getattr=True, ignore_parameters_and_buffers=True)
        return drawer.get_dot_graph()

    def _write(self, side: str, drawing: pydot.Dot, changed: set[str]) -> None:
        for box in drawing.get_nodes():
            box.set("fillcolor", "yellow" if box.get_name() in changed else "grey")
        file = f"pass_{self._pass_count}_{self.passname}_{side}_graph.dot"
        drawing.write(os.path.join(str(self.log_url), file))

    def get_node_creation_hook(self) -> Callable[[Node], None]:
        """Make the function that is told of new nodes."""

        def created(node: Node) -> None:
            self.created_nodes.add(node.name)
            self.name_to_node[node.name] = node
            node.meta["from_node"] = [NodeSource(None, self.passname, _CREATE)]

        return created

    def get_node_erase_hook(self) -> Callable[[Node], None]:
        """Make the function that is told of erased nodes."""

        def erased(node: Node) -> None:
            self.erased_nodes.add(node.name)
            self.name_to_node.pop(node.name, None)

        return erased

    def get_node_replace_hook(self) -> Callable[[Node, str, Node], None]:
        """Make the function that is told where one node takes the place of another."""

        def replaced(old: Node, new: str, user: Node) -> None:
            node = self.name_to_node[new]
            sources = [source for source in node.meta.get("from_node", []) if source.action != [_CREATE]]
            if all(source.name != old.name for source in sources):
                action = [NodeSourceAction.REPLACE] + ([_CREATE] if new in self.created_nodes else [])
                node.meta["from_node"] = [*sources, NodeSource(old, self.passname, action)]

        return replaced

    def get_deepcopy_hook(self) -> Callable[[GraphModule], None]:
        """Make the function that is told of copies of the module."""
        return self.copied_gms.append

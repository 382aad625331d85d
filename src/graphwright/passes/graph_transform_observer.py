"""Watch what a pass does to a graph: which nodes it makes and which it erases."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, TypeVar

from graphwright.ir import Graph, Node
from graphwright.runtime import GraphModule, graph_of

__all__ = ["GraphTransformObserver"]

T = TypeVar("T")


class GraphTransformObserver:
    """Watches a module inside a `with` block, where a `log_url` is given.

    Then `created_nodes` and `erased_nodes` hold names, `name_to_node` the nodes that are there, and `copied_gms` the
    copies made of the module meanwhile. Nothing is written to `log_url`.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x + 1)
    >>> with GraphTransformObserver(gm, "negate", log_url="log") as observer:
    ...     _ = gm.graph.call_method("neg", (next(iter(gm.graph.nodes)),))
    >>> observer.created_nodes
    {'neg'}
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
            self._on_create, self._on_erase = self.get_node_creation_hook(), self.get_node_erase_hook()
            self._on_replace, self._on_copy = self.get_node_replace_hook(), self.get_deepcopy_hook()

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
            self.gm._register_create_node_hook(self._on_create)
            self.gm._register_erase_node_hook(self._on_erase)
            self.gm._register_replace_node_hook(self._on_replace)
            self.gm._register_deepcopy_hook(self._on_copy)
        return self

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self.active:
            for module in (self.gm, *self.copied_gms):  # a copy has the hooks, too
                module._unregister_create_node_hook(self._on_create)
                module._unregister_erase_node_hook(self._on_erase)
                module._unregister_replace_node_hook(self._on_replace)
                module._unregister_deepcopy_hook(self._on_copy)

    def get_node_creation_hook(self) -> Callable[[Node], None]:
        """Make the function that is told of new nodes."""

        def created(node: Node) -> None:
            self.created_nodes.add(node.name)
            self.name_to_node[node.name] = node

        return created

    def get_node_erase_hook(self) -> Callable[[Node], None]:
        """Make the function that is told of erased nodes."""

        def erased(node: Node) -> None:
            self.erased_nodes.add(node.name)
            self.name_to_node.pop(node.name, None)

        return erased

    def get_node_replace_hook(self) -> Callable[[Node, str, Node], None]:
        """Make the function that is told where one node takes the place of another; it does nothing."""

        def replaced(old: Node, new: str, user: Node) -> None:
            return None

        return replaced

    def get_deepcopy_hook(self) -> Callable[[GraphModule], None]:
        """Make the function that is told of copies of the module."""
        return self.copied_gms.append

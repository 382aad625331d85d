"""What the nodes that are being made inherit: torch.fx's `traceback` module, per thread.

While `preserve_node_meta()` lasts, a node that is recorded takes over the meta that is current: that of the node which
an Interpreter runs, what `annotate` says, the stack that `set_stack_trace` gives.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphwright.ir.graph import Graph
    from graphwright.ir.node import Node

# What a node takes over from the current meta; its stack trace comes with it. Tools add keys of their own.
INHERITED_META = [
    *("nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id"),
    *("has_backward_hook", "from_node", "quantization_tag", "_numeric_debug_handle", "custom", "partitioner_tag"),
]


class _Current(threading.local):
    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.preserves = False
        self.replayed: Node | None = None


_current = _Current()


def has_preserved_node_meta() -> bool:
    """Tell whether nodes recorded now inherit the current meta."""
    return _current.preserves


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Have nodes that are recorded inside the block inherit the current meta; what was current returns at its end."""
    before = _current.preserves, _current.meta
    _current.preserves, _current.meta = enable, dict(_current.meta)
    try:
        yield
    finally:
        _current.preserves, _current.meta = before


def get_current_meta() -> dict[str, Any]:
    """Return the meta that nodes recorded now inherit; it may be changed in place.

    >>> with preserve_node_meta(), annotate({"stage": 1}):
    ...     get_current_meta()
    {'custom': {'stage': 1}}
    """
    return _current.meta


@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Make the meta of a node current while the block lasts, with the node itself under `from_node`.

    Without `preserve_node_meta`, or for a node that has no meta, nothing changes.
    """
    if not (_current.preserves and node.meta):
        yield
        return
    before = _current.meta
    _current.meta = {**node.meta, "from_node": [NodeSource(node, pass_name, NodeSourceAction.CREATE)]}
    try:
        yield
    finally:
        _current.meta = before


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Add to what nodes recorded inside the block get under `meta["custom"]`; an inner block wins over an outer one."""
    before = _current.meta
    _current.meta = {**before, "custom": {**before.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _current.meta = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function so that it runs inside `annotate(annotation_dict)`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorate


def set_stack_trace(stack: list[str]) -> None:
    """Make these lines the stack trace of nodes recorded now, while meta is preserved."""
    if _current.preserves and stack:
        _current.meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """Return the current stack trace: the preserved one, else that of the caller."""
    if _current.preserves:
        return [_current.meta.get("stack_trace", "")]
    return traceback.format_stack()[:-1]


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Note that the backward function of this number is entered, while meta is preserved."""
    if _current.preserves:
        meta = _current.meta
        meta["grad_fn_seq_nr"] = [*meta.get("grad_fn_seq_nr", []), seq_nr]
        meta["in_grad_fn"] = meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Note that the backward function entered last is left."""
    if _current.preserves and "in_grad_fn" in _current.meta:
        meta = _current.meta
        meta["in_grad_fn"] -= 1
        meta["grad_fn_seq_nr"] = meta["grad_fn_seq_nr"][:-1]
        if meta["in_grad_fn"] == 0:
            del meta["in_grad_fn"], meta["grad_fn_seq_nr"]


@contextlib.contextmanager
def set_current_replay_node(node: Node | None) -> Iterator[None]:
    """Name the node that is being run again while the block lasts."""
    before, _current.replayed = _current.replayed, node
    try:
        yield
    finally:
        _current.replayed = before


def get_current_replay_node() -> Node | None:
    """Return the node that `set_current_replay_node` names, or None."""
    return _current.replayed


class NodeSourceAction(enum.Enum):
    """What a pass did to get one node from another."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """A node that another one was made from, by which pass and how, and that node's own sources in turn."""

    def __init__(
        self,
        node: Node | None,
        pass_name: str = "",
        action: NodeSourceAction | list[NodeSourceAction] | None = None,
    ) -> None:
        self.pass_name = pass_name
        if action is None:
            action = []
        self.action = action if isinstance(action, list) else [action]
        self.name = node.name if node is not None else ""
        self.target = str(node.target) if node is not None else ""
        self.graph_id = id(node.graph) if node is not None else -1
        self.from_node: list[NodeSource] = list((node._meta or {}).get("from_node", [])) if node is not None else []

    def to_dict(self) -> dict[str, Any]:
        """Write it as a dict of plain values."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": "+".join(action.value for action in self.action),
            "from_node": [source.to_dict() for source in self.from_node],
        }

    def print_readable(self, indent: int = 0) -> str:
        """Write it as one line, its own sources below it, further in."""
        action = "+".join(action.value for action in self.action)
        line = f"(name={self.name}, pass_name={self.pass_name}, action={action}, graph_id={self.graph_id})\n"
        return " " * indent + line + "".join(source.print_readable(indent + 4) for source in self.from_node)

    def __repr__(self) -> str:
        return self.print_readable()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.target, self.graph_id, self.pass_name))


def get_graph_provenance_json(graph: Graph) -> dict[str, Any]:
    """Map the name of each calling node to its sources, as dicts of plain values."""
    return {
        node.name: [source.to_dict() for source in node.meta.get("from_node", [])]
        for node in graph.nodes
        if node.op in ("call_function", "call_method", "call_module")
    }

"""Why a node counts as supported or not: a log of what the search for supported nodes decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphwright.ir import Node

__all__ = ["ALL_SUFFIX", "NODES_SUFFIX", "NodeEvent", "NodeEventTracker"]

ALL_SUFFIX = "_all.txt"  # the file with the events of all nodes
NODES_SUFFIX = "_nodes.txt"  # that with those of some nodes, and of what they depended on

Writer = Callable[[str], object]


class NodeEvent:
    """One decision about a node, and the other node that led to it.

    >>> from graphwright.ir import Graph
    >>> NodeEvent(Graph().placeholder("x"), "init_cpu|not_callable").to_str()
    'x: init_cpu|not_callable #'
    """

    def __init__(self, source: Node, desc: str, dep: Node | None = None) -> None:
        self.source = source
        self.desc = desc
        self.dep = dep

    def to_str(self) -> str:
        """Write the event as a line; `#` stands for no other node."""
        return f"{self.source}: {self.desc} {self.dep or '#'}"


class NodeEventTracker:
    """Keeps events, and writes them to files if asked to.

    `tracker_mode` 0 writes nothing; 1 all nodes to `<dump_prefix>_all.txt`; 2 also the nodes `tracked_nodes`, with
    what they depended on, to `<dump_prefix>_nodes.txt`; 3 instead those for which something was decided twice.

    >>> from graphwright.ir import Graph
    >>> tracker = NodeEventTracker(0, "")
    >>> tracker.add(Graph().placeholder("x"), "init_cpu|not_callable")
    >>> tracker.to_dict()
    {'x': ['x: init_cpu|not_callable #']}
    """

    def __init__(self, tracker_mode: int, dump_prefix: str, tracked_nodes: str = "") -> None:
        self.tracker_mode = tracker_mode
        self.dump_prefix = dump_prefix
        self.events: list[NodeEvent] = []
        self.node_events: dict[str, list[int]] = {}  # places in `events`, by the name of the node
        self.writer: Writer = print
        self._tracked_nodes = tracked_nodes.split(",")

    def add(self, node: Node, desc: str, dep: Node | None = None) -> None:
        """Note an event of a node."""
        self.node_events.setdefault(node.name, []).append(len(self.events))
        self.events.append(NodeEvent(node, desc, dep))

    def print_node(self, node_name: str, recursive: bool = False, tab: str = "", writer: Writer | None = None) -> None:
        """Write the events of a node a line each, after `tab`; `recursive` adds those of the nodes that led to them."""
        writer = writer or self.writer
        for i in self.node_events.get(node_name, ()):
            event = self.events[i]
            writer(tab + event.to_str())
            if recursive and event.dep is not None:
                self.print_node(event.dep.name, True, f"| {tab}", writer)

    def to_dict(self) -> dict[str, list[str]]:
        """Give the lines of each node by its name."""
        return {name: [self.events[i].to_str() for i in places] for name, places in self.node_events.items()}

    def print_all(self, writer: Writer | None = None) -> None:
        """Write the events of all nodes, under their names."""
        writer = writer or self.writer
        for name in self.node_events:
            writer(f"Node: {name}:")
            self.print_node(name, False, "  ", writer)

    def dump(self) -> None:
        """Write the files that the mode asks for."""
        if self.tracker_mode > 0:
            lines: list[str] = []
            self.print_all(lines.append)
            _write(self.dump_prefix + ALL_SUFFIX, lines)
        if self.tracker_mode in (2, 3):
            names = self._tracked_nodes
            if self.tracker_mode == 3:
                names = [name for name, places in self.node_events.items() if len(places) > 1]
            lines = []
            for name in names:
                lines.append(f"===== Tracking node {name} =====")
                self.print_node(name, True, "|-", lines.append)
                lines.append(f"===== End of tracking node {name} =====")
            _write(self.dump_prefix + NODES_SUFFIX, lines)


def _write(path: str, lines: list[str]) -> None:
    Path(path).write_text("".join(f"{line}\n" for line in lines))

"""The invariants of a graph, each with one numbered check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphwright.errors import GraphError
from graphwright.ir.names import is_reserved
from graphwright.ir.node import OPCODES, Node, nodes_in

if TYPE_CHECKING:
    from graphwright.ir.graph import Graph

__all__ = ["CHECKS", "lint"]

# Number -> what must hold. `lint` raises "[GW3] ..." for the first that does not.
CHECKS = {
    1: "the nodes form one ring through the root, and know their number, their order and their graph",
    2: "every opcode is one of the six, with a target of its kind",
    3: "a value is used only after the node that makes it, within one graph",
    4: "use lists agree with arguments, both ways",
    5: "names are unique, legal and not reserved",
    6: "placeholders come first",
    7: "there is at most one output, it is last and nothing uses it",
    8: "call_module and get_attr targets exist in the owning module",
}


def lint(graph: Graph) -> None:
    """Check `CHECKS` in one walk; raise GraphError for the first that fails."""
    seen: set[Node] = set()
    names: dict[str, Node] = {}
    uses: dict[Node, list[Node]] = {}
    past_inputs = False
    output: Node | None = None
    before = graph._root
    position = float("-inf")
    for node in graph.nodes:
        op = node._op
        if node._prev is not before or node.graph is not graph or not node._position > position:  # type: ignore[operator]
            _fail(1, node, f"{node.name!r} is not linked into this graph in order")
        before, position = node, node._position  # type: ignore[assignment]
        if op not in OPCODES:
            _fail(2, node, f"Node {node} had unknown opcode {op}")
        if callable(node._target) is isinstance(node._target, str) or (op == "call_function") is isinstance(node._target, str):
            wanted = "a Callable" if op == "call_function" else "a str"
            _fail(2, node, f"Node {node} target {node._target} has type {type(node._target).__name__} but {wanted} is expected")
        if op == "placeholder":
            if past_inputs:
                _fail(6, node, f"placeholder {node.name!r} comes after a node that computes")
        else:
            past_inputs = True
        if output is not None:
            _fail(7, node, f"{node.name!r} comes after the output")
        if op == "output":
            output = node
            if node.users:
                _fail(7, node, "something uses the output")
        for used in _reads(node):
            if used.graph is not graph:
                _fail(3, node, f"Argument {used.name!r} of Node {node.name!r} does not belong to this Graph, but was used as an argument")
            if used not in seen:
                why = "was erased" if used._position is None else "was used before it has been defined"
                _fail(3, node, f"Argument {used.name!r} of Node {node.name!r} {why}: the nodes are not in topological order")
            uses.setdefault(used, []).append(node)
        seen.add(node)
        other = names.setdefault(node.name, node)
        if other is not node:
            _fail(5, node, f"Node redefined name {node.name!r}, which {other.format_node()} has")
        if op != "output" and (not node.name.isidentifier() or is_reserved(node.name)):
            _fail(5, node, f"{node.name!r} is not a legal name for a value")
    if graph._root._prev is not before or len(seen) != graph._len:
        _fail(1, before, "the ring of nodes is broken")
    for node in seen:
        if node.users.keys() != set(uses.get(node, ())):
            _fail(4, node, f"the users of {node.name!r} are {list(node.users)}, but {uses.get(node, [])} read it")
    if graph.owning_module is not None:
        for node in graph.nodes:
            if node._op in ("call_module", "get_attr"):
                _check_target(node, graph.owning_module)


def _reads(node: Node) -> set[Node]:
    return {*nodes_in(node._args), *nodes_in(node._kwargs)}


def _check_target(node: Node, owner: Any) -> None:
    """Check 8: follow the dotted path, saying which step of it is missing."""
    value = owner
    for atom in node._target.split("."):  # type: ignore[union-attr]
        if not hasattr(value, atom):
            _fail(8, node, f"Node {node} target {node._target} references nonexistent attribute {atom} of {type(value).__name__}")
        value = getattr(value, atom)
    if node._op == "call_module" and not (callable(value) and hasattr(value, "forward")):
        _fail(8, node, f"Node {node} target {node._target} references {type(value).__name__}, which is not a module")


def _fail(number: int, node: Node, message: str) -> None:
    raise GraphError(f"[GW{number}] {message}", at=node.origin)



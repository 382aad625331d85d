"""The invariants of a graph, each with one numbered check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from graphwright.errors import GraphError
from graphwright.ir.names import is_reserved
from graphwright.ir.node import OPCODES, Node, nodes_in
from graphwright.ir.text import format_node

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
    6: "placeholders come first, and their targets are different names of parameters",
    7: "there is at most one output, it is last and nothing uses it",
    8: "call_module and get_attr targets exist in the owning module",
}


def lint(graph: Graph) -> None:
    """Check `CHECKS` in one walk; raise GraphError for the first that fails."""
    walk = _Walk(graph)
    for node in graph.nodes:
        walk.visit(node)
    walk.finish()
    if graph.owning_module is not None:
        for node in graph.nodes:
            if node._op in ("call_module", "get_attr"):
                _check_target_exists(node, graph.owning_module)


class _Walk:
    """What the checks remember of the nodes passed so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.before = graph._root
        self.position = float("-inf")
        self.names: dict[str, Node] = {}
        self.parameters: set[str] = set()
        self.uses: dict[Node, dict[Node, None]] = {}  # value -> its users; a key for every node passed
        self.past_inputs = False
        self.output: Node | None = None

    def visit(self, node: Node) -> None:
        self.check_links(node)
        _check_opcode(node)
        if node._op == "placeholder":
            self.check_parameter(node)
        else:
            self.past_inputs = True
        self.check_output(node)
        self.check_arguments(node)
        self.check_name(node)
        self.uses[node] = {}

    def check_links(self, node: Node) -> None:
        position = node._position
        if node._prev is not self.before or node.graph is not self.graph or position is None:
            _fail(1, node, f"{node.name!r} is not linked into this graph")
        if not position > self.position:
            _fail(1, node, f"{node.name!r} has a position that is not after that of {self.before.name!r}")
        self.before, self.position = node, position

    def check_parameter(self, node: Node) -> None:
        if self.past_inputs:
            _fail(6, node, f"placeholder {node.name!r} comes after a node that computes")
        parameter = str(node._target).lstrip("*")
        if not parameter.isidentifier():
            _fail(6, node, f"the target of placeholder {node.name!r}, {node._target!r}, is not the name of a parameter")
        if parameter in self.parameters:
            _fail(6, node, f"placeholder {node.name!r} is a second parameter called {parameter!r}")
        self.parameters.add(parameter)

    def check_output(self, node: Node) -> None:
        if self.output is not None:
            _fail(7, node, f"{node.name!r} comes after the output")
        if node._op == "output":
            self.output = node
            if node.users:
                _fail(7, node, f"{', '.join(user.name for user in node.users)} uses the output")

    def check_arguments(self, node: Node) -> None:
        for used in (*nodes_in(node._args), *nodes_in(node._kwargs)):
            users = self.uses.get(used)
            if users is None:
                _fail(3, node, f"Argument {used.name!r} of Node {node.name!r} {self.why_not_usable(used)}")
            users[node] = None

    def why_not_usable(self, value: Node) -> str:
        if value.graph is not self.graph:
            return "does not belong to this Graph, but was used as an argument"
        why = "was erased" if value._position is None else "was used before it has been defined"
        return f"{why}: the nodes are not in topological order"

    def check_name(self, node: Node) -> None:
        name = node.name
        other = self.names.setdefault(name, node)
        if other is not node:
            _fail(5, node, f"Node redefined name {name!r}, which {format_node(other)} has")
        if not (name.isidentifier() and name.isascii()) or is_reserved(name):
            _fail(5, node, f"{name!r} is not a legal name for a value")

    def finish(self) -> None:
        if self.graph._root._prev is not self.before or len(self.uses) != self.graph._len:
            _fail(
                1, self.before, f"the graph says that it has {self.graph._len} nodes, and {len(self.uses)} are linked"
            )
        for node, users in self.uses.items():
            if node.users.keys() != users.keys():
                _fail(4, node, f"the users of {node.name!r} are {list(node.users)}, but {list(users)} read it")


def _check_opcode(node: Node) -> None:
    op, target = node._op, node._target
    if op not in OPCODES:
        _fail(2, node, f"Node {node} had unknown opcode {op}")
    is_text = isinstance(target, str)
    if is_text if op == "call_function" else not is_text:
        wanted = "a Callable" if op == "call_function" else "a str"
        _fail(2, node, f"Node {node} target {target} has type {type(target).__name__} but {wanted} is expected")


def _check_target_exists(node: Node, owner: Any) -> None:
    """Follow the dotted path, saying which step of it is missing."""
    value, target = owner, str(node._target)
    for atom in target.split("."):
        if not hasattr(value, atom):
            where = type(value).__name__
            _fail(8, node, f"Node {node} target {target} references nonexistent attribute {atom} of {where}")
        value = getattr(value, atom)
    if node._op == "call_module" and not (callable(value) and hasattr(value, "forward")):
        _fail(8, node, f"Node {node} target {target} references {type(value).__name__}, which is not a module")


def _fail(number: int, node: Node, message: str) -> NoReturn:
    raise GraphError(f"[GW{number}] {message}", at=node.origin)

"""The invariants of a graph, each with one numbered check."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NoReturn

from graphwright.errors import GraphError
from graphwright.ir.arguments import ATOMS
from graphwright.ir.graph import Graph
from graphwright.ir.names import has_reserved, is_computed, is_parameter, is_reserved, on_the_way
from graphwright.ir.node import OPCODES, Node, bodies_of, nodes_in
from graphwright.ir.text import format_node

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
    9: "a branch, loop or transform gives a body as many values as that has inputs, and each body holds by itself",
}

_CALLS_BY_NAME = frozenset({"get_attr", "call_method", "call_module"})
_SIGNATURES: dict[Any, Callable[[Node], str | None]] = {}
_writer: Callable[..., Any] | None = None


def register_signature(function: Callable[..., Any], check: Callable[[Node], str | None]) -> None:
    """Have lint check the calls of a function: `check` says what is wrong with a node, or None."""
    _SIGNATURES[function] = check


def register_writer(function: Callable[..., Any]) -> None:
    """Have lint check that the calls of this function name, as their first argument, an attribute of a module."""
    global _writer
    _writer = function


def lint(graph: Graph) -> None:
    """Check `CHECKS`; raise GraphError for the first that fails."""
    by_name = _named_if_well_formed(graph)
    if by_name is None:
        _find_what_is_wrong(graph)
        by_name = list(graph.nodes)
    for node in graph.nodes.now() if graph.has_bodies else ():
        if type(node._target).__hash__ is not None and node._target in _SIGNATURES:
            _check_region(node, graph.owning_module)
    if graph.owning_module is not None:
        for node in by_name:
            if node._op in ("call_module", "get_attr"):
                _check_target_exists(node, str(node._target), graph.owning_module)
            elif node._target is _writer:
                _check_write(node, graph.owning_module)


def _named_if_well_formed(graph: Graph) -> list[Node] | None:
    """Check 1 to 7, in one pass that says no more than "there may be a fault": None.

    Else the nodes whose target is a name, then those that write attributes. One loop over slots, and whole lists for
    what Python compares in C: several times faster than finding the first fault.
    """
    graph._make_names()
    root = before = graph._root
    last = float("-inf")
    reads = used = 0
    nodes: list[Node] = []
    names: list[Any] = []
    ops: list[str] = []  # of those by name
    targets: list[Any] = []
    by_name: list[Node] = []
    writes: list[Node] = []
    writer = _writer
    node = root._next
    try:
        while node is not root:  # ends even on a broken ring: positions grow
            position: Any = node._position
            if node._prev is not before or node.graph is not graph or not position > last:
                return None
            nodes.append(node)
            names.append(node._name)
            used += len(node.users)
            target = node._target
            if node._op != "call_function":
                by_name.append(node)
                ops.append(node._op)
                targets.append(target)
            elif isinstance(target, str):
                return None
            elif target is writer:
                writes.append(node)
            inputs, previous = 0, None
            for arg in node._args:
                kind = type(arg)
                if kind is Node:
                    if arg is not previous:
                        inputs += 1
                        previous = arg
                        if node not in arg.users:
                            return None
                        if arg is not before and (arg.graph is not graph or not arg._position < position):
                            return None
                elif kind not in ATOMS:
                    inputs = 3
                    break
            if inputs > 2 or node._kwargs:  # nested, or some may be the same
                values = {*nodes_in(node._args), *(nodes_in(node._kwargs) if node._kwargs else ())}
                inputs = len(values)
                for value in values:
                    if value.graph is not graph or not value._position < position or node not in value.users:
                        return None
            reads += inputs
            before, last, node = node, position, node._next
        well_formed = (
            len(nodes) == graph._len
            and root._prev is before
            and reads == used
            and _are_in_order(ops, targets, by_name, nodes)
            and len(set(names)) == len(names)
            and all(map(str.isidentifier, names))
            and "".join(names).isascii()
            and not has_reserved(names)
        )
    except TypeError:  # a None where a position or a name should be
        return None
    return by_name + writes if well_formed else None


def _are_in_order(ops: list[str], targets: list[Any], by_name: list[Node], nodes: list[Node]) -> bool:
    """Tell whether nodes with a name as target have legal opcodes, parameters are first and an output is last."""
    inputs = ops.count("placeholder")
    parameters = {str(target).removeprefix("*").removeprefix("*") for target in targets[:inputs]}
    calls = ops[inputs:]
    if calls and calls[-1] == "output":
        calls.pop()
        if nodes[-1]._op != "output" or nodes[-1].users:
            return False
    return (
        by_name[:inputs] == nodes[:inputs]
        and ops[:inputs].count("placeholder") == inputs == len(parameters)
        and all(map(is_parameter, parameters))
        and _CALLS_BY_NAME.issuperset(calls)
        and all(map(isinstance, targets, itertools.repeat(str)))
    )


def _find_what_is_wrong(graph: Graph) -> None:
    """Check 1 to 7 in one walk; raise GraphError for the first that fails."""
    before, last = graph._root, float("-inf")
    names: dict[str, Node] = {}
    parameters: set[str] = set()
    past_inputs = False
    output: Node | None = None
    count = reads = uses = 0
    for node in graph.nodes:
        op, position = node._op, node._position
        if node._prev is not before or node.graph is not graph or position is None:
            _fail(1, node, f"{node.name!r} is not linked into this graph")
        if not position > last:
            _fail(1, node, f"{node.name!r} has a position that is not after that of {before.name!r}")
        before, last = node, position
        count += 1
        _check_opcode(node)
        if op == "placeholder":
            _check_parameter(node, past_inputs, parameters)
        else:
            past_inputs = True
        if output is not None:
            fix = "make nodes before it: with graph.inserting_before(graph.output_node())"
            if op == "output":
                fix = "change the one that there is: graph.output_node().args = (value,)"
            _fail(7, node, f"{node.name!r} comes after the output", fix)
        if op == "output":
            output = node
            if node.users:
                _fail(7, node, f"{', '.join(user.name for user in node.users)} uses the output")
        reads += _check_arguments(node, graph, position)
        uses += len(node.users)
        name = node.name
        if names.setdefault(name, node) is not node:
            _fail(5, node, f"Node redefined name {name!r}, which {format_node(names[name])} has")
        if is_reserved(name) or not (name.isidentifier() and name.isascii()):
            _fail(5, node, f"{name!r} is not a legal name for a value")
    if graph._root._prev is not before or count != graph._len:
        _fail(1, before, f"the graph says that it has {graph._len} nodes, and {count} are linked")
    if uses != reads:
        _fail_use_lists(graph)  # every argument has its user, so some use list holds one that reads nothing


def _check_arguments(node: Node, graph: Graph, position: float) -> int:
    """Check what a node reads, one way round; return how many different nodes that are."""
    inputs = {*nodes_in(node._args), *nodes_in(node._kwargs)}
    for used in inputs:
        used_position = used._position
        if used.graph is not graph or used_position is None or not used_position < position:
            is_late = used.graph is graph and used_position is not None
            fix = f"move it before that: {node.name}.prepend({used.name})" if is_late else None
            _fail(3, node, f"Argument {used.name!r} of Node {node.name!r} {_why_not_usable(used, graph)}", fix)
        if node not in used.users:
            _fail_use_lists(graph)
    return len(inputs)


def _why_not_usable(value: Node, graph: Graph) -> str:
    if value.graph is not graph:
        return "does not belong to this Graph, but was used as an argument"
    why = "was erased" if value._position is None else "was used before it has been defined"
    return f"{why}: the nodes are not in topological order"


def _fail_use_lists(graph: Graph) -> NoReturn:
    """Recompute all use lists, and name the first that is wrong."""
    readers: dict[Node, dict[Node, None]] = {node: {} for node in graph.nodes}
    for node in graph.nodes:
        for used in (*nodes_in(node._args), *nodes_in(node._kwargs)):
            readers.setdefault(used, {})[node] = None
    wrong = next(node for node, users in readers.items() if node.users.keys() != users.keys())
    _fail(4, wrong, f"the users of {wrong.name!r} are {list(wrong.users)}, but {list(readers[wrong])} read it")


def _parameter(node: Node) -> str:
    """The name of the parameter that a placeholder stands for, without the stars of `*args` and `**kwargs`."""
    return str(node._target).removeprefix("*").removeprefix("*")


def _check_parameter(node: Node, past_inputs: bool, parameters: set[str]) -> None:
    if past_inputs:
        _fail(6, node, f"placeholder {node.name!r} comes after a node that computes")
    parameter = _parameter(node)
    if not is_parameter(parameter):
        _fail(6, node, f"the target of placeholder {node.name!r}, {node._target!r}, is not the name of a parameter")
    if parameter in parameters:
        _fail(6, node, f"placeholder {node.name!r} is a second parameter called {parameter!r}")
    parameters.add(parameter)


def _check_opcode(node: Node) -> None:
    op, target = node._op, node._target
    if op not in OPCODES:
        _fail(2, node, f"Node {node} had unknown opcode {op}")
    if isinstance(target, str) is (op == "call_function"):
        wanted = "a Callable" if op == "call_function" else "a str"
        _fail(2, node, f"Node {node} target {target} has type {type(target).__name__} but {wanted} is expected")


def _check_region(node: Node, owner: Any) -> None:
    wrong = _SIGNATURES[node._target](node)
    if wrong:
        _fail(9, node, f"{node.name!r} {wrong}")
    for body in bodies_of(node):
        body.owning_module = owner
        lint(body)


def _check_write(node: Node, owner: Any) -> None:
    """Check that what an attribute is written of is there; the attribute itself may come with the write."""
    args = node._args
    if len(args) != 2 or node._kwargs or type(args[0]) is not str or not all(args[0].split(".")):
        _fail(8, node, f"{node.name!r} takes the dotted path of an attribute and a value, by position")
    module, _, _ = args[0].rpartition(".")
    if module:
        _check_target_exists(node, module, owner)


def _check_target_exists(node: Node, target: str, owner: Any) -> None:
    """Follow the dotted path, saying which step of it is missing."""
    value = owner
    atoms = target.split(".")
    for i, atom in enumerate(atoms, 1):
        if node._op == "get_attr" and is_computed(value, atom):
            return
        if not hasattr(value, atom):
            where = type(value).__name__
            fix = "correct the target, or add it: gm.add_submodule, register_parameter or register_buffer"
            _fail(8, node, f"Node {node} target {target} references nonexistent attribute {atom} of {where}", fix)
        value = on_the_way(value, atom) if i < len(atoms) else getattr(value, atom)
    if node._op == "call_module" and not (callable(value) and hasattr(value, "forward")):
        _fail(8, node, f"Node {node} target {target} references {type(value).__name__}, which is not a module")


def _fail(number: int, node: Node, message: str, fix: str | None = None) -> NoReturn:
    raise GraphError(f"[GW{number}] {message}", at=node.origin, fix=fix)

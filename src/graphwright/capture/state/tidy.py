"""What a capture made and nothing came to use is removed: sizes, attribute reads, texts, empty branches."""

from __future__ import annotations

import operator

import torch

from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond, drop_operands, evaluated, is_attempt, transformed

_WITHOUT_EFFECT = frozenset({
    "size", "dim", "numel", operator.getitem, operator.eq, operator.ne, operator.lt, operator.le, operator.gt,
    operator.ge, operator.not_, operator.is_, isinstance, bool, "is_inference", torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
})  # fmt: skip


# Attributes of tensors that are read in a call.
_READ = frozenset({"dtype", "requires_grad", "is_leaf", "retains_grad", "_version", "output_nr", "grad", "grad_fn"})


def erase_unused(graph: Graph) -> None:
    """Erase what nothing reads and what has no effect, inside regions first, and inputs that no branch reads."""
    for node in reversed(graph._nodes_now()):
        if node._position is None:
            continue
        if graph.has_bodies and node._op == "call_function" and Graph in map(type, node._args):
            _tidy_bodies(node)
        if node.users or node._op in ("placeholder", "output"):
            continue
        if may_be_erased(node) and (node.target is not cond or _is_empty(node)):
            graph.erase_node(node)


def may_be_erased(node: Node) -> bool:
    """Tell whether a node may go where nothing reads it."""
    return (
        node._op == "get_attr"
        or node.target in _WITHOUT_EFFECT
        or node.target is cond
        or (node.target is getattr and node.args[1] in _READ)
        or _makes_text(node)
    )


def _makes_text(node: Node) -> bool:
    """Tell whether a node puts a text together: `"{}".format(n)`, `"at " + text`."""
    if node.target == "format" and type(node.args[0]) is str:
        return ":" not in node.args[0]  # where nothing says how, nothing can be shown wrongly
    return node.target is operator.add and any(type(arg) is str for arg in node.args)


def _tidy_bodies(node: Node) -> None:
    """Erase what is unused in the bodies of a node, then inputs and results that nobody wants."""
    if node.target is transformed and is_attempt(node):
        _drop_unread(node)
    for body in node._args:
        if type(body) is Graph:
            erase_unused(body)
    if node.target is cond:
        _drop_results(node)
        if not node.users:
            for body in bodies_of(node):
                body.output_node().args = (None,)
                erase_unused(body)
    drop_operands(node)


def _is_empty(node: Node) -> bool:
    return node.target is cond and all(
        inner.op in ("placeholder", "output") for body in node.args[1:3] for inner in body.nodes
    )


def _drop_results(node: Node) -> None:
    """Remove the values of a branch that nothing uses; a single one is the branch's own."""
    bodies = node.args[1:3]
    readers = {user: user.args[1] for user in node.users if user.target is operator.getitem and user.args[0] is node}
    if len(readers) < len(node.users) or not readers:
        return
    values = [body.output_node().args[0] for body in bodies]
    if not all(type(value) is tuple for value in values):
        return
    used = sorted(set(readers.values()))
    if len(used) == len(values[0]) or len(readers) != len(used):
        return
    if len(used) == 1:
        (reader,) = readers
        reader.replace_all_uses_with(node)
        name, graph = reader.name, node.graph
        graph.erase_node(reader)
        node.name = name
    else:
        for reader, index in readers.items():
            reader.args = (node, used.index(index))
    for body, value in zip(bodies, values, strict=True):
        kept = tuple(value[index] for index in used)
        body.output_node().args = (kept[0] if len(kept) == 1 else kept,)
        erase_unused(body)


def _drop_unread(node: Node) -> None:
    """Remove the values of a body under `try` that nothing reads; they are computed, since that may raise."""
    transform, body, inputs, operands, options = node.args
    readers = [user for user in node.users if user.target is operator.getitem and user.args[0] is node]
    used = sorted({user.args[1] - 1 for user in readers if user.args[1] > 0})
    output = body.output_node()
    values = output.args[0]
    if len(readers) < len(node.users) or type(values) is not tuple or len(used) == len(values):
        return
    output.args = (tuple(values[i] for i in used),)
    for value in values:
        if isinstance(value, Node) and not value.users and value.op not in ("placeholder", "get_attr"):
            with body.inserting_after(value):
                body.call_function(evaluated, (value,))._origin = value._origin
    for reader in readers:
        if reader.args[1] > 0:
            reader.args = (node, used.index(reader.args[1] - 1) + 1)
    node.args = (transform, body, inputs, operands, {**options, "count": len(used)})

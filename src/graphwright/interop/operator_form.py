"""Programs whose branches and loops are as torch's operators take them: all that a body needs, it is given as a tensor.

A `for` becomes a `while` that counts, and a loop that may break one that carries whether it goes on. Parameters,
buffers and flags are read outside, so that gradients reach them; numbers come in as tensors and go out as such.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from graphwright.errors import ExportError
from graphwright.interop.operands import NUMBERS
from graphwright.interop.operator_loops import carry_whether_it_goes_on, count
from graphwright.interop.operator_numbers import Numbers
from graphwright.interop.operator_parts import call, no_operator
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import add_operand, cond, is_region, kind_of
from graphwright.passes import (
    own_bodies,
    put_in_place,
    regions_in,
    substitute,
    use_function,
)
from graphwright.runtime import GraphModule, graph_of, read_attribute


def in_operator_form(module: GraphModule) -> tuple[GraphModule, bool]:
    """A copy whose branches and loops torch's operators can say, and whether it is one of its mode, training or not.

    Raises ExportError, with the user's line, for what they cannot say.

    >>> import graphwright
    >>> def double(x):
    ...     for _ in range(x.shape[0]):
    ...         x = x * 2
    ...     return x
    >>> other, _ = in_operator_form(graphwright.trace(double, torch.ones(3)))
    >>> [node.target.__name__ for node in other.graph.nodes if node.op == "call_function"][-2:]
    ['while_loop', 'getitem']
    >>> other(torch.ones(2))
    tensor([4., 4.])
    """
    other = copy.copy(module)
    graph, pinned = graph_of(other), False
    for each in [*graph.all_nodes()]:
        if bodies_of(each) and (not is_region(each) or not own_bodies(each)):
            raise no_operator(each, getattr(each.target, "__name__", str(each.target)))
    for body in [*graph.all_graphs()][1:]:
        if not body.find_nodes(op="output"):
            body.output(None)
        for node in body.find_nodes(op="call_module"):
            called = read_attribute(other, str(node.target))
            if not use_function(node, called):
                pinned |= _pass_tensors(node, called, other.training)
        for flag in [read for read in body.find_nodes(op="get_attr") if str(read.target).endswith("training")]:
            pinned |= _write_mode(flag, other)
    for rewritten in (count, carry_whether_it_goes_on):
        for region in regions_in(other):
            rewritten(region)
    for region in regions_in(other):
        _read_outside(region, other)
        if region.target is cond:
            _give_tuple(region)
    for region in regions_in(other):
        _refuse_none(region)
    Numbers(other).change(graph)
    return other, pinned


def _write_mode(flag: Node, module: nn.Module) -> bool:
    """Write the training flag of a module in the place of a node that reads it, as operators ask for no data there."""
    if read_attribute(module, str(flag.target)) is not module.training:
        raise no_operator(flag, f"a read of {flag.target}, which is not the mode of the whole module")
    put_in_place(flag, module.training)
    return True


def _pass_tensors(node: Node, module: nn.Module, training: bool) -> bool:
    """Have a body call a module with its tensors given; tell whether what it does depends on the mode."""
    inner = [*module.modules()]
    pinned = any(type(each).__module__.partition(".")[0] != "torch" or _asks_for_mode(each) for each in inner)
    if pinned and any(each.training is not training for each in inner):
        raise no_operator(node, f"a call of {node.target}, which is not in the mode of the whole module")
    graph, tensors = node.graph, {}
    with graph.inserting_before(node):
        for name, _ in (*module.named_parameters(), *module.named_buffers()):
            tensors[name] = graph.create_node("get_attr", f"{node.target}.{name}", (), {})
            tensors[name].origin = node.origin
    node.args = (module, tensors, node.args, dict(node.kwargs))
    node.kwargs = {}
    node.op, node.target = "call_function", torch.func.functional_call
    return pinned


def _asks_for_mode(module: nn.Module) -> bool:
    random = nn.modules.dropout._DropoutNd | nn.RReLU | nn.modules.batchnorm._NormBase | nn.RNNBase
    return isinstance(module, random | nn.MultiheadAttention) or hasattr(module, "dropout")


def _give_tuple(node: Node) -> None:
    """Have both sides of a branch give tuples, as torch's operator asks for gradients."""
    outputs = [side.output_node() for side in own_bodies(node)]
    if any(isinstance(output.args[0], tuple) for output in outputs):
        return
    for output in outputs:
        output.args = ((output.args[0],) if node.users else (),)
    if node.users:
        with node.graph.inserting_after(node):
            item = call(node.graph, operator.getitem, node, 0)
        item.origin = node.origin
        for user in [user for user in node.users if user is not item]:
            user.replace_input_with(node, item)


def _refuse_none(node: Node) -> None:
    """Raise where a branch or loop is given what a branch gives on one side, and None on the other."""
    if node.target is not cond:
        return
    sides = [side.output_node().args[0] for side in own_bodies(node)]
    given = [side if isinstance(side, tuple) else (side,) for side in sides]
    optional = {i for i, pair in enumerate(zip(*given, strict=False)) if (pair[0] is None) != (pair[-1] is None)}
    for item in [user for user in node.users if user.target is operator.getitem and user.args[1] in optional]:
        for user in item.users:
            if is_region(user):
                raise ExportError(
                    f"{node.name} gives None on one side alone, and the operator for {user.name} cannot be given None",
                    at=node.origin or node.name,
                    fix='capture it with target="export", or give both sides a tensor',
                )


# ---- what bodies read


def _read_outside(node: Node, module: GraphModule) -> None:
    """Read what bodies read of the module before their operator, where it is a tensor or a number."""
    for body in own_bodies(node):
        for read in body.find_nodes(op="get_attr"):
            if not isinstance(read_attribute(module, str(read.target)), (torch.Tensor, *NUMBERS)):
                continue  # a setting, which stays a constant of the body
            _take_in(node, read)
    _write_in_literals(node)
    while any(isinstance(value, Node) and _is_fact(value) for value in node.args[3]):
        _look_inside(node)


def _take_in(node: Node, read: Node) -> None:
    """Have a body read as an operand what it has read of the module."""
    known = [value for value in node.args[3] if isinstance(value, Node) and _is_read(value, read.target)]
    if known:
        outer = known[0]
    else:
        with node.graph.inserting_before(node):
            outer = node.graph.create_node("get_attr", read.target, (), {})
        outer.origin = read.origin
    put_in_place(read, add_operand(node, outer)[read.graph])


def _is_read(node: Node, target: Any) -> bool:
    return node.op == "get_attr" and str(node.target) == str(target)


def _write_in_literals(node: Node) -> None:
    """Write operands that are no nodes into the bodies."""
    literal = {i for i, value in enumerate(node.args[3]) if not isinstance(value, Node)}
    _drop(node, literal, lambda body, placeholder, i: substitute(placeholder, node.args[3][i]))


def _drop(node: Node, numbers: set[int], use: Callable[[Graph, Node, int], None]) -> None:
    """Take operands out of a region; `use` does away with the input of a body for each."""
    operands = node.args[3]
    for body in own_bodies(node):
        inputs = body.placeholders()
        for i in numbers:
            placeholder = inputs[len(inputs) - len(operands) + i]
            use(body, placeholder, i)
            body.erase_node(placeholder)
    left = tuple(value for i, value in enumerate(operands) if i not in numbers)
    node.args = (*node.args[:3], left, *node.args[4:])


def _is_fact(node: Node) -> bool:
    """Tell whether a value is the sizes, dtype or device of another, which no operator takes."""
    return kind_of(node) in ("ints", "dtype", "device", "layout")


def _look_inside(node: Node) -> None:
    """Compute the sizes, dtypes and devices of tensors inside, of tensors that are taken in."""
    facts = [value for value in node.args[3] if isinstance(value, Node) and _is_fact(value)]
    given = {read: add_operand(node, read) for fact in facts for read in fact.all_input_nodes}
    chosen = {i for i, value in enumerate(node.args[3]) if value in facts}

    def use(body: Graph, placeholder: Node, i: int) -> None:
        fact = node.args[3][i]
        with body.inserting_after(body.placeholders()[-1]):
            made = body.node_copy(fact, lambda read: given[read][body])
        substitute(placeholder, made)

    _drop(node, chosen, use)

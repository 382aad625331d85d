"""What is the same in every call, computed once and kept as a buffer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.ir import Graph, Node, map_arg
from graphwright.ops import functional_form, is_impure, is_random, is_region, module_called, written_attributes
from graphwright.passes.support.bodies import substitute
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.tensor_facts import made_by
from graphwright.runtime import add_constant, graphs_of, has_attribute, read_attribute


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Compute once what depends on constants and buffers alone; a new buffer, outside the state_dict, has the value.

    max_bytes: larger values are not kept; what they are made of may be.
    parameters: whether parameters are constants, too: for programs that will not be trained again. What is made of
        them gets no gradient.

    Only pure operations are folded: none that draw random numbers, write in place, depend on the training flag or stand
    inside a `with` block. Left alone are values that the program writes to or gives back, for which every call needs a
    tensor of its own; mere views of a buffer; buffers that the program writes or that a module it calls has. Fold when
    the module has its dtype and device, and outside of autocast: buffers that are loaded later are not seen. Whole
    numbers that are read from constants become literals. Returns the number of values folded.

    >>> from graphwright import Graph, GraphModule
    >>> graph = Graph()
    >>> x, ones = graph.placeholder("x"), graph.call_function(torch.ones, (3,))
    >>> _ = graph.output(graph.call_method("add", (x, graph.call_method("mul", (ones, 2)))))
    >>> gm = GraphModule(nn.Module(), graph)
    >>> FoldConstants().run(gm), gm.mul
    (1, tensor([2., 2., 2.]))
    """

    max_bytes: int = 2**24
    parameters: bool = False

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        ownership = Ownership(gm)
        graphs = [inner for graph in graphs_of(gm) for inner in graph.all_graphs()]
        varying = _varying_tensors(graphs, gm, ownership)
        return sum(_fold(graph, gm, ownership, varying, self) for graph in graphs)


def _fold(graph: Graph, gm: nn.Module, ownership: Ownership, varying: set[int], options: FoldConstants) -> int:
    constant = _constants(graph, gm, ownership, varying, options.parameters)
    values: dict[Node, Any] = {}
    waiting = [node for node in constant if any(user not in constant for user in node.users)]
    seen = set(waiting)
    count = 0
    while waiting:
        node = waiting.pop()
        if node._erased or node.op == "get_attr":
            continue
        if _replace(node, gm, ownership, values, options.max_bytes):
            count += 1
            continue
        for used in node.all_input_nodes:  # then perhaps what it is made of
            if used not in seen:
                seen.add(used)
                waiting.append(used)
    return count


def _replace(node: Node, gm: nn.Module, ownership: Ownership, values: dict[Node, Any], max_bytes: int) -> bool:
    """Put its value in the place of a constant node, if that is one to keep."""
    try:
        value = _evaluate(node, gm, values)
    except Exception:  # it may raise anything, and perhaps the program never comes here
        return False
    inputs = node.all_input_nodes
    if type(value) in (int, float, bool):
        substitute(node, value)
    elif _is_to_be_kept(value, values, max_bytes) and ownership.may_be_kept(node):
        graph, path = node.graph, add_constant(gm, value, node.name)
        with graph.inserting_before(node):
            kept = graph.get_attr(path)
        kept.meta.update(node.meta)
        node.replace_all_uses_with(kept)
    else:
        return False
    node.graph.erase_node(node)
    _erase_unread(inputs)
    return True


# ---- what is constant

_PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
# What the memory has at the moment, or what one sees of a tensor besides its elements.
_VARYING = frozenset({
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "requires_grad", "grad",
    "grad_fn", "is_leaf", "_version", "data_ptr", "storage", "untyped_storage",
})  # fmt: skip


def _varying_tensors(graphs: list[Graph], gm: nn.Module, ownership: Ownership) -> set[int]:
    """Where the tensors lie that a graph writes to or binds anew, and the buffers of the modules that it calls."""
    found: list[Any] = []
    for graph in graphs:
        found += [read_attribute(gm, path) for path in written_attributes(graph) if has_attribute(gm, path)]
        for node in graph.nodes:
            module = module_called(node)
            if module is not None:
                found += module.buffers()
            elif node.op == "get_attr" and ownership.is_written(node):
                found.append(read_attribute(gm, str(node.target)))
    return {_place(value) for value in found if isinstance(value, Tensor)}


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _constants(
    graph: Graph, gm: nn.Module, ownership: Ownership, varying: set[int], parameters: bool
) -> dict[Node, None]:
    """The nodes that have the same value in every call, in their order."""
    effects, first = ownership.effects(graph), next(iter(graph.nodes))
    constant: dict[Node, None] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            value = read_attribute(gm, str(node.target))
            is_fixed = _is_fixed(value, parameters) and _place(value) not in varying
        elif node.op in ("placeholder", "output") or not all(used in constant for used in node.all_input_nodes):
            is_fixed = False
        else:
            is_fixed = _is_pure(node, parameters) and effects.are_together(first, node)
        if is_fixed and not (effects.has_writers and ownership.is_written(node)):
            constant[node] = None
    return constant


def _is_fixed(value: Any, parameters: bool) -> bool:
    if type(value) not in _PLAIN_TENSORS or value.is_meta:
        return False
    return parameters or not (isinstance(value, nn.Parameter) or value.requires_grad)


def _is_pure(node: Node, parameters: bool) -> bool:
    call, module = made_by(node), module_called(node)
    if call is None or is_region(node) or call.writes or call.random or call.key in _VARYING:
        return False
    if is_impure(node, module) or is_random(node):
        return False
    if module is None:
        return True
    form = functional_form(module)
    return form is not None and "training" not in form.values and (parameters or not form.tensors)


# ---- values


def _evaluate(node: Node, gm: nn.Module, values: dict[Node, Any]) -> Any:
    """Compute a constant node, and remember what it is made of."""
    needed: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each not in needed and each not in values:
            needed[each] = None
            waiting += each.all_input_nodes
    with torch.no_grad():
        for each in sorted(needed):
            args, kwargs = map_arg(each.args, values.__getitem__), map_arg(dict(each.kwargs), values.__getitem__)
            if each.op == "get_attr":
                values[each] = read_attribute(gm, str(each.target)).detach()
            elif each.op == "call_module":
                values[each] = gm.get_submodule(str(each.target))(*args, **kwargs)
            elif each.op == "call_method":
                values[each] = getattr(args[0], str(each.target))(*args[1:], **kwargs)
            else:
                values[each] = each.target(*args, **kwargs)
    return values[node]


def _is_to_be_kept(value: Any, values: dict[Node, Any], max_bytes: int) -> bool:
    """Tell whether a value is a tensor that is not too large and not a view of an attribute."""
    if type(value) is not Tensor or value.layout is not torch.strided or value.numel() * value.itemsize > max_bytes:
        return False
    return _place(value) not in {_place(tensor) for other, tensor in values.items() if other.op == "get_attr"}


# ---- editing


def _erase_unread(nodes: Iterable[Node]) -> None:
    """Erase constants that nothing reads any more."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if not (node._erased or node.users):
            waiting += node.all_input_nodes
            node.graph.erase_node(node)

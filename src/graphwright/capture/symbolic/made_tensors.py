"""Tensors that a program makes while it is traced: constants of its graph, and a copy of one for each call that writes.

`total = torch.zeros(4)` runs once, when the program is traced. Where the program writes to it afterwards, or gives it
back, each call has to have one of its own: it clones the constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from graphwright.analysis import written_values
from graphwright.errors import TraceError
from graphwright.ir import Graph, Node, nodes_in
from graphwright.ops import shared_inputs

_FIX = "make it from the inputs: x.new_zeros(4), torch.zeros_like(x); or trace with example inputs: trace(model, args)"
_SHARE_MEMORY = frozenset({"as_tensor", "asarray", "from_numpy", "frombuffer", "from_dlpack", "from_file"})


class MadeTensors:
    """The tensors that were made during one run of a program without anything of it."""

    def __init__(self) -> None:
        self._made: dict[int, torch.Tensor] = {}
        self._versions: dict[int, int] = {}  # of those in the graph, when they came into it

    def note(self, function: Callable[..., Any], args: Iterable[Any], result: Any) -> None:
        """Note what a function of torch has given."""
        if type(result) is not torch.Tensor or result.requires_grad or function.__name__ in _SHARE_MEMORY:
            return
        if all(id(arg) in self._made for arg in args if isinstance(arg, torch.Tensor)):
            self._made[id(result)] = result

    def read(self, tensor: torch.Tensor) -> None:
        """Note that a node reads one that may be among them."""
        if id(tensor) in self._made and not tensor.is_inference():
            self._versions.setdefault(id(tensor), tensor._version)

    def settle(self, graph: Graph, module_of: Callable[[Node], nn.Module | None]) -> None:
        """Have what each call writes to, or gives back, be a copy of its own. Raises TraceError where none can be."""
        made = [(name, tensor) for name, tensor in graph.constants.items() if id(tensor) in self._versions]
        if not made:
            return
        readers: dict[str, list[Node]] = {}  # by the constant's name
        for node in graph.all_nodes():
            if node.op == "get_attr":
                readers.setdefault(str(node.target), []).append(node)
        given = {node: behind for node in graph.nodes if (behind := _given_away(node, module_of))}
        for name, tensor in made:
            if tensor._version != self._versions[id(tensor)]:
                raise _refused(tensor, "is written to after the graph has read it", None)
            _settle(graph, tensor, readers.get(name, []), readers, given)


def _settle(
    graph: Graph,
    tensor: torch.Tensor,
    everywhere: list[Node],
    readers_of: dict[str, list[Node]],
    given_away: dict[Node, set[Node]],
) -> None:
    readers = [node for node in everywhere if node.graph is graph]
    given = {node for node, behind in given_away.items() if not behind.isdisjoint(readers)}
    if not given:
        return
    alike = [other for other, held in graph.constants.items() if held is not tensor and _share_memory(held, tensor)]
    output = graph.output_node()
    if given == {output}:  # what else has its memory is only read
        alike = [other for other in alike if not given_away[output].isdisjoint(readers_of.get(other, ()))]
    if alike or len(readers) != len(everywhere):
        raise _refused(tensor, "is written to, and read by another name or on a side of a branch", min(given))
    with graph.inserting_after(readers[0]):
        own = graph.call_method("clone", (readers[0],))
    own.origin = readers[0].origin
    for reader in readers:
        reader.replace_all_uses_with(own)
    for reader in readers[1:]:
        graph.erase_node(reader)


def _behind(node: Node, module_of: Callable[[Node], nn.Module | None]) -> set[Node]:
    """The attributes whose memory a value may be."""
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            shared = [] if each.op in ("placeholder", "get_attr") else shared_inputs(each, module_of)
            waiting.extend(each.all_input_nodes if shared is None else shared)
    return {each for each in seen if each.op == "get_attr"}


def _given_away(node: Node, module_of: Callable[[Node], nn.Module | None]) -> set[Node]:
    """The attributes whose memory a node writes to, or gives back as the output."""
    values = nodes_in(node.args) if node.op == "output" else written_values(node, module_of)
    return set().union(*[_behind(value, module_of) for value in values])


def _share_memory(one: Any, other: torch.Tensor) -> bool:
    if not isinstance(one, torch.Tensor) or one.layout != torch.strided or other.layout != torch.strided:
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and one.numel() > 0


def _refused(tensor: torch.Tensor, what: str, node: Node | None) -> TraceError:
    shape = tuple(tensor.shape)
    return TraceError(
        f"a tensor of shape {shape}, which the program makes while it is traced, {what}",
        at=None if node is None else node.origin,
        fix=_FIX,
    )

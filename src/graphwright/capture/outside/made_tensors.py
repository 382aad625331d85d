"""Tensors that a program makes while it is captured: constants, and a copy of one for each call that writes to it.

`total = torch.zeros(4)` runs once, when the program is traced, and so does `torch.FloatTensor([0.0])` however it is
captured. Where the program writes to it afterwards, or gives it back, each call has to have one of its own: it clones
the constant.
"""

from __future__ import annotations

import collections
import functools
import gc
import operator
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import nn

from graphwright.capture.containers.methods import DEQUE, DICT, HEAP, LIST, SET, Part
from graphwright.capture.outside.overheard import Heard, overhear
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.errors import CaptureError
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import (
    add_operand,
    cond,
    for_loop,
    operator_of,
    set_attribute,
    shared_inputs,
    transformed,
    while_loop,
    write_attribute,
    write_variable,
)

if TYPE_CHECKING:
    from graphwright.capture.state import protocol

_ROWS = [*LIST.items(), *DEQUE.items(), *DICT.items(), *SET.items(), *HEAP.items()]
PUT_IN = {
    row.calls or method for method, row in _ROWS if row.changes and not {Part.ITEM, Part.ITEMS}.isdisjoint(row.takes)
}
_KEEP = (setattr, set_attribute, write_attribute, write_variable, "put", *PUT_IN)
_WITH_OPERANDS = (cond, for_loop, while_loop, transformed)
_FIX = "make it from the inputs: x.new_zeros(4), torch.zeros_like(x)"


class Owner:
    """What a constant lives on, as long as that is there: itself, or arrays that lend it their memory.

    One that `is_view` has the memory of a tensor of the modules.
    """

    def __init__(self, *arrays: Any, tensor: torch.Tensor | None = None, is_view: bool = False) -> None:
        self.is_view = is_view
        self.arrays: list[Callable[[], Any]] = []
        self._others = 0  # what refers to an array besides the constants
        self._tensor = None if tensor is None else weakref.ref(tensor)
        self.version = None if tensor is None else _version(tensor)  # as the graph has come to have it
        for array in arrays:
            try:
                self.arrays.append(weakref.ref(array))
            except TypeError:  # a bytearray
                self.arrays.append(functools.partial(operator.itemgetter(0), (array,)))
                self._others = 1

    def tensor(self) -> torch.Tensor | None:
        """The constant itself, if somebody has it."""
        return None if self._tensor is None else self._tensor()

    def is_gone(self, constants: int) -> bool:
        """Tell whether nobody has it but some constants."""
        if not self.arrays:
            return self.tensor() is None
        most = constants + self._others + _references(object())  # as many as the call itself has
        return all(of() is None or _references(of()) <= most for of in self.arrays)


def _references(value: Any) -> int:
    return sys.getrefcount(value)


def lender(array: Any) -> Owner:
    """What has the memory of a tensor that was made of an array: this, and the one that it is a view of."""
    root = array
    while isinstance(root, numpy.ndarray) and root.base is not None:
        root = root.base
    return Owner(array) if root is array else Owner(array, root)


@functools.cache
def watch_lent_memory() -> None:
    """Have it heard where a program makes tensors that have the memory of something else."""
    overhear(torch, ("from_numpy", "frombuffer", "from_dlpack"), _lend)


def _lend(call: Heard) -> Any:
    recorder = call.recorder.typed
    try:
        made = call.original()
    except TypeError:
        if not any(type(each) is ObjectProxy for each in (*call.args, *call.kwargs.values())):
            raise
        return call.recorder.torch_function(call.function, call.args, call.kwargs)  # an array of the run
    if recorder is not None and type(made) is torch.Tensor:
        recorder.tensors.note_lender(next(iter((*call.args, *call.kwargs.values()))), made)
    return made


class MadeMeanwhile:
    """The constants of a captured graph that calls write to or give away: those made meanwhile are copied by each.

    `owners` has what a constant lives on, by its name. What was there before the program ran is there when all of the
    capture is gone, between this and `settle`.
    """

    def __init__(
        self, graph: Graph, owners: Mapping[str, protocol.Owner], module_of: Callable[[Node], nn.Module | None]
    ) -> None:
        self._constants = graph.constants
        known = [name for name in owners if isinstance(graph.constants.get(name), torch.Tensor)]
        self._arrays = [owners[name].arrays[-1] for name in known if owners[name].arrays]
        then = {name: owners[name].version for name in known if not owners[name].arrays}
        self._changed = {name for name, version in then.items() if version != _version(graph.constants[name])}
        self._given = _Given(graph, module_of) if known else None
        kept = [name for name in known if name in self._changed or (self._given is not None and self._given.has(name))]
        self._owners = {name: owners[name] for name in known if owners[name].is_view or name in kept}
        for name, owner in self._owners.items():
            if not owner.arrays:
                with torch._C.DisableTorchFunction():
                    graph.constants[name] = graph.constants[name].detach()  # of the same memory

    def settle(self) -> None:
        """Have each call have copies of what is gone. Raises CaptureError where it cannot have one."""
        if self._given is None or not self._owners:
            return
        gc.collect(1)
        if self._made() != self._owners.keys():
            gc.collect()
        made, constants = self._made(), self._constants
        for name, owner in self._owners.items():
            constants[name] = owner.tensor() if name not in made and not owner.arrays else constants[name]
        for name in sorted(made):
            if self._owners[name].is_view:
                what = "has the memory of a parameter or buffer, by a call that cannot be recorded"
                raise CaptureError(_refused(constants[name], what), fix="make it by an operation: x.detach()")
            if name in self._changed:
                raise CaptureError(_refused(constants[name], "is written to after the graph has read it"), fix=_FIX)
            if not self._owners[name].arrays and _lends_memory(constants[name]):
                what = "has the memory of something else, and is written to or given back"
                raise CaptureError(_refused(constants[name], what), fix="make it a copy: .clone()")
        self._given.copy({name: constants[name] for name in sorted(made)})

    def _made(self) -> set[str]:
        counts = collections.Counter(id(of()) for of in self._arrays)
        return {
            name
            for name, owner in self._owners.items()
            if owner.is_gone(counts[id(owner.arrays[-1]())] if owner.arrays else 0)
        }


class _Given:
    """Which constants the operations of a graph write to, or give to others."""

    def __init__(self, graph: Graph, module_of: Callable[[Node], nn.Module | None]) -> None:
        self._graph = graph
        self._readers: dict[str, list[Node]] = {}  # by the constant's name
        self._given: dict[Node, frozenset[Node]] = {}  # what is read, by who writes to it or gives it back
        self._regions: dict[Graph, Node] = {}  # by a body of each
        memory: dict[Node, frozenset[Node]] = {}  # the attributes whose memory a value may be
        for node in graph.all_nodes():
            self._regions |= dict.fromkeys(bodies_of(node), node)
            if node.op == "get_attr":
                self._readers.setdefault(str(node.target), []).append(node)
                memory[node] = frozenset({node})
            elif any(read in memory for read in node.all_input_nodes):
                shared = shared_inputs(node, module_of)
                self._given[node] = _all_in(memory, _values_given(node, module_of))
                memory[node] = _all_in(memory, node.all_input_nodes if shared is None else shared)

    def has(self, name: str) -> bool:
        """Tell whether calls write to a constant, or give it to others."""
        readers = self._readers.get(name, ())
        return any(not behind.isdisjoint(readers) for behind in self._given.values())

    def copy(self, made: Mapping[str, torch.Tensor]) -> None:
        """Have each call have a copy of its own of those. Raises CaptureError where it cannot have one."""
        for name, tensor in made.items():
            if self.has(name):
                self._copy(name, tensor)

    def _copy(self, name: str, tensor: torch.Tensor) -> None:
        graph, everywhere = self._graph, self._readers[name]
        given = {node for node, behind in self._given.items() if not behind.isdisjoint(everywhere)}
        alike = [other for other, held in graph.constants.items() if held is not tensor and _share_memory(held, tensor)]
        output = graph.output_node()
        if given == {output}:  # what else has its memory is only read
            alike = [other for other in alike if not self._given[output].isdisjoint(self._readers.get(other, ()))]
        if alike:
            raise CaptureError(
                _refused(tensor, "is written to, and read by another name"), at=min(given).origin, fix=_FIX
            )
        first = everywhere[0]
        if any(reader.graph is not graph for reader in everywhere):  # a copy that comes before all of them
            with graph.inserting_before(min(map(self._around, everywhere))):
                first = graph.create_node("get_attr", name)
            first.origin = everywhere[0].origin
        with graph.inserting_after(first):
            own = graph.call_method("clone", (first,))
        own.origin = first.origin
        inside = {graph: own}
        for reader in everywhere:
            reader.replace_all_uses_with(self._inside(reader.graph, inside, tensor), lambda user: user is not own)
            if reader is not first:
                reader.graph.erase_node(reader)

    def _around(self, node: Node) -> Node:
        """The operation of the whole graph in which a node is."""
        return node if node.graph is self._graph else self._around(self._regions[node.graph])

    def _inside(self, graph: Graph, known: dict[Graph, Node], tensor: torch.Tensor) -> Node:
        """What stands for a value inside of a body, to which it comes as an operand."""
        if graph not in known:
            region = self._regions[graph]
            if region.target not in _WITH_OPERANDS:
                raise CaptureError(_refused(tensor, "is written to inside of a region"), at=region.origin, fix=_FIX)
            known |= add_operand(region, self._inside(region.graph, known, tensor))
        return known[graph]


def _all_in(memory: Mapping[Node, frozenset[Node]], values: list[Node]) -> frozenset[Node]:
    found = [memory[value] for value in values if value in memory]
    return found[0] if len(found) == 1 else frozenset().union(*found)


def _values_given(node: Node, module_of: Callable[[Node], nn.Module | None]) -> list[Node]:
    """The values that a node writes to, keeps, or gives back as the output."""
    from graphwright.analysis import written_values  # a room that captures seldom need

    known = operator_of(node) if node.op in ("call_function", "call_method") else None
    keeps = node.op == "output" or (known is not None and known.acts) or node.target in _KEEP
    return node.all_input_nodes if keeps else written_values(node, module_of)


def _share_memory(one: Any, other: torch.Tensor) -> bool:
    if not isinstance(one, torch.Tensor) or one.layout != torch.strided or other.layout != torch.strided:
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and one.numel() > 0


def _refused(tensor: torch.Tensor, what: str) -> str:
    return f"a tensor of shape {tuple(tensor.shape)}, which the program makes while it is captured, {what}"


def _version(tensor: torch.Tensor) -> int | None:
    with torch._C.DisableTorchFunction():
        return None if tensor.is_inference() else tensor._version


def memory_of(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor begins; 0 for one that has none of its own."""
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided and not tensor.is_meta else 0


def _lends_memory(tensor: torch.Tensor) -> bool:
    """Tell whether the memory of a tensor is something else's, such as an array's."""
    with torch._C.DisableTorchFunction():
        is_plain = tensor.layout == torch.strided and not tensor.is_meta and tensor.device.type == "cpu"
        return is_plain and not tensor.untyped_storage().resizable()

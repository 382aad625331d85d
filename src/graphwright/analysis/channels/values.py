"""What the rules about channels ask and tell while a program runs on its example."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis.channels.atoms import Atoms, Channels
from graphwright.ir import Node, nodes_in
from graphwright.ops import call_of

Dims = tuple["Channels | None", ...]  # one per dimension; None: nothing that could be pruned


@dataclass(frozen=True, slots=True)
class Slot:
    """One dimension of one parameter or buffer, with all its names."""

    names: tuple[str, ...]
    dim: int
    channels: Channels


def untracked(value: Any) -> Any:
    """The dimensions of a value, none of them with channels, in the form of the value."""
    if isinstance(value, Tensor):
        return (None,) * value.dim()
    if isinstance(value, tuple | list):
        return [untracked(item) for item in value]
    if isinstance(value, dict):
        return {key: untracked(item) for key, item in value.items()}
    return None


@dataclass
class Knowledge:
    """Everything known so far: the atoms, the dimensions of values, and the slots of tensors."""

    gm: nn.Module
    atoms: Atoms = field(default_factory=Atoms)
    dims: dict[Node, Any] = field(default_factory=dict)
    shapes: dict[Node, Any] = field(default_factory=dict)  # of results that are tensors; numbers as they are
    slots: dict[int, list[Slot]] = field(default_factory=dict)  # by id of the tensor

    def __post_init__(self) -> None:
        self._names: dict[int, list[str]] = {}
        self._tensors: dict[int, Tensor] = {}
        for tensors in (self.gm.named_parameters, self.gm.named_buffers):
            for name, tensor in tensors(remove_duplicate=False):
                self._names.setdefault(id(tensor), []).append(name)
                self._tensors[id(tensor)] = tensor

    def of_tensor(self, tensor: Tensor | None) -> Dims:
        """The dimensions of a parameter or buffer; those of size 1 have no channels."""
        if tensor is None:
            return ()
        if id(tensor) not in self._names:
            return untracked(tensor)  # type: ignore[no-any-return]
        if id(tensor) not in self.slots:
            names = tuple(self._names[id(tensor)])
            self.slots[id(tensor)] = [
                Slot(names, dim, self.atoms.new(size)) for dim, size in enumerate(tensor.shape) if size > 1
            ]
        found: list[Channels | None] = [None] * tensor.dim()
        for slot in self.slots[id(tensor)]:
            found[slot.dim] = slot.channels
        return tuple(found)

    def of(self, arg: Any) -> Any:
        """The dimensions of an argument of a node."""
        if isinstance(arg, Node):
            return self.dims.get(arg)
        if isinstance(arg, tuple | list):
            return [self.of(item) for item in arg]
        if isinstance(arg, dict):
            return {key: self.of(item) for key, item in arg.items()}
        return None

    def are_of_channels(self, args: Any) -> bool:
        """Tell whether the numbers among arguments are the same for all inputs: literals, and made of channels."""
        return all(map(self._is_of_channels, nodes_in(args)))

    def _is_of_channels(self, number: Node) -> bool:
        call = call_of(number)
        if call is not None and call.key in ("size", "getitem") and number.args:
            owner, dim = number.args[0], call.arguments.get("dim", call.arguments.get("index"))
            while isinstance(owner, Node) and not isinstance(self.dims.get(owner), tuple) and owner.args:
                owner = owner.args[0]  # its shape
            dims = self.dims.get(owner) if isinstance(owner, Node) else None
            return isinstance(dims, tuple) and isinstance(dim, int) and dims[dim] is not None
        return bool(number.all_input_nodes) and all(map(self._is_of_channels, number.all_input_nodes))

    def tensor(self, key: int) -> Tensor:
        """The tensor that slots belong to."""
        return self._tensors[key]

    # ---- telling

    def drop_slots(self, dims: Dims) -> None:
        """These dimensions of a parameter are no channels, such as the sizes of a kernel."""
        for found in self.slots.values():
            found[:] = [slot for slot in found if not any(slot.channels is channels for channels in dims)]

    def same(self, one: Channels | None, other: Channels | None, node: Node) -> Channels | None:
        """Two dimensions are one; where one of them has no channels, the other's cannot go."""
        if one is None or other is None:
            self.atoms.fix(one or other, f"{node.name} combines it with something that no parameter makes")
            return one or other
        if len(one) != len(other):
            self.atoms.fix(one, f"{node.name} combines dimensions of different sizes")
            self.atoms.fix(other, f"{node.name} combines dimensions of different sizes")
            return one
        self.atoms.unify(one, other)
        return one

    def broadcast(self, every: Iterable[tuple[Dims, Sequence[int]]], node: Node) -> Dims:
        """The dimensions of what several values give, element by element; each comes with its shape."""
        known = list(every)
        rank = max((len(shape) for _, shape in known), default=0)
        result: list[Channels | None] = []
        for back in range(rank, 0, -1):
            sized = [(dims[-back], shape[-back]) for dims, shape in known if len(shape) >= back]
            wide = [channels for channels, size in sized if size != 1]
            joined = wide[0] if wide else None
            for channels in wide[1:]:
                joined = self.same(joined, channels, node)
            result.append(joined)
        return tuple(result)

    def fix_all(self, dims: Any, reason: str) -> None:
        """None of the channels of a value, or of nested values, can go."""
        if isinstance(dims, Channels):
            self.atoms.fix(dims, reason)
        elif isinstance(dims, tuple | list):
            for item in dims:
                self.fix_all(item, reason)
        elif isinstance(dims, dict):
            self.fix_all(list(dims.values()), reason)

    def has_channels(self, dims: Any) -> bool:
        """Tell whether there are channels in a value, or in nested values."""
        if isinstance(dims, tuple | list):
            return any(map(self.has_channels, dims))
        if isinstance(dims, dict):
            return any(map(self.has_channels, dims.values()))
        return isinstance(dims, Channels)


def shape_of(value: Any) -> Any:
    """What is kept of a result: the shape of a tensor, a number, or these in a list."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, tuple | list):
        return [shape_of(item) for item in value]
    return value if isinstance(value, int | float | torch.SymInt) else None

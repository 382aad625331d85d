"""Groups of channels that go together: which elements of which parameters have to be removed with one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from graphwright.analysis.both_sides import BothSides
from graphwright.analysis.channels.layouts import LAYOUTS
from graphwright.analysis.channels.modules import of_module
from graphwright.analysis.channels.operator_rules import RULES as OPERATORS
from graphwright.analysis.channels.values import Knowledge, shape_of, untracked
from graphwright.analysis.module_state import undisturbed
from graphwright.analysis.report import format_columns
from graphwright.errors import UnknownNameError, did_you_mean
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import call_of, cond, is_plain_module, module_call, unpack
from graphwright.runtime import call_of as example_call
from graphwright.runtime import graph_of, is_guard, read_attribute

RULES = {**OPERATORS, **LAYOUTS}


@dataclass(frozen=True, slots=True)
class Member:
    """A dimension of a parameter or buffer that a group is part of.

    names: all names of the tensor, the first in the order of the program's modules. positions: for each channel of the
    group the elements of the dimension that go with it.
    """

    names: tuple[str, ...]
    dim: int
    positions: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """The first name of the tensor."""
        return self.names[0]

    def __str__(self) -> str:
        return f"{self.name}[{self.dim}]"


def _few(members: Sequence[Member], most: int = 4) -> str:
    """Members on one line, the first ones where there are many."""
    more = [f"and {len(members) - most} more"] if len(members) > most else []
    return " ".join([*map(str, members[:most] if more else members), *more])


@dataclass(frozen=True, slots=True, repr=False)
class ChannelGroup:
    """Channels of a program, each of which is the same elements of several parameters.

    reason: why none of them can go, None where they can. notes: what is computed over all of them, such as a norm:
    without some of them it gives something else for the rest, so that the pruned program is not the original with these
    channels set to zero.
    """

    name: str
    size: int
    members: tuple[Member, ...]
    reason: str | None
    notes: tuple[str, ...]
    atoms: tuple[int, ...] = field(repr=False)
    source: ChannelGroups = field(repr=False, compare=False)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        reason = f", cannot be pruned: {self.reason}" if self.reason else ""
        return f"<{self.name}: {self.size} channels of {_few(self.members)}{reason}>"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.size} channels"]
        lines += [f"  {member}" for member in self.members]
        lines += [f"  cannot be pruned: {self.reason}"] if self.reason else []
        return "\n".join([*lines, *[f"  {note}" for note in self.notes]])


class ChannelGroups:
    """The groups of channels of a captured module, in the order of its parameters. Printed, it is a table.

    `groups["layer1.0.conv1"]` is the group of what a layer gives, `groups["fc.weight", 1]` that of a dimension of a
    parameter; where a dimension has several, as (heads * size) has, `groups.of(name, dim)` lists them.
    """

    def __init__(self, gm: nn.Module, known: Knowledge, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.gm = gm
        self.args, self.kwargs = args, kwargs
        self.known = known
        self.version = graph_of(gm).version
        self._groups = list(_groups(self, known))

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ChannelGroup]:
        return iter(self._groups)

    def __getitem__(self, name: str | tuple[str, int]) -> ChannelGroup:
        path, dim = (name, 0) if isinstance(name, str) else name
        found = self.of(path, dim)
        return max(found, key=lambda group: (group.reason is None, group.size))

    def of(self, name: str, dim: int = 0) -> list[ChannelGroup]:
        """The groups of a dimension of a parameter, or of the weight of a module. Raises UnknownNameError."""
        for path in (name, f"{name}.weight"):
            found = [
                group
                for group in self._groups
                if any(path in member.names and member.dim == dim for member in group.members)
            ]
            if found:
                return found
        known = {
            each for group in self._groups for member in group.members for each in member.names if member.dim == dim
        }
        fix = did_you_mean(name, sorted(known))
        raise UnknownNameError(f"dimension {dim} of {name!r} has no channels", fix=fix)

    def __str__(self) -> str:
        rows = [(group.name, str(group.size), _few(group.members), group.reason or "") for group in self._groups]
        return "\n".join(format_columns(("group", "channels", "members", "cannot be pruned"), rows))


def channel_groups(gm: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> ChannelGroups:
    """Run a captured module once on these inputs, and find out which channels go together.

    `args` is the tuple of its inputs, or the only one, and `kwargs` are those by name.

    Channels are elements of dimensions of parameters and buffers that the program reads. Operators carry them on:
    layers, norms, sums, `cat`, `split`, `chunk`, `view` and their like, attention. Where an operator is not known, or
    does something with single elements, its channels cannot go, and the group says so. The module is not changed.

    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.ones(3, 4)
    >>> print(channel_groups(trace(model, x), x))
    group     channels  members                            cannot be pruned
    0.weight  8         0.weight[0] 0.bias[0] 2.weight[1]
    0.weight  4         0.weight[1]                        linear combines it with something that no parameter makes
    2.weight  2         2.weight[0] 2.bias[0]              the program gives it back
    """
    given, named = example_call(args, kwargs)
    walk = _Walk(gm)
    with undisturbed(gm):
        walk.run(*given, **named)
    return ChannelGroups(gm, walk.known, given, named)


class _Walk(BothSides):
    """Runs a graph on the example, and tells what each node does to channels."""

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.known = Knowledge(gm)

    def run_node(self, n: Node) -> Any:
        """Run one node, and remember the dimensions of its value."""
        known = self.known
        inputs = self.inputs(n)
        is_branch = n.target is cond and bool(bodies_of(n))
        if is_guard(n) and self.is_second:
            return None
        if is_branch:
            for side in bodies_of(n):
                for placeholder, operand in zip(side.placeholders(), n.args[3], strict=True):
                    known.dims[placeholder] = known.of(operand)
        value = self.run_plain(n, inputs)
        if is_branch:
            dims = [dims for side in bodies_of(n) if (dims := _result(known, side)) is not _NOTHING]
            known.dims[n] = dims[0] if len(dims) == 1 else _joined(known, n, *dims)
            known.shapes[n] = shape_of(value)
        elif n not in known.dims:
            known.dims[n] = self._dims(n, inputs, value)
            known.shapes[n] = shape_of(value)
        elif n.op == "placeholder":
            known.shapes[n] = shape_of(value)
        return value

    def not_run(self, node: Node, side: Graph) -> None:
        """Nothing that is used on a side which could not be run can go."""
        known = self.known
        why = f"{node.name} is a loop, or has a side that the example cannot run"
        for placeholder in side.placeholders():
            if _is_read(placeholder):
                known.fix_all(known.dims.get(placeholder), why)
        for inner in side.all_nodes():
            if inner.op == "get_attr":
                value = read_attribute(known.gm, str(inner.target))
                if isinstance(value, torch.Tensor):
                    known.fix_all(known.of_tensor(value), why)
            elif inner.op == "call_module":
                module = read_attribute(known.gm, str(inner.target))
                for tensor in (*module.parameters(), *module.buffers()):
                    known.fix_all(known.of_tensor(tensor), why)

    def _dims(self, node: Node, inputs: dict[Node, Any], value: Any) -> Any:
        known = self.known
        if node.op == "placeholder":
            return untracked(value)
        if node.op == "get_attr":
            return known.of_tensor(value) if isinstance(value, torch.Tensor) else untracked(value)
        given = known.of((node.args, node.kwargs))
        if node.op == "output":
            if node.graph is graph_of(known.gm):
                known.fix_all(given, "the program gives it back")
            return None
        if is_guard(node):
            return None
        for body in bodies_of(node):  # of a loop or a transform
            self.not_run(node, body)
        if node.target is unpack:
            return known.of(node.args[0])
        if node.op == "call_module":
            module = read_attribute(known.gm, str(node.target))
            found = of_module(known, node, module, inputs, value)
            if found is not None:
                return found
            call = module_call(node, module) if is_plain_module(module) else None
        else:
            call = call_of(node)
        key = None if call is None else call.key
        if call is not None and key in RULES:
            if not known.has_channels(given):
                return untracked(value)
            values = {name: _with_values(arg, inputs) for name, arg in call.arguments.items()}
            return RULES[str(key)](known, node, call.arguments, values, value)
        if _asks_only(value):
            return untracked(value)
        what = key or getattr(node.target, "__name__", None) or str(node.target)
        known.fix_all(given, f"{node.name} calls {what}, of which it is not known what it does to channels")
        if node.op == "call_module":
            module = read_attribute(known.gm, str(node.target))
            for tensor in (*module.parameters(), *module.buffers()):
                known.fix_all(known.of_tensor(tensor), f"{node.name} calls {what}, which is not looked into")
        return untracked(value)


_NOTHING = object()
_ABOUT = frozenset({"size", "shape", "dim", "ndim", "dtype", "device", "numel", "is_floating_point"})


def _is_read(value: Node) -> bool:
    """Tell whether more is asked of a value than its size and kind, also in bodies."""
    for user in value.users:
        if user.target is cond and bodies_of(user):
            *_, operands = user.args
            places = [i for i, operand in enumerate(operands) if operand is value]
            if any(_is_read(body.placeholders()[place]) for body in bodies_of(user) for place in places):
                return True
            continue
        call = call_of(user) if user.op != "output" else None
        if call is None or call.key not in _ABOUT:
            return True
    return False


def _result(known: Knowledge, body: Graph) -> Any:
    """The dimensions of what a side gives, where it was run."""
    last = next(reversed(list(body.nodes)), None)
    if last is None or last.op != "output" or last not in known.dims:
        return _NOTHING
    return known.of(last.args[0])


def _joined(known: Knowledge, node: Node, one: Any, other: Any) -> Any:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_joined(known, node, a, b) for a, b in zip(one, other, strict=True)]
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(
            [
                known.same(a, b, node) if a is not None or b is not None else None
                for a, b in zip(one, other, strict=True)
            ]
        )
    known.fix_all([one, other], f"{node.name} has sides that give different things")
    return one


def _with_values(arg: Any, inputs: Mapping[Node, Any]) -> Any:
    """An argument with values in place of nodes."""
    if isinstance(arg, Node):
        return inputs.get(arg)
    if isinstance(arg, slice):
        return slice(*[_with_values(each, inputs) for each in (arg.start, arg.stop, arg.step)])
    if isinstance(arg, tuple | list):
        return (
            type(arg)([_with_values(item, inputs) for item in arg])
            if type(arg) in (tuple, list)
            else tuple([_with_values(item, inputs) for item in arg])
        )
    return arg


def _asks_only(value: Any) -> bool:
    """Tell whether a value cannot hold channels: a number, a size, a dtype."""
    return isinstance(value, int | float | str | torch.Size | torch.dtype | torch.device) or value is None


def _groups(source: ChannelGroups, known: Knowledge) -> Iterator[ChannelGroup]:
    """Atoms that are in the same dimensions, of one kind and with one fate, are a group."""
    atoms = known.atoms
    order = {name: i for i, (name, _) in enumerate([*known.gm.named_parameters(), *known.gm.named_buffers()])}
    slots = [slot for found in known.slots.values() for slot in found]
    slots.sort(key=lambda slot: (order.get(slot.names[0], len(order)), slot.dim))
    places: dict[int, dict[int, list[int]]] = {}  # atom -> slot -> positions
    for i, slot in enumerate(slots):
        for position, atom in enumerate(slot.channels.atoms):
            for base in atoms.bases(atom):
                places.setdefault(base, {}).setdefault(i, []).append(position)
    together: dict[Any, list[int]] = {}
    for atom, found in places.items():
        key = atoms.family(atom), tuple(sorted(found)), atoms.reasons.get(atom)
        together.setdefault(key, []).append(atom)
    for (_, which, reason), members in sorted(together.items(), key=lambda item: item[0][1]):
        notes = dict.fromkeys(note for atom in members for note in atoms.notes.get(atom, ()))
        yield ChannelGroup(
            slots[which[0]].names[0],
            len(members),
            tuple(
                [
                    Member(slots[i].names, slots[i].dim, tuple([tuple(places[atom][i]) for atom in members]))
                    for i in which
                ]
            ),
            reason,
            tuple(notes),
            tuple(members),
            source,
        )

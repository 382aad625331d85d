"""How a value comes to a stage that did not make it: as tensors, numbers, constants, or made there once more."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis import Effects, Place, Shapes
from graphwright.errors import PassError
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond, is_impure
from graphwright.passes import Split, module_of
from graphwright.runtime import graph_of, read_attribute

_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}
_CONSTANTS = (str, bytes, type(None), torch.dtype, torch.layout, torch.memory_format, type(...))
_CONTAINERS = (tuple, list, dict, torch.Size)


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A tensor or a number of a value, which goes from process to process as a tensor.

    node: what makes the value, a node of the whole program. path: where in the value it is: keys, one after the other.
    example: a tensor without data that is like what is sent. number: the dtype of a number, None for a tensor.
    is_dense: whether the tensor lies in memory as one that is sent has to.
    """

    node: Node
    path: tuple[Any, ...]
    example: Tensor
    number: torch.dtype | None = None
    is_dense: bool = True

    @property
    def key(self) -> tuple[Node, tuple[Any, ...]]:
        """What it is known by."""
        return self.node, self.path

    @property
    def name(self) -> str:
        """What it is called: the name of the node, and the keys."""
        return "_".join([self.node.name, *map(str, self.path)])


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that every stage knows: None, a string, a dtype. The stage that makes it checks that it is this."""

    value: Any


@dataclass(frozen=True, slots=True)
class Device:
    """The device that a stage is on."""


@dataclass(frozen=True, slots=True)
class Nested:
    """A tuple, list or dict of forms."""

    kind: type
    items: Any


@dataclass(frozen=True, slots=True)
class Remade:
    """A value that is no tensor on every way, such as a mask that may be None: its node runs in each stage anew."""

    node: Node


@dataclass(frozen=True, slots=True)
class Check:
    """Something that stages take for granted of a value: a constant in it, or how many items a container has."""

    node: Node
    path: tuple[Any, ...]
    value: Any
    is_length: bool = False


Form = Leaf | Constant | Device | Nested | Remade


class Crossings:
    """What the stages of a split program need of each other, and how they get it.

    `forms[i]` has the form of each value that stage i takes from others, in order. `carried[i]` are the leaves that go
    from stage i to stage i + 1, those that only later stages need among them. `cloned[i]` are the leaves that stage i
    writes to in place. `checks` are what all stages take for granted of values, which those that make them check.
    """

    def __init__(self, gm: nn.Module, split: Split, shapes: Shapes) -> None:
        self.gm, self.graph, self.split, self.shapes = gm, graph_of(gm), split, shapes
        self.by_name = {node.name: node for node in self.graph.nodes}
        self.stage_of = self._stages()
        self.forms: list[dict[Node, Form]] = [{} for _ in split]
        self.carried: list[dict[Any, Leaf]] = [{} for _ in split]
        self.cloned: list[set[Any]] = [set() for _ in split]
        self.checks: list[Check] = []
        self._known_open: dict[Node, bool] = {}
        for node in self.graph.nodes:
            self._reads_open(node)  # in order, so that none has to look far back
            stage = self.stage_of.get(node, len(split) - 1 if node.op == "output" else 0)
            for used in node.all_input_nodes:
                if self.stage_of.get(used, stage) < stage:
                    self.need(stage, used)
        for i, part in enumerate(split):
            self._check_writes(i, part.writes)

    def _stages(self) -> dict[Node, int]:
        found = {node: 0 for node in self.graph.nodes if node.op == "placeholder"}
        for i, stage in enumerate(self.split):
            for node in graph_of(stage.module).nodes:
                if node.op not in ("placeholder", "get_attr", "output"):
                    found[self.by_name[node.name]] = i
        for node in self.graph.nodes:
            asked = node.args[0] if _asks_of_shape(node) else None
            if isinstance(asked, Node) and asked in found and node.all_input_nodes == [asked]:
                readers = [user for user in asked.users if not _asks_of_shape(user)]
                if all(found.get(user, len(self.split)) < found[node] for user in readers):
                    found[node] = found[asked]  # a size is sent rather than what has it
        return found

    def need(self, stage: int, node: Node) -> Form:
        """Say that a stage needs a value of an earlier one, and how it gets it."""
        forms = self.forms[stage]
        if node not in forms:
            value = self.value(node)
            form = self._remade(stage, node) if self._is_open(node, value) else self._form(node, (), value)
            for leaf in _leaves(form):
                self._carry(leaf, stage)
            forms[node] = form
        return forms[node]

    def value(self, node: Node) -> Any:
        """What a node gives for the example, tensors without data; `UNKNOWN` where that needs data."""
        value = self.shapes.known_value(node)
        return UNKNOWN if value is None and self.shapes.why(node) else value

    def _carry(self, leaf: Leaf, stage: int) -> None:
        for between in range(self.stage_of[leaf.node], stage):
            self.carried[between].setdefault(leaf.key, leaf)

    # ---- forms

    def _form(self, node: Node, path: tuple[Any, ...], value: Any) -> Form:
        if isinstance(value, Tensor):
            like = torch.empty(value.shape, dtype=value.dtype, device="meta")
            return Leaf(node, path, like.requires_grad_(value.requires_grad), None, value.is_contiguous())
        if type(value) in _NUMBERS:
            dtype = _NUMBERS[type(value)]
            return Leaf(node, path, torch.empty((), dtype=dtype, device="meta"), dtype)
        if isinstance(value, torch.device):
            return Device()
        if isinstance(value, _CONSTANTS):
            self.checks.append(Check(node, path, value))
            return Constant(value)
        if type(value) in _CONTAINERS:
            self.checks.append(Check(node, path, len(value), is_length=True))
            if isinstance(value, dict):
                return Nested(dict, {key: self._form(node, (*path, key), item) for key, item in value.items()})
            kind = list if isinstance(value, list) else tuple
            return Nested(kind, [self._form(node, (*path, i), item) for i, item in enumerate(value)])
        raise PassError(
            f"{node.name} is a {type(value).__name__}, which cannot be sent to the later stage that needs it",
            at=node.origin,
            fix="cut before it or behind its last use, or have the program pass tensors on",
        )

    def _is_open(self, node: Node, value: Any) -> bool:
        """Tell whether it takes data to know what kind of value a node gives."""
        if isinstance(value, Unknown):
            return True
        region, path = node, tuple[Any, ...]()
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            region, path = node.args[0], (node.args[1],)
        if region.target is cond and bodies_of(region):
            kinds = {_kind(self._side(body, path)) for body in bodies_of(region)}
            return len(kinds) > 1 and self._is_of_data(region.args[0])
        return not isinstance(value, Tensor) and type(value) not in _NUMBERS and self._reads_open(node)

    def _is_of_data(self, condition: Any) -> bool:
        """Tell whether a condition may hold for some data and not for other, of inputs of these shapes."""
        if not isinstance(condition, Node):
            return False
        value = self.value(condition)
        return isinstance(value, Tensor | Unknown) or self._reads_open(condition)

    def _reads_open(self, node: Node) -> bool:
        """Tell whether a node asks something of what is open: whether it is None, say, of which then more comes."""
        if node not in self._known_open:
            self._known_open[node] = any(
                self._is_open(used, value) or (not isinstance(value, Tensor) and self._reads_open(used))
                for used in node.all_input_nodes
                if used.op not in ("placeholder", "get_attr")
                for value in (self.value(used),)
            )
        return self._known_open[node]

    def _side(self, body: Graph, path: tuple[Any, ...]) -> Any:
        """What a side of a branch gives."""
        given: Any = body.output_node().args[0]
        for key in (None, *path):
            given = self.value(given) if isinstance(given, Node) else given
            given = given[key] if key is not None and isinstance(given, tuple | list | dict) else given
        return self.value(given) if isinstance(given, Node) else given

    def _remade(self, stage: int, node: Node) -> Form:
        """Have a stage run a node once more; what that reads comes to it, too."""
        why = self._why_not_twice(node)
        if why:
            raise PassError(
                f"what {node.name} is, data decides, and a later stage needs it, which cannot make it once more: {why}",
                at=node.origin,
                fix='cut behind its last use, or capture with target="export", which leaves out such questions',
            )
        for used in node.all_input_nodes:
            if used.op != "get_attr":
                self.need(stage, used)
        return Remade(node)

    def _why_not_twice(self, node: Node) -> str:
        if node.op == "placeholder":
            return "it is an input of the program, of which the example does not tell what it is"
        if is_impure(node, module_of(self.gm)(node), in_any_mode=True):
            return "it has effects"
        if any(self._effects.memory(each) & self._written for each in (node, *node.all_input_nodes)):
            return "what it reads is written to"
        inner = [each for body in bodies_of(node) for each in body.all_nodes()]
        for each in [node, *node.all_input_nodes, *inner]:
            if each.op == "call_module" and (each is node or each in inner):
                if any(True for _ in self.gm.get_submodule(str(each.target)).parameters()):
                    return f"it calls {each.target}, which has parameters"
            elif each.op == "get_attr" and isinstance(read_attribute(self.gm, str(each.target)), nn.Parameter):
                return f"it reads the parameter {each.target}"
        return ""

    # ---- writes

    @functools.cached_property
    def _effects(self) -> Effects:
        return Effects(self.gm)

    @functools.cached_property
    def _written(self) -> frozenset[Place]:
        """What the program writes to in place."""
        places = {place for node in self.graph.nodes for place in self._effects.writes(node)}
        return frozenset(place for place in places if place.kind != "random")

    def _check_writes(self, stage: int, names: tuple[str, ...]) -> None:
        """Have a stage write to a copy of what it was given; refuse where another stage would have to see it."""
        for node in (self.by_name[name] for name in (names if stage else ())):
            if node.op == "placeholder":
                raise PassError(
                    f"stage {stage} writes to {node.name}, an input of the program, which only stage 0 has",
                    at=node.origin,
                    fix="cut behind the write, or copy the input before it: x = x.clone()",
                )
            shared = {_memory(each) for each in _tensors(self.value(node))}
            for other in {other: None for forms in self.forms[stage:] for other in forms}:
                if other is not node and any(_memory(each) in shared for each in _tensors(self.value(other))):
                    raise PassError(
                        f"stage {stage} writes to {node.name}, which shares memory with {other.name}: behind a cut, one"
                        " would not see what is written to the other",
                        at=node.origin,
                        fix="cut behind the write, or copy one of them: x = x.clone()",
                    )
            form = self.forms[stage].get(node)
            self.cloned[stage] |= {leaf.key for leaf in _leaves(form) if leaf.number is None}


class Unknown:
    """What stands for a value that only a run knows."""


UNKNOWN = Unknown()


def _asks_of_shape(node: Node) -> bool:
    """Tell whether a node asks for the size or kind of a tensor, which no write in place changes."""
    if node.op == "call_method":
        return node.target in ("size", "dim", "numel")
    return node.target is getattr and node.args[1] in ("shape", "dtype", "ndim")


def _leaves(form: Form | None) -> Iterator[Leaf]:
    if isinstance(form, Leaf):
        yield form
    elif isinstance(form, Nested):
        for item in form.items.values() if isinstance(form.items, Mapping) else form.items:
            yield from _leaves(item)


def _kind(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value), tuple([_kind(item) for item in value])
    if isinstance(value, Tensor):
        return Tensor, tuple(value.shape), value.dtype
    return type(value)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)

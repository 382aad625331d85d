"""Branches and loops as targets without errors, effects and attributes see them."""

from __future__ import annotations

import collections
import contextlib
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from graphwright.errors import ExportError
from graphwright.ir import Graph, Node
from graphwright.ops import delete_attribute, is_impure, raise_error, read_variable, set_attribute, write_variable

_CONTAINERS = (list, dict, set, collections.deque)
_WRITES = (set_attribute, delete_attribute, write_variable)


class Held:
    """The lists, dicts, sets and deques that a run has read of modules and variables, and what is inside of them.

    No target keeps what is written to them for the next call.
    """

    def __init__(self) -> None:
        self._names: dict[int, tuple[Any, str]] = {}  # by id: itself, and by which name it was read
        self._missing: set[Graph] = set()  # bodies that run where a dict lacks a key, and put it there

    def add(self, name: str, value: Any) -> None:
        """Note that a value was read by a name."""
        if isinstance(value, _CONTAINERS) and id(value) not in self._names:
            self._names[id(value)] = value, name
            for item in value.values() if isinstance(value, dict) else value:
                self.add(name, item)

    def branch(self, node: Node) -> None:
        """Note which side of a branch fills a cache: what is put there is computed in each call of a target.

        The branch asks whether a dict has a key, and writes to nothing where it has.
        """
        asked, *sides = node.args[:3]
        while isinstance(asked, Node) and asked.target is operator.not_:
            asked, sides = asked.args[0], sides[::-1]
        if isinstance(asked, Node) and asked.target is operator.contains and all(type(each) is Graph for each in sides):
            there, missing = sides
            if not does_more(there):
                self._missing.add(missing)

    def read(self, target: Any, args: tuple[Any, ...], value: Any) -> None:
        """Note what a call has given, where it has read a variable."""
        if target is read_variable:
            self.add(str(args[1]), value)

    def written_by(self, node: Node, args: tuple[Any, ...]) -> str | None:
        """The name of the attribute, variable or container that a node writes to; None for other nodes.

        `args` is what the node is called with.
        """
        if node.op == "call_function" and node.target in _WRITES:
            return str(args[1])
        if not args or not isinstance(args[0], _CONTAINERS):
            return None
        _, name = self._names.get(id(args[0]), (None, None))
        if name is None or not is_impure(node):
            return None
        if node.target is operator.setitem and node.graph in self._missing:
            self.add(name, args[2])  # a cache; what is in it is none
            return None
        return name


def tensors_used(
    module: nn.Module, nodes: Iterable[Node], known: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The tensors of a module that nodes read, and those that modules have which they call, by name.

    `known` are its parameters and buffers, or what is in their place.
    """
    found: dict[str, torch.Tensor] = {}
    for node in nodes:
        path = str(node.target)
        if node.op == "get_attr":
            value = known[path] if path in known else operator.attrgetter(path)(module)
            if isinstance(value, torch.Tensor):
                found[path] = value
        elif node.op == "call_module":
            found.update({name: value for name, value in known.items() if name.startswith(f"{path}.")})
    return found


def nodes_inside(region: Node) -> Iterator[Node]:
    """The nodes of the bodies of a branch or loop."""
    return (node for body in region.args if isinstance(body, Graph) for node in body.all_nodes())


def raising_side(branch: Node) -> tuple[Node, int] | None:
    """The node that raises an error on one side of a branch, and which side that is: 0 where its condition holds.

    None where no side raises, and for a branch that is none of a graph.
    """
    for side, body in enumerate(branch.args[1:3]):
        raising = [inner for inner in body.nodes if inner.target is raise_error] if isinstance(body, Graph) else []
        if raising:
            return raising[0], side
    return None


def does_more(body: Graph) -> bool:
    """Tell whether a body does more than to compute values: then it matters how often it runs.

    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(torch.rand, (3,)))
    >>> does_more(graph), does_more(Graph())
    (True, False)
    """
    return any(inner.op.startswith("call") and is_impure(inner) for inner in body.all_nodes())


# ---- which of the values that they are given bodies write to


def clones(values: Sequence[Any]) -> list[Any]:
    """Values, with copies of the tensors among them."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def versions_of(values: Sequence[Any]) -> list[int]:
    """How often each tensor was written to."""
    return [value._version if isinstance(value, torch.Tensor) else 0 for value in values]


def changed_since(values: Sequence[Any], before: Sequence[int]) -> list[int]:
    """The numbers of the tensors that were written to since they had these versions."""
    pairs = zip(versions_of(values), before, strict=True)
    return [i for i, (version, was) in enumerate(pairs) if version != was]


def check_apart(values: Sequence[Any], written: Collection[int], node: Node) -> None:
    """Refuse what is written to under two names: a body cannot see that two of its inputs are one memory."""
    places = [value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None for value in values]
    if any(places.count(places[i]) > 1 for i in written):
        raise ExportError(
            f"{node.name} writes to a value that it also reads by another name",
            at=node.origin,
            fix="write to a copy: value.clone()",
        )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Run something while torch.export watches, and leave no trace of it in what that records."""
    mode = torch._guards.detect_fake_mode()
    env = None if mode is None else mode.shape_env
    unseen = contextlib.nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()
    with disable_proxy_modes_tracing(), unseen:
        yield

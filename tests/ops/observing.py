"""What an operator really does to its arguments, seen by running it: writes, shared memory, random numbers."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from graphwright import Graph, Node
from graphwright.ops import Call


@dataclasses.dataclass(frozen=True)
class Seen:
    """What one run did: the arguments (by number among the tensors) written and shared, and whether it drew numbers."""

    writes: set[int]
    shares: set[tuple[int, int]]
    random: bool
    value: Any


def tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def fresh(value: Any) -> Any:
    """Copies that share no memory with the originals, nor with each other."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.detach().clone()
        return copy.deepcopy(leaf) if isinstance(leaf, torch.Generator) else leaf

    return tree_map(one, value)


def memory_of(value: Tensor) -> set[int]:
    """The storages that a tensor uses: of its indices and values where it is sparse."""
    parts = [value]
    if value.layout is torch.sparse_coo:
        parts = [value._indices(), value._values()]
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [value.crow_indices(), value.col_indices(), value.values()]
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [value.ccol_indices(), value.row_indices(), value.values()]
    found = set()
    for part in parts:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            found.add(part.untyped_storage()._cdata)
    return found


def same_values(one: Tensor, other: Tensor) -> bool:
    if one.layout is not torch.strided or one.is_quantized or one.is_nested:
        return True  # the version tells
    return one.shape == other.shape and torch.equal(one.nan_to_num(0), other.nan_to_num(0)) if one.numel() else True


def observe(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Seen:
    """Run a call on copies and see what it does. Raises what the call raises."""
    args, kwargs = fresh((args, dict(kwargs)))
    inputs = tensors_in((args, kwargs))
    before = [(one._version, one.clone(), memory_of(one)) for one in inputs]
    generators = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Generator)]
    states = [torch.get_rng_state(), *[generator.get_state() for generator in generators]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = function(*args, **kwargs)
    after = [torch.get_rng_state(), *[generator.get_state() for generator in generators]]
    writes = {
        i for i, (one, (version, old, _)) in enumerate(zip(inputs, before, strict=True))
        if one._version != version or not same_values(one, old)
    }  # fmt: skip
    shares = set()
    for place, result in enumerate(value if isinstance(value, tuple) else (value,)):
        used = set().union(*map(memory_of, tensors_in(result))) if tensors_in(result) else set()
        shares |= {(place, i) for i, (_, _, memory) in enumerate(before) if memory & used}
    random = any(not torch.equal(one, other) for one, other in zip(states, after, strict=True))
    return Seen(writes, shares, random, value)


def node_of(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Node, list[Node]]:
    """A node that makes this call, and the nodes that stand for the tensors in it, in their order."""
    graph = Graph()
    stand_ins: list[Node] = []

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        stand_ins.append(graph.placeholder(f"t{len(stand_ins)}"))
        return stand_ins[-1]

    args, kwargs = tree_map(one, (tuple(args), dict(kwargs)))
    if isinstance(target, str):
        return graph.call_method(target, args, kwargs), stand_ins
    return graph.call_function(target, args, kwargs), stand_ins


def parameters_with(call: Call, stand_in: Node) -> set[str]:
    """The parameters whose value is this node or holds it."""

    def holds(value: Any) -> bool:
        if isinstance(value, tuple | list):
            return any(map(holds, value))
        if isinstance(value, dict):
            return any(map(holds, value.values()))
        if isinstance(value, slice):
            return any(map(holds, (value.start, value.stop, value.step)))
        return value is stand_in

    return {name for name, value in call.arguments.items() if holds(value)}


class Calls(TorchFunctionMode):
    """Notes the calls of torch that a function makes, with copies of what they get."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.made.append((func, *fresh((args, kwargs or {}))))
        return func(*args, **(kwargs or {}))


def calls_inside(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The calls of torch that a function makes: (function, args, kwargs)."""
    args, kwargs = fresh((args, dict(kwargs)))
    with Calls() as calls, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(*args, **kwargs)
    return calls.made


def spellings_of(op: Any) -> Iterator[tuple[str, Any, Callable[..., Any]]]:
    """The ways to call an operator of the database: what kind, the target of a node, the function to run."""
    yield "function", op.op, op.op
    kinds = {"method": op.method_variant, "in place": op.inplace_variant}
    kinds |= {f"alias {alias.name}": alias.op for alias in op.aliases}
    kinds |= {f"method {alias.name}": alias.method_variant for alias in op.aliases}
    kinds |= {f"in place {alias.name}": alias.inplace_variant for alias in op.aliases}
    for kind, function in kinds.items():
        if function is None:
            continue
        name = getattr(function, "__name__", "")
        is_method = not kind.startswith("alias") and getattr(torch.Tensor, name, None) == function
        yield kind, name if is_method else function, function
    yield from (
        (kind, function, function)
        for kind, function in (("operator", op.operator_variant), ("operator in place", op.inplace_operator_variant))
        if function is not None
    )

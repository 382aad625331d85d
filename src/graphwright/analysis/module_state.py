"""The state of a module tree, taken before a run and put back after it.

A forward may write to buffers and parameters, bind attributes anew and advance random states. Comparing two modules
that share their parameters asks for all of that to be undone between the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from graphwright.analysis.effects.effects import Effects
from graphwright.analysis.randomness import same_randomness
from graphwright.analysis.values import CONTAINERS, Fact, facts_of
from graphwright.ir import Node
from graphwright.ops import is_region, read_variable, write_variable
from graphwright.runtime import GraphModule, graphs_of
from graphwright.source import is_foreign_class

_OF_TORCH = frozenset({"_parameters", "_buffers", "_modules"})
_GONE = ("value", "input", "random")  # what a call writes to that no module has
_DEPTH = 4  # how far inside of each other the containers and objects are that are put back


class ModuleState:
    """What a module tree was when this was made: attributes, what is in them, and the values of its tensors.

    It holds a copy of every parameter and buffer, those aside that `beside` holds already. A captured module's has
    the variables outside of it that it uses, too; a root that is no module has no state.
    """

    def __init__(self, root: Any, beside: ModuleState | None = None) -> None:
        self._attributes: list[tuple[str, nn.Module, dict[str, Any]]] = []
        self._containers: dict[int, tuple[Any, Any]] = {}  # by id: the container itself, and a shallow copy
        self._tensors: dict[str, tuple[Tensor, Tensor, Tensor]] = {}  # by name: itself, an alias, a copy
        self._variables: list[tuple[Any, str, Any]] = []  # outside of all modules
        self._others: list[Callable[[], Any]] = []  # what puts generators and arrays back
        if not isinstance(root, nn.Module):
            return
        for path, module in root.named_modules():
            self._attributes.append((path, module, dict(vars(module))))
            for name, value in vars(module).items():
                self._include(value, 0 if name in _OF_TORCH else _DEPTH)
        copies = {} if beside is None else {id(tensor): values for tensor, _, values in beside._tensors.values()}
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            values = copies.get(id(tensor))
            self._tensors[name] = (tensor, tensor.data, tensor.detach().clone() if values is None else values)
        self.include_variables(root)

    def include_variables(self, captured: Any) -> None:
        """Include the variables outside of all modules that a captured module reads and writes."""
        if not isinstance(captured, GraphModule):
            return
        for value in [value for graph in graphs_of(captured) for value in graph.constants.values()]:
            self._include(value)
        for node in (node for graph in graphs_of(captured) for node in graph.all_nodes()):
            if node.target is read_variable or node.target is write_variable:
                owner, name, *_ = node.args
                value = read_variable(owner, str(name))
                self._variables.append((owner, str(name), value))
                self._include(value)

    def _include(self, value: Any, depth: int = _DEPTH) -> None:
        """Include what is in a container, array or object of the user's, a tensor, or the state of a generator."""
        table = vars(value) if _has_attributes(value) else value
        if type(table) in CONTAINERS:
            if id(table) not in self._containers:
                self._containers[id(table)] = (table, table.copy())
                items = [*table.values()] if isinstance(table, dict) else [*table]
                for item in items if depth else ():
                    self._include(item, depth - 1)
        elif type(value) is Tensor and value.layout is torch.strided and not (value.is_quantized or value.is_nested):
            self._tensors.setdefault(f"{id(value)}", (value, value.data, value.detach().clone()))
        elif isinstance(value, numpy.ndarray) and value.flags.writeable:
            self._others.append(functools.partial(numpy.copyto, value, value.copy()))
        elif isinstance(value, bytearray):
            self._others.append(functools.partial(value.__setitem__, slice(None), bytes(value)))
        elif isinstance(value, torch.Generator):
            self._others.append(functools.partial(value.set_state, value.get_state()))
        elif isinstance(value, random.Random):
            self._others.append(functools.partial(value.setstate, value.getstate()))
        elif isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            self._others.append(functools.partial(setattr, bits, "state", bits.state))
        elif isinstance(value, numpy.random.RandomState):
            self._others.append(functools.partial(value.set_state, value.get_state()))

    def restore(self) -> None:
        """Put everything back that has changed."""
        for put_back in self._others:
            put_back()
        for owner, name, value in self._variables:
            if read_variable(owner, name) is not value:
                write_variable(owner, name, value)
        for _, module, before in self._attributes:
            now = vars(module)
            for name in [name for name in now if name not in before]:
                del now[name]
            for name, value in before.items():
                if now.get(name) is not value or name not in now:
                    now[name] = value
        for container, items in self._containers.values():
            if not _holds_the_same(container, items):
                container.clear()
                container.extend(items) if isinstance(container, list | deque) else container.update(items)
        for tensor, alias, values in self._tensors.values():
            if _is_elsewhere(tensor, alias):
                tensor.data = alias
            if _has_changed(tensor, values):
                tensor.data.copy_(values)  # through `.data`: autograd's version counter stays

    def effects(self, root: Any) -> dict[str, list[Fact]]:
        """What a run changed since this was made: by name, facts about the value it has now.

        Covers parameters, buffers, and attributes that hold plain values or tensors.
        """
        if not isinstance(root, nn.Module):
            return {}
        changed: dict[str, list[Fact]] = {}
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            known = self._tensors.get(name)
            if known is None or known[0] is not tensor or _has_changed(tensor, known[2]):
                changed[name] = facts_of(tensor, f"after the call: {name}")
        for path, module, before in self._attributes:
            for name, value in vars(module).items():
                if name.startswith("_") or name == "training" or not self._is_new(name, value, before):
                    continue
                full = f"{path}.{name}" if path else name
                changed[full] = facts_of(value, f"after the call: {full}")
        return changed

    def value(self, name: str) -> Any:
        """The value that a parameter, buffer or attribute had; None where there was none of that name."""
        known = self._tensors.get(name)
        if known is not None:
            return known[2]
        owner, _, attribute = name.rpartition(".")
        value = next((before.get(attribute) for path, _, before in self._attributes if path == owner), None)
        return self._containers[id(value)][1] if id(value) in self._containers else value

    def _is_new(self, name: str, value: Any, before: dict[str, Any]) -> bool:
        if name not in before or before[name] is not value:
            return True
        return id(value) in self._containers and not _holds_the_same(value, self._containers[id(value)][1])


def _has_attributes(value: Any) -> bool:
    """Tell whether a value is an object of a class of the user's, or of one that has but what it is given."""
    kind = type(value)
    return isinstance(value, SimpleNamespace | argparse.Namespace) or (
        not isinstance(value, nn.Module | type | FunctionType)
        and hasattr(value, "__dict__")
        and not is_foreign_class(kind)
    )


def _holds_the_same(container: Any, before: Any) -> bool:
    if len(container) != len(before):
        return False
    if isinstance(container, Mapping):
        pairs = zip(container.items(), before.items(), strict=True)
        return all(key is old_key and value is old_value for (key, value), (old_key, old_value) in pairs)
    if isinstance(container, set):
        return {id(item) for item in container} == {id(item) for item in before}
    return all(item is old for item, old in zip(container, before, strict=True))


def _is_elsewhere(tensor: Tensor, alias: Tensor) -> bool:
    """Tell whether a tensor was given other memory, another shape or another dtype than its alias still has."""
    if tensor.shape != alias.shape or tensor.dtype != alias.dtype or tensor.device != alias.device:
        return True
    return tensor.layout == torch.strided and not tensor.is_meta and tensor.data_ptr() != alias.data_ptr()


def _has_changed(tensor: Tensor, before: Tensor) -> bool:
    if tensor.shape != before.shape or tensor.dtype != before.dtype:
        return True
    return not tensor.is_meta and not torch.equal(tensor.detach(), before)


def writes_state(program: nn.Module, aside: tuple[type[nn.Module], ...] = ()) -> bool:
    """Tell whether a call of a module may leave something behind in its modules, those of some classes aside.

    Of modules that are not captured nobody can tell, and the answer is yes.

    >>> from graphwright import trace
    >>> writes_state(trace(nn.ReLU(), torch.ones(2))), writes_state(trace(nn.BatchNorm1d(2), torch.ones(3, 2)))
    (False, True)
    """
    graphs = graphs_of(program) if isinstance(program, GraphModule) else []
    seen = [(Effects(program, graph), graph) for graph in graphs]
    return not seen or any(
        _leaves_something(node, effects, aside) for effects, graph in seen for node in graph.all_nodes()
    )


def _leaves_something(node: Node, effects: Effects, aside: tuple[type[nn.Module], ...]) -> bool:
    """Tell whether a node may leave something where another call finds it, or print it."""
    if is_region(node) or (node.op == "call_module" and isinstance(effects.module(node), aside)):
        return False  # the nodes of its bodies are asked themselves
    if node.target is print or node.kwargs.get("generator") is not None:
        return True
    return any(place.kind not in _GONE for place in effects.writes(node))


@contextlib.contextmanager
def state_kept(
    program: nn.Module, *modules: nn.Module, aside: tuple[type[nn.Module], ...] = ()
) -> Iterator[Callable[[], None] | None]:
    """Leave the state of modules as it is, whatever runs, where a program writes any; give what puts it back meanwhile.

    What modules of the classes `aside` do is no reason to. None is given where nothing is written.
    """
    states = [ModuleState(module) for module in modules] if writes_state(program, aside) else []

    def put_back() -> None:
        for state in states:
            state.restore()

    try:
        yield put_back if states else None
    finally:
        put_back()


@contextlib.contextmanager
def variables_kept(program: nn.Module) -> Iterator[None]:
    """Leave what is outside of modules as it is while copies of them run: variables that they write, and randomness."""
    state = ModuleState(None)
    state.include_variables(program)
    try:
        with same_randomness():
            yield
    finally:
        state.restore()


@contextlib.contextmanager
def undisturbed(module: nn.Module) -> Iterator[Callable[[], None]]:
    """Runs of a module without gradients, after which it and all random states are what they were.

    It gives what puts the state back between two runs.
    """
    with state_kept(module, module) as put_back, torch.no_grad(), same_randomness():
        yield put_back or _nothing


def _nothing() -> None:
    return None


# ---- random states


def seed_everything(seed: int) -> None:
    """Give torch, Python and NumPy (where it is loaded) the same start."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def random_facts() -> list[Fact]:
    """Facts about the random states, to see whether two runs drew the same amount."""
    facts = facts_of(torch.get_rng_state(), "after the call: torch's random state")
    facts += facts_of(hash(random.getstate()), "after the call: Python's random state")
    if torch.cuda.is_initialized():
        facts += facts_of(torch.cuda.get_rng_state(), "after the call: CUDA's random state")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, numbers, *rest = numpy.random.get_state()
        facts += facts_of(hash((numbers.tobytes(), *rest)), "after the call: NumPy's random state")
    return facts
